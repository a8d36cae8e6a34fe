"""Points at which a column is shown, and where its rows are."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from polyadic.data.columns import Column
from polyadic.data.marginals import FEW_VALUES, Marginal, share_below
from polyadic.data.tables import is_missing

# Chosen by hand:
_BINS = 24  # of a density
_ENDS = (5, 95)  # per cent of the rows: the range in which effects are described in words


def as_array(values: Any) -> np.ndarray:
    """Return given points as an array: numbers as they are, anything else as objects."""
    kinds = {type(v) for v in values}
    if all(issubclass(k, int | float | np.number) for k in kinds):
        return np.asarray(values)
    out = np.empty(len(values), dtype=object)
    out[:] = list(values)
    return out


def code_points(column: Column, points: Any) -> np.ndarray:
    """Code values of one column; None is missing, and so is an unseen category."""
    given = [None if is_missing(p) else p for p in np.asarray(points, dtype=object).tolist()]
    if column.categories is not None:
        return np.array([column.code_of.get(p, -1) for p in given], dtype=np.int64)
    for point in given:
        if point is not None and not isinstance(point, Real):
            raise ValueError(
                f"Column {column.name!r} is numeric; {point!r:.40} is not a number, "
                "and text is never taken for one."
            )
    out = np.array([np.nan if p is None else p for p in given], dtype=np.float64)
    if np.any(np.isinf(out)):
        raise ValueError(f"Column {column.name!r} cannot be infinite. Use a finite number or NaN.")
    return out


def usual_points(
    column: Column, marginal: Marginal, n_points: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the points at which a column is shown, and the same points coded."""
    if column.categories is not None:
        points = np.empty(len(column.categories), dtype=object)
        points[:] = column.categories
        return points, np.arange(len(points))
    known = marginal.quantiles
    if len(known) == 0:
        return known, known
    at = np.round(np.linspace(0, len(known) - 1, n_points)).astype(int)
    points = np.unique(known)
    if len(points) > min(FEW_VALUES, n_points // 2):  # not a column of few values
        # Half of the points on quantiles, half at equal distances: long tails are shown too.
        even = np.linspace(known[1], known[-2], n_points // 2)
        points = np.unique(np.concatenate([known[at[::2]], known[-1:], even]))
    return points, points


def with_steps(points: np.ndarray, jumps: np.ndarray) -> np.ndarray:
    """Return points with both sides of every jump between the first and the last of them.

    >>> with_steps(np.array([0.0, 1.0]), np.array([0.5, 7.0])).round(2)
    array([0. , 0.5, 0.5, 1. ])
    """
    inside = jumps[(jumps >= points[0]) & (jumps < points[-1])]
    return np.unique(np.concatenate([points, inside, np.nextafter(inside, np.inf)]))


def density_of(column: Column, marginal: Marginal) -> tuple[np.ndarray | None, np.ndarray]:
    """Return edges and the share of the rows between them; for categories, the shares only."""
    if column.categories is not None:
        return None, marginal.shares
    known = marginal.quantiles
    if len(known) == 0 or known[0] == known[-1]:
        return known[:1].repeat(2), np.full(min(len(known), 1), 1.0 - marginal.missing)
    edges = _bins(known)
    below = share_below(known, edges)
    below[-1] = 1.0  # the last bin includes the rows at its upper edge
    return edges, (1.0 - marginal.missing) * np.diff(below)


def _bins(quantiles: np.ndarray) -> np.ndarray:
    """Return edges of equal bins where the rows are, and of one wide bin for each tail."""
    first, low, high, last = quantiles[[0, _ENDS[0], _ENDS[1], -1]]
    if low < high:  # half a width beyond the middle nine tenths of the rows
        low, high = max(first, 1.5 * low - 0.5 * high), min(last, 1.5 * high - 0.5 * low)
    else:
        low, high = first, last
    return np.unique(np.concatenate([[first], np.linspace(low, high, _BINS + 1), [last]]))


def ends_of(column: Column, marginal: Marginal) -> tuple[float, float] | None:
    """Return the 5 % and 95 % quantiles."""
    if column.categories is not None:
        return None
    if len(marginal.quantiles) == 0:
        return np.nan, np.nan
    low, high = marginal.quantiles[list(_ENDS)]
    return float(low), float(high)
