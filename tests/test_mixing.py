"""Strategies are mixed by shares that held-out rows choose, into one model."""

from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import parts
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from polyadic import CPClassifier, CPRegressor, explain, load, losses
from polyadic.data.features import encode
from polyadic.training import members, mixing
from polyadic.training.strategy_training import StrategyTraining


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)
    return X, y


@given(
    raws=st.lists(st.lists(st.floats(-5, 5), min_size=6, max_size=6), min_size=1, max_size=4),
    y=st.lists(st.floats(-5, 5), min_size=6, max_size=6),
)
@settings(max_examples=50, deadline=None)
def test_no_other_mean_has_a_lower_loss_and_pull_together(raws, y):
    loss, weight = losses.SquaredError(), np.ones(6)
    raws, y = np.array(raws)[:, :, None], np.array(y)[:, None]
    alone = np.array([loss.value(y, raw) for raw in raws])
    assume(1e-6 < alone.max() <= alone.min() / mixing._LEAST_SHARE)
    goal, uncertainty = mixing._plausible(loss, y, weight, raws, alone)

    def objective(shares):
        mixed = loss.value(y, np.tensordot(shares, raws, 1))
        return mixed + mixing._PULL * uncertainty * np.sum((shares - goal) ** 2)

    with patch.object(mixing, "_LEAST_SHARE", 1e-6):
        shares = mixing.find_shares(loss, y, weight, raws)
    assert shares.sum() == pytest.approx(1.0)
    assert np.all(shares >= 0)
    others = [*np.eye(len(raws)), np.full(len(raws), 1.0 / len(raws)), goal]
    assert all(objective(shares) <= 1.01 * objective(other) + 1e-6 for other in others)


def test_the_better_strategy_has_the_larger_share_and_a_useless_one_none():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2000, 1))
    good, fair = (y + scale * rng.normal(size=y.shape) for scale in (0.1, 0.2))
    useless = 100.0 * rng.normal(size=y.shape)
    shares = mixing.find_shares(
        losses.SquaredError(), y, np.ones(2000), np.array([fair, useless, good])
    )
    assert shares[2] > shares[0] > shares[1] == 0.0


def test_a_strategy_without_finite_predictions_has_no_share():
    y = np.zeros((10, 1))
    raws = np.array([y + 1.0, np.full_like(y, np.nan), y - 1.0])
    shares = mixing.find_shares(losses.SquaredError(), y, np.ones(10), raws)
    np.testing.assert_allclose(shares, [0.5, 0.0, 0.5], atol=1e-6)


def members_and_trees(loss, n_members, noise, n=4000):
    """Return targets, predictions of members by a mean and noise of their own, and trees."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=(n, 1))
    y = signal + rng.normal(size=(n, 1))
    if isinstance(loss, losses.Logistic):
        y = (rng.random((n, 1)) < 1 / (1 + np.exp(-signal))).astype(float)
    smooth = signal + noise * rng.normal(size=(n_members, n, 1))
    return y, smooth, signal + 0.5 * rng.normal(size=(n, 1))


@pytest.mark.parametrize("loss", [losses.SquaredError(), losses.Logistic()])
@pytest.mark.parametrize("n_members", [2, 5])
def test_the_share_of_trees_is_that_beside_the_mean_of_the_members(loss, n_members):
    y, smooth, trees = members_and_trees(loss, n_members, 0.5)
    weight = np.ones(len(y))
    shares = np.linspace(0, 1, 101)
    mean = smooth.mean(axis=0)
    best = shares[np.argmin([loss.value(y, (1 - a) * mean + a * trees) for a in shares])]
    away = smooth - mean
    found = mixing.share_of_trees(loss, y, weight, smooth[0], trees, away, False)
    alone = mixing.share_of_trees(loss, y, weight, smooth[0], trees, away[:0], False)
    assert found == pytest.approx(best, abs=0.1)
    assert alone == pytest.approx(0.5, abs=0.1)


def test_trees_that_do_not_lower_the_loss_have_no_share():
    loss = losses.SquaredError()
    y, smooth, trees = members_and_trees(loss, 2, 0.0)
    args = loss, y, np.ones(len(y)), smooth[0]
    none = np.zeros((2, *y.shape))
    assert mixing.share_of_trees(*args, trees, none, False) == 0.0
    assert 0.0 < mixing.share_of_trees(*args, trees, none, True) <= 0.05  # they were asked for
    assert mixing.share_of_trees(*args, np.full_like(y, np.nan), smooth[:0], False) == 0.0
    assert mixing.share_of_trees(*args, y, smooth[:0], False) == 1.0


def trained(model, X, y, monkeypatch):
    """Return the fitted model, and the members it was merged from."""
    seen = []
    mix = members._mix

    def watched(*args):
        seen.append(mix(*args))
        return seen[-1]

    monkeypatch.setattr(members, "_mix", watched)
    return model.fit(X, y), seen[0].members


@pytest.mark.parametrize("kind", ["numbers", "two classes", "three classes"])
def test_the_model_is_the_mean_of_all_members_by_their_shares(kind, monkeypatch):
    X, y = table()
    if kind == "numbers":
        model = CPRegressor(random_state=0)
    else:
        limits = [0.0] if kind == "two classes" else [-0.3, 0.3]
        model, y = CPClassifier(random_state=0), np.digitize(y, limits)
    model, own = trained(model, X, y, monkeypatch)
    assert sum(member.share for member in own) == pytest.approx(1.0)
    columns = parts.coded_in_training_order(model, X, y)
    raws = [m.share * m.solution.cores.contract(encode(m.maps, columns)) for m in own]
    mean = model._center + model._scale * sum(raws)
    np.testing.assert_allclose(model.raw(X), mean, atol=1e-4 * np.abs(mean).max())


@pytest.mark.parametrize("classes", [0, 2, 4])
def test_a_mixture_can_be_saved_explained_and_trained_further(classes, tmp_path):
    X, y = table()
    if classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    kind = CPClassifier if classes else CPRegressor
    model = kind(random_state=0, warm_start=True).fit(X, y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.raw(X), model.raw(X))
    assert str(again.plan_["shares"]) == model.plan_["shares"]
    values = explain.shapley(model, X[:5])
    raw = model.raw(X[:5])
    if classes > 2:  # scores are explained relative to their mean
        raw = raw - raw.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, raw, atol=1e-4)
    before = model.score(X, y)
    assert model.fit(X, y).score(X, y) > before - 0.05


def test_an_additive_table_gets_an_additive_share_and_no_worse_a_model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 6))
    raw = X[:, 0] + np.sin(2 * X[:, 1])
    y = (rng.random(1200) < 1 / (1 + np.exp(-raw))).astype(int)
    model = CPClassifier(random_state=0).fit(X[:600], y[:600])
    assert "additive" in model.plan_["shares"]
    best = log_loss(y[600:], 1 / (1 + np.exp(-raw[600:])))
    assert log_loss(y[600:], model.predict_proba(X[600:])[:, 1]) < 1.1 * best


def test_a_column_of_many_categories_is_mixed_too():
    rng = np.random.default_rng(0)
    codes = np.arange(60_000) % 30_000
    X = np.column_stack([rng.normal(size=60_000), codes])
    plan = parts.plan_of(CPRegressor(categorical_features=[1]), X, X[:, 0])
    assert plan.mixed
    assert plan.others[0].ranks == (24, 24)


def test_a_strategy_whose_pilots_have_no_share_gets_no_members(monkeypatch):
    """Straight lines almost without noise: next to a linear model, penalties bend and are off."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X @ [1.0, 2.0, -1.0, 0.5] + 0.001 * rng.normal(size=300)
    model, own = trained(CPRegressor(random_state=0), X, y, monkeypatch)
    left_out = {one.value for one in model.plan_.choices if one.name == "left out"}
    assert len(left_out) == 1  # neither has a share, but one is kept
    assert left_out < {"factor penalties", "tensor prior"}
    assert "linear" in {member.kind for member in own}
    assert not left_out & {member.kind for member in own}
    assert model.score(X, y) > 0.9999


def test_pilots_are_compared_where_there_are_two_of_each_strategy():
    for n, expected in ((300, True), (2000, False)):
        plan = parts.plan_of(CPRegressor(), *table(n))
        own = [SimpleNamespace(plan=one) for one in (plan, *plan.others)]
        assert members.comparable(own) == expected
        assert not members.comparable(own[:1])


@pytest.mark.parametrize("interacts", [False, True])
def test_only_what_has_a_share_is_trained_further_on_all_rows(interacts, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(600, 4))
    y = 3 * X[:, 0] * X[:, 1] if interacts else np.sin(3 * X[:, 0]) + X[:, 1] ** 2
    y = y + 0.1 * rng.normal(size=600)
    finished = []
    finish = StrategyTraining.finish_additive

    def watched(one):
        finished.append(one)
        finish(one)

    monkeypatch.setattr(StrategyTraining, "finish_additive", watched)
    _, own = trained(CPRegressor(random_state=0), X, y, monkeypatch)
    kinds = [member.kind for member in own]
    assert bool(finished) == ("additive" in kinds) == (not interacts)
    # Nothing is held out any more.
    assert all(m.solution.held_out is None for m in own if m.kind in ("additive", "tensor prior"))
