"""Local maps as polynomials on cells, for languages that have no code of ours.

A cell lies between two neighbouring knots. There the few elements of a local map that are not zero
are polynomials of the place v within the cell, from 0 to 1. Hats are linear, steps constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyadic.kernels.encode import bsplines
from polyadic.maps import BSpline, Hat, Step
from polyadic.maps.base import FeatureMap

_LINEAR = np.array([[1.0, 0.0], [-1.0, 1.0]])  # the slots 1 - v and v, as powers of v


@dataclass(frozen=True)
class Pieces:
    """The slots of a local map, cell by cell; C cells, s slots.

    Attributes
    ----------
    edges : (C - 1,)
        The cell of u is the number of edges that are at most u.
    start, width : (C,)
        *Half* of the left end of a cell, and half of its width: v = (u / 2 - start) / width, held
        within 0..1. Halved, since a difference of knots at both ends of the float range overflows.
    mix : (C, s, s)
        Slot k of a cell has the value sum_j v^j mix[cell, j, k], and is element 1 + cell + k.
    ends : (2,) or None
        u is the column scaled from this range to -1..1; without it, the column itself.
    """

    edges: np.ndarray
    start: np.ndarray
    width: np.ndarray
    mix: np.ndarray
    ends: np.ndarray | None = None

    @property
    def n_slots(self) -> int:
        """Number of slots s."""
        return self.mix.shape[1]

    @property
    def linear(self) -> bool:
        """Whether the two slots are 1 - v and v in every cell."""
        return self.n_slots == 2 and bool(np.all(self.mix == _LINEAR))

    def core(self, core: np.ndarray) -> np.ndarray:
        """Return the coefficients of v^j in every cell, (C, s, K), of a core (d, K)."""
        element = 1 + np.arange(len(self.start))[:, None] + np.arange(self.n_slots)
        return np.einsum("cjk,ckr->cjr", self.mix, core[element])


def _flat(edges: np.ndarray) -> Pieces:
    """Return pieces that are constant on every cell."""
    n_cells = len(edges) + 1
    return Pieces(edges, np.zeros(n_cells), np.ones(n_cells), np.ones((n_cells, 1, 1)))


def _hat_pieces(own: Hat) -> Pieces:
    half = 0.5 * own.knots_
    if len(half) == 1:
        return _flat(np.zeros(0))
    mix = np.broadcast_to(_LINEAR, (len(half) - 1, 2, 2))
    return Pieces(own.knots_[1:-1], half[:-1], np.diff(half), mix)


def _step_pieces(own: Step) -> Pieces:
    # A bin holds its upper edge: the next one starts with the next number that floats have.
    return _flat(np.nextafter(own.edges_, np.inf))


def _bspline_pieces(own: BSpline) -> Pieces:
    """Fit the polynomials of each cell through as many points as they have coefficients."""
    degree, breaks = own.degree, own.breaks_
    points = 0.5 - 0.5 * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    cells = len(breaks) - 1
    u = (breaks[:-1, None] + np.diff(breaks)[:, None] * points).ravel()
    ends = np.ones(degree)
    index = np.empty((len(u), degree + 1), np.int32)
    value = np.empty((len(u), degree + 1))
    workspace = np.empty((3, degree + 1))
    bsplines(u, np.concatenate([-ends, breaks, ends]), degree, workspace, index, value)
    values = value.reshape(cells, degree + 1, degree + 1)
    mix = np.linalg.solve(np.vander(points, increasing=True)[None], values)
    return Pieces(breaks[1:-1], 0.5 * breaks[:-1], 0.5 * np.diff(breaks), mix, own.range_)


PIECES: dict[type[FeatureMap], Callable[[Any], Pieces]] = {
    BSpline: _bspline_pieces,
    Hat: _hat_pieces,
    Step: _step_pieces,
}


def to_range_numbers(ends: np.ndarray) -> tuple[float, float]:
    """Return the middle and half of the width of a range, as `maps.column.to_range` uses them."""
    low, high = ends
    half = 0.5 * high - 0.5 * low
    return float(0.5 * low + 0.5 * high), float(half if half > 0 else 1.0)


def partition_core(core: np.ndarray, constant: bool) -> np.ndarray:
    """Return the core of a local map with its constant added to all other elements, (d, K).

    The other elements of a known value add up to one. Element 0 alone is that of a missing value;
    without a `constant`, as in formats that have none, it is zero.
    """
    core = np.asarray(core, dtype=np.float64)
    first = core[:1] if constant else np.zeros_like(core[:1])
    return np.vstack([first, core[1:] + first])
