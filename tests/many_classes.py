"""Fitted models of three classes and more, of every kind that can be explained."""

from functools import cache

import lightgbm as lgb
import needs
import numpy as np
import pandas as pd
from explained import FAST, mixed, numbers, target
from sklearn.datasets import load_digits, load_iris

from polyadic import CPClassifier, TNClassifier
from polyadic.trees import from_model


@cache
def with_trees():
    X = mixed()
    label = np.digitize(target(numbers()), [-1.0, 1.0])
    joined = FAST | {"trees": True, "n_members": 2, "solver": "adam"}
    model = CPClassifier(**joined).fit(X, np.array(["low", "middle", "high"])[label])
    assert model.tensor_.trees is not None
    return model, X


@cache
def of_lightgbm():
    X = numbers()
    grown = lgb.LGBMClassifier(n_estimators=4, min_child_samples=3, verbose=-1)
    return from_model(grown.fit(X, np.digitize(target(X), [-1.0, 1.0])), X), X


@cache
def network():
    needs.package("torch")
    X = mixed()
    label = np.digitize(target(numbers()), [-1.0, 1.0])
    model = TNClassifier(format="tt", rank=3, max_iter=2, random_state=0)
    return model.fit(X, np.array(["a", "b", "c"])[label]), X


@cache
def iris():
    table = load_iris(as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[table.target]
    return CPClassifier(n_members=2, max_iter=60, random_state=0).fit(table.data, names), table.data


@cache
def digits():
    """Return a model of seven handwritten digits, from the ink in 16 squares, and other rows."""
    table = load_digits(n_class=7)
    names = np.array(["zero", "one", "two", "three", "four", "five", "six"])[table.target]
    ink = table.images.reshape(-1, 4, 2, 4, 2).sum(axis=(2, 4)).reshape(-1, 16)
    X = pd.DataFrame(ink, columns=[f"ink {i}{j}" for i in range(4) for j in range(4)])
    model = CPClassifier(rank=8, n_members=1, max_iter=20, random_state=0)
    return model.fit(X[:700], names[:700]), X[700:760]
