"""Rows of a table as a set: each distinct row once, in an order that depends on content alone.

Training uses distinct rows with summed weights, sorted by their content. So a weight of two is the
same as the row twice, a weight of zero the same as no row, shuffling the table changes nothing, and
a repeated row is never both in the training part and in the held-out part, unless most rows of the
table are repeated: see `CodedRows.in_copies`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

_CONTRADICTING = 0.02  # share of rows whose columns another row has, too; chosen by hand
_WHOLE = 1e-9  # relative rounding of a weight that is a whole number of units
_MIX = np.uint64(0x9E3779B97F4A7C15)  # an odd multiplier: 2^64 over the golden ratio


@dataclass(frozen=True)
class CodedRows:
    """Rows as numbers: coded columns, targets and weights.

    Attributes
    ----------
    columns : list of N arrays (n,)
    y : (n, L), for softmax (n, 1)
    weight : (n,)
    counts : (n,) or None
        The weights before class weights are applied, where there are class weights.
    """

    columns: list[np.ndarray]
    y: np.ndarray
    weight: np.ndarray
    counts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    def effective_rows(self) -> float:
        """Return how many rows of weight one these count as.

        The sum of the weights, since a weight of 2 is the row twice; or, where weights are small
        and only their ratios have a meaning, (sum of weights)^2 / (sum of squared weights).
        """
        return float(max(self.weight.sum(), self.weight.sum() ** 2 / np.sum(self.weight**2)))

    def take(self, rows: np.ndarray) -> CodedRows:
        """Return these rows."""
        return CodedRows([c[rows] for c in self.columns], self.y[rows], self.weight[rows])

    def in_copies(self, most: int) -> CodedRows:
        """Return rows that were found several times as up to `most` rows, which share their weight.

        Only where at least every second row to predict will be a repeated one. By Good and Turing,
        the chance of a row that was never found is the share of rows that were found once. Held-out
        rows are then like those to predict if some copies of a row are held out and some are not.
        And only where some rows have the same columns but another target, as they do where rows are
        equal by chance. Rows that were repeated on purpose, such as those of a rare class, and rows
        of a large weight are held out with all of their weight: otherwise they would be predicted
        from their own copies.

        How often a row was found is its weight in units of the smallest, where all weights are
        whole numbers of that unit; other weights do not count rows.

        >>> x, y = [np.array([5.0, 5.0])], np.array([[0.0], [1.0]])
        >>> CodedRows(x, y, np.array([6.0, 2.0])).in_copies(10).weight
        array([2., 2., 2., 2.])
        >>> CodedRows(x, y, np.array([2.3, 1.0])).in_copies(10).weight
        array([2.3, 1. ])
        """
        counts = self.weight if self.counts is None else self.counts
        found = counts / counts.min(initial=np.inf)
        whole = np.all(np.abs(found - np.round(found)) <= _WHOLE * found)
        if not whole or 2.0 * np.count_nonzero(found < 1.5) >= found.sum():
            return self
        blank = np.zeros((len(self), 1))
        n_inputs = len(distinct_rows(self.columns, blank, np.ones(len(self)))[0])
        if len(self) - n_inputs < _CONTRADICTING * len(self):
            return self
        copies = np.minimum(np.round(found), most).astype(np.intp)
        rows = np.repeat(np.arange(len(self)), copies)
        own = None if self.counts is None else (self.counts / copies)[rows]
        return replace(self.take(rows), weight=(self.weight / copies)[rows], counts=own)

    def restricted(self, columns: Sequence[int]) -> CodedRows:
        """Return the same rows with these columns only."""
        return replace(self, columns=[self.columns[n] for n in columns])


def distinct_rows(
    columns: list[np.ndarray],
    y: np.ndarray,
    weight: np.ndarray,
    names: Sequence[str] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return one position per distinct row (of columns and y : (n, L)) and the rows' weights.

    Rows of weight zero are left out. The order of the columns has no effect; of columns that could
    change places in the table as a whole, none where their names are given.

    >>> distinct_rows([np.array([1.0, 2.0, 1.0])], np.zeros((3, 1)), np.array([1.0, 0.0, 3.0]))
    (array([0]), array([4.]))
    """
    kept = np.flatnonzero(weight > 0)
    words = [_bits(column[kept]) for column in columns]
    words += [_scramble(_bits(column[kept])) for column in y.T]  # so y differs from an equal column
    prints = _fingerprint(words)
    # Equal rows are sorted by weight: the sum of their weights then does not depend on row order.
    order = np.lexsort((weight[kept], prints))
    same = _same_as_before(words, order)
    if np.any((prints[order[1:]] == prints[order[:-1]]) & ~same):
        # Rows that differ but share a fingerprint: bring equal ones together word by word.
        ranked = _ranked(words[: len(columns)], prints, weight[kept], names)
        words = [*(words[n] for n in ranked), *words[len(columns) :]]
        order = np.lexsort((weight[kept], *words, prints))
        same = _same_as_before(words, order)
    first = np.flatnonzero(np.concatenate(([True], ~same)))
    return kept[order[first]], np.add.reduceat(weight[kept][order], first)


def _ranked(
    words: list[np.ndarray],
    prints: np.ndarray,
    weight: np.ndarray,
    names: Sequence[str] | None,
) -> list[int]:
    """Return the columns in an order that depends on their content, then on names, then on places.

    The content is how much weight each value has beside each fingerprint: two columns of the same
    few values often differ in nothing else.
    """
    marks = []
    for word in words:
        order = np.lexsort((weight, prints, word))
        same = _same_as_before([word, prints], order)
        first = np.flatnonzero(np.concatenate(([True], ~same)))
        mark = hashlib.blake2b(np.add.reduceat(weight[order], first).tobytes())
        for own in (word, prints):
            mark.update(own[order[first]].tobytes())
        marks.append(mark.digest())
    names = [""] * len(words) if names is None else names
    return sorted(range(len(words)), key=lambda n: (marks[n], names[n]))


def _same_as_before(words: list[np.ndarray], order: np.ndarray) -> np.ndarray:
    """Tell, for every row but the first in this order, whether it equals the one before."""
    same = np.ones(len(order) - 1, dtype=bool)
    for word in words:
        same &= word[order[1:]] == word[order[:-1]]
    return same


def _bits(column: np.ndarray) -> np.ndarray:
    """Return the column as 64-bit words; equal values have equal words."""
    if column.dtype.kind == "f":
        column = np.asarray(column, dtype=np.float64) + 0.0  # turns -0.0 into 0.0
        column = np.where(np.isnan(column), np.nan, column)
        return np.ascontiguousarray(column).view(np.uint64)
    return column.astype(np.int64).view(np.uint64)


def _fingerprint(words: list[np.ndarray]) -> np.ndarray:
    """Hash the words of each row into one.

    The columns' words are added up, each scrambled with a mark of the whole column, so that the
    order of the columns has no effect. Marks are maxima, on which repeated rows and the order of
    rows have no effect. The first marks distinguish columns of different values; the second marks,
    made of a column's words and the first fingerprints, also columns of the same values.
    """
    first = _add_up(words, [_scramble(word).max() for word in words])
    beside = _scramble(first)
    return _add_up(words, [_scramble(word ^ beside).max() for word in words])


def _add_up(words: list[np.ndarray], marks: list[np.uint64]) -> np.ndarray:
    out = np.zeros(len(words[0]), dtype=np.uint64)
    for word, mark in zip(words, marks):
        out += _scramble(word ^ mark)
    return out


def _scramble(word: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * _MIX
    return word ^ (word >> np.uint64(31))


def row_hashes(names: Sequence[str], columns: list[np.ndarray], y: np.ndarray) -> np.ndarray:
    """Return a number for each row by its content alone, (n,) uint64, whatever rows are beside it.

    Equal rows have equal numbers; the order of the columns has no effect.

    >>> x, y = np.array([1.0, 2.0, 1.0]), np.zeros((3, 1))
    >>> a, b, c = row_hashes(["x"], [x], y)
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    words = [_bits(column) for column in columns] + [_bits(column) for column in y.T]
    keys = [*(f"column {name}" for name in names), *(f"target {k}" for k in range(y.shape[1]))]
    marks = [hashlib.blake2b(key.encode(), digest_size=8).digest() for key in keys]
    with np.errstate(over="ignore"):
        return _scramble(_add_up(words, [np.frombuffer(mark, np.uint64)[0] for mark in marks]))


def place_hashes(places: np.ndarray) -> np.ndarray:
    """Return a number for each place in a table, (n,) uint64."""
    with np.errstate(over="ignore"):
        return _scramble(places.astype(np.uint64) * _MIX)


def column_seeds(columns: list[np.ndarray]) -> list[int]:
    """Return one seed per column, from its content; equal columns get consecutive seeds."""
    seen: dict[int, int] = {}
    out = []
    for column in columns:
        seed = column_seed(column)
        seen[seed] = seen.get(seed, -1) + 1
        out.append(seed + seen[seed])
    return out


def content_order(columns: list[np.ndarray], names: Sequence[str] | None = None) -> list[int]:
    """Return the columns sorted by their content, so that the order of the table does not matter.

    Equal columns are sorted by their names; without names, they stay as they are in the table.

    >>> equal = np.arange(3.0)
    >>> content_order([equal, equal], ["b", "a"])
    [1, 0]
    """
    seeds = [column_seed(column) for column in columns]
    names = [""] * len(columns) if names is None else names
    return sorted(range(len(columns)), key=lambda n: (seeds[n], names[n]))


def column_seed(column: np.ndarray) -> int:
    """Return a number that depends on the values of a column, not on its position in the table."""
    word = _bits(column)
    with np.errstate(over="ignore"):
        place = np.arange(1, len(word) + 1, dtype=np.uint64) * _MIX
        return int(np.bitwise_xor.reduce(_scramble(word ^ place))) if len(word) else 0


def folds(y: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """Assign each row to a fold, (n,), every fold with its share of small and large targets.

    Rows are sorted by target, and of every n_folds neighbours each fold gets one at random.
    """
    n = len(y)
    order = rng.permutation(n)
    order = order[np.argsort(y[order, 0], kind="stable")]
    n_groups = -(-n // n_folds)
    fold_of = rng.permuted(np.tile(np.arange(n_folds), (n_groups, 1)), axis=1).ravel()[:n]
    out = np.empty(n, dtype=np.int64)
    out[order] = fold_of
    return out
