"""Contract a CP weight tensor with the local features of rows: the paper's Algorithms 1 and 2.

Shapes (D table rows in all, W the rank padded to a multiple of PAD):
    table    : (D * W,)  the cores one below the other, with two guard rows at either end
    weights  : (L * W,)  the output matrix C, transposed, zero in the padding
    additive : (D * L,)  the additive part, or None
    index    : (n * S,)  row of the table each slot points to
    value    : (n * S,)  the number that this row is multiplied by

The functions here take a block of rows, order[begin:end]: few enough for their factors to stay in
the cache, and enough for the overhead of a call to be small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner
from polyadic.kernels.simd import (
    LANES,
    LINE,
    fill,
    load,
    peek,
    prefetch,
    store,
    total,
)

GUARD = 2  # guard rows at either end: a roughness band reaches two table rows up and down
# A width, that of the default rank, for which products stay in registers while a row goes through
# its columns. Wider ones took longer so than with the products in memory.
TILE = 4 * LANES
TALL = 8192  # table rows of a column too large to stay in the cache between batches
_ZERO, _ONE = np.float32(0), np.float32(1)


class Layout(NamedTuple):
    """Where each column finds its slots and its rows of the table."""

    slots: np.ndarray  # (N + 1,) column n owns slots[n] : slots[n + 1]
    first: np.ndarray  # (N,) the table row of its element 0
    constant: np.ndarray  # (N,) whether element 0 is 1 for every row, and implied
    dense: np.ndarray  # (N,) whether all elements but the constant are slots, in order

    def for_kernel(self) -> Layout:
        """Return the layout with `dense` replaced by None if no column is dense.

        Kernels are then compiled without the code for dense columns.
        """
        return self if self.dense.any() else self._replace(dense=None)  # type: ignore[arg-type]


@inner
def is_dense(dense, n):
    """Return whether column n is dense."""
    if dense is None:
        return False
    return dense[n]


def block_size(n_columns: int, width: int) -> int:
    """Return how many rows a block has, 16 at most: about 32 kB of factors."""
    return max(1, min(16, 8192 // (n_columns * width)))


@inner
def fetch(table, gradient, width, slots, first, index, value, order, begin, end, far):
    """Prefetch what the rows order[begin:end] will need, and the slots of the rows up to `far`."""
    n_columns, height = first.shape[0], table.shape[0] // width
    for n in range(n_columns):
        stop = first[n + 1] if n + 1 < n_columns else height
        if stop - first[n] > TALL:
            for p in range(begin, end):
                row = order[p] * slots[-1]
                for s in range(row + slots[n], row + slots[n + 1]):
                    k = np.intp(peek(index, s)) * width
                    for r in range(k, k + width, LINE):
                        prefetch(table, r)
                        prefetch(gradient, r)
    for p in range(end, far):
        row = order[p] * slots[-1]
        for s in range(row, row + slots[-1], LINE):
            prefetch(index, s)
            prefetch(value, s)


@inner
def forward(
    table, width, slots, first, constant, dense, index, value, order, begin, end, factors, prefix
):
    """Write the factors m_n = phi(x_n)' A^(n) of the rows and their prefix products.

    factors : (rows * N * W,); prefix : (rows * (N + 1) * W,).
    """
    n_columns = first.shape[0]
    if dense is not None:
        dense_factors(
            table, width, slots, first, constant, dense, value, order, begin, end, factors
        )
    elif width == TILE:
        _tiled_forward(
            table, slots, first, constant, index, value, order, begin, end, factors, prefix
        )
        return
    for p in range(end - begin):
        row = order[begin + p] * slots[-1]
        at, to = p * n_columns * width, p * (n_columns + 1) * width
        for r in range(to, to + width, LANES):
            store(prefix, r, fill(table, _ONE))
        for n in range(n_columns):
            base, one = first[n] * width, fill(table, np.float32(constant[n]))
            left, right = row + slots[n], row + slots[n + 1]
            if is_dense(dense, n):
                pass
            elif right - left == 2:
                a, b = np.intp(peek(index, left)) * width, np.intp(peek(index, left + 1)) * width
                va, vb = fill(table, peek(value, left)), fill(table, peek(value, left + 1))
                for r in range(0, width, LANES):
                    m = va * load(table, a + r) + vb * load(table, b + r)
                    store(factors, at + r, m + one * load(table, base + r))
            else:
                for r in range(0, width, LANES):
                    m = one * load(table, base + r)
                    for s in range(left, right):
                        k = np.intp(peek(index, s)) * width
                        m = m + fill(table, peek(value, s)) * load(table, k + r)
                    store(factors, at + r, m)
            for r in range(0, width, LANES):
                store(prefix, to + width + r, load(prefix, to + r) * load(factors, at + r))
            at += width
            to += width


@inner
def _tiled_forward(table, slots, first, constant, index, value, order, begin, end, factors, prefix):
    """Do the same for local columns and a width of one tile: the products stay in registers."""
    n_columns = first.shape[0]
    for p in range(end - begin):
        row = order[begin + p] * slots[-1]
        at, to = p * n_columns * TILE, p * (n_columns + 1) * TILE
        p0 = p1 = p2 = p3 = fill(table, _ONE)
        _store_tile(prefix, to, p0, p1, p2, p3)
        for n in range(n_columns):
            k, one = first[n] * TILE, fill(table, np.float32(constant[n]))
            m0, m1 = one * load(table, k), one * load(table, k + LANES)
            m2, m3 = one * load(table, k + 2 * LANES), one * load(table, k + 3 * LANES)
            for s in range(row + slots[n], row + slots[n + 1]):
                k, v = np.intp(peek(index, s)) * TILE, fill(table, peek(value, s))
                m0, m1 = m0 + v * load(table, k), m1 + v * load(table, k + LANES)
                m2 = m2 + v * load(table, k + 2 * LANES)
                m3 = m3 + v * load(table, k + 3 * LANES)
            _store_tile(factors, at, m0, m1, m2, m3)
            p0, p1, p2, p3 = p0 * m0, p1 * m1, p2 * m2, p3 * m3
            at += TILE
            to += TILE
            _store_tile(prefix, to, p0, p1, p2, p3)


@inner
def _store_tile(array, at, a, b, c, d):
    """Set array[at : at + TILE]."""
    store(array, at, a)
    store(array, at + LANES, b)
    store(array, at + 2 * LANES, c)
    store(array, at + 3 * LANES, d)


@inner
def _add_tile(array, at, v, a, b, c, d):
    """Add v times four vectors to array[at : at + TILE]."""
    store(array, at, load(array, at) + v * a)
    store(array, at + LANES, load(array, at + LANES) + v * b)
    store(array, at + 2 * LANES, load(array, at + 2 * LANES) + v * c)
    store(array, at + 3 * LANES, load(array, at + 3 * LANES) + v * d)


@inner
def dense_factors(table, width, slots, first, constant, dense, value, order, begin, end, factors):
    """Write the factors of the columns whose slots are all of their elements."""
    for n in range(first.shape[0]):
        if dense[n]:
            _dense_column(
                table, width, slots, first, constant, n, value, order, begin, end, factors
            )


@inner
def _dense_column(table, width, slots, first, constant, n, value, order, begin, end, factors):
    """Write the factors of one dense column, four rows at a time."""
    rows, n_columns, n_own = end - begin, first.shape[0], slots[n + 1] - slots[n]
    base, one = first[n] * width, fill(table, np.float32(constant[n]))
    core = base + constant[n] * width
    for p in range(0, rows, 4):
        # If the number of rows is not a multiple of four, the last row is computed again.
        p1, p2, p3 = min(p + 1, rows - 1), min(p + 2, rows - 1), min(p + 3, rows - 1)
        v0 = order[begin + p] * slots[-1] + slots[n]
        v1 = order[begin + p1] * slots[-1] + slots[n]
        v2 = order[begin + p2] * slots[-1] + slots[n]
        v3 = order[begin + p3] * slots[-1] + slots[n]
        # Twelve independent sums keep the arithmetic units busy; the remaining width follows.
        wide = width - width % (3 * LANES)
        for r in range(0, wide, 3 * LANES):
            a0 = b0 = c0 = d0 = one * load(table, base + r)
            a1 = b1 = c1 = d1 = one * load(table, base + r + LANES)
            a2 = b2 = c2 = d2 = one * load(table, base + r + 2 * LANES)
            for s in range(n_own):
                at = core + s * width + r
                t0, t1, t2 = load(table, at), load(table, at + LANES), load(table, at + 2 * LANES)
                v = fill(table, peek(value, v0 + s))
                a0, a1, a2 = a0 + v * t0, a1 + v * t1, a2 + v * t2
                v = fill(table, peek(value, v1 + s))
                b0, b1, b2 = b0 + v * t0, b1 + v * t1, b2 + v * t2
                v = fill(table, peek(value, v2 + s))
                c0, c1, c2 = c0 + v * t0, c1 + v * t1, c2 + v * t2
                v = fill(table, peek(value, v3 + s))
                d0, d1, d2 = d0 + v * t0, d1 + v * t1, d2 + v * t2
            to = (p3 * n_columns + n) * width + r
            store(factors, to, d0)
            store(factors, to + LANES, d1)
            store(factors, to + 2 * LANES, d2)
            to = (p2 * n_columns + n) * width + r
            store(factors, to, c0)
            store(factors, to + LANES, c1)
            store(factors, to + 2 * LANES, c2)
            to = (p1 * n_columns + n) * width + r
            store(factors, to, b0)
            store(factors, to + LANES, b1)
            store(factors, to + 2 * LANES, b2)
            to = (p * n_columns + n) * width + r
            store(factors, to, a0)
            store(factors, to + LANES, a1)
            store(factors, to + 2 * LANES, a2)
        for r in range(wide, width, LANES):
            m0 = m1 = m2 = m3 = one * load(table, base + r)
            for s in range(n_own):
                a = load(table, core + s * width + r)
                m0 = m0 + fill(table, peek(value, v0 + s)) * a
                m1 = m1 + fill(table, peek(value, v1 + s)) * a
                m2 = m2 + fill(table, peek(value, v2 + s)) * a
                m3 = m3 + fill(table, peek(value, v3 + s)) * a
            store(factors, (p3 * n_columns + n) * width + r, m3)
            store(factors, (p2 * n_columns + n) * width + r, m2)
            store(factors, (p1 * n_columns + n) * width + r, m1)
            store(factors, (p * n_columns + n) * width + r, m0)


@inner
def backward(
    table,
    width,
    slots,
    first,
    constant,
    dense,
    index,
    value,
    order,
    begin,
    end,
    factors,
    prefix,
    suffix,
    gradient,
    touched,
    mark,
    count,
):
    """Add the gradients of the rows to `gradient` : (D * W,), given d loss / d product in `suffix`.

    suffix : (rows * W,). Prefix times suffix products, never the full product divided by a factor:
    factors may be zero. Table rows of local columns that this batch touches for the first time are
    added to `touched`, which has `count` entries. `factors` and `suffix` are overwritten. Returns
    the new count.
    """
    n_columns = first.shape[0]
    if dense is None and width == TILE:
        return _tiled_backward(
            table,
            slots,
            first,
            constant,
            index,
            value,
            order,
            begin,
            end,
            factors,
            prefix,
            suffix,
            gradient,
            touched,
            mark,
            count,
        )
    for p in range(end - begin):
        row = order[begin + p] * slots[-1]
        for n in range(n_columns - 1, -1, -1):
            at, to = (p * n_columns + n) * width, (p * (n_columns + 1) + n) * width
            base = first[n] * width
            for r in range(0, width, LANES):
                behind = load(suffix, p * width + r)
                slope = load(prefix, to + r) * behind
                store(suffix, p * width + r, behind * load(factors, at + r))
                store(factors, at + r, slope)
                if constant[n]:
                    store(gradient, base + r, load(gradient, base + r) + slope)
            if is_dense(dense, n):
                continue
            for s in range(row + slots[n], row + slots[n + 1]):
                k = np.intp(peek(index, s))
                if mark[k] == 0:
                    mark[k] = 1
                    touched[count] = k
                    count += 1
                k *= width
                v = fill(table, peek(value, s))
                for r in range(0, width, LANES):
                    store(gradient, k + r, load(gradient, k + r) + v * load(factors, at + r))
    if dense is not None:
        for n in range(n_columns):
            if dense[n]:
                core = (first[n] + constant[n]) * width
                _dense_backward(
                    table,
                    width,
                    slots,
                    n,
                    n_columns,
                    core,
                    value,
                    order,
                    begin,
                    end,
                    factors,
                    gradient,
                )
    return count


@inner
def _tiled_backward(
    table,
    slots,
    first,
    constant,
    index,
    value,
    order,
    begin,
    end,
    factors,
    prefix,
    suffix,
    gradient,
    touched,
    mark,
    count,
):
    """Do the same for local columns and a width of one tile; `factors`, `suffix` are kept."""
    n_columns = first.shape[0]
    for p in range(end - begin):
        row = order[begin + p] * slots[-1]
        for s in range(row + slots[0], row + slots[n_columns]):  # a part has some columns only
            k = np.intp(peek(index, s))
            if mark[k] == 0:
                mark[k] = 1
                touched[count] = k
                count += 1
        k = p * TILE
        b0, b1 = load(suffix, k), load(suffix, k + LANES)
        b2, b3 = load(suffix, k + 2 * LANES), load(suffix, k + 3 * LANES)
        for n in range(n_columns - 1, -1, -1):
            k = (p * (n_columns + 1) + n) * TILE
            s0, s1 = b0 * load(prefix, k), b1 * load(prefix, k + LANES)
            s2, s3 = b2 * load(prefix, k + 2 * LANES), b3 * load(prefix, k + 3 * LANES)
            k = (p * n_columns + n) * TILE
            b0, b1 = b0 * load(factors, k), b1 * load(factors, k + LANES)
            b2, b3 = b2 * load(factors, k + 2 * LANES), b3 * load(factors, k + 3 * LANES)
            if constant[n]:
                _add_tile(gradient, first[n] * TILE, fill(table, _ONE), s0, s1, s2, s3)
            for s in range(row + slots[n], row + slots[n + 1]):
                k, v = np.intp(peek(index, s)) * TILE, fill(table, peek(value, s))
                _add_tile(gradient, k, v, s0, s1, s2, s3)
    return count


@inner
def _dense_backward(
    table, width, slots, n, n_columns, core, value, order, begin, end, slopes, gradient
):
    """Add the gradient of a dense column's core, four rows at a time."""
    rows, n_own = end - begin, slots[n + 1] - slots[n]
    for p in range(0, rows, 4):
        # Rows past the end are included with a slope of zero.
        p1, p2, p3 = min(p + 1, rows - 1), min(p + 2, rows - 1), min(p + 3, rows - 1)
        v0 = order[begin + p] * slots[-1] + slots[n]
        v1 = order[begin + p1] * slots[-1] + slots[n]
        v2 = order[begin + p2] * slots[-1] + slots[n]
        v3 = order[begin + p3] * slots[-1] + slots[n]
        on1 = fill(table, np.float32(p + 1 < rows))
        on2 = fill(table, np.float32(p + 2 < rows))
        on3 = fill(table, np.float32(p + 3 < rows))
        wide = width - width % (3 * LANES)
        for r in range(0, wide, 3 * LANES):
            q = (p * n_columns + n) * width + r
            a0, a1, a2 = load(slopes, q), load(slopes, q + LANES), load(slopes, q + 2 * LANES)
            q = (p1 * n_columns + n) * width + r
            b0, b1 = on1 * load(slopes, q), on1 * load(slopes, q + LANES)
            b2 = on1 * load(slopes, q + 2 * LANES)
            q = (p2 * n_columns + n) * width + r
            c0, c1 = on2 * load(slopes, q), on2 * load(slopes, q + LANES)
            c2 = on2 * load(slopes, q + 2 * LANES)
            q = (p3 * n_columns + n) * width + r
            e0, e1 = on3 * load(slopes, q), on3 * load(slopes, q + LANES)
            e2 = on3 * load(slopes, q + 2 * LANES)
            for s in range(n_own):
                at = core + s * width + r
                g0, g1 = load(gradient, at), load(gradient, at + LANES)
                g2 = load(gradient, at + 2 * LANES)
                v = fill(table, peek(value, v0 + s))
                g0, g1, g2 = g0 + v * a0, g1 + v * a1, g2 + v * a2
                v = fill(table, peek(value, v1 + s))
                g0, g1, g2 = g0 + v * b0, g1 + v * b1, g2 + v * b2
                v = fill(table, peek(value, v2 + s))
                g0, g1, g2 = g0 + v * c0, g1 + v * c1, g2 + v * c2
                v = fill(table, peek(value, v3 + s))
                store(gradient, at, g0 + v * e0)
                store(gradient, at + LANES, g1 + v * e1)
                store(gradient, at + 2 * LANES, g2 + v * e2)
        for r in range(wide, width, LANES):
            d0 = load(slopes, (p * n_columns + n) * width + r)
            d1 = on1 * load(slopes, (p1 * n_columns + n) * width + r)
            d2 = on2 * load(slopes, (p2 * n_columns + n) * width + r)
            d3 = on3 * load(slopes, (p3 * n_columns + n) * width + r)
            for s in range(n_own):
                at = core + s * width + r
                g = load(gradient, at) + fill(table, peek(value, v0 + s)) * d0
                g = g + fill(table, peek(value, v1 + s)) * d1
                g = g + fill(table, peek(value, v2 + s)) * d2
                store(gradient, at, g + fill(table, peek(value, v3 + s)) * d3)


@inner
def read_out(weights, intercept, prefix, n_columns, raw):
    """Write C' p plus the intercept to raw : (rows, L), with p the full product."""
    n_outputs = raw.shape[1]
    width = weights.shape[0] // n_outputs
    for p in range(raw.shape[0]):
        last = (p * (n_columns + 1) + n_columns) * width
        for k in range(n_outputs):
            out = fill(weights, _ZERO)
            for r in range(0, width, LANES):
                out = out + load(weights, k * width + r) * load(prefix, last + r)
            # In double precision if raw is: the intercept may be much larger than the rest.
            raw[p, k] = intercept[k] + total(out)


@inner
def add_additive(additive, slots, first, constant, index, value, order, begin, end, raw):
    """Add the additive part of the rows, where there is one, to raw : (rows, L)."""
    if additive is None:
        return
    n_outputs = raw.shape[1]
    for p in range(end - begin):
        row = order[begin + p] * slots[-1]
        for n in range(first.shape[0]):
            for k in range(n_outputs):
                if constant[n]:
                    raw[p, k] += additive[first[n] * n_outputs + k]
                for s in range(row + slots[n], row + slots[n + 1]):
                    raw[p, k] += peek(value, s) * additive[np.intp(peek(index, s)) * n_outputs + k]
