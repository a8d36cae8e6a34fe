"""The paper's order penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from polyadic.objective.penalties.base import Penalty
from polyadic.objective.penalties.norm import Norm

if TYPE_CHECKING:
    from polyadic.maps.base import FeatureMap
    from polyadic.networks.cp import CPCores

# Largest emphasis. A larger one has no other effect, and its square would leave the float32 range.
_LARGEST_EMPHASIS = 1e12


@dataclass(frozen=True)
class Order(Penalty):
    """Order penalty alpha <B*W, B*W>: coefficients of higher order are penalised more.

    B is the outer product of the vectors in `emphasis`, b^(n) = beta ** degree (paper, section VI).
    The additive part of a model, of order one at most, is not penalised.
    """

    alpha: float
    emphasis: list[np.ndarray]

    name = "order"
    set_by: ClassVar[str] = "order_alpha > 0"

    def as_norm(self) -> Norm:
        """Return the same penalty as a norm: M_n is diagonal, with b^(n) squared."""
        metric = [np.zeros((len(b), 5)) for b in self.emphasis]
        for band, b in zip(metric, self.emphasis):
            band[:, 2] = b**2
        return Norm(self.alpha, metric)

    def value(self, cores: CPCores) -> float:
        """Return the penalty, by the paper's Algorithm 3."""
        return self.alpha * cores.order_norm(self.emphasis)

    def add_gradient(self, cores: CPCores, out: Sequence[np.ndarray]) -> None:
        """Add the gradient with respect to the factors to `out`, by the paper's Algorithm 4."""
        _, slope = cores.order_gradient(self.emphasis)
        for target, gradient in zip(out, slope.factors):
            target += self.alpha * gradient

    def active(self) -> bool:
        """Return whether the strength is above zero."""
        return self.alpha > 0


def emphasis(maps: Sequence[FeatureMap], beta: float) -> list[np.ndarray]:
    """Return b^(n) = beta ** degree for each column.

    >>> from polyadic.maps import Polynomial
    >>> emphasis([Polynomial(3)], 2.0)
    [array([1., 2., 4.])]
    """
    with np.errstate(over="ignore"):
        return [np.minimum(float(beta) ** m.degrees, _LARGEST_EMPHASIS) for m in maps]
