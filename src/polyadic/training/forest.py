"""Boosted trees as a part of the mixture.

Trees are good at sharp steps and at interactions of few rows, smooth terms at everything that
changes gradually. A leaf is a rank-one term, so both together are one CP model. Each member's trees
are grown without its held-out rows, which choose how many trees there are, and their share. The
trees that the model keeps are grown with all rows.

The trees are those of histogram gradient boosting, as in LightGBM or scikit-learn's
HistGradientBoosting. They are grown by a kernel of our own, which takes a third of the time of the
latter on tables of a few thousand rows, and goes on where it stopped (docs/defaults.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import ceil

import numpy as np

from polyadic.data.rows import CodedRows
from polyadic.kernels import boosting
from polyadic.kernels.losses import LOGISTIC, POISSON, SOFTMAX, SQUARED
from polyadic.kernels.trees import Nodes, one_way
from polyadic.maps import OneHot, Step
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees, join
from polyadic.objective.losses import Loss
from polyadic.solvers.contract import Solution
from polyadic.training.fits import Fits, hold_out
from polyadic.training.merge import Member
from polyadic.training.plan import Choice

NAME = "trees"
_NO_TIME = Choice(NAME, "no", "no time was left")
# Of the time that is left, where it is limited: others may begin after the trees. Chosen by hand.
_TIME_SHARE = 0.25
# Bins of a column, that of missing values included: a byte holds their numbers. A column of a short
# table has fewer: a leaf has at least twice as many rows as a bin. Chosen by hand.
MOST_BINS, FEWEST_BINS, ROWS_PER_BIN = 255, 32, 10
# Bins of all columns together: histograms of as many take 40 MB per forest. Columns of a wide table
# have fewer bins, but not fewer than these. Chosen by hand.
_MOST_BINS_OF_ALL, _FEWEST_BINS_OF_MANY = 50_000, 4
# On shorter tables trees gained nothing clear: docs/defaults.md.
FEWEST_ROWS = 500
# Settings of the trees, as in the measurements of docs/defaults.md.
_RATE, _LEAVES, _LEAST_ROWS, _COLUMN_SHARE = 0.1, 31, 20.0, 0.5
# Of many classes, which are often nearly separable, each tree sees other rows: docs/defaults.md.
_ROW_SHARE_OF_CLASSES = 0.6
# Rounds of boosting to begin with. Half as many again follow while that lowers the held-out loss by
# this share, which is one per cent per doubling, up to this many trees; a round is one tree per
# output.
_FIRST_ROUNDS, _LEAST_GAIN = 25, 0.006
_MOST_ROUNDS, MOST_TREES = 400, 2000
STEP = 5  # rounds between two looks at the held-out loss
# Rows times columns times trees that a kernel is given at once, and bins of leaves: about half a
# second on one core, in which nothing can stop it.
_MOST_WORK = 2 * 10**7


def possible(loss: Loss) -> bool:
    """Tell whether there are boosted trees for this loss."""
    return loss.code in (SQUARED, LOGISTIC, SOFTMAX, POISSON)


def affordable(n_columns: int, n_outputs: int) -> bool:
    """Tell whether trees of this table take little memory and time beside the smooth terms."""
    return n_columns * FEWEST_BINS <= _MOST_BINS_OF_ALL and most_rounds(n_outputs) > 0


def most_rounds(n_outputs: int) -> int:
    """Return the number of rounds that a forest may have."""
    return min(_MOST_ROUNDS, MOST_TREES // n_outputs) // STEP * STEP


def _most_bins(n_columns: int) -> int:
    """Return how many bins a column may have, that of missing values included."""
    return int(np.clip(_MOST_BINS_OF_ALL // max(n_columns, 1), _FEWEST_BINS_OF_MANY, MOST_BINS))


# ---- bins ----------------------------------------------------------------------------------------


def bin_maps(maps: Sequence[FeatureMap], rows: CodedRows) -> list[FeatureMap]:
    """Return the maps that turn columns into bins.

    Of a column with more categories the most frequent ones have a bin; the others count as missing.
    """
    out: list[FeatureMap] = []
    most = _most_bins(len(maps))
    n_steps = min(max(len(rows) // ROWS_PER_BIN, FEWEST_BINS), most - 1)
    for m, x in zip(maps, rows.columns):
        if m.kind == "numeric":
            out.append(Step(n_steps).fit(x, sample_weight=rows.weight))
        else:
            out.append(_frequent(x, rows.weight, most))
    return out


def _frequent(codes: np.ndarray, weight: np.ndarray, most: int) -> OneHot:
    """Return a map with one element for each of the most frequent categories."""
    out = OneHot(min_count=1).fit(codes, sample_weight=weight)
    if out.dim - 1 >= most:
        known = codes >= 0
        totals = np.bincount(codes[known], weight[known], minlength=len(out.lookup_))
        kept = np.zeros(len(totals), dtype=bool)
        kept[np.argsort(-totals, kind="stable")[: most - 1]] = True
        out.lookup_ = np.where(kept, np.cumsum(kept), 0).astype(np.int32)
    return out


def _never() -> bool:
    """Tell that time is not over, where nobody has limited it."""
    return False


# ---- growing -------------------------------------------------------------------------------------


class Forest:
    """Boosted trees of some rows, which can be grown further.

    Parameters
    ----------
    loss : Loss
    maps : list of FeatureMap
        Of `bin_maps`.
    rows : CodedRows
    base : (L,)
        The prediction to start from.
    seed : int
    """

    def __init__(
        self,
        loss: Loss,
        maps: list[FeatureMap],
        rows: CodedRows,
        base: np.ndarray,
        seed: int,
    ):
        self.maps, self.base = maps, base
        self.dims = [m.dim for m in maps]
        self.table = boosting.Table(
            bins=np.array([m.encode(x)[0][:, 0] for m, x in zip(maps, rows.columns)], np.uint8),
            start=np.concatenate(([0], np.cumsum(self.dims))),
            categorical=np.array([m.kind == "categorical" for m in maps]),
            y=np.ascontiguousarray(rows.y, dtype=np.float64),
            # By rows: limits of the kernel are numbers of rows, whatever the unit of weights.
            weight=rows.weight * (rows.effective_rows() / rows.weight.sum()),
        )
        row_share = _ROW_SHARE_OF_CLASSES if loss.code == SOFTMAX else 1.0
        self.settings = boosting.Settings(
            loss=loss.code,
            rate=_RATE,
            most_leaves=_LEAVES,
            least_rows=row_share * _LEAST_ROWS,  # of those that the tree sees
            split_columns=ceil(_COLUMN_SHARE * len(self.maps)),
            row_share=row_share,
        )
        self.raw = np.tile(base, (len(rows), 1))
        self.state = np.array([seed], np.uint64)
        self.parts: list[Trees] = []  # of the calls of `grow`

    def grow(self, n_rounds: int, over: Callable[[], bool] = _never) -> bool:
        """Grow trees for this many rounds more, and tell whether all of them have grown.

        `over` is asked now and then, and may raise. If it tells that time is over, none of these
        rounds are kept, and the forest cannot grow any more.
        """
        n_bins = int(self.table.start[-1])
        size = (len(self.raw) * len(self.maps) + _LEAVES * n_bins) * len(self.base)
        at_once = int(np.clip(_MOST_WORK // max(size, 1), 1, n_rounds))
        work = boosting.Workspace.make(len(self.raw), len(self.maps), n_bins, _LEAVES)
        grown = []
        for done in range(0, n_rounds, at_once):
            if over():
                return False
            grown.append(self._grow(min(at_once, n_rounds - done), work))
        self.parts.append(grown[0] if len(grown) == 1 else join(grown, [1.0] * len(grown)))
        return True

    def _grow(self, n_rounds: int, work: boosting.Workspace) -> Trees:
        """Grow trees for this many rounds: nothing can stop the kernel."""
        n_trees = n_rounds * len(self.base)
        n_nodes, n_sets = n_trees * (2 * _LEAVES - 1), 0
        if self.table.categorical.any():
            n_sets = n_trees * (_LEAVES - 1)
        grown = boosting.Grown(
            column=np.empty(n_nodes, np.int32),
            place=np.empty(n_nodes, np.int32),
            missing=np.empty(n_nodes, np.uint8),
            left=np.empty(n_nodes, np.int32),
            right=np.empty(n_nodes, np.int32),
            sets=np.empty((n_sets, max(self.dims)), np.uint8),
            value=np.empty(n_nodes),
            root=np.empty(n_trees, np.int64),
            counts=np.zeros(3, np.int64),
        )
        boosting.boost(self.settings, self.table, n_rounds, self.raw, grown, work, self.state)
        return _read(self.maps, grown, len(self.base))

    def first(self, n_rounds: int) -> Trees:
        """Return the trees of the first rounds."""
        ones = np.ones(len(self.parts))
        return join(self.parts, ones.tolist()).part(0, n_rounds * len(self.base))


def _read(maps: list[FeatureMap], grown: boosting.Grown, n_outputs: int) -> Trees:
    """Return what was grown as a forest."""
    n_trees, n_nodes, n_sets = grown.counts
    root = grown.root[:n_trees]
    shift = np.repeat(root, np.diff(np.append(root, n_nodes)))
    inner = grown.column[:n_nodes] >= 0
    nodes = Nodes(
        column=np.where(inner, grown.column[:n_nodes], -1).astype(np.int32),
        place=grown.place[:n_nodes].copy(),
        missing=grown.missing[:n_nodes].copy(),
        left=np.where(inner, grown.left[:n_nodes] + shift, -1).astype(np.int32),
        right=np.where(inner, grown.right[:n_nodes] + shift, -1).astype(np.int32),
        sets=grown.sets[:n_sets].copy(),
        share=one_way(n_nodes),
    )
    output = np.tile(np.arange(n_outputs), n_trees // n_outputs).astype(np.int32)
    return Trees(maps, nodes, root.astype(np.int32), output, grown.value[:n_nodes, None].copy())


class HeldOutLoss:
    """The loss of held-out rows, while a forest grows."""

    def __init__(self, loss: Loss, forest: Forest, rows: CodedRows | None):
        assert rows is not None
        self.loss, self.forest, self.rows = loss, forest, rows
        self.raw = np.tile(forest.base, (len(rows), 1))
        self.bins = np.array([m.encode(x)[0][:, 0] for m, x in zip(forest.maps, rows.columns)])
        self.losses: list[float] = []

    def grow(
        self,
        n_rounds: int,
        tell: Callable[[float], object] | None = None,
        over: Callable[[], bool] = _never,
    ) -> None:
        """Grow the forest until time is `over`, and tell the loss after every few rounds."""
        for _ in range(0, n_rounds, STEP):
            if not self.forest.grow(STEP, over):
                return
            self.forest.parts[-1].add_bins(self.raw, self.bins)
            self.losses.append(self.loss.value(self.rows.y, self.raw, self.rows.weight))
            if tell is not None:
                tell(self.losses[-1])


# ---- a part of the mixture -----------------------------------------------------------------------


class TreeTraining:
    """The trees of a plan that joins them."""

    def __init__(self, fits: Fits):
        self.fits, self.plan = fits, fits.plan
        self.members: list[Member] = []
        self.finished: dict[tuple[str, int], Member] = {}  # the same, of all rows
        self.choices: list[Choice] = []
        self.end = np.inf

    def train(self) -> None:
        """Grow trees without the rows of each fold."""
        fits, plan = self.fits, self.plan
        if fits.out_of_time:
            self.choices.append(_NO_TIME)
            return
        self.limit_time()
        self.maps = bin_maps(plan.maps, fits.rows)
        n_forests = 1 if fits.fold_of is None else plan.n_members
        parts = [hold_out(fits.rows, fits.held_out, fits.fold_of, k) for k in range(n_forests)]
        forests = [self.forest(rows, k) for k, (rows, _) in enumerate(parts)]
        held_out = [rows for _, rows in parts]
        curve = self.grow(forests, held_out)
        if not len(curve):
            self.choices.append(_NO_TIME)
            return
        best = (1 + int(np.argmin(curve))) * STEP
        kept = [one.first(best) for one in forests]  # members of one forest have the same trees
        self.members = fits.pool.run(
            lambda k: self.member(k, kept[k % n_forests], held_out[k % n_forests]),
            range(plan.n_members),
        )
        self.n_rounds = best
        places = {len(curve) - 1, best // STEP - 1, *(2**k - 1 for k in range(2, 8))}
        told = [(k, curve[k]) for k in sorted(places) if k < len(curve)]
        why = ", ".join(f"{STEP * (1 + k)}: {loss:.4g}" for k, loss in told)
        self.choices.append(Choice("rounds of trees", str(best), f"held-out losses: {why}"))

    def forest(self, rows: CodedRows, number: int) -> Forest:
        """Return a forest of these rows, without trees yet."""
        plan = self.plan
        seed = int(np.random.default_rng((plan.seed, number, 2)).integers(1, 2**31))
        return Forest(plan.loss, self.maps, rows, plan.intercept, seed)

    def grow(self, forests: Sequence[Forest], held_out: Sequence[CodedRows | None]) -> np.ndarray:
        """Grow forests while their held-out losses fall; return the mean after every few rounds."""
        fits, most = self.fits, most_rounds(len(self.plan.intercept))
        n_rounds = min(_FIRST_ROUNDS, most)
        curves = [
            HeldOutLoss(self.plan.loss, forest, rows) for forest, rows in zip(forests, held_out)
        ]
        while True:
            n_steps = len(curves) * (n_rounds // STEP)
            fits.watch.expect(NAME, NAME, 0, n_steps)
            with fits.watch.step(NAME, NAME, n_steps) as step:
                tell = partial(step.epoch, held_out=True)
                fits.pool.run(lambda one: one.grow(n_rounds, tell, self.is_over), curves)  # noqa: B023
            length = min(len(one.losses) for one in curves)  # they differ at the deadline
            mean = np.mean([one.losses[:length] for one in curves], axis=0)
            before = mean[: -(n_rounds // STEP)].min(initial=np.inf)
            enough = len(mean) > n_rounds // STEP and not (
                before - mean.min() > _LEAST_GAIN * abs(before)
            )
            done = len(mean) * STEP
            if enough or done >= most or self.is_over():
                return mean
            n_rounds = min(ceil(done / (2 * STEP)) * STEP, most - done)

    def limit_time(self) -> None:
        """Set when trees end, where the fit has a deadline: others may begin after them."""
        end, now = self.fits.deadline, time.perf_counter()
        if end is not None and np.isfinite(end):
            self.end = now + _TIME_SHARE * (end - now)

    def is_over(self) -> bool:
        """Tell whether the time of trees is over; a thread of a fit that was stopped ends here."""
        return self.fits.is_over() or time.perf_counter() >= self.end

    def finish(self, kinds: Collection[str]) -> None:
        """Grow trees with all rows, if they have a share: nothing need be held out any more."""
        fits = self.fits
        if NAME not in kinds or fits.fold_of is None or fits.out_of_time:
            return
        [trees] = fits.pool.run(self.grow_fully, [self.n_rounds])
        if trees is not None:
            for own in self.members:
                self.finished[NAME, own.number] = self.member(own.number, trees, None)

    def grow_fully(self, n_rounds: int) -> Trees | None:
        """Return trees of all rows; None if time is over before the last round."""
        fits, n_steps = self.fits, n_rounds // STEP
        forest = self.forest(fits.rows, 0)
        fits.watch.expect(NAME, NAME, 0, n_steps)
        with fits.watch.step(NAME, NAME, n_steps) as step:
            for _ in range(n_steps):
                if not forest.grow(STEP, fits.is_over):
                    return None
                step.epoch(np.nan, held_out=True)
        return forest.first(n_rounds)

    def groups(self) -> list[list[Member]]:
        """Return the members whose share is to be found."""
        return [self.members] if self.members else []

    def member(self, number: int, trees: Trees, held_out: CodedRows | None) -> Member:
        """Return trees as a member, beside a smooth part of no weight."""
        maps, base = self.fits.member_maps(number), self.plan.intercept
        factors = [np.zeros((m.dim, 1)) for m in maps]
        cores = CPCores(factors, np.zeros((1, len(base))), base, trees=trees)
        raw = None
        if held_out is not None:
            raw = np.tile(base, (len(held_out), 1))
            trees.add_to(raw, held_out.columns)
        return Member(maps, Solution(cores, held_out=raw), 0.0, number, NAME)
