"""The rule of predictions: finite input gives a finite prediction, or an error that says why."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic.data.columns import Columns
from polyadic.training.model import known_marginals


def check_finite_raw(model: Any, X: Any, raw: np.ndarray) -> np.ndarray:
    """Return raw predictions (n, L) of a table; refuse them where one is infinite or NaN.

    A class, or a probability, would be made from it as from any other number.
    """
    if np.isfinite(raw).all():
        return raw
    bad = np.flatnonzero(~np.isfinite(raw).all(axis=1))
    others = f", and {len(bad) - 1} other rows" if len(bad) > 1 else ""
    raise ValueError(
        f"Row {bad[0]} of X{others} cannot be predicted: the prediction is beyond the range of "
        f"numbers.{_furthest(model.columns_, known_marginals(model) or [], X, int(bad[0]))} Maps "
        "without bounds, such as Polynomial, grow without end outside of the training range. Drop "
        "or clip such values, or fit with a map that stays at its border, such as 'hat' or "
        "Polynomial(normalize=True)."
    )


def _furthest(columns: Columns, marginals: list, X: Any, row: int) -> str:
    """Return which number of a row is furthest from those of the training rows."""
    found = []
    for column, marginal, x in zip(columns.columns, marginals, columns.code(X)):
        ends = marginal.quantiles
        if column.categories is None and len(ends) and not np.isnan(x[row]):
            low, high, value = float(ends[0]), float(ends[-1]), float(x[row])
            width = max(high / 2 - low / 2, 1e-300)  # halved first: no overflow
            beyond = max(low / 2 - value / 2, value / 2 - high / 2)
            found.append((beyond / width, column.name, value, low, high))
    if not found or max(found)[0] <= 0:
        return ""
    _, name, value, low, high = max(found)
    return (
        f" Its column {name!r} is {value:.6g}, and was from {low:.6g} to {high:.6g} in the "
        "training rows."
    )
