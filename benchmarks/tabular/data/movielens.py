"""MovieLens 100K: 21,200 training rows, 26 categories; a rating of five. Split 0 is the paper's."""

import numpy as np
from sklearn.model_selection import train_test_split

from polyadic.datasets import fetch_movielens100k

TASK = "binary"
PAPER_SEED = 42  # of split 0; the others follow it


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target.

    Half of the positive rows and as many negative ones are for training.
    """
    X, y = fetch_movielens100k(return_X_y=True)
    seed = PAPER_SEED + split
    positive, negative = np.flatnonzero(y == 1), np.flatnonzero(y != 1)
    some, more = train_test_split(positive, random_state=seed, test_size=0.5)
    few, rest = train_test_split(negative, random_state=seed, train_size=len(some))
    train, test = np.concatenate([some, few]), np.concatenate([more, rest])
    return X.iloc[train], y[train], X.iloc[test], y[test]
