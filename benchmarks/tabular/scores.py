"""What is measured on a fitted model, and the summary of many fits."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

import numpy as np
from common import seconds
from sklearn.metrics import roc_auc_score
from tasks import Data

Cell = dict[str, Any]  # one fit: set, split, model, seed, task, its scores and times
Figures = dict[tuple[str, str], dict[str, Any]]  # (set, model): task, mean scores, median times
TIMES = ("fit_s", "predict_us")


def measure(model: Any, data: Data) -> dict[str, float]:
    """Fit, predict the test rows, and return scores and times."""
    fit = seconds(lambda: model.fit(data.X_train, data.y_train))
    method = model.predict if data.task == "regression" else model.predict_proba
    outputs: list[np.ndarray] = []
    predict = seconds(lambda: outputs.append(np.asarray(method(data.X_test), dtype=float)))
    if data.task == "regression":
        scores = {"error": float(np.mean((outputs[0].ravel() - data.y_test) ** 2))}
    else:
        scores = class_scores(outputs[0], data.y_test)
    return {**scores, "fit_s": fit, "predict_us": 1e6 * predict / len(data.y_test)}


def class_scores(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return log-loss, Brier score, and AUC (two classes) or accuracy (more), from p of (n, L)."""
    n_classes = p.shape[1]
    chosen = np.clip(p[np.arange(len(y)), y], 1e-15, 1)
    squares = ((p - np.eye(n_classes)[y]) ** 2).sum(axis=1)
    if n_classes == 2:
        # Both classes have the same squared error, and the usual Brier score counts one.
        squares, last = squares / 2, {"auc": float(roc_auc_score(y, p[:, 1]))}
    else:
        last = {"accuracy": float(np.mean(p.argmax(axis=1) == y))}
    return {"error": float(-np.log(chosen).mean()), "brier": float(squares.mean()), **last}


def summarise(cells: Iterable[Cell]) -> Figures:
    """Return the mean scores and the median times of each model on each set."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell["set"], cell["model"]), []).append(cell)
    found: Figures = {}
    for key, group in groups.items():
        figures = {"task": group[0]["task"]}
        for name in ("error", "brier", "auc", "accuracy", *TIMES):
            values = [cell[name] for cell in group if name in cell]
            if values:
                figures[name] = median(values) if name in TIMES else float(np.mean(values))
        found[key] = figures
    return found


def ratios(found: Figures, model: str, other: str, name: str) -> dict[str, float]:
    """Return a model's figure over another's, on each set that both were run on."""
    sets = [own for own, run in found if run == model and (own, other) in found]
    return {own: found[own, model][name] / found[own, other][name] for own in sets}


def geometric(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))
