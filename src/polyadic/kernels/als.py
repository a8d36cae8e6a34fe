"""Normal equations for one block of a CP model, by alternating least squares.

With all cores but one fixed, f is linear in that core, and the step from it to the minimum of a
quadratic model of the objective solves H step = -gradient. Variables are ordered by element, W (the
padded rank) of them per element. In every row only a few neighbouring elements of a local map are
non-zero, so H is a band, except for the implied constant, which is coupled to all elements: see
`polyadic.kernels.banded`.

Shapes: n rows, m elements besides the constant, s slots per row, L outputs.
    product   : (n * W,)      the product of the other columns' factors
    weights   : (L * W,)      the output matrix C, transposed

All work that grows with the rows or elements is compiled here, without BLAS and LAPACK: members are
trained in parallel threads, while the number of threads of BLAS is a setting of the whole process,
on which the last bits of the result would depend.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, jit
from polyadic.kernels.simd import LANES, PAD, fill, load, peek, store, total

BLOCK = 64  # rows that are gathered at once, so that they stay in the cache
_ZERO = np.float32(0)


class Slots(NamedTuple):
    """The slots of one column, and its rows sorted by cell: by the first element of their slots."""

    start: np.ndarray  # (n,) first of s neighbouring elements, not counting the constant
    value: np.ndarray  # (n, s)
    order: np.ndarray  # (n,) rows by cell
    bounds: np.ndarray  # (m + 2,) cell k is order[bounds[k]:bounds[k + 1]]; the last: missing
    constant: bool
    unity: bool  # whether the values of every row outside of the last cell add up to one


class Quadratic(NamedTuple):
    """A quadratic model of the loss at the present predictions."""

    slope: np.ndarray  # (n, L)
    curvature: np.ndarray  # (n, 1) where all outputs share it, or (n, L)


@jit
def multiply(core, width, slots, source, out):
    """Write source_i * (phi_i' A) to out; source, out : (n * W,); core : (d * W,)."""
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


@inner
def add_products(left, right, begin, n_rows, width, out):
    """Add the upper triangle of left' right, (rows * W,) each and symmetric, to out : (W * W,).

    The rows of `right` start at right[begin].
    """
    for q in range(0, width, PAD):
        for r in range(q, width, LANES):
            to = q * width + r
            a, b = load(out, to), load(out, to + width)
            c, d = load(out, to + 2 * width), load(out, to + 3 * width)
            e, f = load(out, to + 4 * width), load(out, to + 5 * width)
            g, h = load(out, to + 6 * width), load(out, to + 7 * width)
            for i in range(n_rows):
                x = load(right, begin + i * width + r)
                at = i * width + q
                a = a + fill(left, peek(left, at)) * x
                b = b + fill(left, peek(left, at + 1)) * x
                c = c + fill(left, peek(left, at + 2)) * x
                d = d + fill(left, peek(left, at + 3)) * x
                e = e + fill(left, peek(left, at + 4)) * x
                f = f + fill(left, peek(left, at + 5)) * x
                g = g + fill(left, peek(left, at + 6)) * x
                h = h + fill(left, peek(left, at + 7)) * x
            store(out, to, a)
            store(out, to + width, b)
            store(out, to + 2 * width, c)
            store(out, to + 3 * width, d)
            store(out, to + 4 * width, e)
            store(out, to + 5 * width, f)
            store(out, to + 6 * width, g)
            store(out, to + 7 * width, h)


@inner
def mirror(matrix, width):
    """Copy the upper triangle of a matrix (W * W,) to the lower one."""
    for q in range(width):
        for r in range(q):
            matrix[q * width + r] = matrix[r * width + q]


@inner
def _outer(weights, width, only, out):
    """Write C C' to out : (W * W,); of the output `only` alone if that is not negative."""
    for q in range(width * width):
        out[q] = 0.0
    for k in range(weights.shape[0] // width):
        if only < 0 or only == k:
            for q in range(width):
                for r in range(width):
                    out[q * width + r] += weights[k * width + q] * weights[k * width + r]


@inner
def _scale_rows(source, at, scale, n_rows, width, out):
    """Write the rows that start at source[at], each multiplied by its scale."""
    for i in range(n_rows):
        v = fill(source, peek(scale, i))
        for r in range(i * width, (i + 1) * width, LANES):
            store(out, r, v * load(source, at + r))


@inner
def _gather(product, width, rows, out):
    """Copy the products of these rows into contiguous memory."""
    for i in range(rows.shape[0]):
        for r in range(0, width, LANES):
            store(out, i * width + r, load(product, rows[i] * width + r))


@inner
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


class Workspace(NamedTuple):
    """Work arrays of the normal equations, for one cell."""

    buffer: np.ndarray  # (BLOCK * W,)
    scaled: np.ndarray  # (BLOCK * W,)
    scale: np.ndarray  # (BLOCK,)
    mix: np.ndarray  # (W * W,)
    pairs: np.ndarray  # (s * s, W * W)
    ones: np.ndarray  # (1 + s, W * W)

    @classmethod
    def make(cls, width: int, n_slots: int) -> Workspace:
        """Return work arrays for this width and number of slots."""
        return cls(
            buffer=np.empty(BLOCK * width),
            scaled=np.empty(BLOCK * width),
            scale=np.empty(BLOCK),
            mix=np.empty(width * width),
            pairs=np.empty((n_slots * n_slots, width * width)),
            ones=np.empty((1 + n_slots, width * width)),
        )


@inner
def _cell_moments(workspace, width, rows, slots, n_slots, curvature, kind, plain):
    """Add the second moments of gathered rows, weighted by curvature and values.

    Of `pairs` only b >= a is written. Of `ones`, if `plain`, the moments of the constant with
    itself and with each slot.
    """
    n, buffer, scaled, scale = rows.shape[0], workspace.buffer, workspace.scaled, workspace.scale
    for a in range(-1 if plain else 0, n_slots):
        for b in range(a, n_slots):
            for i in range(n):
                scale[i] = curvature[rows[i], kind]
                if a >= 0:
                    scale[i] *= slots.value[rows[i], a]
                if b >= 0:
                    scale[i] *= slots.value[rows[i], b]
            _scale_rows(buffer, 0, scale, n, width, scaled)
            out = workspace.pairs[a * n_slots + b] if a >= 0 else workspace.ones[1 + b]
            add_products(scaled, buffer, 0, n, width, out)


@inner
def _add_product(left, right, at, out, to, count):
    """Add `count` products of numbers of left and right, from `at` on, to those of out."""
    for q in range(0, count, LANES):
        v = load(out, to + q) + load(left, at + q) * load(right, at + q)
        store(out, to + q, v)


@inner
def _scatter(pairs, mix, cell, n_slots, width, system):
    """Add a cell's moments, multiplied entry by entry by C C', to the band."""
    band, ld = system.band, system.ld
    for a in range(n_slots):
        for b in range(a, n_slots):
            own = pairs[a * n_slots + b]
            mirror(own, width)
            for r in range(width):
                # What vectors write before a diagonal is never read.
                q = r - r % LANES if a == b else 0
                to = ((cell + a) * width + r) * ld + (b - a) * width - r
                _add_product(mix, own, r * width + q, band, to + q, width - q)


@inner
def _scatter_constant(pairs, ones, mix, cell, n_slots, width, plain, system):
    """Do the same for the constant: if not `plain`, its moments are sums over the slots."""
    if plain:
        for a in range(n_slots + 1):
            mirror(ones[a], width)
        _add_product(mix, ones[0], 0, system.corner, 0, width * width)
    for a in range(n_slots):
        if plain:
            _add_to_sides(ones[1 + a], mix, cell + a, width, system.sides)
            continue
        for b in range(n_slots):
            own = pairs[min(a, b) * n_slots + max(a, b)]
            _add_to_sides(own, mix, cell + a, width, system.sides)
            _add_product(mix, own, 0, system.corner, 0, width * width)


@inner
def _add_to_sides(moments, mix, element, width, sides):
    """Add moments of the constant with one element, multiplied entry by entry by C C'."""
    for r in range(width):
        to = (element * width + r) * (width + LANES)
        _add_product(mix, moments, r * width, sides, to, width)


@jit
def normal_equations(product, width, weights, slots, model, workspace, system):
    """Add the normal matrix and the gradient of the loss to `system`.

    The rows of a cell have slots at the same elements, so they share one matrix of second moments
    per pair of slots.
    """
    n_cells, n_kinds = slots.bounds.shape[0] - 1, model.curvature.shape[1]
    pairs, ones = workspace.pairs, workspace.ones
    for k in range(n_kinds):
        _outer(weights, width, k if n_kinds > 1 else -1, workspace.mix)
        for cell in range(n_cells):
            begin, end = slots.bounds[cell], slots.bounds[cell + 1]
            if begin == end:
                continue
            none = cell == n_cells - 1  # rows with a missing value have no slots
            n_slots = 0 if none else slots.value.shape[1]
            plain = slots.constant and (none or not slots.unity)
            _clear(pairs)
            if plain:
                _clear(ones)
            for at in range(begin, end, BLOCK):
                rows = slots.order[at : min(at + BLOCK, end)]
                _gather(product, width, rows, workspace.buffer)
                if k == 0:
                    _add_gradient(
                        workspace.buffer, width, weights, rows, slots, model.slope, system.gradient
                    )
                _cell_moments(workspace, width, rows, slots, n_slots, model.curvature, k, plain)
            _scatter(pairs, workspace.mix, cell, n_slots, width, system)
            if slots.constant:
                _scatter_constant(pairs, ones, workspace.mix, cell, n_slots, width, plain, system)


@inner
def _clear(matrix):
    for i in range(matrix.shape[0]):
        for k in range(matrix.shape[1]):
            matrix[i, k] = 0.0


@jit
def weight_moments(product, width, model, output, workspace, moments, gradient):
    """Add H : (W * W,) and the gradient : (W,) for the output weights of one output."""
    kind = min(output, model.curvature.shape[1] - 1)
    n, scale = model.slope.shape[0], workspace.scale
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        for i in range(begin, end):
            scale[i - begin] = model.curvature[i, kind]
        _scale_rows(product, begin * width, scale, end - begin, width, workspace.scaled)
        add_products(workspace.scaled, product, begin * width, end - begin, width, moments)
        for i in range(begin, end):
            v = fill(product, model.slope[i, output])
            for r in range(0, width, LANES):
                store(gradient, r, load(gradient, r) + v * load(product, i * width + r))
    mirror(moments, width)


@jit
def gram(left, right, n_rows, width, out):
    """Write left' right, (rows * W,) each, whose product is symmetric, to out : (W * W,)."""
    for q in range(width * width):
        out[q] = 0.0
    add_products(left, right, 0, n_rows, width, out)
    mirror(out, width)
