"""Normal equations for one block of a CP model, by alternating least squares.

With all cores but one fixed, f is linear in that core, and the step from it to the minimum of a
quadratic model of the objective solves H step = -gradient. Variables run element by element, W (the
padded rank) for each. Local maps meet a few neighbouring elements in a row, so H is a band, all but
the implied constant, which meets all: see `polyadic.kernels.banded`.

Shapes: n rows, m elements besides the constant, s slots a row, L outputs.
    product   : (n * W,)      the product of the other columns' factors
    weights   : (L * W,)      the output matrix C, transposed

What grows with rows or elements is compiled, without BLAS and LAPACK: members run in threads side
by side, and how many threads BLAS takes is a setting of the whole process, on which the last bits
would depend.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import jit
from polyadic.kernels.losses import HUBER, LOGISTIC, POISSON, QUANTILE, SOFTMAX
from polyadic.kernels.simd import LANES, fill, load, store, total

BLOCK = 64  # rows that are gathered at a time, and stay in the cache
_NEAR = 0.02  # residuals nearer to zero than this count as this, in units of the target's spread
_FLAT = 0.01  # no curvature is taken to be less than this
_SHARE, _LEAST = 0.1, 1e-9  # of the mean curvature, for two classes
_ZERO = np.float32(0)


class Slots(NamedTuple):
    """The slots of one column, and its rows sorted by the first element they meet."""

    start: np.ndarray  # (n,) first of s neighbouring elements, not counting the constant
    value: np.ndarray  # (n, s)
    order: np.ndarray  # (n,) rows by cell
    bounds: np.ndarray  # (m + 2,) cell k is order[bounds[k]:bounds[k + 1]]; the last one meets none
    constant: bool
    unity: bool  # whether the values of every row but the last cell's add up to one


class Quadratic(NamedTuple):
    """A quadratic model of the loss about the present predictions."""

    slope: np.ndarray  # (n, L)
    curvature: np.ndarray  # (n, 1) where all outputs share it, or (n, L)


@jit
def _logistic_curvatures(weight, raw, out):
    """Write p (1 - p), but no less than a share of its mean: rare classes are flat everywhere."""
    mean = 0.0
    for i in range(raw.shape[0]):
        for k in range(raw.shape[1]):
            q = np.exp(-abs(raw[i, k]))
            out[i, k] = q / ((1.0 + q) * (1.0 + q))
            mean += out[i, k]
    least = max(_SHARE * mean / max(out.size, 1), _LEAST)
    for i in range(raw.shape[0]):
        for k in range(raw.shape[1]):
            out[i, k] = weight[i] * max(out[i, k], least)


@jit
def curvatures(code, shape, y, weight, raw, out):
    """Write the weighted curvature of a parabola near the loss, or above it.

    For softmax, twice the diagonal of the Hessian: by Gershgorin's circles, no less than all of it.
    """
    n_outputs = raw.shape[1]
    if code == LOGISTIC:
        _logistic_curvatures(weight, raw, out)
        return
    for i in range(raw.shape[0]):
        if code == SOFTMAX:
            top = np.max(raw[i])
            norm = 0.0
            for k in range(n_outputs):
                norm += np.exp(raw[i, k] - top)
            for k in range(n_outputs):
                p = np.exp(raw[i, k] - top) / norm
                out[i, k] = weight[i] * max(2.0 * p * (1.0 - p), _FLAT)
            continue
        for k in range(n_outputs):
            size = abs(raw[i, k] - y[i, k])
            h = 2.0
            if code == POISSON:
                h = max(np.exp(min(raw[i, k], 60.0)), y[i, k], _FLAT)
            elif code == QUANTILE:
                h = 1.0 / max(size, _NEAR)
            elif code == HUBER and size > shape:
                h = 2.0 * shape / size
            out[i, k] = weight[i] * h


@jit
def multiply(core, width, slots, source, out):
    """Write source_i * (phi_i' A), both (n * W,); core : (d * W,)."""
    n_slots = slots.value.shape[1]
    base = width if slots.constant else 0
    one = fill(core, np.float32(slots.constant))
    for i in range(slots.start.shape[0]):
        at = base + slots.start[i] * width
        if n_slots == 2:
            va, vb = fill(core, slots.value[i, 0]), fill(core, slots.value[i, 1])
            for r in range(0, width, LANES):
                m = one * load(core, r) + va * load(core, at + r) + vb * load(core, at + width + r)
                store(out, i * width + r, load(source, i * width + r) * m)
            continue
        for r in range(0, width, LANES):
            m = one * load(core, r)
            for s in range(n_slots):
                m = m + fill(core, slots.value[i, s]) * load(core, at + s * width + r)
            store(out, i * width + r, load(source, i * width + r) * m)


@jit
def read_out(product, width, weights, out):
    """Add C' p_i to out : (n, L)."""
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            sum_ = fill(product, _ZERO)
            for r in range(0, width, LANES):
                sum_ = sum_ + load(product, i * width + r) * load(weights, k * width + r)
            out[i, k] += total(sum_)


@jit
def add_products(left, right, n_rows, width, out):
    """Add the upper triangle of left' right, (rows * W,) each and symmetric, to out : (W * W,)."""
    for q in range(0, width, LANES):
        for r in range(q, width, LANES):
            to = q * width + r
            a, b = load(out, to), load(out, to + width)
            c, d = load(out, to + 2 * width), load(out, to + 3 * width)
            e, f = load(out, to + 4 * width), load(out, to + 5 * width)
            g, h = load(out, to + 6 * width), load(out, to + 7 * width)
            for i in range(n_rows):
                x = load(right, i * width + r)
                at = i * width + q
                a = a + fill(left, left[at]) * x
                b = b + fill(left, left[at + 1]) * x
                c = c + fill(left, left[at + 2]) * x
                d = d + fill(left, left[at + 3]) * x
                e = e + fill(left, left[at + 4]) * x
                f = f + fill(left, left[at + 5]) * x
                g = g + fill(left, left[at + 6]) * x
                h = h + fill(left, left[at + 7]) * x
            store(out, to, a)
            store(out, to + width, b)
            store(out, to + 2 * width, c)
            store(out, to + 3 * width, d)
            store(out, to + 4 * width, e)
            store(out, to + 5 * width, f)
            store(out, to + 6 * width, g)
            store(out, to + 7 * width, h)


@jit
def mirror(matrix, width):
    """Copy the upper triangle of a matrix (W * W,) to the lower one."""
    for q in range(width):
        for r in range(q):
            matrix[q * width + r] = matrix[r * width + q]


@jit
def _outer(weights, width, only, out):
    """Write C C' to out : (W * W,), or that of the output `only` where that is not negative."""
    out[:] = 0.0
    for k in range(weights.shape[0] // width):
        if only < 0 or only == k:
            for q in range(width):
                for r in range(width):
                    out[q * width + r] += weights[k * width + q] * weights[k * width + r]


@jit
def _scale_rows(source, scale, n_rows, width, out):
    for i in range(n_rows):
        v = fill(source, scale[i])
        for r in range(i * width, (i + 1) * width, LANES):
            store(out, r, v * load(source, r))


@jit
def _gather(product, width, rows, out):
    for i in range(rows.shape[0]):
        for r in range(0, width, LANES):
            store(out, i * width + r, load(product, rows[i] * width + r))


@jit
def _add_gradient(buffer, width, weights, rows, slots, slope, gradient):
    """Add d loss / d A of gathered rows to gradient : (d * W,)."""
    n_outputs, n_slots = slope.shape[1], slots.value.shape[1]
    base = width if slots.constant else 0
    for i in range(rows.shape[0]):
        at = base + slots.start[rows[i]] * width
        for r in range(0, width, LANES):
            g = fill(buffer, _ZERO)
            for k in range(n_outputs):
                g = g + fill(buffer, slope[rows[i], k]) * load(weights, k * width + r)
            g = g * load(buffer, i * width + r)
            if slots.constant:
                store(gradient, r, load(gradient, r) + g)
            for s in range(n_slots):
                to = at + s * width + r
                v = fill(buffer, slots.value[rows[i], s])
                store(gradient, to, load(gradient, to) + v * g)


@jit
def _cell_moments(
    buffer, scaled, scale, width, rows, slots, n_slots, curvature, plain, pairs, ones
):
    """Add the second moments of gathered rows, weighted by curvature and values.

    pairs : (s * s, W * W), of which b >= a is written; ones : (1 + s, W * W), where `plain`, those
    of the constant with itself and with each slot.
    """
    n = rows.shape[0]
    for a in range(-1 if plain else 0, n_slots):
        for i in range(n):
            scale[i] = curvature[rows[i]]
            if a >= 0:
                scale[i] *= slots.value[rows[i], a]
        if plain:
            _scale_rows(buffer, scale, n, width, scaled)
            add_products(scaled, buffer, n, width, ones[1 + a])
        for b in range(a, n_slots):
            if a < 0:
                break
            _scale_rows(buffer, scale, n, width, scaled)
            for i in range(n):
                v = fill(buffer, slots.value[rows[i], b])
                for r in range(i * width, (i + 1) * width, LANES):
                    store(scaled, r, v * load(scaled, r))
            add_products(scaled, buffer, n, width, pairs[a * n_slots + b])


@jit
def _complete(pairs, ones, n_slots, width, plain):
    """Fill the lower triangles; where values add up to one, so do the moments of the slots."""
    for a in range(n_slots):
        for b in range(a, n_slots):
            mirror(pairs[a * n_slots + b], width)
    for a in range(n_slots + 1):
        mirror(ones[a], width)
    if not plain:
        for a in range(n_slots):
            for b in range(n_slots):
                ones[1 + a] += pairs[min(a, b) * n_slots + max(a, b)]
            ones[0] += ones[1 + a]


@jit
def _scatter(pairs, ones, mix, cell, n_slots, width, constant, system):
    """Add a cell's moments, times C C' entry by entry, to the normal matrix."""
    band, sides = system.band, system.sides
    for a in range(n_slots):
        for r in range(width):
            variable = (cell + a) * width + r
            for b in range(a, n_slots):
                moments = pairs[a * n_slots + b]
                to = (b - a) * width - r
                for q in range(r if a == b else 0, width):
                    band[variable, to + q] += mix[r * width + q] * moments[r * width + q]
            if constant:
                for q in range(width):
                    sides[variable, q] += mix[r * width + q] * ones[1 + a, r * width + q]
    if constant:
        system.corner[:] += mix * ones[0]


@jit
def normal_equations(product, width, weights, slots, model, system):
    """Add the normal matrix and the gradient of the loss to `system`.

    The rows of a cell meet the same elements: theirs is a matrix of second moments for each pair of
    slots.
    """
    n_cells = slots.bounds.shape[0] - 1
    buffer, scaled, scale = np.empty(BLOCK * width), np.empty(BLOCK * width), np.empty(BLOCK)
    mix = np.empty(width * width)
    pairs = np.empty((slots.value.shape[1] ** 2, width * width))
    ones = np.empty((1 + slots.value.shape[1], width * width))
    n_kinds = model.curvature.shape[1]
    for k in range(n_kinds):
        _outer(weights, width, k if n_kinds > 1 else -1, mix)
        curvature = np.ascontiguousarray(model.curvature[:, k])
        for cell in range(n_cells):
            begin, end = slots.bounds[cell], slots.bounds[cell + 1]
            if begin == end:
                continue
            pairs[:] = 0.0
            ones[:] = 0.0
            none = cell == n_cells - 1  # rows of a missing value meet no element
            n_slots = 0 if none else slots.value.shape[1]
            plain = slots.constant and (none or not slots.unity)
            for at in range(begin, end, BLOCK):
                rows = slots.order[at : min(at + BLOCK, end)]
                _gather(product, width, rows, buffer)
                if k == 0:
                    _add_gradient(buffer, width, weights, rows, slots, model.slope, system.gradient)
                _cell_moments(
                    buffer,
                    scaled,
                    scale,
                    width,
                    rows,
                    slots,
                    n_slots,
                    curvature,
                    plain,
                    pairs,
                    ones,
                )
            _complete(pairs, ones, n_slots, width, plain)
            _scatter(pairs, ones, mix, cell, n_slots, width, slots.constant, system)


@jit
def weight_moments(product, width, model, output, moments, gradient):
    """Add H : (W * W,) and the gradient : (W,) for the output weights of one output."""
    kind = min(output, model.curvature.shape[1] - 1)
    n = model.slope.shape[0]
    scaled = np.empty(BLOCK * width)
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        rows = product[begin * width : end * width]
        _scale_rows(rows, model.curvature[begin:end, kind], end - begin, width, scaled)
        add_products(scaled, rows, end - begin, width, moments)
        for i in range(begin, end):
            v = fill(product, model.slope[i, output])
            for r in range(0, width, LANES):
                store(gradient, r, load(gradient, r) + v * load(product, i * width + r))
    mirror(moments, width)
