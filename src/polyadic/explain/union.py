"""Two CP models over the same columns, written with the same maps: then they can be added.

The terms of a sum are those of both models. For this every column gets one map that can express
both cores: the union of knots or edges, the union of categories, or else both maps side by side.
Trees get the edges of both as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyadic.data.columns import Column, Columns
from polyadic.data.dates import CIRCLES
from polyadic.data.kinds import sort_categories
from polyadic.data.marginals import Marginal
from polyadic.explain.cp import CPReading
from polyadic.explain.joined import JoinedReading, first_part
from polyadic.explain.reading import Reading
from polyadic.kernels.trees import BY_SET, Nodes
from polyadic.maps.base import FeatureMap
from polyadic.maps.beside import Beside
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees, category_map, join
from polyadic.training.model import FittedModel, explained_maps, threads_of


@dataclass(frozen=True)
class Written:
    """A CP function of a table: the parts of a model that a reading needs.

    Attributes
    ----------
    columns_ : Columns
    maps_ : list of N FeatureMap
    tensor_ : CPCores
    n_jobs : int or None
    """

    columns_: Columns
    maps_: list[FeatureMap]
    tensor_: CPCores
    n_jobs: int | None

    def read(self, marginals: Sequence[Marginal]) -> Reading:
        """Return the reading over marginals, which may be those of further elements too."""
        model: Any = self
        if self.tensor_.trees is not None:
            return JoinedReading(model, self.tensor_, list(marginals))
        own = [first_part(m, 1 + feature.dim) for m, feature in zip(marginals, self.maps_)]
        return CPReading(model, self.tensor_, own)

    def weigh_outputs(self, matrix: np.ndarray) -> Written:
        """Return the function f(x) @ matrix, matrix : (L, L)."""
        return replace(self, tensor_=self.tensor_.weigh_outputs(matrix))

    @property
    def explained(self) -> list[FeatureMap]:
        """The maps to average over, with the bins of trees."""
        return explained_maps(self.maps_, self.tensor_)


def write_both(a: FittedModel, b: FittedModel) -> tuple[Written, Written]:
    """Return two CP models with the same columns, maps and bins; b's columns are named as a's."""
    parts = [_start(a), _start(b, a.columns_.names)]
    columns, categories = _unite(*(part.columns_ for part in parts))
    maps, factors, additive = [], ([], []), ([], [])  # type: ignore[var-annotated]
    for n, column in enumerate(columns.columns):
        own = [part.maps_[n] for part in parts]
        if column.categories is None:
            idle = [_is_idle(part.tensor_) for part in parts]
            merged, transfers = _merge(own, idle)
        else:
            merged, transfers = _merge_categories(own, [known[n] for known in categories])
        maps.append(merged)
        for k, (part, transfer) in enumerate(zip(parts, transfers)):
            factors[k].append(_moved(transfer, part.tensor_.factors[n]))
            if part.tensor_.additive is not None:
                additive[k].append(_moved(transfer, part.tensor_.additive[n]))
    trees = _unite_trees([part.tensor_ for part in parts], categories)
    first, second = (
        Written(
            columns,
            maps,
            replace(
                part.tensor_,
                factors=factors[k],
                additive=additive[k] or None,
                trees=trees[k],
                blocks=None,
            ),
            threads_of(a),
        )
        for k, part in enumerate(parts)
    )
    return first, second


def combine(a: Written, b: Written, shares: Sequence[float]) -> Written:
    """Return the sum of two functions that `write_both` returned, each times its share."""
    zeros = np.zeros(a.tensor_.n_outputs)
    pairs = zip((a.tensor_, b.tensor_), shares)
    parts = [cores.rescale(zeros, np.full_like(zeros, share)) for cores, share in pairs]
    weights = np.vstack([part.weights for part in parts])
    used = np.any(weights != 0, axis=1)
    used[0] |= not used.any()  # a model has at least one term
    factors = [np.hstack(pair)[:, used] for pair in zip(*(part.factors for part in parts))]
    known = [part.additive for part in parts if part.additive is not None]
    pairs = zip(parts, shares)
    trees = [part.trees for part, share in pairs if share != 0 and part.trees is not None]
    cores = CPCores(
        factors,
        weights[used],
        parts[0].intercept + parts[1].intercept,
        [sum(own) for own in zip(*known)] if known else None,  # type: ignore[misc]
        join(trees, [1.0] * len(trees)) if trees else None,
    )
    return replace(a, tensor_=cores)


# ---- columns and maps ----------------------------------------------------------------------------


def _start(model: FittedModel, names: list[str] | None = None) -> Written:
    """Return the parts of a model, with its columns in the order of these names."""
    cores = model.tensor_
    assert isinstance(cores, CPCores)
    columns, maps = model.columns_, model.maps_
    if names is not None and names != columns.names:
        order = [columns.names.index(name) for name in names]
        columns = Columns([columns.columns[n] for n in order], columns.named)
        maps, cores = [maps[n] for n in order], cores.reordered(order)
    return Written(columns, maps, cores, None)


def _is_idle(cores: CPCores) -> bool:
    """Tell whether a model has no smooth part, so that its maps do not matter."""
    return cores.additive is None and not np.any(cores.weights)


Codes = list[np.ndarray | None]  # per column: the code of each category of the union, or -1


def _unite(first: Columns, second: Columns) -> tuple[Columns, list[Codes]]:
    """Return the columns with the categories of both, and the codes these have in each model."""
    columns: list[Column] = []
    codes: list[Codes] = [[], []]
    for pair in zip(first.columns, second.columns):
        known = [column.categories for column in pair]
        if known[0] is None or known[1] is None:
            columns.append(pair[0])
            for one in codes:
                one.append(None)
            continue
        order = CIRCLES.get(pair[0].part or "", ())
        if pair[0].has_order:
            order = (*known[0], *known[1])
        every = sort_categories([*known[0], *known[1]], order)
        columns.append(replace(pair[0], categories=every))
        for one, column in zip(codes, pair):
            one.append(np.array([column.code_of.get(c, -1) for c in every], dtype=np.int64))
    return Columns(columns, first.named), codes


def _merge(maps: list[FeatureMap], idle: list[bool]) -> tuple[FeatureMap, list[np.ndarray | None]]:
    """Return one map of a numeric column for both cores, and the matrices that convert them."""
    if any(idle) and not all(idle):
        used = maps[idle.index(False)]
        none = [np.zeros((used.dim, own.dim)) for own in maps]
        return used, [zero if unused else None for zero, unused in zip(none, idle)]
    if type(maps[0]) is type(maps[1]):
        try:
            return maps[0].merge(maps[1:])
        except ValueError:  # such as polynomials with other means
            pass
    return _beside(maps)


def _beside(maps: list[FeatureMap]) -> tuple[FeatureMap, list[np.ndarray | None]]:
    """Return both maps side by side, the one with a constant first."""
    order = [1, 0] if maps[1].constant and not maps[0].constant else [0, 1]
    both = Beside(*(maps[k] for k in order))
    first, second = (maps[k] for k in order)
    converted: list[np.ndarray | None] = [None, None]
    converted[order[0]] = np.eye(both.dim, first.dim)
    own = np.eye(both.dim, second.dim, -both.shift)
    if second.constant:
        own[:, 0] = 0.0
        own[0, 0] = 1.0
    converted[order[1]] = own
    return both, converted


def _merge_categories(
    maps: list[FeatureMap], codes: Sequence[np.ndarray | None]
) -> tuple[FeatureMap, list[np.ndarray | None]]:
    """Return the indicators of all categories of the union, and the matrices of both cores.

    A row is what a category adds to a missing one; an unknown category adds nothing.
    """
    transfers: list[np.ndarray | None] = []
    for own, known in zip(maps, codes):
        assert known is not None
        rows = own.dense(np.append(-1, known if len(known) else -1))
        transfers.append(np.vstack([rows[:1], rows[1:] - rows[:1]]))
    return _every_category(codes[0]), transfers


def _every_category(codes: np.ndarray | None) -> FeatureMap:
    """Return the indicators of all categories; a column without any has one that no row has."""
    return category_map(max(0 if codes is None else len(codes), 1))


def _moved(transfer: np.ndarray | None, core: np.ndarray) -> np.ndarray:
    return core if transfer is None else transfer @ core


# ---- trees ---------------------------------------------------------------------------------------


def _unite_trees(cores: list[CPCores], codes: list[Codes]) -> list[Trees | None]:
    """Return the trees of both, over the same bins and with the same number of values per leaf."""
    found = [None if c.trees is None else _recode(c.trees, own) for c, own in zip(cores, codes)]
    first, second = found
    if first is None or second is None:
        return found
    if first.value.shape[1] != second.value.shape[1]:
        first, second = (trees.widened(cores[0].n_outputs) for trees in (first, second))
    return [
        join([first, _without_nodes(second)], [1.0, 1.0]),
        join([_without_nodes(first), second], [1.0, 1.0]),
    ]


def _recode(trees: Trees, codes: Codes) -> Trees:
    """Return the same trees over the categories of the union: their splits become sets of them."""
    nodes, maps = trees.nodes, list(trees.maps)
    place, missing = nodes.place.copy(), nodes.missing.copy()
    widest = max([nodes.sets.shape[1], *(2 + len(c) for c in codes if c is not None)])
    sets = [np.pad(nodes.sets, ((0, 0), (0, widest - nodes.sets.shape[1])))]
    count = len(nodes.sets)
    for n, known in enumerate(codes):
        if known is None:
            continue
        bins = maps[n].encode(np.append(-1, known))[0][:, 0]  # of a missing one, then of all others
        maps[n] = _every_category(known)
        at = np.flatnonzero(nodes.column == n)
        left = _left_bins(nodes, at, int(bins.max()))[:, bins]
        sets.append(np.pad(left, ((0, 0), (0, widest - left.shape[1]))))
        place[at], missing[at] = count + np.arange(len(at)), BY_SET
        count += len(at)
    changed = nodes._replace(place=place, missing=missing, sets=np.concatenate(sets))
    return replace(trees, maps=maps, nodes=changed)


def _left_bins(nodes: Nodes, at: np.ndarray, last: int) -> np.ndarray:
    """Return which of the bins 0 ... last go left at some nodes, (number of nodes, last + 1)."""
    out = np.empty((len(at), last + 1), np.uint8)
    by_set = nodes.missing[at] == BY_SET
    out[by_set] = nodes.sets[nodes.place[at[by_set]], : last + 1]
    other = at[~by_set]
    out[~by_set] = np.arange(last + 1) <= nodes.place[other, None]
    out[~by_set, 0] = nodes.missing[other]
    return out


def _without_nodes(trees: Trees) -> Trees:
    """Return a forest of no trees over the same bins."""
    nodes = Nodes(*(array[:0] for array in trees.nodes))
    return replace(
        trees, nodes=nodes, roots=trees.roots[:0], output=trees.output[:0], value=trees.value[:0]
    )
