"""The Poisson deviance, for counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyadic.kernels import losses as kernel
from polyadic.objective.losses.base import Loss

_LARGEST_EXPONENT = 60.0  # exp of 89 is infinite in float32; the same number as in kernels.losses


@dataclass(frozen=True)
class Poisson(Loss):
    """Poisson deviance, up to a constant, with a log link: exp(f) - y f."""

    code = kernel.POISSON
    link_name = "log"

    def check(self, y):
        """Refuse negative counts."""
        if np.any(y < 0):
            raise ValueError(
                f"loss='poisson' needs y >= 0, but the smallest y is {np.min(y):.6g}. "
                "Use loss='squared_error' or shift the target."
            )

    def torch_losses(self, y, raw):
        """Return exp(f) - y f, with exp(f) held constant where single precision would overflow."""
        rate, beyond = raw.clamp(max=_LARGEST_EXPONENT).exp(), (raw - _LARGEST_EXPONENT).relu()
        # Beyond the clamp exp(f) is constant but keeps its slope, so that gradients lead back.
        return (rate - y * raw + rate.detach() * (beyond - beyond.detach())).sum(1)

    def baseline(self, y, sample_weight):
        """Return the logarithm of the mean of each output."""
        return self._link_of_mean(y, sample_weight)
