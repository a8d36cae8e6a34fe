"""Means and covariances of a model's one-column functions, over the marginals of a table.

Shapes: N columns, R terms, L outputs. The CP model is

    f(x)_l = b_l + sum_n u_nl(x_n) + sum_r C_rl prod_n g_nr(x_n),

with g_nr = <phi_n, a_r^(n)> and u_nl the additive part, where there is one. All that the functional
ANOVA needs of a table is, for every column, the mean of g_n and the covariance of (g_n, u_n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from polyadic.formats.cp import CPCores
from polyadic.maps.base import FeatureMap


@dataclass(frozen=True)
class Marginal:
    """What one column contributes to the moments.

    Attributes
    ----------
    mean : (R,)
        mu_nr, the mean of g_nr.
    covariance : (R + E, R + E)
        Of g_n and, with an additive part, of u_n behind it: E is L then, else 0.
    core : (1 + d, R + E)
        A core of the centred functions, for a design of a leading one and phi_n.
    """

    mean: np.ndarray
    covariance: np.ndarray
    core: np.ndarray


@dataclass(frozen=True)
class Moments:
    """The moments of all columns, and the output weights that belong to them.

    Every g_nr is divided by its root mean square, and C takes the product of those. Means and
    covariances then lie in [-1, 1], so that a product over hundreds of columns stays in range.

    Attributes
    ----------
    marginals : list of N Marginal
    weights : (R, L)
    has_additive : bool
    """

    marginals: list[Marginal]
    weights: np.ndarray
    has_additive: bool

    @property
    def rank(self) -> int:
        """Number of rank-one terms R."""
        return len(self.weights)

    def right(self) -> list[np.ndarray]:
        """Return prod_{m >= n} mu_mr for n = 0, ..., N, the last one empty; N + 1 arrays (R, 1)."""
        out = [np.ones((self.rank, 1))]
        for marginal in reversed(self.marginals):
            out.append(out[-1] * marginal.mean[:, None])
        return out[::-1]

    def others(self) -> list[np.ndarray]:
        """Return C_rl prod_{m != n} mu_mr for every column n, N arrays (R, L)."""
        left, right, out = self.weights, self.right(), []
        for n, marginal in enumerate(self.marginals):
            out.append(left * right[n + 1])
            left = left * marginal.mean[:, None]
        return out


def moments(model: Any, X: Any) -> Moments:
    """Measure a fitted CP model on the columns of X, each on its own, in double precision."""
    check_is_fitted(model, "tensor_")
    coded = model.columns_.code(X, estimator_name=type(model).__name__)
    return measure(model.tensor_, model.maps_, coded)


def measure(cores: CPCores, maps: Sequence[FeatureMap], coded: Sequence[np.ndarray]) -> Moments:
    """Return the moments of these cores over coded columns."""
    rank = cores.rank
    marginals, log_size = [], np.zeros(rank)
    for n, (feature_map, x) in enumerate(zip(maps, coded)):
        core = np.asarray(cores.factors[n], dtype=np.float64)
        if cores.additive is not None:
            core = np.hstack([core, cores.additive[n]])
        marginal = _measure_column(feature_map, x, core, rank)
        size = np.sqrt(marginal.mean**2 + np.maximum(np.diag(marginal.covariance)[:rank], 0.0))
        with np.errstate(divide="ignore"):  # a function that is zero on every row ends its term
            log_size += np.log(size)
        marginals.append(_divide(marginal, np.where(size > 0, size, 1.0)))
    weights = np.asarray(cores.weights, dtype=np.float64) * np.exp(log_size)[:, None]
    return Moments(marginals, weights, cores.additive is not None)


def design(feature_map: FeatureMap, x: np.ndarray) -> sparse.csr_array:
    """Return a leading one and phi(x) without an implied constant, sparse, (n, 1 + d)."""
    index, value = feature_map.encode(x)
    n_rows, n_slots = index.shape
    indices = np.hstack([np.zeros((n_rows, 1), np.int64), index + 1])
    data = np.hstack([np.ones((n_rows, 1)), value])
    indptr = np.arange(n_rows + 1) * (n_slots + 1)
    shape = (n_rows, 1 + feature_map.dim)
    return sparse.csr_array((data.ravel(), indices.ravel(), indptr), shape=shape)


def _measure_column(
    feature_map: FeatureMap, x: np.ndarray, core: np.ndarray, rank: int
) -> Marginal:
    """Return the moments of the functions phi' core, (d, R + E), over the rows x : (n,)."""
    phi = design(feature_map, x)
    first = core[:1] if feature_map.constant else np.zeros_like(core[:1])
    core = np.vstack([first, core])
    mean = phi.mean(axis=0) @ core
    core[0] -= mean
    # Through the second moments of phi, a sparse matrix: the cost does not grow with n R^2.
    second = (phi.T @ phi) / len(x)
    return Marginal(mean[:rank], core.T @ (second @ core), core)


def _divide(marginal: Marginal, size: np.ndarray) -> Marginal:
    """Divide g_n by size : (R,)."""
    extra = len(marginal.covariance) - len(size)
    scale = np.concatenate([size, np.ones(extra)])
    return Marginal(
        marginal.mean / size,
        marginal.covariance / scale / scale[:, None],
        marginal.core / scale,
    )
