"""Trees as ONNX operators: one operator for all rows, and a loop for rows that go both ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.export.columns import left_bins
from polyadic.export.graph import ROWS, Graph, Symbol, join
from polyadic.export.onnx_maps import LEQ, Read, SplitTrees, elements_of
from polyadic.kernels.trees import SET
from polyadic.maps import Step
from polyadic.networks.trees import Leaves, Trees

_LAST = 2**30  # more than any bin has


class TreeColumns:
    """The columns of trees: numbers as they are, categories as bins; and all of them as bins.

    As with `ColumnSlots`, symbols are made after `search.run()`.
    """

    def __init__(self, trees: Trees, reads: Sequence[Read]):
        self.trees, self.reads = trees, reads
        self._asked = [-1] * len(reads)
        if len(trees.averaged):
            for n, (own, read) in enumerate(zip(trees.maps, reads)):
                if isinstance(own, Step):
                    edges = np.nextafter(own.edges_, np.inf)
                    self._asked[n] = read.search.ask(read.raw, edges)

    def add_to(self, raw: Symbol) -> Symbol:
        """Return raw : (n, L) with the trees added."""
        n_outputs = raw.shape[1]
        bins = {
            n: elements_of(read, self.trees.maps[n])
            for n, read in enumerate(self.reads)
            if not isinstance(self.trees.maps[n], Step)
        }
        found = _one_way(self.trees, self.reads, bins, n_outputs)
        if len(self.trees.averaged):
            for n, read in enumerate(self.reads):
                if n not in bins:
                    cell = read.search.cell(self._asked[n])
                    bins[n] = read.missing.reshape(ROWS).where(0, cell + 1)
            found = _both_ways(self.trees, bins, found)
        return raw + found


# ---- one way: the operator for trees -------------------------------------------------------------


def _one_way(
    trees: Trees, reads: Sequence[Read], bins: dict[int, Symbol], n_outputs: int
) -> Symbol:
    """Return the sum of all trees, (n, L), missing values going one way.

    A set of categories has a feature of its own, which is 1 outside of it.
    """
    features: list[Symbol] = [read.raw for n, read in enumerate(reads) if n not in bins]
    number = {n: i for i, n in enumerate(n for n in range(len(reads)) if n not in bins)}
    feature_of = _set_features(trees, bins, features, len(number))
    size = np.abs(trees.value).max(initial=0.0)
    unit = np.ldexp(1.0, np.frexp(size)[1]) if size > 0 else 1.0  # single precision ends at 1e38
    out = SplitTrees(n_outputs)
    limits = np.append(trees.roots, len(trees.value))
    for t in range(len(trees)):
        _add_tree(out, trees, t, range(limits[t], limits[t + 1]), unit, number, feature_of)
    features = features or [bins[0].cast(np.float64)[:, None]]  # no tree has a split
    return out.apply(join(features, 1)).cast(np.float64) * unit


def _set_features(
    trees: Trees, bins: dict[int, Symbol], features: list[Symbol], n_features: int
) -> dict[int, int]:
    """Add a feature per set of categories; return the feature of each node that asks for a set."""
    out: dict[int, int] = {}
    for n, bin_of in bins.items():
        own = np.flatnonzero(trees.nodes.column == n)
        if not len(own):
            continue
        outside = [~left_bins(trees, int(k)) for k in own]
        flags, number = np.unique(outside, axis=0, return_inverse=True)
        out |= {int(k): n_features + int(i) for k, i in zip(own, number.ravel())}
        table = bin_of.graph.constant(np.ascontiguousarray(flags.T.astype(np.uint8)))
        features.append(table.rows_of(bin_of).cast(np.float64))
        n_features += len(flags)
    return out


def _add_tree(
    out: SplitTrees,
    trees: Trees,
    t: int,
    own: range,
    unit: float,
    number: dict[int, int],
    feature_of: dict[int, int],
) -> None:
    """Add tree t, whose nodes are `own`, with its values divided by `unit`."""
    nodes = trees.nodes
    out.start_tree()
    for k in own:
        n = int(nodes.column[k])
        if n < 0:
            out.add_leaf(int(trees.output[t]), (trees.value[k] / unit).tolist())
        elif k in feature_of:
            out.add_node(feature_of[k], LEQ, 0.5)
        else:
            edges = trees.maps[n].edges_  # type: ignore[attr-defined]
            place = nodes.place[k] - 1
            # The last bin has no end: every number that is not missing is in it or below.
            split = float(edges[place]) if place < len(edges) else np.finfo(np.float64).max
            out.add_node(number[n], LEQ, split, bool(nodes.missing[k] == 1))
    for k in own:
        if nodes.column[k] >= 0:
            out.set_children(k - own[0], int(nodes.left[k]) - own[0], int(nodes.right[k]) - own[0])


# ---- both ways: the leaves as products -----------------------------------------------------------


def _both_ways(trees: Trees, bins: dict[int, Symbol], found: Symbol) -> Symbol:
    """Replace the predictions of rows with a missing value that goes both ways.

    Each of them is the sum over all leaves of a product of conditions, in a loop over these rows:
    they are few, and the conditions of all leaves for all rows would take much memory.
    """
    graph = found.graph
    places = join([bins[n][:, None] for n in range(len(bins))], 1)
    some = places[:, trees.averaged[0]].equals(0)
    for n in trees.averaged[1:]:
        some = some | places[:, n].equals(0)
    rows = graph.apply("NonZero", some, shape=(1, ROWS), dtype=np.int64).reshape(ROWS)
    sizes = graph.apply("Shape", rows, shape=(1,), dtype=np.int64)
    body = graph.body()
    number = graph.new_name("pass")
    row = body.use(rows).rows_of(Symbol(body, number, np.dtype(np.int64), ()))
    one = body.use(places).rows_of(row)  # (N,)
    weights = graph.constant(trees.leaves.weights(found.shape[1]))
    value = (_leaf_products(graph, body, trees.leaves, one)[None] @ body.use(weights))[0]
    values = graph.loop(sizes[0], body, number, value)
    return graph.apply("ScatterND", found, rows[:, None], values, shape=found.shape)


def _leaf_products(graph: Graph, body: Graph, leaves: Leaves, one: Symbol) -> Symbol:
    """Return whether a row reaches each leaf, or with which share, (R,); one : (N,) its bins.

    Many leaves have the same conditions: each is tested once.
    """
    all_of_them = np.column_stack([leaves.column, leaves.low, leaves.high, leaves.missing])
    distinct, number = np.unique(all_of_them, axis=0, return_inverse=True)
    met = _conditions(graph, body, leaves.sets, distinct, one)
    met = met.joined(body.constant(np.ones(1)), 0)  # a condition that every row meets
    product: Symbol | None = None
    for p in range(max(1, int(leaves.lengths.max(initial=0)))):
        at = np.full(len(leaves), len(distinct), np.int32)
        own = leaves.lengths > p
        at[own] = number.ravel()[leaves.first[:-1][own] + p]
        factor = met.rows_of(body.use(graph.constant(at)))
        product = factor if product is None else product * factor
    assert product is not None
    return product


def _conditions(
    graph: Graph, body: Graph, sets: np.ndarray, conditions: np.ndarray, one: Symbol
) -> Symbol:
    """Return how far a row meets conditions of column, first bin, last bin and share, (P,)."""

    def constant(values: np.ndarray, dtype: type = np.int32) -> Symbol:
        return body.use(graph.constant(values.astype(dtype)))

    column, low, high, share = conditions.T
    by_set = high == SET
    place = one.cast(np.int32).rows_of(constant(column))
    met = (place >= constant(np.where(by_set, 0, low))) & (
        place <= constant(np.where(by_set, _LAST, high))
    )
    if by_set.any():
        start = constant(np.where(by_set, low * sets.shape[1], -1))
        flags = constant(sets.ravel(), bool)
        met = met & ((start < 0) | flags.rows_of((start < 0).where(0, start + place)))
    return place.equals(0).where(constant(share, np.float64), met.cast(np.float64))
