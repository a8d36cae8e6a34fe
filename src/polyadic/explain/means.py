"""Means of predictions after the link, with some columns fixed.

A mean probability has no closed form: the link is not linear. So it is computed row by row: over
the rows of a table exactly, else over rows drawn from the product of the columns' marginals. These
are Latin hypercubes: in each, the values of a column are spread evenly over its marginal, which
takes away most of the error of a plain sample. The spread of the means of all hypercubes is the
standard error. The seed is fixed, so the answer is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from polyadic.data.columns import Column
from polyadic.data.marginals import FEW_VALUES, LEVELS, Marginal, design
from polyadic.explain.models import code, read_cores
from polyadic.explain.reading import Asked, ColumnSet, Reading
from polyadic.training.model import FittedModel

# Chosen by hand: hypercubes, enough to tell the standard error; rows in each, and of a table at a
# time; points of a grid at a time.
_CUBES, _ROWS, _POINTS = 10, 200, 1000


class Means(NamedTuple):
    """Means after the link, their standard errors (zero over given rows), and what they are over.

    values, error : lists of (k, L), one for each set of points that was asked for
    """

    values: list[np.ndarray]
    error: list[np.ndarray]
    n_rows: int

    @property
    def largest_error(self) -> float:
        """The largest standard error."""
        return float(max(np.max(own, initial=0.0) for own in self.error))


def told_rows(what: str, n_rows: int, error: float) -> str:
    """Return a sentence on the rows that means are over; an empty text for closed forms.

    >>> told_rows("probability", 2000, 0.0012)
    'Mean probability over 2,000 drawn rows, standard error at most 0.0012.'
    """
    if n_rows == 0:
        return ""
    drawn = f" drawn rows, standard error at most {error:.2g}" if error > 0 else " rows"
    return f"Mean {what} over {n_rows:,}{drawn}."


def mean_effects(model: FittedModel, grid: Sequence[np.ndarray], background: Any) -> Means:
    """Return mean predictions: at no point, then along each column, with a missing value last."""
    reading, rows = _prepare(model, background)
    asked: list[Asked] = [((), [])]
    for n, (column, points) in enumerate(zip(reading.columns, grid)):
        codes = points if column.categories is None else np.arange(len(points))
        asked.append(((n,), [design(reading.maps[n], with_missing(column, codes))]))
    return mean_response(reading, model.response, asked, rows)


def mean_on_grid(
    model: FittedModel, term: ColumnSet, designs: Sequence[sparse.csr_array], background: Any
) -> Means:
    """Return mean predictions on a product of grids, (k_1, ..., k_m, L)."""
    reading, rows = _prepare(model, background)
    means = mean_response(reading, model.response, list(_grid_points(term, designs)), rows)
    shape = [*(own.shape[0] for own in designs), -1]
    both = (means.values, means.error)
    values, error = ([np.concatenate(own).reshape(shape)] for own in both)
    return Means(values, error, means.n_rows)


def with_missing(column: Column, codes: np.ndarray) -> np.ndarray:
    """Return coded values of a column, and a missing one behind them."""
    return np.append(codes, np.nan if column.categories is None else -1)


def _prepare(model: FittedModel, background: Any) -> tuple[Reading, list[np.ndarray] | None]:
    """Return the reading of the raw prediction, and the rows to average over, where given.

    Scores need not be relative: a constant that is added to all of them changes no probability.
    """
    rows = None if background is None else code(model, background)
    return read_cores(model, model.tensor_, background), rows


def mean_response(
    reading: Reading,
    response: Callable[[np.ndarray], np.ndarray],
    asked: Sequence[Asked],
    rows: Sequence[np.ndarray] | None = None,
) -> Means:
    """Return the mean of the response with columns fixed at points, over rows or the marginals.

    Parameters
    ----------
    reading : Reading
    response : function
        From raw predictions (n, L) to predictions (n, L).
    asked : list of (term, designs)
        As in `Reading.along`.
    rows : N arrays, (n,), optional
        Coded rows to average over; by default rows drawn from the product of the marginals.
    """
    blocks = list(_cubes(reading)) if rows is None else list(_split(rows))
    weight = np.array([len(block[0]) for block in blocks], dtype=float)
    found = []  # (blocks, k, L) for each set of points
    for block in blocks:
        raws = reading.along(block, asked)
        found.append([response(_flat(raw)).reshape(raw.shape).mean(axis=0) for raw in raws])
    each = [np.array(means) for means in zip(*found)]
    values = [np.average(means, axis=0, weights=weight) for means in each]
    if rows is None:
        error = [means.std(axis=0, ddof=1) / np.sqrt(len(blocks)) for means in each]
    else:
        error = [np.zeros_like(mean) for mean in values]
    return Means(values, error, int(weight.sum()))


def _flat(raw: np.ndarray) -> np.ndarray:
    return raw.reshape(-1, raw.shape[-1])


def _split(rows: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    for start in range(0, len(rows[0]), _ROWS):
        yield [x[start : start + _ROWS] for x in rows]


def _cubes(reading: Reading) -> Iterator[list[np.ndarray]]:
    """Yield Latin hypercubes of coded rows from the product of the marginals."""
    rng = np.random.default_rng(0)
    for _ in range(_CUBES):
        cube = []
        for column, marginal in zip(reading.columns, reading.marginals):
            level = (rng.permutation(_ROWS) + rng.random(_ROWS)) / _ROWS
            cube.append(draw(column, marginal, level))
        yield cube


def draw(column: Column, marginal: Marginal, level: np.ndarray) -> np.ndarray:
    """Return the coded values of a column at levels in 0..1 of its marginal, missing ones first.

    A number is taken from the percentiles that the marginal keeps, and between them where the
    column has many values.
    """
    known = (level - marginal.missing) / max(1.0 - marginal.missing, 1e-300)
    absent = known < 0
    if column.categories is not None:
        reached = np.cumsum(marginal.shares)
        if len(reached) == 0 or reached[-1] <= 0:
            return np.full(len(level), -1, dtype=np.int64)
        at = np.searchsorted(reached, known * reached[-1], side="right")
        last = np.flatnonzero(marginal.shares)[-1]
        return np.where(absent, -1, np.minimum(at, last))
    quantiles = marginal.quantiles
    if len(quantiles) == 0:
        return np.full(len(level), np.nan)
    known = np.clip(known, 0.0, 1.0)
    if len(np.unique(quantiles)) <= FEW_VALUES:
        out = quantiles[np.round(known * (len(quantiles) - 1)).astype(np.int64)]
    else:
        out = np.interp(known, LEVELS, quantiles)
    return np.where(absent, np.nan, out)


def _grid_points(term: ColumnSet, designs: Sequence[sparse.csr_array]) -> Iterator[Asked]:
    """Yield the points of a product of grids, some at a time, the last grid fastest."""
    shape = [own.shape[0] for own in designs]
    size = int(np.prod(shape))
    for start in range(0, size, _POINTS):
        at = np.unravel_index(np.arange(start, min(start + _POINTS, size)), shape)
        yield term, [own[i] for own, i in zip(designs, at)]
