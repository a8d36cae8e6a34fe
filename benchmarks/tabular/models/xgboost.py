"""XGBoost at its defaults, with its own treatment of categories."""

from tasks import THREADS, Data
from xgboost import XGBClassifier, XGBRegressor


def build(data: Data, seed: int) -> XGBRegressor | XGBClassifier:
    """Return the estimator."""
    kind = XGBRegressor if data.task == "regression" else XGBClassifier
    return kind(random_state=seed, n_jobs=THREADS, enable_categorical=True)
