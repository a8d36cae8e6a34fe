"""Laws of the scale of predictions: steps of a row that add up, mean probabilities."""

import hypothesis.strategies as st
import needs
import numpy as np
import pytest
from enumerated import enumerate_rows, exact_raw
from explained import (
    FAST,
    mixed,
    mixed_columns,
    numbers,
    squared_labels,
    target,
    three_classes,
    two_classes,
)
from hypothesis import given
from hypothesis.extra.numpy import arrays
from many_classes import digits, network, of_lightgbm, with_trees
from scipy.special import softmax
from sklearn.inspection import partial_dependence as brute_force

from polyadic import CPClassifier, CPRegressor, explain, plots
from polyadic.explain import means, scales
from polyadic.explain.listing import number


def counts():
    X = numbers()
    return CPRegressor(loss="poisson", **FAST).fit(X, np.abs(target(X)).round()), X


def two_squared():
    X = mixed()
    return CPClassifier(loss="squared_error", **FAST).fit(X, target(numbers()) > 0), X


def predicted(model, X):
    """Return the predictions after the link, (n, L)."""
    return model.response(exact_raw(model, X) if hasattr(model, "weights_") else model.raw(X))


# ---- the steps of a row --------------------------------------------------------------------------

STEPPED = [
    two_classes,
    two_squared,
    three_classes,
    with_trees,
    of_lightgbm,
    network,
    digits,
    counts,
    mixed_columns,
]


@pytest.mark.parametrize("case", STEPPED, ids=lambda case: case.__name__)
@pytest.mark.parametrize("given_rows", [False, True])
def test_steps_add_up_to_the_prediction(case, given_rows):
    model, X = case()
    background = X[:6] if given_rows else None
    found = explain.shapley(model, X[:20], background, scale="response")
    raw = explain.shapley(model, X[:20], background)
    reached = found.base + found.values.sum(axis=1)
    wanted = model.response(raw.base + raw.values.sum(axis=1))
    np.testing.assert_allclose(reached, wanted, rtol=1e-9, atol=1e-12)
    # Models predict in single precision.
    np.testing.assert_allclose(reached, model.response(model.raw(X[:20])), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.base, model.response(raw.base[None])[0], rtol=1e-12)


@pytest.mark.parametrize("case", [two_classes, two_squared, counts, mixed_columns])
def test_steps_of_one_output_are_shapley_values_times_one_ratio_per_row(case):
    model, X = case()
    steps = explain.shapley(model, X, scale="response").values[:, :, 0]
    values = explain.shapley(model, X).values[:, :, 0]
    largest = np.argmax(np.abs(values), axis=1)
    rows = np.arange(len(X))
    ratio = steps[rows, largest] / values[rows, largest]
    assert ratio.min() >= 0
    np.testing.assert_allclose(steps, values * ratio[:, None], rtol=1e-6, atol=1e-12)


scores = arrays(float, 4, elements=st.floats(-60, 60))
several = arrays(float, (3, 4), elements=st.floats(-30, 30))


class OfSoftmax:
    """What `steps_of` asks of a model of four classes."""

    classes_, tensor_, loss_ = np.arange(4), np.zeros(0), None

    def __init__(self):
        self.tensor_ = type("Tensor", (), {"n_outputs": 4})
        self.loss_ = type("Loss", (), {"link_name": "softmax"})

    def response(self, raw):
        return softmax(raw, axis=1)


@given(scores, several)
def test_steps_of_any_scores_add_up_over_columns_and_classes(base, values):
    steps = scales.steps_of(OfSoftmax(), base, values[None])[0]
    change = softmax(base + values.sum(axis=0)) - softmax(base)
    size = 1e-12 * (1.0 + np.abs(values).max())
    np.testing.assert_allclose(steps.sum(axis=0), change, rtol=0, atol=size)
    np.testing.assert_allclose(steps.sum(axis=1), 0.0, atol=size)


@given(scores, several, st.floats(-50, 50))
def test_steps_depend_on_no_order_and_on_no_constant(base, values, constant):
    steps = scales.steps_of(OfSoftmax(), base, values[None])[0]
    turned = scales.steps_of(OfSoftmax(), base, values[None, ::-1])[0]
    size = 1e-11 * (1.0 + np.abs(values).max())
    np.testing.assert_allclose(turned[::-1], steps, rtol=0, atol=size)
    moved = scales.steps_of(OfSoftmax(), base + constant, values[None] + constant)[0]
    np.testing.assert_allclose(moved, steps, rtol=0, atol=100 * size)


@given(arrays(float, 3, elements=st.floats(-20, 20)), st.floats(-20, 20))
def test_two_scores_of_the_softmax_have_the_steps_of_the_ratio(values, base):
    def logistic(raw):
        return 1.0 / (1.0 + np.exp(-raw))

    raw = np.array([[base + values.sum()]])
    ratio = scales._ratio(logistic, np.array([base]), raw)[0, 0]
    both = np.zeros((1, 3, 4))
    both[0, :, 1] = values
    far = np.array([0.0, base, -400.0, -400.0])  # two classes of no probability
    steps = scales.steps_of(OfSoftmax(), far, both)[0, :, 1]
    np.testing.assert_allclose(steps, ratio * values, rtol=1e-6, atol=1e-12)


def test_a_column_that_does_nothing_has_a_step_of_zero():
    values = np.zeros((1, 3, 4))
    values[0, 0] = [3.0, -1.0, 0.5, 0.0]
    values[0, 2] = [-1.0, 2.0, 0.0, 0.0]
    steps = scales.steps_of(OfSoftmax(), np.arange(4.0), values)[0]
    assert not steps[1].any()
    assert steps[0].any()


def test_a_waterfall_of_probabilities_ends_at_the_probability():
    needs.package("matplotlib")
    import matplotlib.pyplot as plt

    model, X = digits()
    found, share = explain.shapley(model, X, scale="probability"), model.predict_proba(X)
    for row in (0, 7, 30):
        ax = plots.waterfall(found, row=row, top=5)
        last = ax.patches[-1]
        assert last.get_x() + last.get_width() == pytest.approx(share[row].max(), rel=1e-4)
        assert ax.get_xlabel() == f"probability of {model.predict(X[row : row + 1])[0]}"
    assert ", probability 0." in str(explain.shapley(model, X[:1], scale="probability"))
    assert "As probabilities." in str(explain.shapley(model, X[:9], scale="probability"))
    plt.close("all")


def test_scales_that_a_model_lacks_are_refused():
    model, X = mixed_columns()
    with pytest.raises(ValueError, match="A CPRegressor predicts numbers"):
        explain.shapley(model, X, scale="probability")
    with pytest.raises(ValueError, match="scale must be 'raw', 'probability', 'response', got 'p'"):
        explain.effects(model, scale="p")
    model, X = squared_labels()
    with pytest.raises(ValueError, match="estimates of 2 p - 1"):
        explain.shapley(model, X, scale="probability")


# ---- means after the link ------------------------------------------------------------------------

AVERAGED = [two_classes, three_classes, squared_labels, with_trees, of_lightgbm, network, counts]
averaged = pytest.mark.parametrize("case", AVERAGED, ids=lambda case: case.__name__)


def fixed(X, n, point):
    """Return the table with one value in column n."""
    if not hasattr(X, "iloc"):
        out = X.copy()
        out[:, n] = point
        return out
    column = X.iloc[:, n]
    held = np.full(len(X), point, dtype=object if column.dtype == "category" else float)
    return X.assign(**{X.columns[n]: type(column)(held, index=X.index).astype(column.dtype)})


@averaged
def test_effects_over_rows_are_their_mean_predictions(case):
    model, X = case()
    rows = X[:25]
    found = explain.effects(model, rows, scale="response")
    close = {"rtol": 2e-5, "atol": 2e-6}  # networks predict in single precision
    np.testing.assert_allclose(found.base, predicted(model, rows).mean(axis=0), **close)
    for n, (grid, values) in enumerate(zip(found.grid, found.values)):
        for point, value in list(zip(grid, values))[:: max(1, len(grid) // 5)]:
            expected = predicted(model, fixed(rows, n, point)).mean(axis=0)
            np.testing.assert_allclose(value, expected, **close)
        none = None if found.ends[n] is None else np.nan
        expected = predicted(model, fixed(rows, n, none)).mean(axis=0)
        np.testing.assert_allclose(found.missing[n], expected, **close)
    assert (found.n_rows, found.error) == (25, 0.0)


@averaged
def test_effects_over_drawn_rows_are_near_the_mean_over_all_combinations(case):
    model, X = case()
    rows, share = enumerate_rows(X)
    found = explain.effects(model, scale="response")
    assert found.n_rows == 2000
    # The percentiles of these columns of few values are within half a per cent of their shares.
    slack = 5 * found.error + 0.02 * np.ptp(predicted(model, rows))
    np.testing.assert_allclose(found.base, share @ predicted(model, rows), rtol=0, atol=slack)
    for n, (grid, values) in enumerate(zip(found.grid, found.values)):
        for point, value in list(zip(grid, values))[:: max(1, len(grid) // 3)]:
            expected = share @ predicted(model, fixed(rows, n, point))
            np.testing.assert_allclose(value, expected, rtol=0, atol=slack)


def test_the_standard_error_is_that_of_other_draws(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=400) > 0
    model = CPClassifier(n_members=1, rank=8, max_iter=40, random_state=0).fit(X, y)
    found = []
    make = np.random.default_rng
    for seed in range(12):
        monkeypatch.setattr(means.np.random, "default_rng", lambda _, s=seed: make(s))
        found.append(explain.effects(model, scale="probability"))
    each = np.array([np.concatenate(own.values).ravel() for own in found])
    spread = each.std(axis=0, ddof=1)
    told = np.mean([own.error for own in found])
    # `error` is the largest over all points; a standard error from ten cubes has 9 degrees of
    # freedom, so it is right within a factor of two.
    assert 0.3 * told < spread.max() < 2.0 * told
    assert told < 0.01


def test_partial_dependence_on_probabilities_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = np.digitize(X[:, 0] * X[:, 1] + X[:, 2], [-0.5, 0.5])
    model = CPClassifier(**FAST | {"max_iter": 20}).fit(X, y)
    expected = brute_force(
        model, X, [1], grid_resolution=9, method="brute", response_method="predict_proba"
    )
    grid = expected["grid_values"][0]
    found = explain.partial_dependence(model, 1, [grid], background=X, scale="probability")
    np.testing.assert_allclose(found.values.T, expected["average"], atol=2e-6)
    assert "Mean probability over 150 rows." in repr(found)
    # Two columns in another order than that of the table, and more points than fit in one block.
    pair = explain.partial_dependence(model, [2, 0], background=X[:40], scale="probability")
    for i, j in ((0, 0), (7, 30), (38, 12)):
        moved = X[:40].copy()
        moved[:, 2], moved[:, 0] = pair.grid[0][i], pair.grid[1][j]
        wanted = model.predict_proba(moved).mean(axis=0)
        np.testing.assert_allclose(pair.values[i, j], wanted, atol=2e-6)
    assert pair.values.shape[0] * pair.values.shape[1] > means._POINTS


@pytest.mark.parametrize("case", [three_classes, with_trees, digits])
def test_mean_probabilities_of_all_classes_add_up_to_one(case):
    model, _ = case()
    found = explain.effects(model, scale="probability")
    for values in [*found.values, *found.missing, found.base]:
        np.testing.assert_allclose(values.sum(axis=-1), 1.0, rtol=1e-9)
        assert values.min() >= 0
    assert f"2,000 drawn rows, standard error at most {found.error:.2g}." in str(found)
    again = explain.effects(model, scale="probability")
    np.testing.assert_array_equal(again.values[0], found.values[0])


def test_drawn_values_have_the_marginal_of_their_column():
    model, X = three_classes()
    level = (np.arange(1000) + 0.5) / 1000
    for column, marginal in zip(model.columns_.columns, model.marginals_):
        drawn = means.draw(column, marginal, level)
        if column.categories is not None:
            shares = [np.mean(drawn == k) for k in range(len(column.categories))]
            np.testing.assert_allclose(shares, marginal.shares, atol=2e-3)
            assert np.mean(drawn == -1) == pytest.approx(marginal.missing, abs=2e-3)
        else:
            assert np.mean(np.isnan(drawn)) == pytest.approx(marginal.missing, abs=2e-3)
            known = X[column.name].dropna()
            for value in known.unique():
                assert np.mean(drawn == value) == pytest.approx(
                    np.mean(X[column.name] == value), abs=0.011
                )


# ---- what is printed -----------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_standard_deviations_are_printed_in_units_of_the_target(unit):
    X = numbers()
    model = CPRegressor(**FAST | {"max_iter": 20}).fit(X, unit * target(X))
    shares, terms = explain.sobol(model), explain.terms(model, top=None)
    text = f"Standard deviation {number(np.sqrt(shares.variance), 3)};"
    assert text in str(shares)
    assert text in str(terms)
    assert terms.table()["std"] == [np.sqrt(row.variance) for row in terms.rows]
    assert np.sum(np.square(terms.table()["std"])) == pytest.approx(shares.variance)
    found = explain.effects(model)
    np.testing.assert_allclose(sorted(found.table()["std"]), np.sort(np.sqrt(found.variance)))
    spread = np.std(model.predict(X))
    assert 0.2 * spread < np.sqrt(shares.variance) < 5 * spread
    for result in (shares, terms, found, explain.compare(model, model)):
        assert "variance" not in str(result).splitlines()[0]
