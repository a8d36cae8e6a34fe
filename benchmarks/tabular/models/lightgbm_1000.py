"""LightGBM with up to 1,000 trees at a rate of 0.05, stopped early on a tenth of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from lightgbm import early_stopping
from models import lightgbm
from sklearn.model_selection import train_test_split
from tasks import Data


class Stopped:
    """A LightGBM estimator that holds out a tenth of its rows to stop on."""

    def __init__(self, model: Any, stratified: bool, seed: int) -> None:
        self.model, self.stratified, self.seed = model, stratified, seed

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Stopped:
        """Fit until the held-out loss has not fallen for 50 trees."""
        strata = y if self.stratified else None
        X, X_val, y, y_val = train_test_split(
            X, y, test_size=0.1, random_state=self.seed, stratify=strata
        )
        stop = early_stopping(50, verbose=False)
        self.model.fit(X, y, eval_set=[(X_val, y_val)], callbacks=[stop])
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Predict with the best number of trees."""
        return self.model.predict(X)

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Return the probabilities of the classes with the best number of trees."""
        return self.model.predict_proba(X)


def build(data: Data, seed: int) -> Stopped:
    """Return the estimator."""
    model = lightgbm.build(data, seed, n_estimators=1000, learning_rate=0.05)
    return Stopped(model, data.task != "regression", seed)
