"""A data set as the runner sees it: training rows, test rows, and what is to be predicted."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

THREADS = 2  # for each model


@dataclass(frozen=True)
class Data:
    """The rows of one split.

    Categorical columns have pandas' `category` type. The target is standardised on the training
    rows, or holds the number of the class.
    """

    name: str
    task: str  # "regression", "binary" or "multiclass"
    X_train: pd.DataFrame
    y_train: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray

    @property
    def categorical(self) -> list[str]:
        """Return the names of the categorical columns."""
        return list(self.X_train.select_dtypes("category").columns)


def load(module: ModuleType, split: int, inner: bool) -> Data:
    """Load one split of a data set; with `inner`, hold out training rows in place of test rows."""
    name, task = module.__name__.split(".")[-1], module.TASK
    X, y, X_test, y_test = module.load(split)
    if inner:
        X, X_test, y, y_test = cut(X, y, task, 0.2, split)
    if task == "regression":
        centre, scale = np.mean(y), np.std(y)
        y, y_test = (y - centre) / scale, (y_test - centre) / scale
    else:
        classes = np.unique(y)
        y, y_test = np.searchsorted(classes, y), np.searchsorted(classes, y_test)
    return Data(name, task, X, np.asarray(y), X_test, np.asarray(y_test))


def cut(X: pd.DataFrame, y: np.ndarray, task: str, part: float, seed: int) -> list:
    """Hold out a part of the rows, always the same ones; classes keep their shares."""
    strata = None if task == "regression" else y
    return train_test_split(X, y, test_size=part, random_state=seed, stratify=strata)


def held_out(X: pd.DataFrame, y: np.ndarray, task: str, part: float, split: int) -> tuple:
    """Return training rows, training target, test rows and test target."""
    X, X_test, y, y_test = cut(X, y, task, part, split)
    return X, y, X_test, y_test
