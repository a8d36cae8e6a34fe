"""The basis elements of one column, as they are written in a formula.

Where the map is a polynomial, these are the powers of the column in its own units, even if the map
standardises it; for a categorical column they are the indicators of its categories.

Indicators add up to one in every row that has a category, and so do hats. Where no training row
lacks a value, a number may be added to the constant or to all the other elements, and predictions
on the training rows are the same: which of the two the training finds depends on L2 and, on a table
without noise, on chance. Such elements are therefore written with a mean of zero over the training
rows, and their mean is added to the constant.
"""

from __future__ import annotations

from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from polyadic.data.columns import Column
from polyadic.data.marginals import Marginal
from polyadic.maps import OneHot, Polynomial
from polyadic.maps.base import FeatureMap

_ROUNDING = 1e-6  # allowed error of a sum of elements in float32, a few times their precision


class Elements:
    """The basis elements of a column as they are written: the constant, then the named ones."""

    noun = "elements"

    def __init__(self, column: Column, feature_map: FeatureMap, marginal: Marginal | None = None):
        self.column, self.map = column, feature_map
        self.first = int(feature_map.constant)  # number of the first named element
        self.shares: np.ndarray | None = None  # means of elements that add up to one in every row
        local = feature_map.constant and not feature_map.all_slots
        if local and marginal is not None and _adds_up_to_one(marginal):
            self.shares = marginal.mean[2:]

    def __len__(self) -> int:
        return self.map.dim + 1 - self.first

    def rewrite(self, core: np.ndarray) -> np.ndarray:
        """Return the core for these elements, (1 + m, K)."""
        if not self.first:
            return np.vstack([np.zeros((1, core.shape[1])), core])
        if self.shares is None:
            return core
        mean = self.shares @ core[1:]
        return np.vstack([core[:1] + mean, core[1:] - mean])

    def deviations(self, marginal: Marginal) -> np.ndarray:
        """Return the standard deviation of each named element, (m,)."""
        variance = marginal.second.diagonal() - marginal.mean**2
        return np.sqrt(np.maximum(variance[1 + self.first :], 0.0))

    def find(self, value: Any) -> int:
        """Return the place of the element that the user names, 0 for the constant."""
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or not 0 <= value < self.map.dim:
            raise ValueError(
                f"Column {self.column.name!r} has the {self.noun} 0 to {self.map.dim - 1}, "
                f"got {value!r}."
            )
        return int(value) + 1 - self.first

    def value(self, k: int) -> Any:
        """Return the value for which `find` returns k."""
        return k - 1 + self.first

    def name(self, k: int) -> str:
        """Return the name of the element at place k."""
        return f"{self.column.name}[{self.value(k)}]"


class Powers(Elements):
    """Powers of a column in its own units."""

    map: Polynomial
    noun = "powers"

    def rewrite(self, core: np.ndarray) -> np.ndarray:
        """Undo the standardisation: phi_k = (z^k - m_k) / s_k with z = (x - mean) / std."""
        powers = core / np.concatenate([[1.0], self.map.element_std_])[:, None]
        powers[0] -= self.map.element_mean_ @ powers[1:]
        mean, std = self.map.mean_, self.map.std_
        return self._affine_powers(-mean / std, 1.0 / std).T @ powers

    def deviations(self, marginal: Marginal) -> np.ndarray:
        """Express the powers of x by those of z, and these by the elements of the map."""
        rows = self._affine_powers(self.map.mean_, self.map.std_)[1:, 1:] * self.map.element_std_
        own = marginal.mean[2:]
        covariance = marginal.second.toarray()[2:, 2:] - np.outer(own, own)
        return np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, covariance, rows), 0.0))

    def _affine_powers(self, start: float, slope: float) -> np.ndarray:
        """Express the powers of start + slope t by those of t; refuse an overflow."""
        out = affine_powers(self.map.d, start, slope)
        if not np.all(np.isfinite(out)) or out[-1, -1] == 0.0:
            raise ValueError(
                f"Powers up to {self.map.d - 1} of column {self.column.name!r} in its own units "
                "are beyond the range of float64. Rescale the column, or lower d of its map."
            )
        return out

    def name(self, k: int) -> str:
        """Return the name of the column, with its power from 2 on."""
        return self.column.name if k == 1 else f"{self.column.name}^{k}"


class Indicators(Elements):
    """Indicators of categories."""

    map: OneHot

    def find(self, value: Any) -> int:
        """Return the place of a category; -1 for one without an element of its own."""
        categories = self.column.categories or ()
        try:
            code = self.column.code_of.get(value)
        except TypeError:  # a list, or another value that cannot be a category
            code = None
        if code is None:
            listed = ", ".join(repr(c) for c in categories[:8])
            more = ", ..." if len(categories) > 8 else ""
            raise ValueError(
                f"Column {self.column.name!r} has no category {value!r}. "
                f"Choose from: {listed}{more}."
            )
        place = int(self.map.lookup_[code]) if code < len(self.map.lookup_) else 0
        return place or -1

    def value(self, k: int) -> Any:
        """Return the category."""
        return (self.column.categories or ())[self._codes[k - 1]]

    @cached_property
    def _codes(self) -> np.ndarray:
        """The codes of the categories that have an element, in the order of the elements."""
        codes = np.flatnonzero(self.map.lookup_)
        return codes[np.argsort(self.map.lookup_[codes])]

    def name(self, k: int) -> str:
        """Return column and category."""
        return f"{self.column.name}={self.value(k)}"


def elements_of(
    column: Column, feature_map: FeatureMap, marginal: Marginal | None = None
) -> Elements:
    """Return the elements of a column under its map; `marginal` is that of the training rows."""
    if isinstance(feature_map, Polynomial) and not feature_map.normalize:
        return Powers(column, feature_map, marginal)
    if isinstance(feature_map, OneHot) and column.categories is not None:
        return Indicators(column, feature_map, marginal)
    return Elements(column, feature_map, marginal)


def _adds_up_to_one(marginal: Marginal) -> bool:
    """Tell whether the elements besides the constant have the sum one in every row.

    They do where the mean and the second moment of that sum are one.
    """
    moments = marginal.mean[2:].sum(), marginal.second.tocsr()[2:, 2:].sum()
    return marginal.missing == 0.0 and bool(np.allclose(moments, 1.0, rtol=0, atol=_ROUNDING))


def affine_powers(d: int, start: float, slope: float) -> np.ndarray:
    """Return T : (d, d) with (start + slope t)^k = sum_j T[k, j] t^j.

    >>> affine_powers(3, -2.0, 2.0)
    array([[ 1.,  0.,  0.],
           [-2.,  2.,  0.],
           [ 4., -8.,  4.]])
    """
    out = np.eye(d)
    with np.errstate(over="ignore", invalid="ignore"):  # beyond the range of float64: infinite
        for k in range(1, d):
            out[k, : k + 1] = np.convolve(out[k - 1, :k], [start, slope])
    return out
