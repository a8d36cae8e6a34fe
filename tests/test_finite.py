"""Finite input gives a finite prediction or an error that names the row, no class from NaN."""

import needs
import numpy as np
import parts
import pytest

from polyadic import CPClassifier, CPRegressor, TNClassifier, TNRegressor, maps
from polyadic.networks import FORMATS

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
