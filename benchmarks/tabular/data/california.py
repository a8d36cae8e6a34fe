"""California housing on the paper's split: 13,208 training rows, 8 numbers; the house value."""

import pandas as pd

from polyadic.datasets import fetch_california_housing

TASK = "regression"


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target; no validation rows."""
    paper = fetch_california_housing(split="paper")
    names = [f"x{n}" for n in range(paper.X_train.shape[1])]
    X, X_test = (pd.DataFrame(rows, columns=names) for rows in (paper.X_train, paper.X_test))
    return X, paper.y_train, X_test, paper.y_test
