"""Laws of marginals: averages over a table need nothing else of its columns."""

import needs
import numpy as np
import pandas as pd
import pytest
from explained import FAST, cases, mixed, numbers, target
from parts import mixed_table

import polyadic
from polyadic import CPRegressor, TNRegressor, explain, maps
from polyadic.data import marginals
from polyadic.data.columns import Column


def columns_of(own_maps):
    return [
        Column(f"x{n}", m.kind, tuple(range(4)) if m.kind == "categorical" else None)
        for n, m in enumerate(own_maps)
    ]


def test_moments_are_weighted_means_of_the_features():
    own_maps, coded = mixed_table()
    weight = np.random.default_rng(0).uniform(0, 2, len(coded[0]))
    found = marginals.learn(columns_of(own_maps), own_maps, coded, weight)
    share = weight / weight.sum()
    for own, x, marginal in zip(own_maps, coded, found):
        phi = marginals.design(own, x).toarray()
        np.testing.assert_allclose(marginal.mean, share @ phi, atol=1e-12)
        np.testing.assert_allclose(
            marginal.second.toarray(), phi.T @ (share[:, None] * phi), atol=1e-9
        )
        known = ~np.isnan(x) if own.kind == "numeric" else x >= 0
        assert marginal.missing == pytest.approx(share[~known].sum())
        assert marginal.weight == pytest.approx(weight.sum())


def test_a_design_times_a_full_core_is_the_function_of_the_core():
    own_maps, coded = mixed_table()
    for own, x in zip(own_maps, coded):
        core = np.random.default_rng(0).normal(size=(own.dim, 3))
        found = marginals.design(own, x) @ marginals.full_core(own, core)
        np.testing.assert_allclose(found, own.dense(x) @ core, atol=1e-12)


def test_a_mixture_is_the_marginal_of_all_rows():
    own_maps, coded = mixed_table(60)
    columns = columns_of(own_maps)
    whole = marginals.learn(columns, own_maps, coded)
    halves = [
        marginals.learn(columns, own_maps, [x[s] for x in coded])
        for s in (slice(20), slice(20, 60))
    ]
    for one, two, all_rows in zip(*halves, whole):
        found = one.mix(two)
        np.testing.assert_allclose(found.mean, all_rows.mean, atol=1e-12)
        np.testing.assert_allclose(found.second.toarray(), all_rows.second.toarray(), atol=1e-9)
        np.testing.assert_allclose(found.shares, all_rows.shares, atol=1e-12)
        assert found.missing == pytest.approx(all_rows.missing)
        assert found.weight == all_rows.weight == 60
        if len(found.quantiles):
            assert found.quantiles[[0, -1]].tolist() == all_rows.quantiles[[0, -1]].tolist()


@pytest.mark.parametrize("size", [1, 10])
def test_quantiles_do_not_drift_over_many_batches(size):
    x = np.random.default_rng(0).normal(size=2000)
    own = maps.Hat(n_knots=5).fit(x)
    column = [Column("x", "numeric")]
    batches = x.reshape(-1, size)
    found = marginals.learn(column, [own], [batches[0]])[0]
    for batch in batches[1:]:
        found = found.mix(marginals.learn(column, [own], [batch])[0])
    expected = np.quantile(x, [0.05, 0.25, 0.5, 0.75, 0.95])
    np.testing.assert_allclose(found.quantiles[[5, 25, 50, 75, 95]], expected, atol=0.25)
    assert found.quantiles[[0, -1]].tolist() == [x.min(), x.max()]


def test_quantiles_of_few_values_stay_among_them():
    x = np.random.default_rng(0).integers(0, 3, 400).astype(float)
    own = maps.Hat().fit(x)
    column = [Column("x", "numeric")]
    halves = [marginals.learn(column, [own], [part])[0] for part in (x[:150], x[150:])]
    assert set(halves[0].mix(halves[1]).quantiles.tolist()) == {0.0, 1.0, 2.0}


def test_a_column_that_is_always_missing_survives_partial_fits(tmp_path):
    X = np.array([[1.0, np.nan]])
    model = CPRegressor(**FAST).partial_fit(X, [1.0], sample_weight=[4.1024319295722025])
    model.partial_fit(X + 1, [2.0], sample_weight=[1.0834961352210715])
    model.save(tmp_path / "model.polyadic")
    assert polyadic.load(tmp_path / "model.polyadic").marginals_[1].missing == 1.0


def test_partial_fit_adds_no_marginals_to_a_model_without_them():
    X = numbers()
    model = CPRegressor(**FAST).fit(X, target(X))
    del model.marginals_
    model.partial_fit(X[:3], target(X)[:3])
    assert not hasattr(model, "marginals_")


def test_arrays_restore_the_marginal():
    own_maps, coded = mixed_table()
    columns = columns_of(own_maps)
    for column, own, marginal in zip(columns, own_maps, marginals.learn(columns, own_maps, coded)):
        again = marginals.Marginal.restore(marginal.arrays(), own.dim, len(column.categories or ()))
        np.testing.assert_array_equal(again.mean, marginal.mean)
        np.testing.assert_allclose(again.second.toarray(), marginal.second.toarray(), atol=1e-15)
        np.testing.assert_array_equal(again.quantiles, marginal.quantiles)
        assert (again.missing, again.weight) == (marginal.missing, marginal.weight)


@cases
def test_a_loaded_model_explains_as_the_saved_one(case, tmp_path):
    model, X = case()
    model.save(tmp_path / "model.polyadic")
    again = polyadic.load(tmp_path / "model.polyadic")
    np.testing.assert_allclose(explain.sobol(again).total, explain.sobol(model).total, rtol=1e-12)
    np.testing.assert_allclose(
        explain.shapley(again, X).values, explain.shapley(model, X).values, atol=1e-12
    )
    for a, b in zip(explain.effects(again).grid, explain.effects(model).grid):
        np.testing.assert_array_equal(a, b)


def test_a_file_without_marginals_loads(tmp_path):
    X = numbers()
    model = CPRegressor(**FAST).fit(X, target(X))
    del model.marginals_
    model.save(tmp_path / "model.polyadic")
    again = polyadic.load(tmp_path / "model.polyadic")
    assert not hasattr(again, "marginals_")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_partial_fits_add_their_rows():
    X = numbers()
    model = CPRegressor(**FAST).partial_fit(X[:20], target(X)[:20])
    model.partial_fit(X[20:], target(X)[20:])
    found = explain.effects(model)
    expected = explain.effects(model, background=X)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9)
    assert model.marginals_[0].weight == len(X)


def test_networks_keep_marginals_too():
    needs.package("torch")
    X = mixed()
    model = TNRegressor("tt", rank=2, max_iter=1, random_state=0).fit(X, target(numbers()))
    assert [m.weight for m in model.marginals_] == [len(X)] * 3


@pytest.mark.filterwarnings("ignore:Column 'id' has 3,000 different texts")
def test_a_marginal_grows_linearly_with_the_categories():
    n = 3000
    X = pd.DataFrame({"id": pd.Categorical(np.arange(n).astype(str)), "x": np.arange(n) % 7})
    own = {"id": maps.OneHot(min_count=1)}
    model = CPRegressor(own, rank=2, n_members=1, max_iter=1, random_state=0).fit(X, X["x"])
    assert n <= model.marginals_[0].second.nnz <= 4 * n
