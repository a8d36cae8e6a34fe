"""The logistic loss, for two classes."""

from __future__ import annotations

from dataclasses import dataclass

from polyadic.kernels import losses as kernel
from polyadic.objective.losses.base import Loss


@dataclass(frozen=True)
class Logistic(Loss):
    """Logistic loss of y in {0, 1}; the inverse link gives the probability of class 1."""

    code = kernel.LOGISTIC
    link_name = "logit"
    targets = ("two classes",)
    exact_curvature = True

    def torch_losses(self, y, raw):
        """Return log(1 + exp(f)) - y f."""
        from torch.nn import functional

        return (functional.softplus(raw) - y * raw).sum(1)

    def baseline(self, y, sample_weight):
        """Return the link of the share of class 1 of each output."""
        return self._link_of_mean(y, sample_weight)
