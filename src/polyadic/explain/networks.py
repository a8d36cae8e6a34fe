"""The closed forms of a tensor network of any format.

A network is linear in the part phi_n(x_n)' core_n of every column. So averaging over a column means
replacing its part by the mean part, and the variance of the pure term of a set S of columns is
<W, W> (`Format.order_norm`) of a network in which the core of column n is

    a square root of the covariance of the part, for n in S,        its mean, for n not in S,

exactly: no sampling, no grid. Variances of several outputs are added. A factorization machine is
written as a Tensor Train first (`Format.as_network`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy import sparse

from polyadic.data.marginals import Marginal, design, full_core
from polyadic.explain.reading import Asked, ColumnSet, Reading, quadrature
from polyadic.networks.base import Format
from polyadic.networks.cores import NetworkCores
from polyadic.training.model import FittedModel

_MOST_NUMBERS = 4_000_000  # (float64) that a contraction has in memory at a time; chosen by hand


class NetworkReading(Reading):
    """A network together with the marginals of its columns.

    Shapes: parts (n, N, K) as in `polyadic.networks.base`.
    """

    def __init__(self, model: FittedModel, tensor: NetworkCores, marginals: list[Marginal]):
        super().__init__(model, marginals)
        self.form = tensor.format
        self.intercept = np.asarray(tensor.intercept, dtype=np.float64)
        self.cores, self.extras = weighed(
            tensor, [full_core(*c) for c in zip(self.maps, tensor.factors)]
        )
        self.means = np.array([m.mean @ core for m, core in zip(marginals, self.cores)])  # (N, K)
        self.network, self.ends, self.lift = self.form.as_network(self.extras)

    def base(self) -> np.ndarray:
        """Contract the mean parts of all columns."""
        return self.intercept + self.form.contract(self.means[None], self.extras)[0]

    def partial(
        self,
        term: ColumnSet,
        designs: Sequence[sparse.csr_array],
        pure: bool = False,
        rows: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Use the mean parts of all other columns; for a pure term, subtract those of its own."""
        parts = [phi @ self.cores[n] for phi, n in zip(designs, term)]
        if pure:
            lifted = [self._lift_difference(p - self.means[n]) for p, n in zip(parts, term)]
        else:
            lifted = [self.lift(p) for p in parts]
        if rows is None:
            others: Iterable[np.ndarray] = [self.lift(self.means)[None]]
        else:
            step = block_size(self.network)
            others = (
                self.lift(self._parts(rows, i, i + step)) for i in range(0, len(rows[0]), step)
            )
        out = contract_grid(self.network, self.ends, others, term, lifted)
        return out if pure else out + self.intercept

    def along(self, rows: Sequence[np.ndarray], asked: Sequence[Asked]) -> Iterator[np.ndarray]:
        """Contract every row with every point."""
        each = self._parts(rows, 0, len(rows[0]))
        for term, designs in asked:
            points = [phi @ self.cores[n] for phi, n in zip(designs, term)]
            out = np.empty((len(each), len(points[0]) if points else 1, len(self.intercept)))
            for k in range(out.shape[1]):
                here = each.copy()
                for n, part in zip(term, points):
                    here[:, n] = part[k]
                out[:, k] = self.intercept + self.form.contract(here, self.extras)
            yield out

    def _parts(self, rows: Sequence[np.ndarray], start: int, stop: int) -> np.ndarray:
        """Return the parts of some coded rows, (n, N, K)."""
        pieces = zip(self.maps, rows, self.cores)
        return np.stack([design(m, x[start:stop]) @ core for m, x, core in pieces], axis=1)

    def _lift_difference(self, parts: np.ndarray) -> np.ndarray:
        """Return a difference of parts as `network` takes it."""
        return self.lift(parts) - self.lift(np.zeros_like(parts))

    # ---- variances ------------------------------------------------------------------------------

    @cached_property
    def _mean_cores(self) -> list[np.ndarray]:
        """Cores of a single element, the mean part, N arrays (1, K)."""
        return [self.lift(mean)[None] for mean in self.means]

    @cached_property
    def _spread_cores(self) -> list[np.ndarray]:
        """Cores G with G' G the covariance of the part, N arrays (at most K, K)."""
        out = []
        for core, mean, marginal in zip(self.cores, self.means, self.marginals):
            centred = core.copy()
            centred[0] -= mean
            out.append(self._lift_difference(_square_root(centred.T @ (marginal.second @ centred))))
        return out

    @cached_property
    def _both_cores(self) -> list[np.ndarray]:
        return [np.vstack(pair) for pair in zip(self._mean_cores, self._spread_cores)]

    def _norm(self, cores: Sequence[np.ndarray]) -> complex:
        """Return <W, W> of the network with these cores; nothing is conjugated."""
        value, log_scale = self.network.order_norm(cores, self.ends)
        return value * np.exp(log_scale)

    def _variance(self, cores: Sequence[np.ndarray]) -> float:
        return max(float(self._norm(cores).real), 0.0)  # rounding may go below zero

    def variances(self, max_order: int) -> Iterator[tuple[ColumnSet, float]]:
        """Use spread cores for the columns of a set, and mean cores for all others."""
        for order in range(1, max_order + 1):
            for term in combinations(range(self.n_columns), order):
                cores = list(self._mean_cores)
                for n in term:
                    cores[n] = self._spread_cores[n]
                yield term, self._variance(cores)

    def total_variance(self) -> float:
        """Add up, over n, the terms whose last column is n; no two large numbers are subtracted."""
        both, mean = self._both_cores, self._mean_cores
        return sum(
            self._variance([*both[:n], spread, *mean[n + 1 :]])
            for n, spread in enumerate(self._spread_cores)
        )

    def column_variances(self) -> np.ndarray:
        """Use the spread core of one column, and mean and spread of all others."""
        both = self._both_cores
        spreads = enumerate(self._spread_cores)
        return np.array([self._variance([*both[:n], g, *both[n + 1 :]]) for n, g in spreads])

    def order_variances(self) -> np.ndarray:
        """Return the coefficients of <W, W> as a polynomial in z, with z times every covariance.

        Its values at the roots of unity are the Fourier transform of its coefficients; half of the
        roots suffice, as the values at the others are conjugates.
        """
        n_columns = self.n_columns
        values = []
        for k in range((n_columns + 1) // 2 + 1):
            root = np.exp(-1j * np.pi * k / (n_columns + 1))  # the square root of z
            pairs = zip(self._mean_cores, self._spread_cores)
            values.append(self._norm([np.vstack([mean, root * g]) for mean, g in pairs]))
        return np.maximum(np.fft.irfft(values, n_columns + 1)[1:], 0.0)

    # ---- Shapley values -------------------------------------------------------------------------

    def shapley(
        self,
        rows: Sequence[np.ndarray],
        background: Sequence[np.ndarray] | None,
        n_jobs: int | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Integrate the slope in every part along the straight line from background to row.

        Along the line, the slope is a polynomial of degree N - 1 at most: Gauss-Legendre nodes give
        the integral exactly.
        """
        out = np.zeros((len(rows[0]), self.n_columns, len(self.intercept)))
        nodes = list(zip(*quadrature(self._degree - 1)))
        for some, share, start, step in self._lines(rows, background):
            for t, weight in nodes:
                found = self._changes(start + t * step, step)
                out[some] += weight * share * _sum_groups(found, out[some])
        return out, self.base() if background is None else self._mean_raw(background)

    def shapley_pairs(
        self,
        rows: Sequence[np.ndarray],
        background: Sequence[np.ndarray] | None,
        n_jobs: int | None,
    ) -> np.ndarray:
        """Integrate how much a step in one part changes the slopes of all others."""
        n_columns, n_outputs = self.n_columns, len(self.intercept)
        out = np.zeros((len(rows[0]), n_columns, n_columns, n_outputs))
        for some, share, start, step in self._lines(rows, background):
            found = np.zeros((len(start), *out.shape[1:]))
            for t, weight in zip(*quadrature(self._degree - 2)):
                here = start + t * step
                before = self._changes(here, step)
                for n in range(n_columns - 1):
                    moved = here.copy()
                    moved[:, n] += step[:, n]
                    change = self._changes(moved, step) - before
                    found[:, n, n + 1 :] += weight * change[:, n + 1 :]
            out[some] += share * _sum_groups(found, out[some])
        return out

    @property
    def _degree(self) -> int:
        """Largest number of columns in a product."""
        return min(self.n_columns, self.form.order) if self.form.by_order else self.n_columns

    def _lines(
        self, rows: Sequence[np.ndarray], background: Sequence[np.ndarray] | None
    ) -> Iterator[tuple[slice, float, np.ndarray, np.ndarray]]:
        """Yield blocks of lines from backgrounds to rows: rows, share, start and step of the parts.

        Start and step are (rows times backgrounds, N, K), the backgrounds of one row next to each
        other; `share` is the weight of one background.
        """
        most = max(1, block_size(self.form) // 4)  # autograd keeps intermediate results
        n_backgrounds = 1 if background is None else len(background[0])
        several = min(n_backgrounds, max(1, math.isqrt(most)))
        some = max(1, most // several)
        for i in range(0, len(rows[0]), some):
            target = self._parts(rows, i, i + some)
            for j in range(0, n_backgrounds, several):
                if background is None:
                    start = self.means[None]
                else:
                    start = self._parts(background, j, j + several)
                start = np.tile(start, (len(target), 1, 1))
                target_each = np.repeat(target, len(start) // len(target), axis=0)
                yield slice(i, i + some), 1.0 / n_backgrounds, start, target_each - start

    def _changes(self, parts: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Return <df_l / d part_n, step_n> at these parts, (n, N, L), by automatic differentiation.

        As f is affine in every part, this is the change by the whole step in part n.
        """
        import torch

        point = torch.tensor(parts, requires_grad=True)
        raw = self.form.contract(point, [torch.tensor(e) for e in self.extras])
        out = np.empty((*parts.shape[:2], raw.shape[1]))
        for output, total in enumerate(raw.sum(0)):
            slope = torch.autograd.grad(total, point, retain_graph=True)[0].numpy()
            out[:, :, output] = np.einsum("ink,ink->in", slope, step)
        return out

    def _mean_raw(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean prediction over coded rows, (L,)."""
        step, total = block_size(self.form), np.zeros_like(self.intercept)
        for i in range(0, len(rows[0]), step):
            total += self.form.contract(self._parts(rows, i, i + step), self.extras).sum(axis=0)
        return self.intercept + total / len(rows[0])


def weighed(
    tensor: NetworkCores, cores: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Put the scale of the outputs into cores and extras, in double precision.

    cores : N arrays (.., K), the elements of each column, the constant first; it becomes zero where
    the format does not use it.
    """
    cores = [np.array(core, dtype=np.float64) for core in cores]
    if not tensor.format.constants:
        for core in cores:
            core[0] = 0.0
    extras = [np.asarray(extra, dtype=np.float64) for extra in tensor.extras]
    return tensor.format.weigh_outputs(cores, extras, np.diag(tensor.scale).astype(np.float64))


def block_size(form: Format) -> int:
    """Return how many rows to contract at a time."""
    return max(1, _MOST_NUMBERS // max(form.numbers_per_row(), form.n_columns * form.width))


def contract_grid(
    network: Format,
    extras: Sequence[np.ndarray],
    others: Iterable[np.ndarray],
    term: ColumnSet,
    parts: Sequence[np.ndarray],
) -> np.ndarray:
    """Contract with the columns of a term on a grid, (k_1, ..., k_m, L).

    Parameters
    ----------
    network, extras
        A format that is linear in every part.
    others : blocks (b, N, K)
        Parts of all columns, of which those of the term are ignored; the result is the mean over
        all blocks.
    parts : m arrays (k_i, K)
        Parts of the columns of the term.
    """
    # f is linear in each part: a column with more than K points is contracted with the identity,
    # and multiplied by its parts at the end.
    asked = [np.eye(network.width) if len(p) > network.width else p for p in parts]
    shape = [len(p) for p in asked]
    out, weight = np.zeros((math.prod(shape), network.n_outputs)), 0
    for block in others:
        step = max(1, block_size(network) // len(block))
        for start in range(0, len(out), step):
            chosen = np.unravel_index(np.arange(start, min(start + step, len(out))), shape)
            whole = np.repeat(block[None], len(chosen[0]), axis=0)  # (points, b, N, K)
            for n, p, at in zip(term, asked, chosen):
                whole[:, :, n] = p[at][:, None]
            raw = network.contract(whole.reshape(-1, *block.shape[1:]), extras)
            out[start : start + step] += raw.reshape(-1, len(block), raw.shape[1]).sum(axis=1)
        weight += len(block)
    out = (out / weight).reshape(*shape, -1)
    for axis, p in enumerate(parts):
        if len(p) > network.width:
            out = np.moveaxis(np.tensordot(p, out, (1, axis)), 0, axis)
    return out


def _square_root(covariance: np.ndarray) -> np.ndarray:
    """Return G : (k, K) with G' G the covariance, for its k eigenvalues that are not zero."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-16 * values.max(initial=0.0)
    return np.sqrt(values[kept])[:, None] * vectors[:, kept].T


def _sum_groups(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Add up groups of neighbouring rows, one group for each row of `like`."""
    return values.reshape(len(like), -1, *values.shape[1:]).sum(axis=1)
