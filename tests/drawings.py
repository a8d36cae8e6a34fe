"""Models to draw, of a plain and of an odd table, and what tests read from the axes."""

import functools

import numpy as np
import pandas as pd

from polyadic import CPClassifier, CPRegressor

FAST = {"rank": 4, "max_iter": 4, "random_state": 0}


def table(n=80):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    X["c"] = pd.Categorical(np.array(["u", "v", "w"])[np.arange(n) % 3])
    return X, X["a"] + X["b"] ** 2 + 0.1 * rng.normal(size=n)


def odd_table(n=120):
    """Missing values, a constant, many categories, and names that are hard to write."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"a column with a name beyond all measure": rng.normal(size=n)})
    X["b$1$"] = rng.uniform(size=n)
    X["c"] = pd.Categorical(np.array(["u", "v", "w"])[np.arange(n) % 3])
    X["constant"] = 1.0
    X["many"] = pd.Categorical([f"category {i % 30:02d}" for i in range(n)])
    X["empty"] = np.nan
    X.loc[::7, "b$1$"] = np.nan
    X.loc[::5, "c"] = np.nan
    y = X.iloc[:, 0] + (X["c"] == "u") + np.arange(n) % 30 / 10 + X["b$1$"].fillna(2.0)
    return X, y


@functools.cache
def fitted(kind):
    """Return a model of the odd table with 1, 2 (targets) or 3 (classes) outputs, and the table."""
    X, y = odd_table()
    if kind == "classes":
        return CPClassifier(n_members=1, **FAST).fit(X, np.digitize(y, [1.0, 2.0])), X
    if kind == "two classes":
        return CPClassifier(n_members=1, **FAST).fit(X, np.where(y > 2, "high", "low")), X
    target = np.column_stack([y, -y]) if kind == "targets" else y
    return CPRegressor(n_members=1, **FAST).fit(X, target), X


KINDS = ["number", "targets", "two classes", "classes"]


def panel(found, axes, column):
    """Return the panel of a column."""
    order = np.argsort(-found.variance, kind="stable").tolist()
    return axes.ravel()[order.index(found.columns.index(column))]


def bars(ax):
    """Return the bars of data, those of the strip of densities left out."""
    own = [b for b in ax.patches if hasattr(b, "get_x") and b.get_transform() == in_data(ax, b)]
    return [b for b in own if b.get_facecolor()[:3] != (1.0, 1.0, 1.0)]


def in_data(ax, patch):
    return patch.get_patch_transform() + ax.transData


def draw(ax):
    (ax.ravel()[0] if isinstance(ax, np.ndarray) else ax).figure.canvas.draw()
