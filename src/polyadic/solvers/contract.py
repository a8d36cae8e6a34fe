"""The protocol of solvers, and what they return."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from polyadic.maps.base import FeatureMap
from polyadic.objective.losses import Loss
from polyadic.objective.problem import Problem


class FitStopped(Exception):
    """Raised in the threads of a fit that an error has stopped: nobody waits for their results."""


class Deadline(float):
    """A time of `time.perf_counter` at which a fit ends, or earlier, where it is stopped.

    >>> deadline = Deadline(np.inf)
    >>> deadline.over
    False
    >>> deadline.stop()
    >>> deadline.over
    True
    """

    stopped = False

    def stop(self) -> None:
        """Let the deadline be over now, for all threads that look at it."""
        self.stopped = True

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return self.stopped or time.perf_counter() >= self

    def leave_if_stopped(self) -> None:
        """End the thread that calls this, if the fit was stopped."""
        if self.stopped:
            raise FitStopped


@dataclass
class Solution:
    """The cores that a solver found, the history of its run, and whether it succeeded."""

    cores: Any
    history: dict[str, list[float]] = field(default_factory=dict)
    n_iter: int = 0
    converged: bool = True
    message: str = ""
    loss: float = np.inf  # on the held-out rows if there are any, else on the training rows
    constant_loss: float = np.inf  # of the intercept alone, on the same rows
    # Raw predictions of the held-out rows, (m, L): those of one half of the rows at the epoch that
    # was best on the other half. The best epoch on all of them looks better than it is.
    held_out: np.ndarray | None = field(default=None, repr=False)


# Called after each epoch with its number, its loss, and a function that returns the cores as they
# are now; returns whether to stop.
Report = Callable[[int, float, Callable[[], Any]], bool]


class SolverSettings(Protocol):
    """What a solver may ask about the fit that it is made for: see `training.decisions`."""

    maps: Sequence[FeatureMap]
    width: int  # numbers per element of a core
    usual_sweeps: int
    n_threads: int | None

    @property
    def max_checks(self) -> int | None:
        """How often to measure the loss at most: see `loop.Schedule`."""
        ...

    @property
    def solver(self) -> str:
        """The parameter by which it was chosen: a name, or "auto"."""
        ...

    @property
    def device(self) -> str:
        """The device of the torch engine."""
        ...

    def epochs(self, usual_rate: float | None = None) -> dict[str, Any]:
        """Return the fields of `loop.Schedule`, for a solver that trains in epochs."""
        ...

    def sweeps(self, usual_patience: int) -> dict[str, Any]:
        """Return `n_iter_no_change` and `tol`, for a solver that trains in sweeps."""
        ...

    def decide(self, name: str, auto: Any, why: str) -> Any:
        """Return a parameter, or the value of "auto", and note it in the plan."""
        ...

    def note(self, name: str, value: Any, why: str) -> Any:
        """Note in the plan what was chosen, and return it."""
        ...


class Solver(Protocol):
    """Anything that improves initial cores, and declares what it can minimise."""

    name: ClassVar[str]  # for error messages: the parameter that selects it
    loss_forms: ClassVar[tuple[str, ...]]  # that it needs: see `polyadic.objective.losses.FORMS`
    penalties: ClassVar[tuple[str, ...]]  # that it can minimise: see `PENALTIES`
    # Which kernels it runs, "epochs" or "sweeps", to compile them ahead; () for others.
    phases: ClassVar[tuple[str, ...]]

    @classmethod
    def from_settings(cls, settings: SolverSettings) -> Solver:
        """Return the solver of a fit."""
        ...

    @property
    def max_iter(self) -> int:
        """Largest number of epochs."""
        ...

    def until(self, deadline: Deadline | None) -> Self:
        """Return the same solver with a deadline: see `loop.Schedule`."""
        ...

    def continued(self, max_iter: int | None = None) -> Solver:
        """Return what goes on from a solution, for this many epochs or sweeps."""
        ...

    def lengthened(self, max_iter: int) -> Self:
        """Return the same solver with another number of epochs."""
        ...

    def with_rate(self, learning_rate: float) -> Self:
        """Return the same solver with another peak rate."""
        ...

    def solve(
        self,
        problem: Problem,
        cores: Any,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None = None,
        state: Any = None,
        resumed: bool = False,
    ) -> Solution:
        """Minimise the problem's objective, starting from `cores`, or from `state` if given.

        Penalties "by noise", and the norm of the weight tensor, are multiplied by the noise:
        `TrainingLoop.noise`, which the loop estimates.

        Parameters
        ----------
        free : array or None
            Of the shape of the output weights, the last extra array: 1 for those that may move, 0
            for those that must keep their value, so that separate outputs stay apart; None if all
            may move.
        report : callable, optional
            Called after each epoch with its number, its loss, and a function that returns the
            cores as they are now; training stops where it returns True.
        state : optional
            Of an earlier call: Adam's for `partial_fit`, and what the first of two solvers found.
        resumed : bool
            Whether `cores` are a fitted model: the start is returned if no epoch is better.
        """
        ...


def check_loss(solver: Solver, loss: Loss, many_classes: bool) -> None:
    """Refuse a loss that lacks a form that the solver needs."""
    for form in solver.loss_forms:
        loss.require(form, solver.name, many_classes)


def check(solver: Solver, problem: Problem) -> None:
    """Refuse, before training, a loss or a penalty that the solver cannot minimise."""
    check_loss(solver, problem.loss, problem.y.shape[1] < problem.n_outputs)
    for penalty in problem.penalties:
        if penalty.name in solver.penalties or ("torch" in solver.loss_forms and penalty.has_torch):
            continue
        by = f" (set by {penalty.set_by})" if penalty.set_by else ""
        raise ValueError(
            f"{solver.name} cannot minimise the penalty {penalty.name!r}{by}. "
            f"It has: {', '.join(solver.penalties)}."
        )
