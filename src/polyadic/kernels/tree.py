"""The splits of a regression tree on one column, compiled.

Shapes: weight, total : (n,) float64, of the distinct values in ascending order; a split at i
separates the values before i from value i and those after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner_exact, jit_exact

SMALLEST_GAIN = 1e-12  # per unit of weight, for a target in -1..1; less is a rounding error


@inner_exact
def _best_split(weight, total, begin, end, least):
    """Return the gain in squared error and the place of the best split between begin and end.

    weight, total : (n + 1,) cumulated from 0. Either side keeps a weight of at least `least`.
    """
    best, place = SMALLEST_GAIN * weight[-1], -1
    whole = weight[end] - weight[begin]
    for i in range(begin + 1, end):
        left, right = weight[i] - weight[begin], weight[end] - weight[i]
        if left < least or right < least:
            continue
        jump = (total[end] - total[i]) / right - (total[i] - total[begin]) / left
        gain = jump * jump * (left / whole) * right
        if gain > best:
            best, place = gain, i
    return best, place


class Leaves(NamedTuple):
    """The leaves of a tree of at most n_splits splits, (n_splits + 1,) each."""

    begin: np.ndarray
    end: np.ndarray
    gain: np.ndarray
    place: np.ndarray  # of its best split, -1 where there is none


@jit_exact
def grow(weight, total, least, leaves, found):
    """Write the splits to `found`, the one that explains most first; return how many there are."""
    begin, end, gain, place = leaves
    begin[0], end[0] = 0, len(weight) - 1
    gain[0], place[0] = _best_split(weight, total, begin[0], end[0], least)
    for k in range(len(found)):
        leaf = -1
        for i in range(k + 1):
            if place[i] >= 0 and (leaf < 0 or gain[i] > gain[leaf]):
                leaf = i
        if leaf < 0:
            return k
        found[k] = place[leaf]
        begin[k + 1], end[k + 1] = place[leaf], end[leaf]
        end[leaf] = place[leaf]
        gain[leaf], place[leaf] = _best_split(weight, total, begin[leaf], end[leaf], least)
        gain[k + 1], place[k + 1] = _best_split(weight, total, begin[k + 1], end[k + 1], least)
    return len(found)


def best_splits(weight: np.ndarray, total: np.ndarray, n_splits: int, least: float) -> np.ndarray:
    """Return at most n_splits splits, the one that explains most first, as a tree finds them.

    total : the weighted sum of a target in -1..1. The leaf with the largest gain is split next.
    The work is a few passes over the column, for any number of splits.
    """
    found, places = np.empty(n_splits, np.int64), np.empty((3, n_splits + 1), np.int64)
    leaves = Leaves(places[0], places[1], np.empty(n_splits + 1), places[2])
    cumulated = [np.concatenate(([0.0], np.cumsum(a, dtype=np.float64))) for a in (weight, total)]
    return found[: grow(*cumulated, least, leaves, found)]
