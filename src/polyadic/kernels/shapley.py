"""Shapley values of a CP model, in closed form.

Shapes: N columns, R terms, L outputs, B backgrounds. A row has g_nr, a background mu_nr, and

    phi_i = sum_r C_r (g_ir - mu_ir) integral_0^1 prod_{j != i} (mu_jr + t (g_jr - mu_jr)) dt

whose integrand is a polynomial in t of degree N - 1, so that Gauss-Legendre quadrature is exact.
The product without column i is that of the columns before i times that of the columns after i;
nothing is divided. In double precision, because Shapley values are added up and compared.

With B background rows and few columns, a table of all sets of columns is faster than B integrals:
the mean over the backgrounds of prod_{n not in S} mu_nr does not depend on the row, so that the
value of a set S takes R products, for any B.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, jit


class Workspace(NamedTuple):
    """Work arrays of one thread, for one row."""

    g: np.ndarray  # (N, R)
    delta: np.ndarray  # (N, R)
    line: np.ndarray  # (N, R)
    beside: np.ndarray  # (N + 1, R)
    left: np.ndarray  # (R,)
    run: np.ndarray  # (R,)
    product: np.ndarray  # (2^N,) for `values_by_sets`
    set_value: np.ndarray  # (2^N,) the value of each set of columns

    @classmethod
    def make(cls, n_columns: int, rank: int, n_sets: int = 0) -> Workspace:
        """Return work arrays of these shapes."""
        g, delta, line = np.empty((3, n_columns, rank))
        left, run = np.empty((2, rank))
        product, set_value = np.empty((2, n_sets))
        return cls(g, delta, line, np.empty((n_columns + 1, rank)), left, run, product, set_value)


@inner
def parts(table, first, slots, index, value, row, out):
    """Write g : (N, R) of one row; table : (D, R) has the constant of column n at first[n]."""
    n_columns, rank = out.shape
    for n in range(n_columns):
        for r in range(rank):
            out[n, r] = table[first[n], r]
        for s in range(slots[n], slots[n + 1]):
            v = np.float64(value[row, s])
            if v != 0:
                i = index[row, s]
                for r in range(rank):
                    out[n, r] += v * table[i, r]


@jit
def all_parts(table, first, slots, index, value, out):
    """Write g : (n, N, R) of all rows."""
    for row in range(index.shape[0]):
        parts(table, first, slots, index, value, row, out[row])


@inner
def _clear(out):
    for n in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[n, k] = 0.0


@jit
def values(
    table, first, slots, index, value, backgrounds, nodes, node_weights, weights, workspace, out
):
    """Write the Shapley values of all rows, out : (n, N, L), the mean over the backgrounds.

    backgrounds : (B, N, R); weights : (R, L).
    """
    n_backgrounds, n_columns, rank = backgrounds.shape
    g, delta, kept = workspace.g, workspace.delta, workspace.line
    for row in range(index.shape[0]):
        parts(table, first, slots, index, value, row, g)
        _clear(out[row])
        for b in range(n_backgrounds):
            mu = backgrounds[b]
            for n in range(n_columns):
                for r in range(rank):
                    delta[n, r] = g[n, r] - mu[n, r]
                    kept[n, r] = 0.0
            for k in range(nodes.shape[0]):
                leave_one_out(
                    mu, delta, nodes[k], node_weights[k], workspace.beside, workspace.run, kept
                )
            for n in range(n_columns):
                for output in range(weights.shape[1]):
                    total = 0.0
                    for r in range(rank):
                        total += delta[n, r] * kept[n, r] * weights[r, output]
                    out[row, n, output] += total / n_backgrounds


@inner
def leave_one_out(mu, delta, t, weight, left, run, kept):
    """Add weight times prod_{j != n} (mu_j + t delta_j) to kept : (N, R)."""
    n_columns, rank = mu.shape
    for r in range(rank):
        run[r] = weight
    for n in range(n_columns):
        for r in range(rank):
            left[n, r] = run[r]
            run[r] *= mu[n, r] + t * delta[n, r]
    for r in range(rank):
        run[r] = 1.0
    for n in range(n_columns - 1, -1, -1):
        for r in range(rank):
            kept[n, r] += left[n, r] * run[r]
            run[r] *= mu[n, r] + t * delta[n, r]


@jit
def pairs(
    table, first, slots, index, value, backgrounds, nodes, node_weights, weights, workspace, out
):
    """Write the Shapley interaction index of every pair, out : (n, N, N, L), above the diagonal.

    It is sum_r C_r delta_ir delta_jr integral_0^1 prod_{k != i, j} (mu_kr + t delta_kr) dt.
    """
    n_backgrounds, n_columns, rank = backgrounds.shape
    g, delta, line, right = workspace.g, workspace.delta, workspace.line, workspace.beside
    for row in range(index.shape[0]):
        parts(table, first, slots, index, value, row, g)
        for n in range(n_columns):
            _clear(out[row, n])
        for b in range(n_backgrounds):
            mu = backgrounds[b]
            for n in range(n_columns):
                for r in range(rank):
                    delta[n, r] = g[n, r] - mu[n, r]
            for k in range(nodes.shape[0]):
                weight = node_weights[k] / n_backgrounds
                for r in range(rank):
                    right[n_columns, r] = weight
                for n in range(n_columns - 1, -1, -1):
                    for r in range(rank):
                        line[n, r] = mu[n, r] + nodes[k] * delta[n, r]
                        right[n, r] = right[n + 1, r] * line[n, r]
                for output in range(weights.shape[1]):
                    add_pairs(
                        line, delta, right, weights, output, workspace.left, workspace.run, out[row]
                    )


@inner
def add_pairs(line, delta, right, weights, output, left, run, out):
    """Add the products without two columns, times the deltas of these two, to out : (N, N, L)."""
    n_columns, rank = line.shape
    for r in range(rank):
        left[r] = weights[r, output]
    for i in range(n_columns):
        for r in range(rank):
            run[r] = left[r] * delta[i, r]
        for j in range(i + 1, n_columns):
            total = 0.0
            for r in range(rank):
                total += run[r] * delta[j, r] * right[j + 1, r]
                run[r] *= line[j, r]
            out[i, j, output] += total
        for r in range(rank):
            left[r] *= line[i, r]


@jit
def complements(backgrounds, product, out):
    """Write the mean over backgrounds of prod_{n not in S} mu_nr, out : (R, 2^N).

    Bit n of the number of a set S is one if column n is in it. product : (2^N,) is a work array for
    the products over the columns that are not in S.
    """
    n_backgrounds, (rank, n_sets) = len(backgrounds), out.shape
    _clear(out)
    for b in range(n_backgrounds):
        for r in range(rank):
            multiply_sets(backgrounds[b], r, 1.0 / n_backgrounds, product)
            for s in range(n_sets):
                out[r, n_sets - 1 - s] += product[s]


@inner
def multiply_sets(g, r, start, product):
    """Write start prod_{n in S} g_nr for every set S, product : (2^N,)."""
    product[0], size = start, 1
    for n in range(g.shape[0]):
        factor = g[n, r]
        for s in range(size):
            product[size + s] = product[s] * factor
        size *= 2


@jit
def values_by_sets(table, first, slots, index, value, rest, shares, workspace, out):
    """Write the Shapley values of all rows, out : (n, N, L), from the values of all sets.

    rest : (L, R, 2^N), what `complements` writes times the output weights; shares : (2^N,), the
    Shapley weight of each set that a column is added to.
    """
    n_outputs, rank, n_sets = rest.shape
    n_columns, g, product, set_value = (
        out.shape[1],
        workspace.g,
        workspace.product,
        workspace.set_value,
    )
    for row in range(index.shape[0]):
        parts(table, first, slots, index, value, row, g)
        for output in range(n_outputs):
            for s in range(n_sets):
                set_value[s] = 0.0
            for r in range(rank):
                multiply_sets(g, r, 1.0, product)
                for s in range(n_sets):
                    set_value[s] += product[s] * rest[output, r, s]
            for n in range(n_columns):
                total, bit = 0.0, 1 << n
                for start in range(0, n_sets, 2 * bit):  # sets without column n, in runs
                    for s in range(start, start + bit):
                        total += shares[s] * (set_value[s + bit] - set_value[s])
                out[row, n, output] = total
