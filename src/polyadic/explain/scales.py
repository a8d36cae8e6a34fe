"""Scales: raw, where terms add up, and that of the predictions, where people think.

**The steps of one row.** Let a be the mean raw prediction, b that of the row, and phi_n the Shapley
value of column n, so that b - a = sum_n phi_n. For a link of one output, every value is multiplied
by the same ratio,

    (g(b) - g(a)) / (b - a),

with g the inverse of the link. For the softmax, with p the probabilities at a and q those at b,

    step_nk = M_k (phi_nk - sum_j w_j phi_nj),    M_k = (q_k - p_k) / (log q_k - log p_k),

and w_j = M_j / sum_i M_i: the derivative of the softmax, with the logarithmic mean M of both
probabilities in its place. Since log q_k - log p_k = b_k - a_k - c with one c for all classes, and
sum_k (q_k - p_k) = 0, that c is sum_j w_j (b_j - a_j), and the steps of all columns add up to
q_k - p_k exactly. No order of the columns is chosen; the steps of a column add up to zero over the
classes; a constant added to all scores changes nothing; and for two classes it is the ratio above.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import log_softmax

from polyadic.explain.outputs import is_relative
from polyadic.training.model import FittedModel, classes_of

# "response" is the scale of the predictions of any model; of a classifier, also "probability".
SCALES = ("raw", "probability", "response")
# Raw values that are closer than this, relative to their size, take the slope of the inverse link
# between two points this far apart: the cube root of double precision balances both errors.
_CLOSE = 6e-6


def check_scale(model: FittedModel, scale: str) -> str:
    """Return the scale, "probability" for the response of a classifier; refuse any other."""
    if scale not in SCALES:
        raise ValueError(f"scale must be {', '.join(map(repr, SCALES))}, got {scale!r}.")
    if scale == "raw":
        return scale
    if classes_of(model) is not None:
        return "probability"
    if scale == "probability":
        raise ValueError(
            f"A {type(model).__name__} predicts numbers, which have no scale='probability'. Use "
            "scale='response', or scale='raw'."
        )
    return scale


def steps_of(model: FittedModel, base: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return Shapley values on the scale of the predictions, (n, N, L).

    Parameters
    ----------
    base : (L,)
        The mean raw prediction.
    values : (n, N, L)
        Shapley values on the raw scale. The result of a row adds up to the difference of
        `model.response` at base and values together, and at the base.
    """
    raw = base + values.sum(axis=1)
    if is_relative(model):
        mean = _logarithmic_mean(log_softmax(base), log_softmax(raw, axis=1))  # (n, L)
        share = mean / mean.sum(axis=1, keepdims=True)
        average = np.sum(share[:, None] * values, axis=2, keepdims=True)
        return mean[:, None] * (values - average)
    if classes_of(model) is not None and len(base) > 1:
        raise ValueError(
            f"The classes have no scale='probability' for single rows with {model.loss_!r}: their "
            "scores are estimates of 2 p - 1, so read them on scale='raw', or fit with the default "
            "loss."
        )
    return _ratio(model.response, base, raw)[:, None] * values


def _logarithmic_mean(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return (e^high - e^low) / (high - low), e^low where both are equal.

    >>> _logarithmic_mean(np.log(1.0), np.log([1.0, 2.0])).round(4)
    array([1.    , 1.4427])
    """
    apart = np.abs(high - low)
    shrink = np.divide(-np.expm1(-apart), apart, out=np.ones_like(apart), where=apart > 0)
    return np.exp(np.maximum(low, high)) * shrink


def _ratio(
    response: Callable[[np.ndarray], np.ndarray], base: np.ndarray, raw: np.ndarray
) -> np.ndarray:
    """Return (g(raw) - g(base)) / (raw - base) for each output, (n, L); g works one by one."""
    middle, half = 0.5 * (raw + base), 0.5 * np.abs(raw - base)
    half = np.maximum(half, 0.5 * _CLOSE * (1.0 + np.abs(middle)))
    return (response(middle + half) - response(middle - half)) / (2.0 * half)
