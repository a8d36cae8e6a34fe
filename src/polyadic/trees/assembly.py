"""From the trees of a source to `Trees` over bins: thresholds become edges of maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyadic.data.columns import Column
from polyadic.data.tables import as_scalar
from polyadic.kernels.trees import BY_SET, Nodes, one_way
from polyadic.maps import OneHot, Step
from polyadic.maps.base import FeatureMap
from polyadic.networks.trees import Trees, category_map
from polyadic.trees.source import Source, SourceTree


def assemble(source: Source, columns: Sequence[Column], new_left: bool = False) -> Trees:
    """Return the trees of a source over the bins of its columns, their nodes in preorder.

    Parameters
    ----------
    source : Source
    columns : list of N Column
        With all categories of the source, and perhaps more.
    new_left : bool
        Whether a category that the source lacks goes left; if not, it goes where missing ones go.
    """
    grown = _same_width(source.trees or [_constant()], len(source.base))
    stacked, roots = _stack(grown)
    maps, place = _bins(stacked, columns)
    missing = stacked.missing_left.astype(np.uint8)
    sets, numbers = _sets(source, grown, roots, columns, new_left)
    at = np.array(list(numbers), dtype=np.intp)
    place[at], missing[at] = list(numbers.values()), BY_SET
    number = _preorder(stacked, roots)
    order = np.empty_like(number)
    order[number] = np.arange(len(number))
    links = np.append(number, -1).astype(np.int32)  # a leaf has the child -1, the last
    nodes = Nodes(
        column=stacked.column[order],
        place=place[order],
        missing=missing[order],
        left=links[stacked.left[order]],
        right=links[stacked.right[order]],
        sets=sets,
        share=one_way(len(order)),
    )
    output = np.array([tree.output for tree in grown], dtype=np.int32)
    return Trees(maps, nodes, roots.astype(np.int32), output, stacked.value[order])


def _constant() -> SourceTree:
    """Return a tree of one leaf that adds nothing, for a source without trees."""
    none = np.full(1, -1, dtype=np.int32)
    zero = np.zeros(1)
    return SourceTree(none, zero, np.zeros(1, dtype=bool), none, none, zero[:, None])


def _same_width(trees: Sequence[SourceTree], n_outputs: int) -> Sequence[SourceTree]:
    """Return trees with as many values per leaf as each other; with all L, if they differ."""
    if len({tree.value.shape[1] for tree in trees}) == 1:
        return trees
    return [widened(tree, n_outputs) for tree in trees]


def widened(tree: SourceTree, n_outputs: int) -> SourceTree:
    """Return the same tree with a value for each output."""
    value = np.zeros((len(tree.value), n_outputs))
    value[:, tree.output : tree.output + tree.value.shape[1]] = tree.value
    return replace(tree, value=value, output=0)


# ---- nodes ---------------------------------------------------------------------------------------


def _stack(trees: Sequence[SourceTree]) -> tuple[SourceTree, np.ndarray]:
    """Return the nodes of all trees, one tree after another, without sets; and the roots, (T,)."""
    sizes = [len(tree.column) for tree in trees]
    roots = np.cumsum([0, *sizes])[:-1]
    shift = np.repeat(roots, sizes)
    names = ("column", "threshold", "missing_left", "left", "right", "value")
    out: dict[str, Any] = {
        name: np.concatenate([getattr(tree, name) for tree in trees]) for name in names
    }
    for name in ("left", "right"):
        out[name] = np.where(out["column"] < 0, -1, out[name] + shift)
    for root, tree in zip(roots, trees):
        out["threshold"][root + np.array(list(tree.sets), dtype=np.intp)] = 0.0  # has no meaning
    # No number is at most -inf. All numbers go left instead, and the children change places:
    # there is no bin for no numbers.
    swap = np.isneginf(out["threshold"]) & (out["column"] >= 0)
    out["threshold"] = np.where(swap, np.inf, out["threshold"])
    out["missing_left"] = out["missing_left"] ^ swap
    left, right = out["left"], out["right"]
    out["left"], out["right"] = np.where(swap, right, left), np.where(swap, left, right)
    return SourceTree(**out), roots


def _preorder(stacked: SourceTree, roots: np.ndarray) -> np.ndarray:
    """Return the number of each node where a tree is listed as node, left part, right part, (K,).

    All trees are numbered at once, level by level: sizes upwards, then numbers downwards.
    """
    left, right = stacked.left, stacked.right
    levels, level = [], roots
    while level.size:
        level = level[left[level] >= 0]
        levels.append(level)
        level = np.concatenate((left[level], right[level]))
    size = np.ones(len(left), dtype=np.int64)
    for level in reversed(levels):
        size[level] += size[left[level]] + size[right[level]]
    number = np.zeros(len(left), dtype=np.int64)
    number[roots] = roots
    for level in levels:
        number[left[level]] = number[level] + 1
        number[right[level]] = number[level] + 1 + size[left[level]]
    return number


# ---- bins ----------------------------------------------------------------------------------------


def _bins(stacked: SourceTree, columns: Sequence[Column]) -> tuple[list[FeatureMap], np.ndarray]:
    """Return a map for each column, and the last bin that goes left at each node, (K,)."""
    maps: list[FeatureMap] = []
    place = np.zeros(len(stacked.column), dtype=np.int32)
    order = np.argsort(stacked.column, kind="stable")
    ends = np.searchsorted(stacked.column[order], np.arange(len(columns) + 1))
    for n, column in enumerate(columns):
        if column.categories is not None:
            maps.append(category_map(len(column.categories)) if column.categories else no_bins())
            continue
        at = order[ends[n] : ends[n + 1]]
        edges = np.unique(stacked.threshold[at])
        edges = edges[np.isfinite(edges)]
        place[at] = 1 + np.searchsorted(edges, stacked.threshold[at])
        maps.append(Step.at(edges))
    return maps, place


def no_bins(n_categories: int = 1) -> OneHot:
    """Return a map that gives no category a bin of its own."""
    out = OneHot(min_count=1)
    out.lookup_ = np.zeros(max(n_categories, 1), dtype=np.int32)
    return out


def _sets(
    source: Source,
    trees: Sequence[SourceTree],
    roots: np.ndarray,
    columns: Sequence[Column],
    new_left: bool,
) -> tuple[np.ndarray, dict[int, int]]:
    """Return the sets of bins that go left, (G, bins), each once, and the set of each node."""
    bins = {
        n: np.array([1 + columns[n].code_of[as_scalar(value)] for value in values], dtype=np.intp)
        for n, values in source.categories.items()
    }
    width = max((1 + len(columns[n].categories or ()) for n in bins), default=1)
    known: dict[bytes, int] = {}
    numbers: dict[int, int] = {}
    for root, tree in zip(roots.tolist(), trees):
        for node, chosen in tree.sets.items():
            n = int(tree.column[node])
            row = np.zeros(width, dtype=np.uint8)
            row[0] = tree.missing_left[node]
            row[1 : 1 + len(columns[n].categories or ())] = new_left or row[0]
            row[bins[n]] = 0
            row[bins[n][chosen]] = 1
            numbers[root + node] = known.setdefault(row.tobytes(), len(known))
    flat = np.frombuffer(b"".join(known), dtype=np.uint8)
    return flat.reshape(len(known), width).copy(), numbers
