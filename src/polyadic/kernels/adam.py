"""One epoch of Adam on mini-batches, compiled: gather, contract, loss, back-sweep, update.

The cost of a step is O(batch * N * s * W): only the rows of the table that a batch touches are
updated, whatever the number of knots or categories. Each row counts its own steps, so that a dense
column follows textbook Adam and a rare category starts as fresh as a frequent one. The running
average of a row is brought up to date when the row is touched, with the same result as at every
step, since the row did not move in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.cp import (
    GUARD,
    LINE,
    add_additive,
    backward,
    block_size,
    fetch,
    forward,
    read_out,
)
from polyadic.kernels.jit import jit, jit_shared
from polyadic.kernels.losses import weighted_losses
from polyadic.kernels.penalties import add_band_gradient, order_penalty
from polyadic.kernels.simd import (
    LANES,
    fill,
    flush_denormals,
    load,
    prefetch,
    restore_denormals,
    root,
    store,
)

_ZERO, _ONE = np.float32(0), np.float32(1)
AHEAD = 8  # rows of the table whose moments are fetched in advance
BETA1, BETA2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class Parameters(NamedTuple):
    """What is learnt. Shapes as in `polyadic.kernels.cp`."""

    table: np.ndarray  # (D * W,)
    weights: np.ndarray  # (L * W,)
    additive: np.ndarray  # (D * L,) or (0,)


class Moments(NamedTuple):
    """Adam's memory of one parameter array, and the running average of that array."""

    first: np.ndarray
    second: np.ndarray
    average: np.ndarray


class Clock(NamedTuple):
    """How often each row of the table was updated, in the forms the update needs."""

    decay1: np.ndarray  # (D,) beta1 ** updates
    decay2: np.ndarray  # (D,) beta2 ** updates
    last: np.ndarray  # (D,) the step of the latest update
    step: np.ndarray  # (1,) steps so far


class Rows(NamedTuple):
    """Training rows: local features, targets, weights of mean one."""

    slot: np.ndarray  # (n * S,) the table row each slot points to
    value: np.ndarray  # (n * S,)
    y: np.ndarray  # (n, L or 1)
    weight: np.ndarray  # (n,)


class Penalty(NamedTuple):
    """Band of the quadratic penalty, already over the chance that a batch meets the row."""

    band: np.ndarray  # (D, 5)
    alpha: float  # 0 turns the order penalty off
    emphasis: np.ndarray  # (D,) the vector b of the order penalty
    dims: np.ndarray  # (N,)


@jit
def _update(array, m1, m2, average, gradient, at, stop, step_size, root2, fresh, keep):
    """Move array[at:stop] by Adam, average it, and clear the gradient."""
    b1, c1 = fill(array, BETA1), fill(array, _ONE - BETA1)
    b2, c2 = fill(array, BETA2), fill(array, _ONE - BETA2)
    rate, eps, scale = fill(array, step_size), fill(array, EPSILON), fill(array, root2)
    old, new = fill(array, keep), fill(array, _ONE - keep)
    stale, current = fill(array, _ONE - fresh), fill(array, fresh)
    for r in range(at, stop, LANES):
        g, a = load(gradient, r), load(array, r)
        m = b1 * load(m1, r) + c1 * g
        v = b2 * load(m2, r) + c2 * (g * g)
        # The average first catches up with the steps in which this row stood still.
        mean = stale * load(average, r) + current * a
        a = a - rate * m / (root(v) * scale + eps)
        store(array, r, a)
        store(m1, r, m)
        store(m2, r, v)
        store(average, r, old * mean + new * a)
        store(gradient, r, fill(array, _ZERO))


@jit
def _update_scalars(array, m1, m2, average, gradient, at, stop, step_size, root2, fresh, keep):
    """Do the same for a run that is too short for vectors."""
    for r in range(at, stop):
        g = gradient[r]
        m = BETA1 * m1[r] + (_ONE - BETA1) * g
        v = BETA2 * m2[r] + (_ONE - BETA2) * g * g
        mean = (_ONE - fresh) * average[r] + fresh * array[r]
        array[r] -= step_size * m / (np.sqrt(v) * root2 + EPSILON)
        m1[r], m2[r] = m, v
        average[r] = keep * mean + (_ONE - keep) * array[r]
        gradient[r] = _ZERO


@jit
def _power(log_base, exponent):
    return np.exp(np.float32(exponent) * log_base) if exponent > 0 else _ONE


@jit_shared
def read_back(weights, slope, prefix, n_columns, suffix, gradient):
    """Write C g to `suffix`, with g the slope of the loss, and add p g' to the gradient of C."""
    n_outputs = slope.shape[1]
    width = weights.shape[0] // n_outputs
    for p in range(slope.shape[0]):
        last = (p * (n_columns + 1) + n_columns) * width
        for r in range(0, width, LANES):
            behind, product = fill(weights, _ZERO), load(prefix, last + r)
            for k in range(n_outputs):
                at, g = k * width + r, fill(weights, slope[p, k])
                behind = behind + g * load(weights, at)
                store(gradient, at, load(gradient, at) + g * product)
            store(suffix, p * width + r, behind)


@jit_shared
def additive_backward(slots, first, constant, index, value, order, begin, slope, gradient):
    """Add the gradient of the additive part, with `slope` that of the loss : (rows, L)."""
    n_outputs = slope.shape[1]
    for p in range(slope.shape[0]):
        row = order[begin + p] * slots[-1]
        for n in range(first.shape[0]):
            for k in range(n_outputs):
                if constant[n]:
                    gradient[first[n] * n_outputs + k] += slope[p, k]
                for s in range(row + slots[n], row + slots[n + 1]):
                    gradient[np.intp(index[s]) * n_outputs + k] += value[s] * slope[p, k]


@jit
def batch_gradient(
    parameters,
    layout,
    rows,
    order,
    start,
    stop,
    intercept,
    code,
    shape,
    gradients,
    touched,
    mark,
    count,
):
    """Add the gradient of the mean loss over the rows order[start:stop] to `gradients`.

    Returns the sum of the losses and the number of table rows met, listed in `touched`.
    """
    table, weights, additive = parameters.table, parameters.weights, parameters.additive
    slots, first, constant, dense = layout.slots, layout.first, layout.constant, layout.dense
    index, value, g_table = rows.slot, rows.value, gradients.table
    n_outputs, n_columns = intercept.shape[0], first.shape[0]
    width = weights.shape[0] // n_outputs
    block = block_size(n_columns, width)
    factors = np.empty(block * n_columns * width, table.dtype)
    prefix = np.empty(block * (n_columns + 1) * width, table.dtype)
    suffix = np.empty(block * width, table.dtype)
    raws = np.empty((block, n_outputs), table.dtype)
    slopes = np.empty((block, n_outputs), table.dtype)
    total_loss = 0.0
    for begin in range(start, stop, block):
        end = min(begin + block, stop)
        raw, slope = raws[: end - begin], slopes[: end - begin]
        last = order.shape[0]
        next_, far = min(end + block, last), min(end + 2 * block, last)
        fetch(table, g_table, width, slots, first, index, value, order, end, next_, far)
        forward(
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
        )
        read_out(weights, intercept, prefix, n_columns, raw)
        if additive.shape[0] > 0:
            add_additive(additive, slots, first, constant, index, value, order, begin, end, raw)
        total_loss += weighted_losses(code, shape, rows.y, rows.weight, order, begin, raw, slope)
        slope *= np.float32(1) / np.float32(stop - start)
        read_back(weights, slope, prefix, n_columns, suffix, gradients.weights)
        if additive.shape[0] > 0:
            additive_backward(
                slots, first, constant, index, value, order, begin, slope, gradients.additive
            )
        count = backward(
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
            g_table,
            touched,
            mark,
            count,
        )
    return total_loss, count


@jit
def train_epoch(
    parameters,
    moments,
    clock,
    gradients,
    layout,
    rows,
    order,
    batch,
    rates,
    keep,
    intercept,
    code,
    shape,
    penalty,
    weights_mask,
    always,
):
    """Run one epoch and return the mean training loss met on the way.

    order : (n,) the rows in their order of use; rates : one learning rate a step; keep : the weight
    of the past in the running average; always : the table rows that every batch touches.
    """
    table, weights, additive = parameters.table, parameters.weights, parameters.additive
    n_outputs = intercept.shape[0]
    width = weights.shape[0] // n_outputs
    n_columns, n_table, n_always = layout.first.shape[0], penalty.band.shape[0], always.shape[0]
    touched = np.empty(n_table, np.intp)
    mark = np.zeros(n_table, np.uint8)
    touched[:n_always] = always
    mark[always] = 1
    n_order = (2 * n_columns + 2) if penalty.alpha > 0 else 0
    work = np.empty((n_order, width * width), table.dtype)
    total_loss = 0.0
    normal = flush_denormals()
    for j in range(rates.shape[0]):
        begin, end = j * batch, min((j + 1) * batch, order.shape[0])
        loss, count = batch_gradient(
            parameters,
            layout,
            rows,
            order,
            begin,
            end,
            intercept,
            code,
            shape,
            gradients,
            touched,
            mark,
            n_always,
        )
        total_loss += loss
        met = touched[:count]
        add_band_gradient(table, width, penalty.band, met, gradients.table)
        if additive.shape[0] > 0:
            add_band_scalars(additive, n_outputs, penalty.band, met, gradients.additive)
        if penalty.alpha > 0:
            order_penalty(
                table,
                weights,
                n_outputs,
                layout.first,
                penalty.dims,
                penalty.emphasis,
                penalty.alpha,
                work,
                gradients.table,
                gradients.weights,
            )
        clock.step[0] += 1
        move_rows(
            parameters, moments, clock, gradients, met, clock.step[0], rates[j], keep, n_outputs
        )
        move_weights(parameters, moments, clock, gradients, rates[j], keep, weights_mask)
        for k in range(n_always, count):
            mark[touched[k]] = 0
    restore_denormals(normal)
    return total_loss / order.shape[0]


@jit_shared
def add_band_scalars(array, width, band, rows, gradient):
    """Add the gradient of the quadratic penalty of these rows, too short for vectors."""
    for j in range(rows.shape[0]):
        for b in range(5):
            v = np.float32(2) * band[rows[j], b]
            if v != _ZERO:
                for r in range(width):
                    other = (rows[j] + b - 2) * width + r
                    gradient[rows[j] * width + r] += v * array[other]


@jit_shared
def move_rows(parameters, moments, clock, gradients, met, step, rate, keep, n_outputs):
    """Update the rows met, in the step of this number."""
    table, additive = parameters.table, parameters.additive
    g_table, g_additive = gradients.table, gradients.additive
    m1, m2, average = moments[0].first, moments[0].second, moments[0].average
    a1, a2, a_average = moments[2].first, moments[2].second, moments[2].average
    decay1, decay2, last = clock.decay1, clock.decay2, clock.last
    width, log_keep = parameters.weights.shape[0] // n_outputs, np.log(keep)
    for j in range(met.shape[0]):
        k = met[j]
        if j + AHEAD < met.shape[0]:
            ahead = met[j + AHEAD]
            prefetch(decay1, ahead)
            prefetch(decay2, ahead)
            prefetch(last, ahead)
            ahead *= width
            for r in range(ahead, ahead + width, LINE):
                prefetch(m1, r)
                prefetch(m2, r)
                prefetch(average, r)
        decay1[k] *= BETA1
        decay2[k] *= BETA2
        size = rate / (_ONE - decay1[k])
        root2 = _ONE / np.sqrt(_ONE - decay2[k])
        fresh = _ONE - _power(log_keep, step - 1 - last[k])
        last[k] = step
        at, stop = k * width, (k + 1) * width
        _update(table, m1, m2, average, g_table, at, stop, size, root2, fresh, keep)
        if additive.shape[0] > 0:
            at, stop = k * n_outputs, (k + 1) * n_outputs
            _update_scalars(
                additive, a1, a2, a_average, g_additive, at, stop, size, root2, fresh, keep
            )


@jit_shared
def move_weights(parameters, moments, clock, gradients, rate, keep, mask):
    """Update the output weights, where the mask lets them move."""
    decay1, decay2, gradient = clock.decay1, clock.decay2, gradients.weights
    for r in range(mask.shape[0]):
        gradient[r] *= mask[r]
    # The weights move at every step: the first guard row of the table lends them its clock.
    decay1[0] *= BETA1
    decay2[0] *= BETA2
    size = rate / (_ONE - decay1[0])
    root2 = _ONE / np.sqrt(_ONE - decay2[0])
    first, second, average = moments[1].first, moments[1].second, moments[1].average
    stop = gradient.shape[0]
    _update(parameters.weights, first, second, average, gradient, 0, stop, size, root2, _ZERO, keep)


@jit
def settle(parameters, moments, clock, keep, n_outputs, average):
    """Write the running averages, brought up to date for every row, to `average`."""
    width, log_keep = parameters.weights.shape[0] // n_outputs, np.log(keep)
    for k in range(GUARD, clock.last.shape[0] - GUARD):
        fresh = _ONE - _power(log_keep, clock.step[0] - clock.last[k])
        for r in range(k * width, (k + 1) * width):
            past = moments[0].average[r]
            average.table[r] = past + fresh * (parameters.table[r] - past)
        if parameters.additive.shape[0] > 0:
            for r in range(k * n_outputs, (k + 1) * n_outputs):
                past = moments[2].average[r]
                average.additive[r] = past + fresh * (parameters.additive[r] - past)
    average.weights[:] = moments[1].average
