"""One indicator per category."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from polyadic.maps.base import BAND, FeatureMap, check_integer, knot_share

# min_count="auto": a category of fewer rows than the first number is folded, where all such
# categories of the column together have at least as many rows as the second. The first is by
# `benchmarks/categories.py rare` (docs/defaults.md), the second by hand: a missing value, which
# shares their element, should not stand for what one or two rows happened to be.
AUTO_COUNT, FEWEST_FOLDED = 2.0, 10.0
ALONG = None, "line", "circle"
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
    along : "line", "circle" or None
        Whether neighbouring codes are alike: then the smoothness penalty is on the difference of
        their values. On a circle the first code is the neighbour of the last, as January is that of
        December.

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
    >>> OneHot(along="circle").fit(np.arange(5)).lookup_  # elements of neighbours are close
    array([1, 2, 4, 5, 3], dtype=int32)
    """

    kind: ClassVar[str] = "categorical"
    partition = True
    state: ClassVar[tuple[str, ...]] = ("lookup_",)

    def __init__(self, min_count: int | str = "auto", along: str | None = None):
        self.min_count = min_count
        self.along = along

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn from codes x : (n,) the element of each code, `lookup_`; 0 for a rare category."""
        if self.min_count != "auto":
            check_integer(self, "min_count", at_least=1)
        if self.along not in ALONG:
            raise ValueError(f"OneHot got along={self.along!r}. Choose 'line', 'circle' or None.")
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
        elements = np.arange(1, np.count_nonzero(kept) + 1)
        if self.along == "circle":
            elements = 1 + _on_two_sides(len(elements))
        self.lookup_ = np.zeros(len(kept), dtype=np.int32)
        self.lookup_[kept] = elements
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

    @property
    def roughness(self) -> np.ndarray:
        """Band of the squared differences between neighbours, (d, 5); zero without `along`."""
        band, elements = super().roughness, self.lookup_[self.lookup_ > 0]
        if self.along is None or len(elements) < 2:
            return band
        after = np.roll(elements, -1)
        is_pair = np.abs(after - elements) < BAND - BAND // 2
        if self.along == "line" or len(elements) == 2:
            is_pair[-1] = False
        # A wave of one round costs what it costs on the knots of hats.
        size = (2 * np.pi / len(elements)) ** 2 * knot_share(len(elements))
        for one, other in ((elements, after), (after, elements)):
            np.add.at(band, (one[is_pair], BAND // 2), size)
            np.add.at(band, (one[is_pair], BAND // 2 + (other - one)[is_pair]), -size)
        return band


def _on_two_sides(count: int) -> np.ndarray:
    """Return places for the points of a circle, such that neighbours are at most two apart.

    The places go along both sides of the circle at once, from the first point to the opposite one.

    >>> _on_two_sides(5)
    array([0, 1, 3, 4, 2])
    """
    points = np.arange(count)
    return np.where(2 * points <= count, np.maximum(2 * points - 1, 0), 2 * (count - points))


def _typical(weight: np.ndarray) -> float:
    """Return the weight of a typical row, at most one; weights : (n,), positive.

    >>> _typical(np.array([0.25, 0.25])), _typical(np.array([2.0, 1.0]))
    (0.25, 1.0)
    """
    if not len(weight):
        return 1.0
    share = np.sort(weight) / weight.max()  # squares of tiny weights would vanish
    return float(min(1.0, weight.max() * np.sum(share**2) / np.sum(share)))
