"""The explainable boosting machine of the package interpret at its defaults."""

from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor
from tasks import THREADS, Data

MOST_ROWS, REPEATS = 25_000, 1  # training rows, fits: because a fit takes minutes


def build(data: Data, seed: int) -> ExplainableBoostingRegressor | ExplainableBoostingClassifier:
    """Return the estimator."""
    regression = data.task == "regression"
    kind = ExplainableBoostingRegressor if regression else ExplainableBoostingClassifier
    return kind(random_state=seed, n_jobs=THREADS)
