"""The linear model in a mixture: the same as other libraries', and exact on any knots."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from polyadic import CPClassifier, CPRegressor, losses, maps
from polyadic.data.features import encode
from polyadic.data.rows import CodedRows
from polyadic.training import linear, members
from polyadic.training.linear import Straight

LOSSES = {
    "numbers": losses.SquaredError(),
    "two classes": losses.Logistic(),
    "three classes": losses.Softmax(3),
}


def table(task="numbers", n=200, seed=0):
    """Return three numbers and a category, and a target."""
    rng = np.random.default_rng(seed)
    numbers = [rng.normal(size=n), rng.exponential(size=n), rng.integers(0, 5, n).astype(float)]
    columns = [*numbers, rng.integers(0, 4, n)]
    y = numbers[0] - 0.5 * numbers[1] + 0.3 * rng.normal(size=n) + 0.5 * (columns[3] == 2)
    if task != "numbers":
        limits = [0.0] if task == "two classes" else [-0.5, 0.5]
        y = np.digitize(y, limits).astype(float)
    family = [*(maps.Hat(9).fit(x) for x in numbers), maps.OneHot().fit(columns[3])]
    return family, CodedRows(columns, y[:, None], np.ones(n))


def solved(task, strength, rows, family):
    loss = LOSSES[task]
    intercept = np.broadcast_to(loss.baseline(rows.y, rows.weight), 3 if "three" in task else 1)
    view = Straight.learn(family, rows)
    design = view.design(rows.columns)
    [model] = linear.solve(loss, design, rows, intercept.astype(float), (strength,))
    return view, model, intercept


@pytest.mark.parametrize("task", LOSSES)
@pytest.mark.parametrize("strength", [1.0, 30.0])
def test_it_is_the_linear_model_of_scikit_learn(task, strength):
    family, rows = table(task)
    view, model, intercept = solved(task, strength, rows, family)
    X = np.column_stack([StandardScaler().fit_transform(np.column_stack(rows.columns[:3]))])
    X = np.hstack([X, np.eye(4)[rows.columns[3]]])
    raw = model.predict(view.design(rows.columns), intercept)
    if task == "numbers":
        other = Ridge(0.5 * strength).fit(X, rows.y[:, 0])
        expected = other.predict(X)[:, None]
    else:
        other = LogisticRegression(C=1 / strength, max_iter=5000, tol=1e-8).fit(X, rows.y[:, 0])
        expected = other.decision_function(X).reshape(len(X), -1)
    if task == "three classes":  # scores are defined up to a constant per row
        raw = raw - raw.mean(axis=1, keepdims=True)
        expected = expected - expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(raw, expected, atol=2e-3)


@pytest.mark.parametrize("task", LOSSES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=10, deadline=None)
def test_its_cores_predict_the_same_on_any_knots_also_of_missing_and_new_values(task, seed):
    family, rows = table(task)
    view, model, intercept = solved(task, 1.0, rows, family)
    rng = np.random.default_rng(seed)
    jittered = [m.jitter(rng) for m in family]
    columns = [column[:20].copy() for column in rows.columns]
    columns[0][:3] = [np.nan, -1e9, 1e9]  # beyond the ends, hats are constant
    columns[3][:2] = [-1, 7]  # a missing and an unseen category
    cores = view.cores(jittered, model, np.asarray(intercept, dtype=float))
    expected = model.predict(view.design(columns), intercept)
    np.testing.assert_allclose(
        cores.contract(encode(jittered, columns)), expected, atol=1e-4 * np.abs(expected).max()
    )


@pytest.mark.parametrize("task", LOSSES)
def test_a_weight_of_two_is_the_row_twice(task):
    family, rows = table(task)
    weight = np.where(np.arange(200) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(200), weight.astype(int))
    weighted = CodedRows(rows.columns, rows.y, weight)
    _, one, _ = solved(task, 1.0, weighted, family)
    _, two, _ = solved(task, 1.0, rows.take(twice), family)
    np.testing.assert_allclose(one.slopes, two.slopes, atol=2e-3)


def test_other_maps_and_too_many_slopes_are_left_to_the_other_strategies():
    x = np.arange(10.0)
    hat, spline = maps.Hat(4).fit(x), maps.BSpline().fit(x)
    many = maps.OneHot(min_count=1).fit(np.arange(2000))
    assert linear.possible([hat, hat], 100, 1)
    assert not linear.possible([hat, spline], 100, 1)
    assert linear.possible([hat, many], 100, 1)
    assert not linear.possible([hat, many], 100, 2)
    assert not linear.possible([hat, hat], 10**8, 1)


def test_columns_without_a_single_known_value_do_no_harm():
    family, rows = table()
    nothing = np.full(200, np.nan)
    none = np.full(200, -1)
    rows = CodedRows([*rows.columns, nothing, none], rows.y, rows.weight)
    family = [*family, maps.Hat().fit(nothing), maps.OneHot().fit(none)]
    view, model, intercept = solved("numbers", 1.0, rows, family)
    assert np.all(np.isfinite(model.slopes))
    assert np.all(
        np.isfinite(view.cores(family, model, intercept).contract(encode(family, rows.columns)))
    )


@pytest.mark.parametrize("total", [1.0, 1e16])
def test_weights_of_any_size_can_be_solved(total):
    family, rows = table()
    rows = CodedRows(rows.columns, rows.y, np.full(200, total / 200))
    _, model, _ = solved("numbers", 0.1, rows, family)
    assert np.all(np.isfinite(model.slopes))


def test_a_constant_column_has_no_slope_whatever_its_value():
    family, rows = table()
    constant = np.full(200, 0.1)
    constant[:50] = np.nan
    rows = CodedRows([*rows.columns, constant], rows.y, rows.weight)
    view = Straight.learn([*family, maps.Hat().fit(constant)], rows)
    assert np.all(view.design(rows.columns)[:, -1] == 0)


def test_a_deadline_leaves_the_first_strengths():
    family, rows = table("two classes")
    design = Straight.learn(family, rows).design(rows.columns)
    args = (losses.Logistic(), design, rows, np.zeros(1), (10.0, 1.0, 0.1))
    assert len(linear.solve(*args)) == 3
    assert len(linear.solve(*args, out_of_time=lambda: True)) == 1


def separable(n=300, n_columns=12, seed=0):
    """Return classes that a straight line through many noisy columns tells apart."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_columns))
    raw = 2.0 * X @ rng.normal(size=n_columns) / np.sqrt(n_columns)
    return X, raw, (rng.random(n) < 1 / (1 + np.exp(-raw))).astype(int)


def test_a_linear_table_is_hardly_worse_than_with_logistic_regression():
    X, _, y = separable(2300)
    model = CPClassifier(random_state=0).fit(X[:300], y[:300])
    other = LogisticRegression().fit(X[:300], y[:300])
    mine, theirs = (log_loss(y[300:], m.predict_proba(X[300:])[:, 1]) for m in (model, other))
    assert "linear 0.00" not in model.plan_["shares"]
    assert mine < 1.1 * theirs


def test_the_share_of_the_linear_model_is_nil_where_it_is_far_off():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    model = CPRegressor(random_state=0).fit(X, X[:, 0] * X[:, 1])
    assert "linear 0.00" in model.plan_["shares"]


def test_after_the_deadline_no_linear_model_is_started():
    fits = SimpleNamespace(plan=None, rows=None, out_of_time=True)
    training = linear.LinearTraining(fits)
    training.train()
    assert training.groups() == []


def test_held_out_rows_of_the_user_choose_the_share(monkeypatch):
    X, _, y = separable(600)
    frame = pd.DataFrame(X).add_prefix("x")
    seen = []
    find = members.mixing.find_shares
    monkeypatch.setattr(
        members.mixing, "find_shares", lambda *args: seen.append(args[3]) or find(*args)
    )
    CPClassifier(random_state=0).fit(frame[:400], y[:400], X_val=frame[400:], y_val=y[400:])
    assert seen[0].shape == (4, 200, 1)  # four strategies; every row once
    assert np.all(np.isfinite(seen[0]))


@pytest.mark.parametrize("size", [1e-310, 1e155, 1.7e308])
def test_columns_near_the_ends_of_the_range_of_numbers(size):
    """Squares and differences of such numbers would overflow, or be zero."""
    x = np.random.default_rng(0).uniform(-1, 1, 60)
    ordinary, extreme = (
        Straight.learn(
            [maps.Hat(9).fit(own)], CodedRows([own], np.zeros((60, 1)), np.ones(60))
        ).design([own])
        for own in (x, x * size)
    )
    np.testing.assert_allclose(extreme, ordinary, rtol=1e-12)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("estimator", [CPClassifier, CPRegressor])
def test_a_default_model_of_the_largest_numbers_predicts_its_own_rows(estimator):
    X = np.random.default_rng(0).uniform(-1, 1, (60, 3)) * 1.7e308
    model = estimator(n_members=2, random_state=0, n_jobs=1).fit(X, np.arange(60) % 2)
    assert np.isfinite(model.raw(X)).all()
