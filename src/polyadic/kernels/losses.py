"""Value and slope of one row's loss; the codes are those of the classes in `objective.losses`."""

from __future__ import annotations

import numpy as np

from polyadic.kernels.jit import inner, jit

SQUARED, LOGISTIC, SOFTMAX, POISSON, QUANTILE, HUBER = range(6)
_ONE, _ZERO, _TWO = np.float32(1), np.float32(0), np.float32(2)
_STEEP = np.float32(60)  # beyond this, exp leaves the float32 range soon


@inner
def _one_output(code, shape, y, raw):
    """Return the loss of one number and its slope; all but softmax."""
    error = raw - y
    value, slope = error * error, _TWO * error
    if code == LOGISTIC:  # log(1 + exp(raw)) - y raw, without overflow
        small = np.exp(-abs(raw))
        value = np.log1p(small) - y * raw
        slope = small / (_ONE + small) - y
        if raw >= _ZERO:
            value += raw
            slope = _ONE / (_ONE + small) - y
    elif code == POISSON:
        rate = np.exp(raw)
        if raw > _STEEP:
            rate = np.exp(_STEEP)
        value, slope = rate - y * raw, rate - y
    elif code == QUANTILE:  # the pinball loss, doubled: level 1/2 is the absolute error
        pull = _TWO * (_ONE - shape) if error > _ZERO else -_TWO * shape
        value = pull * error
        slope = pull if error != _ZERO else _ZERO
    elif code == HUBER and abs(error) > shape:
        value = shape * (_TWO * abs(error) - shape)
        slope = _TWO * shape if error > _ZERO else -_TWO * shape
    return value, slope


@inner
def add_losses(code, shape, y, weight, order, begin, raw, slope):
    """Return the weighted sum of losses and write the weighted slope of every row.

    y : (n, L), for softmax (n, 1) with the class; weight : (n,). Row p of raw and of slope, both
    (rows, L), belongs to row order[begin + p] of y. `shape` is the level of the quantile or the
    width of the Huber loss.
    """
    out, n_outputs = 0.0, raw.shape[1]
    for p in range(raw.shape[0]):
        i = order[begin + p]
        if code != SOFTMAX:
            for k in range(n_outputs):
                value, gradient = _one_output(code, shape, y[i, k], raw[p, k])
                out += weight[i] * value
                slope[p, k] = weight[i] * gradient
            continue
        top, label = raw[p, 0], np.intp(y[i, 0])
        for k in range(1, n_outputs):
            if raw[p, k] > top:
                top = raw[p, k]
        norm = top - top
        for k in range(n_outputs):
            slope[p, k] = np.exp(raw[p, k] - top)
            norm += slope[p, k]
        out += weight[i] * (np.log(norm) + top - raw[p, label])
        for k in range(n_outputs):
            slope[p, k] *= weight[i] / norm
        slope[p, label] -= weight[i]
    return out


@jit
def weighted_losses(code, shape, y, weight, order, begin, raw, slope):
    """Do `add_losses` for Python."""
    return add_losses(code, shape, y, weight, order, begin, raw, slope)
