"""Penalties on the cores: banded quadratic forms, and the order penalty of the paper.

The order penalty <B*W, B*W> is the sum over outputs of c' Z c, with Z the Hadamard product over
the columns of the Gram matrices (A^(n)*b)' (A^(n)*b): the paper's Algorithms 3 and 4, with prefix
and suffix products in the place of a division, and each product carried as a matrix with entries
of at most one and a power of two, so that a thousand columns neither overflow nor vanish.
"""

from __future__ import annotations

import numpy as np

from polyadic.kernels.cp import GUARD
from polyadic.kernels.jit import jit
from polyadic.kernels.simd import LANES, fill, load, prefetch, store

_ZERO, _TWO = np.float32(0), np.float32(2)


@jit
def add_band_gradient(table, width, band, rows, gradient):
    """Add 2 K a for the given rows of the table; band : (D, 5) holds K about its diagonal.

    Where the neighbours have no part in it, as for categories, the diagonal is all there is.
    """
    for j in range(rows.shape[0]):
        k = rows[j]
        if j + 8 < rows.shape[0]:
            prefetch(band, 5 * rows[j + 8])
        w = fill(table, _TWO * band[k, 2])
        if band[k, 1] == _ZERO and band[k, 3] == _ZERO:
            if band[k, 2] != _ZERO:
                for r in range(k * width, (k + 1) * width, LANES):
                    store(gradient, r, load(gradient, r) + w * load(table, r))
            continue
        u, v = fill(table, _TWO * band[k, 0]), fill(table, _TWO * band[k, 1])
        x, y = fill(table, _TWO * band[k, 3]), fill(table, _TWO * band[k, 4])
        for r in range(k * width, (k + 1) * width, LANES):
            g = load(gradient, r) + u * load(table, r - 2 * width) + v * load(table, r - width)
            g = g + w * load(table, r) + x * load(table, r + width) + y * load(table, r + 2 * width)
            store(gradient, r, g)


@jit
def band_value(table, width, band):
    """Return the sum of a' K a over the table's columns."""
    out = 0.0
    for k in range(GUARD, band.shape[0] - GUARD):
        for b in range(5):
            if band[k, b] != _ZERO:
                other = (k + b - 2) * width
                for r in range(width):
                    out += band[k, b] * table[k * width + r] * table[other + r]
    return out


@jit
def _rescale(matrix):
    """Divide by the power of two that brings the largest entry to [1/2, 1); return its exponent."""
    top = 0.0
    for i in range(matrix.shape[0]):
        top = max(top, abs(matrix[i]))
    if top == 0.0 or not np.isfinite(top):
        return 0
    exponent = int(np.floor(np.log2(top))) + 1
    scale = 2.0**-exponent
    for i in range(matrix.shape[0]):
        matrix[i] *= scale
    return exponent


@jit
def _gram(table, width, first, dim, emphasis, out):
    """Write Y' Y with Y = A * b, out : (W * W,)."""
    for i in range(0, width * width, LANES):
        store(out, i, fill(out, _ZERO))
    for k in range(first, first + dim):
        square = emphasis[k] * emphasis[k]
        for q in range(width):
            v = fill(out, square * table[k * width + q])
            for r in range(0, width, LANES):
                here = load(out, q * width + r)
                store(out, q * width + r, here + v * load(table, k * width + r))


@jit
def order_penalty(table, weights, n_outputs, first, dims, emphasis, alpha, work, slope, w_slope):
    """Return alpha <B*W, B*W> and add its gradients to `slope` : (D * W,) and `w_slope` : (L * W,).

    emphasis : (D,) is b for every row of the table; work : (2 N + 2, W * W) is room to work in.
    """
    n_columns, width = first.shape[0], weights.shape[0] // n_outputs
    prefix, gram, rest = work[: n_columns + 1], work[n_columns + 1 : -1], work[-1]
    grams = np.zeros(n_columns, np.int64)  # exponents of two
    behind = np.zeros(n_columns + 1, np.int64)
    for q in range(width):
        for r in range(width):
            entry = table[0] - table[0]
            for k in range(n_outputs):
                entry += weights[k * width + q] * weights[k * width + r]
            rest[q * width + r] = entry
    # `prefix` excludes C C', which the suffix product starts with.
    prefix[0, :] = 1
    for n in range(n_columns):
        _gram(table, width, first[n], dims[n], emphasis, gram[n])
        grams[n] = _rescale(gram[n])
        for i in range(width * width):
            prefix[n + 1, i] = prefix[n, i] * gram[n, i]
        behind[n + 1] = behind[n] + grams[n] + _rescale(prefix[n + 1])
    value = 0.0
    for i in range(width * width):
        value += rest[i] * prefix[n_columns, i]
    value *= alpha * 2.0 ** behind[n_columns]
    _add_weight_slope(
        weights, n_outputs, prefix[n_columns], alpha * 2.0 ** behind[n_columns], w_slope
    )
    ahead = _rescale(rest)
    for n in range(n_columns - 1, -1, -1):
        for i in range(width * width):
            prefix[n, i] *= rest[i]
            rest[i] *= gram[n, i]
        scale = alpha * 2.0 ** (behind[n] + ahead)
        _add_core_slope(table, width, first[n], dims[n], emphasis, prefix[n], scale, slope)
        ahead += grams[n] + _rescale(rest)
    return value


@jit
def _add_weight_slope(weights, n_outputs, z, scale, slope):
    width = weights.shape[0] // n_outputs
    for k in range(n_outputs):
        for q in range(width):
            entry = weights[0] - weights[0]
            for r in range(width):
                entry += z[q * width + r] * weights[k * width + r]
            slope[k * width + q] += 2.0 * scale * entry


@jit
def _add_core_slope(table, width, first, dim, emphasis, z, scale, slope):
    """Add 2 alpha b * (Y z), z the product of all other Gram matrices."""
    for k in range(first, first + dim):
        square = 2.0 * scale * emphasis[k] * emphasis[k]
        for q in range(width):
            v = fill(table, square * table[k * width + q])
            for r in range(0, width, LANES):
                here = load(slope, k * width + r)
                store(slope, k * width + r, here + v * load(z, q * width + r))
