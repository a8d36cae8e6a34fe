"""CatBoost at its defaults, with its own treatment of categories."""

from typing import Any

import pandas as pd
from catboost import CatBoostClassifier, CatBoostRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tasks import THREADS, Data


def name_missing(X: pd.DataFrame) -> pd.DataFrame:
    """Make missing values a category of their own, because CatBoost refuses them."""
    named = {
        name: X[name].cat.add_categories("missing").fillna("missing")
        for name in X.select_dtypes("category")
    }
    return X.assign(**named)


def build(data: Data, seed: int) -> Any:
    """Return the estimator."""
    kind = CatBoostRegressor if data.task == "regression" else CatBoostClassifier
    model = kind(
        random_seed=seed,
        thread_count=THREADS,
        cat_features=data.categorical,
        verbose=0,
        allow_writing_files=False,
    )
    return make_pipeline(FunctionTransformer(name_missing), model) if data.categorical else model
