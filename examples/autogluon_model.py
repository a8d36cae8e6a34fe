"""A wrapper for AutoGluon and TabArena: our estimators as one of their models.

    from autogluon.tabular import TabularPredictor
    from autogluon_model import PolyadicModel

    TabularPredictor(label="price").fit(table, hyperparameters={PolyadicModel: {}})

AutoGluon gives a model a time limit and asks beforehand how much memory it will take. It is not
needed to import this file: `settings_for`, `memory_of` and `fit_estimator` are plain functions.
"""

from typing import Any

import numpy as np
import pandas as pd

import polyadic
from polyadic import CPClassifier, CPRegressor

try:
    from autogluon.core.models import AbstractModel
except ImportError:  # the functions below work without it
    AbstractModel = object

CLASSES = ("binary", "multiclass")
# Of the time limit: averaging the members and measuring the columns come after training.
SHARE_OF_TIME = 0.9
# Numbers of a default fit: the rank of all members together, knots of a column, slots of a row.
RANK, KNOTS, SLOTS = 256, 160, 2


def settings_for(
    hyperparameters: dict[str, Any],
    time_limit: float | None,
    num_cpus: int,
    random_state: int | None = None,
) -> dict[str, Any]:
    """Return the parameters of the estimator: those that were given, and what AutoGluon limits."""
    out = {"n_jobs": num_cpus, "random_state": random_state, **hyperparameters}
    if time_limit is not None:
        out["max_time"] = max(1.0, SHARE_OF_TIME * time_limit)
    return out


def memory_of(X: pd.DataFrame, num_classes: int | None = None) -> int:
    """Estimate the bytes of a default fit: coded rows, slots of all columns, cores and moments."""
    n_rows, n_columns = X.shape
    outputs = num_classes if num_classes is not None and num_classes > 2 else 1
    rows = n_rows * n_columns * (8 + 8 * SLOTS) * 2  # the columns, and the slots of two members
    elements = sum(
        X[name].nunique() if X[name].dtype.kind not in "iuf" else KNOTS for name in X.columns
    )
    cores = elements * RANK * 4 * 6  # parameters, gradients, moments of Adam, averages, the best
    return int(rows + cores + n_rows * outputs * 8 * 10 + 200e6)  # and the process itself


def fit_estimator(
    X: pd.DataFrame, y: Any, problem_type: str, settings: dict[str, Any], validation: Any = None
) -> CPRegressor | CPClassifier:
    """Fit the estimator for a problem; `validation` is a pair of rows and target, or None."""
    if problem_type == "quantile":
        raise ValueError(
            "problem_type='quantile' fits several quantiles at once, and one model has one. Fit "
            "CPRegressor(loss='quantile', quantile=...) for each."
        )
    polyadic.warmup(n_jobs=settings["n_jobs"], verbose=False)  # not on the clock of the fit
    estimator = CPClassifier if problem_type in CLASSES else CPRegressor
    more = {} if validation is None else {"X_val": validation[0], "y_val": validation[1]}
    return estimator(**settings).fit(X, y, **more)


class PolyadicModel(AbstractModel):
    """CPRegressor and CPClassifier as a model of AutoGluon."""

    ag_key = "POLYADIC"
    ag_name = "Polyadic"

    def _fit(self, X, y, X_val=None, y_val=None, time_limit=None, num_cpus=1, **kwargs):
        settings = settings_for(
            self._get_model_params(), time_limit, num_cpus, kwargs.get("random_seed", 0)
        )
        validation = None if X_val is None else (self.preprocess(X_val), y_val)
        rows = self.preprocess(X, is_train=True)
        self.model = fit_estimator(rows, y, self.problem_type, settings, validation)

    def _predict_proba(self, X, **kwargs) -> np.ndarray:
        rows = self.preprocess(X, **kwargs)
        if self.problem_type in CLASSES:
            return self._convert_proba_to_unified_form(self.model.predict_proba(rows))
        return self.model.predict(rows)

    def _get_default_auxiliary_params(self) -> dict:
        kinds = {"valid_raw_types": ["int", "float", "category", "bool"]}
        return {**super()._get_default_auxiliary_params(), **kinds}

    def _estimate_memory_usage(self, X, **kwargs) -> int:
        return memory_of(X, self.num_classes)

    @classmethod
    def _class_tags(cls) -> dict:
        return {"can_estimate_memory_usage_static": False}

    def _more_tags(self) -> dict:
        return {"valid_oof": False, "handle_missing": True}
