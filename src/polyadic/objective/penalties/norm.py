"""Norms of the weight tensor, and the prior that is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from polyadic.objective.penalties.banded import band_product
from polyadic.objective.penalties.base import Penalty

if TYPE_CHECKING:
    from polyadic.networks.cp import CPCores


@dataclass(frozen=True)
class Norm(Penalty):
    """Norm of the weight tensor, strength * <W, (M_1 x ... x M_N) W>.

    metric[n] : (d_n, 5) is M_n about its diagonal. Unlike L2 and smoothness of the factors, it
    depends on the model alone, not on how the model is written as a sum of R terms.
    """

    strength: float
    metric: list[np.ndarray]

    name = "tensor norm"
    set_by: ClassVar[str] = "the prior on the weight tensor, of solver='als'"

    def value(self, cores: CPCores) -> float:
        """Return the penalty, from the R x R Gram matrices A' M A of all columns."""
        gram = np.ones((cores.rank, cores.rank))
        for band, a in zip(self.metric, cores.factors):
            gram *= a.T @ band_product(band, a)
        return self.strength * float(np.sum(cores.weights * (gram @ cores.weights)))

    def add_gradient(self, cores: CPCores, out: Sequence[np.ndarray]) -> None:
        """Add the gradient with respect to the factors: 2 M A (C C' * other Gram matrices)."""
        slopes = [band_product(band, a) for band, a in zip(self.metric, cores.factors)]
        grams = [a.T @ slope for a, slope in zip(cores.factors, slopes)]
        behind = [cores.weights @ cores.weights.T]  # times the Gram matrices of later columns
        for gram in grams[:0:-1]:
            behind.append(behind[-1] * gram)
        ahead = np.ones_like(behind[0])
        for target, slope, gram, rest in zip(out, slopes, grams, reversed(behind)):
            target += 2.0 * self.strength * slope @ (ahead * rest)
            ahead = ahead * gram

    def active(self) -> bool:
        """Return whether the strength is above zero."""
        return self.strength > 0


@dataclass(frozen=True)
class Prior:
    """A prior of the weight tensor, see `polyadic.objective.prior`.

    precision[n] : (d_n, 5) is the precision of the main effect of column n, constant[n] whether its
    map has an implied constant, and n_rows the effective number of rows. effects[n] : (d_n, L) are
    the main effects of the additive model from which the precisions were learnt.
    """

    precision: list[np.ndarray]
    constant: list[bool]
    n_rows: float
    effects: list[np.ndarray]

    def restricted(self, columns: Sequence[int]) -> Prior:
        """Return the prior of these columns."""
        return Prior(
            [self.precision[n] for n in columns],
            [self.constant[n] for n in columns],
            self.n_rows,
            [self.effects[n] for n in columns],
        )

    def norm(self, interaction: float) -> Norm:
        """Return the prior as a penalty on the mean loss, to be multiplied by the noise."""
        metric = []
        for band, constant in zip(self.precision, self.constant):
            band = band / interaction
            if constant:
                band[0, 2] = 1.0
            metric.append(band)
        return Norm(interaction / self.n_rows, metric)
