"""One indicator per category."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from polyadic.maps.base import FeatureMap, check_integer

# min_count="auto": a category of fewer rows than the first number is folded, where all such
# categories of the column together have at least as many rows as the second. The first is by
# `benchmarks/categories.py rare` (docs/defaults.md), the second by hand: a missing value, which
# shares their element, should not stand for what one or two rows happened to be.
AUTO_COUNT, FEWEST_FOLDED = 2.0, 10.0
_ROUNDING = 1e-6  # of sums of fractions, as a share


class OneHot(FeatureMap):
    """Map a category to the constant and its own indicator, phi(x) = [1, v], v one-hot.

    The column is given as codes 0, 1, 2, ..., with -1 for a missing or unseen category. A row
    has one slot, for any number of categories.

    Parameters
    ----------
    min_count : int or "auto"
        Rows, counted with their weights, that a category needs to get its own element. Rarer
        categories are merged into the constant element: they encode to value 0, as a missing or
        unseen category does. With 1, any row of positive weight is enough, however small the
        weight. "auto" is 2, where at least ten rows of the column have such a rare category,
        and 1 otherwise: an element of a single row can only learn that row's noise. Where weights
        are smaller than one, so that only their ratios have a meaning, rows count in units of the
        typical weight, sum(w^2) / sum(w).

    Examples
    --------
    >>> identifiers = np.arange(100)
    >>> OneHot().fit(identifiers).dim, OneHot(min_count=1).fit(identifiers).dim
    (1, 101)
    >>> onehot = OneHot(min_count=2).fit(np.array([0, 0, 1, 2, 2]))
    >>> onehot.dense(np.array([0, 1, 2, -1, 7]))
    array([[1., 1., 0.],
           [1., 0., 0.],
           [1., 0., 1.],
           [1., 0., 0.],
           [1., 0., 0.]])
    """

    kind: ClassVar[str] = "categorical"
    partition = True
    state: ClassVar[tuple[str, ...]] = ("lookup_",)

    def __init__(self, min_count: int | str = "auto"):
        self.min_count = min_count

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn from codes x : (n,) the element of each code, `lookup_`; 0 for a rare category."""
        if self.min_count != "auto":
            check_integer(self, "min_count", at_least=1)
        codes = np.asarray(x, dtype=np.int64)
        known = codes >= 0
        unit = 1.0
        if sample_weight is None:
            counts = np.bincount(codes[known], minlength=1)
        else:
            weight = np.asarray(sample_weight, dtype=np.float64)
            known &= weight > 0
            unit = _typical(weight[weight > 0])
            codes, weight = codes[known], weight[known]
            order = np.lexsort((weight, codes))  # a sum of fractions depends on its order
            counts = np.bincount(codes[order], weights=weight[order], minlength=1)
        kept = self._kept(counts, unit)
        self.lookup_ = np.where(kept, np.cumsum(kept), 0).astype(np.int32)
        return self

    def _kept(self, counts: np.ndarray, unit: float) -> np.ndarray:
        """Tell which codes get an element, given their rows and the weight of one row."""
        if self.min_count == "auto":
            rare = counts < (AUTO_COUNT - _ROUNDING) * unit
            fold = counts[rare].sum() >= (FEWEST_FOLDED - _ROUNDING) * unit
            return counts > 0 if not fold else ~rare
        return counts > 0 if self.min_count == 1 else counts >= self.min_count

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indicator of each code x : (n,); see `FeatureMap.encode`."""
        self._check_fitted()
        codes = np.asarray(x, dtype=np.int64)
        index = self.lookup_.take(codes, mode="clip")
        index[(codes < 0) | (codes >= len(self.lookup_))] = 0
        index = index[:, None]
        return index, (index > 0).astype(np.float32)

    @property
    def dim(self) -> int:
        """Number of basis elements: one per category kept, and the constant."""
        self._check_fitted()
        return 1 + int(self.lookup_.max())

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,): 0 for the constant, 1 for all others."""
        return (np.arange(self.dim) > 0).astype(np.int64)


def _typical(weight: np.ndarray) -> float:
    """Return the weight of a typical row, at most one; weights : (n,), positive.

    >>> _typical(np.array([0.25, 0.25])), _typical(np.array([2.0, 1.0]))
    (0.25, 1.0)
    """
    if not len(weight):
        return 1.0
    share = np.sort(weight) / weight.max()  # squares of tiny weights would vanish
    return float(min(1.0, weight.max() * np.sum(share**2) / np.sum(share)))
