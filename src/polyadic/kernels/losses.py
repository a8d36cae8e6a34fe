"""Compiled losses: value, slope and curvature of one number, and their sums over rows.

The losses of this package have a code and are part of every kernel. Any other loss is called by the
address of a function that Numba has compiled: see `compile_function`. Kernels are compiled
separately for such losses, so that they add nothing to the kernels of a loss with a code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, typeof, types
from numba.core import cgutils
from numba.extending import intrinsic

from polyadic.kernels.jit import inner, jit

OWN = -1  # the code of every loss that is called by the address of a function
SQUARED, LOGISTIC, SOFTMAX, POISSON, QUANTILE, HUBER = CODES = range(6)
_ONE, _ZERO, _TWO = np.float32(1), np.float32(0), np.float32(2)
_LARGEST_EXPONENT = np.float32(60)  # exp of 89 is infinite in float32
# Bounds of curvatures, all chosen by hand. Those for two classes are a share of the mean, and a
# number.
_LEAST_RESIDUAL = 0.02  # for the curvature of quantiles, in standard deviations of the target
_LEAST_CURVATURE = 0.01
_LEAST_SHARE, _LEAST_LOGISTIC = 0.1, 1e-9

_NUMBER = types.float64
_ENTRY = types.void(_NUMBER, _NUMBER, types.CPointer(_NUMBER))  # y, raw, where results go


class LossForm(NamedTuple):
    """A loss, in the form in which kernels take it."""

    code: int
    shape: float  # the level of the quantile, the width of the Huber loss
    own: int | None = None  # the address of a function, for a loss without a code


@functools.cache  # never freed: kernels only have the address
def compile_function(function: Callable[..., Any], parameters: tuple, pair: bool) -> Any:
    """Compile a plain Python function of (y, raw, *parameters) for kernels to call.

    The function returns two numbers if `pair`, else one. All numbers are in double precision, and
    division by zero gives infinity, as in NumPy. The result has an attribute `address`.
    """
    body = njit(error_model="numpy")(function)
    body.compile((_NUMBER, _NUMBER, *map(typeof, parameters)))
    returned = body.nopython_signatures[0].return_type
    if (len(returned) if isinstance(returned, types.BaseTuple) else 1) != 1 + pair:
        name = function.__qualname__.rpartition("<locals>.")[2]
        right = "(value, slope)" if pair else "one number"
        raise TypeError(f"{name} must return {right}, but returns {returned}.")

    def write_pair(y, raw, out):
        out[0], out[1] = body(y, raw, *parameters)

    def write_one(y, raw, out):
        out[0] = body(y, raw, *parameters)

    return cfunc(_ENTRY)(write_pair if pair else write_one)


@intrinsic
def _call(typing, address, y, raw):
    """Call the function at an address; return two numbers, of which it may write only the first."""

    def code(context, builder, signature, args):
        number = ir.DoubleType()
        kind = ir.FunctionType(ir.VoidType(), [number, number, number.as_pointer()])
        out = cgutils.alloca_once_value(builder, ir.Constant(ir.ArrayType(number, 2), None))
        first = cgutils.gep_inbounds(builder, out, 0, 0)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1], args[2], first])
        second = cgutils.gep_inbounds(builder, out, 0, 1)
        found = [builder.load(first), builder.load(second)]
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(_NUMBER, 2)(types.int64, _NUMBER, _NUMBER), code


# ---- exponentials of many classes ----------------------------------------------------------------

_LOG2_E = 1.4426950408889634
# The logarithm of 2 in two parts, the first of so few digits that its multiples are exact.
_LOG_2, _LOG_2_REST = 0.6931471803691238, 1.9082149292705877e-10
_LEAST_EXPONENT = -700.0  # exp of less is below 1e-304
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(12, -1, -1))


@inner
def exp_below_zero(x):
    """Return exp(x) for x of at most zero; the relative error is below 1e-13.

    By a polynomial, after division by the nearest power of 2. Unlike a call of a library it is
    compiled into the loop over the classes, which then takes a half to a third of the time.
    """
    x = max(np.float64(x), _LEAST_EXPONENT)
    n = np.floor(x * _LOG2_E + 0.5)
    r = (x - n * _LOG_2) - n * _LOG_2_REST
    out = _TAYLOR[0]
    for k in range(1, len(_TAYLOR)):
        out = out * r + _TAYLOR[k]
    return out * np.int64((np.int64(n) + 1023) << 52).view(np.float64)


# ---- value and slope -----------------------------------------------------------------------------


@inner
def _by_code(code, shape, y, raw):
    """Return the loss of one number and its slope, by code; not for softmax."""
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
        if raw > _LARGEST_EXPONENT:
            rate = np.exp(_LARGEST_EXPONENT)
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
    """Return the loss of one number and its slope; not for softmax."""
    if own is None:
        return _by_code(code, shape, y, raw)
    return _call(own, y, raw)


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
            slope[p, k] = exp_below_zero(raw[p, k] - top)
            norm += slope[p, k]
        out += weight[i] * (np.log(norm) + top - raw[p, label])
        for k in range(n_outputs):
            slope[p, k] *= weight[i] / norm
        slope[p, label] -= weight[i]
    return out


@jit
def weighted_losses(loss, y, weight, order, begin, raw, slope):
    """Call `add_losses` from Python."""
    return add_losses(loss, y, weight, order, begin, raw, slope)


# ---- curvature, for least squares ----------------------------------------------------------------


@inner
def _weigh_logistic(weight, out):
    """Weigh p (1 - p), of no less than a share of its mean: for a rare class all are tiny."""
    mean = 0.0
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            mean += out[i, k]
    least = _LEAST_SHARE * mean / max(out.shape[0] * out.shape[1], 1)
    if least < _LEAST_LOGISTIC:
        least = _LEAST_LOGISTIC
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[i, k] = weight[i] * (out[i, k] if out[i, k] > least else least)


@inner
def _logistic_curvatures(weight, raw, out):
    """Write p (1 - p), weighted."""
    for i in range(raw.shape[0]):
        for k in range(raw.shape[1]):
            q = np.exp(-abs(raw[i, k]))
            out[i, k] = q / ((1.0 + q) * (1.0 + q))
    _weigh_logistic(weight, out)


@inner
def _one_curvature(code, shape, own, y, raw):
    """Return the curvature of one number; not for losses of classes."""
    if own is not None:
        return max(_call(own, y, raw)[0], _LEAST_CURVATURE)
    size = abs(raw - y)
    h = 2.0
    if code == POISSON:
        h = max(np.exp(min(raw, 60.0)), y, _LEAST_CURVATURE)
    elif code == QUANTILE:
        h = 1.0 / max(size, _LEAST_RESIDUAL)
    elif code == HUBER and size > shape:
        h = 2.0 * shape / size
    return h


@inner
def _softmax_bound(p):
    """Return twice the entry of a class of this probability in the diagonal of the Hessian."""
    return max(2.0 * p * (1.0 - p), _LEAST_CURVATURE)


@jit
def curvatures(loss, y, weight, raw, out):
    """Write the weighted curvature of a parabola that approximates or bounds the loss.

    `loss.own`, if there is one, is the curvature itself. For softmax it is twice the diagonal of
    the Hessian, which by Gershgorin's theorem is an upper bound of the Hessian; with out : (n, 1),
    the largest entry of that diagonal, which bounds it for all classes.
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
                norm += exp_below_zero(raw[i, k] - top)
            if out.shape[1] == 1:
                # The likeliest class has the largest p (1 - p): of all p, none is nearer to 1/2.
                out[i, 0] = weight[i] * _softmax_bound(1.0 / norm)
                continue
            for k in range(n_outputs):
                out[i, k] = weight[i] * _softmax_bound(exp_below_zero(raw[i, k] - top) / norm)
            continue
        for k in range(n_outputs):
            out[i, k] = weight[i] * _one_curvature(code, shape, own, y[i, k], raw[i, k])


@jit
def class_derivatives(code, y, weight, raw, slope, curvature):
    """Write the weighted slopes and curvatures of a loss of classes, of one exp per number.

    Those of `weighted_losses` and `curvatures`, which take two or three. y : (n, L), for softmax
    (n, 1); raw, slope, curvature : (n, L).
    """
    n_outputs = raw.shape[1]
    if code == LOGISTIC:
        for i in range(raw.shape[0]):
            for k in range(n_outputs):
                q = exp_below_zero(-abs(raw[i, k]))
                p = 1.0 / (1.0 + q)
                curvature[i, k] = q * p * p
                slope[i, k] = weight[i] * ((p if raw[i, k] >= 0.0 else q * p) - y[i, k])
        _weigh_logistic(weight, curvature)
        return
    for i in range(raw.shape[0]):
        top, norm = raw[i, 0], 0.0
        for k in range(1, n_outputs):
            if raw[i, k] > top:
                top = raw[i, k]
        for k in range(n_outputs):
            slope[i, k] = exp_below_zero(raw[i, k] - top)
            norm += slope[i, k]
        for k in range(n_outputs):
            p = slope[i, k] / norm
            slope[i, k], curvature[i, k] = weight[i] * p, weight[i] * _softmax_bound(p)
        slope[i, np.intp(y[i, 0])] -= weight[i]
