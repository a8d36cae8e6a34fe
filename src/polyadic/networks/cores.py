"""The parameters of a fitted tensor network: `CPCores` for CP, `NetworkCores` for other formats."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from polyadic.networks import resolve
from polyadic.networks.base import Format
from polyadic.networks.conversions import tt_to_cp
from polyadic.networks.cp import CPCores


@dataclass(frozen=True)
class NetworkCores:
    """Cores and extras of a network other than CP, with f(x) = intercept + scale * contraction.

    Attributes
    ----------
    name : str
        The format.
    rank, order : int
    factors : list of (d_n, K)
    extras : list of arrays
    intercept, scale : (L,)
    """

    name: str
    rank: int
    order: int
    factors: list[np.ndarray]
    extras: list[np.ndarray]
    intercept: np.ndarray
    scale: np.ndarray

    def __post_init__(self):
        if self.name == CPCores.name:
            raise ValueError("NetworkCores got the format 'cp', whose cores are CPCores.")

    @property
    def dims(self) -> np.ndarray:
        """Number of basis elements of each column, (N,)."""
        return np.array([len(a) for a in self.factors])

    @property
    def n_outputs(self) -> int:
        """Number of outputs L."""
        return len(self.intercept)

    @property
    def format(self) -> Format:
        """The format, for cores of this shape."""
        return resolve(self.name)(self.dims.tolist(), self.rank, self.n_outputs, self.order)

    @property
    def additive(self) -> None:
        """Networks have no additive part."""
        return None

    @property
    def trees(self) -> None:
        """Networks have no trees."""
        return None

    def with_arrays(
        self,
        factors: list[np.ndarray],
        extras: list[np.ndarray],
        additive: list[np.ndarray] | None = None,
    ) -> NetworkCores:
        """Return cores of the same format and intercept with other arrays; none is additive."""
        return replace(self, factors=factors, extras=extras)

    def to_raw(self, contracted: np.ndarray) -> np.ndarray:
        """Return raw : (n, L) from the contraction of the network, (n, L)."""
        return self.intercept + self.scale * contracted

    def rescale(self, center: np.ndarray, scale: np.ndarray) -> NetworkCores:
        """Return the cores of center + scale * f(x), both (L,)."""
        return replace(self, intercept=center + scale * self.intercept, scale=scale * self.scale)

    def weigh_outputs(self, matrix: np.ndarray) -> NetworkCores:
        """Return the cores of f(x) @ matrix, matrix : (L, L), in double precision."""
        own = self.format.weigh_outputs(self.factors, self.extras, self.scale[:, None] * matrix)
        factors, extras = own
        intercept, scale = self.intercept @ matrix, np.ones(self.n_outputs)
        return replace(self, factors=factors, extras=extras, intercept=intercept, scale=scale)

    def to_cp(self) -> CPCores:
        """Return a Tensor Train as CP, with the product of its ranks as terms; refuse too many."""
        if self.name != "tt":
            raise ValueError(f"Only cores of format='tt' can be written as CP, got {self.name!r}.")
        factors, weights = tt_to_cp(self.factors, self.extras)
        return CPCores(factors, weights * self.scale, self.intercept)

    def order_norm(self, emphasis: list[np.ndarray]) -> float:
        """Return <B*W, B*W> without the scale; `emphasis` is b^(n) of every column."""
        cores = [np.asarray(a, float) * b[:, None] for a, b in zip(self.factors, emphasis)]
        value, log_scale = self.format.order_norm(
            cores, [np.asarray(e, float) for e in self.extras]
        )
        return float(value * np.exp(log_scale))


Cores = CPCores | NetworkCores


def make_cores(
    form: Format, factors: list[np.ndarray], extras: list[np.ndarray], intercept: np.ndarray
) -> Cores:
    """Return the cores of a format with these arrays and an output scale of one."""
    if form.name == CPCores.name:
        return CPCores(factors, extras[0], intercept)
    scale = np.ones(form.n_outputs)
    return NetworkCores(form.name, form.rank, form.order, factors, extras, intercept, scale)
