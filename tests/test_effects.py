"""Laws of main effects and partial dependence."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from explained import (
    FAST,
    average,
    cases,
    mixed,
    numbers,
    odd_columns,
    one_output,
    pure_terms,
    relative,
    squared_labels,
    target,
    three_classes,
    two_classes,
    whole_grid,
)
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.inspection import partial_dependence as brute_force

from polyadic import CPClassifier, CPRegressor, explain

SETS = [(0,), (2,), (0, 1), (2, 0), (1, 2, 0)]


def grid_of(model, X, rows, n):
    """Return the distinct values of column n as they are in the table."""
    column = model.columns_.columns[n]
    values = model.columns_.code(X)[n][rows[n]]
    if column.categories is None:
        return values
    return [column.categories[v] if v >= 0 else None for v in values]


@cases
@pytest.mark.parametrize("chosen", SETS, ids=str)
def test_partial_dependence_is_the_mean_over_the_whole_grid(case, chosen):
    model, X = case()
    f, rows, shares = whole_grid(model, X)
    grid = [grid_of(model, X, rows, n) for n in chosen]
    # `background` of partial dependence is the joint one: compare over the training marginals.
    model.marginals_ = explain.models.marginals_over(model, X)
    found = explain.partial_dependence(model, list(chosen), grid)
    shape = [f.shape[n] if n in chosen else 1 for n in range(3)]
    expected = average(f, shares, chosen).reshape(*shape, -1)
    expected = np.squeeze(expected, tuple(n for n in range(3) if n not in chosen))
    expected = np.transpose(expected, [*np.argsort(np.argsort(chosen)), len(chosen)])
    np.testing.assert_allclose(found.values, expected, rtol=1e-9, atol=1e-10)


@cases
@pytest.mark.parametrize("chosen", SETS, ids=str)
def test_a_pure_term_is_that_of_the_whole_grid(case, chosen):
    model, X = case()
    f, rows, shares = whole_grid(model, X)
    term = pure_terms(f, shares)[tuple(sorted(chosen))]
    grid = [grid_of(model, X, rows, n) for n in chosen]
    found = explain.partial_dependence(model, list(chosen), grid, background=X, pure=True)
    expected = np.squeeze(term, tuple(n for n in range(3) if n not in chosen))
    expected = np.transpose(expected, [*np.argsort(np.argsort(chosen)), len(chosen)])
    np.testing.assert_allclose(found.values, expected, rtol=1e-8, atol=1e-10)


@cases
@pytest.mark.parametrize("chosen", SETS, ids=str)
def test_partial_dependence_over_given_rows_is_the_mean_prediction(case, chosen):
    model, X = case()
    _, rows, _ = whole_grid(model, X)
    grid = [grid_of(model, X, rows, n) for n in chosen]
    found = explain.partial_dependence(model, list(chosen), grid, background=X)
    for at in product(*(range(len(g)) for g in grid)):
        table = X.copy()
        for n, values, i in zip(chosen, grid, at):
            if hasattr(X, "iloc"):
                own = pd.Series([values[i]] * len(X), index=X.index)
                name = X.columns[n]
                table[name] = own.astype(X[name].dtype)
            else:
                table[:, n] = values[i]
        expected = relative(model, model.raw(table)).mean(axis=0)  # in single precision
        scale = max(1.0, np.abs(found.values).max())
        np.testing.assert_allclose(found.values[at], expected, rtol=0, atol=2e-6 * scale)


class InDoublePrecision(RegressorMixin, BaseEstimator):
    """A fitted CP model whose raw prediction is computed in double precision."""

    def __init__(self, model):
        self.model = model

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y):
        raise AssertionError("it is fitted")

    def predict(self, X):
        coded = self.model.columns_.code(X)
        factors = [
            m.dense(x) @ a.astype(float)
            for m, x, a in zip(self.model.maps_, coded, self.model.cores_)
        ]
        return self.model.intercept_[0] + np.prod(factors, axis=0) @ self.model.weights_[:, 0]


def independent():
    """A table of all combinations of some values: its columns are independent."""
    values = [-1.0, -0.2, 0.4, 1.5], [0.0, 1.0, 3.0], [-2.0, 0.5, 0.7]
    return np.array(list(product(*values)))


def dependent():
    rng = np.random.default_rng(0)
    return rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3))


def fitted(X, classes):
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2])
    if classes:
        return CPClassifier(**FAST).fit(X, y > 0)
    return CPRegressor(**FAST | {"max_iter": 30}).fit(X, (y - y.mean()) / y.std())


@pytest.mark.parametrize("chosen", SETS[:4], ids=str)
@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("table", [independent, dependent])
def test_partial_dependence_agrees_with_the_brute_force_of_scikit_learn(chosen, classes, table):
    X = table()
    model = fitted(X, classes)
    options = {"features": list(chosen), "method": "brute", "grid_resolution": 5}
    exact = brute_force(InDoublePrecision(model), X, **options)
    method = {"response_method": "decision_function"} if classes else {}
    single = brute_force(model, X, **options, **method)["average"][0]
    scale = max(1.0, np.abs(single).max())
    for background in (X, None) if table is independent else (X,):
        found = explain.partial_dependence(
            model, list(chosen), exact["grid_values"], background=background
        )
        np.testing.assert_allclose(found.values[..., 0], exact["average"][0], atol=1e-9)
        np.testing.assert_allclose(found.values[..., 0], single, atol=1e-6 * scale)


def test_joint_and_marginal_backgrounds_differ_for_dependent_columns():
    X = dependent()
    model = fitted(X, False)
    joint = explain.partial_dependence(model, "x2", background=X)
    product_of_marginals = explain.partial_dependence(model, "x2")
    assert np.abs(product_of_marginals.values - joint.values).max() > 1e-3


@cases
def test_effects_need_no_table(case):
    model, X = case()
    model.marginals_ = explain.models.marginals_over(model, X)
    remembered, given = explain.effects(model), explain.effects(model, background=X)
    for a, b in zip(remembered.values, given.values):
        np.testing.assert_array_equal(a, b)


def test_the_model_keeps_the_marginals_of_its_training_table():
    X = numbers()
    model = CPRegressor(**FAST).fit(X, target(X))
    remembered, given = explain.effects(model), explain.effects(model, background=X)
    np.testing.assert_allclose(remembered.variance, given.variance, rtol=1e-12)
    weighted = CPRegressor(**FAST).fit(X, target(X), sample_weight=np.arange(len(X)) % 3)
    repeated = np.repeat(X, np.arange(len(X)) % 3, axis=0)
    np.testing.assert_allclose(
        explain.effects(weighted).variance,
        explain.effects(weighted, background=repeated).variance,
        rtol=1e-9,
    )


@cases
def test_an_effect_is_partial_dependence_minus_the_base(case):
    model, _ = case()
    found = explain.effects(model)
    for n in range(3):
        curve = explain.partial_dependence(model, n, [found.grid[n]])
        np.testing.assert_allclose(found.base + found.values[n], curve.values, atol=1e-9)


def test_the_effect_of_a_missing_value_is_that_of_a_row_without_it():
    model, X = two_classes()
    found = explain.effects(model, background=X)
    for n, missing in enumerate([np.nan, np.nan, None]):
        alone = explain.partial_dependence(model, n, [[missing]], background=X, pure=True)
        np.testing.assert_allclose(found.missing[n], alone.values[0], rtol=1e-9)


def test_the_density_of_few_values_is_their_share():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.random(1000) < 0.54, rng.choice([0.0, 100.0], 1000, p=[0.1, 0.9])])
    model = CPRegressor(**FAST).fit(X, X[:, 0])
    found = explain.effects(model)
    for n in range(2):
        counts, _ = np.histogram(X[:, n], found.edges[n])
        np.testing.assert_allclose(found.density[n], counts / 1000, atol=0.011)
        assert np.count_nonzero(found.density[n]) == 2


def test_probabilities_are_those_of_the_model():
    model, X = squared_labels()
    for values in explain.effects(model, scale="probability").values:
        np.testing.assert_allclose(values.sum(axis=1), 1.0)
        assert values.min() >= 0
    two = CPClassifier(loss="squared_error", **FAST).fit(X, np.arange(len(X)) % 2)
    text = explain.describe(two, X[:1])
    assert f"is {100 * two.predict_proba(X[:1])[0, 1]:.0f} %" in text


def test_class_weights_do_not_change_the_marginals():
    X = numbers()
    y = np.arange(len(X)) % 10 == 0
    plain, balanced = (CPClassifier(class_weight=w, **FAST).fit(X, y) for w in (None, "balanced"))
    for a, b in zip(plain.marginals_, balanced.marginals_):
        np.testing.assert_allclose(a.quantiles, b.quantiles)
        assert a.weight == pytest.approx(b.weight)
        np.testing.assert_allclose(a.mean[0], b.mean[0])


def test_constant_and_missing_columns_have_no_effect():
    model, X = odd_columns()
    found = explain.effects(model)
    np.testing.assert_allclose(found.variance[:2], 0.0, atol=1e-9)
    assert found.density[1].sum() == 0
    values = explain.shapley(model, X)
    np.testing.assert_allclose(values.values[:, :2], 0.0, atol=1e-9)
    # A rare category is the constant, as a missing value is.
    assert found.values[2][0] == pytest.approx(found.missing[2])
    raw = model.raw(X)
    np.testing.assert_allclose(values.base + values.values.sum(axis=1), raw, atol=1e-5)


def test_a_constant_model_has_shares_of_zero():
    X = numbers()
    model = CPRegressor(**FAST).fit(X, np.full(len(X), 7.0))
    assert explain.sobol(model).total.tolist() == [0.0, 0.0, 0.0]
    assert explain.in_words(model) == []


def test_a_function_that_is_zero_in_the_background_is_not_zero_elsewhere():
    X = mixed()
    model = CPRegressor(**FAST).fit(X, target(numbers()))
    model.tensor_.factors[1][0] = 0.0  # the constant, the only element of a missing value
    background = X[X["b"].isna()]
    grid = [[-1.0, 0.2, 2.0]]
    found = explain.partial_dependence(model, "b", grid, background=background)
    for i, b in enumerate(grid[0]):
        expected = model.raw(background.assign(b=b)).mean(axis=0)
        np.testing.assert_allclose(found.values[i], expected, atol=1e-5)
    values = explain.shapley(model, X[1:5], background=background)
    expected = model.raw(X[1:5])
    np.testing.assert_allclose(values.base + values.values.sum(axis=1), expected, atol=1e-5)


def test_densities_add_up_to_the_rows_that_are_known():
    X = mixed()
    model = CPRegressor(**FAST).fit(X, target(numbers()))
    found = explain.effects(model)
    for name, density in zip(X, found.density):
        assert density.sum() == pytest.approx(X[name].notna().mean())
    assert found.edges[2] is None
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 1, 4000), rng.normal(size=4000) ** 3])
    model = CPRegressor(**FAST).fit(X, X[:, 0])
    found = explain.effects(model)
    for n in range(2):
        counts, _ = np.histogram(X[:, n], found.edges[n])
        np.testing.assert_allclose(found.density[n], counts / 4000, atol=0.015)


def test_the_effect_of_a_column_of_few_values_is_shown_at_those():
    X = np.random.default_rng(0).integers(0, 6, (200, 2)).astype(float)
    model = CPRegressor(**FAST).fit(X, X[:, 0])
    assert explain.effects(model).grid[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_result_turns_into_a_frame():
    model, _ = one_output()
    frame = explain.effects(model).to_pandas()
    assert frame.columns.tolist() == ["column", "std", "share", "lowest", "highest"]
    pairs = explain.partial_dependence(model, ["x2", "x0"])
    frame = pairs.to_pandas()
    assert frame.columns.tolist() == ["x2", "x0", "prediction"]
    assert len(frame) == pairs.values.size
    np.testing.assert_array_equal(frame["prediction"], pairs.values.ravel())
    assert "Partial dependence of x2, x0" in repr(pairs)
    X = mixed().rename(columns={"a": "prediction"})
    model = CPRegressor(**FAST).fit(X, target(numbers()))
    frame = explain.partial_dependence(model, "prediction").to_pandas()
    assert frame.columns.tolist() == ["prediction", "prediction_"]
    model, _ = three_classes()
    frame = explain.partial_dependence(model, "a").to_pandas()
    assert frame.columns.tolist() == ["a", "prediction high", "prediction low", "prediction middle"]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("age", {}, "Unknown column 'age'. Choose from: a, b, c"),
        (7, {}, "There is no column 7; there are 3 columns"),
        (["a", "a"], {}, "named twice"),
        ([], {}, "one, two or three columns, got 0"),
        (["a", "b", "c", "a"], {}, "one, two or three columns, got 4"),
        ("a", {"scale": "odds"}, "scale must be 'raw', 'probability', 'response', got 'odds'"),
        ("a", {"grid": [["u"]]}, "is numeric; 'u' is not a number"),
        ("a", {"grid": [["1.5"]]}, "text is never taken for one"),
        ("a", {"grid": [[np.inf]]}, "cannot be infinite"),
        ("a", {"grid": []}, "without points"),
        (["a", "b"], {"grid": [[1.0]]}, "one array per column: 2, got 1"),
        ("a", {"grid": [[]]}, "without points"),
        (["a", "b"], {"grid": [range(9000), range(9000)]}, "81,000,000 points"),
        ("a", {"pure": True, "scale": "response"}, "a difference"),
        ("a", {"scale": "probability"}, "A CPRegressor predicts numbers"),
        ("a", {"background": mixed()[:0]}, "no rows|0 sample"),
    ],
)
def test_invalid_requests_are_refused(columns, options, words):
    X = mixed()
    model = CPRegressor(**FAST).fit(X, target(numbers()))
    with pytest.raises(ValueError, match=words):
        explain.partial_dependence(model, columns, **options)


def test_a_model_from_an_older_file_asks_for_a_table():
    model, X = one_output()
    del model.marginals_
    with pytest.raises(ValueError, match="background=X_train"):
        explain.effects(model)
    assert explain.effects(model, background=X).columns == ["x0", "x1", "x2"]


def test_marginals_that_are_not_finite_are_refused():
    model, _ = one_output()
    broken = replace(model.marginals_[0], mean=np.full_like(model.marginals_[0].mean, np.inf))
    model.marginals_ = [broken, *model.marginals_[1:]]
    with pytest.raises(ValueError, match="beyond the range of float64"):
        explain.effects(model)
