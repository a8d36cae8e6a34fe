"""Saving and loading: the same model comes back, or a plain error does."""

import importlib.util
import os
import pickle
import stat

import numpy as np
import pandas as pd
import parts
import pytest
import safetensors
import safetensors.numpy
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import polyadic
from polyadic import inits, losses, maps
from polyadic.estimators import CPClassifier, CPRegressor, TNClassifier, TNRegressor
from polyadic.formats import FORMATS
from polyadic.store import ModelFileError, load, save

# Two epochs may well end far off, which is no matter here.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

TINY = {"rank": 4, "n_members": 1, "max_epochs": 2, "random_state": 0}
NETWORK = {"rank": 4, "order": 3, "max_epochs": 2, "random_state": 0}
ROWS = 60
PACKED = {"packed", "packed_hats"}  # made from the rest when needed


def numbers(n_columns=3):
    return np.random.default_rng(1).normal(size=(ROWS, n_columns))


def frame():
    rng = np.random.default_rng(2)
    table = pd.DataFrame({"area": rng.normal(size=ROWS), "rooms": rng.integers(1, 6, ROWS)})
    table["city"] = pd.Series(rng.choice(["Ulm", "Bonn", "Köln ☃", ""], ROWS), dtype="object")
    table["code"] = pd.Series(rng.choice([1, 2.5, "x", True], ROWS), dtype="object")
    table["grade"] = pd.Categorical(rng.choice(["low", "high"], ROWS))
    table["none"] = pd.Series([None] * ROWS, dtype="object")
    table.loc[::7, ["area", "city", "grade"]] = None
    return table


class Steps(maps.FeatureMap):
    """A user's own map: indicators of the intervals between edges, which may be infinite."""

    state = ("edges_", "offset_")

    def __init__(self, n_steps=3, names=("a", "b")):
        self.n_steps = n_steps
        self.names = names

    def fit(self, x, y=None, sample_weight=None):
        inner = np.nanquantile(x, np.linspace(0, 1, self.n_steps + 1)[1:-1])
        self.edges_ = np.concatenate([[-np.inf], inner, [np.inf]])
        self.offset_ = 1
        return self

    def encode(self, x):
        index = np.searchsorted(self.edges_[1:-1], x) + self.offset_
        index = np.where(np.isnan(x), 0, index).astype(np.int32)[:, None]
        return index, (index > 0).astype(np.float32)

    @property
    def dim(self):
        return len(self.edges_)

    @property
    def degrees(self):
        return (np.arange(self.dim) > 0).astype(int)


def build_named():
    X = frame()
    y = X["rooms"] + X["area"].fillna(0) * (X["city"] == "Ulm")
    return CPRegressor(**TINY).fit(X, y), X


def build_labels(labels, **options):
    X = numbers()
    y = np.asarray(labels)[np.arange(ROWS) % len(labels)]
    return CPClassifier(**{**TINY, **options}).fit(X, y), X


def build_numbers(y=None, n_columns=3, **options):
    X = numbers(n_columns)
    y = X[:, 0] * X[:, 1] + 1.0 if y is None else y
    return CPRegressor(**{**TINY, **options}).fit(X, y), X


def build_one_hot(own):
    X = np.random.default_rng(3).integers(0, 5, (ROWS, 2))
    return CPRegressor(maps=own, **TINY).fit(X, X[:, 0] - X[:, 1]), X


def build_passes():
    X = numbers()
    model = CPClassifier(**TINY)
    for rows in (slice(0, 30), slice(30, ROWS)):
        model.partial_fit(X[rows], X[rows, 0] > 0, classes=[False, True])
    return model, X


def build_network(format, n_outputs, **options):
    pytest.importorskip("torch")
    X = numbers()
    y = X[:, 0] * X[:, 1] + 1.0 if n_outputs == 1 else X**2
    return TNRegressor(format, **{**NETWORK, **options}).fit(X, y), X


def build_network_labels(format, labels, **options):
    pytest.importorskip("torch")
    X = numbers()
    y = np.asarray(labels)[np.arange(ROWS) % len(labels)]
    return TNClassifier(format, **{**NETWORK, **options}).fit(X, y), X


def build_named_network(format):
    pytest.importorskip("torch")
    X = frame()
    return TNRegressor(format, **NETWORK).fit(X, X["rooms"]), X


def build_on_torch(**options):
    pytest.importorskip("torch")
    return build_numbers(engine="torch", **options)


NETWORKS = {
    **{f"{f}, one output": lambda f=f: build_network(f, 1) for f in FORMATS},
    **{f"{f}, three outputs": lambda f=f: build_network(f, 3) for f in FORMATS},
    **{f"{f}, two classes": lambda f=f: build_network_labels(f, ["no", "yes"]) for f in FORMATS},
    **{f"{f}, three classes": lambda f=f: build_network_labels(f, [1, 2, 5]) for f in FORMATS},
    "tt, named columns": lambda: build_named_network("tt"),
    "fm, named columns": lambda: build_named_network("fm"),
    "fm, order one": lambda: build_network("fm", 1, order=1, rank=50),
    "tt, linear init": lambda: build_network("tt", 1, init="linear", maps="polynomial"),
    "tr, order penalty": lambda: build_network("tr", 1, order_alpha=0.1, solver="SGD"),
    "ht, squared classes": lambda: build_network_labels("ht", [1, 2], loss="squared_error"),
    "tucker, weighted classes": lambda: build_network_labels(
        "tucker", ["a", "b"], class_weight={"a": 2.0, "b": 0.5}
    ),
}
MODELS = {
    "named columns with categories and gaps": build_named,
    "two text classes": lambda: build_labels(["no", "yes"]),
    "three text classes": lambda: build_labels(["red", "green", "blue and long"]),
    "object classes": lambda: build_labels(np.array(["a", "ß"], dtype=object)),
    "integer classes": lambda: build_labels(np.array([3, 7, 9], dtype=np.int16)),
    "float classes": lambda: build_labels([0.0, 2.0]),
    "boolean classes": lambda: build_labels([False, True]),
    "squared classes": lambda: build_labels([1, 2, 3], loss="squared_error"),
    "weighted classes": lambda: build_labels([1, 2], class_weight={1: 2.0, 2: 0.5}),
    "several outputs": lambda: build_numbers(numbers(3) ** 2),
    "separate outputs": lambda: build_numbers(numbers(3) ** 2, separate_outputs=True),
    "one output as a matrix": lambda: build_numbers(numbers(1)),
    "additive part": lambda: build_numbers(n_columns=6, init="linear"),
    "merged members": lambda: build_numbers(n_members=2),
    "poisson": lambda: build_numbers(np.arange(ROWS) % 4, loss=losses.Poisson()),
    "quantile": lambda: build_numbers(loss=losses.Quantile(0.9)),
    "init instance": lambda: build_numbers(init=inits.Linear(noise=0.01)),
    "maps by column": lambda: build_numbers(maps={0: maps.BSpline(5), 2: "chebyshev"}),
    "mask of columns": lambda: build_numbers(categorical_features=np.array([False, True, False])),
    "order penalty": lambda: build_numbers(order_alpha=0.1, order_beta=1.5),
    "passes": build_passes,
    "torch engine": build_on_torch,
    "torch engine, additive part": lambda: build_on_torch(n_columns=6, init="linear"),
    "named device": lambda: build_numbers(device="cuda:0"),
    **{
        repr(own): lambda own=own: (
            build_one_hot(own) if own.kind == "categorical" else build_numbers(maps=own)
        )
        for own in parts.MAPS
    },
    **NETWORKS,
}


@pytest.fixture(scope="module")
def built():
    """Return a model and its table by name; each is fitted once."""
    made = {}
    return lambda name: made[name] if name in made else made.setdefault(name, MODELS[name]())


def round_trip(model, folder, **options):
    path = folder / "model.polyadic"
    save(model, path)
    return load(path, **options)


# ---- what comes back -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_is_the_saved_one(name, built, tmp_path):
    model, X = built(name)
    again = round_trip(model, tmp_path)
    assert type(again) is type(model)
    for method in ("predict", "raw", "predict_proba", "decision_function"):
        if hasattr(model, method):
            want, have = getattr(model, method)(X), getattr(again, method)(X)
            assert want.dtype == have.dtype
            assert want.tobytes() == have.tobytes() or want.dtype == object
            np.testing.assert_array_equal(want, have)
    assert [m.same_as(n) for m, n in zip(again.maps_, model.maps_)] == [True] * len(model.maps_)
    assert again.columns_ == model.columns_
    assert again.history_ == model.history_
    assert again.n_iter_ == model.n_iter_
    assert again.n_features_in_ == model.n_features_in_
    assert repr(again.get_params()) == repr(model.get_params())
    assert repr(clone(again)) == repr(clone(model))
    remembered = {"_passes"} if hasattr(model, "partial_fit") else set()
    assert vars(again).keys() == {*vars(model), *remembered}


@pytest.mark.parametrize("name", MODELS)
def test_loaded_cores_are_the_saved_ones(name, built, tmp_path):
    model, _ = built(name)
    have, want = vars(round_trip(model, tmp_path).tensor_), vars(model.tensor_)
    assert want.keys() - PACKED == have.keys() - PACKED
    for field in have.keys() - PACKED:
        if not isinstance(want[field], list):
            assert np.array_equal(have[field], want[field])
            continue
        assert [a.shape for a in have[field]] == [a.shape for a in want[field]]
        assert [a.tobytes() for a in have[field]] == [a.tobytes() for a in want[field]]


def test_feature_names_come_back_where_there_are_some(built, tmp_path):
    model, _ = built("named columns with categories and gaps")
    again = round_trip(model, tmp_path)
    assert again.feature_names_in_.dtype == object
    assert list(again.feature_names_in_) == list(model.feature_names_in_)
    assert not hasattr(round_trip(built("several outputs")[0], tmp_path), "feature_names_in_")


@pytest.mark.parametrize("format", FORMATS)
def test_a_network_remembers_its_own_format(format, built, tmp_path):
    model, X = built(f"{format}, one output")
    changed = pickle.loads(pickle.dumps(model)).set_params(format="tr", rank=9, order=1)
    again = round_trip(changed, tmp_path)
    assert (again.tensor_.name, again.tensor_.rank, again.tensor_.order) == (format, 4, 3)
    assert again.predict(X).tobytes() == model.predict(X).tobytes()


def test_loading_a_network_says_what_to_install(built, tmp_path, monkeypatch):
    built("tt, one output")[0].save(tmp_path / "network")
    built("quantile")[0].save(tmp_path / "cp")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == "torch" else find(name)
    )
    with pytest.raises(ModuleNotFoundError, match=r"polyadic\[torch\]"):
        load(tmp_path / "network")
    load(tmp_path / "cp")


@pytest.mark.parametrize("name", [name for name in MODELS if "classes" in name])
def test_classes_keep_their_type(name, built, tmp_path):
    model, _ = built(name)
    again = round_trip(model, tmp_path)
    assert again.classes_.dtype == model.classes_.dtype
    assert again.classes_.tolist() == model.classes_.tolist()
    assert [type(c) for c in again.classes_] == [type(c) for c in model.classes_]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cores_keep_their_precision(dtype, built, tmp_path):
    model, X = built("additive part")
    again = pickle.loads(pickle.dumps(model))
    cores = again.tensor_
    factors, additive = (
        [a.astype(dtype) for a in part] for part in (cores.factors, cores.additive)
    )
    again.tensor_ = type(cores)(
        factors, np.asfortranarray(cores.weights), cores.intercept, additive
    )
    loaded = round_trip(again, tmp_path)
    assert {a.dtype for a in loaded.tensor_.factors + loaded.tensor_.additive} == {np.dtype(dtype)}
    assert loaded.predict(X).tobytes() == again.predict(X).tobytes()


def test_loaded_arrays_can_be_changed(built, tmp_path):
    again = round_trip(built("additive part")[0], tmp_path)
    again.weights_[:] = 0.0
    assert not again.weights_.any()


@pytest.mark.parametrize("name", ["several outputs", "passes", "additive part", "merged members"])
def test_passes_go_on_after_loading(name, built, tmp_path):
    model, X = built(name)
    again = round_trip(model, tmp_path)
    before = again.raw(X)
    again.partial_fit(X, model.predict(X))
    assert not np.array_equal(again.raw(X), before)
    round_trip(again, tmp_path)


@pytest.mark.parametrize("name", ["several outputs", "additive part", "torch engine", *NETWORKS])
def test_training_goes_on_after_loading(name, built, tmp_path):
    model, X = built(name)
    again = round_trip(model, tmp_path).set_params(early_stopping=False)
    if hasattr(model, "classes_"):
        target = model.classes_[np.arange(ROWS) % len(model.classes_)]
    else:
        target = np.roll(model.predict(X), 1, axis=0)
    before = again.raw(X)
    again.set_params(warm_start=True).fit(X, target)
    assert not np.array_equal(again.raw(X), before)
    again.set_params(warm_start=False).fit(X, target)
    round_trip(again, tmp_path)


def test_missing_and_unseen_values_predict_the_same(built, tmp_path):
    model, X = built("named columns with categories and gaps")
    strange = X.head(4).copy()
    strange["city"] = ["Ulm", "Kiel", None, ""]
    strange["area"] = [np.nan, 1e9, -1e9, 0.0]
    again = round_trip(model, tmp_path)
    assert again.predict(strange).tobytes() == model.predict(strange).tobytes()


def test_losses_that_are_not_finite_stay_in_the_history(built, tmp_path):
    model = pickle.loads(pickle.dumps(built("quantile")[0]))
    model.history_ = [{"train_loss": [0.1, np.inf, np.nan], "empty": []}]
    again = round_trip(model, tmp_path)
    np.testing.assert_equal(again.history_, model.history_)


@pytest.mark.parametrize(
    "given",
    [np.random.RandomState(3), np.random.default_rng(3), None],
    ids=lambda given: type(given).__name__,
)
def test_a_generator_is_left_behind(given, built, tmp_path):
    model = pickle.loads(pickle.dumps(built("quantile")[0])).set_params(random_state=given)
    assert round_trip(model, tmp_path).random_state is None
    assert model.random_state is given


def test_numpy_scalars_become_plain_numbers(tmp_path):
    given = {"rank": np.int64(4), "l2": np.float32(0.1), "early_stopping": np.bool_(True)}
    model, X = build_numbers(**given)
    again = round_trip(model, tmp_path)
    assert {type(getattr(again, name)) for name in given} == {int, float, bool}
    assert all(getattr(again, name) == value for name, value in given.items())
    assert again.predict(X).tobytes() == model.predict(X).tobytes()


def test_model_method_and_package_names(built, tmp_path):
    model, X = built("quantile")
    model.save(str(tmp_path / "m"))
    assert polyadic.load(str(tmp_path / "m")).predict(X).tobytes() == model.predict(X).tobytes()
    assert polyadic.ModelFileError is ModelFileError


# ---- a user's own maps ---------------------------------------------------------------------------


def test_own_map_is_found_among_those_given(tmp_path):
    model, X = build_numbers(maps=Steps(4))
    again = round_trip(model, tmp_path, maps=[Steps])
    assert again.predict(X).tobytes() == model.predict(X).tobytes()
    assert repr(again.get_params()) == repr(model.get_params())
    with pytest.raises(ModelFileError, match=r"Steps'.*polyadic\.load\(path, maps=\[Steps\]\)"):
        load(tmp_path / "model.polyadic")
    with pytest.raises(TypeError, match="subclasses of FeatureMap"):
        load(tmp_path / "model.polyadic", maps=[Steps()])


def test_own_map_does_not_take_the_place_of_ours(built, tmp_path):
    own = type("Hat", (Steps,), {})
    again = round_trip(built("quantile")[0], tmp_path, maps=[own])
    assert type(again.maps_[0]) is maps.Hat


# ---- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["named columns with categories and gaps", "three text classes", "ht, three classes"]
)
def test_saving_twice_gives_the_same_bytes(name, built, tmp_path):
    model, _ = built(name)
    save(model, tmp_path / "a")
    save(model, tmp_path / "b")
    save(load(tmp_path / "a"), tmp_path / "c")
    first, second, third = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == second == third


def test_unfitted_model_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        save(CPRegressor(), tmp_path / "m")
    assert not os.listdir(tmp_path)


def test_what_cannot_be_loaded_is_not_saved(built, tmp_path):
    class Mine(CPRegressor):
        pass

    model, X = built("quantile")
    with pytest.raises(TypeError, match="Mine"):
        save(Mine(**TINY).fit(X, X[:, 0]), tmp_path / "m")
    spoilt = pickle.loads(pickle.dumps(model))
    with pytest.raises(TypeError, match="among the parameters"):
        save(spoilt.set_params(categorical_features={1, 2}), tmp_path / "m")
    with pytest.raises(ValueError, match="rank must be"):
        save(spoilt.set_params(categorical_features=None, rank=-1), tmp_path / "m")
    spoilt.set_params(rank=4).tensor_.factors[0][0, 0] = np.nan
    with pytest.raises(ValueError, match=r"factors\.0 is not finite"):
        save(spoilt, tmp_path / "m")
    network = pickle.loads(pickle.dumps(built("ht, one output")[0]))
    network.tensor_.extras[1][:] = np.inf
    with pytest.raises(ValueError, match=r"extras\.1 is not finite"):
        save(network, tmp_path / "m")
    odd = pickle.loads(pickle.dumps(built("two text classes")[0]))
    odd.classes_ = np.array(["2001", "2002"], dtype="M8[Y]")
    with pytest.raises(TypeError, match="'classes'"):
        save(odd, tmp_path / "m")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=repr)
def test_failed_save_leaves_the_old_file_alone(step, error, built, tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(b"old")

    def fail(*args):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        save(built("quantile")[0], path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m"]


def test_places_that_cannot_be_written_are_named(built, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        save(built("quantile")[0], tmp_path / "nowhere" / "m")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save(built("quantile")[0], tmp_path)
    assert not os.listdir(tmp_path)


def test_links_and_permissions_are_those_of_any_file(built, tmp_path):
    save(built("quantile")[0], tmp_path / "m")
    (tmp_path / "plain").write_bytes(b"")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("m", "plain")]
    assert modes[0] == modes[1]
    try:
        (tmp_path / "link").symlink_to(tmp_path / "plain")
    except OSError:
        pytest.skip("no links here")
    save(built("quantile")[0], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "m").read_bytes()


# ---- files that are not ours, or no longer whole ------------------------------------------------


def test_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file .*gone"):
        load(tmp_path / "gone")


FOREIGN = {
    "empty": (b"", "not a model file"),
    "text": (b"x,y\n1,2\n" * 20, "not a model file"),
    "pickle": (pickle.dumps(list(range(99))), "not a model file"),
    "safetensors": (safetensors.numpy.save({"weights": np.ones(2)}), "not one that polyadic"),
    "other metadata": (
        safetensors.numpy.save({"weights": np.ones(2)}, {"format": "pt"}),
        "not one that polyadic",
    ),
    "no tensors": (safetensors.numpy.save({}, {"polyadic": "{}"}), "Its content is wrong"),
    "no JSON": (safetensors.numpy.save({}, {"polyadic": "model"}), "Its content is wrong"),
    "a list": (safetensors.numpy.save({}, {"polyadic": "[1]"}), "Its content is wrong"),
    "deep": (safetensors.numpy.save({}, {"polyadic": "[" * 100_000}), "Its content is wrong"),
    "long number": (safetensors.numpy.save({}, {"polyadic": "9" * 9_999}), "Its content is wrong"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_file_is_refused(name, tmp_path):
    data, words = FOREIGN[name]
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelFileError, match=words) as caught:
        load(tmp_path / "m")
    assert str(tmp_path / "m") in str(caught.value)


def test_folder_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="is a folder"):
        load(tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_goes_unseen(seed, built, tmp_path):
    name = "three text classes" if seed % 2 else "named columns with categories and gaps"
    save(built(name)[0], tmp_path / "m")
    whole = (tmp_path / "m").read_bytes()
    rng = np.random.default_rng(seed)
    header = 8 + int.from_bytes(whole[:8], "little")
    for trial in range(300):
        data = bytearray(whole)
        if trial % 3 == 0:
            data = data[: rng.integers(len(whole))]
        else:
            reach = header if trial % 3 == 1 else len(whole)
            for at in rng.integers(0, reach, rng.integers(1, 4)):
                data[at] ^= 1 << rng.integers(8)
        if data == whole:
            continue
        (tmp_path / "m").write_bytes(data)
        with pytest.raises(ModelFileError):
            load(tmp_path / "m")


def test_damage_is_told_from_other_trouble(built, tmp_path):
    save(built("quantile")[0], tmp_path / "m")
    data = bytearray((tmp_path / "m").read_bytes())
    data[-3] ^= 16
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelFileError, match="checksum of its arrays"):
        load(tmp_path / "m")
    data[-3] ^= 16
    at = data.index(b"learning_rate")
    data[at] = ord("L")
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelFileError, match="checksum of its header"):
        load(tmp_path / "m")
