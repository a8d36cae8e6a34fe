"""Diabetes of scikit-learn: 442 patients, 10 numbers; the progression in a year."""

from sklearn.datasets import load_diabetes
from tasks import held_out

TASK = "regression"


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    return held_out(X, y.to_numpy(), TASK, 0.25, split)
