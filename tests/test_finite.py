"""Finite input gives a finite prediction or an error that names the row, no class from NaN."""

import needs
import numpy as np
import parts
import pytest
from sklearn.exceptions import ConvergenceWarning

from polyadic import CPClassifier, CPRegressor, TNClassifier, TNRegressor, maps
from polyadic.data.features import encode
from polyadic.estimators.base import TableEstimator
from polyadic.estimators.finite import always_finite
from polyadic.networks import FORMATS
from polyadic.networks.cp import CPCores
from polyadic.training.fits import Fits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"rank": 3, "max_iter": 2, "random_state": 0}
FAR = [1e4, 1e10, -1e30, 1e154, 1.7e308, -1.7e308, 5e-324, 0.0]
NUMERIC = [own for own in parts.MAPS if own.kind == "numeric"]
ESTIMATORS = {
    "numbers": lambda own: CPRegressor(maps=own, n_members=1, **FAST),
    "two classes": lambda own: CPClassifier(maps=own, n_members=1, **FAST),
    "three classes": lambda own: CPClassifier(maps=own, n_members=1, **FAST),
}


def table():
    return np.random.default_rng(0).normal(size=(40, 3))


def target(kind, X):
    if kind == "numbers":
        return X[:, 0] * X[:, 1] + X[:, 2]
    return np.arange(len(X)) % (2 if kind == "two classes" else 3)


def far_rows():
    """Return rows with one, two or three values far outside of the training range."""
    rows = []
    for value in FAR:
        for n in range(1, 4):
            row = np.full(3, 0.3)
            row[:n] = value
            rows.append(row)
    return np.array(rows)


def has_bounds(own):
    return not isinstance(own, maps.Polynomial) or own.normalize or own.d == 1


def check_far_rows(model, bounded):
    for row in far_rows():
        X = np.vstack([table()[:2], row])
        methods = ["predict", "raw", "predict_proba", "decision_function"]
        for method in [name for name in methods if hasattr(model, name)]:
            told, found = "", np.zeros(1)
            try:
                found = getattr(model, method)(X)
            except ValueError as error:
                told = str(error)
            assert np.all(np.isfinite(found)), (method, row)
            assert not (bounded and told), (method, row)
            assert not told or "Row 2 of X cannot be predicted" in told
            assert not told or "Its column 'x" in told


@pytest.mark.parametrize("own", NUMERIC, ids=repr)
def test_every_map_is_finite_or_says_why(own):
    kind = list(ESTIMATORS)[NUMERIC.index(own) % len(ESTIMATORS)]
    X = table()
    check_far_rows(ESTIMATORS[kind](own).fit(X, target(kind, X)), has_bounds(own))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_polynomial_that_is_not_finite_is_never_a_class(kind):
    X = table()
    model = ESTIMATORS[kind](maps.Polynomial(6)).fit(X, target(kind, X))
    row = np.array([[1e30, -1e30, 1e30]])
    with pytest.raises(ValueError, match=r"Row 0 of X cannot be predicted.*column 'x\d' is"):
        model.predict(row)
    both = np.vstack([row, X[:1], row])
    with pytest.raises(ValueError, match=r"Row 0 of X, and 1 other rows"):
        model.predict(both)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("own", [maps.Hat(5), maps.Polynomial(4)], ids=repr)
def test_every_format_is_finite_or_says_why(format, own):
    needs.package("torch")
    X = table()
    on_raw_columns = not FORMATS[format].is_network and format != "cp"
    model = TNRegressor(format, maps="auto" if on_raw_columns else own, **FAST).fit(X, X[:, 0])
    check_far_rows(model, has_bounds(own) and not on_raw_columns)


def test_a_network_of_classes_is_finite_or_says_why():
    needs.package("torch")
    X = table()
    model = TNClassifier("tt", maps=maps.Polynomial(6), **FAST).fit(X, np.arange(40) % 3)
    check_far_rows(model, bounded=False)


# ---- a fit looks at its own training rows --------------------------------------------------------


def check_own_rows(model, X, y):
    """Fit, or be refused as diverged; then predict the training rows."""
    try:
        model.fit(X, y)
    except ValueError as error:
        assert "Training diverged" in str(error)  # noqa: PT017
        return "refused"
    assert np.isfinite(model.raw(X)).all()
    return "fitted"


@pytest.mark.parametrize("engine", ["fused", "torch"])
@pytest.mark.parametrize("changes", [{}, {"n_members": 2}, {"max_iter": 3}], ids=str)
def test_a_last_step_beyond_the_range_of_numbers_is_noticed(engine, changes):
    """The slope of this order penalty is infinite; the loss of an epoch is of before its steps."""
    if engine == "torch":
        needs.package("torch")
    X = np.random.default_rng(0).normal(size=(12, 12))
    settings = {"n_members": 1, "rank": 2, "max_iter": 1, "solver": "adam", "engine": engine}
    settings |= {"order_alpha": 0.1, "order_beta": 20.0, "random_state": 0}
    model = CPRegressor("fourier", **settings | changes, early_stopping=False)
    with pytest.warns(ConvergenceWarning, match="diverged in epoch 1; the start is .* order_beta"):
        model.fit(X, X[:, 0])
    assert np.isfinite(model.raw(X)).all()
    assert model.partial_fit(X, X[:, 0]) is model if engine == "fused" else True
    assert np.isfinite(model.raw(X)).all()


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("kind", ["numbers", "two classes", "networks"])
def test_a_fit_that_cannot_predict_its_own_rows_is_refused(kind, early_stopping):
    """Powers of an outlier in every column: even the start is beyond the range of numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 40))
    X[7] = 1e6
    own = {"maps": maps.Polynomial(12), "early_stopping": early_stopping}
    model = CPRegressor(n_members=1, **FAST, **own)
    if kind == "networks":
        needs.package("torch")
        model = TNRegressor("tt", **FAST, **own)
    elif kind == "two classes":
        model = CPClassifier(n_members=1, solver="adam", **FAST, **own)
    y = X[:, 0] > 0 if kind == "two classes" else np.sin(X[:, 0])
    with pytest.raises(ValueError, match=r"Training diverged: .* 400 .* had maps=Polynomial"):
        model.fit(X, y)
    assert not hasattr(model, "tensor_")


@pytest.mark.parametrize("own", NUMERIC, ids=repr)
def test_every_map_predicts_its_training_rows_or_says_that_it_diverged(own):
    rng = np.random.default_rng(1)
    X = rng.standard_cauchy((60, 8)) * 10.0 ** rng.integers(-6, 7, 8)
    X[rng.random(X.shape) < 0.1] = np.nan
    told = check_own_rows(CPRegressor(own, n_members=2, **FAST), X, rng.normal(size=60))
    assert told == "fitted" or not has_bounds(own)


def broken_members(monkeypatch, numbers):
    """Let members of these numbers end with cores that are not finite."""
    train_one = Fits.train_one

    def broken(self, fit, *rest):
        member = train_one(self, fit, *rest)
        if fit.number in numbers:
            member.solution.cores.factors[0][:] = np.nan
        return member

    monkeypatch.setattr(Fits, "train_one", broken)


@pytest.mark.parametrize("own", ["hat", "fourier"])
def test_members_that_diverged_unnoticed_are_left_out(own, monkeypatch):
    X = table()
    model = CPRegressor(own, n_members=3, solver="adam", **FAST)
    broken_members(monkeypatch, [1])
    with pytest.warns(ConvergenceWarning, match="diverged in 1 of 3 members, which are left out"):
        model.fit(X, X[:, 0])
    assert model.tensor_.rank == 2 * FAST["rank"]
    assert np.isfinite(model.raw(X)).all()
    broken_members(monkeypatch, [0, 1, 2])
    with pytest.raises(ValueError, match=r"Training diverged: .* 40 distinct rows"):
        model.fit(X, X[:, 0])
    assert np.isfinite(model.raw(X)).all()  # the model is as it was


def test_local_maps_are_not_looked_at_row_by_row(monkeypatch):
    """The bound by their cores takes less than a prediction of a long table."""
    monkeypatch.setattr(TableEstimator, "_evaluate_rows", None)
    X = table()
    for own in ("hat", "step", "bspline", {0: "hat", 1: "step", 2: "bspline"}):
        CPRegressor(own, n_members=2, **FAST).fit(X, X[:, 0])
    with pytest.raises(TypeError):
        CPRegressor("fourier", n_members=2, **FAST).fit(X, X[:, 0])


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_by_cores_holds(seed):
    """Cores of any size: where the bound holds, no row has a prediction that is not finite."""
    rng = np.random.default_rng(seed)
    own = [maps.Hat(4).fit(np.arange(9.0)), maps.Step(3).fit(np.arange(9.0))] * 6
    for size in 10.0 ** np.arange(-40, 41, 2.0):
        factors = [size * rng.normal(size=(m.dim, 2)) for m in own]
        cores = CPCores(factors, size * np.ones((2, 1)), np.zeros(1))
        X = rng.uniform(-1, 9, (50, len(own)))
        X[rng.random(X.shape) < 0.1] = np.nan
        with np.errstate(over="ignore", invalid="ignore"):
            raw = cores.contract(encode(own, list(X.T)))
        assert np.isfinite(raw).all() or not always_finite(own, cores)
        if size <= 10.0:
            assert always_finite(own, cores)
