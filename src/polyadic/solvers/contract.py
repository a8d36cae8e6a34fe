"""The protocol of solvers, and what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from polyadic.objective.problem import Problem


@dataclass
class Solution:
    """The cores that a solver found, the history of its run, and whether it succeeded."""

    cores: Any
    history: dict[str, list[float]] = field(default_factory=dict)
    n_iter: int = 0
    converged: bool = True
    message: str = ""
    loss: float = np.inf  # on the held-out rows if there are any, else on the training rows


Report = Callable[[int, float], None]  # called after each epoch with its number and its loss


class Solver(Protocol):
    """Anything that improves initial cores, and declares what it can minimise."""

    name: ClassVar[str]  # for error messages: the parameter that selects it
    loss_forms: ClassVar[tuple[str, ...]]  # that it needs: see `polyadic.objective.losses.FORMS`
    penalties: ClassVar[tuple[str, ...]]  # that it can minimise: see `PENALTIES`

    @property
    def max_iter(self) -> int:
        """Largest number of epochs."""
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

        `free` : (R, L) is one for the output weights that may move; None for all. `report` is
        called after each epoch. A resumed run may also return its start, if no epoch is better.
        """
        ...


def check(solver: Solver, problem: Problem) -> None:
    """Refuse, before training, a loss or a penalty that the solver cannot minimise."""
    for form in solver.loss_forms:
        problem.loss.require(form, solver.name)
    for name in problem.penalties():
        if name not in solver.penalties:
            raise ValueError(
                f"{solver.name} cannot minimise the penalty {name!r}{_SET_BY[name]}. "
                f"It can minimise: {', '.join(solver.penalties)}."
            )


# Which parameters of an estimator cause a penalty, for the error message.
_SET_BY = {
    "factors": ", which l2 or smoothness ask for if they are numbers above 0",
    "factors by noise": ", which l2='auto' and smoothness='auto' ask for",
    "order": ", which order_alpha > 0 asks for",
    "tensor norm": ", the prior on the weight tensor, which is for solver='als'",
}
