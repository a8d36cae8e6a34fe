"""Links: what the mean is to a raw prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, softmax

_TINY = 1e-7  # a mean or a probability is not taken to be nearer to zero than this
_STEEPEST = 700.0  # exp of more is infinite


class Link(NamedTuple):
    """A link and its inverse, on arrays (n, L)."""

    link: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]


def _identity(x: np.ndarray) -> np.ndarray:
    return x


def _log(mean: np.ndarray) -> np.ndarray:
    return np.log(np.clip(mean, _TINY, None))


def _centred_log(mean: np.ndarray) -> np.ndarray:
    log = _log(mean)
    return log - log.mean(axis=-1, keepdims=True)


LINKS = {
    "identity": Link(_identity, _identity),
    "log": Link(_log, lambda raw: np.exp(np.clip(raw, None, _STEEPEST))),
    "logit": Link(lambda mean: logit(np.clip(mean, _TINY, 1 - _TINY)), expit),
    "softmax": Link(_centred_log, lambda raw: softmax(raw, axis=1)),
}
