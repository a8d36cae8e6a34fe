"""CPRegressor and CPClassifier at their defaults."""

from typing import Any

from tasks import THREADS, Data

from polyadic import CPClassifier, CPRegressor


def build(data: Data, seed: int, **settings: Any) -> CPRegressor | CPClassifier:
    """Return the estimator, with settings other than the defaults where given."""
    kind = CPRegressor if data.task == "regression" else CPClassifier
    return kind(random_state=seed, n_jobs=THREADS, **settings)
