"""L2 and smoothness: quadratic forms of the factors, with one banded matrix per column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from polyadic.kernels.banded import band_times
from polyadic.objective.penalties.base import Penalty

if TYPE_CHECKING:
    from polyadic.maps.base import FeatureMap
    from polyadic.networks.cp import CPCores


@dataclass(frozen=True)
class Banded(Penalty):
    """Quadratic penalty sum_n tr(A^(n)' K_n A^(n)); bands[n] : (d_n, 5) is K_n about its diagonal.

    The additive part of a model is penalised in the same way as a factor. L2 and smoothness are
    both of this form, and their bands add.
    """

    bands: list[np.ndarray]
    by_noise: bool = False  # whether solvers multiply it by their estimate of the noise

    set_by: ClassVar[str] = "l2 or smoothness"

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return its name in `PENALTIES`."""
        return "factors by noise" if self.by_noise else "factors"

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
        return Banded([a + b for a, b in zip(self.bands, other.bands)], self.by_noise)

    @staticmethod
    def _matrices(cores: CPCores) -> list[np.ndarray]:
        return [*cores.factors, *(cores.additive or [])]

    def _slopes(self, cores: CPCores) -> list[np.ndarray]:
        """Return K_n A^(n)."""
        bands = self.bands * (1 if cores.additive is None else 2)
        return [band_product(band, a) for band, a in zip(bands, self._matrices(cores))]


def band_product(band: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return K a for K given by its band : (d, 5), and a : (d, R)."""
    out = np.empty(a.shape)
    flat = np.ascontiguousarray(a, dtype=np.float64).ravel()
    band_times(np.ascontiguousarray(band), flat, a.shape[1], out.ravel())
    return out


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
