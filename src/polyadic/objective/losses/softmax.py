"""The cross-entropy, for several classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyadic.kernels import losses as kernel
from polyadic.objective.losses.base import Loss


@dataclass(frozen=True)
class Softmax(Loss):
    """Cross-entropy over L classes; y : (n, 1) is the number of the class."""

    n_classes: int = 0
    code = kernel.SOFTMAX
    link_name = "softmax"
    targets = ("classes",)
    shared_curvature = True

    def torch_losses(self, y, raw):
        """Return the cross-entropy of each row."""
        from torch.nn import functional

        return functional.cross_entropy(raw, y[:, 0].long(), reduction="none")

    def baseline(self, y, sample_weight):
        """Return the centred logarithms of the class shares."""
        number = y[:, 0].astype(int)
        shares = np.bincount(number, weights=sample_weight, minlength=self.n_classes)
        return self.link(shares / shares.sum())
