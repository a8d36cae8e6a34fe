"""Summaries of a column that take little memory for any number of rows, and can be merged.

Two summaries of different rows give the summary of all of them, so that rows may be read in parts,
by several processes, in any order. Both say how far from the truth they can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyadic.maps.column import distinct

POINTS = 4096  # of a summary of numbers: at most 0.2 % of the rows are misplaced, of a billion
COUNTED = 2**18  # values of a column whose rows are counted: some 6 MB of short texts


class NumberSketch:
    """The distribution of numbers: exact for few distinct values, otherwise by points.

    Rows are taken in chunks. A chunk of more than `POINTS` distinct values is replaced by that many
    of its quantiles, each with an equal part of the weight. Two summaries of chunks of one size are
    put together and halved in the same way; so n chunks leave log2(n) summaries. Each halving moves
    the rank of a value by at most half of the weight of one point, which is 1 / (2 POINTS) of the
    weight of its chunks: `error` adds up what happened.

    Examples
    --------
    >>> import numpy as np
    >>> sketch = NumberSketch()
    >>> for part in np.array_split(np.random.default_rng(0).permutation(200_000), 7):
    ...     sketch.add(part.astype(float), np.ones(len(part)))
    >>> values, weights = sketch.points()
    >>> float(weights.sum()), bool(sketch.error < 0.002)
    (200000.0, True)
    >>> middle = values[np.searchsorted(np.cumsum(weights), 100_000)]
    >>> bool(abs(middle - 100_000) <= sketch.error * 200_000)
    True
    """

    def __init__(self) -> None:
        self.levels: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.low, self.high = np.inf, -np.inf
        self._misplaced = 0.0  # weight by which the rank of a value may be wrong

    def add(self, x: np.ndarray, weight: np.ndarray) -> None:
        """Add numbers x : (n,), NaN for missing ones, with weights (n,)."""
        # Without weights a row is sorted by its number alone, several times as fast.
        values, weights = distinct(x, None if np.all(weight == 1) else weight)
        if len(values) == 0:
            return
        self.low, self.high = min(self.low, values[0]), max(self.high, values[-1])
        self._put(0, self._shortened(values, weights))

    def merge(self, other: NumberSketch) -> None:
        """Add the rows of another summary."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self._misplaced += other._misplaced
        for level, points in sorted(other.levels.items()):
            self._put(level, points)

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ascending values and the weight of the rows that each stands for.

        The smallest and the largest number are always among them.
        """
        if not self.levels:
            return np.zeros(0), np.zeros(0)
        values, weights = _together(list(self.levels.values()))
        values[0], values[-1] = self.low, self.high
        return values, weights

    @property
    def total(self) -> float:
        """The weight of all rows that are not missing."""
        return float(sum(weights.sum() for _, weights in self.levels.values()))

    @property
    def error(self) -> float:
        """The largest share of the rows by which the rank of a value may be wrong."""
        return self._misplaced / self.total if self.levels else 0.0

    def _put(self, level: int, points: tuple[np.ndarray, np.ndarray]) -> None:
        """Keep a summary; two of one level become one of the next."""
        while level in self.levels:
            points = self._shortened(*_together([self.levels.pop(level), points]))
            level += 1
        self.levels[level] = points

    def _shortened(self, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return at most POINTS values: quantiles at the middles of equal parts of the weight."""
        if len(values) <= POINTS:
            return values, weights
        total = weights.sum()
        levels = (np.arange(POINTS) + 0.5) / POINTS * total
        reached = np.cumsum(weights)
        at = np.minimum(np.searchsorted(reached, levels), len(values) - 1)
        self._misplaced += 0.5 * total / POINTS
        kept, times = np.unique(at, return_counts=True)
        return values[kept], times * (total / POINTS)


def _together(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of several summaries, ascending, with their weights."""
    if len(parts) == 1:
        return parts[0][0].copy(), parts[0][1]
    return distinct(*(np.concatenate(arrays) for arrays in zip(*parts)))


class CategoryCounts:
    """How many rows each value of a column has: exact, or of the frequent values only.

    At most `COUNTED` values are counted. When there are more, the count of the value in the middle
    is taken off all counts, and values that have none left are forgotten (Misra and Gries, 1982).
    So a count is never too high, and too low by at most `error`, which is below 2 n / COUNTED for n
    rows: a value with more rows than that is never lost.

    Examples
    --------
    >>> counts = CategoryCounts()
    >>> counts.add({"a": 3.0, "b": 1.0})
    >>> counts.add({"a": 1.0})
    >>> counts.of, counts.error
    ({'a': 4.0, 'b': 1.0}, 0.0)
    """

    def __init__(self) -> None:
        self.of: dict[Any, float] = {}
        self.error = 0.0

    def __repr__(self) -> str:  # the identity of a checkpoint: the same in every process
        counts = sorted(self.of.items(), key=lambda item: (type(item[0]).__name__, str(item[0])))
        return f"CategoryCounts({counts!r}, {self.error!r})"

    def add(self, counts: Mapping[Any, float]) -> None:
        """Add the rows of values."""
        own = self.of
        for value, count in counts.items():
            own[value] = own.get(value, 0.0) + count
        if len(own) > COUNTED:
            self._forget()

    def merge(self, other: CategoryCounts) -> None:
        """Add the rows of another summary."""
        self.error += other.error
        self.add(other.of)

    def most(self, number: int) -> dict[Any, float]:
        """Return the values with the most rows, at most this many, and their rows."""
        if len(self.of) <= number:
            return self.of
        # Ties are decided by the text of a value, so that the order of the rows has no effect.
        ranked = sorted(self.of.items(), key=lambda item: (-item[1], str(item[0])))
        return dict(ranked[:number])

    def _forget(self) -> None:
        off = _middle(np.fromiter(self.of.values(), np.float64, len(self.of)))
        self.error += off
        self.of = {value: count - off for value, count in self.of.items() if count > off}


def _middle(counts: np.ndarray) -> float:
    """Return the count that is taken off: as many values as half of `COUNTED` have no less."""
    return float(np.partition(counts, len(counts) - COUNTED // 2)[len(counts) - COUNTED // 2])


class TextCounts:
    """The same as `CategoryCounts`, of texts that Arrow holds: no text becomes a Python object.

    Attributes
    ----------
    texts : Arrow array of large strings
        Each text once.
    rows : (number of texts,)
    error : float

    Examples
    --------
    >>> import pyarrow as pa
    >>> counts = TextCounts()
    >>> counts.add(pa.array(["a", "b", "a"]), np.array([3.0, 1.0, 1.0]))
    >>> counts.of, counts.error
    ({'a': 4.0, 'b': 1.0}, 0.0)
    """

    def __init__(self) -> None:
        self.texts: Any = None
        self.rows: np.ndarray = np.zeros(0)
        self.error = 0.0

    def add(self, texts: Any, rows: np.ndarray) -> None:
        """Add the rows of texts, an Arrow array without missing values; a text may come twice."""
        import pyarrow as pa

        texts = texts.cast(pa.large_string())
        both = texts if self.texts is None else pa.concat_arrays([self.texts, texts])
        coded = both.dictionary_encode()
        self.texts = coded.dictionary
        each = np.concatenate((self.rows, rows))
        self.rows = np.bincount(coded.indices.to_numpy(), each, len(self.texts))
        if len(self.rows) > COUNTED:
            self._forget()

    def merge(self, other: TextCounts) -> None:
        """Add the rows of another summary."""
        self.error += other.error
        if other.texts is not None:
            self.add(other.texts, other.rows)

    @property
    def of(self) -> dict[Any, float]:
        """The rows of each text."""
        return _as_dict(self.texts, self.rows) if len(self.rows) else {}

    def most(self, number: int) -> dict[Any, float]:
        """Return the texts with the most rows, at most this many, and their rows."""
        import pyarrow.compute as pc

        if len(self.rows) <= number:
            return self.of
        least = np.partition(self.rows, len(self.rows) - number)[len(self.rows) - number]
        more, tied = np.flatnonzero(self.rows > least), np.flatnonzero(self.rows == least)
        # Ties are decided by the text, as in `CategoryCounts`: bytes of UTF-8 have the same order.
        order = pc.array_sort_indices(self.texts.take(tied)).to_numpy()
        kept = np.concatenate((more, tied[order[: number - len(more)]]))
        return _as_dict(self.texts.take(kept), self.rows[kept])

    def _forget(self) -> None:
        import pyarrow as pa

        off = _middle(self.rows)
        kept = self.rows > off
        self.error += off
        self.texts, self.rows = self.texts.filter(pa.array(kept)), self.rows[kept] - off


def _as_dict(texts: Any, rows: np.ndarray) -> dict[Any, float]:
    return dict(zip(texts.to_pylist(), rows.tolist()))
