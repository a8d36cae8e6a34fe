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
    share : (K,) float64, where a column had no missing values in training: a missing value goes
        both ways, left with this share; -1 where it goes one way
    """

    column: np.ndarray
    place: np.ndarray
    missing: np.ndarray
    left: np.ndarray
    right: np.ndarray
    sets: np.ndarray
    share: np.ndarray


def one_way(n_nodes: int) -> np.ndarray:
    """Return the `Nodes.share` of nodes where missing values go one way."""
    return np.full(n_nodes, -1.0)


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


@jit_exact
def add_both_ways(nodes, roots, output, value, bins, rows, stack, weights, raw):
    """Add the trees to raw for rows with missing values that go both ways.

    rows : (m,); stack, weights : space for as many nodes as a path can have open.
    """
    width = value.shape[1]
    for i in rows:
        for t in range(len(roots)):
            stack[0], weights[0] = roots[t], 1.0
            n_open = 1
            while n_open > 0:
                n_open -= 1
                k, weight = stack[n_open], weights[n_open]
                while nodes.column[k] >= 0:
                    one, share = bins[nodes.column[k], i], nodes.share[k]
                    if one == 0 and share >= 0.0:
                        stack[n_open], weights[n_open] = nodes.right[k], weight * (1.0 - share)
                        n_open += 1
                        k, weight = nodes.left[k], weight * share
                    else:
                        k = nodes.left[k] if _goes_left(nodes, k, one) else nodes.right[k]
                for w in range(width):
                    raw[i, output[t] + w] += weight * value[k, w]


@jit_exact
def set_shares(nodes, parent, bin_shares, start, inside):
    """Write `Nodes.share` where a column has bin shares: of the rows at a node, those that go left.

    parent : (K,), -1 for a root; bin_shares : of all columns, one after another; start : (N + 1,);
    inside : space for as many flags as a column has bins. A column without bin shares is left as it
    is. The rows are those of the product of the marginals: only splits of the same column matter.
    """
    for k in range(len(nodes.column)):
        n = nodes.column[k]
        if n < 0 or start[n] == start[n + 1]:
            continue
        own = bin_shares[start[n] : start[n + 1]]
        for b in range(len(own)):
            inside[b] = 1
        child, up = k, parent[k]
        while up >= 0:
            if nodes.column[up] == n:
                is_left = nodes.left[up] == child
                for b in range(len(own)):
                    inside[b] &= _goes_left(nodes, up, b) == is_left
            child, up = up, parent[up]
        left, total = 0.0, 0.0
        for b in range(1, len(own)):
            if inside[b]:
                total += own[b]
                left += own[b] * _goes_left(nodes, k, b)
        nodes.share[k] = left / total if total > 0.0 else 0.0


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
    missing : float64, 1 where bin 0 is inside, 0 where it is not; between them, where it is a share
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
            np.empty(count),
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
            by_set = nodes.missing[k] == BY_SET
            if by_set:
                out.low[at] = nodes.place[k]
                out.high[at] = SET if is_left else NOT_SET
                out.missing[at] = 1.0
            else:
                for p in range(start, at):
                    if out.column[p] == column and out.high[p] >= 0:
                        found = p
                if found == at:
                    out.low[at], out.high[at], out.missing[at] = 1, last[column], 1.0
                if is_left:
                    out.high[found] = min(out.high[found], nodes.place[k])
                else:
                    out.low[found] = max(out.low[found], nodes.place[k] + 1)
            share = nodes.share[k]
            if share < 0.0:
                share = 1.0 if _goes_left(nodes, k, 0) else 0.0
            out.missing[found] *= share if is_left else 1.0 - share
            if found == at:
                out.leaf[at], out.column[at] = r, column
                at += 1
            child, k = k, parent[k]
    return at
