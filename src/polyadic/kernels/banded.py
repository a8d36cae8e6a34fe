"""Solve the normal equations of a block: a band, bordered by the rows of one constant element.

The band is factorised as L L', and the constant is eliminated by its Schur complement. The padding
of the rank has zero rows, which a small number on the diagonal, the floor, keeps from being
singular. Columns are taken in panels of eight: what lies behind a panel is then read and written
once for all eight, four columns at a time, which stay in registers while each of their entries
changes in the same order as without panels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, jit
from polyadic.kernels.simd import LANES, fill, load, padded, peek, store, total

PANEL = 8  # columns that are eliminated at once; all widths are multiples of it
TILE = 4  # columns behind a panel that change at once: their vectors are in registers
TINY = float(np.finfo(float).tiny)  # so that a system of zeros has a positive diagonal, too
BLOCK = 32  # rows of sides that stay in the cache while the corner changes


def _row_length(reach: int) -> int:
    """Return the length of a row of a band.

    After its entries it has zeros that vectors may read, and then room for what vectors write
    before the diagonal of the next row: such numbers are never read.
    """
    return padded(reach + PANEL + LANES - 1 + max(LANES, TILE) - 1)


class System(NamedTuple):
    """H step = -gradient, for m elements and a constant of W variables each.

    Matrices are flat: entry (i, k) of one with rows of length s is at i * s + k.
    """

    band: np.ndarray  # (m * W * ld,) column i of the lower triangle, from its diagonal down
    ld: int  # length of a row of the array `band`
    sides: np.ndarray  # (m * W * (W + LANES),) coupling to the constant, then -gradient
    corner: np.ndarray  # (W * W,) of the constant
    gradient: np.ndarray  # (d * W,)

    @classmethod
    def zeros(cls, n: int, width: int, reach: int, n_all: int) -> System:
        """Return the system of n variables in the band, and n_all with the constant."""
        ld = _row_length(reach)
        return cls(
            band=np.zeros(n * ld),
            ld=ld,
            sides=np.zeros(n * (width + LANES)),
            corner=np.zeros(width * width),
            gradient=np.zeros(n_all),
        )


class DenseWorkspace(NamedTuple):
    """Work arrays to factorise and solve a dense system of W variables."""

    factor: np.ndarray  # (W * ld,)
    ld: int  # length of a row of the array `factor`
    sides: np.ndarray  # (W * LANES,)
    x: np.ndarray  # (2 W + LANES,)
    rest: np.ndarray  # (W,)

    @classmethod
    def make(cls, width: int) -> DenseWorkspace:
        """Return work arrays for a system of this size."""
        ld = _row_length(width - 1)
        return cls(
            factor=np.empty(width * ld),
            ld=ld,
            sides=np.empty(width * LANES),
            x=np.empty(2 * width + LANES),
            rest=np.empty(width),
        )


@jit
def band_times(band, a, width, out):
    """Write K a to `out`, for K given by its band : (d, 5), and a and out : (d * W,)."""
    d = band.shape[0]
    for i in range(d):
        for r in range(width):
            out[i * width + r] = band[i, 2] * a[i * width + r]
        for b in range(5):
            k = i + b - 2
            if b == 2 or k < 0 or k >= d or band[i, b] == 0.0:
                continue
            weight = band[i, b]
            for r in range(width):
                out[i * width + r] += weight * a[k * width + r]


@jit
def add_penalties(core, width, constant, penalty, metric, z, system):
    """Add gradient and Hessian of tr(A' K A) + tr(A' M A Z).

    core : (d * W,); penalty, metric : (d, 5) are K and M about their diagonals; z : (W * W,).
    metric is None if there is no M.
    """
    dim, base = penalty.shape[0], 1 if constant else 0
    ld, n_sides = system.ld, width + LANES
    for k in range(dim):
        for b in range(-2, 3):
            other, v = k + b, 2.0 * penalty[k, b + 2]
            if v == 0.0 or other < 0 or other >= dim:
                continue
            for r in range(width):
                system.gradient[k * width + r] += v * core[other * width + r]
                variable = (k - base) * width + r
                if other >= k >= base:
                    system.band[variable * ld + b * width] += v
                elif other < base <= k:
                    system.sides[variable * n_sides + r] += v
                elif other < base and k < base:
                    system.corner[r * width + r] += v
    _add_norm(core, width, base, metric, z, system)


@inner
def _add_norm(core, width, base, metric, z, system):
    """Add gradient and Hessian of tr(A' M A Z), if there is an M."""
    if metric is None:
        return
    dim = metric.shape[0]
    for k in range(dim):
        for b in range(-2, 3):
            if metric[k, b + 2] != 0.0 and 0 <= k + b < dim:
                _add_norm_entry(core, width, k, b, base, 2.0 * metric[k, b + 2], z, system)


@inner
def _add_norm_entry(core, width, k, b, base, scale, z, system):
    """Add one entry of M, between elements k and k + b, times Z."""
    other, ld, n_sides = k + b, system.ld, width + LANES
    band, sides, corner = system.band, system.sides, system.corner
    for q in range(width):
        slope = 0.0
        for r in range(width):
            slope += z[q * width + r] * core[other * width + r]
        system.gradient[k * width + q] += scale * slope
        variable, at = (k - base) * width + q, q * width
        if other < base and k < base:
            for r in range(width):
                corner[at + r] += scale * z[at + r]
        elif other < base <= k:
            for r in range(width):
                sides[variable * n_sides + r] += scale * z[at + r]
        elif other >= k >= base:
            to = variable * ld + b * width - q
            for r in range(q if other == k else 0, width):
                band[to + r] += scale * z[at + r]


@inner
def _factorise(band, n, ld, reach):
    """Overwrite the lower band by its Cholesky factor; return whether that was possible.

    band : (n * ld,), column i from its diagonal down, `reach` entries below it and zeros after.
    """
    for i in range(0, n, PANEL):
        if not _factorise_panel(band, i, ld, reach):
            return False
        # Row i + t of panel column p is at p * (ld - 1) + t after `first`.
        first, end = i * ld, _end(band, i * ld, min(reach + PANEL, n - i), ld - 1)
        for j in range(PANEL, end, TILE):
            if _are_zero(band, first + j, ld - 1):  # always so between categories
                continue
            to = first + j * (ld - 1)
            for k in range(j, end, LANES):
                at = to + k
                a, b = load(band, at), load(band, at + ld - 1)
                c, d = load(band, at + 2 * (ld - 1)), load(band, at + 3 * (ld - 1))
                for p in range(PANEL):
                    own = first + p * (ld - 1)
                    x = load(band, own + k)
                    a = a - fill(band, peek(band, own + j)) * x
                    b = b - fill(band, peek(band, own + j + 1)) * x
                    c = c - fill(band, peek(band, own + j + 2)) * x
                    d = d - fill(band, peek(band, own + j + 3)) * x
                store(band, at, a)
                store(band, at + ld - 1, b)
                store(band, at + 2 * (ld - 1), c)
                store(band, at + 3 * (ld - 1), d)
    return True


@inner
def _factorise_panel(band, i, ld, reach):
    """Factorise the columns of a panel, which those before it have been taken off already."""
    for j in range(PANEL):
        own = (i + j) * ld
        to = own - j  # row i + k of this column is at k after it
        for k in range(j, reach + PANEL, LANES):
            v = load(band, to + k)
            for p in range(j):
                at = (i + p) * ld - p
                v = v - fill(band, peek(band, at + j)) * load(band, at + k)
            store(band, to + k, v)
        if not band[own] > 0.0:
            return False
        inverse = fill(band, 1.0 / np.sqrt(band[own]))
        for k in range(own, own + reach + 1, LANES):
            store(band, k, inverse * load(band, k))
    return True


@inner
def _end(band, first, end, step):
    """Return where the rows of a panel end: beyond are zeros, up to row `end`.

    The last columns of an element reach fewer rows than the first, for which the band has room.
    """
    tile = PANEL + (end - 1 - PANEL) // TILE * TILE
    while tile >= PANEL and _are_zero(band, first + tile, step):
        tile -= TILE
    return min(tile + TILE, end)


@inner
def _are_zero(band, at, step):
    """Return whether the multipliers of a tile are all zero: TILE numbers per panel column."""
    for p in range(PANEL):
        for k in range(at + p * step, at + p * step + TILE):
            if band[k] != 0.0:
                return False
    return True


@inner
def _forward(band, n, ld, reach, sides, count):
    """Overwrite the right-hand sides : (n * count,) by L^-1 of them."""
    for i in range(0, n, PANEL):
        first = i * ld
        for j in range(PANEL):
            to, inverse = (i + j) * count, fill(sides, 1.0 / band[(i + j) * ld])
            for k in range(0, count, LANES):
                v = load(sides, to + k)
                for p in range(j):
                    v = v - fill(sides, peek(band, first + p * (ld - 1) + j)) * load(
                        sides, (i + p) * count + k
                    )
                store(sides, to + k, inverse * v)
        for j in range(PANEL, min(reach + PANEL, n - i), TILE):
            if _are_zero(band, first + j, ld - 1):
                continue
            to = (i + j) * count
            for k in range(0, count, LANES):
                at = to + k
                a, b = load(sides, at), load(sides, at + count)
                c, d = load(sides, at + 2 * count), load(sides, at + 3 * count)
                for p in range(PANEL):
                    own = first + p * (ld - 1) + j
                    x = load(sides, (i + p) * count + k)
                    a = a - fill(sides, peek(band, own)) * x
                    b = b - fill(sides, peek(band, own + 1)) * x
                    c = c - fill(sides, peek(band, own + 2)) * x
                    d = d - fill(sides, peek(band, own + 3)) * x
                store(sides, at, a)
                store(sides, at + count, b)
                store(sides, at + 2 * count, c)
                store(sides, at + 3 * count, d)


@inner
def _backward(band, n, ld, reach, x):
    """Overwrite x by L'^-1 x; after its n numbers x has `reach` + LANES zeros."""
    for i in range(n - 1, -1, -1):
        own = x[i]
        x[i] = 0.0
        sum_ = fill(x, 0.0)
        for k in range(0, reach + 1, LANES):
            sum_ = sum_ + load(band, i * ld + k) * load(x, i + k)
        x[i] = (own - total(sum_)) / band[i * ld]


@inner
def _solve_dense(matrix, right, damping, floor, workspace):
    """Write (H + damping)^-1 right to workspace.x[:W]; return whether H could be factorised."""
    width, factor, sides, x = right.shape[0], workspace.factor, workspace.sides, workspace.x
    ld = workspace.ld
    for r in range(width):
        for q in range(ld):
            factor[r * ld + q] = matrix[r * width + r + q] if r + q < width else 0.0
        factor[r * ld] += damping * matrix[r * width + r] + floor
    if not _factorise(factor, width, ld, width - 1):
        return False
    for r in range(width):
        for q in range(LANES):
            sides[r * LANES + q] = right[r] if q == 0 else 0.0
    _forward(factor, width, ld, width - 1, sides, LANES)
    for r in range(x.shape[0]):
        x[r] = sides[r * LANES] if r < width else 0.0
    _backward(factor, width, ld, width - 1, x)
    return True


@jit
def solve_dense(matrix, gradient, damping, floor, workspace, step):
    """Write -(H + damping)^-1 gradient to `step`, H : (W * W,); return whether that was possible.

    If H cannot be factorised, `step` is unchanged.
    """
    for r in range(gradient.shape[0]):
        workspace.rest[r] = -gradient[r]
    if not _solve_dense(matrix, workspace.rest, damping, floor, workspace):
        return False
    for r in range(gradient.shape[0]):
        step[r] = workspace.x[r]
    return True


@jit
def solve(system, width, reach, constant, damping, least, workspace, x, step):
    """Write -(H + damping)^-1 gradient to step : (d * W,); return whether that was possible.

    The diagonal of H is raised by the share `damping`, and by the share `least` of its largest
    entry. `system` is overwritten. x : (n + reach + LANES,) is a work array for the n variables of
    the band.
    """
    band, sides, corner, gradient = system.band, system.sides, system.corner, system.gradient
    ld, n_sides = system.ld, width + LANES
    base = width if constant else 0
    n = gradient.shape[0] - base
    floor = least * _largest(band, ld, n, corner) + TINY
    for i in range(n):
        band[i * ld] += damping * band[i * ld] + floor
        sides[i * n_sides + width] = -gradient[base + i]
    if not _factorise(band, n, ld, reach):
        return False
    _forward(band, n, ld, reach, sides, n_sides)
    for i in range(x.shape[0]):
        x[i] = sides[i * n_sides + width] if i < n else 0.0
    if constant:
        for r in range(width):
            workspace.rest[r] = -gradient[r]
            corner[r * width + r] += damping * corner[r * width + r]
        _eliminate(sides, n, width, corner, workspace.rest)
        if not _solve_dense(corner, workspace.rest, 0.0, floor, workspace):
            return False
        for r in range(width):
            step[r] = workspace.x[r]
        for i in range(n):
            for r in range(width):
                x[i] -= sides[i * n_sides + r] * step[r]
    _backward(band, n, ld, reach, x)
    for i in range(n):
        step[base + i] = x[i]
    return True


@inner
def _largest(band, ld, n, corner):
    """Return the largest number on the diagonal of the band, or in the corner, but at least 0."""
    out = 0.0
    for i in range(n):
        out = max(out, band[i * ld])
    for i in range(corner.shape[0]):
        out = max(out, corner[i])
    return out


@inner
def _eliminate(sides, n, width, corner, rest):
    """Subtract Y' Y from the corner and Y' y from the rest; sides : Y, W columns, and then y.

    Of the corner, only the upper triangle is written, and a part of the lower one.
    """
    count = width + LANES
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        for r in range(0, width, LANES):
            v = load(rest, r)
            for i in range(begin, end):
                v = v - fill(rest, peek(sides, i * count + width)) * load(sides, i * count + r)
            store(rest, r, v)
        for q in range(0, width, TILE):
            for r in range(q - q % LANES, width, LANES):
                to = q * width + r
                a, b = load(corner, to), load(corner, to + width)
                c, d = load(corner, to + 2 * width), load(corner, to + 3 * width)
                for i in range(begin, end):
                    at = i * count + q
                    x = load(sides, i * count + r)
                    a = a - fill(corner, peek(sides, at)) * x
                    b = b - fill(corner, peek(sides, at + 1)) * x
                    c = c - fill(corner, peek(sides, at + 2)) * x
                    d = d - fill(corner, peek(sides, at + 3)) * x
                store(corner, to, a)
                store(corner, to + width, b)
                store(corner, to + 2 * width, c)
                store(corner, to + 3 * width, d)
