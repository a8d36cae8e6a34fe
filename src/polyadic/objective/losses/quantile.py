"""The pinball loss of a quantile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyadic.kernels import losses as kernel
from polyadic.objective.losses.base import Loss


@dataclass(frozen=True)
class Quantile(Loss):
    """Pinball loss of a quantile level, doubled: level 1/2 is the absolute error.

    >>> Quantile(0.9).value(np.array([[1.0]]), np.array([[0.0]]))
    1.8
    """

    level: float = 0.5
    code = kernel.QUANTILE
    location_scale = True

    def __post_init__(self):
        if not 0 < self.level < 1:
            raise ValueError(f"Quantile level must lie between 0 and 1, got {self.level!r}.")

    @property
    def shape(self) -> float:
        """The level."""
        return self.level

    def torch_losses(self, y, raw):
        """Return 2 (1 - level) times the error if it is positive, else -2 level times the error."""
        error = raw - y
        return (2 * ((1 - self.level) * error.relu() + self.level * (-error).relu())).sum(1)

    def baseline(self, y, sample_weight):
        """Return the weighted quantile of each output."""
        order = np.argsort(y, axis=0)
        reached = np.cumsum(sample_weight[order], axis=0) >= self.level * sample_weight.sum()
        first = np.argmax(reached, axis=0)
        columns = np.arange(y.shape[1])
        return y[order[first, columns], columns]
