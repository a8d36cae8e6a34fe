"""MovieLens 100K on the paper's split: 21,200 training rows, 26 categories; a rating of five."""

from polyadic.datasets import fetch_movielens100k

TASK = "binary"


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target."""
    paper = fetch_movielens100k(split="paper")
    return paper.X_train, paper.y_train, paper.X_test, paper.y_test
