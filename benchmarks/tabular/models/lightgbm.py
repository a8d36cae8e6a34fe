"""LightGBM at its defaults."""

from typing import Any

from lightgbm import LGBMClassifier, LGBMRegressor
from tasks import THREADS, Data


def build(data: Data, seed: int, **settings: Any) -> LGBMRegressor | LGBMClassifier:
    """Return the estimator, with settings other than the defaults where given."""
    kind = LGBMRegressor if data.task == "regression" else LGBMClassifier
    return kind(random_state=seed, n_jobs=THREADS, verbose=-1, **settings)
