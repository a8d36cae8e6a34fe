"""One epoch of Adam on mini-batches, compiled: gather, contract, loss, gradients, update.

The cost of a step is O(batch * N * s * W), for any number of knots or categories: only the table
rows that a batch touches are updated. Each table row counts its own steps, so that a dense column
follows textbook Adam, and the bias correction of a rare category starts with its first step. The
running average of a table row is updated when the row is touched, with the same result as if it
were updated at every step, since the row did not move in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.cp import (
    GUARD,
    LINE,
    Layout,
    add_additive,
    backward,
    block_size,
    fetch,
    forward,
    read_out,
)
from polyadic.kernels.jit import inner, jit
from polyadic.kernels.losses import LossForm, add_losses
from polyadic.kernels.penalties import OrderPenalty, add_band_gradient, add_order_gradient
from polyadic.kernels.simd import (
    LANES,
    aligned,
    fill,
    flush_denormals,
    load,
    prefetch,
    restore_denormals,
    root,
    store,
)

_ZERO, _ONE = np.float32(0), np.float32(1)
AHEAD = 8  # moments are prefetched this many table rows in advance; chosen by hand
BETA1, BETA2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)  # Kingma and Ba, 2015


class Parameters(NamedTuple):
    """The parameters that are trained. Shapes as in `polyadic.kernels.cp`."""

    table: np.ndarray  # (D * W,)
    weights: np.ndarray  # (L * W,)
    additive: np.ndarray | None  # (D * L,)

    def zeros(self) -> Parameters:
        """Return zeros of the same shapes."""
        additive = None if self.additive is None else np.zeros_like(self.additive)
        table = aligned(len(self.table), self.table.dtype)
        return Parameters(table, aligned(len(self.weights), self.weights.dtype), additive)


class AdamMoments(NamedTuple):
    """Adam's two moments of one parameter array, and the running average of that array."""

    first: np.ndarray
    second: np.ndarray
    average: np.ndarray

    @classmethod
    def start(cls, array: np.ndarray) -> AdamMoments:
        """Return moments of zero, and the array itself as its average."""
        first, second, average = (aligned(len(array), array.dtype) for _ in range(3))
        average[:] = array
        return cls(first, second, average)


class Clock(NamedTuple):
    """How often each table row was updated, in the forms that the update needs."""

    decay1: np.ndarray  # (D,) beta1 ** updates
    decay2: np.ndarray  # (D,) beta2 ** updates
    last: np.ndarray  # (D,) the step of the latest update
    step: np.ndarray  # (1,) steps so far


class FlatRows(NamedTuple):
    """Training rows: local features, targets, weights of mean one."""

    slot: np.ndarray  # (n * S,) the table row each slot points to
    value: np.ndarray  # (n * S,)
    y: np.ndarray  # (n, L or 1)
    weight: np.ndarray  # (n,)


class Job(NamedTuple):
    """What an epoch needs, the same arrays in every epoch."""

    parameters: Parameters
    moments: tuple[
        AdamMoments, AdamMoments, AdamMoments | None
    ]  # of table, weights and additive part
    clock: Clock
    gradients: Parameters
    layout: Layout
    rows: FlatRows
    intercept: np.ndarray  # (L,)
    loss: LossForm
    band: np.ndarray  # (D, 5) the quadratic penalty, over the chance that a batch touches the row
    order: OrderPenalty | None
    mask: np.ndarray  # (L * W,) 1 where an output weight may move, 0 elsewhere


class Workspace(NamedTuple):
    """Work arrays of an epoch, for a block of rows and for a batch."""

    factors: np.ndarray  # (rows * N * W,)
    prefix: np.ndarray  # (rows * (N + 1) * W,)
    suffix: np.ndarray  # (rows * W,)
    raw: np.ndarray  # (rows, L)
    slope: np.ndarray  # (rows, L)
    touched: np.ndarray  # (D,) the table rows of a batch; first those that every batch touches
    mark: np.ndarray  # (D,) 1 for table rows that this batch, or every batch, touches; else 0

    @classmethod
    def make(cls, parameters: Parameters, n_columns: int, n_outputs: int, always: np.ndarray):
        """Return work arrays; `always` are the table rows that all batches touch."""
        width = len(parameters.weights) // n_outputs
        dtype, height = parameters.table.dtype, len(parameters.table) // width
        rows = block_size(n_columns, width)
        touched, mark = np.empty(height, np.intp), np.zeros(height, np.uint8)
        touched[: len(always)], mark[always] = always, 1
        return cls(
            factors=aligned(rows * n_columns * width, dtype),
            prefix=aligned(rows * (n_columns + 1) * width, dtype),
            suffix=aligned(rows * width, dtype),
            raw=np.empty((rows, n_outputs), dtype),
            slope=np.empty((rows, n_outputs), dtype),
            touched=touched,
            mark=mark,
        )


@inner
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
        # First add to the average the steps in which this row did not move.
        mean = stale * load(average, r) + current * a
        a = a - rate * m / (root(v) * scale + eps)
        store(array, r, a)
        store(m1, r, m)
        store(m2, r, v)
        store(average, r, old * mean + new * a)
        store(gradient, r, fill(array, _ZERO))


@inner
def _update_scalars(array, moments, gradient, at, stop, step_size, root2, fresh, keep):
    """Do the same for an array, if there is one, whose rows are too short for vectors."""
    if array is None:
        return
    m1, m2, average = moments.first, moments.second, moments.average
    for r in range(at, stop):
        g = gradient[r]
        m = BETA1 * m1[r] + (_ONE - BETA1) * g
        v = BETA2 * m2[r] + (_ONE - BETA2) * g * g
        mean = (_ONE - fresh) * average[r] + fresh * array[r]
        array[r] -= step_size * m / (np.sqrt(v) * root2 + EPSILON)
        m1[r], m2[r] = m, v
        average[r] = keep * mean + (_ONE - keep) * array[r]
        gradient[r] = _ZERO


@inner
def _power(log_base, exponent):
    return np.exp(np.float32(exponent) * log_base) if exponent > 0 else _ONE


@inner
def read_back(weights, slope, prefix, n_columns, suffix, gradient):
    """Write C g to `suffix`, with g the slope of the loss, and add p g' to the gradient of C.

    The backward step of `read_out`, with p the full product.
    """
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


@inner
def additive_backward(slots, first, constant, index, value, order, begin, slope, gradient):
    """Add the gradient of the additive part, with `slope` that of the loss : (rows, L)."""
    if gradient is None:
        return
    n_outputs = slope.shape[1]
    for p in range(slope.shape[0]):
        row = order[begin + p] * slots[-1]
        for n in range(first.shape[0]):
            for k in range(n_outputs):
                if constant[n]:
                    gradient[first[n] * n_outputs + k] += slope[p, k]
                for s in range(row + slots[n], row + slots[n + 1]):
                    gradient[np.intp(index[s]) * n_outputs + k] += value[s] * slope[p, k]


@inner
def batch_gradient(job, workspace, order, start, stop, share, count):
    """Add the gradient of the loss of the rows order[start:stop], times `share`, to the gradients.

    For the mean loss over these rows, `share` is one over their number. Returns the sum of the
    losses and the number of table rows touched. They are listed in `workspace.touched`; every batch
    touches the first `count` of them.
    """
    table, weights, additive = job.parameters.table, job.parameters.weights, job.parameters.additive
    layout, index, value, g_table = job.layout, job.rows.slot, job.rows.value, job.gradients.table
    slots, first, constant, dense = layout.slots, layout.first, layout.constant, layout.dense
    n_columns, n_outputs, block = first.shape[0], job.intercept.shape[0], workspace.raw.shape[0]
    width = weights.shape[0] // n_outputs
    total_loss = 0.0
    for begin in range(start, stop, block):
        end = min(begin + block, stop)
        raw, slope = workspace.raw[: end - begin], workspace.slope[: end - begin]
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
            workspace.factors,
            workspace.prefix,
        )
        read_out(weights, job.intercept, workspace.prefix, n_columns, raw)
        add_additive(additive, slots, first, constant, index, value, order, begin, end, raw)
        total_loss += add_losses(job.loss, job.rows.y, job.rows.weight, order, begin, raw, slope)
        scale_slopes(slope, share)
        read_back(
            weights, slope, workspace.prefix, n_columns, workspace.suffix, job.gradients.weights
        )
        additive_backward(
            slots, first, constant, index, value, order, begin, slope, job.gradients.additive
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
            workspace.factors,
            workspace.prefix,
            workspace.suffix,
            g_table,
            workspace.touched,
            workspace.mark,
            count,
        )
    return total_loss, count


@jit
def train_epoch(job, workspace, n_always, order, batch, rates, keep):
    """Run one epoch and return the mean training loss during the epoch.

    n_always : how many table rows every batch touches; order : (n,) the rows in their order of use;
    rates : one learning rate per step; keep : the weight of the past in the running average.
    """
    touched = workspace.touched
    total_loss = 0.0
    normal = flush_denormals()
    for j in range(rates.shape[0]):
        begin, end = j * batch, min((j + 1) * batch, order.shape[0])
        share = _ONE / np.float32(end - begin)
        loss, count = batch_gradient(job, workspace, order, begin, end, share, n_always)
        total_loss += loss
        take_step(job, touched, count, rates[j], keep)
        for k in range(n_always, count):
            workspace.mark[touched[k]] = 0
    restore_denormals(normal)
    return total_loss / order.shape[0]


@inner
def take_step(job, touched, count, rate, keep):
    """Add the penalties' gradients to those of a batch, which touched these rows, and move."""
    parameters, gradients, clock = job.parameters, job.gradients, job.clock
    n_outputs = job.intercept.shape[0]
    width = parameters.weights.shape[0] // n_outputs
    add_band_gradient(parameters.table, width, job.band, touched, count, gradients.table)
    add_band_scalars(parameters.additive, n_outputs, job.band, touched, count, gradients.additive)
    add_order_gradient(
        job.order,
        parameters.table,
        parameters.weights,
        n_outputs,
        job.layout.first,
        gradients.table,
        gradients.weights,
    )
    clock.step[0] += 1
    move_rows(job, touched, count, clock.step[0], rate, keep)
    move_weights(job, rate, keep)


@jit
def part_gradient(job, workspace, n_always, order, begin, end, share):
    """Add to the gradients those of a worker's part of a batch.

    share : one over the number of rows of the whole batch. Returns the sum of the losses of the
    part, and the number of table rows touched, which are listed in `workspace.touched`.
    """
    normal = flush_denormals()
    loss, count = batch_gradient(job, workspace, order, begin, end, share, n_always)
    for k in range(n_always, count):
        workspace.mark[workspace.touched[k]] = 0
    restore_denormals(normal)
    return loss, count


@jit
def list_touched(slot, n_slots, order, begin, end, mark, touched):
    """List the table rows that the rows order[begin:end] touch, but for those marked; count them.

    slot : (n * n_slots,) as in `FlatRows`; touched : (D,) is written to.
    """
    count = 0
    for p in range(begin, end):
        row = order[p] * n_slots
        for s in range(row, row + n_slots):
            k = np.intp(slot[s])
            if mark[k] == 0:
                mark[k] = 1
                touched[count] = k
                count += 1
    for j in range(count):
        mark[touched[j]] = 0
    return count


@jit
def joint_step(job, touched, rate, keep):
    """Move by the gradients of a whole batch, the sum over the workers, which touched these rows.

    touched : the table rows, each once.
    """
    normal = flush_denormals()
    take_step(job, touched, touched.shape[0], rate, keep)
    restore_denormals(normal)


@inner
def scale_slopes(slope, share):
    """Multiply slope : (rows, L) by the number `share`."""
    for p in range(slope.shape[0]):
        for k in range(slope.shape[1]):
            slope[p, k] *= share


@inner
def add_band_scalars(array, width, band, rows, count, gradient):
    """Add the gradient of the quadratic penalty of these rows, which are too short for vectors."""
    if array is None:
        return
    for j in range(count):
        for b in range(5):
            v = np.float32(2) * band[rows[j], b]
            if v != _ZERO:
                for r in range(width):
                    other = (rows[j] + b - 2) * width + r
                    gradient[rows[j] * width + r] += v * array[other]


@inner
def move_rows(job, touched, count, step, rate, keep):
    """Update the first `count` table rows in `touched`, in the step of this number."""
    table, gradient, clock = job.parameters.table, job.gradients.table, job.clock
    m1, m2, average = job.moments[0].first, job.moments[0].second, job.moments[0].average
    decay1, decay2, last = clock.decay1, clock.decay2, clock.last
    n_outputs = job.intercept.shape[0]
    width, log_keep = job.parameters.weights.shape[0] // n_outputs, np.log(keep)
    for j in range(count):
        k = touched[j]
        if j + AHEAD < count:
            ahead = touched[j + AHEAD]
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
        _update(table, m1, m2, average, gradient, at, stop, size, root2, fresh, keep)
        _update_scalars(
            job.parameters.additive,
            job.moments[2],
            job.gradients.additive,
            k * n_outputs,
            (k + 1) * n_outputs,
            size,
            root2,
            fresh,
            keep,
        )


@inner
def move_weights(job, rate, keep):
    """Update the output weights, where the mask lets them move."""
    decay1, decay2, gradient = job.clock.decay1, job.clock.decay2, job.gradients.weights
    for r in range(gradient.shape[0]):
        gradient[r] *= job.mask[r]
    # The weights move at every step. Their steps are counted in the clock of the first guard row.
    decay1[0] *= BETA1
    decay2[0] *= BETA2
    size = rate / (_ONE - decay1[0])
    root2 = _ONE / np.sqrt(_ONE - decay2[0])
    weights, stop = job.parameters.weights, gradient.shape[0]
    m1, m2, average = job.moments[1].first, job.moments[1].second, job.moments[1].average
    _update(weights, m1, m2, average, gradient, 0, stop, size, root2, _ZERO, keep)


@jit
def write_averages(job, keep, average):
    """Write the running averages to `average`, with the latest step included for every row."""
    clock, log_keep = job.clock, np.log(keep)
    n_outputs = job.intercept.shape[0]
    width = job.parameters.weights.shape[0] // n_outputs
    for k in range(GUARD, clock.last.shape[0] - GUARD):
        fresh = _ONE - _power(log_keep, clock.step[0] - clock.last[k])
        _write_row_average(job.parameters.table, job.moments[0], fresh, k, width, average.table)
        _write_row_average(
            job.parameters.additive, job.moments[2], fresh, k, n_outputs, average.additive
        )
    for r in range(average.weights.shape[0]):
        average.weights[r] = job.moments[1].average[r]


@inner
def _write_row_average(array, moments, fresh, k, width, out):
    """Write the running average of one row of an array, if there is one."""
    if array is None:
        return
    for r in range(k * width, (k + 1) * width):
        past = moments.average[r]
        out[r] = past + fresh * (array[r] - past)
