"""A small table of mixed columns, and helpers for the tests of estimators."""

import numpy as np
import pandas as pd

SMALL = {"n_members": 1, "rank": 8, "max_iter": 30, "random_state": 0}


def table(n=300, seed=0):
    """Return a frame with numbers, an integer, categories and missing values, and a target."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "age": rng.integers(0, 50, n),
            "town": rng.choice(["Bath", "Cork", "Dale", "Elm"], n),
            "old": rng.random(n) < 0.3,
        }
    )
    y = X["size"] * (X["town"] == "Cork") + 0.02 * X["age"] + X["old"] + 0.1 * rng.normal(size=n)
    X.loc[rng.random(n) < 0.1, "size"] = np.nan
    X.loc[rng.random(n) < 0.1, "town"] = None
    return X, y.to_numpy()


def labels(y, n_classes):
    edges = np.quantile(y, np.arange(1, n_classes) / n_classes)
    return np.array(["low", "mid", "top"])[np.digitize(y, edges)]


def same_model(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a.cores_, b.cores_)) and np.array_equal(
        a.weights_, b.weights_
    )
