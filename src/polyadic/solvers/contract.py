"""What a solver must be able to do, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from polyadic.objective.problem import Problem


@dataclass
class Solution:
    """Cores, how they came about, and whether all went well."""

    cores: Any
    history: dict[str, list[float]] = field(default_factory=dict)
    n_iter: int = 0
    converged: bool = True
    message: str = ""
    loss: float = np.inf  # on the held-out rows where there are any


Report = Callable[[int, float], None]  # called after each epoch with its number and its loss


class Solver(Protocol):
    """Anything that turns initial cores into better ones, and says what it can minimise."""

    name: ClassVar[str]  # in error messages: the parameter that chooses it
    loss_forms: ClassVar[tuple[str, ...]]  # that it needs, see `polyadic.objective.losses.FORMS`
    penalties: ClassVar[tuple[str, ...]]  # that it can minimise, see `PENALTIES`

    @property
    def max_iter(self) -> int:
        """How many epochs it may take."""
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
        """Minimise the problem's objective, starting from `cores`, or from where `state` is.

        A resumed run counts its start among the epochs to choose from.
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
                f"It has: {', '.join(solver.penalties)}."
            )


# What a user has set to ask for a penalty.
_SET_BY = {
    "factors": ", which l2 or smoothness ask for if they are numbers above 0",
    "factors by noise": ", which l2='auto' and smoothness='auto' ask for",
    "order": ", which order_alpha > 0 asks for",
    "tensor norm": ", the prior on the weight tensor, which is for solver='als'",
}
