"""Columns of noise take no part in products, and hidden interactions are found."""

import itertools

import numpy as np
import pandas as pd
import parts
import pytest
from scipy.stats import chi2
from threadpoolctl import threadpool_info

from polyadic import CPClassifier, CPRegressor, explain, maps
from polyadic.kernels.als import Quadratic
from polyadic.networks.cp import CPCores
from polyadic.training import screening
from polyadic.training.pool import Pool


def hidden(n=1500, n_columns=30, seed=0):
    """Return a table in which a pair and a triple act together, and no column alone."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, n_columns))
    y = 3 * X[:, 4] * X[:, 9] + 5.2 * X[:, 1] * X[:, 7] * X[:, 12] + 0.4 * rng.normal(size=n)
    return X, y


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_a_pair_and_a_triple_without_main_effects_are_found(classes):
    X, y = hidden()
    model = CPRegressor()
    if classes:
        model, y = CPClassifier(), np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    plan = parts.plan_of(model, X, y)
    assert {4, 9, 1, 7, 12} <= set(plan.columns)
    assert len(plan.columns) < 15
    found = {tuple(sorted(seed.columns)) for seed in plan.seeds}
    assert {(4, 9), (1, 7, 12)} <= found


def test_a_hidden_pair_and_triple_are_learnt():
    (X, y), (T, t) = hidden(), hidden(seed=1)
    model = CPRegressor(random_state=0).fit(X, y)
    assert model.score(T, t) > 0.85


@pytest.mark.parametrize("classes", [0, 2])
@pytest.mark.parametrize(
    ("n", "least", "most"), [(300, 64, 64), (1000, 3, 20)], ids=["too few to tell", "enough"]
)
def test_of_many_columns_of_noise_few_are_kept(n, least, most, classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 200))
    y = 2 * X[:, 3] + X[:, 5] * X[:, 8] + 0.5 * rng.normal(size=n)
    model = CPRegressor()
    if classes:
        model, y = CPClassifier(), (y > 0).astype(int)
    kept = parts.plan_of(model, X, y).columns
    assert 3 in kept
    assert least <= len(kept) <= most


def test_noise_is_left_out_and_main_effects_stay():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 40))
    y = X[:, 3] + np.abs(X[:, 17]) + 0.3 * rng.normal(size=800)
    plan = parts.plan_of(CPRegressor(), X, y)
    assert {3, 17} <= set(plan.columns)
    assert len(plan.columns) < 15


def test_where_rows_are_too_few_to_tell_all_columns_take_part():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 40))
    plan = parts.plan_of(CPRegressor(), X, X[:, 0] + rng.normal(size=150))
    assert plan.columns is None
    assert "others may, unseen" in str(plan)


@pytest.mark.parametrize(("n_users", "all_kept"), [(3, False), (200, True)])
def test_where_most_rows_have_a_category_without_its_own_cell_all_columns_take_part(
    n_users, all_kept
):
    # What each of many users thinks of column 6 cancels out where they share a cell.
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(3000, 20))).rename(columns=str)
    user = rng.integers(n_users, size=3000)
    y = rng.normal(size=n_users)[user] * X["6"] + 0.1 * rng.normal(size=3000)
    X["user"] = pd.Categorical(user.astype(str))
    kept = parts.plan_of(CPRegressor(), X, y).columns
    assert (kept is None) == all_kept


def test_columns_that_are_left_out_have_effects_of_their_own_only():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 20))
    y = X[:, 0] * X[:, 1] + 0.1 * X[:, 2] + 0.3 * rng.normal(size=800)
    model = CPRegressor(random_state=0).fit(X, y)
    order = model._training_order(model._read(X, y, None, None, None, None)[0])
    kept = {order[n] for n in parts.plan_of(model, X[:, order], y).columns}
    for n in set(range(20)) - kept:
        np.testing.assert_array_equal(model.cores_[n][0], 1.0)
        np.testing.assert_array_equal(model.cores_[n][1:], 0.0)
    assert explain.terms(model, top=1).rows[0].columns == ("x0", "x1")


def test_few_columns_are_all_kept():
    X, y = hidden(n_columns=13)
    plan = parts.plan_of(CPRegressor(), X[:, :8], y)
    assert plan.columns is None
    assert plan.seeds == ()


@pytest.mark.parametrize("n", [60, 200])
def test_categories_missing_values_and_constants_are_screened(n):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 9)))
    X.columns = [f"x{k}" for k in range(9)]
    X.loc[::3, "x0"] = np.nan
    X["x1"] = np.nan
    X["x2"] = 1.0
    X["a"] = pd.Categorical(rng.choice(list("abcdef"), n))
    X["b"] = pd.Categorical([None] * n, categories=["u"])
    X["c"] = pd.Categorical(["only"] * n)
    y = X["x3"] + (X["a"] == "a") * X["x4"]
    model = CPRegressor(random_state=0).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))


def test_a_seed_is_its_weights_times_the_ranks_of_its_columns():
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=500), rng.integers(0, 3, 500), rng.normal(size=500)]
    family = [
        maps.Hat(40).fit(columns[0]),
        maps.OneHot().fit(columns[1]),
        maps.Hat().fit(columns[2]),
    ]
    cores = CPCores([np.ones((m.dim, 2)) for m in family], np.ones((2, 1)), np.zeros(1))
    seed = screening.Seed((5, 7), np.array([3.0]), 1.0)
    seeded = screening.seeded(cores, [seed], columns, family, [5, 7, 9])
    term = 3.0
    for n in range(2):
        ranks = screening._ranks(columns[n], family[n])
        factor = family[n].dense(columns[n]) @ seeded.factors[n][:, 0]
        np.testing.assert_allclose(factor, ranks, atol=0.1)
        term = term * factor
    np.testing.assert_array_equal(family[2].dense(columns[2]) @ seeded.factors[2][:, 0], 1.0)
    np.testing.assert_array_equal(seeded.weights[:, 0], [3.0, 1.0])


def test_under_noise_alone_few_pairs_and_triples_are_found():
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(300, 12)), rng.normal(size=300)
        found += len(parts.plan_of(CPRegressor(), X, y).seeds)
    assert found <= 8  # one in ten tables has one, by construction: 0.05 for pairs and triples each


def noise(n_columns=11, n=200, outputs=3):
    """Return a grid of bins, and a model of slopes and curvatures."""
    rng = np.random.default_rng(0)
    grid = np.concatenate(
        [np.eye(screening._BINS)[rng.integers(0, screening._BINS, n)] for _ in range(n_columns)],
        axis=1,
    )
    slope, curvature = rng.normal(size=(n, outputs)), rng.uniform(0.1, 1.0, (n, outputs))
    return grid, Quadratic(slope, curvature)


@pytest.mark.parametrize("at_once", [1, 10**5, 10**12])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_pairs_are_those_of_a_search_by_hand(at_once, n_jobs, monkeypatch):
    monkeypatch.setattr(screening, "_AT_ONCE", at_once)
    monkeypatch.setattr(screening, "_CHANCE", 20.0)  # so that noise has some pairs
    grid, model = noise()
    gains = np.zeros((11, 11))
    cells = grid.reshape(len(grid), 11, screening._BINS)
    for slope, curvature in zip(model.slope.T, model.curvature.T):
        own = np.einsum("i,iab->ab", slope, cells) ** 2 / np.einsum("i,iab->ab", curvature, cells)
        both = np.einsum("i,iab,icd->acbd", slope, cells, cells) ** 2
        both /= np.maximum(np.einsum("i,iab,icd->acbd", curvature, cells, cells), 1e-300)
        gains += both.sum(axis=(2, 3)) - own.sum(axis=1)[:, None] - own.sum(axis=1)
    limit = chi2.isf(20.0 / 55, 3 * (screening._BINS - 1) ** 2)
    wanted = [pair for pair in itertools.combinations(range(11), 2) if gains[pair] > limit]
    assert 5 < len(wanted) < 50
    with Pool(n_jobs) as pool:
        assert screening._pairs(grid, model, pool) == wanted


def test_the_search_ends_when_time_is_over(monkeypatch):
    monkeypatch.setattr(screening, "_AT_ONCE", 1)
    monkeypatch.setattr(screening, "_CHANCE", 50.0)
    grid, model = noise()
    looks = itertools.count()
    with Pool(1) as pool:
        found = screening._pairs(grid, model, pool, lambda: next(looks) >= 2)
        assert found
        assert {first for first, _ in found} <= {0, 1}
        assert screening._triples(grid, model, pool, lambda: True) == []


def test_the_time_and_memory_of_a_search_are_bounded(monkeypatch):
    """A table of 8,500 columns took matrices of 34,000 x 34,000."""
    rows, bins = 1470, 34_000
    assert rows * bins <= screening._MOST_CELLS
    for n_outputs in (1, 7):
        searched = screening._rows_for_pairs(rows, bins, n_outputs)
        assert searched * bins**2 * n_outputs <= screening._MOST_FOR_PAIRS
    monkeypatch.setattr(screening, "_MOST_FOR_PAIRS", 1e6)
    monkeypatch.setattr(screening, "_MOST_CELLS", 4e4)
    X, y = hidden(n=600)
    plan = parts.plan_of(CPRegressor(), X, y)
    (columns,) = (choice for choice in plan.choices if choice.name == "columns")
    assert "others may, unseen" in columns.why


def test_the_search_keeps_blas_to_one_thread(monkeypatch):
    search, told = screening.search, []

    def watched(task):
        told.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return search(task)

    monkeypatch.setattr(screening, "search", watched)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 9))
    CPRegressor(max_time=1, random_state=0).fit(X, X[:, 0] + rng.normal(size=80))
    assert told
    assert set(told) == {1}
