"""One indicator per category."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from polyadic.maps.base import FeatureMap, check_integer


class OneHot(FeatureMap):
    """Map a category to the constant and its own indicator, phi(x) = [1, v], v one-hot.

    The column is given as codes 0, 1, 2, ..., with -1 for a missing or unseen category. A row
    has one slot, for any number of categories.

    Parameters
    ----------
    min_count : int
        Rows, counted with their weights, that a category needs to get its own element. Rarer
        categories are merged into the constant element: they encode to value 0, as a missing or
        unseen category does. With 1, any row of positive weight is enough, however small the
        weight.

    Examples
    --------
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

    def __init__(self, min_count: int = 1):
        self.min_count = min_count

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn from codes x : (n,) the element of each code, `lookup_`; 0 for a rare category."""
        check_integer(self, "min_count", at_least=1)
        codes = np.asarray(x, dtype=np.int64)
        known = codes >= 0
        if sample_weight is None:
            counts = np.bincount(codes[known], minlength=1)
        else:
            weight = np.asarray(sample_weight, dtype=np.float64)
            known &= weight > 0
            codes, weight = codes[known], weight[known]
            order = np.lexsort((weight, codes))  # a sum of fractions depends on its order
            counts = np.bincount(codes[order], weights=weight[order], minlength=1)
        kept = counts > 0 if self.min_count == 1 else counts >= self.min_count
        self.lookup_ = np.where(kept, np.cumsum(kept), 0).astype(np.int32)
        return self

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
