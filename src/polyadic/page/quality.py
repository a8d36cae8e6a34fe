"""How good the predictions are on the rows that were passed, beside those of a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import metrics

_BINS = 10  # of rows, by their prediction
_STEPS = 100  # thresholds and shares of the rows, from 0 to 1
_WITHIN = (0.5, 0.8, 0.9, 0.95)  # shares of the rows
_MOST_CLASSES = 20  # with a table of confusions


def regression(
    target: np.ndarray,
    predicted: np.ndarray,
    names: list[str],
    shown: np.ndarray,
    level: float | None = None,
) -> list[dict[str, Any]]:
    """Return measures and points of each output.

    Parameters
    ----------
    target, predicted : (n, L)
    names : list of str
        Of the outputs.
    shown : (m,)
        Rows whose points are drawn, the same for all outputs.
    level : float or None
        Of the quantile that a model predicts; None for the mean.

    Returns
    -------
    list of dict
        The baseline of a measure is to predict always the mean of the target, or its quantile.
        `within` are quantiles of the absolute error.
    """
    out = []
    for name, y, f in zip(names, target.T, predicted.T):
        own = _of_mean(y, f) if level is None else _of_quantile(y, f, level)
        within = [[q, float(np.quantile(np.abs(y - f), q))] for q in _WITHIN]
        points = np.column_stack([f, y])[shown].tolist()
        out.append({"name": name, "level": level, "within": within, "points": points, **own})
    return out


def _of_mean(y: np.ndarray, f: np.ndarray) -> dict[str, Any]:
    """Return the measures of predictions of the mean, (n,)."""
    varies = bool(np.ptp(y) > 0)  # a constant target has no R²
    measures = [
        _measure("R²", metrics.r2_score(y, f) if varies else None, 0.0),
        _error("Root mean squared error", metrics.root_mean_squared_error, y, f),
        _error("Mean absolute error", metrics.mean_absolute_error, y, f),
    ]
    return {"constant": "the mean", "measures": measures, "bins": _bins(f, y, np.mean)}


def _of_quantile(y: np.ndarray, f: np.ndarray, level: float) -> dict[str, Any]:
    """Return the measures of predictions of a quantile, (n,)."""
    constant = "the median" if level == 0.5 else f"the {100 * level:g} % quantile"

    def loss(found: np.ndarray) -> float:
        return metrics.mean_pinball_loss(y, found, alpha=level)

    own, usual = loss(f), loss(np.full(len(y), np.quantile(y, level)))
    avoided = 1.0 - own / usual if usual > 0 else None
    by, below = f"always {constant}", float(np.mean(y <= f))
    measures = [
        _measure("Pinball loss avoided", avoided, 0.0, by),
        _measure("Pinball loss", own, usual, by),
        _measure("Rows at or below the prediction", below, level, "wanted", "share"),
    ]

    def quantile(part: np.ndarray) -> float:
        return np.quantile(part, level)

    return {"constant": constant, "measures": measures, "bins": _bins(f, y, quantile)}


def _error(
    name: str, measure: Callable[..., float], y: np.ndarray, f: np.ndarray
) -> dict[str, Any]:
    return _measure(name, measure(y, f), measure(y, np.full(len(y), y.mean())))


def _measure(
    name: str,
    value: float | None,
    baseline: float,
    by: str = "always the mean",
    kind: str = "number",
) -> dict[str, Any]:
    """Return a measure beside that of a baseline, which is named `by`; kind: number or share."""
    return {"name": name, "kind": kind, "value": value, "baseline": baseline, "by": by}


def classification(number: np.ndarray, share: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Return measures and a reliability diagram; number : (n,) of the class, share : (n, K).

    The baseline of a measure is to predict always the most frequent class or, for the log loss,
    always the shares of the classes.
    """
    codes = np.arange(len(names))
    best = np.argmax(share, axis=1)
    counts = np.bincount(number, minlength=len(names))
    shares = counts / len(number)
    known = shares[shares > 0]
    frequent = f"“{names[int(np.argmax(counts))]}”"
    right = metrics.accuracy_score(number, best)
    loss, entropy = metrics.log_loss(number, share, labels=codes), -np.sum(known * np.log(known))
    measures = [
        _measure("Accuracy", right, float(shares.max()), f"always {frequent}", "share"),
        _measure("Log loss", loss, float(entropy), "always the class shares"),
    ]
    out: dict[str, Any] = {"constant": frequent}
    if len(names) == 2:
        both = counts.min() > 0
        area = metrics.roc_auc_score(number, share[:, 1]) if both else None
        measures.insert(1, _measure("Area under ROC", area, 0.5, "a random order"))
        bins = _bins(share[:, 1], number == 1)
        out["decisions"] = decisions(number == 1, share[:, 1])
    else:
        bins = _bins(share[np.arange(len(best)), best], number == best)
    if 2 < len(names) <= _MOST_CLASSES:
        out["matrix"] = metrics.confusion_matrix(number, best, labels=codes).tolist()
    return {**out, "measures": measures, "bins": bins}


def decisions(positive: np.ndarray, share: np.ndarray) -> dict[str, list[Any]]:
    """Return what follows from a threshold on the probability of the second class.

    Parameters
    ----------
    positive : (n,) of bool
        Whether a row belongs to the second class.
    share : (n,)
        Its predicted probability.

    Returns
    -------
    dict
        For each threshold of 0, 0.01, ..., 1 `right` and `wrong`: how many rows above it belong to
        the second class, and how many to the first. `gain`: the share of the second class among the
        0, 1, ..., 100 % of the rows with the highest probabilities; rows of equal probability count
        as in random order.

    Examples
    --------
    >>> found = decisions(np.array([True, False, True, False]), np.array([0.9, 0.2, 0.6, 0.6]))
    >>> found["right"][50], found["wrong"][50], found["gain"][25], found["gain"][50]
    (2, 1, 0.5, 0.75)
    """
    steps = np.linspace(0.0, 1.0, _STEPS + 1)
    above = [
        len(group) - np.searchsorted(np.sort(group), steps, side="right")
        for group in (share[positive], share[~positive])
    ]
    order = np.argsort(-share, kind="stable")
    found = np.cumsum(positive[order])
    last = np.append(share[order][1:] != share[order][:-1], True)  # the last row of each tie
    at = np.append(0, np.flatnonzero(last) + 1) / len(share)
    reached = np.append(0, found[last]) / max(found[-1], 1)
    return {
        "right": above[0].tolist(),
        "wrong": above[1].tolist(),
        "gain": np.interp(steps, at, reached).tolist(),
        "totals": [int(positive.sum()), int((~positive).sum())],
    }


def even_ranks(values: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` rows, at even steps of rank from the lowest to the highest value.

    >>> even_ranks(np.array([3.0, 1.0, 2.0, 0.0]), 2)
    array([3, 0])
    """
    order = np.argsort(values, kind="stable")
    at = np.linspace(0, len(order) - 1, min(most, len(order)))
    return order[np.round(at).astype(np.int64)]


def _bins(
    predicted: np.ndarray, actual: np.ndarray, of: Callable[[np.ndarray], float] = np.mean
) -> list[list[float]]:
    """Return (mean prediction, `of` targets, rows) of tenths of the rows by their prediction."""
    order = np.argsort(predicted, kind="stable")
    parts = [part for part in np.array_split(order, _BINS) if len(part)]
    return [[float(predicted[p].mean()), float(of(actual[p])), len(p)] for p in parts]
