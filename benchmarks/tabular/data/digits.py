"""Digits of scikit-learn: 1,797 images of 8 by 8 pixels; which of ten digits."""

from sklearn.datasets import load_digits
from tasks import held_out

TASK = "multiclass"


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target."""
    X, y = load_digits(return_X_y=True, as_frame=True)
    return held_out(X, y.to_numpy(), TASK, 0.25, split)
