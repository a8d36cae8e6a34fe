"""How good the predictions are on the rows that were passed."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import metrics

_BINS = 10  # of rows, by their prediction


def regression(
    target: np.ndarray, mean: np.ndarray, names: list[str], shown: np.ndarray
) -> list[dict[str, Any]]:
    """Return measures and points of each output; target and mean : (n, L).

    The points are those of the rows `shown`, the same for all outputs.
    """
    out = []
    for k, name in enumerate(names):
        y, f = target[:, k], mean[:, k]
        varies = bool(np.ptp(y) > 0)  # a constant target has no R²
        out.append(
            {
                "name": name,
                "measures": [
                    ["R²", metrics.r2_score(y, f) if varies else None],
                    ["Mean squared error", metrics.mean_squared_error(y, f)],
                    ["Mean absolute error", metrics.mean_absolute_error(y, f)],
                ],
                "points": np.column_stack([f, y])[shown].tolist(),
                "bins": _bins(f, y),
            }
        )
    return out


def classification(number: np.ndarray, share: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Return measures and a reliability diagram; number : (n,) of the class, share : (n, K)."""
    codes = np.arange(len(names))
    best = np.argmax(share, axis=1)
    measures: list[list[Any]] = [
        ["Accuracy", metrics.accuracy_score(number, best)],
        ["Log loss", metrics.log_loss(number, share, labels=codes)],
    ]
    counts = np.bincount(number, minlength=len(names))
    largest = [f"Share of “{names[int(np.argmax(counts))]}”", float(counts.max() / len(number))]
    if len(names) == 2:
        both = counts.min() > 0
        area = metrics.roc_auc_score(number, share[:, 1]) if both else None
        measures.insert(0, ["Area under ROC", area])
        bins = _bins(share[:, 1], number == 1)
    else:
        bins = _bins(share[np.arange(len(best)), best], number == best)
    return {"measures": [*measures, largest], "bins": bins}


def even_ranks(values: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` rows, at even steps of rank from the lowest to the highest value.

    >>> even_ranks(np.array([3.0, 1.0, 2.0, 0.0]), 2)
    array([3, 0])
    """
    order = np.argsort(values, kind="stable")
    at = np.linspace(0, len(order) - 1, min(most, len(order)))
    return order[np.round(at).astype(np.int64)]


def _bins(predicted: np.ndarray, actual: np.ndarray) -> list[list[float]]:
    """Return (mean prediction, mean target, rows) of tenths of the rows by their prediction."""
    order = np.argsort(predicted, kind="stable")
    parts = [part for part in np.array_split(order, _BINS) if len(part)]
    return [[float(predicted[p].mean()), float(actual[p].mean()), len(p)] for p in parts]
