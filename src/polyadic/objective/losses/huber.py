"""The Huber loss."""

from __future__ import annotations

from dataclasses import dataclass

from polyadic.kernels import losses as kernel
from polyadic.objective.losses.base import Loss


@dataclass(frozen=True)
class Huber(Loss):
    """Squared error up to `width` standard deviations of the target, linear beyond."""

    width: float = 1.35
    code = kernel.HUBER
    location_scale = True
    best_baseline = False  # the mean needs no iterations, and the cores learn the difference

    def __post_init__(self):
        if not self.width > 0:
            raise ValueError(f"Huber width must be positive, got {self.width!r}.")

    @property
    def shape(self) -> float:
        """The width."""
        return self.width

    def torch_losses(self, y, raw):
        """Return squares up to the width, and their tangent beyond it."""
        import torch

        error = raw - y
        size = error.abs()
        beyond = self.width * (2 * size - self.width)
        return torch.where(size <= self.width, error * error, beyond).sum(1)

    def baseline(self, y, sample_weight):
        """Return the mean of each output, which is close to the best constant."""
        return self._link_of_mean(y, sample_weight)
