"""Contract rows for prediction, without keeping what gradients would need.

Shapes as in `polyadic.kernels.cp`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.cp import add_additive, dense_factors, is_dense, read_out
from polyadic.kernels.encode import write_hats
from polyadic.kernels.jit import inner, jit
from polyadic.kernels.simd import LANES, fill, flush_denormals, load, restore_denormals, store

_ZERO, _ONE = np.float32(0), np.float32(1)
HAT_ROWS = 64  # rows of hats encoded at once; chosen by hand


class Workspace(NamedTuple):
    """Work arrays of `contract`, for a block of rows."""

    factors: np.ndarray  # (rows * N * W,) of dense columns
    products: np.ndarray  # (rows * W,)


class HatWorkspace(NamedTuple):
    """Work arrays of `contract_hats`, for a block of rows."""

    slot: np.ndarray  # (HAT_ROWS, 2 N) int32, the table row each slot points to
    value: np.ndarray  # (HAT_ROWS, 2 N) float32
    products: np.ndarray  # (HAT_ROWS * W,)


@inner
def multiply(
    table, width, slots, first, constant, dense, index, value, order, begin, end, factors, products
):
    """Write the product of each row's factors : (rows * W,).

    Without gradients, factors and prefix products need not be kept; `forward`, which keeps them,
    would take twice as long. Only dense columns write theirs to `factors`.
    """
    n_columns = first.shape[0]
    if dense is not None:
        dense_factors(
            table, width, slots, first, constant, dense, value, order, begin, end, factors
        )
    for p in range(end - begin):
        row, to = order[begin + p] * slots[-1], p * width
        for r in range(to, to + width, LANES):
            store(products, r, fill(table, _ONE))
        for n in range(n_columns):
            base, one = first[n] * width, fill(table, np.float32(constant[n]))
            left, right = row + slots[n], row + slots[n + 1]
            if is_dense(dense, n):
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
def contract(table, weights, additive, intercept, layout, index, value, order, workspace, out):
    """Write the raw predictions of the rows in `order`, out : (rows, L) float64."""
    slots, first, constant = layout.slots, layout.first, layout.constant
    width = weights.shape[0] // out.shape[1]
    block = workspace.products.shape[0] // width
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
            workspace.factors,
            workspace.products,
        )
        raw = out[begin:end]
        read_out(weights, intercept, workspace.products, 0, raw)
        add_additive(additive, slots, first, constant, index, value, order, begin, end, raw)
    restore_denormals(normal)


@inner
def _hat_products(table, width, n_columns, index, value, rows, products):
    """Write the product of each row's factors, two columns at a time, to access memory less.

    Row 0 of the table is ones, the partner of the last column if their number is odd.
    """
    for p in range(rows):
        to = p * width
        for r in range(to, to + width, LANES):
            store(products, r, fill(table, _ONE))
        for n in range(0, n_columns, 2):
            s = 2 * n
            a, b = np.intp(index[p, s]) * width, np.intp(index[p, s + 1]) * width
            va, vb = fill(table, value[p, s]), fill(table, value[p, s + 1])
            c, d, vc, vd = np.intp(0), np.intp(0), fill(table, _ONE), fill(table, _ZERO)
            if n + 1 < n_columns:
                c, d = np.intp(index[p, s + 2]) * width, np.intp(index[p, s + 3]) * width
                vc, vd = fill(table, value[p, s + 2]), fill(table, value[p, s + 3])
            for r in range(0, width, LANES):
                m = va * load(table, a + r) + vb * load(table, b + r)
                m = m * (vc * load(table, c + r) + vd * load(table, d + r))
                store(products, to + r, load(products, to + r) * m)


@jit
def contract_hats(table, weights, additive, intercept, first, knots, ends, x, workspace, out):
    """Encode and contract rows whose columns are all hats, x : (N, n) float64, block by block.

    The constant of a column is already added to all its table rows, and table row 0 is ones. Column
    n has the knots ends[n] : ends[n + 1], and the table row first[n] of its element 0.
    """
    (n_columns, n_rows), width = x.shape, weights.shape[0] // out.shape[1]
    index, value = workspace.slot, workspace.value
    normal = flush_denormals()
    for begin in range(0, n_rows, HAT_ROWS):
        end = min(begin + HAT_ROWS, n_rows)
        for n in range(n_columns):
            own = knots[ends[n] : ends[n + 1]]
            write_hats(x[n, begin:end], own, first[n] + 1, 1.0, 2 * n, index, value)
        _hat_products(table, width, n_columns, index, value, end - begin, workspace.products)
        raw = out[begin:end]
        read_out(weights, intercept, workspace.products, 0, raw)
        _add_hats_additive(additive, index, value, end - begin, raw)
    restore_denormals(normal)


@inner
def _add_hats_additive(additive, index, value, rows, raw):
    """Add the additive part of encoded rows, where there is one, to raw : (rows, L)."""
    if additive is None:
        return
    n_outputs = raw.shape[1]
    for p in range(rows):
        for k in range(n_outputs):
            for s in range(index.shape[1]):
                raw[p, k] += value[p, s] * additive[np.intp(index[p, s]) * n_outputs + k]
