"""How good predictions are, beside a constant prediction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn import metrics

from polyadic.explain.listing import fixed, number
from polyadic.training.model import FittedModel, classes_of


class Measures(NamedTuple):
    """Measures by name: of a model, and of the constant that is named by `baseline`."""

    n_rows: int
    model: dict[str, float]
    constant: dict[str, float]
    baseline: str

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of a table to print."""
        names = list(self.model)
        return {
            "": names,
            "model": [_text(name, self.model[name]) for name in names],
            self.baseline: [_text(name, self.constant[name]) for name in names],
        }

    def as_json(self) -> dict[str, Any]:
        """Return the measures by short names."""
        return {
            "rows": self.n_rows,
            "model": {_SHORT[name]: value for name, value in self.model.items()},
            "baseline": {_SHORT[name]: value for name, value in self.constant.items()},
        }


_SHORT = {
    "R²": "r2",
    "root mean squared error": "rmse",
    "mean absolute error": "mae",
    "area under ROC": "auc",
    "accuracy": "accuracy",
    "log loss": "log_loss",
}


_DECIMALS = {"R²": 3, "area under ROC": 3, "accuracy": 3, "log loss": 4}


def _text(name: str, value: float) -> str:
    """Write a measure; those without a unit have the same decimals for every model."""
    if not np.isfinite(value):
        return "-"
    return fixed(value, _DECIMALS[name]) if name in _DECIMALS else number(value)


def measure(model: FittedModel, X: Any, y: Any, y_before: Any = None) -> Measures:
    """Return how good the predictions of rows are.

    Parameters
    ----------
    model : fitted estimator
    X : table, (n, N)
    y : (n,)
    y_before : (m,), optional
        Targets that the constant is taken from, such as those of training; by default y itself,
        which gives the best of all constants.
    """
    target = model.code_target(y, len(y))[:, 0]
    before = target if y_before is None else model.code_target(y_before, len(y_before))[:, 0]
    classes = classes_of(model)
    if classes is None:
        found = _of_numbers(target, np.asarray(model.predict(X), dtype=float))
        constant = _of_numbers(target, np.full(len(target), before.mean()))
        return Measures(len(target), found, constant, f"always {number(before.mean())}")
    share = model.predict_proba(X)  # type: ignore[attr-defined]
    counts = np.bincount(before.astype(int), minlength=len(classes))
    often = np.broadcast_to((counts + 1.0) / (counts + 1.0).sum(), share.shape)
    codes = target.astype(int)
    name = f"always {classes.tolist()[int(np.argmax(counts))]}"
    return Measures(len(codes), _of_classes(codes, share), _of_classes(codes, often), name)


def _of_numbers(y: np.ndarray, f: np.ndarray) -> dict[str, float]:
    varies = len(y) > 1 and np.ptp(y) > 0  # otherwise there is nothing to explain
    return {
        "R²": float(metrics.r2_score(y, f)) if varies else np.nan,
        "root mean squared error": float(metrics.root_mean_squared_error(y, f)),
        "mean absolute error": float(metrics.mean_absolute_error(y, f)),
    }


def _of_classes(codes: np.ndarray, share: np.ndarray) -> dict[str, float]:
    """Return measures of probabilities, (n, K)."""
    n_classes = share.shape[1]
    out = {
        "accuracy": float(np.mean(np.argmax(share, axis=1) == codes)),
        "log loss": float(metrics.log_loss(codes, share, labels=np.arange(n_classes))),
    }
    if n_classes > 2:
        return out
    both = 0 < codes.sum() < len(codes)
    area = float(metrics.roc_auc_score(codes, share[:, 1])) if both else np.nan
    return {"area under ROC": area, **out}
