"""Intervals that hold a given share of targets, from rows that the fit has not seen.

Split conformal prediction: the errors of n rows that the model was not fitted on and of a new row
are exchangeable, so a new error is at most the k-th smallest of them, k = ceil((n + 1) * level),
with a probability of at least the level, whatever the model and the distribution of the rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyadic.cli import tables
from polyadic.training.model import classes_of


def half_width(model: Any, path: str, target: str | None, level: float) -> float:
    """Return half of the length of the intervals of a model of one number.

    Parameters
    ----------
    model : fitted regressor
    path : str
        The table of rows with targets.
    target : str or None
        Its column of targets.
    level : float
        The share of new targets that the intervals are to hold.
    """
    if classes_of(model) is not None:
        raise ValueError("An interval is for numbers; this model predicts classes: use --proba.")
    if target is None:
        raise ValueError("The model does not say which column it predicts: add --target.")
    X, y = tables.split_target(tables.read_for(model, path, target), target)
    errors = np.abs(model.code_target(y, len(y)) - model.response(model.raw(X)))
    if errors.shape[1] != 1:
        raise ValueError(f"An interval is for one number; this model predicts {errors.shape[1]}.")
    return quantile(errors[:, 0], level)


def quantile(errors: np.ndarray, level: float) -> float:
    """Return the error that a new one exceeds with a probability of 1 - level at most.

    >>> quantile(np.arange(1.0, 10.0), 0.8)  # the eighth of nine
    8.0
    """
    place = math.ceil(round((len(errors) + 1) * level, 9))
    if place > len(errors):
        least = math.ceil(level / (1.0 - level) - 1e-9)
        raise ValueError(
            f"{len(errors)} rows are too few for an interval of {level:g}: give at least {least}."
        )
    return float(np.sort(errors)[place - 1])
