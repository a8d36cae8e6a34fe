"""Several workers, each with rows of its own, train the model that one worker trains on all."""

from dataclasses import replace

import numpy as np
import pytest
from exchanges import together
from problems import make_problem

from polyadic import losses, maps
from polyadic.data.features import stack_height
from polyadic.networks.cp import CPCores
from polyadic.objective import penalties
from polyadic.objective.problem import Rows
from polyadic.solvers.adam import Adam
from polyadic.solvers.blockwise import BlockLoop
from polyadic.solvers.contract import Deadline
from polyadic.solvers.workers import JointLoop

RANK, BATCH = 5, 40


def make(loss, n_outputs=1, additive=False, order=False, n=240):
    """Return a problem of numbers and categories, and cores to start from."""
    rng = np.random.default_rng(3)
    columns = [rng.normal(size=n), rng.normal(size=n), rng.integers(0, 30, n)]
    family = [maps.Hat(6), maps.Polynomial(3), maps.OneHot(min_count=1)]
    family = [m.fit(x) for m, x in zip(family, columns)]
    own = penalties.Order(1e-3, penalties.emphasis(family, 2.0)) if order else None
    problem = make_problem(loss, n_outputs, family, columns, own)
    problem = replace(problem, held_out=problem.rows, weight_unit=1.0)
    problem = problem.penalised(penalties.ridge(family, 1e-3) + penalties.smoothness(family, 1e-3))
    factors = [0.3 * rng.normal(size=(m.dim, RANK)) for m in family]
    for core in factors:
        core[0] += 1.0
    extra = [0.1 * rng.normal(size=(m.dim, n_outputs)) for m in family] if additive else None
    weights = 0.3 * rng.normal(size=(RANK, n_outputs))
    return problem, CPCores(factors, weights, np.zeros(n_outputs), extra)


class Alone:
    """The exchange of a single worker."""

    rank, size = 0, 1

    def sum(self, array):
        pass

    def gather(self, array):
        return [array]


def train(problem, cores, exchange, rows, n_epochs=3):
    """Train on these rows, a worker's part of a block; return the loop."""
    loop = make_loop(problem, cores, exchange)
    own = Rows(problem.local.take(rows), problem.y[rows], problem.weight[rows])
    rates = np.full(loop.n_batches, 0.02, np.float32)
    for epoch in range(n_epochs):
        loop.train_block(own, rates, np.random.default_rng(epoch))
        loop.measure(0.02)
    return loop


def make_loop(problem, cores, exchange=None):
    solver = Adam(batch_size=BATCH, max_iter=3, ema_decay=0.9)
    shares = [np.ones(dim) for dim in problem.local.dims]
    args = (solver, problem, cores, None, -(-len(problem.local) // BATCH), shares, 3)
    return BlockLoop(*args) if exchange is None else JointLoop(*args, exchange=exchange)


CASES = {
    "squares": (losses.SquaredError(), 1, False, False),
    "two classes": (losses.Logistic(), 1, False, False),
    "classes": (losses.Softmax(), 3, False, False),
    "additive part": (losses.SquaredError(), 2, True, False),
    "order penalty": (losses.SquaredError(), 1, False, True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cut", [120, 70, 0], ids=["halves", "unequal parts", "one has no rows"])
def test_two_workers_train_the_model_of_one(case, cut):
    problem, cores = make(*CASES[case])
    every = np.arange(len(problem.local))
    parts = [every[:cut], every[cut:]]
    one = train(problem, cores, None, every)
    a, b = together(lambda exchange: train(problem, cores, exchange, parts[exchange.rank]))
    assert a.history == b.history
    for name in a.history:
        np.testing.assert_allclose(a.history[name], one.history[name], rtol=1e-4)
    for x, y, z in zip(*(loop.state.parameters for loop in (one, a, b))):
        if x is not None:
            np.testing.assert_array_equal(y, z)
            # Sums of another order differ by rounding, which training makes larger.
            np.testing.assert_allclose(y, x, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(a.state.clock.last, one.state.clock.last)


def test_one_worker_takes_the_steps_of_the_compiled_epoch():
    problem, cores = make(losses.SquaredError())
    every = np.arange(len(problem.local))
    plain, alone = (train(problem, cores, exchange, every) for exchange in (None, Alone()))
    assert plain.history["validation_loss"] == alone.history["validation_loss"]
    for x, y in zip(plain.state.parameters, alone.state.parameters):
        if x is not None:
            np.testing.assert_array_equal(x, y)


def test_all_stop_when_one_is_late():
    problem, cores = make(losses.SquaredError())

    def late(exchange):
        loop = make_loop(problem, cores, exchange)
        if exchange.rank == 1:
            loop.settings = loop.settings.until(Deadline(0.0))
        return loop.should_stop()

    assert together(late) == [True, True]


def bytes_sent(problem, cores, rows):
    """Return what two workers send in one step on these rows, and the table rows it is of."""
    halves = np.array_split(rows, 2)

    def work(exchange):
        loop, own = make_loop(problem, cores, exchange), halves[exchange.rank]
        loop.batch = len(rows)
        loop.train_block(
            Rows(problem.local.take(own), problem.y[own], problem.weight[own]),
            np.full(1, 0.02, np.float32),
            np.random.default_rng(0),
        )
        touched = np.union1d(problem.local.index[rows], loop.always)
        return loop.joint.n_sent, len(touched)

    return together(work)[0]


def test_only_touched_rows_are_sent_unless_nearly_all_are_touched():
    problem, cores = make(losses.SquaredError())
    width, height = len(cores.pack(np.float32).weights), stack_height(problem.local.dims)
    (few, touched), (many, _) = (bytes_sent(problem, cores, np.arange(n)) for n in (20, 240))
    assert few == 4 * (width + touched * width)
    assert many == 4 * (width + height * width + height)
    assert few < 0.7 * many
