"""Laws of the functional ANOVA: the closed forms equal averages over the whole product grid."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from explained import (
    FAST,
    ROWS,
    cases,
    mixed_columns,
    numbers,
    one_output,
    pure_terms,
    relative,
    target,
    three_outputs,
    two_classes,
    variance,
    whole_grid,
)
from scipy.special import binom
from sklearn.exceptions import NotFittedError

from polyadic import CPRegressor, explain, maps
from polyadic.explain.words import _curve


@cases
def test_every_variance_is_that_of_the_whole_grid(case):
    model, X = case()
    f, _, shares = whole_grid(model, X)
    expected = pure_terms(f, shares)
    mean = expected.pop(())
    found = explain.terms(model, background=X, max_order=3, top=None)
    total = variance(f - mean, shares)
    assert found.total == pytest.approx(total, rel=1e-9)
    assert found.n_terms == len(found.rows) == 7
    for columns, size, share in found.rows:
        chosen = tuple(model.columns_.names.index(name) for name in columns)
        assert size == pytest.approx(
            variance(expected[chosen], shares), rel=1e-7, abs=1e-12 * total
        )
        assert share == pytest.approx(size / total, rel=1e-9)


@cases
def test_shares_of_all_orders_add_up_to_one(case):
    model, X = case()
    found = explain.terms(model, background=X, max_order=3, top=None)
    assert sum(row.share for row in found.rows) == pytest.approx(1.0, abs=1e-9)
    assert sum(found.orders) == pytest.approx(1.0, abs=1e-9)
    sizes = [row.variance for row in found.rows]
    assert sizes == sorted(sizes, reverse=True)


@cases
def test_effects_are_the_order_one_terms_of_the_whole_grid(case):
    model, X = case()
    f, rows, shares = whole_grid(model, X)
    expected = pure_terms(f, shares)
    found = explain.effects(model, X)
    coded = model.columns_.code(X)
    by_name = {row.columns: row for row in explain.terms(model, background=X, top=None).rows}
    for n, name in enumerate(model.columns_.names):
        curve = expected[(n,)].reshape(-1, f.shape[-1])
        at = dict(zip(coded[n][rows[n]].tolist(), curve))
        points = found.grid[n]
        if model.columns_.columns[n].kind == "categorical":
            assert points.tolist() == ["u", "v", "w"]
            points = np.arange(3)
        for point, value in zip(points.tolist(), found.values[n]):
            np.testing.assert_allclose(value, at[point], rtol=1e-8, atol=1e-10)
        assert found.variance[n] == pytest.approx(by_name[(name,)].variance, rel=1e-12)
        assert found.share[n] == pytest.approx(by_name[(name,)].share, rel=1e-12)


@cases
def test_the_grid_of_these_tests_agrees_with_the_model(case):
    model, X = case()
    f, rows, _ = whole_grid(model, X)
    first = tuple(r[0] for r in rows)
    table = X.iloc[list(first)] if hasattr(X, "iloc") else X[list(first)]
    mixed_row = copy.copy(table[:1])
    for n in range(3):
        if hasattr(X, "iloc"):
            mixed_row = mixed_row.assign(**{X.columns[n]: table.iloc[[n], n].to_numpy()})
        else:
            mixed_row[0, n] = table[n, n]
    raw = relative(model, model.raw(mixed_row))[0]
    np.testing.assert_allclose(raw, f[0, 0, 0], rtol=1e-4, atol=1e-5)


@cases
def test_sobol_indices_are_sums_over_the_whole_grid(case):
    model, X = case()
    f, _, shares = whole_grid(model, X)
    terms = pure_terms(f, shares)
    sizes = {term: variance(terms[term], shares) for term in terms if term}
    total = sum(sizes.values())
    found = explain.sobol(model, background=X)
    assert found.variance == pytest.approx(total, rel=1e-9)
    for n in range(3):
        own = [size for term, size in sizes.items() if n in term]
        assert found.first[n] == pytest.approx(sizes[(n,)] / total, rel=1e-7, abs=1e-12)
        assert found.total[n] == pytest.approx(sum(own) / total, rel=1e-7, abs=1e-12)
        order = [size for term, size in sizes.items() if len(term) == n + 1]
        assert found.orders[n] == pytest.approx(sum(order) / total, rel=1e-7, abs=1e-12)
    assert found.orders.sum() == pytest.approx(1.0, abs=1e-12)


def test_blocks_of_terms_add_up(monkeypatch):
    model, X = mixed_columns()
    whole = explain.sobol(model, background=X)
    monkeypatch.setattr("polyadic.explain.cp._BLOCK", 1)
    found = explain.sobol(model, background=X)
    for name in ("first", "total", "orders", "variance"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-12)


def test_orders_of_a_hundred_columns_are_those_of_the_binomial_law():
    # Equal columns, mean one and variance q: order k has the share C(N, k) q^k / ((1+q)^N - 1).
    X = np.random.default_rng(0).choice([-1.0, 1.0], size=(64, 100))
    X[:32] = 1.0
    X[32:] = -1.0
    model = CPRegressor(maps=maps.Polynomial(2), **FAST).fit(X, X[:, 0])
    q = 0.02
    factor = np.array([[1.0], [np.sqrt(q)]])
    tensor = replace(model.tensor_, factors=[factor] * 100, weights=np.ones((1, 1)), additive=None)
    model.tensor_ = tensor
    found = explain.sobol(model)
    expected = np.array([binom(100, k) * q**k for k in range(1, 101)])
    np.testing.assert_allclose(found.orders, expected / expected.sum(), rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(found.total, q * (1 + q) ** 99 / ((1 + q) ** 100 - 1), rtol=1e-6)


def test_the_size_of_a_factor_does_not_matter():
    model, X = one_output()
    expected = explain.terms(model, background=X)
    cores = model.tensor_
    sizes = (1e-150, 1e100, 1e50)
    factors = [a.astype(float) * size for a, size in zip(cores.factors, sizes)]
    model.tensor_ = replace(cores, factors=factors)
    found = explain.terms(model, background=X)
    assert [row.columns for row in found.rows] == [row.columns for row in expected.rows]
    np.testing.assert_allclose(
        [row.variance for row in found.rows], [row.variance for row in expected.rows], rtol=1e-9
    )


def test_hundreds_of_columns_stay_in_range():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(40, 400))
    model = CPRegressor(maps=maps.Polynomial(2), **FAST).fit(X, X[:, 0])
    cores = model.tensor_
    factors = [np.array([[1e-4] * 4, [0.0] * 4]) for _ in range(400)]
    factors[7][1] = 1e-4  # the only column with an effect
    model.tensor_ = replace(cores, factors=factors, weights=np.ones((4, 1)))
    found = explain.terms(model, background=X, max_order=1)
    assert found.total == 0.0  # 1e-1600: nothing to explain, and no error
    factors = [f * 1e4 for f in factors]
    model.tensor_ = replace(cores, factors=factors, weights=np.ones((4, 1)))
    found = explain.terms(model, background=X, max_order=1, top=1)
    assert found.rows[0].columns == ("x7",)
    assert found.rows[0].share == pytest.approx(1.0)
    effect = 16 * np.var(model.maps_[7].dense(X[:, 7])[:, 1])
    assert found.total == pytest.approx(effect, rel=1e-9)


def test_factors_of_mean_zero_leave_only_the_interaction():
    X = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)] * 10)
    model = CPRegressor(maps=maps.Polynomial(2), **FAST).fit(X, X[:, 0] * X[:, 1])
    model.tensor_ = replace(
        model.tensor_, factors=[np.array([[0.0], [2.0]])] * 2, weights=np.array([[1.5]])
    )
    found = explain.terms(model, background=X, top=None)
    assert found.rows[0] == (("x0", "x1"), pytest.approx(36.0), pytest.approx(1.0))
    assert [row.variance for row in found.rows[1:]] == [0.0, 0.0]


def test_a_constant_model_has_no_shares():
    X = numbers()
    model = CPRegressor(**FAST).fit(X, np.ones(ROWS))
    model.tensor_ = replace(model.tensor_, weights=np.zeros_like(model.weights_))
    found = explain.terms(model, background=X)
    assert found.total == 0.0
    assert {row.share for row in found.rows} == {0.0}
    assert explain.in_words(model, background=X) == []
    assert explain.effects(model, X).share.tolist() == [0.0, 0.0, 0.0]


def test_repeating_the_table_changes_nothing():
    model, X = mixed_columns()
    once, twice = (explain.terms(model, background=x) for x in (X, pd.concat([X, X])))
    for a, b in zip(once.rows, twice.rows):
        assert a.columns == b.columns
        assert a.variance == pytest.approx(b.variance, rel=1e-9)


def test_results_print_as_aligned_tables():
    model, X = mixed_columns()
    lines = str(explain.terms(model, background=X, top=4)).splitlines()
    assert lines[0].split() == ["term", "std", "share"]
    assert len(lines) == 6
    assert len({len(line) for line in lines[:-1]}) == 1
    assert lines[-1].startswith("4 of 7 terms.")
    lines = str(explain.effects(model, X)).splitlines()
    assert lines[0].split() == ["column", "std", "share", "lowest", "highest"]
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1


def test_a_column_of_missing_values_is_explained():
    X = pd.DataFrame({"a": numbers()[:, 0], "b": np.full(ROWS, np.nan)})
    model = CPRegressor(**FAST).fit(X, X["a"])
    found = explain.effects(model, X)
    assert found.values[1].shape == (0, 1)
    assert found.variance[1] == pytest.approx(0.0, abs=1e-12)
    assert "b" in str(found)
    assert len(explain.in_words(model, background=X)) == 1


@pytest.mark.parametrize("order", [0, -1, 1.5, True, "2"])
def test_an_invalid_max_order_is_refused(order):
    model, X = one_output()
    with pytest.raises(ValueError, match="max_order must be a whole number of at least 1"):
        explain.terms(model, background=X, max_order=order)


def test_too_many_terms_are_refused():
    X = np.random.default_rng(0).normal(size=(30, 60))
    model = CPRegressor(**FAST).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"max_order=9 over 60 columns would be .* terms"):
        explain.terms(model, background=X, max_order=9)


def test_an_unfitted_model_is_refused():
    for function in (
        explain.terms,
        explain.interactions,
        explain.effects,
        explain.in_words,
        explain.sobol,
    ):
        with pytest.raises(NotFittedError):
            function(CPRegressor())


# ---- words --------------------------------------------------------------------------------------

x = np.linspace(0.0, 10.0, 41)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (x / 5 - 1, "raises y: from -1.0 at 0 to +1.0 at 10"),
        (1000 - 200 * x, "lowers y: from +1000 at 0 to -1000 at 10"),
        (
            1 - (x - 5) ** 2 / 10,
            "raises y up to 5 and lowers it beyond: -1.5 at 0, +1.0 at 5, -1.5 at 10",
        ),
        (
            abs(x - 4) / 2 - 1,
            "lowers y up to 4 and raises it beyond: +1.0 at 0, -1.0 at 4, +2.0 at 10",
        ),
        (np.sin(2 * x), "moves y up and down, between -1.0 at 6 and +1.0 at 1"),
        (x / 5 - 1 + 0.01 * np.sin(9 * x), "raises y: from -1.0 at 0 to +1.0 at 10"),
        (x / 5 - 1 + 0.2 * np.sin(9 * x), "raises y overall: from -1.0 at 0 to +1.2 at 10"),
        (1 - x / 5 - 0.5 * (abs(x - 7) < 0.3), "lowers y overall: from +1.0 at 0 to -1.0 at 10"),
    ],
    ids=["up", "down", "peak", "valley", "wave", "wiggle", "wiggles", "dent"],
)
def test_the_shape_of_a_curve_is_described_in_words(y, sentence):
    assert _curve(x, y, "y", np.ones(41)) == sentence


def test_words_describe_effects_and_interactions():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 60, 400), "weight": rng.uniform(50, 90, 400)})
    X["city"] = pd.Categorical(np.array(["Bonn", "Ulm"])[np.arange(400) % 2])
    y = -0.1 * X["age"] + 0.01 * (X["age"] - 40) * (X["weight"] - 70) + 2 * (X["city"] == "Ulm")
    model = CPRegressor(n_members=2, random_state=0).fit(X, y)
    sentences = explain.in_words(model, background=X, top=3)
    age = next(s for s in sentences if s.startswith("age lowers"))
    assert age.startswith("age lowers the prediction: from +1.")
    city = next(s for s in sentences if s.startswith("city "))
    assert city.startswith("city moves the prediction from -1.0 for 'Bonn' to +1.0 for 'Ulm' (")
    together = next(s for s in sentences if "together" in s)
    assert together.startswith("age and weight act together (")
    assert all(s.endswith(" % of the variance).") for s in sentences)


def test_words_say_what_the_raw_prediction_means():
    model, X = two_classes()
    assert "the score of 'low'" in " ".join(explain.in_words(model, background=X, top=7))
    model, X = three_outputs()
    told = " ".join(explain.in_words(model, background=X))
    assert any(f" {name}" in told for name in ("y0", "y1", "y2"))
    counts = CPRegressor(loss="poisson", **FAST).fit(X, np.abs(target(X)))
    assert "the raw prediction" in " ".join(explain.in_words(counts, background=X))
