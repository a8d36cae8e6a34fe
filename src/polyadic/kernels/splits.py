"""Compile the splits of a regression tree on one column.

Shapes: weight, total : (n,) float64, of the distinct values in ascending order; a split at i parts
the values before i from the value i and those after it.
"""

from __future__ import annotations

import numpy as np

from polyadic.kernels.jit import jit_exact

FLAT = 1e-12  # a gain below this, per weight and for a target in -1..1, is rounding


@jit_exact
def _best_split(weight, total, begin, end, least):
    """Return the gain in squares and the place of the best split between begin and end.

    weight, total : (n + 1,) cumulated from 0. Either side keeps a weight of at least `least`.
    """
    best, place = FLAT * weight[-1], -1
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


@jit_exact
def best_splits(weight, total, n_splits, least):
    """Return at most n_splits splits, the one that explains most first, as a tree finds them.

    total : the weighted sum of a target in -1..1. The leaf with most to gain is split next, so
    that the work is a few passes over the column, whatever the number of splits.
    """
    weight = np.concatenate((np.zeros(1), np.cumsum(weight)))
    total = np.concatenate((np.zeros(1), np.cumsum(total)))
    begin, end = np.zeros(n_splits + 1, np.int64), np.zeros(n_splits + 1, np.int64)
    gain, place = np.zeros(n_splits + 1), np.full(n_splits + 1, -1)
    end[0] = len(weight) - 1
    gain[0], place[0] = _best_split(weight, total, begin[0], end[0], least)
    found = np.empty(n_splits, np.int64)
    for k in range(n_splits):
        leaf = np.argmax(np.where(place[: k + 1] < 0, -1.0, gain[: k + 1]))
        if place[leaf] < 0:
            return found[:k]
        found[k] = place[leaf]
        begin[k + 1], end[k + 1] = place[leaf], end[leaf]
        end[leaf] = place[leaf]
        for half in (leaf, k + 1):
            gain[half], place[half] = _best_split(weight, total, begin[half], end[half], least)
    return found
