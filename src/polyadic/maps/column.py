"""Summaries of one column that do not depend on the order of its rows."""

from __future__ import annotations

import numpy as np


def distinct(x: np.ndarray, sample_weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of x : (n,), ascending, and the summed weight of each.

    Missing values and rows of weight zero are left out. Maps learn from these two arrays alone, so
    the order of rows has no effect and a weight of 2 counts as two rows.

    >>> distinct(np.array([3.0, 1.0, np.nan, 3.0]), np.array([1.0, 1.0, 1.0, 2.0]))
    (array([1., 3.]), array([1., 3.]))
    """
    x = np.asarray(x, dtype=np.float64) + 0.0  # turns -0.0 into 0.0
    known = ~np.isnan(x)
    if sample_weight is None:
        values, counts = np.unique(x[known], return_counts=True)
        return values, counts.astype(np.float64)
    weight = np.asarray(sample_weight, dtype=np.float64)
    known &= weight > 0
    x, weight = x[known], weight[known]
    # Sorted by weight within a value: a sum of fractions depends on the order of its terms.
    order = np.lexsort((weight, x))
    values, first = np.unique(x[order], return_index=True)
    if len(values) == 0:
        return values, np.zeros(0)
    return values, np.add.reduceat(weight[order], first)


def mean_and_std(values: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Return the weighted mean and standard deviation; 1 for the latter where nothing varies.

    >>> mean_and_std(np.array([1.0, 3.0]), np.array([3.0, 1.0]))
    (1.5, 0.8660254037844386)
    """
    if len(values) == 0:
        return 0.0, 1.0
    if len(values) == 1:
        return float(values[0]), 1.0
    # Dividing by a power of two near the largest value is exact, and squares do not overflow.
    exponent = int(np.frexp(np.abs(values).max())[1])
    small = np.ldexp(values, -exponent)
    share = counts / counts.sum()
    mean = np.sum(share * small)
    std = np.ldexp(np.sqrt(np.sum(share * (small - mean) ** 2)), exponent)
    return float(np.ldexp(mean, exponent)), float(std) if std > 0 else 1.0


def value_range(values: np.ndarray) -> np.ndarray:
    """Return the smallest and the largest of ascending values, (2,); zeros for no values."""
    return values[[0, -1]] if len(values) else np.zeros(2)


def to_range(x: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Scale x : (n,) from the range `ends` : (2,) to -1..1; values outside are set to the ends.

    A range of zero width maps every x to 0.

    >>> to_range(np.array([0.0, 5.0, 99.0]), np.array([0.0, 10.0]))
    array([-1.,  0.,  1.])
    """
    low, high = ends
    middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low  # halved first: no overflow
    inside = np.clip(np.asarray(x, dtype=np.float64), low, high)
    return np.clip((inside - middle) / (half if half > 0 else 1.0), -1.0, 1.0)


def quantiles(values: np.ndarray, counts: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the weighted quantiles at `levels` in 0..1, each one of the values.

    The inverse of the step function of cumulated weight: weights may be fractions, since no single
    row is counted.

    >>> quantiles(np.array([1.0, 2.0, 9.0]), np.array([8.0, 1.0, 1.0]), np.array([0.5, 0.85, 1.0]))
    array([1., 2., 9.])
    """
    reached = np.cumsum(counts)
    at = np.searchsorted(reached, np.asarray(levels) * reached[-1], side="left")
    return values[np.minimum(at, len(values) - 1)]


def quantile_knots(values: np.ndarray, counts: np.ndarray, n_knots: int) -> np.ndarray:
    """Return ascending knots, at most n_knots: the ends of the column and quantiles between them.

    Half of the knots lie on quantiles of the rows, the others on quantiles of the distinct values.
    With quantiles of rows alone, a column that is mostly zero would have no knots elsewhere; with
    those of distinct values alone, outliers would get too many knots. The levels alternate, so that
    a column without ties gets evenly spaced quantiles. A column of at most n_knots distinct values
    gets a knot on each, and a column without values one knot at zero.

    >>> quantile_knots(np.arange(101.0), np.ones(101), 5)
    array([  0.,  25.,  50.,  75., 100.])
    """
    if len(values) == 0:
        return np.zeros(1)
    if len(values) <= n_knots:
        return values
    levels = np.arange(1, n_knots - 1) / (n_knots - 1)
    of_rows = quantiles(values, counts, levels[::2])
    of_values = quantiles(values, np.ones(len(values)), levels[1::2])
    return np.unique(np.concatenate([values[[0, -1]], of_rows, of_values]))
