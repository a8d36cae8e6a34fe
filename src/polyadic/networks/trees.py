"""Trees as a part of a CP predictor: each leaf is a term, a product of indicators of bins.

A leaf r with the value v_r is v_r prod_n 1[bin of x_n is in I_rn], where I_rn is an interval of
bins, or a set of categories, for the few columns on its path. Predictions follow the trees;
explanations read the leaves, which are kept as intervals: dense cores would be mostly ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polyadic.kernels.trees import (
    BIT_PLACES,
    BY_SET,
    NOT_SET,
    SET,
    Conditions,
    Masks,
    Nodes,
    add_both_ways,
    add_masks,
    add_trees,
    list_conditions,
    set_shares,
    write_masks,
)
from polyadic.maps import OneHot, Step
from polyadic.maps.base import FeatureMap
from polyadic.networks.blocks import to_single

# From this many rows on it pays to write masks; a tree may have as many leaves as a word has bits;
# and their most bytes. The first and the last chosen by hand.
_MANY_ROWS, _MOST_LEAVES, _MOST_BYTES = 2000, 64, 1e8
_PER_NODE = tuple(name for name in Nodes._fields if name != "sets")  # arrays (K,)


@dataclass(frozen=True)
class Leaves:
    """The leaves of all trees, each a product of conditions on the bins of a few columns.

    Leaves with the same output and the same columns are neighbours: they form a group.

    Attributes
    ----------
    first : (R + 1,) int64
        The conditions of leaf r are first[r] ... first[r + 1] - 1, in ascending order of columns.
    column, low, high : (P,) int32
        The first and the last bin of a condition; for a set, its number in `sets`, and -1.
    missing : (P,) float64
        1 where a missing value meets the condition, 0 where it does not; where the column had no
        missing values in training, the share of the rows that meet it.
    sets : (G, number of bins) uint8
    value : (R, W) float64
    output : (R,) int32
        The first of the W outputs that a leaf adds to.
    groups : (number of groups + 1,) int64
        The first leaf of every group.
    """

    first: np.ndarray
    column: np.ndarray
    low: np.ndarray
    high: np.ndarray
    missing: np.ndarray
    sets: np.ndarray
    value: np.ndarray
    output: np.ndarray
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.value)

    @property
    def lengths(self) -> np.ndarray:
        """Number of conditions of each leaf, (R,)."""
        return np.diff(self.first)

    def weights(self, n_outputs: int) -> np.ndarray:
        """Return the output matrix C, (R, L)."""
        out = np.zeros((len(self), n_outputs))
        rows = np.arange(len(self))[:, None]
        out[rows, self.output[:, None] + np.arange(self.value.shape[1])] = self.value
        return out

    def indicators(self, n: int, bins: np.ndarray, some: slice = slice(None)) -> np.ndarray:
        """Return whether bins : (k,) of column n meet the conditions of some leaves, (k, R)."""
        begin, end, _ = some.indices(len(self))
        out = np.ones((len(bins), end - begin))
        own = slice(self.first[begin], self.first[end])
        at = self.first[begin] + np.flatnonzero(self.column[own] == n)
        leaf = np.searchsorted(self.first, at, side="right") - 1 - begin
        low, high, bins = self.low[at], self.high[at], bins[:, None]
        inside = ((bins >= low) & (bins <= high)).astype(float)
        by_set = high == SET
        if by_set.any():
            inside[:, by_set] = self.sets[low[by_set]][:, bins[:, 0]].T
        out[:, leaf] = np.where(bins > 0, inside, self.missing[at])
        return out


@dataclass(frozen=True)
class Trees:
    """A sum of trees over columns that maps with one slot have turned into bins.

    Attributes
    ----------
    maps : list of fitted Step or OneHot
        An element of a map is a bin.
    nodes : Nodes
    roots : (T,) int32
    output : (T,) int32
        The first of the W outputs that a tree adds to.
    value : (K, W) float64
        Of leaves.
    """

    maps: list[FeatureMap]
    nodes: Nodes
    roots: np.ndarray
    output: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.roots)

    def bins(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Return the bin of every coded value, (N, n)."""
        return np.array([m.encode(x)[0][:, 0] for m, x in zip(self.maps, columns)], dtype=np.int32)

    def add_to(self, raw: np.ndarray, columns: Sequence[np.ndarray]) -> None:
        """Add the predictions for coded columns to raw : (n, L)."""
        self.add_bins(raw, self.bins(columns))

    def add_bins(self, raw: np.ndarray, bins: np.ndarray) -> None:
        """Add the predictions for bins : (N, n) to raw : (n, L)."""
        rows = self.rows_both_ways(bins)
        if len(rows):
            kept = raw[rows]
            self._add_one_way(raw, bins)
            raw[rows] = kept
            space = np.empty(len(self.value), np.int64), np.empty(len(self.value))
            add_both_ways(self.nodes, self.roots, self.output, self.value, bins, rows, *space, raw)
        else:
            self._add_one_way(raw, bins)

    def rows_both_ways(self, bins: np.ndarray) -> np.ndarray:
        """Return the numbers of rows with a missing value that goes both ways; bins : (N, n)."""
        return np.flatnonzero(np.any(bins[self.averaged] == 0, axis=0))

    @cached_property
    def averaged(self) -> np.ndarray:
        """Columns of which a missing value goes both ways at some split."""
        return np.unique(self.nodes.column[self.nodes.share >= 0.0])

    def _add_one_way(self, raw: np.ndarray, bins: np.ndarray) -> None:
        if len(raw) >= _MANY_ROWS and self.masks is not None:
            words = np.empty(256, np.uint64)
            add_masks(self.masks, self.output, self.value, BIT_PLACES, bins, words, raw)
        else:
            add_trees(self.nodes, self.roots, self.output, self.value, bins, raw)

    @cached_property
    def masks(self) -> Masks | None:
        """A form for the prediction of many rows; None where it would be too large."""
        return _make_masks(self)

    @property
    def tree_of_node(self) -> np.ndarray:
        """The number of the tree of each node, (K,)."""
        return np.searchsorted(self.roots, np.arange(len(self.value)), side="right") - 1

    def part(self, begin: int, end: int) -> Trees:
        """Return the forest of the trees from number `begin` to before `end`."""
        limits = np.append(self.roots, len(self.value))
        own = slice(int(limits[begin]), int(limits[end]))
        cut = {name: getattr(self.nodes, name)[own] for name in _PER_NODE}
        nodes = _renumbered(self.nodes._replace(**cut), -own.start)
        roots = (self.roots[begin:end] - own.start).astype(np.int32)
        return replace(
            self, nodes=nodes, roots=roots, output=self.output[begin:end], value=self.value[own]
        )

    def rescale(self, scale: np.ndarray) -> Trees:
        """Return trees whose outputs are multiplied by scale : (L,)."""
        tree = self.tree_of_node
        at = self.output[tree][:, None] + np.arange(self.value.shape[1])
        return replace(self, value=self.value * np.asarray(scale)[at])

    def rounded(self) -> Trees:
        """Return trees with values in single precision, which take less than half the space."""
        return replace(self, value=to_single(self.value))

    def widened(self, n_outputs: int) -> Trees:
        """Return the same trees with a value for each output in every leaf."""
        tree = np.searchsorted(self.roots, np.arange(len(self.value)), side="right") - 1
        at = self.output[tree][:, None] + np.arange(self.value.shape[1])
        value = np.zeros((len(self.value), n_outputs))
        np.put_along_axis(value, at.astype(np.intp), self.value, axis=1)
        return replace(self, value=value, output=np.zeros_like(self.output))

    def weigh_outputs(self, matrix: np.ndarray) -> Trees:
        """Return the trees of f(x) @ matrix, matrix : (L, L)."""
        wide = self.widened(len(matrix))
        return replace(wide, value=wide.value @ matrix)

    def reordered(self, order: Sequence[int]) -> Trees:
        """Return the same trees with the columns in another order."""
        place = np.empty(len(order) + 1, np.int32)
        place[np.asarray(order)] = np.arange(len(order))
        place[-1] = -1  # that of a leaf
        nodes = self.nodes._replace(column=place[self.nodes.column])
        return replace(self, maps=[self.maps[n] for n in order], nodes=nodes)

    def with_averages(self, bin_shares: Sequence[np.ndarray]) -> Trees:
        """Return trees where missing values of some columns go both ways.

        bin_shares : the share of the rows in each bin, that of missing values first, of a column
        that had none; empty for a column whose missing values go one way. The prediction is then
        the mean over the marginal of such a column.
        """
        nodes = self.nodes._replace(share=self.nodes.share.copy())
        start = np.cumsum([0, *map(len, bin_shares)])
        inside = np.empty(max(map(len, bin_shares), default=0), np.uint8)
        flat = np.concatenate([np.zeros(0), *bin_shares])
        set_shares(nodes, _parents(nodes), flat, start, inside)
        return replace(self, nodes=nodes)

    @cached_property
    def leaves(self) -> Leaves:
        """The leaves as products of conditions."""
        return _read_leaves(self)

    def __getstate__(self) -> dict:
        derived = ("leaves", "masks", "averaged")
        return {k: v for k, v in self.__dict__.items() if k not in derived}


def join(forests: Sequence[Trees], shares: Sequence[float]) -> Trees:
    """Return one forest that predicts the sum of all, each multiplied by its share.

    The bins of its columns are those of all forests together.
    """
    maps, nodes = [], []
    moved = [f.nodes.place.copy() for f in forests]
    sets = [f.nodes.sets for f in forests]
    for n in range(len(forests[0].maps)):
        own = [f.maps[n] for f in forests]
        if all(m is own[0] for m in own):
            maps.append(own[0])
            continue
        merged = own[0].merge(own[1:])[0]
        maps.append(merged)
        if isinstance(merged, Step):
            for f, place in zip(forests, moved):
                asks = (f.nodes.column == n) & (f.nodes.missing != BY_SET)
                # Bin b ends at edge b - 1, which is an edge of the union too; the last has no end.
                ends = np.append(f.maps[n].edges_, np.inf)  # type: ignore[attr-defined]
                place[asks] = 1 + np.searchsorted(merged.edges_, ends[place[asks] - 1])
    shift = np.cumsum([0, *(len(f.value) for f in forests)])
    sets_before = np.cumsum([0, *(len(s) for s in sets)])
    for k, (f, place) in enumerate(zip(forests, moved)):
        by_set = f.nodes.missing == BY_SET
        place[by_set] += sets_before[k]
        nodes.append(_renumbered(f.nodes._replace(place=place), shift[k]))
    width = max((s.shape[1] for s in sets), default=0)
    padded = [np.pad(s, ((0, 0), (0, width - s.shape[1]))) for s in sets]
    stacked = {name: np.concatenate([getattr(one, name) for one in nodes]) for name in _PER_NODE}
    joined = Nodes(**stacked, sets=np.concatenate(padded))
    return Trees(
        maps,
        joined,
        np.concatenate([f.roots + s for f, s in zip(forests, shift)]).astype(np.int32),
        np.concatenate([f.output for f in forests]),
        np.concatenate([share * f.value for f, share in zip(forests, shares)]),
    )


def _renumbered(nodes: Nodes, shift: int) -> Nodes:
    """Return nodes whose children have numbers larger by `shift`; a leaf has the children -1."""
    inner = nodes.column >= 0
    left, right = (
        np.where(inner, a + shift, -1).astype(np.int32) for a in (nodes.left, nodes.right)
    )
    return nodes._replace(left=left, right=right)


def _make_masks(trees: Trees) -> Masks | None:
    """Return the masks of all trees; None if a tree has many leaves, or they take much memory."""
    nodes, dims = trees.nodes, np.array([m.dim for m in trees.maps])
    tree = trees.tree_of_node
    n_leaves = np.bincount(tree[nodes.column < 0], minlength=len(trees))
    inner = nodes.column >= 0
    pairs = np.unique(tree[inner] * len(dims) + nodes.column[inner])
    own, column = np.divmod(pairs, len(dims))
    start = np.concatenate(([0], np.cumsum(dims[column])))
    if n_leaves.max(initial=0) > _MOST_LEAVES or 8 * start[-1] > _MOST_BYTES:
        return None
    masks = Masks(
        first=np.searchsorted(own, np.arange(len(trees) + 1)),
        column=column,
        start=start,
        words=np.full(start[-1], ~np.uint64(0)),
        leaf=np.zeros((len(trees), _MOST_LEAVES), np.int64),
    )
    below = np.empty(len(nodes.column), np.uint64)
    write_masks(nodes, trees.roots, masks, np.empty(len(dims), np.int64), below)
    return masks


# ---- from trees to leaves ------------------------------------------------------------------------


def _read_leaves(trees: Trees) -> Leaves:
    """Return the leaves of all trees, sorted into groups of the same output and columns."""
    nodes, ends = trees.nodes, np.flatnonzero(trees.nodes.column < 0)
    parent = _parents(nodes)
    most = _path_lengths(parent, ends)
    found = Conditions.make(most)
    last = np.array([m.dim - 1 for m in trees.maps])
    count = list_conditions(nodes, parent, ends, last, found)
    found = Conditions(*(a[:count] for a in found))
    found, sets = _merge_sets(found, nodes.sets)
    reached = np.ones(len(ends), dtype=bool)
    empty = (found.high >= 0) & (found.low > found.high) & (found.missing == 0)
    reached[found.leaf[empty]] = False
    output = trees.output[trees.tree_of_node[ends]]
    return _sorted_leaves(found, sets, reached, trees.value[ends], output)


def _parents(nodes: Nodes) -> np.ndarray:
    """Return the parent of each node, (K,), -1 for a root."""
    inner = np.flatnonzero(nodes.column >= 0)
    out = np.full(len(nodes.column), -1, np.int64)
    out[nodes.left[inner]] = out[nodes.right[inner]] = inner
    return out


def _path_lengths(parent: np.ndarray, ends: np.ndarray) -> int:
    """Return the number of splits on the paths to all leaves together."""
    total, at = 0, parent[ends]
    while len(at := at[at >= 0]):
        total += len(at)
        at = parent[at]
    return total


def _merge_sets(found: Conditions, sets: np.ndarray) -> tuple[Conditions, np.ndarray]:
    """Intersect the sets that a leaf has on the same column, and keep each set once."""
    by_set = found.high < 0
    if not by_set.any():
        return found, np.zeros((0, 1), np.uint8)
    own = Conditions(*(a[by_set] for a in found))
    order = np.lexsort((own.column, own.leaf))
    own = Conditions(*(a[order] for a in own))
    masks = sets[own.low] ^ (own.high == NOT_SET)[:, None].astype(np.uint8)
    new = np.append(True, (np.diff(own.leaf) != 0) | (np.diff(own.column) != 0))
    masks = np.minimum.reduceat(masks, np.flatnonzero(new), axis=0)
    # Sorted by column first: the sets of a column are neighbours.
    named = np.hstack([own.column[new][:, None], masks])
    kept, number = np.unique(named, axis=0, return_inverse=True)
    n_merged = np.count_nonzero(new)
    merged = Conditions(
        own.leaf[new],
        own.column[new],
        number.reshape(-1).astype(np.int32),
        np.full(n_merged, SET, np.int32),
        np.multiply.reduceat(own.missing, np.flatnonzero(new)),
    )
    both = Conditions(*(np.concatenate([a[~by_set], b]) for a, b in zip(found, merged)))
    return both, kept[:, 1:].astype(np.uint8)


def _sorted_leaves(
    found: Conditions, sets: np.ndarray, reached: np.ndarray, value: np.ndarray, output: np.ndarray
) -> Leaves:
    """Return the leaves that can be reached, those of the same output and columns neighbours."""
    n_leaves = len(value)
    order = np.lexsort((found.column, found.leaf))
    found = Conditions(*(a[order] for a in found))
    lengths = np.bincount(found.leaf, minlength=n_leaves)
    first = np.concatenate(([0], np.cumsum(lengths)))
    paths = np.full((n_leaves, max(int(lengths.max(initial=0)), 1)), -1, np.int32)
    paths[found.leaf, np.arange(len(found.leaf)) - first[found.leaf]] = found.column
    _, group = np.unique(np.column_stack([output, paths]), axis=0, return_inverse=True)
    group = group.reshape(-1)
    leaves = np.flatnonzero(reached)
    leaves = leaves[np.argsort(group[leaves], kind="stable")]
    own = np.repeat(first[leaves], lengths[leaves])
    ends = np.concatenate(([0], np.cumsum(lengths[leaves])))
    take = own + np.arange(ends[-1]) - np.repeat(ends[:-1], lengths[leaves])
    starts = np.flatnonzero(np.diff(group[leaves], prepend=-1) != 0)
    return Leaves(
        first=ends,
        column=found.column[take],
        low=found.low[take],
        high=found.high[take],
        missing=found.missing[take],
        sets=sets,
        value=value[leaves],
        output=output[leaves],
        groups=np.append(starts, len(leaves)).astype(np.int64),
    )


def category_map(n_categories: int) -> OneHot:
    """Return a map that gives each of the codes 0, 1, ... a bin of its own."""
    out = OneHot(min_count=1)
    out.lookup_ = np.arange(1, n_categories + 1, dtype=np.int32)
    return out
