"""Adult: 48,842 people, 6 numbers and 8 categories; an income above 50,000 dollars."""

from tasks import held_out

from polyadic.datasets import fetch_adult

TASK = "binary"


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target."""
    X, y = fetch_adult(return_X_y=True)
    return held_out(X, y, TASK, 0.25, split)
