"""Laws of comparisons: the difference of two models is read exactly."""

import math
import re
from functools import cache

import numpy as np
import pandas as pd
import parts
import pytest
from enumerated import enumerate_rows, exact_raw, moments
from explained import CASES, FAST, mixed, numbers, relative, target
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeRegressor

from polyadic import CPClassifier, CPRegressor, TNRegressor, explain, maps, trees

UNTRAINED = FAST | {"max_iter": 0}
JOINED = FAST | {"trees": True, "n_members": 2, "solver": "adam"}


def fit(X, y, **changes):
    return CPRegressor(**FAST | changes).fit(X, y)


@cache
def two_numbers():
    X = numbers()
    return fit(X, target(X)), fit(X, -target(X), rank=3, random_state=4), X


@cache
def several_outputs():
    X = numbers()
    y = np.column_stack([target(X, s) for s in range(3)])
    return fit(X, y), fit(X, -y[:, ::-1], separate_outputs=True), X


@cache
def one_additive_part():
    X = numbers()
    other = fit(X, target(X, 3), rank=2, init="linear")
    assert other.tensor_.additive is not None
    return fit(X, target(X)), other, X


@cache
def both_additive_parts():
    X = numbers()
    changes = {"rank": 2, "init": "linear"}
    return fit(X, target(X), **changes), fit(X, target(X, 3), **changes), X


@cache
def other_maps():
    X = numbers()
    return fit(X, target(X)), fit(X, target(X, 2), maps=maps.Polynomial(3)), X


@cache
def other_polynomials():
    X = numbers()
    wide = fit(3 * X, target(X), maps="polynomial")
    return wide, fit(X, target(X, 2), maps=maps.Polynomial(4, normalize=True), init="gaussian"), X


@cache
def maps_without_constants():
    X = numbers()
    first = fit(X, target(X), maps="trigonometric", init="gaussian")
    return first, fit(X, target(X), maps=maps.Polynomial(3, normalize=True), init="gaussian"), X


@cache
def mixed_table():
    X = mixed()
    return fit(X, target(numbers())), fit(X, -target(numbers()), random_state=9), X


@cache
def other_categories():
    """The second model knows categories in another order, lacks one, and has one more."""
    X = mixed()
    other = X.copy()
    other["c"] = other["c"].cat.rename_categories({"u": "w", "v": "a", "w": "u"})
    rare = {"maps": {"c": maps.OneHot(min_count=18)}}
    return fit(X, target(numbers())), fit(other, -target(numbers()), **rare), X


@cache
def other_order_of_columns():
    X = mixed()
    return fit(X, target(numbers())), fit(X[["c", "a", "b"]], -target(numbers())), X


@cache
def classes():
    X, y = mixed(), np.digitize(target(numbers()), [-1.0, 1.0])
    first = CPClassifier(**FAST).fit(X, y)
    return first, CPClassifier(**FAST | {"rank": 2}).fit(X, (y + 1) % 3), X


@cache
def joined_trees():
    X = mixed()
    other = X.copy()
    other["c"] = other["c"].cat.rename_categories({"u": "w", "v": "a", "w": "u"})
    with parts.shared_trees():
        first = CPRegressor(**JOINED).fit(X, target(numbers()))
        second = CPRegressor(**JOINED | {"random_state": 3}).fit(other, np.abs(target(numbers())))
    assert first.tensor_.trees is not None
    assert second.tensor_.trees is not None
    return first, second, X


@cache
def one_joined_tree():
    X = mixed()
    first = fit(X, target(numbers()))
    return first, CPRegressor(**JOINED).fit(X, target(numbers(), 2)), X


@cache
def trees_of_others():
    X = numbers()
    y = np.column_stack([target(X), target(X, 5)])
    grown = trees.from_model(DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, y), X)
    return fit(X, y), grown, X


@cache
def trees_of_two_libraries():
    X = mixed()
    boosted = HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=6, min_samples_leaf=3)
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    y, coded = target(numbers()), X.assign(c=X["c"].cat.codes.astype(float))
    first = trees.from_model(boosted.set_params(random_state=0).fit(coded, y), coded)
    return first, trees.from_model(tree.fit(coded, y), coded), coded


PAIRS = [
    two_numbers,
    several_outputs,
    one_additive_part,
    both_additive_parts,
    other_maps,
    other_polynomials,
    maps_without_constants,
    mixed_table,
    other_categories,
    other_order_of_columns,
    classes,
    joined_trees,
    one_joined_tree,
    trees_of_others,
    trees_of_two_libraries,
]
pairs = pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.__name__)


@pairs
def test_a_comparison_is_what_enumeration_finds(case):
    a, b, X = case()
    rows, share = enumerate_rows(X)
    first, second = relative(a, exact_raw(a, rows)), relative(b, exact_raw(b, rows))
    found = explain.compare(a, b, X)
    mean, variance = moments(first - second, share)
    size, other = moments(first, share)[1], moments(second, share)[1]
    close = {"rtol": 1e-6, "atol": 1e-9 * size}  # elements are in single precision
    np.testing.assert_allclose(found.variance, variance, **close)
    np.testing.assert_allclose(found.mean, mean, **close)
    np.testing.assert_allclose(found.share, variance / size, rtol=1e-6)
    np.testing.assert_allclose(found.rms**2, np.sum(share @ (first - second) ** 2), **close)
    centred = [v - share @ v for v in (first, second)]
    covariance = np.sum(share @ (centred[0] * centred[1]))
    np.testing.assert_allclose(found.correlation, covariance / math.sqrt(size * other), atol=1e-6)


@pairs
def test_parts_of_the_difference_are_what_enumeration_finds(case):
    a, b, X = case()
    rows, share = enumerate_rows(X)
    gap = pd.DataFrame(relative(a, exact_raw(a, rows) - exact_raw(b, rows)))
    found, frame = explain.compare(a, b, X), pd.DataFrame(rows)
    _, whole = moments(gap.to_numpy(), share)
    for n, name in enumerate(frame.columns):
        # Given the values of some columns, the mean of the others.
        others = [c for c in frame.columns if c != name]
        main = _conditional(gap, share, frame, [name])
        rest = _conditional(gap, share, frame, others)
        np.testing.assert_allclose(found.main[n], main, rtol=1e-5, atol=1e-8 * whole)
        np.testing.assert_allclose(found.total[n], 1 - rest / whole, rtol=1e-5, atol=1e-7)
    assert sum(found.interactions.orders) == pytest.approx(1.0, abs=1e-6)
    first, second = found.effects
    for n in range(len(found.columns)):
        gaps = first.values[n] - second.values[n]
        at = list(first.grid[n]).index(found.at[n])
        assert found.largest[n] == gaps[at, found.at_output[n]]
        assert abs(found.largest[n]) == np.abs(gaps).max()


def _conditional(gap, share, frame, names):
    """Return the variance of the mean given some columns."""
    keys = pd.MultiIndex.from_frame(frame[names].astype(object).fillna("none"))
    codes = pd.factorize(keys)[0]
    weight = np.bincount(codes, share)
    means = [np.bincount(codes, share * gap[k]) / weight for k in gap]
    return moments(np.column_stack(means), weight)[1]


@pytest.mark.parametrize("case", [*CASES, joined_trees], ids=lambda case: case.__name__)
def test_a_model_does_not_differ_from_itself(case):
    model = case()[0]
    found = explain.compare(model, model)
    assert found.variance == found.share == 0.0
    assert not found.main.any()
    assert not found.total.any()
    size = explain.sobol(model).variance
    assert found.rms <= 1e-12 * math.sqrt(size)
    assert np.abs(found.largest).max() <= 1e-12 * math.sqrt(size)
    assert found.correlation == pytest.approx(1.0)


@pairs
def test_both_orders_mirror_each_other(case):
    a, b, X = case()
    one, other = explain.compare(a, b, X), explain.compare(b, a, X)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-9)
    np.testing.assert_allclose(one.mean, -other.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.correlation, other.correlation, rtol=1e-9)
    place = [other.columns.index(name) for name in one.columns]
    np.testing.assert_allclose(one.main, other.main[place], rtol=1e-7, atol=1e-9 * one.variance)
    np.testing.assert_allclose(one.total, other.total[place], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(one.largest, -other.largest[place], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("case", [two_numbers, mixed_table, other_categories, joined_trees])
def test_a_table_of_few_values_is_known_from_the_model_alone(case):
    a, b, X = case()
    without, given = explain.compare(a, b), explain.compare(a, b, X)
    np.testing.assert_allclose(without.variance, given.variance, rtol=1e-9)
    np.testing.assert_allclose(without.total, given.total, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(without.mean, given.mean, rtol=1e-9)


def test_other_knots_need_a_table_and_agree_with_its_rows():
    """On a continuous column, moments of hats on some knots do not tell those on others."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X[:, 0] * X[:, 1]
    a = fit(X, y, maps=maps.Hat(n_knots=4))
    same, b = fit(X, -y, maps=maps.Hat(n_knots=4)), fit(X, y, maps=maps.Hat(n_knots=5))
    explain.compare(a, same)  # the same knots
    with pytest.raises(ValueError, match="column 'x0', which do not tell those of Hat"):
        explain.compare(a, b)
    rows, share = enumerate_rows(X)
    found = explain.compare(a, b, X)
    expected = moments(exact_raw(a, rows) - exact_raw(b, rows), share)[1]
    np.testing.assert_allclose(found.variance, expected, rtol=1e-5)


def test_what_it_prints():
    a, b, X = mixed_table()
    found = explain.compare(a, b, X)
    lines = str(found).splitlines()
    assert re.match(r"column +main std +total share +largest difference +at$", lines[0])
    assert len(found.to_pandas()) == 3
    assert f"{100 * found.share:.1f} % of the variance of a" in lines[4]
    assert lines[5].startswith("Interactions that differ: a * ")
    several = explain.compare(*several_outputs()[:2])
    assert set(several.to_pandas()["output"]) <= {"y0", "y1", "y2"}


def test_what_cannot_be_compared_is_refused():
    X, y = numbers(), target(numbers())
    a = fit(X, y)
    frame = pd.DataFrame(X, columns=["x0", "x1", "other"])
    with pytest.raises(ValueError, match="only a has 'x2'"):
        explain.compare(a, fit(frame, y))
    with pytest.raises(ValueError, match="Column 'x2' is numeric in a and categorical in b"):
        explain.compare(a, fit(X, y, categorical_features=[2]))
    with pytest.raises(ValueError, match="different outputs: 1 and 2"):
        explain.compare(a, fit(X, np.column_stack([y, y])))
    with pytest.raises(ValueError, match="different links: 'identity' and 'log'"):
        explain.compare(a, fit(X, np.abs(y).round(), loss="poisson", max_iter=0))
    with pytest.raises(ValueError, match=r"different classes: None and \[False, True\]"):
        explain.compare(a, CPClassifier(**UNTRAINED).fit(X, y > 0))
    two = CPClassifier(**UNTRAINED).fit(X, np.where(y > 0, "p", "q"))
    with pytest.raises(ValueError, match=r"different classes: \['p', 'q'\] and"):
        explain.compare(two, CPClassifier(**UNTRAINED).fit(X, y > 0))
    with pytest.raises(TypeError, match="TNRegressor in the format 'tt'"):
        explain.compare(a, TNRegressor(format="tt", rank=2, max_iter=1, random_state=0).fit(X, y))
    with pytest.raises(NotFittedError):
        explain.compare(a, CPRegressor())
