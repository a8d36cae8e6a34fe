"""The problem that a solver is given: rows, a loss and penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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

    def unit_weights(self, unit: float = 0.0) -> np.ndarray:
        """Return the weights in units of one row, (n,); a unit of 0 stands for their mean."""
        return self.weight / (unit or self.weight.mean())


@dataclass(frozen=True)
class Problem:
    """Minimise the mean loss plus penalties over the cores.

    Penalties "by noise", and the norm of the weight tensor, are multiplied by the solver's estimate
    of the noise, the loss on held-out rows: with the same constants, noisy tables are then smoothed
    more than clean ones.
    """

    rows: Rows
    held_out: Rows | None
    loss: Loss
    intercept: np.ndarray  # (L,)
    degrees: list[np.ndarray]
    penalties: tuple[Penalty, ...] = ()
    two_classes: bool = False  # y are two classes; -1 and +1 under the squared error
    separate: bool = False  # L separate tensors, or one tensor with L outputs
    weight_unit: float = 0.0  # the weight of one row; 0 stands for the rows' mean
    extras_l2: float = 0.0  # strength of L2 on the arrays of a network that belong to no column
    effective_rows: float = 0.0  # how many rows of weight one the training rows count as
    prior: Prior | None = None  # of the weight tensor, learnt from the rows
    keep_last: bool = False  # the last epoch counts, whatever the held-out rows say

    def penalised(self, *more: Penalty) -> Problem:
        """Return the problem with these penalties added, if they are not zero."""
        return replace(self, penalties=(*self.penalties, *(p for p in more if p.active())))

    @property
    def fixed(self) -> Banded:
        """The quadratic penalties on the factors that do not follow the noise, as one."""
        return self._banded(by_noise=False)

    @property
    def scaled(self) -> Banded:
        """The quadratic penalties on the factors that are multiplied by the noise, as one."""
        return self._banded(by_noise=True)

    def _banded(self, by_noise: bool) -> Banded:
        zero = Banded([np.zeros((len(degrees), 5)) for degrees in self.degrees], by_noise)
        own = (p for p in self.penalties if isinstance(p, Banded) and p.by_noise == by_noise)
        return sum(own, start=zero)

    @property
    def order(self) -> Order | None:
        """The order penalty, if there is one."""
        return next((p for p in self.penalties if isinstance(p, Order)), None)

    @property
    def norm(self) -> Norm | None:
        """The norm of the weight tensor, if there is one; it is multiplied by the noise."""
        return next((p for p in self.penalties if isinstance(p, Norm)), None)

    def unit_weights(self) -> np.ndarray:
        """Return the weights of the training rows in units of one row, (n,)."""
        return self.rows.unit_weights(self.weight_unit)

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
