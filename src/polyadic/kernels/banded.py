"""Solve the normal equations of a block: a band, bordered by the rows of one constant element.

The band is factorised as L L', the constant is eliminated by its Schur complement, and the padding
of the rank, which nothing meets, is kept apart by the damping of the diagonal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import jit
from polyadic.kernels.simd import LANES, fill, load, store, total


class System(NamedTuple):
    """H step = -gradient, for m elements and a constant of W variables each."""

    band: np.ndarray  # (m * W, ld) column i of the lower triangle, from its diagonal down
    sides: np.ndarray  # (m * W, W + LANES) what couples to the constant, then the gradient
    corner: np.ndarray  # (W * W,) the constant
    gradient: np.ndarray  # (d * W,)


@jit
def add_penalties(core, width, constant, penalty, metric, z, system):
    """Add gradient and Hessian of tr(A' K A) + tr(A' M A Z).

    core : (d * W,); penalty, metric : (d, 5) are K and M about their diagonals; z : (W * W,).
    """
    dim, base = penalty.shape[0], 1 if constant else 0
    for k in range(dim):
        for b in range(-2, 3):
            other, v = k + b, 2.0 * penalty[k, b + 2]
            if v == 0.0 or other < 0 or other >= dim:
                continue
            for r in range(width):
                system.gradient[k * width + r] += v * core[other * width + r]
                if other >= k >= base:
                    system.band[(k - base) * width + r, b * width] += v
                elif other < base <= k:
                    system.sides[(k - base) * width + r, r] += v
                elif other < base and k < base:
                    system.corner[r * width + r] += v
        for b in range(-2, 3):
            if metric[k, b + 2] != 0.0 and 0 <= k + b < dim:
                _add_norm(core, width, k, b, base, 2.0 * metric[k, b + 2], z, system)


@jit
def _add_norm(core, width, k, b, base, scale, z, system):
    """Add one entry of M, between elements k and k + b, times Z."""
    other = k + b
    for q in range(width):
        for r in range(width):
            v = scale * z[q * width + r]
            system.gradient[k * width + q] += v * core[other * width + r]
            if other < base and k < base:
                system.corner[q * width + r] += v
            elif other < base <= k:
                system.sides[(k - base) * width + q, r] += v
            elif other > k >= base or (other == k and r >= q):
                system.band[(k - base) * width + q, b * width + r - q] += v


@jit
def factorise(band, reach):
    """Overwrite the lower band by its Cholesky factor; return whether that was possible.

    band : (n, ld), column i from its diagonal down, `reach` entries below it and zeros after.
    """
    n, ld = band.shape
    flat = band.reshape(n * ld)
    for i in range(n):
        at = i * ld
        if not flat[at] > 0.0:
            return False
        inverse = fill(flat, 1.0 / np.sqrt(flat[at]))
        for k in range(at, at + reach + 1, LANES):
            store(flat, k, inverse * load(flat, k))
        for j in range(1, min(reach, n - 1 - i) + 1):
            if flat[at + j] == 0.0:  # categories do not meet
                continue
            x = fill(flat, flat[at + j])
            to = (i + j) * ld - j
            for k in range(j, reach + 1, LANES):
                store(flat, to + k, load(flat, to + k) - x * load(flat, at + k))
    return True


@jit
def _forward(band, reach, sides):
    """Overwrite the right-hand sides by L^-1 of them."""
    n, ld = band.shape
    count = sides.shape[1]
    factor, flat = band.reshape(n * ld), sides.reshape(n * count)
    for i in range(n):
        inverse = fill(flat, 1.0 / factor[i * ld])
        for k in range(i * count, (i + 1) * count, LANES):
            store(flat, k, inverse * load(flat, k))
        for j in range(1, min(reach, n - 1 - i) + 1):
            if factor[i * ld + j] == 0.0:
                continue
            x = fill(flat, factor[i * ld + j])
            for k in range(i * count, (i + 1) * count, LANES):
                to = k + j * count
                store(flat, to, load(flat, to) - x * load(flat, k))


@jit
def _backward(band, reach, x):
    """Overwrite x by L'^-1 x; beyond its n numbers x has room for `reach` + LANES zeros."""
    n, ld = band.shape
    factor = band.reshape(n * ld)
    for i in range(n - 1, -1, -1):
        own = x[i]
        x[i] = 0.0
        sum_ = fill(x, 0.0)
        for k in range(0, reach + 1, LANES):
            sum_ = sum_ + load(factor, i * ld + k) * load(x, i + k)
        x[i] = (own - total(sum_)) / factor[i * ld]


@jit
def _as_band(matrix, width, floor):
    out = np.zeros((width, width + LANES))
    for r in range(width):
        for q in range(r, width):
            out[r, q - r] = matrix[r * width + q]
        out[r, 0] += floor
    return out


@jit
def solve_dense(matrix, gradient, damping, floor):
    """Return -(H + damping)^-1 gradient for H : (W * W,), and whether H could be factorised."""
    width = gradient.shape[0]
    factor = _as_band(matrix, width, floor)
    for r in range(width):
        factor[r, 0] += damping * matrix[r * width + r]
    if not factorise(factor, width - 1):
        return gradient, False
    sides = np.zeros((width, LANES))
    sides[:, 0] = -gradient
    _forward(factor, width - 1, sides)
    x = np.zeros(2 * width + LANES)
    x[:width] = sides[:, 0]
    _backward(factor, width - 1, x)
    return x[:width].copy(), True


@jit
def solve(system, width, reach, constant, damping, floor):
    """Return -(H + damping)^-1 gradient : (d * W,), and whether H could be factorised.

    The diagonal of H is raised by the share `damping` and by `floor`. `system` is used up.
    """
    band, sides, corner, gradient = system
    n, base = band.shape[0], width if constant else 0
    for i in range(n):
        band[i, 0] += damping * band[i, 0] + floor
        sides[i, width] = -gradient[base + i]
    if not factorise(band, reach):
        return gradient, False
    _forward(band, reach, sides)
    step = np.zeros(base + n)
    x = np.zeros(n + reach + LANES)
    x[:n] = sides[:, width]
    if constant:
        rest = -gradient[:width].copy()
        for r in range(width):
            corner[r * width + r] += damping * corner[r * width + r]
        _eliminate(sides, width, corner, rest)
        first, fine = solve_dense(corner, -rest, 0.0, floor)
        if not fine:
            return gradient, False
        step[:width] = first
        for i in range(n):
            for r in range(width):
                x[i] -= sides[i, r] * first[r]
    _backward(band, reach, x)
    step[base:] = x[:n]
    return step, True


@jit
def _eliminate(sides, width, corner, rest):
    """Subtract Y' Y from the corner and Y' y from the rest; sides : Y, W columns, and then y."""
    count = sides.shape[1]
    flat = sides.reshape(sides.shape[0] * count)
    for i in range(sides.shape[0]):
        at = i * count
        for r in range(width):
            rest[r] -= flat[at + r] * flat[at + width]
        for q in range(width):
            x = fill(flat, flat[at + q])
            for r in range(0, width, LANES):
                to = q * width + r
                store(corner, to, load(corner, to) - x * load(flat, at + r))
