"""Contract rows for prediction: nothing is kept to go back by.

Shapes as in `polyadic.kernels.cp`.
"""

from __future__ import annotations

import numpy as np

from polyadic.kernels.cp import add_additive, block_size, dense_factors, read_out
from polyadic.kernels.encode import hats
from polyadic.kernels.jit import jit
from polyadic.kernels.simd import LANES, fill, flush_denormals, load, restore_denormals, store

_ONE = np.float32(1)
_BLOCK = 64  # rows of hats encoded at a time


@jit
def multiply(
    table, width, slots, first, constant, dense, index, value, order, begin, end, factors, products
):
    """Write the product of each row's factors : (rows * W,), and no more than it takes.

    Where nothing goes back, factors need not be kept: `forward` would take twice as long. Only
    dense columns write theirs to `factors`.
    """
    n_columns = first.shape[0]
    for n in range(n_columns):
        if dense[n]:
            dense_factors(
                table, width, slots, first, constant, n, value, order, begin, end, factors
            )
    for p in range(end - begin):
        row, to = order[begin + p] * slots[-1], p * width
        for r in range(to, to + width, LANES):
            store(products, r, fill(table, _ONE))
        for n in range(n_columns):
            base, one = first[n] * width, fill(table, np.float32(constant[n]))
            left, right = row + slots[n], row + slots[n + 1]
            if dense[n]:
                at = (p * n_columns + n) * width
                for r in range(0, width, LANES):
                    store(products, to + r, load(products, to + r) * load(factors, at + r))
            elif right - left == 2:
                a, b = np.intp(index[left]) * width, np.intp(index[left + 1]) * width
                va, vb = fill(table, value[left]), fill(table, value[left + 1])
                for r in range(0, width, LANES):
                    m = va * load(table, a + r) + vb * load(table, b + r)
                    m = m + one * load(table, base + r)
                    store(products, to + r, load(products, to + r) * m)
            else:
                for r in range(0, width, LANES):
                    m = one * load(table, base + r)
                    for s in range(left, right):
                        m = m + fill(table, value[s]) * load(table, np.intp(index[s]) * width + r)
                    store(products, to + r, load(products, to + r) * m)


@jit
def contract(table, weights, additive, intercept, layout, index, value, order, out):
    """Write the raw predictions of the rows in `order`, out : (rows, L) float64."""
    slots, first, constant = layout.slots, layout.first, layout.constant
    n_columns, width = first.shape[0], weights.shape[0] // out.shape[1]
    block = block_size(n_columns, width)
    factors = np.empty(block * n_columns * width, table.dtype)
    products = np.empty(block * width, table.dtype)
    normal = flush_denormals()
    for begin in range(0, order.shape[0], block):
        end = min(begin + block, order.shape[0])
        multiply(
            table,
            width,
            slots,
            first,
            constant,
            layout.dense,
            index,
            value,
            order,
            begin,
            end,
            factors,
            products,
        )
        raw = out[begin:end]
        read_out(weights, intercept, products, 0, raw)
        if additive.shape[0] > 0:
            add_additive(additive, slots, first, constant, index, value, order, begin, end, raw)
    restore_denormals(normal)


@jit
def _hat_products(table, width, n_columns, index, value, rows, products):
    """Write the product of each row's factors, two columns at a time to spare the memory.

    The last two slots are a factor of one, the partner of a last odd column.
    """
    for p in range(rows):
        row, to = p * 2 * n_columns, p * width
        for r in range(to, to + width, LANES):
            store(products, r, fill(table, _ONE))
        for n in range(0, n_columns, 2):
            s = row + 2 * n
            t = s + 2 if n + 1 < n_columns else index.shape[0] - 2
            a, b = np.intp(index[s]) * width, np.intp(index[s + 1]) * width
            c, d = np.intp(index[t]) * width, np.intp(index[t + 1]) * width
            va, vb = fill(table, value[s]), fill(table, value[s + 1])
            vc, vd = fill(table, value[t]), fill(table, value[t + 1])
            for r in range(0, width, LANES):
                m = va * load(table, a + r) + vb * load(table, b + r)
                m = m * (vc * load(table, c + r) + vd * load(table, d + r))
                store(products, to + r, load(products, to + r) * m)


@jit
def contract_hats(table, weights, additive, intercept, layout, knots, ends, x, out):
    """Encode and contract rows whose columns are all hats, x : (N, n) float64, a block at a time.

    Every element of the table has its column's constant added to it, and row 0 is ones. Column n
    has the knots ends[n] : ends[n + 1].
    """
    slots, first, constant = layout.slots, layout.first, layout.constant
    (n_columns, n_rows), width = x.shape, weights.shape[0] // out.shape[1]
    index = np.zeros(_BLOCK * 2 * n_columns + 2, np.int32)
    value = np.zeros(_BLOCK * 2 * n_columns + 2, np.float32)
    value[-2] = 1.0
    indices = index[:-2].reshape(_BLOCK, 2 * n_columns)
    values = value[:-2].reshape(_BLOCK, 2 * n_columns)
    products = np.empty(_BLOCK * width, table.dtype)
    order = np.arange(_BLOCK)
    normal = flush_denormals()
    for begin in range(0, n_rows, _BLOCK):
        end = min(begin + _BLOCK, n_rows)
        for n in range(n_columns):
            own, two = knots[ends[n] : ends[n + 1]], slice(2 * n, 2 * n + 2)
            hats(x[n, begin:end], own, first[n] + 1, 1.0, indices[:, two], values[:, two])
        _hat_products(table, width, n_columns, index, value, end - begin, products)
        raw = out[begin:end]
        read_out(weights, intercept, products, 0, raw)
        if additive.shape[0] > 0:
            add_additive(additive, slots, first, constant, index, value, order, 0, end - begin, raw)
    restore_denormals(normal)
