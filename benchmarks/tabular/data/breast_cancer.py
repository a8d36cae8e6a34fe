"""Breast cancer of scikit-learn: 569 tumours, 30 numbers; malignant or benign."""

from sklearn.datasets import load_breast_cancer
from tasks import held_out

TASK = "binary"


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return held_out(X, y.to_numpy(), TASK, 0.25, split)
