"""One model on several threads: the same bits on any number, and the plain epoch's result."""

from unittest.mock import patch

import numpy as np
import pytest

from polyadic import CPClassifier, CPRegressor, losses, maps
from polyadic.data.features import encode
from polyadic.kernels.cp import TILE
from polyadic.networks.cp import CPCores
from polyadic.objective import penalties
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers import threads
from polyadic.solvers.adam import Adam
from polyadic.solvers.threads import SplitEpochs

LOSSES = [losses.SquaredError(), losses.Logistic()]
RANKS = [5, TILE]


def wide_table(n=700, n_columns=30):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, n_columns))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)
    return X, y


def cores_near_one(dims, rank, additive):
    """Return cores whose product over many columns neither vanishes nor explodes."""
    rng = np.random.default_rng(1)
    factors = [0.1 * rng.normal(size=(d, rank)) for d in dims]
    for core in factors:
        core[0] += 1.0
    extra = [0.1 * rng.normal(size=(d, 1)) for d in dims] if additive else None
    return CPCores(factors, 0.2 * rng.normal(size=(rank, 1)), np.zeros(1), extra)


def wide_problem(loss, additive, rank=5):
    X, y = wide_table()
    # Without a dense map, the products of one rank stay in registers.
    other = maps.Hat(4) if rank == TILE else maps.Chebyshev(4)
    family = [maps.Hat(6).fit(x) for x in X[:, :27].T] + [other.fit(X[:, 28])]
    codes = (X[:, 29] * 3).astype(int)
    family += [maps.OneHot().fit(codes)]
    features = encode(family, [*X[:, :27].T, X[:, 28], codes])
    target = (y > 0).astype(float) if isinstance(loss, losses.Logistic) else y
    rows = Rows(features, target[:, None], np.random.default_rng(0).uniform(0.5, 2, len(y)))
    own = penalties.ridge(family, 1e-3) + penalties.smoothness(family, 1e-3)
    degrees = [m.degrees for m in family]
    problem = Problem(rows, None, loss, np.zeros(1), degrees, (own,))
    return problem, cores_near_one(features.dims, rank, additive)


def solve(problem, cores, n_threads):
    solver = Adam(learning_rate=0.01, batch_size=150, max_iter=3, n_threads=n_threads)
    return solver.solve(problem, cores, np.ones_like(cores.weights), np.random.default_rng(7))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("rank", RANKS)
def test_split_epochs_match_the_plain_ones(loss, additive, rank):
    problem, cores = wide_problem(loss, additive, rank)
    assert threads.should_split(problem.local.layout, 150)
    plain, one, two = (solve(problem, cores, n) for n in (None, 1, 2))
    for a, b, c in zip(*(s.cores.factors + [s.cores.weights] for s in (plain, one, two))):
        np.testing.assert_array_equal(b, c)
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
    assert one.history == two.history
    np.testing.assert_allclose(one.history["train_loss"], plain.history["train_loss"], rtol=1e-4)


class Helper:
    """A replacement of `Thread` that works when the subclass says."""

    def __init__(self, target, args, daemon):
        self.work = lambda: target(*args)

    def start(self):
        pass

    def join(self):
        pass


class Early(Helper):
    def start(self):
        self.work()


class Late(Helper):
    def join(self):
        self.work()


@pytest.mark.parametrize("helper", [Early, Late])
@pytest.mark.parametrize("rank", RANKS)
def test_the_result_does_not_depend_on_when_a_thread_works(helper, rank, monkeypatch):
    problem, cores = wide_problem(losses.SquaredError(), False, rank)
    expected = solve(problem, cores, 1)
    monkeypatch.setattr(threads, "Thread", helper)
    found = solve(problem, cores, 2)
    assert found.history == expected.history
    for a, b in zip(found.cores.factors, expected.cores.factors):
        np.testing.assert_array_equal(a, b)


def test_blocks_smaller_than_a_batch_change_only_rounding(monkeypatch):
    problem, cores = wide_problem(losses.SquaredError(), False)
    whole = solve(problem, cores, 2)
    monkeypatch.setattr(threads, "_MAX_FACTORS", 16)
    blocks = solve(problem, cores, 2)
    for a, b in zip(whole.cores.factors, blocks.cores.factors):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("rank", [8, TILE])
@pytest.mark.parametrize("estimator", [CPRegressor, CPClassifier])
def test_one_member_has_the_same_bits_whatever_n_jobs(estimator, rank):
    X, y = wide_table(6000)
    y = y > 0 if estimator is CPClassifier else y
    params = {"n_members": 1, "rank": rank, "max_iter": 3, "random_state": 0, "solver": "adam"}
    with patch.object(SplitEpochs, "run", autospec=True, side_effect=SplitEpochs.run) as run:
        models = [estimator(**params, n_jobs=n).fit(X, y) for n in (1, 2, 2, 3)]
    assert run.call_count == 4 * 3
    for model in models[1:]:
        assert model.history_ == models[0].history_
        for a, b in zip(model.tensor_.factors, models[0].tensor_.factors):
            np.testing.assert_array_equal(a, b)


def test_narrow_tables_and_small_batches_are_not_split():
    narrow = encode([maps.Hat(6).fit(np.arange(9.0))] * 8, [np.arange(9.0)] * 8)
    assert not threads.should_split(narrow.layout, 4096)
    problem, _ = wide_problem(losses.SquaredError(), False)
    assert not threads.should_split(problem.local.layout, 16)
