"""The closed forms of a model with smooth terms and trees.

What is linear in the model, such as effects and Shapley values, is the sum of both parts. A
variance has also twice the covariance of the parts: for a smooth term r and a leaf s it is made of
E[g_nr 1_ns], which the second moments of hats and bins give exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy import sparse

from polyadic.data.marginals import Marginal, bin_shares
from polyadic.explain.cp import CPReading
from polyadic.explain.leaves import LeafReading, SetNumbers, Variances
from polyadic.explain.reading import Asked, ColumnSet, Reading
from polyadic.kernels.variances import Smooth
from polyadic.maps import Step
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel, explained_maps, threads_of


class JoinedReading(Reading):
    """Closed forms of a CP model that has trees.

    The maps of its columns hold the elements of the smooth terms, then the bins of the trees.
    """

    def __init__(self, model: FittedModel, cores: CPCores, marginals: list[Marginal]):
        super().__init__(model, marginals, explained_maps(model.maps_, cores))
        assert cores.trees is not None
        self.widths = [1 + m.dim for m in model.maps_]  # of a design of the smooth part
        parts = [first_part(own, width) for own, width in zip(marginals, self.widths)]
        self.smooth = CPReading(model, cores, parts)
        shares = [bin_shares(own, m) for own, m in zip(marginals, model.maps_)]
        self.trees = LeafReading(cores.trees, cores.n_outputs, shares)
        self.n_jobs = threads_of(model)
        self._found: Variances | None = None

    def jumps(self, n: int) -> np.ndarray:
        """Return the edges of column n that trees split at."""
        trees = self.trees.trees
        own = trees.maps[n]
        if not isinstance(own, Step):
            return np.zeros(0)
        at = np.unique(trees.nodes.place[trees.nodes.column == n]) - 1
        return own.edges_[at[at < len(own.edges_)]]

    def base(self) -> np.ndarray:
        """Return the mean of both parts, (L,)."""
        return self.smooth.base() + self.trees.base()

    def partial(
        self,
        term: ColumnSet,
        designs: Sequence[sparse.csr_array],
        pure: bool = False,
        rows: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Add both parts."""
        smooth, bins = self._divide(term, designs)
        background = None if rows is None else self.trees.trees.bins(rows)
        out = self.smooth.partial(term, smooth, pure, rows)
        return out + self.trees.partial(term, bins, pure, background)

    def along(self, rows: Sequence[np.ndarray], asked: Sequence[Asked]) -> Iterator[np.ndarray]:
        """Add both parts."""
        parts = [(term, *self._divide(term, designs)) for term, designs in asked]
        smooth = self.smooth.along(rows, [(term, designs) for term, designs, _ in parts])
        bins = self.trees.trees.bins(rows)
        for out, (term, _, points) in zip(smooth, parts):
            yield self.trees.add_along(bins, term, points, out)

    def _divide(
        self, term: ColumnSet, designs: Sequence[sparse.csr_array]
    ) -> tuple[list[sparse.csr_array], list[np.ndarray]]:
        """Return the designs of the smooth part, and the bins of the trees."""
        pairs = [(phi, self.widths[n]) for phi, n in zip(designs, term)]
        return [phi[:, :w] for phi, w in pairs], [_bins(phi[:, w:]) for phi, w in pairs]

    # ---- variances ------------------------------------------------------------------------------

    def variances(self, max_order: int) -> Iterator[tuple[ColumnSet, float]]:
        """Yield the variances of the smooth part, with what the trees add to them."""
        numbers = SetNumbers(self.n_columns, max_order)
        added = dict(zip(numbers.sets(), self._variances(max_order).sets.tolist()))
        for term, variance in self.smooth.variances(max_order):
            yield term, max(variance + added[term], 0.0)

    def total_variance(self) -> float:
        """Return the variance over all orders, summed over the outputs."""
        return float(self.order_variances().sum())

    def column_variances(self) -> np.ndarray:
        """Return the variance of all terms that a column has a part in, (N,)."""
        return np.maximum(self.smooth.column_variances() + self._variances(1).totals, 0.0)

    def order_variances(self) -> np.ndarray:
        """Return the variance of all terms of order 1, 2, ..., N, (N,)."""
        return np.maximum(self.smooth.order_variances() + self._variances(1).orders, 0.0)

    def _variances(self, max_order: int) -> Variances:
        """Return what the trees add to the variances, for sets of `max_order` columns or more."""
        if self._found is None or len(self._found.sets) < len(
            SetNumbers(self.n_columns, max_order)
        ):
            self._found = self._find_variances(max_order)
        return self._found

    def _find_variances(self, max_order: int) -> Variances:
        """Return what the trees add to the variances: their own, and twice the covariances."""
        numbers = SetNumbers(self.n_columns, max_order)
        found = self.trees.variances(numbers, self.n_jobs)
        if np.any(self.smooth.moments.weights):
            found += self.trees.covariances(self._smooth_terms(), numbers, self.n_jobs)
        if self.smooth.moments.has_additive:
            main = self._additive_covariances()
            found.sets[: self.n_columns] += main
            found.totals[:] += main
            found.orders[0] += main.sum()
        return found

    def _joint(self, n: int) -> np.ndarray:
        """Return the mean of the functions of column n in each bin, (number of bins, R + E)."""
        width, column = self.widths[n], self.smooth.moments.columns[n]
        inside = self.marginals[n].second[width:, :width] @ column.core
        return np.vstack([column.mean - inside.sum(axis=0), inside])

    def _smooth_terms(self) -> Smooth:
        """Return the smooth terms and their moments with the bins, for the kernel."""
        moments, leaves = self.smooth.moments, self.trees.leaves
        joint = [self._joint(n)[:, : moments.rank] for n in range(self.n_columns)]
        zero = np.zeros((1, moments.rank))
        cumulated = [np.cumsum(np.vstack([zero, own[1:]]), axis=0) for own in joint]
        by_set = np.flatnonzero(leaves.high < 0)
        sets = np.zeros((len(leaves.sets), moments.rank))
        for n in np.unique(leaves.column[by_set]):
            own = np.unique(leaves.low[by_set[leaves.column[by_set] == n]])
            sets[own] = leaves.sets[own, 1 : len(joint[n])].astype(float) @ joint[n][1:]
        return Smooth(
            weights=np.ascontiguousarray(moments.weights.T),
            means=moments.means(),
            cumulated=np.concatenate(cumulated),
            missing=np.array([own[0] for own in joint]),
            sets=sets,
            rest=np.empty(moments.rank),
        )

    def _additive_covariances(self) -> np.ndarray:
        """Return twice the covariance of the additive part and the trees' main effects, (N,)."""
        rank, out = self.smooth.moments.rank, []
        for n in range(self.n_columns):
            out.append(2.0 * np.sum(self._joint(n)[:, rank:] * self.trees.main_effects(n)))
        return np.array(out)

    # ---- Shapley values -------------------------------------------------------------------------

    def shapley(
        self,
        rows: Sequence[np.ndarray],
        background: Sequence[np.ndarray] | None,
        n_jobs: int | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add both parts."""
        values, base = self.smooth.shapley(rows, background, n_jobs)
        bins, others = self._bins(rows, background)
        values += self.trees.shapley(bins, others, n_jobs)
        return values, base + self.trees._rest((), others) @ self.trees.weights

    def shapley_pairs(
        self,
        rows: Sequence[np.ndarray],
        background: Sequence[np.ndarray] | None,
        n_jobs: int | None,
    ) -> np.ndarray:
        """Add both parts."""
        out = self.smooth.shapley_pairs(rows, background, n_jobs)
        out += self.trees.shapley_pairs(*self._bins(rows, background), n_jobs)
        return out

    def _bins(
        self, rows: Sequence[np.ndarray], background: Sequence[np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        trees = self.trees.trees
        return trees.bins(rows), None if background is None else trees.bins(background)


def first_part(marginal: Marginal, width: int) -> Marginal:
    """Return the marginal of the first features of a design alone."""
    return Marginal(
        marginal.mean[:width],
        sparse.csr_array(marginal.second[:width, :width]),
        marginal.quantiles,
        marginal.shares,
        marginal.missing,
        marginal.weight,
    )


def _bins(design: sparse.csr_array) -> np.ndarray:
    """Return the bin of each row of a design that has at most one entry per row; 0 for none."""
    out = np.zeros(design.shape[0], np.int32)
    entries = sparse.coo_array(design)
    out[entries.row[entries.data > 0]] = entries.col[entries.data > 0] + 1
    return out
