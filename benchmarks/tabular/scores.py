"""The scores and times of a fitted model, and their summaries over splits and sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from common import seconds
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from tasks import Data

Cell = dict[str, Any]  # one fit: set, split, model, seed, task, its scores and times
SCORES = ("error", "brier", "auc", "accuracy", "fit_s", "predict_us")
LARGE, WIDE = 5_000, 56  # training rows and columns from which on a set counts as such


@dataclass
class Set:
    """What is known of one data set: its group, and the figures of each model on each split."""

    name: str
    group: str
    n_columns: int
    # figures[model][split][score]; several seeds of a split are averaged
    figures: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)

    def score(self, model: str, name: str) -> float | None:
        """Return the median of a score over the splits, where the model has it."""
        values = [own[name] for own in self.figures.get(model, {}).values() if name in own]
        return median(values) if values else None

    def ratio(self, model: str, other: str, name: str) -> float | None:
        """Return the median, over the splits that both have, of a model's score over another's."""
        one, two = self.figures.get(model, {}), self.figures.get(other, {})
        both = one.keys() & two.keys()
        return median(one[k][name] / two[k][name] for k in both) if both else None


def measure(model: Any, data: Data) -> dict[str, float]:
    """Fit, predict the test rows, and return scores and times."""
    fit = seconds(lambda: model.fit(data.X_train, data.y_train))
    ask = model.predict if data.task == "regression" else model.predict_proba
    answers: list[np.ndarray] = []
    predict = seconds(lambda: answers.append(np.asarray(ask(data.X_test), dtype=float)))
    if data.task == "regression":
        scores = {"error": float(np.mean((answers[0].ravel() - data.y_test) ** 2))}
    else:
        scores = class_scores(answers[0], data.y_test)
    return {**scores, "fit_s": fit, "predict_us": 1e6 * predict / len(data.y_test)}


def class_scores(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return log-loss, Brier score, and AUC (two classes) or accuracy (more), from p of (n, L)."""
    n_classes = p.shape[1]
    chosen = np.clip(p[np.arange(len(y)), y], 1e-15, 1)
    squares = ((p - np.eye(n_classes)[y]) ** 2).sum(axis=1)
    if n_classes == 2:
        # Both classes have the same error, and the Brier score counts one of them.
        squares, last = squares / 2, {"auc": float(roc_auc_score(y, p[:, 1]))}
    else:
        last = {"accuracy": float(np.mean(p.argmax(axis=1) == y))}
    return {"error": float(-np.log(chosen).mean()), "brier": float(squares.mean()), **last}


def group_of(cell: Cell) -> str:
    """Return the group that a set is reported in."""
    if cell["task"] == "binary":
        return "two classes"
    if cell["task"] == "multiclass":
        return "many classes"
    if cell["n_columns"] >= WIDE:
        return "regression, wide"
    return "regression, large" if cell["n_rows"] >= LARGE else "regression, small"


def summarise(cells: Iterable[Cell]) -> dict[str, Set]:
    """Return the sets with the mean scores, over seeds, of each model on each split."""
    fits: dict[tuple[str, str, int], list[Cell]] = {}
    found: dict[str, Set] = {}
    for cell in cells:
        fits.setdefault((cell["set"], cell["model"], cell["split"]), []).append(cell)
        if cell["set"] not in found:
            found[cell["set"]] = Set(cell["set"], group_of(cell), cell["n_columns"])
    for (name, model, split), group in fits.items():
        means = {s: float(np.mean([c[s] for c in group])) for s in SCORES if s in group[0]}
        found[name].figures.setdefault(model, {})[split] = means
    return found


def geometric(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))


@dataclass(frozen=True)
class Comparison:
    """A model against another over some sets: errors, and times."""

    n_sets: int
    n_below: int
    geometric: float
    median: float
    worst: float
    worst_set: str
    time_median: float
    time_worst: float


def compare(sets: Iterable[Set], model: str, other: str) -> Comparison | None:
    """Compare a model with another on the sets that both were run on."""
    errors = {own.name: own.ratio(model, other, "error") for own in sets}
    times = {own.name: own.ratio(model, other, "fit_s") for own in sets}
    known = {name: error for name, error in errors.items() if error is not None}
    if not known:
        return None
    spent = [times[name] for name in known]
    worst = max(known, key=known.__getitem__)
    return Comparison(
        n_sets=len(known),
        n_below=sum(error < 1 for error in known.values()),
        geometric=geometric(known.values()),
        median=median(known.values()),
        worst=known[worst],
        worst_set=worst,
        time_median=median(spent),
        time_worst=max(spent),
    )


def mean_ranks(sets: Iterable[Set], models: list[str]) -> dict[str, float]:
    """Return the mean rank of each model by its error, over the sets that all were run on."""
    ranks = []
    for own in sets:
        errors = [own.score(model, "error") for model in models]
        if None not in errors:
            ranks.append(rankdata(errors))
    return dict(zip(models, np.mean(ranks, axis=0))) if ranks else {}
