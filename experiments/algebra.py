"""Appendix B as algebra: the coefficients that are read off the cores are those of the model.

The paper says that the coefficient of every product of features can be read off the cores. Whether
these are the coefficients of the function that made the data depends on the fit; whether they are
those of the fitted model does not, and is judged here: the sum over all monomials of coefficient
times monomial is the prediction, to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.synthetic import in_original_units
from polyadic import TNRegressor
from polyadic.explain import coefficients
from polyadic.maps import Polynomial

D, EPOCHS, SEEDS = 3, 5, 5
ROUNDING = 5e-5  # a gap that single precision explains; seen over 3 seeds: 3e-6 or less
# A rank of each format that a fit of a few seconds can have over seven columns.
FORMATS = {"tt": 4, "tr": 4, "ht": 4, "tucker": 3}


def largest_gap(model: Any, X: np.ndarray) -> float:
    """Return the largest gap between a prediction and the polynomial that was read off the cores.

    Gaps are divided by the standard deviation of the predictions.

    Parameters
    ----------
    model : fitted regressor with polynomial maps, for one target
    X : (n, N)
    """
    predicted = model.predict(X)
    found = evaluate(*read_off(model), X)
    return float(np.max(np.abs(found - predicted)) / np.std(predicted))


def read_off(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the powers of every monomial, (M, N), and its coefficient, (M,), in units of x."""
    names = model.columns_.names
    found = coefficients(model, max_order=len(names), top=None)
    powers = [[row.factors.get(name, 0) for name in names] for row in found.rows]
    values = [row.coefficient for row in found.rows]
    return np.array([[0] * len(names), *powers]), np.array([found.constant, *values])


def evaluate(powers: np.ndarray, values: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the sum over monomials of coefficient times monomial, (n,)."""
    table = X[:, :, None] ** np.arange(powers.max() + 1)  # (n, N, d)
    out = np.zeros(len(X))
    for own, value in zip(powers, values):
        out += value * np.prod(table[:, np.arange(len(own)), own], axis=1)
    return out


def gap(seed: int, format: str, epochs: int) -> dict[str, Any]:
    """Fit a format to the synthetic task, and return the largest gap on its test rows.

    The rows are in original units, from 0 to 10: the expansion of (x - mean) / std has large
    numbers of both signs there, and rounding matters more than in standardised units.
    """
    split = in_original_units()
    model = TNRegressor(
        format,
        maps=Polynomial(D),
        rank=FORMATS[format],
        learning_rate=0.01,
        max_iter=epochs,
        random_state=seed,
    )
    model.fit(split.X_train, split.y_train, X_val=split.X_val, y_val=split.y_val)
    return {"gap": largest_gap(model, split.X_test)}
