"""Laws of the functional ANOVA: the closed forms equal averages over the whole product grid."""

import copy
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from polyadic import CPClassifier, CPRegressor, explain, maps
from polyadic.explain.words import _curve

ROWS, FEW = 60, {"rank": 4, "n_members": 1, "max_epochs": 2, "random_state": 0}


def numbers(seed=0, n_columns=3):
    """Rows of few distinct values, so that the marginals are uneven."""
    rng = np.random.default_rng(seed)
    return rng.choice(
        [-1.0, -0.3, 0.2, 0.9, 2.0], size=(ROWS, n_columns), p=[0.3, 0.3, 0.2, 0.1, 0.1]
    )


def target(X, seed=1):
    noise = np.random.default_rng(seed).normal(size=len(X))
    return X[:, 0] + X[:, 1] ** 2 - 2 * X[:, 0] * X[:, 2] + 0.3 * noise


def mixed():
    X = numbers()
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["c"] = pd.Categorical(np.array(["u", "v", "w"])[np.arange(ROWS) % 3])
    frame.loc[::7, "b"] = np.nan
    frame.loc[::11, "c"] = None
    return frame


def one_output():
    X = numbers()
    return CPRegressor(**FEW).fit(X, target(X)), X


def three_outputs():
    X = numbers()
    return CPRegressor(**FEW).fit(X, np.column_stack([target(X, s) for s in range(3)])), X


def additive_part():
    X = numbers()
    y = np.column_stack([target(X, s) for s in range(2)])
    model = CPRegressor(**FEW | {"rank": 2, "init": "linear"}).fit(X, y)
    assert model.tensor_.additive is not None
    return model, X


def merged_members():
    X = np.random.default_rng(3).normal(size=(ROWS, 3))
    model = CPRegressor(maps=maps.Hat(n_knots=4), **FEW | {"n_members": 2}).fit(X, target(X))
    return model, X[:9]


def merged_additive():
    X = numbers()
    model = CPRegressor(**FEW | {"rank": 2, "init": "linear", "n_members": 2}).fit(X, target(X))
    assert model.tensor_.additive is not None
    return model, X


def mixed_columns():
    X = mixed()
    return CPRegressor(**FEW).fit(X, target(numbers())), X


def no_constant():
    X = numbers()
    map_ = maps.Polynomial(4, normalize=True)
    return CPRegressor(maps=map_, init="gaussian", **FEW).fit(X, target(X)), X


def two_classes():
    X = mixed()
    return CPClassifier(**FEW).fit(X, np.where(target(numbers()) > 0, "high", "low")), X


CASES = [
    one_output,
    three_outputs,
    additive_part,
    merged_members,
    merged_additive,
    mixed_columns,
    no_constant,
    two_classes,
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


def distinct(column):
    """Return one row for each distinct value, and the shares of those values."""
    _, first, counts = np.unique(
        np.where(np.isnan(column), 99.0, column), return_index=True, return_counts=True
    )
    return first, counts / len(column)


def whole_grid(model, X):
    """Evaluate the model on all combinations of distinct values, in double precision.

    Returns f : (k_1, ..., k_N, L), and rows and shares of the values of each column.
    """
    coded = model.columns_.code(X)
    picked = [distinct(np.asarray(c, dtype=float)) for c in coded]
    cores, n_columns = model.tensor_, len(coded)
    f = cores.weights.astype(float)
    terms, extra = np.ones((1, cores.rank)), np.zeros((1, cores.n_outputs))
    for n, (rows, _) in enumerate(picked):
        phi = model.maps_[n].dense(coded[n][rows])
        terms = (terms[:, None] * (phi @ cores.factors[n])).reshape(-1, cores.rank)
        own = np.zeros((len(rows), 1)) if cores.additive is None else phi @ cores.additive[n]
        extra = (extra[:, None] + own).reshape(-1, cores.n_outputs)
    f = cores.intercept + extra + terms @ f
    shape = [len(rows) for rows, _ in picked]
    assert len(shape) == n_columns
    return f.reshape(*shape, -1), [rows for rows, _ in picked], [share for _, share in picked]


def average(f, shares, kept):
    """Average over all columns but the kept ones; averaged axes stay, with length one."""
    for n, share in enumerate(shares):
        if n not in kept:
            weights = share.reshape([-1 if m == n else 1 for m in range(f.ndim)])
            f = (f * weights).sum(axis=n, keepdims=True)
    return f


def pure_terms(f, shares):
    """Return every pure term of the functional ANOVA, by its definition."""
    out = {}
    for order in range(len(shares) + 1):
        for chosen in combinations(range(len(shares)), order):
            smaller = [t for t in out if set(t) < set(chosen)]
            out[chosen] = average(f, shares, chosen) - sum(out[t] for t in smaller)
    return out


def variance(term, shares):
    return float(average((term**2).sum(axis=-1, keepdims=True), shares, ()).sum())


@cases
def test_every_variance_is_that_of_the_whole_grid(case):
    model, X = case()
    f, _, shares = whole_grid(model, X)
    expected = pure_terms(f, shares)
    mean = expected.pop(())
    found = explain.interactions(model, X, max_order=3, top=None)
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
    found = explain.interactions(model, X, max_order=3, top=None)
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
    by_name = {row.columns: row for row in explain.interactions(model, X, top=None).rows}
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
def test_the_grid_of_the_test_is_what_the_model_predicts(case):
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
    np.testing.assert_allclose(model.raw(mixed_row)[0], f[0, 0, 0], rtol=1e-4, atol=1e-5)


def test_the_size_of_a_factor_does_not_matter():
    model, X = one_output()
    expected = explain.interactions(model, X)
    cores = model.tensor_
    sizes = (1e-150, 1e100, 1e50)
    factors = [a.astype(float) * size for a, size in zip(cores.factors, sizes)]
    model.tensor_ = replace(cores, factors=factors)
    found = explain.interactions(model, X)
    assert [row.columns for row in found.rows] == [row.columns for row in expected.rows]
    np.testing.assert_allclose(
        [row.variance for row in found.rows], [row.variance for row in expected.rows], rtol=1e-9
    )


def test_hundreds_of_columns_stay_in_range():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(40, 400))
    model = CPRegressor(maps=maps.Polynomial(2), **FEW).fit(X, X[:, 0])
    cores = model.tensor_
    factors = [np.array([[1e-4] * 4, [0.0] * 4]) for _ in range(400)]
    factors[7][1] = 1e-4  # the one column that does anything
    model.tensor_ = replace(cores, factors=factors, weights=np.ones((4, 1)))
    found = explain.interactions(model, X, max_order=1)
    assert found.total == 0.0  # 1e-1600: there is nothing to explain, and nothing breaks
    factors = [f * 1e4 for f in factors]
    model.tensor_ = replace(cores, factors=factors, weights=np.ones((4, 1)))
    found = explain.interactions(model, X, max_order=1, top=1)
    assert found.rows[0].columns == ("x7",)
    assert found.rows[0].share == pytest.approx(1.0)
    effect = 16 * np.var(model.maps_[7].dense(X[:, 7])[:, 1])
    assert found.total == pytest.approx(effect, rel=1e-9)


def test_a_mean_of_zero_leaves_the_interaction():
    X = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)] * 10)
    model = CPRegressor(maps=maps.Polynomial(2), **FEW).fit(X, X[:, 0] * X[:, 1])
    model.tensor_ = replace(
        model.tensor_, factors=[np.array([[0.0], [2.0]])] * 2, weights=np.array([[1.5]])
    )
    found = explain.interactions(model, X, top=None)
    assert found.rows[0] == (("x0", "x1"), pytest.approx(36.0), pytest.approx(1.0))
    assert [row.variance for row in found.rows[1:]] == [0.0, 0.0]


def test_a_constant_model_has_no_shares():
    X = numbers()
    model = CPRegressor(**FEW).fit(X, np.ones(ROWS))
    model.tensor_ = replace(model.tensor_, weights=np.zeros_like(model.weights_))
    found = explain.interactions(model, X)
    assert found.total == 0.0
    assert {row.share for row in found.rows} == {0.0}
    assert explain.in_words(model, X) == []
    assert explain.effects(model, X).share.tolist() == [0.0, 0.0, 0.0]


def test_repeating_the_table_changes_nothing():
    model, X = mixed_columns()
    once, twice = (explain.interactions(model, x) for x in (X, pd.concat([X, X])))
    for a, b in zip(once.rows, twice.rows):
        assert a.columns == b.columns
        assert a.variance == pytest.approx(b.variance, rel=1e-9)


def test_results_print_as_aligned_tables():
    model, X = mixed_columns()
    lines = str(explain.interactions(model, X, top=4)).splitlines()
    assert lines[0].split() == ["term", "variance", "share"]
    assert len(lines) == 6
    assert len({len(line) for line in lines[:-1]}) == 1
    assert lines[-1].startswith("4 of 6 terms.")
    lines = str(explain.effects(model, X)).splitlines()
    assert lines[0].split() == ["column", "variance", "share", "lowest", "highest"]
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1


def test_a_column_without_a_number_is_no_error():
    X = pd.DataFrame({"a": numbers()[:, 0], "b": np.full(ROWS, np.nan)})
    model = CPRegressor(**FEW).fit(X, X["a"])
    found = explain.effects(model, X)
    assert found.values[1].shape == (0, 1)
    assert found.variance[1] == pytest.approx(0.0, abs=1e-12)
    assert "b" in str(found)
    assert len(explain.in_words(model, X)) == 1


@pytest.mark.parametrize("order", [0, -1, 1.5, True, "2"])
def test_what_is_no_order_is_refused(order):
    model, X = one_output()
    with pytest.raises(ValueError, match="max_order must be a whole number of at least 1"):
        explain.interactions(model, X, max_order=order)


def test_more_terms_than_can_be_read_are_refused():
    X = np.random.default_rng(0).normal(size=(30, 60))
    model = CPRegressor(**FEW).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"max_order=9 over 60 columns would be .* terms"):
        explain.interactions(model, X, max_order=9)


def test_an_unfitted_model_is_refused():
    for function in (explain.interactions, explain.effects, explain.in_words):
        with pytest.raises(NotFittedError):
            function(CPRegressor(), numbers())


# ---- words --------------------------------------------------------------------------------------

x = np.linspace(0.0, 10.0, 41)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (x / 5 - 1, "raises y: from -1.0 at 0 to +1.0 at 10"),
        (1000 - 200 * x, "lowers y: from +1,000 at 0 to -1,000 at 10"),
        (
            1 - (x - 5) ** 2 / 10,
            "raises y up to 5 and lowers it beyond: -1.5 at 0, +1.0 at 5, -1.5 at 10",
        ),
        (
            abs(x - 4) / 2 - 1,
            "lowers y up to 4 and raises it beyond: +1.0 at 0, -1.0 at 4, +2.0 at 10",
        ),
        (np.sin(2 * x), "moves y up and down, between -1.0 at 2 and +1.0 at 1"),
        (x / 5 - 1 + 0.01 * np.sin(9 * x), "raises y: from -1.0 at 0 to +1.0 at 10"),
    ],
    ids=["up", "down", "peak", "valley", "wave", "wiggle"],
)
def test_the_shape_of_a_curve_has_its_words(y, sentence):
    if sentence.startswith("moves"):
        assert _curve(x, y, "y").startswith("moves y up and down, between -1.0 at ")
    else:
        assert _curve(x, y, "y") == sentence


def test_words_follow_the_effects():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 60, 400), "weight": rng.uniform(50, 90, 400)})
    X["city"] = pd.Categorical(np.array(["Bonn", "Ulm"])[np.arange(400) % 2])
    y = -0.1 * X["age"] + 0.01 * (X["age"] - 40) * (X["weight"] - 70) + 2 * (X["city"] == "Ulm")
    model = CPRegressor(n_members=2, random_state=0).fit(X, y)
    said = explain.in_words(model, X, top=3)
    age = next(s for s in said if s.startswith("age lowers"))
    assert age.startswith("age lowers the prediction: from +1.")
    city = next(s for s in said if s.startswith("city "))
    assert city.startswith("city moves the prediction from -1.0 for 'Bonn' to +1.0 for 'Ulm' (")
    together = next(s for s in said if "together" in s)
    assert together.startswith("age and weight act together (")
    assert all(s.endswith(" % of the variance).") for s in said)


def test_words_name_what_the_raw_prediction_is():
    model, X = two_classes()
    assert "the score of 'low'" in " ".join(explain.in_words(model, X, top=7))
    model, X = three_outputs()
    assert "matters by itself, over all 3 outputs" in " ".join(explain.in_words(model, X))
    counts = CPRegressor(loss="poisson", **FEW).fit(X, np.abs(target(X)))
    assert "the raw prediction" in " ".join(explain.in_words(counts, X))
