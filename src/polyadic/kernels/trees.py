"""Trees and their leaves: prediction, and the intervals of columns that each leaf is made of.

Columns are given as bins: bin 0 holds missing values, bins 1, 2, ... are the elements of a map with
one slot. Shapes: K nodes of all trees together, T trees, W values per leaf, n rows, N columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner_exact, jit_exact

BY_SET = 2  # in `Nodes.missing`: the node asks for a set of bins
SET, NOT_SET = -1, -2  # in place of the last bin: inside of a set, or outside of it
_ROWS = 256  # that follow a tree together, so that its nodes stay in the nearest cache


class Nodes(NamedTuple):
    """The nodes of all trees.

    column : (K,) int32, -1 for a leaf
    place : (K,) int32, the last bin that goes left; for a set, its number
    missing : (K,) uint8, 1 where bin 0 goes left, 0 where it goes right, `BY_SET` for a set
    left, right : (K,) int32
    sets : (G, number of bins) uint8, 1 for the bins that go left
    """

    column: np.ndarray
    place: np.ndarray
    missing: np.ndarray
    left: np.ndarray
    right: np.ndarray
    sets: np.ndarray


@inner_exact
def _goes_left(nodes, k, one):
    if nodes.missing[k] == BY_SET:
        return nodes.sets[nodes.place[k], one] != 0
    if one == 0:
        return nodes.missing[k] == 1
    return one <= nodes.place[k]


@jit_exact
def add_trees(nodes, roots, output, value, bins, raw):
    """Add the trees to raw : (n, L), one after another; bins : (N, n) int32, value : (K, W)."""
    n_rows, width = bins.shape[1], value.shape[1]
    for begin in range(0, n_rows, _ROWS):
        for t in range(len(roots)):
            for i in range(begin, min(begin + _ROWS, n_rows)):
                k = roots[t]
                while nodes.column[k] >= 0:
                    left = _goes_left(nodes, k, bins[nodes.column[k], i])
                    k = nodes.left[k] if left else nodes.right[k]
                for w in range(width):
                    raw[i, output[t] + w] += value[k, w]


# ---- many rows: one word of bits per tree --------------------------------------------------------


class Masks(NamedTuple):
    """For every tree, column that it asks, and bin: the leaves that a row may still reach.

    A row reaches the leaf whose bit is in the words of all columns.
    first : (T + 1,), the columns of tree t are column[first[t]] ... column[first[t + 1] - 1]
    start : where the words of each column begin
    leaf : (T, 64), the node of each bit
    """

    first: np.ndarray
    column: np.ndarray
    start: np.ndarray
    words: np.ndarray
    leaf: np.ndarray


# The product of the lowest bit and this number has different highest six bits for each bit.
_SEQUENCE = np.uint64(0x03F79D71B4CB0A89)
BIT_PLACES = np.zeros(64, np.uint64)
for _bit in range(64):
    BIT_PLACES[((int(_SEQUENCE) << _bit) % 2**64) >> 58] = _bit


@jit_exact
def write_masks(nodes, roots, masks, place_of, below):
    """Write the words of all trees, which have at most 64 leaves each.

    place_of : (N,) space; below : (K,) uint64, the leaves below each node.
    """
    for t in range(len(roots)):
        end = roots[t + 1] if t + 1 < len(roots) else len(nodes.column)
        n_leaves = 0
        for k in range(roots[t], end):
            below[k] = np.uint64(0)
            if nodes.column[k] < 0:
                below[k] = np.uint64(1) << np.uint64(n_leaves)
                masks.leaf[t, n_leaves] = k
                n_leaves += 1
        for k in range(end - 1, roots[t] - 1, -1):  # children come after their parent
            if nodes.column[k] >= 0:
                below[k] = below[nodes.left[k]] | below[nodes.right[k]]
        for c in range(masks.first[t], masks.first[t + 1]):
            place_of[masks.column[c]] = c
        for k in range(roots[t], end):
            if nodes.column[k] < 0:
                continue
            c = place_of[nodes.column[k]]
            for b in range(masks.start[c + 1] - masks.start[c]):
                other = nodes.right[k] if _goes_left(nodes, k, b) else nodes.left[k]
                masks.words[masks.start[c] + b] &= ~below[other]


@jit_exact
def add_masks(masks, output, value, places, bins, words, raw):
    """Add trees to raw as `add_trees` does; words : (256,) uint64 space, places : `BIT_PLACES`."""
    n_rows, width = bins.shape[1], value.shape[1]
    for begin in range(0, n_rows, _ROWS):
        count = min(_ROWS, n_rows - begin)
        for t in range(len(output)):
            for i in range(count):
                words[i] = ~np.uint64(0)
            for c in range(masks.first[t], masks.first[t + 1]):
                own = masks.words[masks.start[c] : masks.start[c + 1]]
                column = bins[masks.column[c], begin : begin + count]
                for i in range(count):
                    words[i] &= own[np.uint32(column[i])]  # no check for a negative place
            for i in range(count):
                lowest = words[i] & (~words[i] + np.uint64(1))
                k = masks.leaf[t, places[(lowest * _SEQUENCE) >> np.uint64(58)]]
                for w in range(width):
                    raw[begin + i, output[t] + w] += value[k, w]


# ---- leaves --------------------------------------------------------------------------------------


class Conditions(NamedTuple):
    """What a row must meet to reach a leaf, of all leaves one after another, (P,) each.

    leaf : the number of the leaf
    column : int32
    low, high : int32, the first and the last bin; for a set, its number, and `SET` or `NOT_SET`
    missing : uint8, whether bin 0 is inside
    """

    leaf: np.ndarray
    column: np.ndarray
    low: np.ndarray
    high: np.ndarray
    missing: np.ndarray

    @classmethod
    def make(cls, count: int) -> Conditions:
        """Return space for this many conditions."""
        return cls(
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.empty(count, np.int32),
            np.empty(count, np.int32),
            np.empty(count, np.uint8),
        )


@jit_exact
def list_conditions(nodes, parent, leaves, last, out):
    """Write the conditions of leaves, and return how many there are.

    From each leaf up to the root; splits of the same column are merged into one interval, sets are
    not. parent : (K,), -1 for a root; last : (N,) the last bin of each column.
    """
    at = 0
    for r in range(len(leaves)):
        start, child = at, leaves[r]
        k = parent[child]
        while k >= 0:
            column, is_left = nodes.column[k], nodes.left[k] == child
            found = at
            if nodes.missing[k] == BY_SET:
                out.low[at] = nodes.place[k]
                out.high[at] = SET if is_left else NOT_SET
                out.missing[at] = 0
            else:
                for p in range(start, at):
                    if out.column[p] == column and out.high[p] >= 0:
                        found = p
                if found == at:
                    out.low[at], out.high[at], out.missing[at] = 1, last[column], 1
                if is_left:
                    out.high[found] = min(out.high[found], nodes.place[k])
                else:
                    out.low[found] = max(out.low[found], nodes.place[k] + 1)
                if (nodes.missing[k] == 1) != is_left:
                    out.missing[found] = 0
            if found == at:
                out.leaf[at], out.column[at] = r, column
                at += 1
            child, k = k, parent[k]
    return at
