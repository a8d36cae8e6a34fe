"""Laws of every solver; in particular, it refuses by name what it cannot minimise."""

from dataclasses import dataclass

import needs
import numpy as np
import parts
import pytest
from threadpoolctl import threadpool_info

from polyadic import inits, losses, maps, networks
from polyadic.data.features import encode
from polyadic.networks.cores import NetworkCores
from polyadic.objective.penalties import PENALTIES, Penalty
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.adam import Adam
from polyadic.solvers.blas import one_blas_thread
from polyadic.solvers.registry import FUSED

needs.package("torch")
every_solver = pytest.mark.parametrize("name", parts.SOLVERS)


def make_problem(loss=None, n=120, seed=0):
    """Return a product of two columns to be learnt, with held-out rows and no penalties."""
    rng = np.random.default_rng(seed)
    columns = [rng.uniform(-1, 1, n) for _ in range(3)]
    family = [maps.Hat(5).fit(x) for x in columns]
    y = (columns[0] * columns[1] + columns[2])[:, None]
    weight = rng.random(n) + 0.5
    rows = Rows(encode(family, columns), y / y.std(), weight)
    loss = loss or losses.SquaredError()
    return Problem(rows, rows, loss, np.zeros(1), [m.degrees for m in family]), family


def start(name, problem):
    """Return cores that the solver can train."""
    dims = problem.local.dims.tolist()
    rngs = [np.random.default_rng(k) for k in range(len(dims) + 1)]
    if name in FUSED:
        return inits.NearOne().start(problem, 4, rngs).cores
    form = networks.resolve("tt")(dims, 3, 1, 2)
    return NetworkCores("tt", 3, 2, *form.near_one(rngs, 0.1), np.zeros(1), np.ones(1))


def solve(name, problem):
    rng = np.random.default_rng(0)
    return parts.SOLVERS[name].solve(problem, start(name, problem), None, rng)


@every_solver
def test_training_lowers_the_loss_and_the_same_seed_gives_the_same_model(name):
    problem, _ = make_problem()
    first, second = solve(name, problem), solve(name, problem)
    before = problem.loss.value(problem.y, np.zeros_like(problem.y), problem.weight)
    assert first.loss < before
    assert first.n_iter == len(first.history["train_loss"])
    for a, b in zip(first.cores.factors, second.cores.factors):
        np.testing.assert_array_equal(a, b)


@every_solver
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_penalty_acts_or_is_refused_by_name(name, penalty):
    problem, family = make_problem()
    own = parts.penalties_of(family)[penalty]
    harder = problem.penalised(own)
    assert [p.name for p in harder.penalties] == [penalty]
    solver = parts.SOLVERS[name]
    by_torch = "torch" in solver.loss_forms and own.has_torch
    if penalty not in solver.penalties and not by_torch:
        with pytest.raises(ValueError, match=f"cannot minimise the penalty {penalty!r}") as error:
            solve(name, harder)
        assert solver.name in str(error.value)
        return
    free, penalised = solve(name, problem), solve(name, harder)
    pairs = zip(free.cores.factors, penalised.cores.factors)
    assert any(not np.array_equal(a, b) for a, b in pairs)


@dataclass(frozen=True)
class Formless(losses.Loss):
    """A loss without any form."""


@dataclass(frozen=True)
class Straight(losses.Loss):
    """A loss whose compiled form has no curvature, and which has no torch form."""

    @staticmethod
    def value_and_slope(y, raw):
        """Return a smooth version of the absolute error."""
        error = raw - y
        return np.sqrt(1.0 + error * error), error / np.sqrt(1.0 + error * error)


@every_solver
@pytest.mark.parametrize("loss", [Formless(), Straight()], ids=repr)
def test_a_loss_without_the_form_it_needs_is_refused_by_name(name, loss):
    problem, _ = make_problem(loss)
    solver = parts.SOLVERS[name]
    missing = [form for form in solver.loss_forms if not loss.has(form)]
    if not missing:
        assert np.isfinite(solve(name, problem).loss)
        return
    with pytest.raises(ValueError, match="the loss lacks `") as error:
        solve(name, problem)
    assert solver.name in str(error.value)
    assert repr(loss) in str(error.value)


@every_solver
def test_a_loss_in_all_forms_is_trained(name):
    problem, _ = make_problem(parts.Expectile(0.7))
    before = problem.loss.value(problem.y, np.zeros_like(problem.y), problem.weight)
    assert solve(name, problem).loss < before


@dataclass(frozen=True)
class SmoothAbsolute(Penalty):
    """A penalty that no solver lists, with a form for torch."""

    strength: float

    name = "smooth absolute"

    def value(self, cores):
        """Return the sum of sqrt(a^2 + 0.01)."""
        return self.strength * sum(np.sum(np.sqrt(a**2 + 0.01)) for a in cores.factors)

    def add_gradient(self, cores, out):
        """Add its derivative."""
        for target, a in zip(out, cores.factors):
            target += self.strength * a / np.sqrt(a**2 + 0.01)

    def active(self):
        """Tell whether its strength is above zero."""
        return self.strength > 0

    def torch_value(self, factors):
        """Return the same for tensors."""
        return self.strength * sum(((a**2 + 0.01) ** 0.5).sum() for a in factors)


@every_solver
def test_a_penalty_with_a_torch_form_acts_on_the_torch_engine_and_nowhere_else(name):
    problem, _ = make_problem()
    harder = problem.penalised(SmoothAbsolute(0.3))
    if name != "torch":
        with pytest.raises(ValueError, match="cannot minimise the penalty 'smooth absolute'"):
            solve(name, harder)
        return
    free, penalised = solve(name, problem).cores, solve(name, harder).cores
    assert SmoothAbsolute(0.3).value(penalised) < SmoothAbsolute(0.3).value(free)


@pytest.mark.parametrize("penalty", [p for p in PENALTIES if p in Adam.penalties])
def test_a_wide_model_that_is_split_among_threads_is_penalised(penalty):
    rng = np.random.default_rng(0)
    columns = [rng.uniform(-1, 1, 300) for _ in range(30)]
    family = [maps.Hat(6).fit(x) for x in columns]
    rows = Rows(encode(family, columns), (columns[0] * columns[1])[:, None], np.ones(300))
    problem = Problem(rows, rows, losses.SquaredError(), np.zeros(1), [m.degrees for m in family])
    found = []
    for own in (problem, problem.penalised(parts.penalties_of(family)[penalty])):
        solver = Adam(max_iter=2, batch_size=128, n_threads=2)
        found.append(solver.solve(own, start("adam", own), None, np.random.default_rng(0)).cores)
    pairs = zip(*(cores.factors for cores in found))
    assert any(not np.array_equal(a, b) for a, b in pairs)


def test_overlapping_limits_of_blas_are_lifted_by_the_last():
    def counts():
        return [own["num_threads"] for own in threadpool_info() if own["user_api"] == "blas"]

    before = counts()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    assert set(counts()) == {1}
    first.__exit__(None, None, None)
    assert set(counts()) == {1}
    second.__exit__(None, None, None)
    assert counts() == before


@pytest.mark.parametrize("schedule", ["one_cycle", "constant"])
def test_the_rates_of_some_steps_are_those_of_all(schedule):
    own = Adam(schedule=schedule)
    for n_steps in (1, 7, 1000):
        whole = own.rates(n_steps)
        parts = [own.rates(n_steps, k, k + 3) for k in range(0, n_steps, 3)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert len(own.rates(10**15, 10**14, 10**14 + 5)) == 5


@pytest.mark.parametrize("most", [None, 100])
def test_epochs_that_will_never_be_run_take_no_memory(most):
    assert Adam(max_iter=10**12, max_checks=most).epochs_per_check <= 1000
