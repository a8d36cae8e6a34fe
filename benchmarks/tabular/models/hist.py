"""HistGradientBoosting at its defaults, with categorical columns recognised by their dtype."""

from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from tasks import Data

MOST_CATEGORIES = 255  # that its bins can hold


def build(data: Data, seed: int) -> Any:
    """Return the estimator; columns of too many categories are passed as ordinal codes."""
    regression = data.task == "regression"
    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    model = kind(random_state=seed, categorical_features="from_dtype")
    sizes = {name: len(data.X_train[name].cat.categories) for name in data.categorical}
    large = [name for name, size in sizes.items() if size > MOST_CATEGORIES]
    if not large:
        return model
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    columns = make_column_transformer((codes, large), remainder="passthrough")
    return make_pipeline(columns.set_output(transform="pandas"), model)
