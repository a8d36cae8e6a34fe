"""What a solver is given and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from polyadic.local import LocalFeatures
from polyadic.losses import Loss
from polyadic.penalties import Banded, Norm, Order, Prior


@dataclass(frozen=True)
class Rows:
    """Rows to learn from or to be judged on."""

    local: LocalFeatures
    y: np.ndarray  # (n, L), for softmax (n, 1)
    weight: np.ndarray  # (n,)


@dataclass(frozen=True)
class Problem:
    """Minimise the mean loss plus penalties over the cores.

    `scaled` is multiplied with the solver's estimate of the noise, the loss that is left on
    held-out rows: noisy tables are then smoothed more than clean ones by the same constants.
    """

    rows: Rows
    held_out: Rows | None
    loss: Loss
    intercept: np.ndarray  # (L,)
    degrees: list[np.ndarray]
    fixed: Banded
    scaled: Banded
    order: Order | None = None
    separate: bool = False  # L tensors of their own, or one with L outputs
    weight_unit: float = 0.0  # the weight of one row; 0 stands for the rows' mean
    extras_l2: float = 0.0  # on the arrays of a network that belong to no column
    worth: float = 0.0  # how many rows the training rows are worth
    prior: Prior | None = None  # of the weight tensor, as the rows tell it
    norm: Norm | None = None  # the prior as a penalty, times the noise; for least squares alone

    def unit_weights(self) -> np.ndarray:
        """Return the weights of the training rows in units of one row, (n,)."""
        return self.rows.weight / (self.weight_unit or self.rows.weight.mean())

    @property
    def local(self) -> LocalFeatures:
        """Local features of the training rows."""
        return self.rows.local

    @property
    def y(self) -> np.ndarray:
        """Targets of the training rows."""
        return self.rows.y

    @property
    def weight(self) -> np.ndarray:
        """Weights of the training rows."""
        return self.rows.weight

    @property
    def n_outputs(self) -> int:
        """Number of outputs L."""
        return len(self.intercept)


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
