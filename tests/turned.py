"""Models of `grown`, turned into estimators of this library."""

import catboost as cb
import grown
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn.tree import DecisionTreeRegressor

from polyadic.trees import from_model

MODELS = {
    "lightgbm": lambda: lgb.LGBMRegressor(**grown.LGB),
    "xgboost": lambda: xgb.XGBRegressor(**grown.XGB),
    "catboost": lambda: cb.CatBoostRegressor(**grown.CAT),
    "sklearn": lambda: DecisionTreeRegressor(max_depth=4),
}


@grown.quiet()
def build(name, seed=0):
    """Return a case of `grown`, its model, table and raw predictions, and our estimator."""
    case, rng = grown.CASES[name], np.random.default_rng(seed)
    model, X, raw = case.build(rng)
    return case, model, X, raw, from_model(model, X)


@grown.quiet()
def assert_same(ours, X, raw, tolerance=1e-12):
    expected = np.asarray(raw(X), dtype=float).reshape(len(X), -1)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(ours.raw(X), expected, rtol=0, atol=tolerance * scale)
