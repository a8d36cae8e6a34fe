"""One epoch of Adam with the columns split into parts, which several threads can work on.

A part has neighbouring columns, with their rows of the table, their gradients and moments: between
parts only one product of factors per row is exchanged, and never a gradient. How the columns are
split does not depend on the number of threads, and so neither does any bit of the result. A block
of rows takes three turns: the product of each part's columns; the loss and its slopes, each part
for its share of the rows; the gradients of each part's columns and, after the last block of a
batch, their update.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.adam import (
    add_band_scalars,
    additive_backward,
    move_rows,
    move_weights,
    read_back,
    scale_slopes,
)
from polyadic.kernels.cp import Layout, add_additive, backward, fetch, forward, read_out
from polyadic.kernels.jit import inner, jit
from polyadic.kernels.losses import add_losses
from polyadic.kernels.penalties import add_band_gradient
from polyadic.kernels.sharing import claim, finish, wait
from polyadic.kernels.simd import LANES, flush_denormals, load, restore_denormals, store

PARTS = 2  # of the columns; also the most threads that one model can use
_FORWARD, _LOSS, _BACKWARD, _TURNS = 0, 1, 2, 3  # the turns of a block of rows
_ZERO, _ONE = np.float32(0), np.float32(1)


class Part(NamedTuple):
    """The columns of a part, and its work arrays for a block of rows."""

    layout: Layout  # of its columns; the last of `slots` is still the number of slots in a row
    n_always: int  # number of its table rows that every batch touches
    touched: np.ndarray  # (D,) those rows, then the others that this batch has touched
    n_met: np.ndarray  # (1,) number of table rows touched by this batch
    factors: np.ndarray  # (rows * N * W,)
    prefix: np.ndarray  # (rows * (N + 1) * W,)
    suffix: np.ndarray  # (rows * W,)
    loss: np.ndarray  # (1,) the sum over its share of the rows, in this epoch
    weights: np.ndarray  # (L * W,) gradient of the output weights over its share of the rows


class Shared(NamedTuple):
    """Work arrays for a block of rows that all parts share."""

    mark: np.ndarray  # (D,) whether the batch has touched a table row
    product: np.ndarray  # (rows * W,) of all factors
    behind: np.ndarray  # (rows * W,) the slope of the loss with respect to that product
    raw: np.ndarray  # (rows, L)
    slope: np.ndarray  # (rows, L)


@jit
def split_epoch(me, board, job, shared, parts, order, batch, rates, keep, step):
    """Work on an epoch as thread number `me`: as `train_epoch`, but without the order penalty.

    step : number of steps before this epoch. A thread may start late, when others have changed the
    clock: nothing that changes during the epoch may be read outside of a claimed part.
    """
    normal = flush_denormals()
    block, turn = shared.raw.shape[0], 0
    for j in range(rates.shape[0]):
        start, stop = j * batch, min((j + 1) * batch, order.shape[0])
        for begin in range(start, stop, block):
            end = min(begin + block, stop)
            for kind in range(_TURNS):
                for q in range(PARTS):
                    p = (me + q) % PARTS
                    if not claim(board, p, turn):
                        continue
                    if kind == _FORWARD:
                        _multiply(job, parts[p], order, begin, end)
                    elif kind == _LOSS:
                        _add_part_losses(job, shared, parts, p, order, begin, end, stop - start)
                    else:
                        _add_part_gradients(job, shared, parts, p, order, begin, end)
                        if end == stop:
                            _update_part(job, shared, parts, p, step + j + 1, rates[j], keep)
                    finish(board, p, turn)
                wait(board, turn)
                turn += 1
    restore_denormals(normal)


@inner
def _multiply(job, part, order, begin, end):
    """Write the factors of the part's columns and their prefix products for the rows."""
    table, width = job.parameters.table, part.weights.shape[0] // job.intercept.shape[0]
    own, rows, last = part.layout, job.rows, order.shape[0]
    next_, far = min(2 * end - begin, last), min(3 * end - 2 * begin, last)
    fetch(
        table,
        job.gradients.table,
        width,
        own.slots,
        own.first,
        rows.slot,
        rows.value,
        order,
        end,
        next_,
        far,
    )
    forward(
        table,
        width,
        own.slots,
        own.first,
        own.constant,
        own.dense,
        rows.slot,
        rows.value,
        order,
        begin,
        end,
        part.factors,
        part.prefix,
    )


@inner
def _add_part_losses(job, shared, parts, p, order, begin, end, size):
    """Compute losses and slopes of the part's share of the rows, and their weight gradient."""
    layout, rows, weights = job.layout, job.rows, job.parameters.weights
    width = weights.shape[0] // job.intercept.shape[0]
    low, high = (end - begin) * p // PARTS, (end - begin) * (p + 1) // PARTS
    product, behind = shared.product[low * width :], shared.behind[low * width :]
    raw, slope = shared.raw[low:high], shared.slope[low:high]
    for r in range((high - low) * width):
        product[r] = _ONE
    for q in range(PARTS):
        _times(product, parts[q], low, high, width, product)
    read_out(weights, job.intercept, product, 0, raw)
    add_additive(
        job.parameters.additive,
        layout.slots,
        layout.first,
        layout.constant,
        rows.slot,
        rows.value,
        order,
        begin + low,
        begin + high,
        raw,
    )
    parts[p].loss[0] += add_losses(job.loss, rows.y, rows.weight, order, begin + low, raw, slope)
    scale_slopes(slope, _ONE / np.float32(size))
    read_back(weights, slope, product, 0, behind, parts[p].weights)


@inner
def _times(source, part, low, high, width, out):
    """Multiply by the product of a part's factors, for the rows low:high of the block."""
    n_columns = part.layout.first.shape[0]
    for i in range(high - low):
        last = ((low + i) * (n_columns + 1) + n_columns) * width
        for r in range(0, width, LANES):
            store(out, i * width + r, load(source, i * width + r) * load(part.prefix, last + r))


@inner
def _add_part_gradients(job, shared, parts, p, order, begin, end):
    """Add the gradients of the part's columns, and list the table rows that are touched."""
    part, rows, width = parts[p], job.rows, parts[p].weights.shape[0] // job.intercept.shape[0]
    own = part.layout
    source = shared.behind
    for q in range(PARTS):
        if q != p:
            _times(source, parts[q], 0, end - begin, width, part.suffix)
            source = part.suffix
    additive_backward(
        own.slots,
        own.first,
        own.constant,
        rows.slot,
        rows.value,
        order,
        begin,
        shared.slope[: end - begin],
        job.gradients.additive,
    )
    part.n_met[0] = backward(
        job.parameters.table,
        width,
        own.slots,
        own.first,
        own.constant,
        own.dense,
        rows.slot,
        rows.value,
        order,
        begin,
        end,
        part.factors,
        part.prefix,
        part.suffix,
        job.gradients.table,
        part.touched,
        shared.mark,
        part.n_met[0],
    )


@inner
def _update_part(job, shared, parts, p, step, rate, keep):
    """Update the table rows of the part's columns; the first part also the output weights."""
    parameters, gradients, part = job.parameters, job.gradients, parts[p]
    n_outputs, band, count = job.intercept.shape[0], job.band, part.n_met[0]
    width = part.weights.shape[0] // n_outputs
    add_band_gradient(parameters.table, width, band, part.touched, count, gradients.table)
    add_band_scalars(parameters.additive, n_outputs, band, part.touched, count, gradients.additive)
    move_rows(job, part.touched, count, step, rate, keep)
    for k in range(part.n_always, count):
        shared.mark[part.touched[k]] = 0
    part.n_met[0] = part.n_always
    if p == 0:
        for q in range(PARTS):
            extra = parts[q].weights
            for r in range(extra.shape[0]):
                gradients.weights[r] += extra[r]
                extra[r] = _ZERO
        move_weights(job, rate, keep)
        job.clock.step[0] = step
