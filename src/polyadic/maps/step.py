"""Piecewise-constant steps."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from polyadic.maps.base import FeatureMap, check_integer
from polyadic.maps.column import distinct, quantile_knots


class Step(FeatureMap):
    """Map a column to the constant and the indicator of its bin, phi(x) = [1, s_0(x), ...].

    s_k is 1 for x above edge k - 1 and up to edge k, and 0 elsewhere: a core holds the values of a
    step function. A row has one slot, for any number of bins. A missing number is in no bin.

    A tree is a sum of products of such functions: see `polyadic.trees`.

    Parameters
    ----------
    n_bins : int
        Most bins, at least 2. Edges lie between the values of a column with few distinct ones, and
        otherwise between quantiles of the rows and of the distinct values, in turn.

    Examples
    --------
    >>> step = Step(n_bins=3).fit(np.array([1.0, 2.0, 4.0]))
    >>> step.edges_
    array([1.5, 3. ])
    >>> step.dense(np.array([1.5, 1.6, 99.0, np.nan]))
    array([[1., 1., 0., 0.],
           [1., 0., 1., 0.],
           [1., 0., 0., 1.],
           [1., 0., 0., 0.]])
    """

    partition = True
    state: ClassVar[tuple[str, ...]] = ("edges_",)

    def __init__(self, n_bins: int = 64):
        self.n_bins = n_bins

    @classmethod
    def at(cls, edges: np.ndarray) -> Self:
        """Return a fitted map with these edges, ascending."""
        out = cls(n_bins=max(len(edges) + 1, 2))
        out.edges_ = np.asarray(edges, dtype=np.float64)
        return out

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Place the edges in the middle between neighbouring values of x : (n,)."""
        check_integer(self, "n_bins", at_least=2)
        values, counts = distinct(x, sample_weight)
        first = quantile_knots(values, counts, self.n_bins)[1:]  # the lowest value of each bin
        at = np.searchsorted(values, first)
        low, high = values[at - 1], values[at]
        middle = 0.5 * low + 0.5 * high  # halved first: a sum near the end of the range overflows
        # The middle of neighbouring floats is one of them; the upper one is above the edge.
        self.edges_ = np.unique(np.where(middle < high, middle, low))
        return self

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bin of each x : (n,); see `FeatureMap.encode`."""
        self._check_fitted()
        x = np.asarray(x, dtype=np.float64)
        known = ~np.isnan(x)
        index = np.where(known, 1 + np.searchsorted(self.edges_, x), 0).astype(np.int32)
        return index[:, None], known.astype(np.float32)[:, None]

    @property
    def dim(self) -> int:
        """Number of basis elements: one per bin, and the constant."""
        self._check_fitted()
        return 2 + len(self.edges_)

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,): 0 for the constant, 1 for all others."""
        return (np.arange(self.dim) > 0).astype(np.int64)

    def merge(self, others: Sequence[Self]) -> tuple[Self, list[np.ndarray | None]]:
        """Return the map on the union of all edges, and the matrix that converts each core."""
        for other in others:
            if not isinstance(other, Step):
                raise ValueError(f"{self!r} can be merged with steps only, not with {other!r}.")
        members = [self, *others]
        merged = copy.copy(self)
        merged.edges_ = np.unique(np.concatenate([m.edges_ for m in members]))
        return merged, [m._transfer(merged.edges_) for m in members]

    def _transfer(self, edges: np.ndarray) -> np.ndarray | None:
        """Return the matrix (2 + number of other edges, d) that converts a core to these edges."""
        if np.array_equal(edges, self.edges_):
            return None
        out = np.zeros((2 + len(edges), self.dim))
        out[0, 0] = 1.0
        ends = np.append(edges, np.inf)
        out[1 + np.arange(len(ends)), 1 + np.searchsorted(self.edges_, ends)] = 1.0
        return out
