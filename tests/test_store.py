"""Saving and loading: the same model comes back."""

import importlib.util
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from stored import (
    MODELS,
    NETWORKS,
    PACKED,
    ROWS,
    Intervals,
    build_numbers,
    built,
    round_trip,
)

import polyadic
from polyadic import CPClassifier, CPRegressor, maps
from polyadic.estimators.loading import load
from polyadic.io.files import ModelFileError
from polyadic.networks import FORMATS

# Two epochs may end far from the optimum, which does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_is_the_saved_one(name, tmp_path):
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
    remembered = {"_passes"} if isinstance(model, CPRegressor | CPClassifier) else set()
    assert vars(again).keys() == {*vars(model), *remembered}
    assert again.plan_ == model.plan_


@pytest.mark.parametrize("name", MODELS)
def test_loaded_cores_are_the_saved_ones(name, tmp_path):
    model, _ = built(name)
    have, want = vars(round_trip(model, tmp_path).tensor_), vars(model.tensor_)
    assert want.keys() - PACKED == have.keys() - PACKED
    for field in have.keys() - PACKED:
        if field == "blocks":
            assert (have[field] is None) == (want[field] is None)
            continue  # factors are computed from them
        if not isinstance(want[field], list):
            assert np.array_equal(have[field], want[field])
            continue
        assert [a.shape for a in have[field]] == [a.shape for a in want[field]]
        assert [a.tobytes() for a in have[field]] == [a.tobytes() for a in want[field]]


def test_feature_names_come_back_where_there_are_some(tmp_path):
    model, _ = built("named columns with categories and missing values")
    again = round_trip(model, tmp_path)
    assert again.feature_names_in_.dtype == object
    assert list(again.feature_names_in_) == list(model.feature_names_in_)
    assert not hasattr(round_trip(built("several outputs")[0], tmp_path), "feature_names_in_")


@pytest.mark.parametrize("format", FORMATS)
def test_a_network_keeps_its_own_format(format, tmp_path):
    model, X = built(f"{format}, one output")
    changed = pickle.loads(pickle.dumps(model)).set_params(format="tr", rank=9, order=1)
    again = round_trip(changed, tmp_path)
    assert (again.tensor_.name, again.tensor_.rank) == (format, 4)
    if format != "cp":  # whose terms have no order
        assert again.tensor_.order == 3
    assert again.predict(X).tobytes() == model.predict(X).tobytes()


def test_loading_a_network_says_what_to_install(tmp_path, monkeypatch):
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
def test_classes_keep_their_type(name, tmp_path):
    model, _ = built(name)
    again = round_trip(model, tmp_path)
    assert again.classes_.dtype == model.classes_.dtype
    assert again.classes_.tolist() == model.classes_.tolist()
    assert [type(c) for c in again.classes_] == [type(c) for c in model.classes_]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cores_keep_their_precision(dtype, tmp_path):
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


def test_loaded_arrays_can_be_changed(tmp_path):
    again = round_trip(built("additive part")[0], tmp_path)
    again.weights_[:] = 0.0
    assert not again.weights_.any()


@pytest.mark.parametrize("name", ["several outputs", "passes", "additive part", "merged members"])
def test_partial_fit_continues_after_loading(name, tmp_path):
    model, X = built(name)
    again = round_trip(model, tmp_path)
    before = again.raw(X)
    again.partial_fit(X, model.predict(X))
    assert not np.array_equal(again.raw(X), before)
    round_trip(again, tmp_path)


@pytest.mark.parametrize("name", ["several outputs", "additive part", "torch engine", *NETWORKS])
def test_training_continues_after_loading(name, tmp_path):
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


def test_missing_and_unseen_values_predict_the_same(tmp_path):
    model, X = built("named columns with categories and missing values")
    unusual = X.head(4).copy()
    unusual["city"] = ["Ulm", "Kiel", None, ""]
    unusual["area"] = [np.nan, 1e9, -1e9, 0.0]
    again = round_trip(model, tmp_path)
    assert again.predict(unusual).tobytes() == model.predict(unusual).tobytes()


def test_losses_that_are_not_finite_stay_in_the_history(tmp_path):
    model = pickle.loads(pickle.dumps(built("quantile")[0]))
    model.history_ = [{"train_loss": [0.1, np.inf, np.nan], "empty": []}]
    again = round_trip(model, tmp_path)
    np.testing.assert_equal(again.history_, model.history_)


@pytest.mark.parametrize(
    "given",
    [np.random.RandomState(3), np.random.default_rng(3), None],
    ids=lambda given: type(given).__name__,
)
def test_a_random_generator_is_not_saved(given, tmp_path):
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


def test_the_save_method_and_the_package_names_work(tmp_path):
    model, X = built("quantile")
    model.save(str(tmp_path / "m"))
    assert polyadic.load(str(tmp_path / "m")).predict(X).tobytes() == model.predict(X).tobytes()
    assert polyadic.ModelFileError is ModelFileError


# ---- a user's own maps ---------------------------------------------------------------------------


def test_own_map_is_found_among_those_given(tmp_path):
    model, X = build_numbers(maps=Intervals(4))
    again = round_trip(model, tmp_path, maps=[Intervals])
    assert again.predict(X).tobytes() == model.predict(X).tobytes()
    assert repr(again.get_params()) == repr(model.get_params())
    with pytest.raises(
        ModelFileError, match=r"Intervals'.*polyadic\.load\(path, maps=\[Intervals\]\)"
    ):
        load(tmp_path / "model.polyadic")
    with pytest.raises(TypeError, match="subclasses of FeatureMap"):
        load(tmp_path / "model.polyadic", maps=[Intervals()])


def test_own_map_does_not_take_the_place_of_ours(tmp_path):
    own = type("Hat", (Intervals,), {})
    again = round_trip(built("quantile")[0], tmp_path, maps=[own])
    assert type(again.maps_[0]) is maps.Hat


@pytest.mark.parametrize("path", [None, 3, b"model"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(TypeError, match="path must be a text or a path of pathlib, got"):
        load(path)
