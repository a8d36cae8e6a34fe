"""Means and covariances of a CP model's one-column functions, over the marginals of its columns.

Shapes: N columns, R terms, L outputs. The CP model is

    f(x)_l = b_l + sum_n u_nl(x_n) + sum_r C_rl prod_n g_nr(x_n),

with g_nr = <phi_n, a_r^(n)> and u_nl the additive part, where there is one. The closed forms depend
on a table only through the mean and the covariance of (g_n, u_n) for every column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyadic.data.marginals import Marginal, full_core
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores


@dataclass(frozen=True)
class ColumnMoments:
    """The mean and the covariance of one column's functions.

    Attributes
    ----------
    core : (1 + d, R + E)
        The core of g_n, followed by that of u_n where there is an additive part (E is L then, else
        0), for the design of `polyadic.data.marginals.design`.
    marginal : Marginal
    mean : (R + E,)
    """

    core: np.ndarray
    marginal: Marginal
    mean: np.ndarray

    def centred(self) -> np.ndarray:
        """Return the core of the functions less their means, (1 + d, R + E)."""
        out = self.core.copy()
        out[0] -= self.mean
        return out

    @cached_property
    def covariance(self) -> np.ndarray:
        """Covariance of the functions, (R + E, R + E).

        From the second moments of phi, a sparse matrix: the cost does not depend on the rows.
        """
        centred = self.centred()
        return centred.T @ (self.marginal.second @ centred)


@dataclass(frozen=True)
class Moments:
    """The moments of all columns, and the output weights that belong to them.

    Every g_nr is divided by its root mean square, and C is multiplied by the product of those.
    Means and covariances then lie in [-1, 1], so products over hundreds of columns do not overflow.

    Attributes
    ----------
    columns : list of N ColumnMoments
    weights : (R, L)
    intercept : (L,)
    has_additive : bool
    """

    columns: list[ColumnMoments]
    weights: np.ndarray
    intercept: np.ndarray
    has_additive: bool

    @property
    def rank(self) -> int:
        """Number of rank-one terms R."""
        return len(self.weights)

    def means(self) -> np.ndarray:
        """Return mu, (N, R)."""
        return np.array([c.mean[: self.rank] for c in self.columns])

    def covariances(self) -> list[np.ndarray]:
        """Return the covariance of the g_n, N arrays (R, R)."""
        return [c.covariance[: self.rank, : self.rank] for c in self.columns]

    def constant(self) -> np.ndarray:
        """Return the intercept and the means of the additive part, (L,)."""
        if not self.has_additive:
            return self.intercept
        return self.intercept + sum(c.mean[self.rank :] for c in self.columns)

    def others(self) -> list[np.ndarray]:
        """Return C_rl prod_{m != n} mu_mr for every column n, N arrays (R, L)."""
        mean = self.means()[:, :, None]
        right = [np.ones((self.rank, 1))]
        for mu in mean[:0:-1]:
            right.append(right[-1] * mu)
        left, out = self.weights, []
        for mu, rest in zip(mean, right[::-1]):
            out.append(left * rest)
            left = left * mu
        return out


def joined_cores(cores: CPCores, maps: Sequence[FeatureMap]) -> list[np.ndarray]:
    """Return for each column the core of g_n, followed by that of u_n: N arrays (1 + d, R + E).

    In double precision, for the design of `polyadic.data.marginals.design`.
    """
    out = []
    for n, feature_map in enumerate(maps):
        core = np.asarray(cores.factors[n], dtype=np.float64)
        if cores.additive is not None:
            core = np.hstack([core, cores.additive[n]])
        out.append(full_core(feature_map, core))
    return out


def measure(cores: CPCores, maps: Sequence[FeatureMap], marginals: Sequence[Marginal]) -> Moments:
    """Return the moments of these cores over marginals, in double precision."""
    rank = cores.rank
    columns, log_size = [], np.zeros(rank)
    for core, marginal in zip(joined_cores(cores, maps), marginals):
        square = np.sum(core * (marginal.second @ core), axis=0)[:rank]
        # A function that is zero on every row is not divided: it need not be zero elsewhere.
        size = np.sqrt(np.where(square > 0, square, 1.0))
        log_size += np.log(size)
        core[:, :rank] /= size
        columns.append(ColumnMoments(core, marginal, marginal.mean @ core))
    weights = np.asarray(cores.weights, dtype=np.float64) * np.exp(log_size)[:, None]
    intercept = np.asarray(cores.intercept, dtype=np.float64)
    return Moments(columns, weights, intercept, cores.additive is not None)
