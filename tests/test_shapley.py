"""Laws of Shapley values: the closed form equals the sum over all subsets."""

import sys
from itertools import combinations
from math import factorial

import needs
import numpy as np
import pandas as pd
import pytest
from explained import (
    FAST,
    cases,
    merged_additive,
    mixed_columns,
    numbers,
    one_column,
    one_output,
    relative,
    three_classes,
)

from polyadic import CPClassifier, CPRegressor, explain
from polyadic.data.marginals import design, full_core


def functions(model, coded):
    """Return g_n : (n, R) and u_n : (n, L) of every column, in double precision."""
    out = []
    for n, x in enumerate(coded):
        phi = design(model.maps_[n], x)
        core = full_core(model.maps_[n], model.tensor_.factors[n])
        extra = np.zeros((len(x), model.tensor_.n_outputs))
        if model.tensor_.additive is not None:
            extra = phi @ full_core(model.maps_[n], model.tensor_.additive[n])
        out.append((phi @ core, extra))
    return out


def combine(model, parts):
    """Return f from one g : (k, R) and one u : (k, L) per column."""
    product = np.prod([g for g, _ in parts], axis=0) @ model.tensor_.weights.astype(float)
    return relative(model, model.tensor_.intercept + sum(u for _, u in parts) + product)


def value_functions(model, X, background):
    """Return v(S) : (n, L) for every set S of columns; background None: the training marginals."""
    own = functions(model, model.columns_.code(X))
    n_rows, n_columns = len(own[0][0]), len(own)
    if background is None:
        other = []
        for n, marginal in enumerate(model.marginals_):
            g = marginal.mean @ full_core(model.maps_[n], model.tensor_.factors[n])
            u = np.zeros(model.tensor_.n_outputs)
            if model.tensor_.additive is not None:
                u = marginal.mean @ full_core(model.maps_[n], model.tensor_.additive[n])
            other.append((g[None], u[None]))
    else:
        other = functions(model, model.columns_.code(background))
    out = {}
    for size in range(n_columns + 1):
        for chosen in combinations(range(n_columns), size):
            total = 0.0
            for b in range(len(other[0][0])):
                parts = [
                    own[n] if n in chosen else tuple(np.tile(p[b], (n_rows, 1)) for p in other[n])
                    for n in range(n_columns)
                ]
                total = total + combine(model, parts)
            out[chosen] = total / len(other[0][0])
    return out


def joined(chosen, *more):
    return tuple(sorted((*chosen, *more)))


def brute_force(v, n_columns):
    """Return the Shapley values (n, N, L) by their definition."""
    out = []
    for i in range(n_columns):
        total = 0.0
        for chosen in v:
            if i not in chosen:
                size = len(chosen)
                weight = factorial(size) * factorial(n_columns - size - 1) / factorial(n_columns)
                total = total + weight * (v[joined(chosen, i)] - v[chosen])
        out.append(total)
    return np.stack(out, axis=1)


def brute_force_pair(v, n_columns, i, j):
    """Return the Shapley interaction index (n, L) of a pair by its definition."""
    total = 0.0
    for chosen in v:
        if i not in chosen and j not in chosen:
            size = len(chosen)
            weight = factorial(size) * factorial(n_columns - size - 2) / factorial(n_columns - 1)
            change = (
                v[joined(chosen, i, j)] - v[joined(chosen, i)] - v[joined(chosen, j)] + v[chosen]
            )
            total = total + weight * change
    return total


def close(found, expected):
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * scale)


@cases
@pytest.mark.parametrize("given", [False, True], ids=["marginals", "rows"])
def test_values_are_the_sum_over_all_subsets(case, given):
    model, X = case()
    rows, background = X[:7], X[3:9] if given else None
    v = value_functions(model, rows, background)
    found = explain.shapley(model, rows, background)
    close(found.values, brute_force(v, 3))
    close(found.base, v[()][0])


@cases
@pytest.mark.parametrize("given", [False, True], ids=["marginals", "rows"])
def test_pairs_are_the_sum_over_all_subsets(case, given):
    model, X = case()
    rows, background = X[:4], X[3:6] if given else None
    v = value_functions(model, rows, background)
    found = explain.shapley_interactions(model, rows, background).values
    for i, j in combinations(range(3), 2):
        expected = brute_force_pair(v, 3, i, j) / 2
        close(found[:, i, j], expected)
        close(found[:, j, i], expected)


@pytest.mark.parametrize("n_columns", [1, 2, 7, 10])
def test_values_are_exact_for_any_number_of_columns(n_columns):
    rng = np.random.default_rng(n_columns)
    X = rng.normal(size=(50, n_columns))
    y = X[:, 0] + np.prod(np.tanh(X) + 0.5, axis=1)
    model = CPRegressor(rank=5, n_members=2, max_iter=5, random_state=0).fit(X, y)
    v = value_functions(model, X[:3], None)
    close(explain.shapley(model, X[:3]).values, brute_force(v, n_columns))


@pytest.mark.parametrize("case", [three_classes, mixed_columns, merged_additive])
def test_sets_and_integrals_agree(case, monkeypatch):
    model, X = case()
    by_sets = explain.shapley(model, X[:9], background=X).values
    monkeypatch.setattr("polyadic.explain.cp._MOST_SET_COLUMNS", 0)
    by_integrals = explain.shapley(model, X[:9], background=X).values
    np.testing.assert_allclose(by_sets, by_integrals, atol=1e-12 * np.abs(by_integrals).max())


def test_blocks_of_the_background_add_up(monkeypatch):
    model, X = mixed_columns()
    for columns in (12, 0):  # by sets, by integrals
        monkeypatch.setattr("polyadic.explain.cp._MOST_SET_COLUMNS", columns)
        whole = explain.shapley(model, X[:9], background=X)
        curve = explain.partial_dependence(model, "a", background=X).values
        with monkeypatch.context() as small:
            small.setattr("polyadic.explain.cp._BLOCK", 100)
            small.setattr("polyadic.explain.cp._BACKGROUND_ROWS", 7)
            found = explain.shapley(model, X[:9], background=X)
            again = explain.partial_dependence(model, "a", background=X).values
        np.testing.assert_allclose(found.values, whole.values, atol=1e-12)
        np.testing.assert_allclose(found.base, whole.base, atol=1e-12)
        np.testing.assert_allclose(again, curve, atol=1e-12)


@cases
def test_base_and_values_add_up_to_the_prediction(case):
    model, X = case()
    for background in (None, X[:5]):
        found = explain.shapley(model, X, background)
        raw = relative(model, model.raw(X))
        scale = max(1.0, np.abs(raw).max())
        # The prediction is summed in single precision, of terms that cancel in part. Seen over 20
        # seeds: 1.4e-6 for two classes, 0.4e-6 for numbers.
        np.testing.assert_allclose(found.base + found.values.sum(axis=1), raw, atol=1e-5 * scale)


@cases
def test_rows_of_interactions_add_up_to_the_values(case):
    model, X = case()
    pairs, single = explain.shapley_interactions(model, X), explain.shapley(model, X)
    np.testing.assert_allclose(pairs.values.sum(axis=2), single.values, atol=1e-12)
    np.testing.assert_allclose(pairs.values, np.swapaxes(pairs.values, 1, 2), atol=0)


def test_threads_and_chunks_change_no_bit(monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 4))
    model = CPRegressor(rank=4, max_iter=2, random_state=0).fit(X, X[:, 0] * X[:, 1])
    whole = explain.shapley(model, X).values
    for n_jobs in (1, 2):
        model.set_params(n_jobs=n_jobs)
        np.testing.assert_array_equal(explain.shapley(model, X).values, whole)
    monkeypatch.setattr("polyadic.explain.cp._CHUNK", 7)
    np.testing.assert_array_equal(explain.shapley(model, X).values, whole)


def test_a_column_without_effect_has_a_value_of_zero():
    model, X = one_output()
    for n in (1, 2):
        model.tensor_.factors[n][1:] = 0.0
    found = explain.shapley(model, X).values
    np.testing.assert_allclose(found[:, 1:], 0.0, atol=1e-12)


def test_two_hundred_columns_stay_exact():
    X = np.random.default_rng(0).normal(size=(60, 200))
    model = CPRegressor(rank=4, n_members=1, max_iter=2, random_state=0).fit(X, X[:, 0])
    found = explain.shapley(model, X[:4])
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), model.raw(X[:4]), atol=1e-5)


@pytest.mark.parametrize("case", [one_output, three_classes, mixed_columns])
def test_values_agree_with_the_exact_explainer_of_shap(case):
    shap = needs.package("shap")
    model, X = case()
    names = model.columns_.names
    frame = pd.DataFrame(X, columns=names) if isinstance(X, np.ndarray) else X
    # shap takes numbers only: it gets codes, and `predict` turns them back into values.
    codes = pd.DataFrame({n: pd.factorize(frame[n])[0] for n in frame})
    values = {n: pd.factorize(frame[n])[1] for n in frame}

    def predict(rows):
        table = {}
        for i, n in enumerate(names):
            at = rows[:, i].astype(int)
            own = pd.Series(values[n].take(np.maximum(at, 0)))
            own[at < 0] = None if frame[n].dtype == "category" else np.nan
            table[n] = own.astype(frame[n].dtype)
        rows = pd.DataFrame(table)
        found = model.raw(rows if isinstance(X, pd.DataFrame) else rows.to_numpy())
        found = relative(model, found)
        return found[:, 0] if found.shape[1] == 1 else found

    masker = shap.maskers.Independent(codes[:20].to_numpy(float), max_samples=20)
    explainer = shap.explainers.ExactExplainer(predict, masker)
    expected = explainer(codes[:6].to_numpy(float)).values
    table = frame if isinstance(X, pd.DataFrame) else X
    found = explain.shapley(model, table[:6], background=table[:20]).values
    expected = expected[:, :, None] if expected.ndim == 2 else expected
    np.testing.assert_allclose(found, expected, atol=2e-6 * max(1.0, np.abs(expected).max()))


def test_a_result_turns_into_an_explanation_of_shap():
    shap = needs.package("shap")
    model, X = mixed_columns()
    found = explain.shapley(model, X)
    converted = found.to_shap()
    assert isinstance(converted, shap.Explanation)
    np.testing.assert_array_equal(converted.values, found.values[:, :, 0])
    np.testing.assert_array_equal(converted.base_values, np.full(len(X), found.base[0]))
    assert converted.feature_names == ["a", "b", "c"]
    plt = needs.package("matplotlib.pyplot")
    for plot in (shap.plots.waterfall, shap.plots.scatter):
        plot(converted[0] if plot is shap.plots.waterfall else converted[:, "c"], show=False)
        plt.close("all")
    model, X = three_classes()
    converted = explain.shapley(model, X).to_shap()
    assert converted.values.shape == (len(X), 3, 3)
    assert converted.output_names == ["high", "low", "middle"]


def test_results_print_values_base_and_size():
    model, X = mixed_columns()
    one = repr(explain.shapley(model, X[1:2]))
    assert one.splitlines()[0].split() == ["column", "value", "adds"]
    assert one.splitlines()[-1].startswith("Base ")
    many = explain.shapley(model, X)
    assert f"{len(X)} rows" in repr(many)
    assert many.table()["mean |value|"] == sorted(many.importance, reverse=True)
    assert len(many) == len(X)
    assert "3 columns, 1 outputs" in repr(explain.shapley_interactions(model, X[:2]))


def test_one_column_has_the_whole_difference_from_the_base():
    model, X = one_column()
    found = explain.shapley(model, X)
    np.testing.assert_allclose(found.base + found.values[:, 0], model.raw(X), atol=1e-6)
    pairs = explain.shapley_interactions(model, X)
    np.testing.assert_allclose(pairs.values[:, 0, 0], found.values[:, 0], atol=1e-12)


def test_what_cannot_be_explained_is_refused(monkeypatch):
    model, X = one_output()
    with pytest.raises(ValueError, match="2 features"):
        explain.shapley(model, X[:, :2])
    with pytest.raises(ValueError, match=r"no rows|0 sample"):
        explain.shapley(model, X, background=X[:0])
    # The package's `shapley` is the function; the module of that name is behind it.
    monkeypatch.setattr(sys.modules["polyadic.explain.shapley"], "_MOST_NUMBERS", 10)
    with pytest.raises(ValueError, match="Explain fewer rows at a time"):
        explain.shapley(model, X)


# ---- one prediction in words --------------------------------------------------------------------


def test_words_give_the_prediction_and_its_largest_parts():
    X = pd.DataFrame(numbers(), columns=["a", "b", "c"])
    model = CPRegressor(random_state=0, n_members=1).fit(X, 5 * X["a"] - 2 * X["b"])
    text = explain.describe(model, {"a": 2.0, "b": -1.0, "c": 0.2}, top=2)
    opening, rest = text.split("\n")
    assert opening.startswith("The prediction is 1")
    assert "above the average of" in opening
    assert rest.startswith("a = 2 adds ")
    assert "b = -1 adds " in rest
    assert rest.endswith("The other column changes almost nothing.")
    same = explain.describe(model, X.assign(a=2.0, b=-1.0, c=0.2)[:1], top=2)
    assert same == text
    assert explain.describe(model, pd.Series({"a": 2.0, "b": -1.0, "c": 0.2}), top=2) == text


def test_words_give_the_probability_of_a_class():
    X = numbers()
    model = CPClassifier(random_state=0).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    text = explain.describe(model, X[0])
    assert text.startswith("The probability of 'yes' is ")
    model, X = three_classes()
    row = X[:1]
    best = str(model.predict(row)[0])
    text = explain.describe(model, row)
    assert text.startswith(f"The probability of {best!r} is ")
    percent = 100 * model.predict_proba(row).max()
    assert f"is {percent:.0f} %" in text


def test_words_name_what_is_missing_and_counts():
    model, X = mixed_columns()
    assert "b, which is missing," in explain.describe(model, X[:1])
    counts = CPRegressor(loss="poisson", **FAST).fit(numbers(), np.abs(numbers()[:, 0]))
    assert "On the raw scale:" in explain.describe(counts, numbers()[0])


def test_numbers_of_any_size_can_be_read():
    X = numbers()
    tiny = CPRegressor(**FAST | {"max_iter": 20}).fit(X, 1e-12 * X[:, 0])
    assert "e-1" in explain.describe(tiny, X[0])
    assert "x0 = 57,683" in explain.describe(tiny, np.array([57683.4, 0.0, 0.0]))


def test_an_invalid_row_is_refused():
    model, X = mixed_columns()
    with pytest.raises(ValueError, match="top must be a whole number of at least 1, got -1"):
        explain.describe(model, X[:1], top=-1)
    assert ", which is missing," in explain.describe(model, {"a": pd.NA, "b": 1.0, "c": "u"})
    with pytest.raises(ValueError, match="no value for the column 'c'"):
        explain.describe(model, {"a": 1.0, "b": 2.0})
    with pytest.raises(ValueError, match="One row is needed, got 2"):
        explain.describe(model, X[:2])
