"""Piecewise-linear hats."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from numbers import Real
from typing import ClassVar, Self

import numpy as np

from polyadic.kernels import encode as kernels
from polyadic.maps.base import (
    BAND,
    FeatureMap,
    check_integer,
    knot_share,
    second_difference_band,
)
from polyadic.maps.column import distinct, quantile_knots, quantiles
from polyadic.maps.profile import Profile

AUTO_KNOTS = 24, 160  # least and most knots of n_knots="auto": docs/defaults.md
TABLE_SIZE = 1025  # quantiles of a column that a map keeps for `jitter`; chosen by hand


class Hat(FeatureMap):
    """Map a column to the constant and one hat per knot, phi(x) = [1, h_0(x), ..., h_{K-1}(x)].

    h_k is 1 at knot k, 0 at every other knot and linear in between, so that a core holds the values
    of a piecewise-linear function at the knots. At any x at most two hats are non-zero, 1 - t and
    t, for any number of knots. Below the first and above the last knot the function is constant.

    Parameters
    ----------
    n_knots : int or "auto"
        Number of knots, at least 2; "auto" is the square root of the number of rows, from 24 to
        160. Knots are the ends of the column and, in between, quantiles of the rows and of the
        distinct values in turn. A column of fewer distinct values has a knot on each.
    by_target : float
        Share of the inner knots, 0 to 1, placed by the target: on both sides of the splits of a
        small regression tree, so that the function can have steps there. If the tree has fewer
        splits, the remaining knots lie on quantiles too.

    Examples
    --------
    >>> hat = Hat(n_knots=3).fit(np.arange(11.0))
    >>> hat.knots_
    array([ 0.,  5., 10.])
    >>> hat.dense(np.array([0.0, 6.0, 99.0, np.nan]))
    array([[1. , 1. , 0. , 0. ],
           [1. , 0. , 0.80000001, 0.2 ],
           [1. , 0. , 0. , 1. ],
           [1. , 0. , 0. , 0. ]])
    >>> x = np.arange(100.0)
    >>> Hat(n_knots=6, by_target=0.5).fit(x, x > 30).knots_
    array([ 0., 30., 31., 33., 66., 99.])
    """

    partition = True
    state: ClassVar[tuple[str, ...]] = ("knots_",)

    # For `jitter`: quantiles of the rows and of the distinct values, the target along the column,
    # and the number of knots asked for. They are not saved.
    _tables: tuple[np.ndarray, np.ndarray] | None = None
    _profile: Profile | None = None
    _wanted: int = 2

    def __init__(self, n_knots: int | str = "auto", by_target: float = 0.0):
        self.n_knots = n_knots
        self.by_target = by_target

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Place the knots on x : (n,); the target y : (n,) is used for `by_target` only."""
        if self.n_knots != "auto":
            check_integer(self, "n_knots", at_least=2)
        self._check_share()
        values, counts = distinct(x, sample_weight)
        self._wanted = self._n_knots_wanted(counts)
        free = len(values) > self._wanted  # otherwise there is a knot on every value
        self._tables = self._quantile_tables(values, counts) if free else (np.zeros(0), np.zeros(0))
        self._profile = None
        if free and y is not None and self._n_splits() > 0:
            self._profile = Profile.read(x, y, sample_weight)
        jumps = self._jumps()
        placed = quantile_knots(values, counts, self._wanted - len(jumps))
        self.knots_ = np.union1d(placed, jumps)
        return self

    def _check_share(self) -> None:
        given = self.by_target
        if not isinstance(given, Real) or isinstance(given, bool) or not 0 <= given <= 1:
            raise ValueError(f"Hat got by_target={given!r}. It must be a number from 0 to 1.")

    def _quantile_tables(
        self, values: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return many quantiles of the rows and of the distinct values."""
        size = max(TABLE_SIZE, 2 * self._wanted)
        levels = (np.arange(size) + 0.5) / size
        rows = quantiles(values, counts, levels)
        few = len(values) <= size
        return rows, values if few else quantiles(values, np.ones(len(values)), levels)

    def _n_splits(self) -> int:
        """Return how many splits of the tree get knots; each of them needs two."""
        return int(self.by_target * (self._wanted - 2)) // 2

    def _jumps(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return the knots that the target places; with a generator, those of a bootstrap."""
        return np.zeros(0) if self._profile is None else self._profile.jumps(self._n_splits(), rng)

    def _n_knots_wanted(self, counts: np.ndarray) -> int:
        """Return n_knots, "auto" resolved by the effective number of rows."""
        if self.n_knots != "auto":
            return int(self.n_knots)
        low, high = AUTO_KNOTS
        rows = max(counts.sum(), counts.sum() ** 2 / np.sum(counts**2)) if len(counts) else 0.0
        return int(np.clip(np.sqrt(rows), low, high))

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the two hats around each x : (n,); see `FeatureMap.encode`."""
        self._check_fitted()
        x = np.ascontiguousarray(x, dtype=np.float64)
        index = np.empty((len(x), 2), dtype=np.int32)
        value = np.empty((len(x), 2), dtype=np.float32)
        kernels.hats(x, self.knots_, 1, 0.0, index, value)
        return index, value

    @property
    def dim(self) -> int:
        """Number of basis elements: one hat per knot, and the constant."""
        self._check_fitted()
        return 1 + len(self.knots_)

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,): 0 for the constant, 1 for all others."""
        return (np.arange(self.dim) > 0).astype(np.int64)

    @property
    def roughness(self) -> np.ndarray:
        """Band of the squared second differences along the knots, (d, 5); none on the constant."""
        n_knots = self.dim - 1
        band = knot_share(n_knots) * second_difference_band(n_knots)
        return np.vstack([np.zeros((1, BAND)), band])

    def jitter(self, rng: np.random.Generator) -> Self:
        """Return a map with inner knots at random quantiles, one level in each of equal intervals.

        Knots placed by the target come from a tree on a bootstrap of the column. The ends stay.
        If every distinct value has a knot, there is nothing to vary and the map itself is returned.
        """
        self._check_fitted()
        if self._tables is None:
            raise ValueError(
                f"{self!r} was restored from its saved knots, without the column it was fitted on, "
                "so it cannot draw other knots. Fit it again first."
            )
        if len(self._tables[0]) == 0:
            return self
        jumps = self._jumps(rng)
        inner = self._wanted - 2 - len(jumps)
        knots = [self.knots_[[0, -1]], jumps]
        for table, n in zip(self._tables, (inner - inner // 2, inner // 2)):
            levels = (np.arange(n) + rng.random(n)) / max(n, 1)
            at = (levels * len(table)).astype(np.int64)
            knots.append(table[np.minimum(at, len(table) - 1)])
        return self._with_knots(np.unique(np.concatenate(knots)))

    def merge(self, others: Sequence[Self]) -> tuple[Self, list[np.ndarray | None]]:
        """Return the map on the union of all knots, and the matrix that converts each core to it.

        A hat of one map is piecewise linear on the union of knots and constant beyond its own
        ends, so its values at all knots of the union determine it: the conversion is exact.
        """
        for other in others:
            if not isinstance(other, Hat):
                raise ValueError(f"{self!r} can be merged with hats only, not with {other!r}.")
        members = [self, *others]
        merged = self._with_knots(np.unique(np.concatenate([m.knots_ for m in members])))
        return merged, [m._transfer(merged.knots_) for m in members]

    def _with_knots(self, knots: np.ndarray) -> Self:
        out = copy.copy(self)
        out.knots_ = knots
        return out

    def _transfer(self, knots: np.ndarray) -> np.ndarray | None:
        """Return the matrix (1 + number of other knots, d) that converts a core to other knots."""
        if np.array_equal(knots, self.knots_):
            return None
        index = np.empty((len(knots), 2), dtype=np.int32)
        value = np.empty((len(knots), 2))  # float64, to be exact
        kernels.hats(knots, self.knots_, 1, 0.0, index, value)
        out = np.zeros((1 + len(knots), self.dim))
        out[0, 0] = 1.0
        np.add.at(out, (1 + np.arange(len(knots))[:, None], index), value)
        return out
