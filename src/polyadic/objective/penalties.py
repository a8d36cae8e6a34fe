"""Penalties on the cores: one protocol, and one line in `PENALTIES` per kind.

L2 and smoothness are both quadratic forms sum_n tr(A' K_n A) with one banded K_n per
column, so one class is enough for both, and their bands add. The order penalty is the paper's. A
solver declares which kinds it can minimise, by their names here, and refuses the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from polyadic.maps.base import FeatureMap
    from polyadic.networks.cp import CPCores

# Largest emphasis. A larger one has no other effect, and its square would leave the float32 range.
_LARGEST_EMPHASIS = 1e12


class Penalty(Protocol):
    """The methods of every penalty."""

    def value(self, cores: CPCores) -> float:
        """Return the penalty."""
        ...

    def add_gradient(self, cores: CPCores, out: Sequence[np.ndarray]) -> None:
        """Add the gradient with respect to the factors to `out`, one array per factor."""
        ...

    def active(self) -> bool:
        """Return whether the penalty can be above zero."""
        ...


@dataclass(frozen=True)
class Banded:
    """Quadratic penalty sum_n tr(A^(n)' K_n A^(n)); bands[n] : (d_n, 5) is K_n about its diagonal.

    The additive part of a model is penalised in the same way as a factor.
    """

    bands: list[np.ndarray]

    def value(self, cores: CPCores) -> float:
        """Return the penalty."""
        parts = zip(self._matrices(cores), self._slopes(cores))
        return float(sum(np.sum(a * half) for a, half in parts))

    def add_gradient(self, cores: CPCores, out: Sequence[np.ndarray]) -> None:
        """Add the gradient to `out`, one array per factor, then one per additive part."""
        for target, half in zip(out, self._slopes(cores)):
            target += 2.0 * half

    def active(self) -> bool:
        """Return whether any band has a non-zero entry."""
        return any(np.any(band != 0) for band in self.bands)

    def __add__(self, other: Banded) -> Banded:
        return Banded([a + b for a, b in zip(self.bands, other.bands)])

    @staticmethod
    def _matrices(cores: CPCores) -> list[np.ndarray]:
        return [*cores.factors, *(cores.additive or [])]

    def _slopes(self, cores: CPCores) -> list[np.ndarray]:
        """Return K_n A^(n)."""
        bands = self.bands * (1 if cores.additive is None else 2)
        return [band_product(band, a) for band, a in zip(bands, self._matrices(cores))]


def band_product(band: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return K a for K given by its band : (d, 5), and a : (d, R)."""
    out = band[:, [2]] * a
    for shift in range(1, min(3, len(a))):
        if np.any(band[:, 2 + shift]):
            out[:-shift] += band[:-shift, [2 + shift]] * a[shift:]
        if np.any(band[:, 2 - shift]):
            out[shift:] += band[shift:, [2 - shift]] * a[:-shift]
    return out


@dataclass(frozen=True)
class Norm:
    """Norm of the weight tensor, strength * <W, (M_1 x ... x M_N) W>.

    metric[n] : (d_n, 5) is M_n about its diagonal. Unlike L2 and smoothness of the factors, it
    depends on the model alone, not on how the model is written as a sum of R terms.
    """

    strength: float
    metric: list[np.ndarray]

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
    map has an implied constant, and n_rows the effective number of rows.
    """

    precision: list[np.ndarray]
    constant: list[bool]
    n_rows: float

    def norm(self, interaction: float) -> Norm:
        """Return the prior as a penalty on the mean loss, to be multiplied by the noise."""
        metric = []
        for band, constant in zip(self.precision, self.constant):
            band = band / interaction
            if constant:
                band[0, 2] = 1.0
            metric.append(band)
        return Norm(interaction / self.n_rows, metric)


@dataclass(frozen=True)
class Order:
    """Order penalty alpha <B*W, B*W>: coefficients of higher order are penalised more.

    B is the outer product of the vectors in `emphasis`, b^(n) = beta ** degree (paper, section VI).
    The additive part of a model, of order one at most, is not penalised.
    """

    alpha: float
    emphasis: list[np.ndarray]

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


# The keys are the names by which solvers declare what they can minimise: see `Problem.penalties`.
PENALTIES: dict[str, type[Penalty]] = {
    "factors": Banded,
    "factors by noise": Banded,
    "order": Order,
    "tensor norm": Norm,
}


def ridge(maps: Sequence[FeatureMap], strength: float, many: float = np.inf) -> Banded:
    """Build the L2 penalty, strength * sum a^2, on all elements but implied constants.

    A numeric column of more than `many` elements is penalised like one of `many` elements: finer
    knots should not shrink the same curve more.

    Shrinking the constant element too would pull every product towards zero. Shrinking the others
    alone pulls a factor towards a constant, so that its column has no effect.
    """
    bands = [np.zeros((m.dim, 5)) for m in maps]
    for band, m in zip(bands, maps):
        share = min(1.0, many / m.dim) if m.kind == "numeric" else 1.0
        band[int(m.constant) :, 2] = share * strength
    return Banded(bands)


def smoothness(maps: Sequence[FeatureMap], strength: float) -> Banded:
    """Build the smoothness penalty, strength * (second differences along the knots)^2."""
    return Banded([strength * m.roughness for m in maps])


def emphasis(maps: Sequence[FeatureMap], beta: float) -> list[np.ndarray]:
    """Return b^(n) = beta ** degree for each column.

    >>> from polyadic.maps import Polynomial
    >>> emphasis([Polynomial(3)], 2.0)
    [array([1., 2., 4.])]
    """
    with np.errstate(over="ignore"):
        return [np.minimum(float(beta) ** m.degrees, _LARGEST_EMPHASIS) for m in maps]
