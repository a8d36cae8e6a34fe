"""The training loop of every engine: schedule, evaluation, the best epoch, stopping."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from polyadic.data.features import LocalFeatures
from polyadic.kernels.cp import GUARD
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.contract import Deadline, Report, Solution

SCHEDULES = ("constant", "one_cycle")
# Where nothing else is said, chosen by hand.
# First estimate of the noise, the loss that remains, in variances of the target: that of a typical
# table. It is replaced by what is measured.
_FIRST_NOISE = 0.3
_WARM_UP = 0.1  # share of the steps of a one-cycle schedule before the peak
_LAST_RATE = 1e-3  # last learning rate, as a share of the peak
# Epochs without a check of the loss or of the time, at most, whatever `max_iter`; chosen by hand.
_MOST_UNCHECKED = 1000
_TINY = 1e-12  # keeps divisors away from zero
# Share by which the log weight of a column moves to its goal in an epoch; 0 turns weights off,
# which `benchmarks/ablation.py` measures.
_WEIGHT_PACE = 0.2
_WEIGHT_LIMIT = 5.0  # largest logarithm of a column's weight, positive or negative
# Without n_iter_no_change: stop when the loss is more than _FAR_ABOVE_BEST times the best, and the
# best is older than _WAITING_SHARE of all epochs. The end of the cycle lowers the loss by less.
_FAR_ABOVE_BEST, _WAITING_SHARE = 1.15, 0.25
_FAR_WORSE = 3.0  # a loss of more than this times that of a constant prediction counts as diverged


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train, and when to stop.

    Parameters
    ----------
    learning_rate : float
        Constant rate, or the peak of the one-cycle schedule.
    batch_size, max_iter : int
    schedule : "one_cycle" or "constant"
        One cycle: up to the peak in a tenth of the steps, then down along a cosine.
    ema_decay : float
        Weight of the past in the running average of the parameters; 0 turns averaging off.
    n_iter_no_change : int or None
        Stop after this many epochs without progress on the held-out rows. None: stop early only if
        the loss rises far above its best. In either case the best epoch is kept.
    tol : float
        Progress of less than this share of the loss does not count.
    deadline : Deadline or None
        Stop soon after `time.perf_counter` has reached this time, or it was stopped.
    max_checks : int or None
        How often to measure the loss, at most: on a small table that takes as long as an epoch.
        None: after every epoch.
    """

    learning_rate: float = 0.02
    batch_size: int = 128
    max_iter: int = 100
    schedule: str = "one_cycle"
    ema_decay: float = 0.99
    n_iter_no_change: int | None = None
    tol: float = 1e-5
    deadline: Deadline | None = None
    max_checks: int | None = None

    @property
    def epochs_per_check(self) -> int:
        """After how many epochs the loss is measured.

        >>> Schedule(max_iter=250, max_checks=100).epochs_per_check
        3
        """
        if self.max_checks is None:
            return 1
        return min(max(1, -(-self.max_iter // self.max_checks)), _MOST_UNCHECKED)

    def until(self, deadline: Deadline | None) -> Self:
        """Return the same solver with a deadline."""
        return replace(self, deadline=deadline)

    def continued(self, max_iter: int | None = None) -> Self:
        """Return what goes on from a solution, for this many epochs or sweeps."""
        return self if max_iter is None else replace(self, max_iter=max_iter)

    def lengthened(self, max_iter: int) -> Self:
        """Return the same solver with another number of epochs."""
        return replace(self, max_iter=max_iter)

    def with_rate(self, learning_rate: float) -> Self:
        """Return the same solver with another peak rate."""
        return replace(self, learning_rate=learning_rate)

    def rates(self, n_steps: int, first: int = 0, stop: int | None = None) -> np.ndarray:
        """Return the learning rates of n_steps steps, or of those from `first` to before `stop`.

        >>> Schedule(learning_rate=1.0).rates(20)[[0, 1, 2, 19]].round(3)
        array([0.5 , 1. , 0.992, 0.001], dtype=float32)
        """
        step = np.arange(first, n_steps if stop is None else min(stop, n_steps)) + 1
        if self.schedule == "constant":
            return np.full(len(step), self.learning_rate, dtype=np.float32)
        warm = max(1, int(_WARM_UP * n_steps))
        down = 0.5 * (1 + np.cos(np.pi * (step - warm) / max(1, n_steps - warm)))
        cycle = np.where(step <= warm, step / warm, _LAST_RATE + (1 - _LAST_RATE) * down)
        return (self.learning_rate * cycle).astype(np.float32)


class TrainingLoop(ABC):
    """One run, epoch by epoch. Subclasses define how to train, to average and to predict.

    `noise` is an estimate of the loss that will remain, renewed after each epoch for losses on the
    scale of the target. `train` multiplies by it the penalties `problem.scaled` and `problem.norm`,
    and the former by `row_weights` too.
    """

    noise_pace = 0.2  # share by which the noise moves to the measured loss in an epoch

    def __init__(
        self, settings: Schedule, problem: Problem, cores: Any, n_batches: int | None = None
    ):
        self.settings, self.problem, self.cores = settings, problem, cores
        self.batch = min(settings.batch_size, len(problem.local))
        # Of one epoch; given where the problem has a part of the rows only.
        self.n_batches = n_batches or -(-len(problem.local) // self.batch)
        self.noise = _FIRST_NOISE if problem.loss.location_scale else 0.5
        self.history: dict[str, list[float]] = {"train_loss": [], "learning_rate": []}
        if problem.held_out is not None:
            self.history["validation_loss"] = []
        self.log_weights = np.zeros(len(problem.local.dims))
        numbers = np.repeat(np.arange(len(self.log_weights)), problem.local.dims)
        # The column of every table row, (D,); guard rows have one of their own, of no weight.
        self.column_of_row = np.pad(numbers, GUARD, constant_values=len(self.log_weights))
        self.shares: np.ndarray | None = None
        self.best: Any = None
        self.spare: Any = None
        self.best_loss, self.best_epoch, self.latest = np.inf, -1, np.inf
        self.passes = 1  # epochs since the loss was measured before
        self.half_losses = [np.inf, np.inf]
        self.held_out_raw: np.ndarray | None = None

    @abstractmethod
    def train(self, rates: np.ndarray, rng: np.random.Generator) -> float:
        """Pass over all rows, and return the mean training loss, without penalties.

        rates : (n_batches,) is the learning rate of each batch of this epoch, in turn. Solvers with
        `max_checks` are given those of several epochs.
        """

    @abstractmethod
    def averaged(self, out: Any) -> Any:
        """Return the averaged parameters, written to `out` where that is not None."""

    @abstractmethod
    def predict(self, parameters: Any, local: LocalFeatures) -> np.ndarray:
        """Return raw : (n, L) of these parameters."""

    @abstractmethod
    def unpack(self, parameters: Any) -> Any:
        """Return the parameters as cores."""

    def squares(self, parameters: Any) -> np.ndarray | None:
        """Return the mean square over the terms of each table row, (D,); None if it is not used."""
        return None

    def run(
        self, rng: np.random.Generator, report: Report | None = None, resumed: bool = False
    ) -> Solution:
        """Train for all epochs, or until the held-out loss stops falling."""
        if resumed and self.problem.held_out is not None:
            self.best = self.averaged(None)
            self.best_loss = self.held_out_loss(self.best)
        n_batches, n_epochs = self.n_batches, self.settings.max_iter
        stride = self.settings.epochs_per_check
        for epoch in range(0, n_epochs, stride):
            self.passes = min(stride, n_epochs - epoch)
            # Not those of all epochs at once: there may be far more than will ever be run.
            part = (epoch * n_batches, (epoch + self.passes) * n_batches)
            steps = self.settings.rates(n_batches * n_epochs, *part)
            self.evaluate(self.train(steps, rng), float(steps[-1]))
            done = range(epoch, epoch + self.passes)
            asked = [] if report is None else [report(e, self.latest, self.current) for e in done]
            if any(asked) or self.should_stop():
                break
        return self.solution()

    def current(self) -> Any:
        """Return the cores as they are now."""
        return replace(self.unpack(self.averaged(None)), intercept=self.problem.intercept)

    def evaluate(self, train_loss: float, rate: float) -> None:
        """Measure the averaged parameters and keep them if they are the best so far."""
        problem = self.problem
        parameters = self.spare = self.averaged(self.spare)
        self.history["train_loss"] += [train_loss] * self.passes
        self.history["learning_rate"] += [rate] * self.passes
        self.latest = train_loss
        if problem.held_out is not None:
            self.latest = self.held_out_loss(parameters)
            self.history["validation_loss"] += [self.latest] * self.passes
        if not (np.isfinite(self.latest) and np.isfinite(train_loss)) or self.overflowed(
            parameters
        ):
            self.latest = np.inf
            return
        if problem.loss.location_scale:
            share = 1.0 - (1.0 - self.noise_pace) ** self.passes
            self.noise += share * (min(self.latest, 1.0) - self.noise)
        squares = self.squares(parameters)
        if squares is not None:
            self.weigh_columns(squares)
        # Without held-out rows there is nothing to choose an epoch by: keep the last.
        margin = self.settings.tol * abs(self.best_loss) if self.best_epoch >= 0 else 0.0
        last_counts = problem.held_out is None or problem.keep_last
        if last_counts or self.latest < self.best_loss:
            if last_counts or self.latest < self.best_loss - margin:
                self.best_epoch = self.n_iter - 1
            # The two are swapped, so that no array as large as the table is allocated per epoch.
            self.best, self.spare = parameters, self.best
            self.best_loss = self.latest

    def overflowed(self, parameters: Any) -> bool:
        """Tell whether parameters are infinite or NaN, as the training loss does not tell.

        That loss is of before the last step. One on held-out rows is of these parameters.
        """
        return self.problem.held_out is None and not self.finite(parameters)

    def finite(self, parameters: Any) -> bool:
        """Tell whether every number of the parameters is finite."""
        cores = self.unpack(parameters)
        arrays = [*cores.factors, *cores.extras, *(cores.additive or [])]
        return all(np.isfinite(array).all() for array in arrays)

    def weigh_columns(self, squares: np.ndarray) -> None:
        """Let penalties weigh more on columns whose factors are small.

        The weight of a column is the mean size of all columns' factors over the size of its own:
        columns without an effect are shrunk more, and those with an effect less.
        """
        if self.shares is None:
            self.shares = row_shares(self.problem.local)
        sizes = np.add.reduceat(self.shares * squares, self.problem.local.layout.first)
        goal = np.log(max(sizes.mean(), _TINY) / np.maximum(sizes, _TINY))
        goal = np.clip(goal, -_WEIGHT_LIMIT, _WEIGHT_LIMIT)
        share = 1.0 - (1.0 - _WEIGHT_PACE) ** self.passes
        self.log_weights += share * (goal - self.log_weights)

    def row_weights(self) -> np.ndarray:
        """Return the weight of the penalties `scaled`, for every table row, (D,)."""
        return np.append(np.exp(self.log_weights), 0.0)[self.column_of_row]

    def held_out_loss(self, parameters: Any) -> float:
        """Return the loss of these parameters on the held-out rows, and keep their predictions."""
        rows = self.problem.held_out
        assert rows is not None
        raw = self.predict(parameters, rows.local)
        self.keep_predictions(rows, raw)
        return self.problem.loss.value(rows.y, raw, rows.weight)

    def keep_predictions(self, rows: Rows, raw: np.ndarray) -> None:
        """Keep the predictions of each half of the rows if the other half is predicted best."""
        if self.problem.keep_last or len(raw) < 2 or self.held_out_raw is None:
            self.held_out_raw = raw.copy()
            if self.problem.keep_last or len(raw) < 2:
                return
        for half in range(2):
            own, other = slice(half, None, 2), slice(1 - half, None, 2)
            if not rows.weight[own].any():
                continue
            loss = self.problem.loss.value(rows.y[own], raw[own], rows.weight[own])
            if loss < self.half_losses[half]:
                self.half_losses[half] = loss
                self.held_out_raw[other] = raw[other]

    def constant_loss(self) -> float:
        """Return the loss of the intercept alone, on the held-out rows if there are any."""
        rows = self.problem.held_out or self.problem.rows
        raw = np.tile(self.problem.intercept, (len(rows.y), 1))
        return self.problem.loss.value(rows.y, raw, rows.weight)

    @property
    def n_iter(self) -> int:
        """Number of epochs so far."""
        return len(self.history["train_loss"])

    @property
    def diverged(self) -> bool:
        """Whether the latest loss is infinite or NaN."""
        return self.n_iter > 0 and not np.isfinite(self.latest)

    @property
    def useless(self) -> bool:
        """Whether the best loss is far above that of a constant prediction."""
        worst = _FAR_WORSE * max(abs(self.constant_loss()), 1.0)
        return self.n_iter > 0 and self.best_loss > worst

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        deadline = self.settings.deadline
        return deadline is not None and deadline.over

    @property
    def n_planned(self) -> int:
        """How often the loss is measured, if training is not cut short."""
        return self.settings.max_iter

    def should_stop(self) -> bool:
        """Return whether to stop now."""
        if self.out_of_time:
            return True
        patience = self.settings.n_iter_no_change
        waited = self.n_iter - 1 - self.best_epoch
        if patience is None:
            far = self.latest > _FAR_ABOVE_BEST * self.best_loss > 0
            return self.diverged or (far and waited >= _WAITING_SHARE * self.n_planned)
        return self.diverged or waited >= patience

    def advice(self) -> str:
        """Return what to change after a run that diverged."""
        told = (
            f"Lower learning_rate (it was {self.settings.learning_rate:g}). Where a column has a "
            "map without bounds, such as Polynomial, a bounded one may help too: 'hat', or "
            "Polynomial(normalize=True)."
        )
        if self.problem.order is not None:
            told += (
                " Lower order_alpha, order_beta or the degrees of the maps, too: the order penalty "
                "multiplies powers of order_beta over the columns, which may be beyond the range "
                "of numbers."
            )
        return told

    def solution(self) -> Solution:
        """Return the best cores found."""
        message = ""
        if self.diverged or self.useless:
            kept = "the start" if self.best is None else "the best epoch before that"
            message = f"Training diverged in epoch {self.n_iter}; {kept} is kept. {self.advice()}"
        cores = self.cores if self.best is None else self.unpack(self.best)
        return Solution(
            replace(cores, intercept=self.problem.intercept),
            self.history,
            self.n_iter,
            not message,
            message,
            self.best_loss,
            self.constant_loss(),
            self.held_out_raw,
        )


def row_shares(local: LocalFeatures) -> np.ndarray:
    """Return the share of the rows that use each table row, (D,), zero for implied constants."""
    share = local.counts() / len(local)
    share[local.layout.first[local.layout.constant]] = 0.0
    return share


def stack(parts: list[np.ndarray]) -> np.ndarray:
    """Stack one array per column, with guard rows before and after."""
    guard = np.zeros((GUARD, *parts[0].shape[1:]))
    return np.concatenate([guard, *parts, guard])
