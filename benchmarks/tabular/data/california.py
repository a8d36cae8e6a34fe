"""California housing: 13,208 training rows, 8 numbers; the house value. Split 0 is the paper's."""

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from polyadic.datasets import fetch_california_housing

TASK = "regression"
N_TRAIN = 13_208  # of the paper; the rest of its training part is for validation


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target; no validation rows."""
    table, y = fetch_california_housing(return_X_y=True)
    X, X_test, y, y_test = train_test_split(np.asarray(table), y, test_size=0.2, random_state=split)
    X, y = X[:N_TRAIN], y[:N_TRAIN]
    shift, scale = np.mean(X, axis=0), np.std(X, axis=0)
    names = [f"x{n}" for n in range(X.shape[1])]
    X, X_test = (pd.DataFrame((rows - shift) / scale, columns=names) for rows in (X, X_test))
    return X, y, X_test, y_test
