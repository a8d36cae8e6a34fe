"""Penalties on the cores: banded quadratic forms, and the order penalty of the paper.

The order penalty <B*W, B*W> is the sum over outputs of c' Z c, with Z the Hadamard product over
the columns of the Gram matrices (A^(n)*b)' (A^(n)*b): the paper's Algorithms 3 and 4, with prefix
and suffix products instead of divisions. Each product is kept as a matrix with entries of at most
one and a power of two, so that it neither overflows nor vanishes for a thousand columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, jit
from polyadic.kernels.simd import LANES, fill, load, prefetch, store

_ZERO, _TWO = np.float32(0), np.float32(2)


class OrderPenalty(NamedTuple):
    """The order penalty, and its work arrays."""

    alpha: float
    emphasis: np.ndarray  # (D,) the vector b for every row of the table
    dims: np.ndarray  # (N,)
    work: np.ndarray  # (2 N + 2, W * W)
    exponents: np.ndarray  # (2 N + 1,) powers of two

    @classmethod
    def make(
        cls, alpha: float, emphasis: np.ndarray, dims: np.ndarray, width: int, dtype: type
    ) -> OrderPenalty:
        """Return the penalty with work arrays for tables of this width."""
        work: np.ndarray = np.empty((2 * len(dims) + 2, width * width), dtype)
        exponents = np.empty(2 * len(dims) + 1, np.int64)
        return cls(alpha, np.asarray(emphasis, dtype), dims, work, exponents)


@inner
def add_band_gradient(table, width, band, rows, count, gradient):
    """Add 2 K a for the first `count` of the rows; band : (D, 5) holds K about its diagonal.

    If K is diagonal in a row, as for categories, its neighbours are not read.
    """
    for j in range(count):
        k = rows[j]
        if j + 8 < count:
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


@inner
def _rescale(matrix):
    """Divide by the power of two that brings the largest entry to [1/2, 1); return its exponent."""
    top = 0.0
    for i in range(matrix.shape[0]):
        if abs(matrix[i]) > top:
            top = abs(matrix[i])
    if top == 0.0 or not np.isfinite(top):
        return 0
    exponent = int(np.floor(np.log2(top))) + 1
    scale = 2.0**-exponent
    for i in range(matrix.shape[0]):
        matrix[i] *= scale
    return exponent


@inner
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


@inner
def add_order_gradient(order, table, weights, n_outputs, first, slope, w_slope):
    """Return alpha <B*W, B*W> and add its gradients to `slope` : (D * W,) and `w_slope` : (L * W,).

    Returns zero if `order` is None.
    """
    if order is None:
        return 0.0
    alpha, emphasis, dims = order.alpha, order.emphasis, order.dims
    n_columns, width = first.shape[0], weights.shape[0] // n_outputs
    prefix, gram = order.work[: n_columns + 1], order.work[n_columns + 1 :]
    rest = order.work[2 * n_columns + 1]
    grams, behind = order.exponents[:n_columns], order.exponents[n_columns:]
    for q in range(width):
        for r in range(width):
            entry = table[0] - table[0]
            for k in range(n_outputs):
                entry += weights[k * width + q] * weights[k * width + r]
            rest[q * width + r] = entry
            # `prefix` excludes C C', which the suffix product starts with.
            prefix[0, q * width + r] = 1
    behind[0] = 0
    for n in range(n_columns):
        _gram(table, width, first[n], dims[n], emphasis, gram[n])
        grams[n] = _rescale(gram[n])
        for i in range(width * width):
            prefix[n + 1, i] = prefix[n, i] * gram[n, i]
        behind[n + 1] = behind[n] + grams[n] + _rescale(prefix[n + 1])
    value = 0.0
    for i in range(width * width):
        value += rest[i] * prefix[n_columns, i]
    scale = alpha * 2.0 ** behind[n_columns]
    value *= scale
    _add_weight_slope(weights, n_outputs, prefix[n_columns], scale, w_slope)
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
def order_gradient(order, table, weights, n_outputs, first, slope, w_slope):
    """Call `add_order_gradient` from Python."""
    return add_order_gradient(order, table, weights, n_outputs, first, slope, w_slope)


@inner
def _add_weight_slope(weights, n_outputs, z, scale, slope):
    width = weights.shape[0] // n_outputs
    for k in range(n_outputs):
        for q in range(width):
            entry = weights[0] - weights[0]
            for r in range(width):
                entry += z[q * width + r] * weights[k * width + r]
            slope[k * width + q] += 2.0 * scale * entry


@inner
def _add_core_slope(table, width, first, dim, emphasis, z, scale, slope):
    """Add 2 alpha b * (Y z), z the product of all other Gram matrices."""
    for k in range(first, first + dim):
        square = 2.0 * scale * emphasis[k] * emphasis[k]
        for q in range(width):
            v = fill(table, square * table[k * width + q])
            for r in range(0, width, LANES):
                here = load(slope, k * width + r)
                store(slope, k * width + r, here + v * load(z, q * width + r))
