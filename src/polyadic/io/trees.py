"""Trees as header entries and arrays, and back; everything that is read is checked.

Children are stored by their distance from their parent, values of leaves only. Shares of missing
values are left out where they follow from the marginals (`polyadic.training.missing`). Up to format
3, links and values of all nodes were stored as they are; the first such files had no shares.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic.data.columns import Columns
from polyadic.io.arrays import Arrays, take, take_floats
from polyadic.io.parts import pack_maps, rebuild_map
from polyadic.io.plain import FindClass
from polyadic.kernels.trees import BY_SET, Nodes, one_way
from polyadic.maps import OneHot, Step
from polyadic.maps.base import FeatureMap
from polyadic.networks.trees import Trees

_PREFIX = "trees."


def pack_trees(trees: Trees, with_shares: bool) -> tuple[dict[str, Any], Arrays]:
    """Return the entry of trees, with those of their maps, and all arrays."""
    entries, arrays = pack_maps(trees.maps, f"{_PREFIX}maps")
    nodes, inner = trees.nodes, trees.nodes.column >= 0
    parts = {
        "column": nodes.column,
        "place": nodes.place,
        "missing": nodes.missing,
        "left": _distances(nodes.left, inner),
        "right": _distances(nodes.right, inner),
        "sets": nodes.sets,
        "roots": trees.roots,
        "output": trees.output,
        "value": trees.value[~inner],
    }
    if with_shares:
        parts["share"] = nodes.share
    arrays |= {_PREFIX + name: array for name, array in parts.items()}
    return {"maps": entries, "shares": with_shares}, arrays


def rebuild_trees(
    entry: dict[str, Any] | list[dict[str, Any]],
    columns: Columns,
    n_outputs: int,
    arrays: Arrays,
    find_class: FindClass,
) -> Trees:
    """Rebuild trees; refuse nodes from which a prediction could go astray.

    Without shares in the file, missing values go one way.
    """
    entries = entry if isinstance(entry, list) else entry["maps"]
    if len(entries) != len(columns.columns):
        raise ValueError(f"{len(entries)} maps of trees for {len(columns.columns)} columns.")
    # Before any is rebuilt, which can take long for other maps of many elements.
    if any(find_class(one["@map"], "map") not in (Step, OneHot) for one in entries):
        raise ValueError("the maps of trees must be Step or OneHot.")
    maps = [
        rebuild_map(f"{_PREFIX}maps.{n}", column, one, None, arrays, find_class)
        for n, (column, one) in enumerate(zip(columns.columns, entries))
    ]
    nodes = _rebuild_nodes(entry, arrays)
    roots = _take(arrays, "roots", np.int32, (None,))
    output = _take(arrays, "output", np.int32, roots.shape)
    stored = (nodes.column < 0) | isinstance(entry, list)
    value = _rebuild_value(arrays, stored, output, n_outputs)
    _check_shape_of_trees(nodes, roots)
    _check_splits(nodes, maps)
    return Trees(maps, nodes, roots, output, value)


def _rebuild_nodes(entry: dict[str, Any] | list[dict[str, Any]], arrays: Arrays) -> Nodes:
    """Rebuild nodes, whose links and splits are still to be checked."""
    column = _take(arrays, "column", np.int32, (None,))
    links = [_take(arrays, name, np.int32, column.shape) for name in ("left", "right")]
    if isinstance(entry, list):
        has_shares = f"{_PREFIX}share" in arrays
    else:
        has_shares = entry["shares"]
        links = [_links(distance, column >= 0) for distance in links]
    share = one_way(len(column))
    return Nodes(
        column=column,
        place=_take(arrays, "place", np.int32, column.shape),
        missing=_take(arrays, "missing", np.uint8, column.shape),
        left=links[0],
        right=links[1],
        sets=_take(arrays, "sets", np.uint8, (None, None)),
        share=_take(arrays, "share", np.float64, column.shape) if has_shares else share,
    )


def _distances(children: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return how far children are behind their parents; 0 for a leaf."""
    return np.where(inner, children - np.arange(len(children)), 0).astype(np.int32)


def _links(distance: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return the children at these distances; -1 for a leaf."""
    children = np.arange(len(distance)) + distance
    within = (children >= 0) & (children < len(distance))
    return np.where(inner & within, children, -1).astype(np.int32)


def _rebuild_value(
    arrays: Arrays, stored: np.ndarray, output: np.ndarray, n_outputs: int
) -> np.ndarray:
    """Return the values of all nodes, (K, W), zero where they are not stored; stored : (K,).

    The width is checked first: an array without rows can claim any.
    """
    found = take_floats(arrays, f"{_PREFIX}value", (int(stored.sum()), None))
    width = found.shape[1]
    widest = n_outputs - int(output.max(initial=0))
    if not 1 <= width <= widest or np.any(output < 0):
        raise ValueError(f"trees with {width} values per leaf do not go with {n_outputs} outputs.")
    value = np.zeros((len(stored), width))
    value[stored] = found
    return value


def _take(arrays: Arrays, name: str, dtype: type, shape: tuple) -> np.ndarray:
    array = take(arrays, _PREFIX + name, shape)
    if array.dtype != dtype:
        raise ValueError(f"the array {_PREFIX + name!r} must be of type {np.dtype(dtype)}.")
    return array


def _check_shape_of_trees(nodes: Nodes, roots: np.ndarray) -> None:
    """Check that children come after their parent, in the same tree, and have one parent each.

    Then every path ends in a leaf.
    """
    n_nodes = len(nodes.column)
    starts = np.append(roots, n_nodes)
    if (n_nodes > 0) != (len(roots) > 0) or np.any(np.diff(starts) <= 0) or starts[0] != 0:
        raise ValueError("the roots of trees must ascend from 0.")
    inner = np.flatnonzero(nodes.column >= 0)
    end = starts[np.searchsorted(roots, inner, side="right")]
    children = np.concatenate([nodes.left[inner], nodes.right[inner]])
    if np.any(children <= np.tile(inner, 2)) or np.any(children >= np.tile(end, 2)):
        raise ValueError("a node of a tree has a child that is not behind it in the same tree.")
    if len(children) + len(roots) != n_nodes or len(np.unique(children)) != len(children):
        raise ValueError("the nodes of trees do not have one parent each.")


def _check_splits(nodes: Nodes, maps: list[FeatureMap]) -> None:
    """Check that splits ask for columns, bins and sets that exist: for sets, of categories only."""
    dims = np.array([m.dim for m in maps])
    inner = nodes.column >= 0
    leaves = [array[~inner] for array in (nodes.column, nodes.left, nodes.right)]
    if any(np.any(array != -1) for array in leaves):
        raise ValueError("a leaf of a tree has a column or a child.")
    if np.any(nodes.column[inner] >= len(dims)) or np.any(nodes.missing > BY_SET):
        raise ValueError("a split of a tree asks for a column that does not exist.")
    by_set = inner & (nodes.missing == BY_SET)
    categorical = np.array([m.kind == "categorical" for m in maps])
    if np.any(categorical[nodes.column[inner]] != by_set[inner]):
        raise ValueError("a split of a tree asks numbers for a set, or categories for an interval.")
    other = inner & ~by_set
    place = nodes.place
    if np.any(place[by_set] < 0) or np.any(place[by_set] >= len(nodes.sets)):
        raise ValueError("a split of a tree asks for a set that does not exist.")
    share = nodes.share
    if not np.all((share == -1.0) | ((share >= 0.0) & (share <= 1.0))):
        raise ValueError("a split of a tree has a share that is neither -1 nor within 0 and 1.")
    if np.any(nodes.sets > 1) or np.any(dims[nodes.column[by_set]] > nodes.sets.shape[1]):
        raise ValueError("the sets of trees do not fit their columns.")
    if np.any(place[other] < 1) or np.any(place[other] >= dims[nodes.column[other]]):
        raise ValueError("a split of a tree asks for a bin that does not exist.")
