"""Links: functions from the mean to a raw prediction, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, softmax

_SMALLEST_MEAN = 1e-7  # means and probabilities are clipped to be this far from zero, or from one
_LARGEST_EXPONENT = 700.0  # exp of 710 is infinite in double precision


class Link(NamedTuple):
    """A link and its inverse, on arrays (n, L)."""

    link: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]


def _identity(x: np.ndarray) -> np.ndarray:
    return x


def _log(mean: np.ndarray) -> np.ndarray:
    return np.log(np.clip(mean, _SMALLEST_MEAN, None))


def _centred_log(mean: np.ndarray) -> np.ndarray:
    log = _log(mean)
    return log - log.mean(axis=-1, keepdims=True)


LINKS = {
    "identity": Link(_identity, _identity),
    "log": Link(_log, lambda raw: np.exp(np.clip(raw, None, _LARGEST_EXPONENT))),
    "logit": Link(lambda mean: logit(np.clip(mean, _SMALLEST_MEAN, 1 - _SMALLEST_MEAN)), expit),
    "softmax": Link(_centred_log, lambda raw: softmax(raw, axis=1)),
}
