"""The closed forms of trees: a leaf is a term that depends on the few columns of its path.

With mu_rn the share of the rows that meet the condition of leaf r on column n, and V_n[r, s] the
share that meets both of two conditions less mu_rn mu_sn, the forms of a CP hold unchanged. A column
that is not on the path has g = mu = 1 and drops out, so everything is a sum over short paths.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from polyadic.explain.reading import ColumnSet, outer, quadrature
from polyadic.kernels import leaves as kernel
from polyadic.kernels.variances import (
    ByPlace,
    Numbering,
    Pairing,
    Smooth,
    cross_variances,
    pair_variances,
)
from polyadic.networks.trees import Leaves, Trees

# Chosen by hand: rows per call of a kernel; numbers in a block of tables, which stays in the cache
# of a core; parts into which pairs of leaves are divided, fixed so that sums do not depend on
# n_jobs; numbers in a block of indicators.
_CHUNK, _TABLE, _PARTS, _BLOCK = 512, 1 << 15, 32, 2_000_000
# A leaf with more conditions than this has no table of patterns, whose size doubles with each.
_LONGEST = 10
_SPACE = "mean", "step", "before"  # of an integral
# Pairs of leaves that variances are computed from: 10 billion take minutes. Chosen by hand.
_MOST_PAIRS = 10_000_000_000
_MOST_SET_PAIRS = 200_000_000  # of sets of a column: 1.6 GB; chosen by hand


class Variances(NamedTuple):
    """Variances of pure terms, summed over outputs: by order, by column, and by set of columns."""

    orders: np.ndarray
    totals: np.ndarray
    sets: np.ndarray

    def __add__(self, other: Variances) -> Variances:  # type: ignore[override]
        return Variances(*(a + b for a, b in zip(self, other)))


@dataclass(frozen=True)
class SetNumbers:
    """The places of all sets of up to `max_order` of N columns, in one array."""

    n_columns: int
    max_order: int

    def __len__(self) -> int:
        return sum(math.comb(self.n_columns, k) for k in range(1, self.max_order + 1))

    def numbering(self) -> Numbering:
        """Return them for the kernels."""
        orders = range(1, self.max_order + 1)
        sizes = [math.comb(self.n_columns, k) for k in orders]
        choose = [[math.comb(c, k) for k in (0, *orders)] for c in range(self.n_columns)]
        start = np.cumsum([0, *sizes])[: self.max_order]
        return Numbering(start, np.array(choose, np.int64).reshape(self.n_columns, -1))

    def sets(self) -> Iterator[ColumnSet]:
        """Yield the sets in the order of their places."""
        for order in range(1, self.max_order + 1):
            found = itertools.combinations(range(self.n_columns), order)
            yield from sorted(found, key=lambda term: term[::-1])


class LeafReading:
    """Closed forms of trees over the product of the columns' marginals.

    Parameters
    ----------
    trees : Trees
    n_outputs : int
    shares : list of N arrays, (number of bins,)
        The share of the rows in each bin, that of missing values first.
    """

    def __init__(self, trees: Trees, n_outputs: int, shares: Sequence[np.ndarray]):
        self.trees, self.leaves, self.n_outputs = trees, trees.leaves, n_outputs
        self.shares = shares
        leaves = self.leaves
        self.terms = kernel.Terms(*(getattr(leaves, f.name) for f in fields(leaves)))
        self.mass = _mass(leaves, shares)
        self.means = np.empty(len(leaves.column))
        kernel.condition_means(self.terms, self.mass, self.means)

    @property
    def n_columns(self) -> int:
        """Number of columns N."""
        return len(self.shares)

    @cached_property
    def pair_mass(self) -> kernel.Mass:
        """The marginals, with those of pairs of sets."""
        return _with_pairs(self.mass, self.leaves, self.shares)

    @cached_property
    def weights(self) -> np.ndarray:
        """The output matrix C, (R, L)."""
        return self.leaves.weights(self.n_outputs)

    def base(self) -> np.ndarray:
        """Return sum_r C_r prod_n mu_nr, (L,)."""
        return self._rest((), None) @ self.weights

    def partial(
        self,
        term: ColumnSet,
        bins: Sequence[np.ndarray],
        pure: bool = False,
        background: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the mean prediction where columns have these bins, (k_1, ..., k_m, L).

        The mean is over the marginals of the other columns or over the bins of rows, (N, n).
        """
        rest, weights = self._rest(term, background), self.weights
        out = np.zeros((*(len(b) for b in bins), self.n_outputs))
        step = max(1, _BLOCK // sum(len(b) for b in bins))
        for start in range(0, len(self.leaves), step):
            some = slice(start, start + step)
            parts = [self.leaves.indicators(n, b, some) for n, b in zip(term, bins)]
            if pure:
                parts = [part - self._column_means(n)[some] for n, part in zip(term, parts)]
            out += outer(parts, weights[some] * rest[some, None])
        return out

    def add_along(
        self, rows: np.ndarray, term: ColumnSet, points: Sequence[np.ndarray], out: np.ndarray
    ) -> np.ndarray:
        """Add the trees to out : (n, k, L), at bins of rows (N, n) with a term at k points."""
        skipped = np.zeros(self.n_columns, np.uint8)
        skipped[list(term)] = 1
        found = np.zeros((out.shape[0], self.n_outputs, out.shape[1]))
        step = max(1, _BLOCK // out.shape[1])
        for start in range(0, len(self.leaves), step):
            some = slice(start, min(start + step, len(self.leaves)))
            inside = np.ones((out.shape[1], some.stop - start))
            for n, bins in zip(term, points):
                inside *= self.leaves.indicators(n, bins, some)
            kernel.add_along(
                self.terms, start, np.ascontiguousarray(inside.T), skipped, rows, found
            )
        out += np.swapaxes(found, 1, 2)
        return out

    def _rest(self, term: ColumnSet, background: np.ndarray | None) -> np.ndarray:
        """Return the mean of prod_{n not in S} g_nr, (R,)."""
        skipped = np.zeros(self.n_columns, np.uint8)
        skipped[list(term)] = 1
        out = np.empty(len(self.leaves))
        if background is None:
            kernel.leaf_means(self.terms, self.means, skipped, out)
        else:
            inside = np.empty(background.shape[1])
            kernel.means_of_rows(self.terms, skipped, background, inside, out)
        return out

    def _column_means(self, n: int) -> np.ndarray:
        """Return mu_rn, (R,); one for a leaf without a condition on column n."""
        others = np.ones(self.n_columns, np.uint8)
        others[n] = 0
        out = np.empty(len(self.leaves))
        kernel.leaf_means(self.terms, self.means, others, out)
        return out

    def main_effects(self, n: int) -> np.ndarray:
        """Return the pure effect of column n in each of its bins, (number of bins, L)."""
        return self.partial((n,), [np.arange(len(self.shares[n]))], pure=True)

    # ---- variances ------------------------------------------------------------------------------

    def variances(self, numbers: SetNumbers, n_jobs: int | None) -> Variances:
        """Return the variances of all terms of the leaves alone."""
        n_pairs = len(self.leaves) ** 2 // 2
        if n_pairs > _MOST_PAIRS:
            raise ValueError(
                f"The trees have {len(self.leaves):,} leaves, and variances are computed from all "
                f"pairs of them: {n_pairs:,}, and at most {_MOST_PAIRS:,} are allowed. Use fewer "
                "or smaller trees; Shapley values and partial dependence have no such limit."
            )
        sizes = np.diff(self.leaves.groups).astype(float)
        work = sizes * np.cumsum(sizes[::-1])[::-1]  # a group is paired with all from it on
        conditions = _by_place(self.leaves, self.pair_mass, self.means)

        def pair(*args: Any) -> None:
            pair_variances(self.terms, self.pair_mass, conditions, *args)

        return self._by_groups(pair, work, numbers, n_jobs)

    def covariances(self, smooth: Smooth, numbers: SetNumbers, n_jobs: int | None) -> Variances:
        """Return twice the covariances of leaves and smooth terms."""
        work = np.diff(self.leaves.groups).astype(float)

        def pair(*args: Any) -> None:
            own = smooth._replace(rest=np.empty_like(smooth.rest))
            cross_variances(self.terms, self.mass, self.means, own, *args)

        return self._by_groups(pair, work, numbers, n_jobs)

    def _by_groups(
        self,
        pair: Callable[..., None],
        work: np.ndarray,
        numbers: SetNumbers,
        n_jobs: int | None,
    ) -> Variances:
        """Run a kernel over parts of the groups that have about the same work each."""
        n, numbering = self.n_columns, numbers.numbering()
        reached = np.concatenate(([0.0], np.cumsum(work)))
        bounds = np.searchsorted(reached, np.linspace(0, reached[-1], _PARTS + 1)[:-1])
        bounds = np.append(bounds, len(work))

        def one(part: int) -> Variances:
            out = Variances(np.zeros(n), np.zeros(n), np.zeros(len(numbers)))
            pair(bounds[part], bounds[part + 1], numbering, Pairing.make(n), *out)
            return out

        with ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:
            found = list(pool.map(one, range(_PARTS)))
        return sum(found[1:], found[0])

    # ---- Shapley values -------------------------------------------------------------------------

    def shapley(
        self, bins: np.ndarray, background: np.ndarray | None, n_jobs: int | None
    ) -> np.ndarray:
        """Return the Shapley values of rows, (n, N, L); bins : (N, n)."""
        shape = (self.n_outputs, self.n_columns)
        n_tables = lambda depth: depth  # noqa: E731
        out = self._run(kernel.write_tables, shape, n_tables, bins, background, n_jobs)
        return out.transpose(2, 1, 0)

    def shapley_pairs(
        self, bins: np.ndarray, background: np.ndarray | None, n_jobs: int | None
    ) -> np.ndarray:
        """Return the Shapley interaction index of pairs, (n, N, N, L), above the diagonal."""
        shape = (self.n_outputs, self.n_columns, self.n_columns)
        n_tables = lambda depth: depth * (depth - 1) // 2  # noqa: E731
        out = self._run(kernel.write_pair_tables, shape, n_tables, bins, background, n_jobs)
        return out.transpose(3, 1, 2, 0)

    def _run(
        self,
        write: Callable[..., None],
        shape: tuple[int, ...],
        n_tables: Callable[[np.ndarray], np.ndarray],
        bins: np.ndarray,
        background: np.ndarray | None,
        n_jobs: int | None,
    ) -> np.ndarray:
        """Return out : (*shape, n), a chunk of rows at a time, the same bits for any `n_jobs`."""
        backgrounds = np.zeros((self.n_columns, 0), np.int32) if background is None else background
        n_rows = bins.shape[1]
        # A row with a missing value that goes both ways has no pattern.
        mixed = self.trees.rows_both_ways(bins)
        if len(self.trees.rows_both_ways(backgrounds)):
            mixed = np.arange(n_rows)
        plain = np.delete(np.arange(n_rows), mixed)
        longest = _longest_table(len(plain), backgrounds.shape[1])
        long = np.flatnonzero(self.leaves.lengths > longest)
        integral = _integral(int(self.leaves.lengths.max(initial=0)))
        out = np.zeros((*shape, n_rows))

        def add(leaves: np.ndarray, rows: np.ndarray) -> None:
            space = integral._replace(**{name: np.empty_like(integral.mean) for name in _SPACE})
            own, found = np.ascontiguousarray(bins[:, rows]), np.zeros((*shape, len(rows)))
            kernel.integrate(self.terms, leaves, self.means, own, backgrounds, space, found)
            out[..., rows] += found

        with ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:
            chunks = _chunks(plain)
            coded = [np.ascontiguousarray(bins[:, rows]) for rows in chunks]
            sums = [np.zeros((*shape, len(rows))) for rows in chunks]
            for some, at, table in self._blocks(n_tables, write, backgrounds, longest):

                def look(own: np.ndarray, found: np.ndarray) -> None:
                    pattern = np.empty(own.shape[1], np.int32)
                    kernel.look_up(self.terms, some, at, table, own, pattern, found)  # noqa: B023

                list(pool.map(look, coded, sums))
            for rows, found in zip(chunks, sums):
                out[..., rows] = found
            if len(long):
                list(pool.map(lambda rows: add(long, rows), chunks))
            every = np.arange(len(self.leaves))
            list(pool.map(lambda rows: add(every, rows), _chunks(mixed)))
        return out

    def _blocks(
        self,
        n_tables: Callable[[np.ndarray], np.ndarray],
        write: Callable[..., None],
        backgrounds: np.ndarray,
        longest: int,
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield some leaves, where their tables start, and the tables."""
        lengths = self.leaves.lengths
        short = np.flatnonzero((lengths <= longest) & (n_tables(lengths) > 0))
        sizes = n_tables(lengths[short]) << lengths[short]
        ends = np.cumsum(sizes)
        pattern, rest = np.empty(backgrounds.shape[1], np.int32), np.empty(1 << longest)
        shares, start = _order_shares(longest), 0
        while start < len(short):
            before = ends[start] - sizes[start]
            end = max(int(np.searchsorted(ends, before + _TABLE, side="right")), start + 1)
            some, at = short[start:end], ends[start:end] - sizes[start:end] - before
            table = np.empty(ends[end - 1] - before)
            args = (self.terms, some, self.means, backgrounds, shares, pattern, rest, at, table)
            write(*args)
            yield some, at, table
            start = end


def _longest_table(n_rows: int, n_backgrounds: int) -> int:
    """Return the number of conditions up to which a leaf has a table: as for as many patterns.

    A table takes about as long as the integrals of as many rows, each with all background rows.
    """
    work = max(n_rows, 1) * max(n_backgrounds, 1)
    return min(_LONGEST, int(math.log2(4 * work)))


def _chunks(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]


def _order_shares(most: int) -> np.ndarray:
    """Return k! (D - k - 1)! / D! at [D, k]: zero where no column is left to come next."""
    out = np.zeros((most + 1, most + 1))
    for depth in range(1, most + 1):
        for k in range(depth):
            out[depth, k] = 1.0 / (depth * math.comb(depth - 1, k))
    return out


def _integral(longest: int) -> kernel.Integral:
    """Return nodes and weights that are exact for every number of conditions up to `longest`."""
    width = (longest + 1) // 2 + 1
    nodes, weights = np.zeros((2, longest + 1, width))
    for depth in range(1, longest + 1):
        own_nodes, own_weights = quadrature(depth - 1)
        nodes[depth, : len(own_nodes)], weights[depth, : len(own_nodes)] = own_nodes, own_weights
    return kernel.Integral(nodes, weights, *np.empty((3, longest)))


def _mass(leaves: Leaves, shares: Sequence[np.ndarray]) -> kernel.Mass:
    """Return the marginals of the columns for the kernels, without those of pairs of sets."""
    cumulated = [np.concatenate(([0.0], np.cumsum(p[1:]))) for p in shares]
    start = np.cumsum([0, *(len(c) for c in cumulated)])[:-1]
    of_set = np.zeros(len(leaves.sets))
    for n, own, inside in _sets_of_columns(leaves, shares):
        of_set[own] = inside @ shares[n]
    return kernel.Mass(
        cumulated=np.concatenate(cumulated),
        start=start,
        missing=np.array([p[0] for p in shares]),
        of_set=of_set,
        both=np.zeros(0),
        set_start=np.zeros(len(shares), np.int64),
        set_count=np.zeros(len(shares), np.int64),
        set_first=np.zeros(len(shares), np.int64),
    )


def _with_pairs(mass: kernel.Mass, leaves: Leaves, shares: Sequence[np.ndarray]) -> kernel.Mass:
    """Return the marginals with the shares of pairs of sets, which variances need."""
    both: list[np.ndarray] = []
    set_start, set_count, set_first = np.zeros((3, len(shares)), np.int64)
    size = 0
    for n, own, inside in _sets_of_columns(leaves, shares):
        set_start[n], set_first[n], set_count[n] = size, own.start, len(inside)
        size += len(inside) ** 2
        if size > _MOST_SET_PAIRS:
            raise ValueError(
                f"The trees ask for {len(leaves.sets):,} sets of categories, and variances are "
                "computed from all pairs of the sets of a column: too many for memory. Use fewer "
                "trees; Shapley values and partial dependence have no such limit."
            )
        both.append(((inside * shares[n]) @ inside.T).ravel())
    return mass._replace(
        both=np.concatenate(both) if both else np.zeros(0),
        set_start=set_start,
        set_count=set_count,
        set_first=set_first,
    )


def _by_place(leaves: Leaves, mass: kernel.Mass, means: np.ndarray) -> ByPlace:
    """Return the conditions, sorted by group, place on the path, and leaf."""
    own, lengths = np.repeat(np.arange(len(leaves)), leaves.lengths), leaves.lengths
    group = np.searchsorted(leaves.groups, own, side="right")
    place = np.arange(len(own)) - np.repeat(leaves.first[:-1], lengths)
    order = np.lexsort((own, place, group))
    column, low, high = (a[order] for a in (leaves.column, leaves.low, leaves.high))
    by_set, start = high < 0, mass.start[column]
    return ByPlace(
        low=mass.cumulated[start + np.where(by_set, 1, low) - 1],
        high=mass.cumulated[start + np.maximum(high, 0)],
        missing=leaves.missing[order],
        mean=means[order],
        number=np.where(by_set, low - mass.set_first[column], -1).astype(np.int64),
    )


def _sets_of_columns(
    leaves: Leaves, shares: Sequence[np.ndarray]
) -> Iterator[tuple[int, slice, np.ndarray]]:
    """Yield the columns with sets, the numbers of these, and their bins but that of missing."""
    by_set = leaves.high < 0
    for n in np.unique(leaves.column[by_set]):
        own = np.unique(leaves.low[by_set & (leaves.column == n)])
        numbers = slice(int(own[0]), int(own[-1]) + 1)
        inside = leaves.sets[numbers, : len(shares[n])].astype(float)
        inside[:, 0] = 0.0
        yield int(n), numbers, inside
