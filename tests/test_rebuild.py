"""Forged model files: inconsistent content is refused with a message."""

import json
import time
import tracemalloc

import needs
import numpy as np
import pandas as pd
import pytest
import safetensors
from stored import forge, put, reshape

from polyadic import CPClassifier, CPRegressor, ModelFileError, TNRegressor, load, maps
from polyadic.io.files import FORMAT
from polyadic.networks import FORMATS

FAST = {"rank": 4, "n_members": 1, "max_iter": 2, "random_state": 0}
NAMED, THREE, SPLINE = "named columns", "three classes", "splines"


NETWORKS = [name for name in FORMATS if name != "cp"]  # whose cores are those of CPRegressor


@pytest.fixture(scope="module")
def networks():
    """Return a network of each format, of two outputs."""
    needs.package("torch")
    X = np.random.default_rng(0).normal(size=(60, 3))
    options = {"rank": 4, "order": 3, "max_iter": 1, "random_state": 0}
    return {name: TNRegressor(name, **options).fit(X, X[:, :2]) for name in FORMATS}


@pytest.fixture(scope="module")
def fitted():
    """Return one model of each kind, and a table for it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    table = pd.DataFrame({"area": X[:, 0], "rooms": rng.integers(1, 6, 60)})
    table["city"] = rng.choice(["Ulm", "Bonn", "Kiel"], 60)
    colours = np.array(["red", "green", "blue"])[np.arange(60) % 3]
    return {
        NAMED: (CPRegressor(**FAST).fit(table, X[:, 0]), table),
        THREE: (CPClassifier(**FAST).fit(X, colours), X),
        SPLINE: (CPRegressor(maps=maps.BSpline(), **FAST).fit(X, X[:, 0]), X),
    }


def as_format_2(header, tensors):
    """Write the header as version 0.1 wrote it: other names of parameters, no loss of the fit."""
    header["format"] = 2
    for old, new in {"max_epochs": "max_iter", "average": "ema_decay"}.items():
        header["params"][old] = header["params"].pop(new)
    for new in ("tol", "quantile"):
        header["params"].pop(new, None)
    for new in ("loss", "interaction"):
        header.pop(new, None)


@pytest.mark.parametrize("name", [NAMED, THREE])
def test_a_file_of_format_2_is_still_read(name, fitted, tmp_path):
    model, X = fitted[name]
    forge(model, tmp_path / "old", as_format_2)
    again = load(tmp_path / "old")
    np.testing.assert_array_equal(again.raw(X), model.raw(X))
    assert again.get_params() == model.get_params()
    assert again.loss_ == model.loss_


def both(*changes):
    def change(header, tensors):
        for one in changes:
            one(header, tensors)

    return change


FORGERIES = {
    "future format": (NAMED, put("format", FORMAT + 1), "Install a newer polyadic"),
    "format zero": (NAMED, put("format", 0), "never existed"),
    "format as text": (NAMED, put("format", "1"), "never existed"),
    "marginal mean": (NAMED, reshape("marginals.0.mean", lambda a: a[:-1]), "marginal"),
    "marginal not finite": (NAMED, reshape("marginals.0.second", lambda a: a * np.nan), "finite"),
    "marginal lengths": (NAMED, reshape("marginals.0.row", lambda a: a[:-1]), "different shapes"),
    "marginal beyond its core": (NAMED, reshape("marginals.0.col", lambda a: a + 999), "fit"),
    "marginal below": (NAMED, reshape("marginals.0.row", lambda a: -a), "upper triangle"),
    "marginal quantiles": (NAMED, reshape("marginals.0.quantiles", lambda a: a[::-1]), "range"),
    "marginal without rows": (NAMED, reshape("marginals.0.totals", lambda a: a * 0), "no rows"),
    "marginal names": (NAMED, put("marginals", ["mean"]), "Cannot load"),
    "unknown class": (NAMED, put("class", "os.system"), "holds a 'os.system'"),
    "class as a list": (NAMED, put("class", []), "Cannot load"),
    "unknown parameter": (NAMED, put("params", "shell", "ls"), "shell"),
    "parameters as a list": (NAMED, put("params", []), "Cannot load"),
    "rank as text": (NAMED, put("params", "rank", "ls"), "rank must be"),
    "threads as text": (NAMED, put("params", "n_jobs", "2"), "n_jobs"),
    "unknown loss": (NAMED, put("params", "loss", "evil"), "Unknown loss"),
    "unknown part": (NAMED, put("params", "loss", {"@part": "Popen", "params": {}}), "@part"),
    "wrong part": (NAMED, put("params", "loss", {"@part": "NearOne", "params": {}}), "Cannot load"),
    "part out of range": (
        NAMED,
        put("params", "loss", {"@part": "Quantile", "params": {"level": 7}}),
        "level",
    ),
    "loss of the fit as text": (NAMED, put("loss", "huber"), "loss of the fit"),
    "no loss of the fit": (NAMED, put("loss", {"@part": "NearOne", "params": {}}), "Unknown loss"),
    "loss of two classes": (
        THREE,
        put("loss", {"@part": "Logistic", "params": {}}),
        "loss of the fit",
    ),
    "interaction below zero": (NAMED, put("interaction", -1.0), "positive"),
    "interaction as text": (NAMED, put("interaction", "1"), "positive"),
    "unknown tag": (NAMED, put("params", "maps", {"@import": "os"}), "@import"),
    "array of objects": (NAMED, put("params", "maps", {"@array": ["V99", [1]]}), "@array"),
    "unknown map": (NAMED, put("maps", 0, "@map", "Knob"), "'Knob', which this version"),
    "dotted map": (NAMED, put("maps", 0, "@map", "os.system"), "'os.system'"),
    "map of another kind": (NAMED, put("maps", 0, "@map", "OneHot"), "Cannot load"),
    "map parameter": (NAMED, put("maps", 0, "params", {"shell": 1}), "shell"),
    "too few maps": (NAMED, lambda header, _: header["maps"].pop(), "2 maps"),
    "too few columns": (NAMED, lambda header, _: header["columns"]["columns"].pop(), "Cannot load"),
    "no columns": (NAMED, put("columns", "columns", []), "Cannot load"),
    "equal columns": (NAMED, put("columns", "columns", 0, "name", "rooms"), "names must differ"),
    "unknown kind": (NAMED, put("columns", "columns", 0, "kind", "date"), "kind"),
    "no JSON categories": (
        NAMED,
        reshape("columns.2.categories", lambda a: a[:-1]),
        "Cannot load",
    ),
    "nested categories": (
        NAMED,
        reshape("columns.2.categories", lambda a: np.frombuffer(b"[[1]]", np.uint8)),
        "neither numbers nor text",
    ),
    "deep nesting": (
        NAMED,
        put("params", "maps", json.loads("[" * 400 + "]" * 400)),
        "Cannot load",
    ),
    "no number": (NAMED, put("params", "l2", float("nan")), "Cannot load"),
    "history as text": (NAMED, put("history", "abc"), "Cannot load"),
    "epochs as text": (NAMED, put("n_iter", "2"), "n_iter"),
    "flat target": (NAMED, put("flat_target", 1), "flat_target"),
    "left-over tensor": (NAMED, reshape("more", lambda _: np.ones(2)), "of the model: more"),
    "no factor": (NAMED, reshape("factors.0", lambda _: None), r"'factors\.0' is missing"),
    "factor rows": (NAMED, reshape("factors.0", lambda a: a[:-1]), "core has"),
    "factor rank": (
        NAMED,
        reshape("factors.1", lambda a: a[:, :-1]),
        r"'factors\.1' has the shape",
    ),
    "factor as a row": (NAMED, reshape("factors.1", lambda a: a.ravel()), "has the shape"),
    "whole factors": (NAMED, reshape("factors.0", lambda a: a.astype(int)), "floating-point"),
    "factor not finite": (NAMED, reshape("factors.0", lambda a: a * np.nan), "finite"),
    "weights without outputs": (NAMED, reshape("weights", lambda a: a[:, :0]), "weights"),
    "intercept": (THREE, reshape("intercept", lambda a: a[:2]), "'intercept' has the shape"),
    "additive missing": (NAMED, put("tensor", "additive", True), r"'additive\.0' is missing"),
    "centre": (THREE, reshape("center", lambda a: a[:1]), "'center' has the shape"),
    "scale of zero": (NAMED, reshape("scale", lambda a: 0 * a), "positive"),
    "two classes of three": (THREE, reshape("classes", lambda a: a[:2]), "2 classes"),
    "classes unsorted": (THREE, reshape("classes", lambda a: a[::-1]), "sorted"),
    "classes beyond Unicode": (
        THREE,
        reshape("classes", lambda a: a + np.uint32(2**30)),
        "Cannot load",
    ),
    "an infinite class": (
        THREE,
        both(put("labels", "numbers"), reshape("classes", lambda _: np.array([0.0, 1.0, np.inf]))),
        "finite",
    ),
    "classes of no kind": (THREE, put("labels", "pickle"), "'pickle'"),
    "classes missing": (THREE, lambda header, _: header.pop("labels"), "Cannot load"),
    "no knots": (NAMED, reshape("maps.0.knots_", lambda a: a[:0]), "Cannot load"),
    "knots not finite": (NAMED, reshape("maps.0.knots_", lambda a: a * np.inf), "knots_"),
    "knots descending": (NAMED, reshape("maps.0.knots_", lambda a: a[::-1]), "do not ascend"),
    "knots in single precision": (
        NAMED,
        reshape("maps.0.knots_", lambda a: a.astype(np.float32)),
        "knots_",
    ),
    "negative slots": (
        NAMED,
        reshape("maps.2.lookup_", lambda a: np.where(a == 1, np.int32(-999), a)),
        "slots",
    ),
    "distant slots": (NAMED, reshape("maps.2.lookup_", lambda a: a + np.int32(10**6)), "core has"),
    "breaks beyond": (SPLINE, reshape("maps.0.breaks_", lambda a: a * 2), "from -1 to 1"),
    "range of three": (SPLINE, reshape("maps.0.range_", lambda a: np.arange(3.0)), "Cannot load"),
    "degree as a number": (SPLINE, put("maps", 0, "params", "degree", 3.0), "degree"),
    "degree beyond": (SPLINE, put("maps", 0, "params", "degree", 10**9), "core has"),
    "frequencies beyond": (
        SPLINE,
        both(
            put("maps", 0, "params", {"n_frequencies": 10**12}),
            put("maps", 0, "@map", "Fourier"),
        ),
        "Cannot load",
    ),
    "mean of many": (
        SPLINE,
        lambda header, tensors: _as_polynomial(header, tensors, mean=np.zeros(10**5)),
        "mean_",
    ),
}


def _as_polynomial(header, tensors, mean):
    """Give column 0 a polynomial map whose mean is an array, not a number as the kernel expects."""
    dim = len(tensors["factors.0"])
    names = ["mean_", "std_", "element_mean_", "element_std_"]
    header["maps"][0] = {"@map": "Polynomial", "params": {"d": dim}, "arrays": names}
    arrays = (mean, np.array(1.0), np.zeros(dim - 1), np.ones(dim - 1))
    for name in [name for name in tensors if name.startswith("maps.0.")]:
        del tensors[name]
    tensors |= {f"maps.0.{name}": array for name, array in zip(names, arrays)}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_content_is_refused(name, fitted, tmp_path):
    kind, change, words = FORGERIES[name]
    forge(fitted[kind][0], tmp_path / "m", change)
    with pytest.raises(ModelFileError, match=words) as caught:
        load(tmp_path / "m")
    assert "checksum" not in str(caught.value)


NETWORK_FORGERIES = {
    "unknown format": (put("tensor", "format", "mps"), "Unknown format 'mps'"),
    "format as a list": (put("tensor", "format", []), "Cannot load"),
    "format parameter": (put("params", "format", "mps"), "Unknown format"),
    "tensor of CP": (put("tensor", {"additive": False}), "Cannot load"),
    "device as a number": (put("params", "device", 3), "device must be text"),
    "device of no name": (put("params", "device", "banana"), "no name of a device"),
    "rank as text": (put("tensor", "rank", "4"), "rank '4'"),
    "rank of zero": (put("tensor", "rank", 0), "rank 0"),
    "rank beyond numbers": (put("tensor", "rank", 10**4000), "a network cannot have rank 10000"),
    "rank true": (put("tensor", "rank", True), "rank True"),
    "order as a fraction": (put("tensor", "order", 2.5), r"order 2\.5"),
    "order below one": (put("tensor", "order", -1), "order -1"),
    "order beyond numbers": (put("tensor", "order", 10**12), "order 1000000000000"),
    "next rank": (put("tensor", "rank", 5), "has the shape"),
    "factor rows": (reshape("factors.0", lambda a: a[:-1]), "core has"),
    "factor width": (reshape("factors.1", lambda a: a[:, :-1]), r"'factors\.1' has the shape"),
    "factor as a row": (reshape("factors.1", lambda a: a.ravel()), "has the shape"),
    "factor not finite": (reshape("factors.1", lambda a: a * np.nan), "finite"),
    "whole factors": (reshape("factors.1", lambda a: a.astype(int)), "floating-point"),
    "another output": (
        both(
            *(reshape(name, lambda a: a[[0, 1, 1]]) for name in ("intercept", "multiplier")),
            *(reshape(name, lambda a: a[[0, 1, 1]]) for name in ("center", "scale")),
        ),
        "has the shape",
    ),
    "no outputs": (reshape("intercept", lambda a: a[:0]), "at least one output"),
    "multiplier": (reshape("multiplier", lambda a: a[:1]), "'multiplier' has the shape"),
    "multiplier not finite": (reshape("multiplier", lambda a: a / 0.0), "finite"),
    "extra missing": (reshape("extras.0", lambda _: None), r"'extras\.0' is missing"),
    "extra flat": (reshape("extras.0", lambda a: a.ravel()[1:]), r"'extras\.0' has the shape"),
    "extra too many": (reshape("extras.9", lambda _: np.ones(2)), r"the model: extras\.9"),
    "extra not finite": (reshape("extras.0", lambda a: a * np.inf), "finite"),
    "weights of CP": (reshape("weights", lambda _: np.ones((4, 2))), "the model: weights"),
}


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("format", NETWORKS)
@pytest.mark.parametrize("name", NETWORK_FORGERIES)
def test_forged_networks_are_refused(name, format, networks, tmp_path):
    change, words = NETWORK_FORGERIES[name]
    forge(networks[format], tmp_path / "m", change)
    with pytest.raises(ModelFileError, match=words) as caught:
        load(tmp_path / "m")
    assert "checksum" not in str(caught.value)


@pytest.mark.parametrize(
    ("format", "field"),
    [(f, "rank") for f in NETWORKS] + [(f, "order") for f in NETWORKS if FORMATS[f].by_order],
)
def test_huge_numbers_are_refused_at_once(format, field, networks, tmp_path):
    forge(networks[format], tmp_path / "m", put("tensor", field, 2**31 - 1))
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(ModelFileError, match=r"has the shape|would need"):
        load(tmp_path / "m")
    assert time.perf_counter() - start < 5.0
    assert tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()


@pytest.mark.parametrize("format", NETWORKS)
@pytest.mark.parametrize("other", NETWORKS)
def test_one_format_does_not_pass_for_another(format, other, networks, tmp_path):
    forge(networks[format], tmp_path / "m", put("tensor", "format", other))
    if format == other:
        load(tmp_path / "m")
        return
    with pytest.raises(ModelFileError, match=r"has the shape|is missing|belong to no part"):
        load(tmp_path / "m")


@pytest.mark.parametrize("format", NETWORKS)
def test_a_network_file_without_any_one_entry_is_refused(format, networks, tmp_path):
    check_dropping(networks[format], tmp_path / "m")


def as_network(header, tensors):
    """Write cores of CP as files up to format 2 have those of a network: with a multiplier."""
    multiplier = np.array([2.0, 0.5])
    header["tensor"] = {"format": "cp", "rank": 4, "order": 3}
    tensors["extras.0"] = tensors.pop("weights") / multiplier
    tensors["multiplier"] = multiplier


def test_a_network_of_format_cp_is_saved_as_cp(networks, tmp_path):
    check_dropping(networks["cp"], tmp_path / "m")


def test_an_older_file_of_a_network_of_format_cp_is_read(networks, tmp_path):
    model, X = networks["cp"], np.random.default_rng(1).normal(size=(9, 3))
    forge(model, tmp_path / "m", both(as_network, put("format", 2)))
    again = load(tmp_path / "m")
    assert type(again.tensor_) is type(model.tensor_)
    np.testing.assert_allclose(again.raw(X), model.raw(X), rtol=1e-12)


def test_a_cp_estimator_with_another_network_is_refused(networks, tmp_path):
    model = CPRegressor(**FAST).fit(np.random.default_rng(0).normal(size=(60, 3)), np.ones((60, 2)))
    model.maps_, model.tensor_ = networks["tt"].maps_, networks["tt"].tensor_
    model.marginals_ = networks["tt"].marginals_
    model.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="a CPRegressor has cores of CP, not of tt"):
        load(tmp_path / "m")


def test_forging_nothing_changes_nothing(fitted, tmp_path):
    model, X = fitted[NAMED]
    forge(model, tmp_path / "m", lambda header, tensors: None)
    assert load(tmp_path / "m").predict(X).tobytes() == model.predict(X).tobytes()


@pytest.mark.parametrize("number", [1, 2])
def test_files_of_older_formats_are_read(number, fitted, tmp_path):
    def older(header, tensors):
        header["format"] = number
        del header["loss"]
        if number == 1:
            del header["marginals"]
            for name in [name for name in tensors if name.startswith("marginals")]:
                del tensors[name]

    for model, X in fitted.values():
        forge(model, tmp_path / "m", older)
        again = load(tmp_path / "m")
        assert again.loss_ == model.loss_
        assert again.predict(X).tobytes() == model.predict(X).tobytes()
        assert hasattr(again, "marginals_") == (number == 2)


def test_a_file_without_any_one_entry_is_refused(fitted, tmp_path):
    check_dropping(fitted[NAMED][0], tmp_path / "m")


def check_dropping(model, path):
    """Check that a file lacking any entry or array is refused."""
    model.save(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        entries, names = json.loads(file.metadata()["polyadic"]), list(file.keys())
    # Not needed, or corrected by forge; y need not have a name.
    kept = {"version", "sha256", "tensors_sha256", "target_names"}
    changes = [lambda header, _, key=key: header.pop(key) for key in entries.keys() - kept]
    changes += [lambda header, _, key=key: header["tensor"].pop(key) for key in entries["tensor"]]
    changes += [lambda _, tensors, key=key: tensors.pop(key) for key in names]
    for change in changes:
        forge(model, path, change)
        with pytest.raises(ModelFileError):
            load(path)
