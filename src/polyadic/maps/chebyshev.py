"""Chebyshev polynomials."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from polyadic.kernels import encode as kernels
from polyadic.maps.base import FeatureMap, all_elements, check_integer
from polyadic.maps.column import distinct, to_range, value_range


class Chebyshev(FeatureMap):
    """Map a column to Chebyshev polynomials, phi(x) = [1, T_1(u), ..., T_{d-1}(u)].

    u is the column scaled to -1..1 by its range and held at the ends beyond it, and
    T_k(cos t) = cos(k t). The span is that of `Polynomial(d)`, but every element stays within
    -1..1, so that high degrees do not overflow.

    Parameters
    ----------
    d : int
        Number of elements, the constant included; the largest degree is d - 1.

    Examples
    --------
    >>> Chebyshev(d=4).fit(np.array([0.0, 4.0])).dense(np.array([0.0, 3.0, 9.0]))
    array([[ 1. , -1. ,  1. , -1. ],
           [ 1. ,  0.5, -0.5, -1. ],
           [ 1. ,  1. ,  1. ,  1. ]])
    """

    all_slots = True
    state: ClassVar[tuple[str, ...]] = ("range_",)

    def __init__(self, d: int = 8):
        self.d = d

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn the range of x : (n,)."""
        check_integer(self, "d", at_least=1)
        self.range_ = value_range(distinct(x, sample_weight)[0])
        return self

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every element but the constant for x : (n,); see `FeatureMap.encode`."""
        self._check_fitted()
        u = to_range(x, self.range_)
        index = all_elements(len(u), 1, self.d)
        value = np.empty(index.shape, dtype=np.float32)
        kernels.chebyshev(u, value)
        return index, value

    @property
    def dim(self) -> int:
        """Number of basis elements d, the constant included."""
        return self.d

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,): the degree of its polynomial."""
        return np.arange(self.d)
