"""Adam on mini-batches, on the fused engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from polyadic.data.features import LocalFeatures, always_touched, stack_height
from polyadic.kernels import adam as kernel
from polyadic.kernels.cp import GUARD
from polyadic.networks.cp import CPCores, run
from polyadic.objective.penalties import Banded
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.contract import Report, Solution, SolverSettings, check
from polyadic.solvers.loop import Schedule, TrainingLoop, stack
from polyadic.solvers.threads import SplitEpochs, should_split

# Products of slots, terms and rows that a kernel is given at once: about a second on one core, in
# which nothing can stop it.
_MOST_WORK = 10**9


@dataclass
class AdamState:
    """Parameters, moments and clock of a run, kept between calls of `partial_fit`."""

    parameters: kernel.Parameters
    moments: tuple[kernel.AdamMoments, kernel.AdamMoments, kernel.AdamMoments | None]
    clock: kernel.Clock
    gradients: kernel.Parameters

    @classmethod
    def start(cls, cores: CPCores, dtype: type = np.float32) -> AdamState:
        """Return the state at the start of a run from these cores."""
        parameters = cores.pack(dtype)
        height = stack_height(cores.dims)
        moments = tuple(None if p is None else kernel.AdamMoments.start(p) for p in parameters)
        clock = kernel.Clock(
            np.ones(height, np.float32),
            np.ones(height, np.float32),
            np.zeros(height, np.int64),
            np.zeros(1, np.int64),
        )
        return cls(parameters, moments, clock, parameters.zeros())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Adam(Schedule):
    """Mini-batch Adam with a rate schedule, weight averaging and early stopping.

    Parameters
    ----------
    n_threads : int or None
        Threads for one model, if it is large enough to be split; None: it is never split. The
        result does not depend on the number of threads, only on whether it is None.
    """

    n_threads: int | None = None

    name: ClassVar[str] = "solver='adam' on engine='fused'"
    loss_forms: ClassVar[tuple[str, ...]] = ("compiled",)
    penalties: ClassVar[tuple[str, ...]] = ("factors", "factors by noise", "order")
    phases: ClassVar[tuple[str, ...]] = ("epochs",)

    @classmethod
    def from_settings(cls, settings: SolverSettings) -> Adam:
        """Return the solver of a fit."""
        checks = settings.max_checks
        return cls(**settings.epochs(), n_threads=settings.n_threads, max_checks=checks)

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
        """Minimise the problem's objective, starting from `cores`, or from `state` if given."""
        check(self, problem)
        return AdamLoop(self, problem, cores, free, state).run(rng, report, resumed)


class AdamLoop(TrainingLoop):
    """A run on the fused engine."""

    def __init__(
        self,
        solver: Adam,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray | None,
        state: AdamState | None = None,
        n_batches: int | None = None,
    ):
        super().__init__(solver, problem, cores, n_batches)
        self.state = AdamState.start(cores) if state is None else state
        width = len(self.state.parameters.weights) // problem.n_outputs
        mask = np.zeros((problem.n_outputs, width), np.float32)
        mask[:, : cores.rank] = 1.0 if free is None else free.T
        self.job = self._job(mask.ravel(), self._lay_out_penalties())
        self.split: SplitEpochs | None = None
        threads, layout = solver.n_threads, problem.local.layout
        bands_only = all(isinstance(penalty, Banded) for penalty in problem.penalties)
        if threads is not None and bands_only and should_split(layout, self.batch):
            self.split = SplitEpochs(self.job, self.always, self.batch, threads)
        else:
            args = (len(layout.first), problem.n_outputs, self.always)
            self.workspace = kernel.Workspace.make(self.state.parameters, *args)

    def _job(self, mask: np.ndarray, emphasis: np.ndarray | None) -> kernel.Job:
        """Return what the compiled epoch needs."""
        problem, state = self.problem, self.state
        order = None
        if problem.order is not None and emphasis is not None:
            width = len(mask) // problem.n_outputs
            alpha, dims = float(problem.order.alpha), problem.local.dims
            order = kernel.OrderPenalty.make(alpha, emphasis, dims, width, np.float32)
        return kernel.Job(
            parameters=state.parameters,
            moments=state.moments,
            clock=state.clock,
            gradients=state.gradients,
            layout=problem.local.layout.for_kernel(),
            rows=flat_rows(problem.rows, problem.weight_unit),
            intercept=problem.intercept.astype(np.float32),
            loss=problem.loss.compiled(np.float32),
            band=np.empty_like(self.fixed_band),
            order=order,
            mask=mask,
        )

    def _lay_out_penalties(self) -> np.ndarray | None:
        """Stack the bands, each row divided by its chance to be in a batch; return the emphasis.

        A table row only moves when a batch touches it. Dividing its penalty by the chance of that
        keeps the expected gradient, and so the optimum, the same.
        """
        local, order = self.problem.local, self.problem.order
        height = stack_height(local.dims)
        if order is None:
            self.always = always_touched(local.layout, local.dims)
            share = self.touched_shares()
            chance = 1.0 - (1.0 - np.minimum(share, 1.0)) ** self.batch
            chance = np.maximum(chance, 1.0 / max(2, self.n_batches))
            emphasis = None
        else:
            # The order penalty moves every row at every step.
            self.always = np.arange(GUARD, height - GUARD, dtype=np.intp)
            chance = np.ones(height)
            emphasis = stack(order.emphasis)
        chance[self.always] = 1.0
        chance = chance[:, None]
        self.fixed_band = (stack(self.problem.fixed.bands) / chance).astype(np.float32)
        self.scaled_band = (stack(self.problem.scaled.bands) / chance).astype(np.float32)
        return emphasis

    def touched_shares(self) -> np.ndarray:
        """Return the share of all rows that use each table row, (D,)."""
        return self.problem.local.counts() / len(self.problem.local)

    def train(self, rates: np.ndarray, rng: np.random.Generator) -> float:
        """Run compiled epochs: `self.passes` of them, in which batches may be of two epochs."""
        n_rows = len(self.problem.local)
        order = np.concatenate([rng.permutation(n_rows) for _ in range(self.passes)])
        return self.take_steps(self.job, order, rates)

    def take_steps(self, job: kernel.Job, order: np.ndarray, rates: np.ndarray) -> float:
        """Step through the rows of the job in this order, and return the mean training loss."""
        self.weigh_penalties(job)
        keep, rates = np.float32(self.settings.ema_decay), rates[: -(-len(order) // self.batch)]
        n_batches = self._batches_at_once()
        if n_batches >= len(rates):
            return self._pass(job, order, rates, keep)
        total, n_done = 0.0, 0
        for first in range(0, len(rates), n_batches):
            own = order[first * self.batch : (first + n_batches) * self.batch]
            total += len(own) * self._pass(job, own, rates[first : first + n_batches], keep)
            n_done += len(own)
            if self.out_of_time:
                break
        return total / n_done

    def _batches_at_once(self) -> int:
        """Return how many batches a kernel is given: no thread can be stopped inside of it."""
        width = len(self.job.mask) // self.problem.n_outputs
        work = self.batch * int(self.problem.local.layout.slots[-1]) * width
        return max(1, _MOST_WORK // max(work, 1))

    def _pass(
        self, job: kernel.Job, order: np.ndarray, rates: np.ndarray, keep: np.float32
    ) -> float:
        """Run these rows through a kernel, and return their mean loss."""
        if self.split is not None:
            return self.split.run(order, self.batch, rates, keep)
        args = (self.workspace, len(self.always), order, self.batch, rates, keep)
        return float(kernel.train_epoch(job, *args))

    def weigh_penalties(self, job: kernel.Job) -> None:
        """Write the quadratic penalties, those by noise multiplied by what is measured now."""
        weight = (self.noise * self.row_weights()).astype(np.float32)
        band = np.multiply(self.scaled_band, weight[:, None], out=job.band)
        band += self.fixed_band

    def squares(self, parameters: kernel.Parameters) -> np.ndarray:
        """Return the mean square over the terms of each table row."""
        table = parameters.table.reshape(len(self.fixed_band), -1)
        with np.errstate(over="ignore"):
            return np.einsum("dr,dr->d", table, table, dtype=np.float64) / self.cores.rank

    def finite(self, parameters: kernel.Parameters) -> bool:
        """Tell whether every number of the packed parameters is finite."""
        return all(np.isfinite(array).all() for array in parameters if array is not None)

    def averaged(self, out: kernel.Parameters | None) -> kernel.Parameters:
        """Return the running averages, written to `out` if given."""
        out = self.state.parameters.zeros() if out is None else out
        kernel.write_averages(self.job, np.float32(self.settings.ema_decay), out)
        return out

    def predict(self, parameters: kernel.Parameters, local: LocalFeatures) -> np.ndarray:
        """Contract packed parameters."""
        return run(parameters, self.problem.intercept, local)

    def unpack(self, parameters: kernel.Parameters) -> CPCores:
        """Return the parameters as cores."""
        return self.cores.unpack(parameters)


def flat_rows(rows: Rows, weight_unit: float = 0.0) -> kernel.FlatRows:
    """Return rows as the kernels take them; their weights in units of one row, or of their mean."""
    return kernel.FlatRows(
        rows.local.index.ravel(),
        rows.local.value.ravel(),
        np.ascontiguousarray(rows.y, dtype=np.float32),
        rows.unit_weights(weight_unit).astype(np.float32),
    )
