"""Laws of compressed models: fewer terms, with an error that is known exactly."""

from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pandas as pd
import parts
import pytest
from enumerated import enumerate_rows, exact_raw, moments
from explained import FAST, mixed, numbers, relative, target
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeRegressor

import polyadic
from polyadic import CPClassifier, CPRegressor, TNRegressor, explain, maps, trees
from polyadic.explain.compare import distance
from polyadic.trees import compression

MORE = FAST | {"rank": 8, "max_iter": 20}


@cache
def smooth():
    X = numbers()
    return CPRegressor(**MORE).fit(X, target(X)), X


@cache
def outputs():
    X = numbers()
    return CPRegressor(**MORE).fit(X, np.column_stack([target(X, s) for s in range(3)])), X


@cache
def additive_part():
    X, rng = numbers(), np.random.default_rng(0)
    model = CPRegressor(**MORE).fit(X, target(X))
    parts = [rng.normal(size=(feature.dim, 1)) for feature in model.maps_]
    model.tensor_ = replace(model.tensor_, additive=parts)
    return model, X


@cache
def mixed_table():
    X = mixed()
    return CPRegressor(**MORE).fit(X, target(numbers())), X


@cache
def classes():
    X, y = mixed(), np.digitize(target(numbers()), [-1.0, 1.0])
    return CPClassifier(**MORE).fit(X, y), X


@cache
def no_constant():
    X = numbers()
    map_ = maps.Polynomial(4, normalize=True)
    return CPRegressor(maps=map_, init="gaussian", **MORE).fit(X, target(X)), X


@cache
def boosted():
    X, y = mixed(), target(numbers())
    model = HistGradientBoostingRegressor(max_iter=8, max_leaf_nodes=6, min_samples_leaf=3)
    return trees.from_model(model.set_params(random_state=0).fit(X, y), X), X


@cache
def joined():
    X = mixed()
    return beside_trees(CPRegressor(**MORE).fit(X, target(numbers())), boosted()[0], X), X


def beside_trees(model, grown, X):
    """Put the trees of one model beside the terms of another: both matter, whatever the seed."""
    model.tensor_ = replace(model.tensor_, trees=grown.tensor_.trees)
    model.marginals_ = explain.models.marginals_over(model, X)
    return model


@cache
def tree_of_outputs():
    X = numbers()
    y = np.column_stack([target(X), target(X, 5)])
    return trees.from_model(DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, y), X), X


CASES = [
    smooth,
    outputs,
    additive_part,
    mixed_table,
    classes,
    no_constant,
    joined,
    boosted,
    tree_of_outputs,
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


def noted_error(model):
    return float(model.plan_["terms"].rpartition(" ")[2])


def brute_error(model, other, X):
    """Return the L2 distance over the enumerated product of marginals, and the relative one."""
    rows, share = enumerate_rows(X)
    first = exact_raw(model, rows)
    found = np.sqrt(np.sum(share @ (first - exact_raw(other, rows)) ** 2))
    return found, found / np.sqrt(moments(first, share)[1])


def explained_error(model, other, X):
    """Return the L2 distance of what is explained: relative scores of three or more classes."""
    rows, share = enumerate_rows(X)
    gap = relative(model, exact_raw(model, rows) - exact_raw(other, rows))
    return np.sqrt(np.sum(share @ gap**2))


@cases
@pytest.mark.parametrize("given", [False, True], ids=["known marginals", "table"])
def test_the_error_is_that_of_enumeration(case, given):
    model, X = case()
    small = trees.compress(model, 2, X if given else None)
    assert type(small) is type(model)
    assert small.tensor_.rank <= 2
    assert small.tensor_.trees is None
    found, error = brute_error(model, small, X)
    assert 1e-5 < error < 1.0
    assert noted_error(small) == pytest.approx(error, rel=1e-3)  # it is written in four digits
    np.testing.assert_allclose(distance(model, small, X), found, rtol=1e-6)
    shown = explain.compare(model, small, X).rms
    np.testing.assert_allclose(shown, explained_error(model, small, X), rtol=1e-6)


@cases
def test_mean_and_main_effects_are_kept(case):
    model, X = case()
    small = trees.compress(model, 1, X)
    rows, share = enumerate_rows(X)
    before, after = exact_raw(model, rows), exact_raw(small, rows)
    np.testing.assert_allclose(share @ before, share @ after, atol=1e-6)
    found = explain.compare(model, small, X)
    assert found.main.max() <= 1e-10 * explain.sobol(model, X).variance


@cases
def test_the_error_falls_with_the_rank(case):
    """Sweeps end in a local optimum, so that one more term may help little, or not at all.

    Over 20 seeds the largest ratio of neighbouring errors was 0.84.
    """
    model, X = case()
    errors = [distance(model, trees.compress(model, rank, X), X) for rank in (1, 2, 4, 7)]
    assert errors[-1] < errors[0]
    for high, low in pairwise(errors):
        assert low < 1.3 * high + 1e-6 * errors[0]


@cases
def test_enough_terms_lose_nothing(case):
    model, X = case()
    same = trees.compress(model, 10_000, X)
    assert same is not model
    assert noted_error(same) == 0.0
    assert distance(model, same, X) < 1e-7 * np.sqrt(explain.sobol(model, X).variance)
    assert np.array_equal(same.predict(X), model.predict(X))


@pytest.mark.parametrize("case", [smooth, mixed_table, classes, no_constant])
def test_duplicated_terms_cost_nothing(case):
    model, X = case()
    cores = model.tensor_
    double = [np.hstack([core, core]) for core in cores.factors]
    weights = np.vstack([0.25 * cores.weights, 0.75 * cores.weights])
    twice = trees.compress(model, 10_000)
    twice.tensor_ = replace(cores, factors=double, weights=weights)
    small = trees.compress(twice, cores.rank)
    assert f"from {2 * cores.rank} terms to {small.tensor_.rank}," in small.plan_["terms"]
    # Over 20 seeds at most 6e-8, and 9e-6 in single precision.
    assert noted_error(small) < 1e-6
    np.testing.assert_allclose(small.raw(X), model.raw(X), atol=1e-4)


@cases
def test_the_result_is_saved_predicts_and_is_explained(case, tmp_path):
    model, X = case()
    small = trees.compress(model, 2, X)
    small.save(tmp_path / "small.polyadic")
    again = polyadic.load(tmp_path / "small.polyadic")
    assert np.array_equal(again.predict(X), small.predict(X))
    assert again.plan_ == small.plan_
    assert again.plan_["terms"].startswith("compressed from ")
    # Over 20 seeds, single precision rounds by up to 4e-5.
    np.testing.assert_allclose(small.raw(X), exact_raw(small, X), rtol=1e-4, atol=2e-4)
    known, measured = explain.sobol(again), explain.sobol(small, X)
    np.testing.assert_allclose(known.total, measured.total, rtol=1e-7, atol=1e-9)
    values = explain.shapley(again, X[:5])
    np.testing.assert_allclose(
        values.base + values.values.sum(axis=1),
        relative(again, again.raw(X[:5])),
        rtol=1e-4,
        atol=2e-4,
    )


def test_products_come_closer_than_twice_as_many_leaves(monkeypatch):
    """A product of steps stands for many leaves: this is why trees become products."""
    X = np.random.default_rng(0).uniform(-1, 1, (400, 3))
    grown = HistGradientBoostingRegressor(max_iter=30, random_state=0)
    model = trees.from_model(grown.fit(X, X[:, 0] * X[:, 1] + X[:, 2]), X)
    products = noted_error(trees.compress(model, 4))
    leaves = partial(compression.reduce_terms, sweep=False)
    monkeypatch.setattr(compression, "reduce_terms", lambda *args, sweep: leaves(*args))
    assert 1.5 * products < noted_error(trees.compress(model, 8))  # 0.055 and 0.136


def test_categories_without_a_bin_of_their_own_keep_their_effects():
    rng = np.random.default_rng(0)
    codes = np.append(rng.permutation(300), rng.integers(0, 300, 1700))
    X = pd.DataFrame({"c": codes.astype(str), "x": rng.normal(size=2000)})
    y = np.sin(codes) + X["x"] * (codes % 2)
    with parts.shared_trees(1.0):
        model = CPRegressor(**FAST, trees=True).fit(X, y)
    assert model.tensor_.trees.maps[0].dim < 300
    small = trees.compress(model, 20, X)
    before, after = (explain.partial_dependence(m, ["c"]).values for m in (model, small))
    np.testing.assert_allclose(after, before, atol=1e-4 * np.ptp(before))


def test_one_column_has_no_interactions():
    X = numbers(n_columns=1)
    model = CPRegressor(**MORE).fit(X, X[:, 0] ** 2)
    small = trees.compress(model, 1)
    assert noted_error(small) < 1e-7
    assert not small.tensor_.weights.any()


def test_steps_beside_a_smooth_function_are_exact_at_every_number():
    """Also at the edges of trees, and at the next number above each of them."""
    X = np.random.default_rng(0).normal(size=(150, 2)).round(2)
    y = X[:, 0] * X[:, 1] + (X[:, 0] > 0.3)
    grown = trees.from_model(DecisionTreeRegressor(max_depth=5, random_state=0).fit(X, y), X)
    model = CPRegressor(maps=maps.Hat(n_knots=5), **MORE | {"max_iter": 100}).fit(X, y)
    model = beside_trees(model, grown, X)
    small = trees.compress(model, 2, X)
    edges = model.tensor_.trees.maps[0].edges_
    at = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
    rows = np.column_stack([at, np.full(len(at), 0.1)])
    # The main effect of the first column has all its steps, and is kept.
    effects = [explain.partial_dependence(m, [0], [at], pure=True).values for m in (model, small)]
    np.testing.assert_allclose(*effects, atol=1e-6)
    np.testing.assert_allclose(
        small.raw(rows), exact_raw(small, rows), atol=1e-5
    )  # 2e-6 over 20 seeds


def test_what_cannot_be_compressed_is_refused():
    model, X = smooth()
    for rank in (0, -1, 2.5, True, "2"):
        with pytest.raises(ValueError, match="rank must be a whole number of at least 1"):
            trees.compress(model, rank)
    with pytest.raises(NotFittedError):
        trees.compress(CPRegressor(), 2)
    network = TNRegressor(format="tt", rank=2, max_iter=1, random_state=0).fit(X, target(X))
    with pytest.raises(TypeError, match="TNRegressor in the format 'tt'"):
        trees.compress(network, 2)
    grown, y = DecisionTreeRegressor(max_depth=2, random_state=0), target(X)
    polynomial = CPRegressor(maps="polynomial", **FAST).fit(X, y)
    beside_trees(polynomial, trees.from_model(grown.fit(X, y), X), X)
    with pytest.raises(ValueError, match=r"'x0' has the map Polynomial.* beside trees"):
        trees.compress(polynomial, 2, X)


def test_trees_beside_hats_on_some_values_need_a_table():
    X = np.random.default_rng(0).normal(size=(100, 2))
    y = X[:, 0] * (X[:, 1] > 0)
    grown = trees.from_model(DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, y), X)
    model = CPRegressor(maps=maps.Hat(n_knots=5), **MORE).fit(X, y)
    model = beside_trees(model, grown, X)
    with pytest.raises(ValueError, match="Pass the table to average over"):
        trees.compress(model, 2)
    assert noted_error(trees.compress(model, 2, X)) < 1.0
