"""Boosted trees as a part of the mixture, grown by scikit-learn's HistGradientBoosting.

Trees are good at sharp steps and at interactions of few rows, smooth terms at everything that
changes gradually. A leaf is a rank-one term, so both together are one CP model. Each member's trees
are grown without its held-out rows, which choose how many trees there are, and their share. The
trees that the model keeps are grown with all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from polyadic.data.rows import CodedRows
from polyadic.kernels.trees import BY_SET, Nodes
from polyadic.maps import OneHot, Step
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees
from polyadic.objective.losses import Logistic, Loss, Poisson, Quantile, Softmax, SquaredError
from polyadic.solvers.blas import one_openmp_thread
from polyadic.solvers.contract import Solution
from polyadic.training.fits import Fits, hold_out
from polyadic.training.merge import Member
from polyadic.training.plan import Choice

NAME = "trees"
MOST_BINS = 255  # of a column: the most that HistGradientBoosting takes
# On shorter tables trees gained nothing clear: docs/defaults.md.
FEWEST_ROWS = 1000
# Settings of the trees, as in the measurements of docs/defaults.md.
_RATE, _LEAVES, _COLUMN_SHARE = 0.1, 31, 0.5
# Rounds of boosting that are grown at a time, each time twice as many, while the held-out loss
# falls by more than this share with the last doubling.
_FIRST_ROUNDS, _MOST_ROUNDS, _LEAST_GAIN = 25, 400, 0.005
_STEP = 5  # rounds between two looks at the held-out loss


def possible(loss: Loss) -> bool:
    """Tell whether there are boosted trees for this loss."""
    return type(loss) in (SquaredError, Logistic, Softmax, Poisson, Quantile)


# ---- bins ----------------------------------------------------------------------------------------


def bin_maps(maps: Sequence[FeatureMap], rows: CodedRows) -> list[FeatureMap]:
    """Return the maps that turn columns into bins, at most 254 for known values.

    Of a column with more categories the most frequent ones have a bin; the others count as missing.
    """
    out: list[FeatureMap] = []
    for m, x in zip(maps, rows.columns):
        if m.kind == "numeric":
            out.append(Step(MOST_BINS - 1).fit(x, sample_weight=rows.weight))
        else:
            out.append(_frequent(x, rows.weight))
    return out


def _frequent(codes: np.ndarray, weight: np.ndarray) -> OneHot:
    """Return a map with one element for each of the most frequent categories."""
    out = OneHot().fit(codes, sample_weight=weight)
    if out.dim - 1 >= MOST_BINS:
        known = codes >= 0
        totals = np.bincount(codes[known], weight[known], minlength=len(out.lookup_))
        kept = np.zeros(len(totals), dtype=bool)
        kept[np.argsort(-totals, kind="stable")[: MOST_BINS - 1]] = True
        out.lookup_ = np.where(kept, np.cumsum(kept), 0).astype(np.int32)
    return out


# ---- growing -------------------------------------------------------------------------------------


class Forest:
    """Boosted trees of some rows, which can be grown further.

    Parameters
    ----------
    loss : Loss
    maps : list of FeatureMap
        Of `bin_maps`.
    rows : CodedRows
    intercept : (L,)
        The prediction where no column varies.
    seed : int
    """

    def __init__(
        self,
        loss: Loss,
        maps: list[FeatureMap],
        rows: CodedRows,
        intercept: np.ndarray,
        seed: int,
    ):
        self.maps, self.rows, self.intercept = maps, rows, intercept
        table = _table(maps, rows.columns)
        # HistGradientBoosting cannot bin a column without two distinct values.
        varying = np.flatnonzero(_varies(table))
        categorical = np.array([maps[n].kind == "categorical" for n in varying], dtype=bool)
        # It moves categorical columns to the front, and counts categories that it has met.
        order = np.argsort(~categorical, kind="stable")
        self.columns, categorical = varying[order], categorical[order]
        self.table = table[:, self.columns]
        self.known = [
            np.unique(x[~np.isnan(x)]).astype(np.int64) if by_set else None
            for x, by_set in zip(self.table.T, categorical)
        ]
        self.models = [
            model.set_params(
                learning_rate=_RATE,
                max_leaf_nodes=_LEAVES,
                max_features=_COLUMN_SHARE,
                categorical_features=categorical,
                early_stopping=False,
                warm_start=True,
                random_state=seed,
            )
            for model in _models(loss, rows.y.shape[1])
        ]

    def grow(self, n_rounds: int) -> None:
        """Grow trees until there are this many rounds."""
        if not len(self.columns):
            return
        for k, model in enumerate(self.models):
            with one_openmp_thread():  # sums would depend on the number of threads
                model.set_params(max_iter=n_rounds).fit(
                    self.table, self.rows.y[:, k], self.rows.weight
                )

    def read(self, n_rounds: int) -> tuple[np.ndarray, Trees]:
        """Return the constant, (L,), and the trees of the first rounds."""
        if not len(self.columns):
            return self.intercept, _no_trees(self.maps)
        # Round by round, of all models: the first trees are those of the first rounds.
        rounds = zip(*(model._predictors[:n_rounds] for model in self.models))
        trees = [
            _tree(tree, self, k + j)
            for of_models in rounds
            for k, of_round in enumerate(of_models)
            for j, tree in enumerate(of_round)
        ]
        base = np.concatenate([np.ravel(m._baseline_prediction) for m in self.models])
        return base, _stack(self.maps, trees)


def _models(loss: Loss, n_targets: int) -> list[Any]:
    """Return an estimator for each target."""
    if isinstance(loss, Logistic | Softmax):
        return [HistGradientBoostingClassifier()]
    settings: dict[str, Any] = {"loss": "squared_error"}
    if isinstance(loss, Poisson):
        settings = {"loss": "poisson"}
    elif isinstance(loss, Quantile):
        settings = {"loss": "quantile", "quantile": loss.level}
    return [HistGradientBoostingRegressor(**settings) for _ in range(n_targets)]


def _table(maps: Sequence[FeatureMap], columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return the bins of coded columns as numbers, (n, N), NaN for a missing value."""
    bins = np.array([m.encode(x)[0][:, 0] for m, x in zip(maps, columns)], dtype=float).T
    bins[bins == 0] = np.nan
    return bins


def _varies(table: np.ndarray) -> np.ndarray:
    """Tell which columns have at least two distinct known values, (N,)."""
    low = np.where(np.isnan(table), np.inf, table).min(axis=0)
    high = np.where(np.isnan(table), -np.inf, table).max(axis=0)
    return low < high


# ---- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tree:
    """The nodes of one tree, with its own numbers of nodes and sets, and its output."""

    nodes: Nodes
    value: np.ndarray
    output: int


def _tree(tree: Any, forest: Forest, output: int) -> _Tree:
    """Return one tree of an estimator."""
    nodes, leaf = tree.nodes, tree.nodes["is_leaf"].astype(bool)
    by_set = nodes["is_categorical"].astype(bool) & ~leaf
    column = np.where(leaf, -1, forest.columns[nodes["feature_idx"]]).astype(np.int32)
    # A threshold lies between two bins, which are whole numbers. It is infinite where missing
    # values alone go right.
    threshold = np.where(leaf | by_set, 0.0, nodes["num_threshold"])
    last = np.array([m.dim - 1 for m in forest.maps])
    place = np.minimum(np.floor(threshold), last[column]).astype(np.int32)
    place[by_set] = np.arange(np.count_nonzero(by_set))
    missing = np.where(leaf, 0, nodes["missing_go_to_left"]).astype(np.uint8)
    sets = np.zeros((np.count_nonzero(by_set), max(m.dim for m in forest.maps)), np.uint8)
    sets += missing[by_set][:, None]  # a category that was not met goes the way of missing values
    for own, bits, n in zip(sets, _bits(tree, by_set), nodes["feature_idx"][by_set]):
        known = forest.known[n]
        own[known] = bits[: len(known)]
    missing[by_set] = BY_SET
    found = Nodes(
        column=column,
        place=place,
        missing=missing,
        left=nodes["left"].astype(np.int32),
        right=nodes["right"].astype(np.int32),
        sets=sets,
    )
    return _Tree(found, np.where(leaf, nodes["value"], 0.0)[:, None], output)


def _bits(tree: Any, by_set: np.ndarray) -> np.ndarray:
    """Return which categories go left at the nodes that ask for them, (number of nodes, 256)."""
    words = tree.raw_left_cat_bitsets[tree.nodes["bitset_idx"][by_set]]
    as_bytes = np.ascontiguousarray(words, dtype="<u4").view(np.uint8).reshape(len(words), 32)
    return np.unpackbits(as_bytes, axis=1, bitorder="little")


def _stack(maps: list[FeatureMap], trees: Sequence[_Tree]) -> Trees:
    """Return one forest of these trees."""
    shift = np.cumsum([0, *(len(tree.value) for tree in trees)])
    before = np.cumsum([0, *(len(tree.nodes.sets) for tree in trees)])
    parts = []
    for k, tree in enumerate(trees):
        own = tree.nodes
        parts.append(
            own._replace(
                place=np.where(own.missing == BY_SET, own.place + before[k], own.place),
                left=np.where(own.column >= 0, own.left + shift[k], -1),
                right=np.where(own.column >= 0, own.right + shift[k], -1),
            )
        )
    types = (np.int32, np.int32, np.uint8, np.int32, np.int32, np.uint8)
    nodes = Nodes(*(np.concatenate(a).astype(t) for a, t in zip(zip(*parts), types)))
    return Trees(
        maps,
        nodes,
        shift[:-1].astype(np.int32),
        np.array([tree.output for tree in trees], np.int32),
        np.concatenate([tree.value for tree in trees]),
    )


def _no_trees(maps: list[FeatureMap]) -> Trees:
    """Return a forest without trees."""
    empty, sets = np.zeros(0, np.int32), np.zeros((0, 1), np.uint8)
    nodes = Nodes(empty, empty, np.zeros(0, np.uint8), empty, empty, sets)
    return Trees(maps, nodes, empty, empty, np.zeros((0, 1)))


# ---- a part of the mixture -----------------------------------------------------------------------


class TreeTraining:
    """The trees of a plan that joins them."""

    def __init__(self, fits: Fits):
        self.fits, self.plan = fits, fits.plan
        self.members: list[Member] = []
        self.finished: dict[tuple[str, int], Member] = {}  # the same, of all rows
        self.choices: list[Choice] = []

    def train(self) -> None:
        """Grow trees without the rows of each fold, and once more with all rows."""
        fits, plan = self.fits, self.plan
        if fits.out_of_time:
            return
        self.maps = bin_maps(plan.maps, fits.rows)
        n_forests = 1 if fits.fold_of is None else plan.n_members
        parts = [hold_out(fits.rows, fits.held_out, fits.fold_of, k) for k in range(n_forests)]
        if not all(_has_every_class(plan.loss, fits.rows, rows) for rows, _ in parts):
            return
        forests = [self.forest(rows, k) for k, (rows, _) in enumerate(parts)]
        curves = self.grow([held_out for _, held_out in parts], forests)
        best = (1 + int(np.argmin(curves.mean(axis=0)))) * _STEP
        found = [forest.read(best) for forest in forests]
        for number in range(plan.n_members):
            base, trees = found[number % n_forests]
            held_out = parts[number % n_forests][1]
            self.members.append(self.member(number, base, trees, held_out))
        self.finish(best)
        told = ", ".join(f"{_STEP * (1 + k)}: {loss:.4g}" for k, loss in self.told(curves))
        self.choices.append(Choice(NAME, f"{best} rounds", f"held-out losses: {told}"))

    def forest(self, rows: CodedRows, number: int) -> Forest:
        """Return a forest of these rows, without trees yet."""
        plan = self.plan
        seed = int(np.random.default_rng((plan.seed, number, 2)).integers(2**31))
        return Forest(plan.loss, self.maps, rows, plan.intercept, seed)

    def grow(self, held_out: Sequence[Any], forests: Sequence[Forest]) -> np.ndarray:
        """Grow forests while their held-out losses fall; return the losses, (forests, looks)."""
        fits, n_rounds = self.fits, _FIRST_ROUNDS
        while True:
            fits.pool.run(lambda forest: forest.grow(n_rounds), forests)  # noqa: B023
            curves = np.array([self.losses(*pair, n_rounds) for pair in zip(held_out, forests)])
            mean = curves.mean(axis=0)
            half = mean[: max(len(mean) // 2, 1)].min()
            gained = half - mean.min()
            if 2 * n_rounds > _MOST_ROUNDS or not gained > _LEAST_GAIN * abs(half):
                return curves
            if fits.out_of_time:
                return curves
            n_rounds *= 2

    def losses(self, held_out: CodedRows, forest: Forest, n_rounds: int) -> np.ndarray:
        """Return the held-out loss after every few rounds."""
        base, trees = forest.read(n_rounds)
        raw, bins = np.tile(base, (len(held_out), 1)), trees.bins(held_out.columns)
        n_parts = n_rounds // _STEP
        out = []
        for some in np.array_split(np.arange(len(trees)), n_parts):
            trees.some(some).add_bins(raw, bins)
            out.append(self.plan.loss.value(held_out.y, raw, held_out.weight))
        return np.array(out)

    def told(self, curves: np.ndarray) -> list[tuple[int, float]]:
        """Return the places and losses that the plan tells."""
        mean = curves.mean(axis=0)
        places = {len(mean) - 1, int(np.argmin(mean)), *(2**k - 1 for k in range(2, 8))}
        return [(k, float(mean[k])) for k in sorted(places) if k < len(mean)]

    def finish(self, n_rounds: int) -> None:
        """Grow trees once more with all rows: what was held out has served its purpose."""
        fits = self.fits
        if fits.fold_of is None or fits.out_of_time:
            return
        forest = self.forest(fits.rows, 0)
        fits.pool.run(lambda forest: forest.grow(n_rounds), [forest])
        base, trees = forest.read(n_rounds)
        for own in self.members:
            self.finished[NAME, own.number] = self.member(own.number, base, trees, None)

    def groups(self) -> list[list[Member]]:
        """Return the members whose share is to be found."""
        return [self.members] if self.members else []

    def member(
        self, number: int, base: np.ndarray, trees: Trees, held_out: CodedRows | None
    ) -> Member:
        """Return trees as a member, beside a smooth part of no weight."""
        maps = self.fits.member_maps(number)
        factors = [np.zeros((m.dim, 1)) for m in maps]
        cores = CPCores(factors, np.zeros((1, len(base))), base, trees=trees)
        raw = None
        if held_out is not None:
            raw = np.tile(base, (len(held_out), 1))
            trees.add_to(raw, held_out.columns)
        return Member(maps, Solution(cores, held_out=raw), 0.0, number, NAME)


def _has_every_class(loss: Loss, rows: CodedRows, some: CodedRows) -> bool:
    """Tell whether some rows have all classes that all rows have."""
    if not isinstance(loss, Logistic | Softmax):
        return True
    return len(np.unique(some.y)) == len(np.unique(rows.y)) > 1
