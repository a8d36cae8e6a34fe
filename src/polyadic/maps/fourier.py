"""Sines and cosines."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from polyadic.kernels import encode as kernels
from polyadic.maps.base import BAND, FeatureMap, all_elements, check_integer
from polyadic.maps.column import distinct, to_range, value_range


class Fourier(FeatureMap):
    """Map a column to [1, cos(pi u), sin(pi u), ..., cos(K pi u), sin(K pi u)].

    u is the column scaled to -1..1 by its range and held at the ends beyond it; K is
    `n_frequencies`. Both ends of the range have the same elements, so the map suits periodic
    columns: hours, angles, months.

    Parameters
    ----------
    n_frequencies : int
        Number of frequencies K, at least 1; the map has 1 + 2 K elements.

    Examples
    --------
    >>> fourier = Fourier(n_frequencies=1).fit(np.array([0.0, 4.0]))
    >>> fourier.dense(np.array([2.0, 3.0])).round(3)
    array([[1., 1., 0.],
           [1., 0., 1.]])
    """

    all_slots = True
    state: ClassVar[tuple[str, ...]] = ("range_",)

    def __init__(self, n_frequencies: int = 8):
        self.n_frequencies = n_frequencies

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn the range of x : (n,)."""
        check_integer(self, "n_frequencies", at_least=1)
        self.range_ = value_range(distinct(x, sample_weight)[0])
        return self

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every element but the constant for x : (n,); see `FeatureMap.encode`."""
        self._check_fitted()
        u = to_range(x, self.range_)
        index = all_elements(len(u), 1, self.dim)
        value = np.empty(index.shape, dtype=np.float32)
        kernels.harmonics(u, value)
        return index, value

    @property
    def dim(self) -> int:
        """Number of basis elements: a sine and a cosine per frequency, and the constant."""
        return 1 + 2 * self.n_frequencies

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,): its frequency, [0, 1, 1, 2, 2, ...]."""
        return (np.arange(self.dim) + 1) // 2

    @property
    def roughness(self) -> np.ndarray:
        """Band of diag(frequency^4), (d, 5): the mean squared second derivative, up to a factor."""
        band = np.zeros((self.dim, BAND))
        band[:, BAND // 2] = self.degrees.astype(np.float64) ** 4
        return band


class Trigonometric(FeatureMap):
    """Map a column to [cos(pi/2 u), sin(pi/2 u)], the map of early tensor-network classifiers.

    u is the column scaled to 0..1 by its range and held at the ends beyond it. The vector has unit
    length and there is no constant element; a missing value encodes as [1, 0].

    Examples
    --------
    >>> trigonometric = Trigonometric().fit(np.array([0.0, 255.0]))
    >>> trigonometric.dense(np.array([0.0, 85.0, 255.0])).round(3)
    array([[1.   , 0.   ],
           [0.866, 0.5  ],
           [0.   , 1.   ]])
    """

    constant = False
    all_slots = True
    state: ClassVar[tuple[str, ...]] = ("range_",)

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn the range of x : (n,)."""
        self.range_ = value_range(distinct(x, sample_weight)[0])
        return self

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both elements for x : (n,); see `FeatureMap.encode`."""
        self._check_fitted()
        u = to_range(x, self.range_)
        angle = np.where(np.isnan(u), 0.0, 0.25 * np.pi * (u + 1.0))
        value = np.column_stack([np.cos(angle), np.sin(angle)]).astype(np.float32)
        return all_elements(len(u), 0, 2), value

    @property
    def dim(self) -> int:
        """Number of basis elements: a cosine and a sine."""
        return 2

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (2,): 0 for the cosine, 1 for the sine."""
        return np.arange(2)
