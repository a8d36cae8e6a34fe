"""Marginals: what a fitted model keeps of each column of its training table.

Explanations average over columns. For this they need only the mean and the second moments of a
column's local features, whose size does not depend on the number of rows, and for plots its
quantiles or the shares of its categories. Weights count as repeated rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from polyadic.data.columns import Column
from polyadic.data.features import sparse_design
from polyadic.maps.base import FeatureMap
from polyadic.maps.column import distinct, quantiles

LEVELS = np.linspace(0.0, 1.0, 101)  # of the quantiles that are kept
FEW_VALUES = 32  # a column with at most this many values is not continuous; chosen by hand


@dataclass(frozen=True)
class Marginal:
    """The distribution of one column, as far as explanations need it.

    Attributes
    ----------
    mean : (1 + d,)
        Mean of a leading one and of phi without an implied constant, the features of `design`.
    second : sparse (1 + d, 1 + d)
        Second moments of the same features.
    quantiles : (101,)
        Quantiles of the known numbers at 0, 1, ..., 100 %; empty for a categorical column, and
        where no number is known.
    shares : (number of categories,)
        Share of the rows in each category; empty for a numeric column.
    missing : float
        Share of the rows whose value is missing or was never seen in training.
    weight : float
        Sum of the weights of all rows.
    """

    mean: np.ndarray
    second: sparse.csr_array
    quantiles: np.ndarray
    shares: np.ndarray
    missing: float
    weight: float

    def mix(self, other: Marginal) -> Marginal:
        """Return the marginal of both sets of rows together: exact except for the quantiles.

        The quantiles, which only plots use, are computed from the quantiles of both.
        """
        total = self.weight + other.weight
        keep, share = self.weight / total, other.weight / total
        known = [keep * (1.0 - self.missing), share * (1.0 - other.missing)]
        return Marginal(
            keep * self.mean + share * other.mean,
            sparse.csr_array(keep * self.second + share * other.second),
            _mix_quantiles([self.quantiles, other.quantiles], known),
            keep * self.shares + share * other.shares,
            min(keep * self.missing + share * other.missing, 1.0),
            total,
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the marginal as named arrays; only one triangle of the second moments.

        Their first row is left out where it is the mean, to the last bit.
        """
        row, col = _places(self.second)
        first = int(np.array_equal(_first_row(self.second), self.mean))
        stored = (row >= first) & (row <= col)
        return {
            "mean": self.mean,
            "row": row[stored].astype(np.int32),
            "col": col[stored].astype(np.int32),
            "second": self.second.data[stored],
            "quantiles": self.quantiles,
            "shares": self.shares,
            "totals": np.array([self.missing, self.weight]),
        }

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], dim: int, n_categories: int) -> Marginal:
        """Rebuild a marginal from its arrays; refuse arrays that no marginal can have."""
        mean, quantiles, shares = (arrays[k] for k in ("mean", "quantiles", "shares"))
        row, col, value, totals = (arrays[k] for k in ("row", "col", "second", "totals"))
        lengths = (mean.shape, shares.shape, totals.shape)
        if lengths != ((1 + dim,), (n_categories,), (2,)) or quantiles.ndim != 1:
            raise ValueError(
                f"a marginal has arrays of the shapes {lengths}, {quantiles.shape}; its column "
                f"has {dim} elements and {n_categories} categories."
            )
        for array in (mean, quantiles, shares, value, totals):
            if array.dtype != np.float64 or not np.all(np.isfinite(array)):
                raise ValueError("a marginal must hold finite floating-point numbers.")
        if not (value.ndim == 1 and row.shape == col.shape == value.shape):
            raise ValueError("the second moments of a marginal have arrays of different shapes.")
        if row.dtype != np.int32 or col.dtype != np.int32 or np.any((row < 0) | (row > col)):
            raise ValueError("the second moments of a marginal are not an upper triangle.")
        if np.any(col > dim) or len(quantiles) not in (0, len(LEVELS)):
            raise ValueError("a marginal does not fit its column.")
        if np.any(np.diff(quantiles) < 0) or np.any(shares < 0) or not 0 <= totals[0] <= 1:
            raise ValueError("a marginal has shares or quantiles out of range.")
        if totals[1] <= 0:
            raise ValueError("a marginal has no rows.")
        if not np.any(row == 0):
            row = np.append(np.zeros(1 + dim, np.int32), row)
            col = np.append(np.arange(1 + dim, dtype=np.int32), col)
            value = np.append(mean, value)
        second = _mirrored(row, col, value, 1 + dim)
        return cls(mean, second, quantiles, shares, float(totals[0]), float(totals[1]))


def bin_shares(marginal: Marginal, own: FeatureMap) -> np.ndarray:
    """Return the share of the rows in each bin of trees, that of missing values first.

    The bins follow the elements of the smooth map `own` in the marginal of a model with trees.
    """
    known = marginal.mean[1 + own.dim :]
    return np.concatenate(([max(1.0 - known.sum(), 0.0)], known))


def learn(
    columns: Sequence[Column],
    maps: Sequence[FeatureMap],
    coded: Sequence[np.ndarray],
    weight: np.ndarray | None = None,
) -> list[Marginal]:
    """Return the marginals of coded columns, N arrays (n,); weight : (n,), by default all one."""
    if weight is None:
        weight = np.ones(len(coded[0]))
    return [learn_one(c, m, x, weight) for c, m, x in zip(columns, maps, coded)]


def learn_one(
    column: Column,
    feature_map: FeatureMap,
    x: np.ndarray,
    weight: np.ndarray,
    points: tuple[np.ndarray, np.ndarray] | None = None,
) -> Marginal:
    """Return the marginal of one column; weighted `points`, if given, have its quantiles."""
    total = float(weight.sum())
    share = weight / total
    mean, second = _moments(feature_map, x, share)
    known = ~np.isnan(x) if column.categories is None else x >= 0
    missing = float(min(share[~known].sum(), 1.0))
    x, own = x[known], share[known]
    if column.categories is None:
        table = _quantiles(*(points or (x, own)))
        return Marginal(mean, second, table, np.zeros(0), missing, total)
    counts = np.bincount(x, weights=own, minlength=len(column.categories))
    return Marginal(mean, second, np.zeros(0), counts.astype(float), missing, total)


def design(feature_map: FeatureMap, x: np.ndarray) -> sparse.csr_array:
    """Return a leading one and phi(x) without an implied constant, sparse, (n, 1 + d)."""
    index, value = feature_map.slots(x)
    first = np.zeros((len(index), 1), np.int64)
    elements, values = np.hstack([first, index + 1]), np.hstack([first + 1.0, value])
    return sparse_design(elements, values, 1 + feature_map.dim)


def full_core(feature_map: FeatureMap, core: np.ndarray) -> np.ndarray:
    """Return the core that goes with `design`, (1 + d, K): the constant moves to the leading one.

    >>> from polyadic.maps import OneHot
    >>> full_core(OneHot().fit(np.array([0, 1])), np.array([[1.0], [2.0], [3.0]])).ravel()
    array([1., 0., 2., 3.])
    """
    core = np.asarray(core, dtype=np.float64)
    out = np.vstack([np.zeros((1, core.shape[1])), core])
    if feature_map.constant:
        out[0], out[1] = core[0], 0.0
    return out


def _quantiles(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the quantiles of x at `LEVELS`, each one of the values of x."""
    if len(x) == 0:
        return np.zeros(0)
    return quantiles(*distinct(x, weight), LEVELS)


def _mix_quantiles(tables: list[np.ndarray], shares: list[float]) -> np.ndarray:
    """Return the quantiles of a mixture from two tables of quantiles and their shares."""
    pairs = [(table, share) for table, share in zip(tables, shares) if len(table)]
    if len(pairs) < 2:
        return pairs[0][0] if pairs else np.zeros(0)
    points = np.unique(np.concatenate(tables))
    if len(points) <= FEW_VALUES:  # steps: no value is invented between two others
        weight = np.concatenate([np.full(len(table), share) for table, share in pairs])
        return _quantiles(np.concatenate(tables), weight)
    # The inverse of the mixture's distribution function, linear between the points of both.
    reached = sum(share * _middle_share(table, points) for table, share in pairs) / sum(shares)
    out = np.interp(LEVELS, reached, points)
    out[0], out[-1] = points[0], points[-1]
    return np.maximum.accumulate(out)


def _steps(quantiles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct quantiles at `LEVELS`, the share of the rows below each, and up to each.

    A value that several quantiles share is a step of the distribution function.
    """
    values, first = np.unique(quantiles, return_index=True)
    last = np.append(first[1:] - 1, len(quantiles) - 1)
    return values, LEVELS[first], LEVELS[last]


def _middle_share(quantiles: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the share of the rows up to each x, linear between the middles of all steps."""
    values, below, up_to = _steps(quantiles)
    out = np.interp(x, values, 0.5 * (below + up_to))
    out[x < values[0]], out[x >= values[-1]] = 0.0, 1.0
    return out


def share_below(quantiles: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the share of the rows below each x, between the first and the last quantile.

    A value that several quantiles share is a step. Between two values the rows are spread evenly,
    except in a column of few values, which has no rows there.

    >>> share_below(np.repeat([1.0, 3.0], [51, 50]), np.array([1.0, 2.0, 3.0]))
    array([0. , 0.5, 0.5])
    """
    values, below, up_to = _steps(quantiles)
    if len(values) <= FEW_VALUES:
        below[1:] = up_to[:-1]
    at = np.searchsorted(values, x)
    low = np.maximum(at - 1, 0)
    width = values[at] - values[low]
    part = np.divide(x - values[low], width, out=np.ones(len(x)), where=width > 0)
    out = up_to[low] + part * (below[at] - up_to[low])
    out[at == 0] = 0.0
    return out


def _moments(
    feature_map: FeatureMap, x: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, sparse.csr_array]:
    """Return the mean, (1 + d,), and the second moments of a column's features."""
    if feature_map.all_slots:  # all elements are non-zero: a dense product is faster
        phi = np.hstack([np.ones((len(x), 1)), feature_map.dense(x)])
        if feature_map.constant:
            phi[:, 1] = 0.0
        second = sparse.csr_array(phi.T @ (weight[:, None] * phi))
    else:
        phi = design(feature_map, x)
        scaled = phi.copy()
        scaled.data *= np.repeat(weight, np.diff(phi.indptr))
        product = sparse.csr_array(phi.T @ scaled)
        row, col = _places(product)
        upper = row <= col
        second = _mirrored(row[upper], col[upper], product.data[upper], 1 + feature_map.dim)
    return _first_row(second), second  # the first feature is one


def _places(matrix: sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column of every stored element."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices


def _first_row(matrix: sparse.csr_array) -> np.ndarray:
    """Return the first row of a matrix in which no place is stored twice."""
    out, end = np.zeros(matrix.shape[1]), matrix.indptr[1]
    out[matrix.indices[:end]] = matrix.data[:end]
    return out


def _mirrored(row: np.ndarray, col: np.ndarray, value: np.ndarray, size: int) -> sparse.csr_array:
    """Return the symmetric matrix of an upper triangle: both halves have the same bits.

    SciPy's own sums and triangles of sparse matrices took a third of the time in which a small
    model is loaded.
    """
    above = row < col
    places = np.append(row, col[above]), np.append(col, row[above])
    both = sparse.coo_array((np.append(value, value[above]), places), shape=(size, size))
    out = both.tocsr()  # adds what is stored twice
    out.eliminate_zeros()
    return out
