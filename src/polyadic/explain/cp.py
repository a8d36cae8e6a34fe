"""The closed forms of a CP model.

With mean mu_n and covariance V_n of the functions g_n (`polyadic.explain.moments`), the pure term
of a set S of columns has the variance

    sum_{r,s} C_r C_s prod_{n in S} V_n[r, s] prod_{n not in S} mu_nr mu_ns,

exactly: no sampling, no grid. Variances of several outputs are added. The additive part has main
effects only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse

from polyadic.data.features import encode
from polyadic.data.marginals import Marginal, design
from polyadic.explain.moments import measure
from polyadic.explain.reading import Asked, ColumnSet, Reading, outer, quadrature
from polyadic.kernels import shapley as kernel
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel

# Chosen by hand:
_BLOCK = 4_000_000  # numbers (float64) of intermediate results that are in memory at a time
_BACKGROUND_ROWS = 16384  # that are multiplied at a time
_CHUNK = 64  # rows that a thread explains at a time
_MOST_SET_COLUMNS = 12  # columns up to which all 2^N sets may be tabulated


class CPReading(Reading):
    """A CP model together with the marginals of its columns."""

    def __init__(self, model: FittedModel, cores: CPCores, marginals: list[Marginal]):
        super().__init__(model, marginals)
        self.moments = measure(cores, self.maps, marginals)

    def base(self) -> np.ndarray:
        """Return b + sum_n E u_n + sum_r C_r prod_n mu_nr."""
        moments = self.moments
        return moments.constant() + np.prod(moments.means(), axis=0) @ moments.weights

    def partial(
        self,
        term: ColumnSet,
        designs: Sequence[sparse.csr_array],
        pure: bool = False,
        rows: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Use the means of all other columns: they enter as C_r prod_{n not in S} mu_nr."""
        moments, rank = self.moments, self.moments.rank
        cores = [moments.columns[n].centred() if pure else moments.columns[n].core for n in term]
        parts = [phi @ core for phi, core in zip(designs, cores)]
        out = outer([p[:, :rank] for p in parts], self._rest(term, rows))
        if not pure:
            out = out + self._constant(term, rows)
        if moments.has_additive and (not pure or len(term) == 1):
            for axis, part in enumerate(parts):
                shape = [-1 if i == axis else 1 for i in range(len(term))]
                out = out + part[:, rank:].reshape(*shape, out.shape[-1])
        return out

    def _rest(self, term: ColumnSet, rows: Sequence[np.ndarray] | None) -> np.ndarray:
        """Return C_rl times the mean of prod_{n not in S} g_nr, (R, L)."""
        others = [n for n in range(self.n_columns) if n not in term]
        if rows is None:
            mean = np.prod(self.moments.means()[others], axis=0)
        else:
            mean = np.zeros(self.moments.rank)
            for some in _slices(len(rows[0]), _BACKGROUND_ROWS):
                product = np.ones((len(rows[0][some]), self.moments.rank))
                for n in others:
                    product *= design(self.maps[n], rows[n][some]) @ self._factor(n)
                mean += product.sum(axis=0) / len(rows[0])
        return self.moments.weights * mean[:, None]

    def _factor(self, n: int) -> np.ndarray:
        return self.moments.columns[n].core[:, : self.moments.rank]

    def _constant(self, term: ColumnSet, rows: Sequence[np.ndarray] | None) -> np.ndarray:
        """Return the intercept and the mean of the additive part of all other columns, (L,)."""
        moments, out = self.moments, self.moments.intercept
        if moments.has_additive:
            for n, column in enumerate(moments.columns):
                if n in term:
                    continue
                if rows is None:
                    out = out + column.mean[moments.rank :]
                else:
                    part = design(self.maps[n], rows[n]) @ column.core[:, moments.rank :]
                    out = out + part.mean(axis=0)
        return out

    def along(self, rows: Sequence[np.ndarray], asked: Sequence[Asked]) -> Iterator[np.ndarray]:
        """Multiply the functions of the other columns at the rows, and of a term at its points."""
        moments, rank = self.moments, self.moments.rank
        cores = [column.core for column in moments.columns]
        each = [design(m, x) @ core for m, x, core in zip(self.maps, rows, cores)]
        for term, designs in asked:
            others = [part for n, part in enumerate(each) if n not in term]
            here = [phi @ cores[n] for phi, n in zip(designs, term)]
            rest = _multiply([p[:, :rank] for p in others], (len(rows[0]), rank))
            points = _multiply([p[:, :rank] for p in here], (len(here[0]) if here else 1, rank))
            out = outer([rest, points], moments.weights) + moments.intercept
            if moments.has_additive:
                out += sum(part[:, None, rank:] for part in others)
                out += sum(part[None, :, rank:] for part in here)
            yield out

    # ---- variances ------------------------------------------------------------------------------

    def variances(self, max_order: int) -> Iterator[tuple[ColumnSet, float]]:
        """Extend each set column by column, and the product of its covariances with it.

        The means of the columns outside the set are multiplied from the left and from the right,
        without a division.
        """
        moments, n_columns = self.moments, self.n_columns
        means, covariances = moments.means()[:, :, None], moments.covariances()
        right = [np.ones((moments.rank, 1))]
        for mean in means[::-1]:
            right.append(right[-1] * mean)
        right, additive = right[::-1], self._additive_variances()

        def visit(start, kept, product, chosen):
            for n in range(start, n_columns):
                here = covariances[n] if product is None else product * covariances[n]
                slope = kept * right[n + 1]  # (R, L)
                variance = float(np.sum(slope * (here @ slope)))
                if not chosen:
                    variance += additive[n]
                yield (*chosen, n), max(variance, 0.0)  # rounding may go below zero
                if len(chosen) + 1 < max_order:
                    yield from visit(n + 1, kept, here, (*chosen, n))
                kept = kept * means[n]

        return visit(0, moments.weights, None, ())

    def total_variance(self) -> float:
        """Return sum_{r,s} C_r C_s (prod_n (mu_nr mu_ns + V_n[r, s]) - prod_n mu_nr mu_ns).

        As a telescoping sum, which subtracts no two large numbers.
        """
        total = 0.0
        for level, squares, covariances in self._blocks(2):
            variance = np.zeros_like(level)
            for square, covariance in zip(squares, covariances):
                variance = variance * (square + covariance) + level * covariance
                level = level * square
            total += variance.sum()
        return max(float(total + self._additive_variances().sum()), 0.0)

    def column_variances(self) -> np.ndarray:
        """Return sum_{r,s} C_r C_s V_n[r, s] prod_{m != n} (mu_mr mu_ms + V_m[r, s]), (N,)."""
        out = self._additive_variances()
        for level, squares, covariances in self._blocks(self.n_columns + 2):
            second = [square + covariance for square, covariance in zip(squares, covariances)]
            right = [np.ones_like(level)]
            for matrix in second[:0:-1]:
                right.append(right[-1] * matrix)
            left = level
            for n, (covariance, rest) in enumerate(zip(covariances, right[::-1])):
                out[n] += np.sum(left * covariance * rest)
                left = left * second[n]
        return np.maximum(out, 0.0)

    def order_variances(self) -> np.ndarray:
        """Return the coefficients in z of sum_{r,s} C_r C_s prod_n (mu_nr mu_ns + z V_n[r, s])."""
        n_columns = self.n_columns
        out = np.zeros(n_columns + 1)
        for level, squares, covariances in self._blocks(n_columns + 1):
            polynomial = np.zeros((n_columns + 1, *level.shape))
            polynomial[0] = level
            for n, (square, covariance) in enumerate(zip(squares, covariances)):
                for k in range(n + 1, 0, -1):  # from high to low: in place
                    polynomial[k] *= square
                    polynomial[k] += polynomial[k - 1] * covariance
                polynomial[0] *= square
            out += polynomial.sum(axis=(1, 2))
        out[1] += self._additive_variances().sum()
        return np.maximum(out[1:], 0.0)

    def _blocks(
        self, n_kept: int
    ) -> Iterator[tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]]:
        """Yield C C', mu_n mu_n' and V_n for some terms r at a time, against all terms s."""
        weights, means = self.moments.weights, self.moments.means()
        covariances, rank = self.moments.covariances(), self.moments.rank
        step = max(1, _BLOCK // (rank * n_kept))
        for start in range(0, rank, step):
            some = slice(start, start + step)
            squares = [np.outer(mean[some], mean) for mean in means]
            yield weights[some] @ weights.T, squares, [v[some] for v in covariances]

    def _additive_variances(self) -> np.ndarray:
        """Return what the additive part adds to the variance of each main effect, (N,).

        That is sum_l Var(u_nl) + 2 Cov(u_nl, h_nl), with h_n the main effect of the CP part. Terms
        of higher order have no additive part.
        """
        moments, rank = self.moments, self.moments.rank
        if not moments.has_additive:
            return np.zeros(self.n_columns)
        out = []
        for column, slope in zip(moments.columns, moments.others()):
            own = np.trace(column.covariance[rank:, rank:])
            cross = np.sum(slope * column.covariance[:rank, rank:])
            out.append(own + 2.0 * cross)
        return np.array(out)

    # ---- Shapley values -------------------------------------------------------------------------

    def shapley(
        self,
        rows: Sequence[np.ndarray],
        background: Sequence[np.ndarray] | None,
        n_jobs: int | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run the kernel over chunks of rows; add the additive part less its mean."""
        inputs = _KernelInputs(self, background)
        out = np.empty((len(rows[0]), self.n_columns, len(self.moments.intercept)))
        if inputs.prefers_sets(out):
            inputs.run(kernel.values_by_sets, rows, inputs.sets(), out, n_jobs, 2**self.n_columns)
        else:
            inputs.integrate(kernel.values, rows, self.n_columns, out, n_jobs)
        base = inputs.products() @ self.moments.weights + self.moments.intercept
        if self.moments.has_additive:
            for n, x in enumerate(rows):
                core = self.moments.columns[n].core[:, self.moments.rank :]
                if background is None:
                    mean = self.marginals[n].mean @ core
                else:
                    mean = (design(self.maps[n], background[n]) @ core).mean(axis=0)
                out[:, n] += design(self.maps[n], x) @ core - mean
                base = base + mean
        return out, base

    def shapley_pairs(
        self,
        rows: Sequence[np.ndarray],
        background: Sequence[np.ndarray] | None,
        n_jobs: int | None,
    ) -> np.ndarray:
        """Run the kernel of pairs; the additive part has no interactions."""
        inputs = _KernelInputs(self, background)
        n_columns, n_outputs = self.n_columns, len(self.moments.intercept)
        out = np.empty((len(rows[0]), n_columns, n_columns, n_outputs))
        return inputs.integrate(kernel.pairs, rows, n_columns - 1, out, n_jobs)


class _KernelInputs:
    """The arguments of the Shapley kernels: the cores of all columns in one table, backgrounds."""

    def __init__(self, reading: CPReading, background: Sequence[np.ndarray] | None):
        self.maps, self.weights = reading.maps, reading.moments.weights
        cores = [reading._factor(n) for n in range(reading.n_columns)]
        self.table = np.vstack(cores)
        ends = np.cumsum([len(core) for core in cores])
        self.first = np.concatenate(([0], ends[:-1]))
        self.means, self.background = reading.moments.means(), background
        self.n_backgrounds = 1 if background is None else len(background[0])

    def blocks(self) -> Iterator[tuple[float, np.ndarray]]:
        """Yield backgrounds (B, N, R) that fit into memory, and their share of all."""
        if self.background is None:
            yield 1.0, self.means[None]
            return
        for some in _slices(self.n_backgrounds, max(1, _BLOCK // self.means.size)):
            slots, index, value = self._encode([x[some] for x in self.background])
            out = np.empty((len(index), *self.means.shape))
            kernel.all_parts(self.table, self.first, slots, index, value, out)
            yield len(out) / self.n_backgrounds, out

    def products(self) -> np.ndarray:
        """Return the mean over backgrounds of prod_n mu_nr, (R,)."""
        return sum(share * np.prod(b, axis=1).mean(axis=0) for share, b in self.blocks())

    def prefers_sets(self, out: np.ndarray) -> bool:
        """Tell whether all sets of columns take less time than an integral per background."""
        n_rows, n_columns, n_outputs = out.shape
        if n_columns > _MOST_SET_COLUMNS:
            return False
        by_sets = 2**n_columns * (self.n_backgrounds + n_rows * (1 + n_outputs))
        return by_sets < n_rows * self.n_backgrounds * n_columns**2

    def sets(self) -> tuple[np.ndarray, ...]:
        """Return the arguments of the kernel that sums over all sets of columns."""
        n_columns, rank = self.means.shape
        rest, part = np.zeros((rank, 2**n_columns)), np.empty((rank, 2**n_columns))
        product = np.empty(2**n_columns)
        for share, backgrounds in self.blocks():
            kernel.complements(backgrounds, product, part)
            rest += share * part
        sizes = [chosen.bit_count() for chosen in range(2**n_columns)]
        # No column is left to join the set of all columns.
        each = [1.0 / (n_columns * math.comb(n_columns - 1, k)) for k in range(n_columns)] + [0.0]
        shares = [each[size] for size in sizes]
        return rest * self.weights.T[:, :, None], np.array(shares)

    def integrate(
        self,
        work: Callable[..., None],
        rows: Sequence[np.ndarray],
        n_factors: int,
        out: np.ndarray,
        n_jobs: int | None,
    ) -> np.ndarray:
        """Fill out : (n, ...) with integrals of products of fewer than `n_factors`, exactly."""
        nodes, weights = quadrature(n_factors - 1)
        total = np.zeros_like(out)
        for share, backgrounds in self.blocks():
            self.run(work, rows, (backgrounds, nodes, weights, self.weights), out, n_jobs)
            total += share * out
        out[:] = total
        return out

    def run(
        self,
        work: Callable[..., None],
        rows: Sequence[np.ndarray],
        arguments: tuple[np.ndarray, ...],
        out: np.ndarray,
        n_jobs: int | None,
        n_sets: int = 0,
    ) -> np.ndarray:
        """Fill out : (n, ...) a chunk of rows at a time, the same bits for any `n_jobs`."""

        def explain(start: int) -> None:
            some = slice(start, start + _CHUNK)
            encoded = self._encode([x[some] for x in rows])
            workspace = kernel.Workspace.make(len(self.means), self.means.shape[1], n_sets)
            work(self.table, self.first, *encoded, *arguments, workspace, out[some])

        starts = range(0, len(out), _CHUNK)
        if len(starts) == 1:  # starting threads takes longer than a few rows
            explain(0)
            return out
        with ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:
            list(pool.map(explain, starts))
        return out

    def _encode(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return slots, index and value; an index is a row of the table."""
        coded = encode(self.maps, rows)
        layout = coded.layout
        # Every core in the table starts with a row for the constant.
        shift = self.first + 1 - layout.first
        widths = np.diff(layout.slots)
        return layout.slots, coded.index + np.repeat(shift, widths).astype(np.int32), coded.value


def _multiply(parts: Sequence[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Return the product of functions, (n, R); ones if there are none."""
    out = np.ones(shape)
    for part in parts:
        out *= part
    return out


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, length, step))
