"""Solve the normal equations of a block: a band, bordered by the rows of one constant element.

The band is factorised as L L', and the constant is eliminated by its Schur complement. The padding
of the rank has zero rows, which a small number on the diagonal, the floor, keeps from being
singular.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, jit
from polyadic.kernels.simd import LANES, fill, load, padded, store, total


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
        ld = padded(reach + LANES)
        return cls(
            band=np.zeros(n * ld),
            ld=ld,
            sides=np.zeros(n * (width + LANES)),
            corner=np.zeros(width * width),
            gradient=np.zeros(n_all),
        )


class DenseWorkspace(NamedTuple):
    """Work arrays to factorise and solve a dense system of W variables."""

    factor: np.ndarray  # (W * (W + LANES),)
    sides: np.ndarray  # (W * LANES,)
    x: np.ndarray  # (2 W + LANES,)
    rest: np.ndarray  # (W,)

    @classmethod
    def make(cls, width: int) -> DenseWorkspace:
        """Return work arrays for a system of this size."""
        sizes = (width * (width + LANES), width * LANES, 2 * width + LANES, width)
        return cls(*(np.empty(size) for size in sizes))


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
    for q in range(width):
        variable = (k - base) * width + q
        for r in range(width):
            v = scale * z[q * width + r]
            system.gradient[k * width + q] += v * core[other * width + r]
            if other < base and k < base:
                system.corner[q * width + r] += v
            elif other < base <= k:
                system.sides[variable * n_sides + r] += v
            elif other > k >= base or (other == k and r >= q):
                system.band[variable * ld + b * width + r - q] += v


@inner
def _factorise(band, n, ld, reach):
    """Overwrite the lower band by its Cholesky factor; return whether that was possible.

    band : (n * ld,), column i from its diagonal down, `reach` entries below it and zeros after.
    """
    for i in range(n):
        at = i * ld
        if not band[at] > 0.0:
            return False
        inverse = fill(band, 1.0 / np.sqrt(band[at]))
        for k in range(at, at + reach + 1, LANES):
            store(band, k, inverse * load(band, k))
        for j in range(1, min(reach, n - 1 - i) + 1):
            if band[at + j] == 0.0:  # always zero between categories
                continue
            x = fill(band, band[at + j])
            to = (i + j) * ld - j
            for k in range(j, reach + 1, LANES):
                store(band, to + k, load(band, to + k) - x * load(band, at + k))
    return True


@inner
def _forward(band, n, ld, reach, sides, count):
    """Overwrite the right-hand sides : (n * count,) by L^-1 of them."""
    for i in range(n):
        inverse = fill(sides, 1.0 / band[i * ld])
        for k in range(i * count, (i + 1) * count, LANES):
            store(sides, k, inverse * load(sides, k))
        for j in range(1, min(reach, n - 1 - i) + 1):
            if band[i * ld + j] == 0.0:
                continue
            x = fill(sides, band[i * ld + j])
            for k in range(i * count, (i + 1) * count, LANES):
                to = k + j * count
                store(sides, to, load(sides, to) - x * load(sides, k))


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
    ld = width + LANES
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
def solve(system, width, reach, constant, damping, floor, workspace, x, step):
    """Write -(H + damping)^-1 gradient to step : (d * W,); return whether that was possible.

    The diagonal of H is raised by the share `damping` and by `floor`. `system` is overwritten.
    x : (n + reach + LANES,) is a work array for the n variables of the band.
    """
    band, sides, corner, gradient = system.band, system.sides, system.corner, system.gradient
    ld, n_sides = system.ld, width + LANES
    base = width if constant else 0
    n = gradient.shape[0] - base
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
def _eliminate(sides, n, width, corner, rest):
    """Subtract Y' Y from the corner and Y' y from the rest; sides : Y, W columns, and then y."""
    count = width + LANES
    for i in range(n):
        at = i * count
        for r in range(width):
            rest[r] -= sides[at + r] * sides[at + width]
        for q in range(width):
            x = fill(sides, sides[at + q])
            for r in range(0, width, LANES):
                to = q * width + r
                store(corner, to, load(corner, to) - x * load(sides, at + r))
