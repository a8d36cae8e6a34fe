"""B-splines."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from polyadic.kernels import encode as kernels
from polyadic.maps.base import BAND, FeatureMap, check_integer, second_difference_band
from polyadic.maps.column import distinct, quantile_knots, to_range, value_range

MOST_DEGREE = 100  # encoding takes the square of it; splines of a degree above five are rare


class BSpline(FeatureMap):
    """Map a column to the constant and B-splines, phi(x) = [1, B_0(u), ..., B_{m-1}(u)].

    u is the column scaled to -1..1 by its range, held at the ends beyond it, and the B_k are the
    B-splines of the given degree on quantile knots with clamped ends, m = n_knots - 1 + degree. At
    any x degree + 1 of them are non-zero, and they sum to one. The constant is in their span; it is
    kept nevertheless, to encode missing values and to define the order of a term.

    Parameters
    ----------
    n_knots : int
        Number of distinct knots, the ends included, at least 2; fewer where the column has fewer
        distinct values.
    degree : int
        Degree of the pieces, 1 to 100; 3 gives two continuous derivatives.

    Examples
    --------
    >>> spline = BSpline(n_knots=2, degree=2).fit(np.array([0.0, 1.0]))
    >>> spline.dense(np.array([0.0, 0.5, 2.0]))
    array([[1. , 1. , 0. , 0. ],
           [1. , 0.25, 0.5 , 0.25],
           [1. , 0. , 0. , 1. ]])
    """

    partition = True
    state: ClassVar[tuple[str, ...]] = ("range_", "breaks_")

    def __init__(self, n_knots: int = 16, degree: int = 3):
        self.n_knots = n_knots
        self.degree = degree

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn the range of x : (n,) and place the knots, `breaks_`, in -1..1."""
        check_integer(self, "n_knots", at_least=2)
        check_integer(self, "degree", at_least=1, at_most=MOST_DEGREE)
        values, counts = distinct(x, sample_weight)
        self.range_ = value_range(values)
        knots = quantile_knots(values, counts, self.n_knots)
        # A column of one value has only the two ends as knots; its own knot would be at 0.
        inner = to_range(knots, self.range_) if len(knots) > 1 else np.zeros(0)
        # Near 0 two floats can be so close that the inverse of the gap between them is infinite.
        inner = np.where(np.abs(inner) < 1e-200, 0.0, inner)
        self.breaks_ = np.unique(np.concatenate([[-1.0, 1.0], inner]))
        return self

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the degree + 1 splines around each x : (n,); see `FeatureMap.encode`."""
        self._check_fitted()
        u = to_range(x, self.range_)
        index = np.empty((len(u), self.degree + 1), dtype=np.int32)
        value = np.empty((len(u), self.degree + 1), dtype=np.float32)
        ends = np.ones(self.degree)
        knots = np.concatenate([-ends, self.breaks_, ends])
        workspace = np.empty((3, self.degree + 1))
        kernels.bsplines(u, knots, self.degree, workspace, index, value)
        return index, value

    @property
    def dim(self) -> int:
        """Number of basis elements: the splines, and the constant."""
        self._check_fitted()
        return len(self.breaks_) + self.degree

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,): 0 for the constant, 1 for all others."""
        return (np.arange(self.dim) > 0).astype(np.int64)

    @property
    def roughness(self) -> np.ndarray:
        """Band of the squared second differences of the coefficients, (d, 5), as in P-splines."""
        return np.vstack([np.zeros((1, BAND)), second_difference_band(self.dim - 1)])
