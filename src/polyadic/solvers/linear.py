"""Linear models by L-BFGS: for starts from a linear model, and for linear members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from polyadic.objective.losses import Loss


def minimise_linear(
    loss: Loss,
    design: Any,
    y: np.ndarray,
    weight: np.ndarray,
    intercept: np.ndarray,
    penalty: float,
    start: tuple[np.ndarray, np.ndarray] | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
    *,
    with_bias: bool = True,
    max_steps: int,
    slope_tolerance: float,
    loss_tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise the mean loss plus penalty * |slopes|^2 / 2; return bias : (L,), slopes : (D, L).

    design : (n, D), an array or a sparse matrix. The bias is relative to the intercept : (L,), and
    stays where it starts if `with_bias` is False.
    It stops when no derivative is above the first tolerance, or a step gains less than the second.
    """
    n_outputs, n_slopes = len(intercept), design.shape[1]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = flat[n_outputs:].reshape(n_slopes, n_outputs)
        raw = intercept + flat[:n_outputs] + design @ slopes
        value, slope = loss.value_and_gradient(y, raw, weight)
        value += 0.5 * penalty * float(np.sum(slopes**2))
        inner = design.T @ slope + penalty * slopes
        return value, np.concatenate([with_bias * slope.sum(axis=0), inner.ravel()])

    def after_step(flat: np.ndarray) -> None:
        if out_of_time():
            raise StopIteration

    first = np.zeros(n_outputs * (1 + n_slopes))
    if start is not None:
        first = np.concatenate([start[0], start[1].ravel()])
    options = {"maxiter": max_steps, "gtol": slope_tolerance, "ftol": loss_tolerance}
    flat = minimize(
        objective, first, jac=True, method="L-BFGS-B", options=options, callback=after_step
    ).x
    return flat[:n_outputs], flat[n_outputs:].reshape(n_slopes, n_outputs)
