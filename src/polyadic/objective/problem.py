"""The problem that a solver is given: rows, a loss and penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyadic.data.features import LocalFeatures, encode
from polyadic.data.rows import CodedRows
from polyadic.maps.base import FeatureMap
from polyadic.objective.losses import Loss
from polyadic.objective.penalties import Banded, Norm, Order, Penalty, Prior


@dataclass(frozen=True)
class Rows:
    """Rows to train on or to evaluate on, with their local features."""

    local: LocalFeatures
    y: np.ndarray  # (n, L), for softmax (n, 1)
    weight: np.ndarray  # (n,)

    @classmethod
    def encode(cls, rows: CodedRows, maps: Sequence[FeatureMap]) -> Rows:
        """Encode coded columns with the maps."""
        return cls(encode(maps, rows.columns), rows.y, rows.weight)


@dataclass(frozen=True)
class Problem:
    """Minimise the mean loss plus penalties over the cores.

    `fixed` and `scaled` are L2 and smoothness penalties on the factors. `scaled` is multiplied by
    the solver's estimate of the noise, the loss on held-out rows: with the same constants, noisy
    tables are then smoothed more than clean ones.
    """

    rows: Rows
    held_out: Rows | None
    loss: Loss
    intercept: np.ndarray  # (L,)
    degrees: list[np.ndarray]
    fixed: Banded
    scaled: Banded
    order: Order | None = None
    separate: bool = False  # L separate tensors, or one tensor with L outputs
    weight_unit: float = 0.0  # the weight of one row; 0 stands for the rows' mean
    extras_l2: float = 0.0  # strength of L2 on the arrays of a network that belong to no column
    effective_rows: float = 0.0  # how many rows of weight one the training rows count as
    prior: Prior | None = None  # of the weight tensor, learnt from the rows
    norm: Norm | None = None  # the prior as a penalty, multiplied by the noise

    def penalties(self) -> dict[str, Penalty]:
        """Return the penalties that are not zero, by their names in `PENALTIES`."""
        every = {
            "factors": self.fixed,
            "factors by noise": self.scaled,
            "order": self.order,
            "tensor norm": self.norm,
        }
        return {name: p for name, p in every.items() if p is not None and p.active()}

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
