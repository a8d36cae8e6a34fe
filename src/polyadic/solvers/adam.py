"""Adam on mini-batches, on the fused engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyadic.formats.cp import CPCores, run
from polyadic.kernels import adam as kernel
from polyadic.kernels.cp import GUARD
from polyadic.kernels.split import Job
from polyadic.local import LocalFeatures, always_touched, stack_height
from polyadic.solvers.base import Problem, Report, Solution
from polyadic.solvers.course import Course, Schedule, stack
from polyadic.solvers.split import SplitEpochs, pays


@dataclass
class AdamState:
    """Parameters, moments and clock of a run, kept between calls of `partial_fit`."""

    parameters: kernel.Parameters
    moments: tuple[kernel.Moments, kernel.Moments, kernel.Moments]
    clock: kernel.Clock
    gradients: kernel.Parameters

    @classmethod
    def start(cls, cores: CPCores, dtype: type = np.float32) -> AdamState:
        """Begin with these cores and no memory."""
        parameters = cores.pack(dtype)
        height = stack_height(cores.dims)
        zeros = [np.zeros_like(p) for p in parameters]
        moments = tuple(
            kernel.Moments(np.zeros_like(p), np.zeros_like(p), p.copy()) for p in parameters
        )
        clock = kernel.Clock(
            np.ones(height, np.float32),
            np.ones(height, np.float32),
            np.zeros(height, np.int64),
            np.zeros(1, np.int64),
        )
        return cls(parameters, moments, clock, kernel.Parameters(*zeros))  # type: ignore[arg-type]

    def averaged(
        self, keep: float, n_outputs: int, out: kernel.Parameters | None = None
    ) -> kernel.Parameters:
        """Return the running averages of the parameters, written to `out` where given."""
        if out is None:
            out = kernel.Parameters(*(np.zeros_like(p) for p in self.parameters))
        kernel.settle(self.parameters, self.moments, self.clock, np.float32(keep), n_outputs, out)
        return out


@dataclass(frozen=True)
class Adam(Schedule):
    """Mini-batch Adam with a rate schedule, weight averaging and early stopping.

    Parameters
    ----------
    n_threads : int or None
        Threads for one model, where it is large enough to be split; None: it is never split. What
        comes out does not depend on the number, only on its being None.
    """

    n_threads: int | None = None

    def solve(
        self,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None = None,
        state: AdamState | None = None,
        resumed: bool = False,
    ) -> Solution:
        """Minimise the problem's objective, starting from `cores`, or from where `state` is."""
        return FusedCourse(self, problem, cores, free, state).run(rng, report, resumed)


class FusedCourse(Course):
    """A run on the fused engine."""

    def __init__(
        self,
        solver: Adam,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray | None,
        state: AdamState | None = None,
    ):
        super().__init__(solver, problem, cores)
        self.state = AdamState.start(cores) if state is None else state
        self.rows = _flat_rows(problem)
        width = len(self.state.parameters.weights) // problem.n_outputs
        mask = np.zeros((problem.n_outputs, width), np.float32)
        mask[:, : cores.rank] = 1.0 if free is None else free.T
        self.mask = mask.ravel()
        self._lay_out_penalties()
        self.split: SplitEpochs | None = None
        self.job: Job | None = None
        threads, layout = solver.n_threads, problem.local.layout
        if threads is not None and problem.order is None and pays(layout, self.batch):
            self._split_columns(threads)

    def _split_columns(self, n_threads: int) -> None:
        """Part the columns, for threads to share."""
        problem, state = self.problem, self.state
        layout, n_outputs = problem.local.layout, problem.n_outputs
        self.split = SplitEpochs(
            state.parameters, layout, n_outputs, self.always, self.batch, n_threads
        )
        self.job = self.split.job(
            state.parameters,
            state.moments,
            state.clock,
            state.gradients,
            self.rows,
            problem.intercept,
            (problem.loss.code, problem.loss.shape),
            self.penalty,
            self.mask,
        )

    def _lay_out_penalties(self) -> None:
        """Stack the bands, each row over the chance that a batch meets it.

        A row is only moved when a batch touches it. Dividing its penalty by the chance of that
        keeps the expected gradient, and so the optimum, the same.
        """
        local, order = self.problem.local, self.problem.order
        height = stack_height(local.dims)
        if order is None:
            self.always = always_touched(local.layout, local.dims)
            share = local.counts() / len(local)
            chance = 1.0 - (1.0 - np.minimum(share, 1.0)) ** self.batch
            chance = np.maximum(chance, 1.0 / max(2, self.n_batches))
            emphasis, alpha = np.zeros(height, np.float32), 0.0
        else:
            # The order penalty moves every row at every step.
            self.always = np.arange(GUARD, height - GUARD, dtype=np.intp)
            chance = np.ones(height)
            emphasis, alpha = stack(order.emphasis).astype(np.float32), float(order.alpha)
        chance[self.always] = 1.0
        chance = chance[:, None]
        self.fixed_band = (stack(self.problem.fixed.bands) / chance).astype(np.float32)
        self.scaled_band = (stack(self.problem.scaled.bands) / chance).astype(np.float32)
        self.penalty = kernel.Penalty(self.fixed_band.copy(), alpha, emphasis, local.dims)

    def train(self, rates: np.ndarray, rng: np.random.Generator) -> float:
        """Run one compiled epoch."""
        problem, state = self.problem, self.state
        weight = (self.noise * self.row_weights()).astype(np.float32)
        band = np.multiply(self.scaled_band, weight[:, None], out=self.penalty.band)
        band += self.fixed_band
        if self.split is not None and self.job is not None:
            order = rng.permutation(len(problem.local))
            return self.split.run(self.job, order, self.batch, rates, self.plan.average)
        return float(
            kernel.train_epoch(
                state.parameters,
                state.moments,
                state.clock,
                state.gradients,
                problem.local.layout,
                self.rows,
                rng.permutation(len(problem.local)),
                self.batch,
                rates,
                np.float32(self.plan.average),
                problem.intercept.astype(np.float32),
                problem.loss.code,
                np.float32(problem.loss.shape),
                self.penalty,
                self.mask,
                self.always,
            )
        )

    def squares(self, parameters: kernel.Parameters) -> np.ndarray:
        """Return the mean square over the terms of each table row."""
        table = parameters.table.reshape(stack_height(self.problem.local.dims), -1)
        with np.errstate(over="ignore"):
            return np.einsum("dr,dr->d", table, table, dtype=np.float64) / self.cores.rank

    def averaged(self, out: kernel.Parameters | None) -> kernel.Parameters:
        """Return the running averages."""
        return self.state.averaged(self.plan.average, self.problem.n_outputs, out)

    def predict(self, parameters: kernel.Parameters, local: LocalFeatures) -> np.ndarray:
        """Contract packed parameters."""
        return run(parameters, self.problem.intercept, local)

    def unpack(self, parameters: kernel.Parameters) -> CPCores:
        """Return the parameters as cores."""
        return self.cores.unpack(parameters)


def _flat_rows(problem: Problem) -> kernel.Rows:
    return kernel.Rows(
        problem.local.index.ravel(),
        problem.local.value.ravel(),
        np.ascontiguousarray(problem.y, dtype=np.float32),
        problem.unit_weights().astype(np.float32),
    )
