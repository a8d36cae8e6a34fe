"""Two solvers, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from polyadic.data.features import LocalFeatures
from polyadic.networks.cp import CPCores
from polyadic.objective.problem import Problem
from polyadic.solvers.adam import Adam
from polyadic.solvers.als import ALS, MAX_SWEEPS, PATIENCE
from polyadic.solvers.blocks import sweep_cost
from polyadic.solvers.contract import Deadline, Report, Solution, Solver, SolverSettings, check

_START_SWEEPS = 1  # of "als+adam": a second sweep costs more than it gains
_UNBALANCED = 4.0  # a factor more than this times larger or smaller than one; chosen by hand
_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Sequence(ABC):
    """Train with one solver, and continue with another from its solution."""

    first: Solver
    second: Solver

    name: ClassVar[str]
    adam: ClassVar[str]  # which of the two is Adam
    loss_forms: ClassVar[tuple[str, ...]] = ("compiled", "curvature")
    penalties: ClassVar[tuple[str, ...]] = tuple(n for n in Adam.penalties if n in ALS.penalties)
    phases: ClassVar[tuple[str, ...]] = ("epochs", "sweeps")

    @property
    def max_iter(self) -> int:
        """Largest number of epochs and sweeps together."""
        return self.first.max_iter + self.second.max_iter

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: SolverSettings) -> Solver:
        """Return the solver of a fit."""

    def until(self, deadline: Deadline | None) -> Self:
        """Return the same solver with a deadline."""
        return replace(self, first=self.first.until(deadline), second=self.second.until(deadline))

    def continued(self, max_iter: int | None = None) -> Solver:
        """Return Adam alone: that is what goes on from a solution."""
        return getattr(self, self.adam).continued(max_iter)

    def lengthened(self, max_iter: int) -> Self:
        """Return the same solver with another number of epochs of Adam."""
        return replace(self, **{self.adam: getattr(self, self.adam).lengthened(max_iter)})

    def with_rate(self, learning_rate: float) -> Self:
        """Return the same solver with another peak rate of Adam."""
        return replace(self, **{self.adam: getattr(self, self.adam).with_rate(learning_rate)})

    @abstractmethod
    def go_on(
        self,
        problem: Problem,
        first: Solution,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None,
    ) -> Solution:
        """Return the second solver's solution, or the first one's if the second does not run."""

    def solve(
        self,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None = None,
        state: Solution | None = None,
        resumed: bool = False,
    ) -> Solution:
        """Minimise the problem's objective, starting from `cores`.

        `state` is the solution of the first solver, where it is known.
        """
        check(self, problem)
        asked: list[bool] = []  # to stop, after each epoch of the first solver

        def noted(epoch: int, loss: float, current: Callable[[], Any]) -> bool:
            asked.append(report is not None and report(epoch, loss, current))
            return asked[-1]

        if state is None:
            first = self.first.solve(problem, cores, free, rng, report and noted, resumed=resumed)
        else:
            first = state
            losses = first.history.get("validation_loss", first.history["train_loss"])
            for epoch, loss in enumerate(losses):
                noted(epoch, loss if first.converged else np.inf, lambda: first.cores)
        if any(asked):
            return first
        later = None if report is None else lambda e, v, c: report(first.n_iter + e, v, c)
        second = self.go_on(problem, first, free, rng, later)
        if second is first:
            return first
        history = {name: values + second.history[name] for name, values in first.history.items()}
        return replace(second, history=history, n_iter=first.n_iter + second.n_iter)


@dataclass(frozen=True)
class AlsThenAdam(Sequence):
    """A few sweeps, then Adam from the cores that they found."""

    first: ALS
    second: Adam

    name: ClassVar[str] = "solver='als+adam'"
    adam: ClassVar[str] = "second"

    @classmethod
    def from_settings(cls, settings: SolverSettings) -> AlsThenAdam:
        """Return the solver of a fit."""
        return cls(ALS(max_iter=_START_SWEEPS), Adam.from_settings(settings))

    def go_on(self, problem, first, free, rng, report):
        """Run Adam; the result of the sweeps is kept if no epoch is better."""
        start = balanced(first.cores, problem.local)
        return self.second.solve(problem, start, free, rng, report, resumed=True)


@dataclass(frozen=True)
class AdamThenAls(Sequence):
    """Adam, then sweeps from the cores that it found.

    Single precision, averaging and the last learning rates keep Adam away from the minimum; sweeps
    go to the minimum. The result of Adam is kept unless sweeps are better on the held-out rows.
    Without held-out rows there are no sweeps, since nothing could show that they overfit.
    """

    first: Adam
    second: ALS

    name: ClassVar[str] = "solver='adam+als'"
    adam: ClassVar[str] = "first"

    @classmethod
    def from_settings(cls, settings: SolverSettings) -> Solver:
        """Return the solver of a fit, with sweeps that take no longer than Adam."""
        adam = Adam.from_settings(settings)
        sweeps = int(adam.max_iter / sweep_cost(settings.maps, settings.width))
        if settings.solver != "auto":
            sweeps = max(1, sweeps)
        sweeps = settings.note("sweeps", min(sweeps, MAX_SWEEPS), "that take no longer than Adam")
        return cls(adam, ALS(max_iter=sweeps, **settings.sweeps(PATIENCE))) if sweeps else adam

    def go_on(self, problem, first, free, rng, report):
        """Run sweeps, with the noise that Adam has measured."""
        if problem.held_out is None or not first.converged:
            return first
        return self.second.go_on(problem, first, free, rng, report)


def balanced(cores: CPCores, local: LocalFeatures) -> CPCores:
    """Return the same model, with the factors of unbalanced terms scaled to mean square one.

    For normal equations it does not matter how the size of a term is shared among factors and
    weights. For Adam it does, since its steps have the same length for every entry.
    """
    sizes = []
    counts = np.split(local.counts(), local.layout.first)[1:]
    for factor, count, constant in zip(cores.factors, counts, local.layout.constant):
        values, share = factor, count[: len(factor)].astype(float)
        if constant and len(factor) > 1:
            values, share = factor[0] + factor[1:], share[1:]
        size = np.sqrt(share @ values**2 / max(share.sum(), _TINY))
        sizes.append(size)
    return balanced_by(cores, sizes)


def balanced_by(cores: CPCores, sizes: list[np.ndarray]) -> CPCores:
    """Return the same model, with the factors of unbalanced terms divided by their sizes, N (R,).

    A size is the root of the mean square of a factor, or zero for one that is to stay as it is.
    """
    sizes = [np.where(size > 0, size, 1.0) for size in sizes]
    unbalanced = np.max(np.abs(np.log(sizes)), axis=0) > np.log(_UNBALANCED)
    sizes = [np.where(unbalanced, size, 1.0) for size in sizes]
    factors = [factor / size for factor, size in zip(cores.factors, sizes)]
    return replace(cores, factors=factors, weights=cores.weights * np.prod(sizes, axis=0)[:, None])
