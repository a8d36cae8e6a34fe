"""Value and gradient of one row's loss. The codes are those of the classes in `polyadic.losses`."""

from __future__ import annotations

import numpy as np

from polyadic.kernels.jit import jit

SQUARED, LOGISTIC, SOFTMAX, POISSON, QUANTILE, HUBER = range(6)
_ONE, _ZERO, _HALF, _TWO = np.float32(1), np.float32(0), np.float32(0.5), np.float32(2)
_STEEP = np.float32(60)  # beyond this, exp leaves the float32 range soon


@jit
def _logistic(y, raw):
    """Return log(1 + exp(raw)) - y raw and its slope, without overflow."""
    small = np.exp(-abs(raw))
    value = max(raw, _ZERO) + np.log1p(small) - y * raw
    probability = (_ONE if raw >= _ZERO else small) / (_ONE + small)
    return value, probability - y


@jit
def _poisson(y, raw):
    rate = np.exp(min(raw, _STEEP))
    return rate - y * raw, rate - y


@jit
def _quantile(y, raw, level):
    """Return the pinball loss, doubled, so that level 1/2 is the absolute error."""
    error = raw - y
    slope = _TWO * (_ONE - level) if error > _ZERO else -_TWO * level
    return slope * error, (slope if error != _ZERO else _ZERO)


@jit
def _huber(y, raw, width):
    error = raw - y
    if abs(error) <= width:
        return error * error, _TWO * error
    return width * (_TWO * abs(error) - width), _TWO * width * np.sign(error)


@jit
def _softmax(label, raw, p, slope):
    """Return the cross-entropy of the class `label` and write the slopes of row p."""
    n_outputs = raw.shape[1]
    top = raw[p, 0]
    for k in range(1, n_outputs):
        top = max(top, raw[p, k])
    norm = top - top
    for k in range(n_outputs):
        slope[p, k] = np.exp(raw[p, k] - top)
        norm += slope[p, k]
    for k in range(n_outputs):
        slope[p, k] /= norm
    slope[p, label] -= _ONE
    return np.log(norm) + top - raw[p, label]


@jit
def _one_output(code, shape, y, raw):
    if code == SQUARED:
        error = raw - y
        return error * error, _TWO * error
    if code == LOGISTIC:
        return _logistic(y, raw)
    if code == POISSON:
        return _poisson(y, raw)
    if code == QUANTILE:
        return _quantile(y, raw, shape)
    return _huber(y, raw, shape)


@jit
def weighted_losses(code, shape, y, weight, order, begin, raw, slope):
    """Return the weighted sum of losses and write the weighted slope of every row.

    y : (n, L), for softmax (n, 1) with the class; weight : (n,). Row p of raw and of slope, both
    (rows, L), belongs to row order[begin + p] of y. `shape` is the level of the quantile or the
    width of the Huber loss.
    """
    out = 0.0
    for p in range(raw.shape[0]):
        i = order[begin + p]
        if code == SOFTMAX:
            out += weight[i] * _softmax(np.intp(y[i, 0]), raw, p, slope)
            for k in range(raw.shape[1]):
                slope[p, k] *= weight[i]
        else:
            for k in range(raw.shape[1]):
                value, gradient = _one_output(code, shape, y[i, k], raw[p, k])
                out += weight[i] * value
                slope[p, k] = weight[i] * gradient
    return out
