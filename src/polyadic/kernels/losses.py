"""Compiled losses: value, slope and curvature of one number, and their sums over rows.

The losses that come with a code are part of every kernel. Any other loss is called through
`LossForm.own`, a function that Numba has compiled: see `compile_function`. The kernels for those
are forms of their own, so that a model with a coded loss carries nothing of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, njit, types

from polyadic.kernels.jit import inner, jit

OWN = -1  # the code of every loss that is called through a function
SQUARED, LOGISTIC, SOFTMAX, POISSON, QUANTILE, HUBER = CODES = range(6)
_ONE, _ZERO, _TWO = np.float32(1), np.float32(0), np.float32(2)
_STEEP = np.float32(60)  # beyond this, exp leaves the float32 range soon
_NEAR = 0.02  # residuals nearer to zero than this count as this, in units of the target's spread
_FLAT = 0.01  # no curvature is taken to be less than this
_SHARE, _LEAST = 0.1, 1e-9  # of the mean curvature, for two classes

# The C types of the functions of an own loss, both of (y, raw).
VALUE_AND_SLOPE = types.UniTuple(types.float64, 2)(types.float64, types.float64)
CURVATURE = types.float64(types.float64, types.float64)


class LossForm(NamedTuple):
    """What a kernel is told about a loss."""

    code: int
    shape: float  # the level of the quantile, the width of the Huber loss
    own: Any = None  # a compiled function of (y, raw) in the place of a code


@functools.lru_cache(maxsize=256)
def compile_function(function: Callable[..., Any], parameters: tuple, signature: Any) -> Any:
    """Compile a plain Python function of (y, raw, *parameters) into one of (y, raw).

    All numbers are double precision, and what divides by zero is infinite, as in NumPy. Kernels
    that take such functions are compiled once for all functions of one signature.
    """
    body = njit(error_model="numpy")(function)

    def entry(y, raw):
        return body(y, raw, *parameters)

    return cfunc(signature)(entry)


# ---- value and slope -----------------------------------------------------------------------------


@inner
def _by_code(code, shape, y, raw):
    """Return the loss of one number and its slope; all codes but softmax."""
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
def _one_output(code, shape, own, y, raw):
    """Return the loss of one number and its slope; all but softmax."""
    if own is None:
        return _by_code(code, shape, y, raw)
    return own(y, raw)


@inner
def add_losses(loss, y, weight, order, begin, raw, slope):
    """Return the weighted sum of losses and write the weighted slope of every row.

    y : (n, L), for softmax (n, 1) with the class; weight : (n,). Row p of raw and of slope, both
    (rows, L), belongs to row order[begin + p] of y.
    """
    code, shape, own = loss.code, loss.shape, loss.own
    out, n_outputs = 0.0, raw.shape[1]
    for p in range(raw.shape[0]):
        i = order[begin + p]
        if code != SOFTMAX:
            for k in range(n_outputs):
                value, gradient = _one_output(code, shape, own, y[i, k], raw[p, k])
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
def weighted_losses(loss, y, weight, order, begin, raw, slope):
    """Do `add_losses` for Python."""
    return add_losses(loss, y, weight, order, begin, raw, slope)


# ---- curvature, for least squares ----------------------------------------------------------------


@inner
def _logistic_curvatures(weight, raw, out):
    """Write p (1 - p), but no less than a share of its mean: rare classes are flat everywhere."""
    mean = 0.0
    for i in range(raw.shape[0]):
        for k in range(raw.shape[1]):
            q = np.exp(-abs(raw[i, k]))
            out[i, k] = q / ((1.0 + q) * (1.0 + q))
            mean += out[i, k]
    least = _SHARE * mean / max(raw.shape[0] * raw.shape[1], 1)
    if least < _LEAST:
        least = _LEAST
    for i in range(raw.shape[0]):
        for k in range(raw.shape[1]):
            out[i, k] = weight[i] * (out[i, k] if out[i, k] > least else least)


@inner
def _one_curvature(code, shape, own, y, raw):
    """Return the curvature of one number; all codes but those of classes."""
    if own is not None:
        return max(own(y, raw), _FLAT)
    size = abs(raw - y)
    h = 2.0
    if code == POISSON:
        h = max(np.exp(min(raw, 60.0)), y, _FLAT)
    elif code == QUANTILE:
        h = 1.0 / max(size, _NEAR)
    elif code == HUBER and size > shape:
        h = 2.0 * shape / size
    return h


@jit
def curvatures(loss, y, weight, raw, out):
    """Write the weighted curvature of a parabola near the loss, or above it.

    `loss.own`, where there is one, is the curvature itself. For softmax, twice the diagonal of the
    Hessian: by Gershgorin's circles, no less than all of it.
    """
    code, shape, own = loss.code, loss.shape, loss.own
    n_outputs = raw.shape[1]
    if code == LOGISTIC:
        _logistic_curvatures(weight, raw, out)
        return
    for i in range(raw.shape[0]):
        if code == SOFTMAX:
            top = raw[i, 0]
            for k in range(1, n_outputs):
                if raw[i, k] > top:
                    top = raw[i, k]
            norm = 0.0
            for k in range(n_outputs):
                norm += np.exp(raw[i, k] - top)
            for k in range(n_outputs):
                p = np.exp(raw[i, k] - top) / norm
                out[i, k] = weight[i] * max(2.0 * p * (1.0 - p), _FLAT)
            continue
        for k in range(n_outputs):
            out[i, k] = weight[i] * _one_curvature(code, shape, own, y[i, k], raw[i, k])
