"""The mean of the target along a column, and where it jumps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyadic.kernels.tree import best_splits
from polyadic.maps.column import to_range

# All three are chosen by hand.
ROWS = 20_000  # rows read at most: of a longer column every second, third, ... row, to sort fewer
GROUPS = 2048  # groups of neighbouring values in a profile, at most
_LEAF_DIVISOR = 8  # the least weight of a leaf is that of one of n_splits + 1 equal leaves over 8


@dataclass(frozen=True)
class Profile:
    """Weight and summed target of groups of neighbouring values, ascending.

    first, last : smallest and largest value of each group, (m,). Equal if there are few values.
    weight, total : summed weight, and weighted sum of the target scaled to -1..1, (m,).
    """

    first: np.ndarray
    last: np.ndarray
    weight: np.ndarray
    total: np.ndarray

    @classmethod
    def read(cls, x: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None) -> Profile:
        """Read the target y : (n,) along x : (n,).

        Missing values and rows of weight zero are left out. Up to `ROWS` rows their order does not
        matter; for more rows it does, but estimators pass them sorted by their content.
        """
        rows = slice(None, None, -(-len(x) // ROWS) or 1)
        x, y = np.asarray(x, dtype=np.float64)[rows] + 0.0, np.asarray(y, dtype=np.float64)[rows]
        weight = np.ones(len(x)) if sample_weight is None else np.asarray(sample_weight)[rows]
        known = ~np.isnan(x) & (weight > 0)
        x, y, weight = x[known], y[known], weight[known].astype(np.float64)
        if len(x) == 0:
            return cls(x, x, weight, y)
        y = to_range(y, np.array([y.min(), y.max()]))
        order = np.lexsort((weight, y, x))
        x, y, weight = x[order], y[order], weight[order]
        # Equal pairs are merged first: a weight of 2 then gives the same bits as the row twice.
        pairs = _starts(x, y)
        x, y, weight = x[pairs], y[pairs], np.add.reduceat(weight, pairs)
        values = _starts(x)
        x, total = x[values], np.add.reduceat(weight * y, values)
        weight = np.add.reduceat(weight, values)
        if len(x) <= GROUPS:
            return cls(x, x, weight, total)
        reached = np.cumsum(weight)
        groups = _starts(np.floor(GROUPS * (reached - 0.5 * weight) / reached[-1]))
        last = x[np.append(groups[1:], len(x)) - 1]
        return cls(x[groups], last, *(np.add.reduceat(a, groups) for a in (weight, total)))

    def jumps(self, n_splits: int, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return the values on both sides of the splits of a small regression tree, ascending.

        With a generator, the tree of a bootstrap: every group gets a random weight.
        """
        weight, total = self.weight, self.total
        if rng is not None:
            chance = rng.exponential(size=len(weight))
            weight, total = weight * chance, total * chance
        at = best_splits(weight, total, n_splits, weight.sum() / (_LEAF_DIVISOR * (n_splits + 1)))
        return np.union1d(self.last[at - 1], self.first[at])


def _starts(*keys: np.ndarray) -> np.ndarray:
    """Return where runs of equal keys start, for sorted keys : (n,).

    >>> _starts(np.array([1.0, 1.0, 2.0, 2.0]), np.array([0.0, 0.0, 0.0, 5.0]))
    array([0, 2, 3])
    """
    new = np.zeros(len(keys[0]), dtype=bool)
    new[0] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(new)
