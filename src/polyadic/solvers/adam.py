"""Adam on mini-batches, on the fused engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from polyadic.formats.cp import CPCores, run
from polyadic.kernels import adam as kernel
from polyadic.kernels.cp import GUARD
from polyadic.local import always_touched, stack_height
from polyadic.penalties import Banded
from polyadic.solvers.base import Problem, Report, Rows, Solution

_FIRST_NOISE = 0.3  # what a typical table leaves unexplained; replaced by what is measured
_NOISE_PACE = 0.2
_WARM_UP = 0.1  # share of the steps of a one-cycle schedule that lead up to the peak
_LAST_RATE = 1e-3  # of the peak
SCHEDULES = ("constant", "one_cycle")


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
class Adam:
    """Mini-batch Adam with a rate schedule, weight averaging and early stopping.

    Parameters
    ----------
    learning_rate : float
        Rate, or the peak of the one-cycle schedule.
    batch_size, max_epochs : int
    schedule : "one_cycle" or "constant"
        One cycle: a tenth of the steps up to the peak, then down along a cosine.
    average : float
        Weight of the past in the running average of the parameters; 0 turns averaging off.
    n_iter_no_change : int or None
        Stop after so many epochs without progress on the held-out rows; None goes to the end. In
        either case the best epoch is kept.
    tol : float
        Progress smaller than this share of the loss does not count.
    """

    learning_rate: float = 0.02
    batch_size: int = 128
    max_epochs: int = 100
    schedule: str = "one_cycle"
    average: float = 0.99
    n_iter_no_change: int | None = None
    tol: float = 1e-5

    def solve(
        self,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray,
        rng: np.random.Generator,
        report: Report | None = None,
        state: AdamState | None = None,
    ) -> Solution:
        """Minimise the problem's objective, starting from `cores`, or from where `state` is."""
        run_ = _Run(self, problem, cores, free, state)
        n_batches = run_.n_batches
        rates = self.rates(n_batches * self.max_epochs)
        for epoch in range(self.max_epochs):
            run_.epoch(rates[epoch * n_batches : (epoch + 1) * n_batches], rng)
            if report is not None:
                report(epoch, run_.latest)
            if run_.should_stop():
                break
        return run_.solution()

    def rates(self, n_steps: int) -> np.ndarray:
        """Return the learning rate of every step, (n_steps,).

        >>> Adam(learning_rate=1.0).rates(20)[[0, 1, 2, 19]].round(3)
        array([0.5 , 1. , 0.992, 0.001], dtype=float32)
        """
        if self.schedule == "constant":
            return np.full(n_steps, self.learning_rate, dtype=np.float32)
        warm = max(1, int(_WARM_UP * n_steps))
        up = np.arange(1, warm + 1) / warm
        down = 0.5 * (1 + np.cos(np.pi * np.arange(1, n_steps - warm + 1) / max(1, n_steps - warm)))
        cycle = np.concatenate((up, _LAST_RATE + (1 - _LAST_RATE) * down))[:n_steps]
        return (self.learning_rate * cycle).astype(np.float32)


class _Run:
    """One solve, epoch by epoch."""

    def __init__(
        self,
        solver: Adam,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray,
        state: AdamState | None = None,
    ):
        self.solver, self.problem, self.cores = solver, problem, cores
        self.state = AdamState.start(cores) if state is None else state
        self.batch = min(solver.batch_size, len(problem.local))
        self.n_batches = -(-len(problem.local) // self.batch)
        self.rows = _flat_rows(problem.rows)
        width = len(self.state.parameters.weights) // problem.n_outputs
        mask = np.zeros((problem.n_outputs, width), np.float32)
        mask[:, : cores.rank] = free.T
        self.mask = mask.ravel()
        self._lay_out_penalties()
        self.noise = _FIRST_NOISE if problem.loss.location_scale else 0.5
        self.history: dict[str, list[float]] = {"train_loss": [], "learning_rate": []}
        if problem.held_out is not None:
            self.history["validation_loss"] = []
        self.best: kernel.Parameters | None = None
        self.spare: kernel.Parameters | None = None
        self.best_loss, self.best_epoch = np.inf, -1
        self.latest = np.inf

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
            emphasis, alpha = _stack(order.emphasis).astype(np.float32), float(order.alpha)
        chance[self.always] = 1.0
        chance = chance[:, None]
        self.fixed_band = (_stack_bands(self.problem.fixed) / chance).astype(np.float32)
        self.scaled_band = (_stack_bands(self.problem.scaled) / chance).astype(np.float32)
        self.penalty = kernel.Penalty(self.fixed_band.copy(), alpha, emphasis, local.dims)

    def epoch(self, rates: np.ndarray, rng: np.random.Generator) -> None:
        """Train on all rows once, then judge."""
        problem, state = self.problem, self.state
        band = np.multiply(self.scaled_band, np.float32(self.noise), out=self.penalty.band)
        band += self.fixed_band
        train_loss = kernel.train_epoch(
            state.parameters,
            state.moments,
            state.clock,
            state.gradients,
            problem.local.layout,
            self.rows,
            rng.permutation(len(problem.local)),
            self.batch,
            rates,
            np.float32(self.solver.average),
            problem.intercept.astype(np.float32),
            problem.loss.code,
            np.float32(problem.loss.shape),
            self.penalty,
            self.mask,
            self.always,
        )
        self._judge(float(train_loss), float(rates[-1]))

    def _judge(self, train_loss: float, rate: float) -> None:
        """Measure the averaged parameters and keep them if they are the best so far."""
        problem = self.problem
        parameters = self.state.averaged(self.solver.average, problem.n_outputs, self.spare)
        self.spare = parameters
        self.history["train_loss"].append(train_loss)
        self.history["learning_rate"].append(rate)
        self.latest = train_loss
        if problem.held_out is not None:
            raw = run(parameters, problem.intercept, problem.held_out.local)
            self.latest = problem.loss.value(problem.held_out.y, raw, problem.held_out.weight)
            self.history["validation_loss"].append(self.latest)
        if not (np.isfinite(self.latest) and np.isfinite(train_loss)):
            self.latest = np.inf
            return
        if problem.loss.location_scale:
            self.noise += _NOISE_PACE * (min(self.latest, 1.0) - self.noise)
        # Without held-out rows there is nothing to choose an epoch by: the last one counts.
        margin = self.solver.tol * abs(self.best_loss) if self.best_epoch >= 0 else 0.0
        if problem.held_out is None or self.latest < self.best_loss:
            if problem.held_out is None or self.latest < self.best_loss - margin:
                self.best_epoch = self.n_iter - 1
            # The two swap places: nothing as large as the table is allocated in every epoch.
            self.best, self.spare = parameters, self.best
            self.best_loss = self.latest

    @property
    def n_iter(self) -> int:
        """Epochs so far."""
        return len(self.history["train_loss"])

    @property
    def diverged(self) -> bool:
        """Whether the latest epoch left the numbers."""
        return self.n_iter > 0 and not np.isfinite(self.latest)

    def should_stop(self) -> bool:
        """Tell whether another epoch would be in vain."""
        patience = self.solver.n_iter_no_change
        waited = self.n_iter - 1 - self.best_epoch
        return self.diverged or (patience is not None and waited >= patience)

    def solution(self) -> Solution:
        """Return the best cores found."""
        message = ""
        if self.diverged:
            message = (
                f"Training diverged in epoch {self.n_iter}; the best epoch before that is kept. "
                f"Lower learning_rate (it was {self.solver.learning_rate:g}), or use a bounded "
                "map: 'hat', or Polynomial(normalize=True)."
            )
        cores = self.cores if self.best is None else self.cores.unpack(self.best)
        return Solution(
            replace(cores, intercept=self.problem.intercept),
            self.history,
            self.n_iter,
            not self.diverged,
            message,
            self.best_loss,
        )


def _flat_rows(rows: Rows) -> kernel.Rows:
    weight = rows.weight / rows.weight.mean()
    return kernel.Rows(
        rows.local.index.ravel(),
        rows.local.value.ravel(),
        np.ascontiguousarray(rows.y, dtype=np.float32),
        weight.astype(np.float32),
    )


def _stack(parts: list[np.ndarray]) -> np.ndarray:
    """Put arrays of the columns one below the other, with guard rows."""
    guard = np.zeros((GUARD, *parts[0].shape[1:]))
    return np.concatenate([guard, *parts, guard])


def _stack_bands(penalty: Banded) -> np.ndarray:
    return _stack(penalty.bands)
