"""Losses: what a raw prediction costs, given the target.

Shapes: y : (n, L), for softmax (n, 1) with the number of the class; raw : (n, L); sample_weight :
(n,). Every loss is a mean over rows; several outputs add up. The compiled code of each loss is in
`polyadic.kernels.losses`, and both engines and the methods here stand on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, logit, softmax

from polyadic.kernels import losses as kernel


@dataclass(frozen=True)
class Loss:
    """A loss of one row, its slope, and the link between a raw prediction and the mean."""

    code: ClassVar[int]
    location_scale: ClassVar[bool] = False  # whether y may be centred and scaled

    @property
    def shape(self) -> float:
        """The one number that a loss may be tuned by."""
        return 0.0

    def check(self, y: np.ndarray) -> None:
        """Raise ValueError where y is outside the loss's domain."""

    def value(self, y: np.ndarray, raw: np.ndarray, sample_weight=None) -> float:
        """Return the weighted mean loss."""
        return self._evaluate(y, raw, sample_weight)[0]

    def gradient(self, y: np.ndarray, raw: np.ndarray, sample_weight=None) -> np.ndarray:
        """Return d value / d raw, (n, L)."""
        return self._evaluate(y, raw, sample_weight)[1]

    def _evaluate(self, y, raw, sample_weight) -> tuple[float, np.ndarray]:
        raw = np.ascontiguousarray(raw, dtype=np.float64)
        y = np.ascontiguousarray(y, dtype=np.float64)
        weight = np.ones(len(raw)) if sample_weight is None else np.asarray(sample_weight, float)
        weight = weight / weight.sum()
        slope = np.empty_like(raw)
        rows = np.arange(len(raw))
        return kernel.weighted_losses(self.code, self.shape, y, weight, rows, 0, raw, slope), slope

    def link(self, mean: np.ndarray) -> np.ndarray:
        """Return the raw prediction that stands for this mean."""
        return mean

    def inverse_link(self, raw: np.ndarray) -> np.ndarray:
        """Return the mean, or the probabilities, that a raw prediction stands for."""
        return raw

    def baseline(self, y: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
        """Return a constant raw prediction to start from, (L,): the link of the mean."""
        return self.link(np.average(y, axis=0, weights=sample_weight))


@dataclass(frozen=True)
class SquaredError(Loss):
    """Squared error (f - y)^2, as in the paper: not halved.

    >>> SquaredError().value(np.array([[1.0]]), np.array([[3.0]]))
    4.0
    """

    code = kernel.SQUARED
    location_scale = True


@dataclass(frozen=True)
class Logistic(Loss):
    """Logistic loss of y in {0, 1}; one column of probabilities, those of class 1."""

    code = kernel.LOGISTIC

    def link(self, mean):
        """Return log odds."""
        return logit(np.clip(mean, 1e-7, 1 - 1e-7))

    def inverse_link(self, raw):
        """Return the probability of 1."""
        return expit(raw)


@dataclass(frozen=True)
class Softmax(Loss):
    """Cross-entropy over L classes; y : (n, 1) is the number of the class."""

    n_classes: int = 0
    code = kernel.SOFTMAX

    def link(self, mean):
        """Return logarithms, centred."""
        log = np.log(np.clip(mean, 1e-7, None))
        return log - log.mean(axis=-1, keepdims=True)

    def inverse_link(self, raw):
        """Return probabilities, (n, L)."""
        return softmax(raw, axis=1)

    def baseline(self, y, sample_weight):
        """Return the centred logarithms of the class shares."""
        number = y[:, 0].astype(int)
        shares = np.bincount(number, weights=sample_weight, minlength=self.n_classes)
        return self.link(shares / shares.sum())


@dataclass(frozen=True)
class Poisson(Loss):
    """Poisson deviance, up to a constant, with a log link: exp(f) - y f."""

    code = kernel.POISSON

    def check(self, y):
        """Refuse negative counts."""
        if np.any(y < 0):
            raise ValueError(
                f"loss='poisson' needs y >= 0, but the smallest y is {np.min(y):.6g}. "
                "Use loss='squared_error' or shift the target."
            )

    def link(self, mean):
        """Return logarithms."""
        return np.log(np.clip(mean, 1e-7, None))

    def inverse_link(self, raw):
        """Return rates."""
        return np.exp(np.clip(raw, None, 700.0))


@dataclass(frozen=True)
class Quantile(Loss):
    """Pinball loss of a quantile level, doubled: level 1/2 is the absolute error.

    >>> Quantile(0.9).value(np.array([[1.0]]), np.array([[0.0]]))
    1.8
    """

    level: float = 0.5
    code = kernel.QUANTILE
    location_scale = True

    def __post_init__(self):
        if not 0 < self.level < 1:
            raise ValueError(f"Quantile level must lie between 0 and 1, got {self.level!r}.")

    @property
    def shape(self) -> float:
        """The level."""
        return self.level

    def baseline(self, y, sample_weight):
        """Return the weighted quantile of each output."""
        order = np.argsort(y, axis=0)
        reached = np.cumsum(sample_weight[order], axis=0) >= self.level * sample_weight.sum()
        first = np.argmax(reached, axis=0)
        columns = np.arange(y.shape[1])
        return y[order[first, columns], columns]


@dataclass(frozen=True)
class Huber(Loss):
    """Squared error up to `width` standard deviations of the target, linear beyond."""

    width: float = 1.35
    code = kernel.HUBER
    location_scale = True

    def __post_init__(self):
        if not self.width > 0:
            raise ValueError(f"Huber width must be positive, got {self.width!r}.")

    @property
    def shape(self) -> float:
        """The width."""
        return self.width


LOSSES: dict[str, type[Loss]] = {
    "absolute_error": Quantile,
    "huber": Huber,
    "poisson": Poisson,
    "squared_error": SquaredError,
}
CLASSIFIER_LOSSES: dict[str, type[Loss]] = {"log_loss": Softmax, "squared_error": SquaredError}


def resolve(loss: str | Loss, registry: dict[str, type[Loss]] = LOSSES) -> Loss:
    """Return the loss of that name, or the instance itself.

    >>> resolve("poisson")
    Poisson()
    """
    if isinstance(loss, Loss) and type(loss) in registry.values():
        return loss
    if isinstance(loss, str) and loss in registry:
        return registry[loss]()
    names = ", ".join(sorted(registry))
    hint = ", or an instance such as Quantile(0.9)" if registry is LOSSES else ""
    raise ValueError(f"Unknown loss {loss!r}. Choose from: {names}{hint}.")
