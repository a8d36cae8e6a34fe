"""What a solver must be able to do, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    """Anything that turns initial cores into better ones."""

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
