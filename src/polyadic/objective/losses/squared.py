"""The squared error."""

from __future__ import annotations

from dataclasses import dataclass

from polyadic.kernels import losses as kernel
from polyadic.objective.losses.base import Loss


@dataclass(frozen=True)
class SquaredError(Loss):
    """Squared error (f - y)^2, as in the paper: not halved.

    >>> import numpy as np
    >>> SquaredError().value(np.array([[1.0]]), np.array([[3.0]]))
    4.0
    """

    code = kernel.SQUARED
    targets = ("numbers", "classes")
    location_scale = True
    quadratic = True
    exact_curvature = True
    shared_curvature = True

    def torch_losses(self, y, raw):
        """Return the squared errors."""
        error = raw - y
        return (error * error).sum(1)

    def baseline(self, y, sample_weight):
        """Return the mean of each output."""
        return self._link_of_mean(y, sample_weight)
