"""Training takes as long as it helps, and no longer than `max_time`."""

import time

import numpy as np
import parts
import pytest

from polyadic import CPClassifier, CPRegressor
from polyadic.solvers.loop import Schedule
from polyadic.training.fits import Fits
from polyadic.training.pool import Pool
from polyadic.training.strategy_training import StrategyTraining


def table(n=400, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    return X, np.sin(4 * X[:, 0]) * X[:, 1] + X[:, 2] + noise * rng.normal(size=n)


@pytest.mark.parametrize("kind", [CPRegressor, CPClassifier])
def test_max_time_ends_a_fit_soon_with_a_model(kind):
    X, y = table(3000)
    y = y if kind is CPRegressor else y > 0
    kind(random_state=0, max_time=0).fit(X, y)  # compiles the kernels
    whole = time.perf_counter()
    full = kind(random_state=0).fit(X, y)
    whole = time.perf_counter() - whole
    start = time.perf_counter()
    model = kind(random_state=0, max_time=0.05 * whole).fit(X, y)
    spent = time.perf_counter() - start
    assert spent < 0.8 * whole
    assert np.all(np.isfinite(model.raw(X)))
    assert model.score(X, y) <= full.score(X, y) + 0.05


def test_no_time_at_all_still_gives_a_model():
    X, y = table()
    model = CPRegressor(max_time=0, random_state=0).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("value", [-1, np.inf, "long", True])
def test_an_impossible_max_time_is_refused(value):
    with pytest.raises(ValueError, match="max_time must be a number of at least 0"):
        CPRegressor(max_time=value).fit(*table(50))


def test_time_enough_changes_nothing():
    X, y = table(200)
    one, other = (CPRegressor(random_state=0, max_time=t).fit(X, y) for t in (None, 1e6))
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


def strategy(X, y, **settings):
    plan = parts.plan_of(CPRegressor(random_state=0, **settings), X, y)
    rows = CPRegressor()._read(X, y, None, None, None, None)[0]
    return StrategyTraining(Fits(plan, rows, None, Pool(1)))


def test_length_doubles_while_the_held_out_loss_falls(monkeypatch):
    one = strategy(*table(200))
    base, tried = one.solver.continued().max_iter, []

    def better(new, old):
        tried.append(len(new[0].solution.history["train_loss"]))
        return len(tried) < 3

    monkeypatch.setattr(one, "clearly_better", better)
    one.try_ladder()
    lead = one.find_length(one.best_trial().pilots)
    assert one.solver.continued().max_iter == 6 * base  # members are trained half as long again
    assert lead[0].solution.n_iter <= 4 * base + 1  # and the sweep before
    assert len(tried) == 3


def test_a_difference_must_be_large_and_seen_in_most_blocks(monkeypatch):
    one = strategy(*table(200))
    found = iter(
        [
            (np.full(10, 1.0), np.full(10, 0.9)),
            (np.full(10, 1.0), np.full(10, 0.999)),
            (np.full(10, 1.0), np.array([0.1, *[1.01] * 9])),
            (np.full(10, 1.0), np.full(10, np.nan)),
        ]
    )
    losses = []

    def block_losses(members):
        if not losses:
            losses.extend(next(found))
        return losses.pop(0)

    monkeypatch.setattr(one, "block_losses", block_losses)
    assert [one.clearly_better([], []) for _ in range(4)] == [True, False, False, False]


def test_a_loss_that_is_measured_less_often_has_an_entry_for_every_epoch():
    X, y = table(200)
    model = CPRegressor(random_state=0, n_members=1).fit(X, y)
    (history,) = model.history_
    assert len(history["train_loss"]) == len(history["validation_loss"]) == model.n_iter_
    assert len(set(history["validation_loss"])) <= 101 + 1
    assert Schedule(max_iter=1000, max_checks=100).epochs_per_check == 10


def test_predictions_of_held_out_rows_are_from_epochs_that_others_chose():
    """On pure noise, the best epoch on the same rows looks better than those of the other half."""
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(5):
        X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
        one = strategy(X, y)
        one.try_ladder()
        for trial in one.trials:
            for pilot in trial.pilots:
                crossed = one.mean_loss([pilot])
                gains.append(crossed - pilot.solution.loss)
    assert np.mean(gains) > 0
