"""Fitted models of every kind for the tests of exports, and tables with all that may be missing."""

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from parts import LOSSES, random_cores, random_trees, shared_trees

from polyadic import CPClassifier, CPRegressor
from polyadic.losses import Poisson, SquaredError
from polyadic.maps import Hat, OneHot, Polynomial, Step
from polyadic.networks.trees import category_map

FAST = {"n_members": 1, "rank": 2, "max_iter": 2, "random_state": 0, "trees": False}
LABELS = {
    "two texts": np.array(["no", "yes"]),
    "two numbers": np.array([3, 7]),
    "two truths": np.array([False, True]),
    "three texts": np.array(["it's", "low", "top"]),
    "four numbers": np.array([1, 2, 5, 9]),
}


def table(n=60, seed=0):
    """Return two numeric columns, a column of text and one of numbers that are categories."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "far": 1e7 + rng.random(n),
            "town": rng.choice(["Bath", "Cork's", 'D"ale', "Élm"], n),
            "grade": rng.choice([3.0, 1.0, 2.0], n),
        }
    )
    return frame.astype({"town": object})


def numbers():
    """Return a table of numbers, and a target."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(150, 3)), columns=["a", "b", "c"])
    return X, (X["a"] * X["b"] + X["c"]).to_numpy()


def odd_rows(X, n=40, seed=1):
    """Return rows of a table with missing numbers, missing and unseen categories, and far values.

    The first row is missing altogether.
    """
    rng = np.random.default_rng(seed)
    out = X.iloc[rng.integers(0, len(X), n)].reset_index(drop=True)
    for name in out.columns:
        if out[name].dtype.kind == "f":
            out[name] += rng.normal(size=n) * (rng.random(n) < 0.3) * (name != "grade")
            out.loc[rng.random(n) < 0.2, name] = np.nan
            out.loc[rng.random(n) < 0.1, name] = 99.0 if name == "grade" else 3 * X[name].max()
        else:
            out.loc[rng.random(n) < 0.2, name] = None
            out.loc[rng.random(n) < 0.2, name] = "never seen"
        out.loc[0, name] = np.nan if out[name].dtype.kind == "f" else None
    return out


@cache
def template(kind=None):
    """Return a fitted model, whose parts other models replace; `kind` is one of LABELS."""
    X = table()
    y = X["size"].to_numpy()
    settings = FAST | {"categorical_features": ["town", "grade"]}
    if kind is None:
        return CPRegressor(**settings).fit(X, y)
    labels = LABELS[kind]
    edges = np.quantile(y, np.arange(1, len(labels)) / len(labels))
    return CPClassifier(**settings).fit(X, labels[np.digitize(y, edges)])


def coded(model=None):
    return (model or template()).columns_.code(table())


def made(maps=None, n_outputs=1, kind=None, loss=None, rank=3, additive=True, trees=None, seed=0):
    """Return a model with random cores over maps that are fitted to the columns of `table`.

    `maps` are one for the numbers and one for the categories.
    """
    model = copy.copy(template(kind))
    numeric, categorical = maps or (Hat(n_knots=7), OneHot())
    families = [numeric, numeric, categorical, categorical]
    model.maps_ = [
        m if hasattr(m, "missing_of_test") else m.clone().fit(x)
        for m, x in zip(families, coded(model))
    ]
    dims = [m.dim for m in model.maps_]
    cores = random_cores(dims, rank, n_outputs, seed, zeros=0.1, additive=additive)
    # Smaller factors: products of four random numbers would differ by orders of magnitude.
    cores.factors[:] = [0.5 * factor for factor in cores.factors]
    model.tensor_ = replace(cores, trees=trees)
    if loss is not None:
        model.loss_ = loss
    model._flat_target = n_outputs == 1
    return model


BEYOND = {
    "two classes": {"kind": "two texts"},
    "three classes": {"kind": "three texts", "n_outputs": 3},
    "two classes, squared": {"kind": "two texts", "loss": SquaredError()},
    "three classes, squared": {"kind": "three texts", "n_outputs": 3, "loss": SquaredError()},
    "numbers": {"n_outputs": 2},
    "counts": {"loss": Poisson()},
}


def beyond(case):
    """Return a model of powers and three rows; `predict` refuses the first two."""
    model, X = made((Polynomial(6), OneHot()), **BEYOND[case]), table()[:3].copy()
    numbers = list(X)[:2]
    X.loc[X.index[0], numbers] = 1e10
    X.loc[X.index[1], numbers] = [1e30, -1e30]
    X.loc[X.index[2], numbers] = table()[numbers].mean()
    return model, X


def some_trees(n_outputs=1, width=1, both_ways=True, seed=0):
    """Return random trees over the columns of `table`; some missing values go both ways."""
    rng = np.random.default_rng(seed)
    columns = template().columns_.columns
    steps = [Step(n_bins=5).fit(x) for x in coded()[:2]]
    own = [*steps, *(category_map(len(c.categories)) for c in columns[2:])]
    trees = random_trees(own, 6, n_outputs, rng, depth=4, width=width)
    if not both_ways:
        return trees
    shares = []
    for n, m in enumerate(own):
        share = rng.random(m.dim) * (np.arange(m.dim) > 0)
        shares.append(share / share.sum() if n != 1 else np.zeros(0))  # column 1 goes one way
    return trees.with_averages(shares)


@cache
def joined(classes=False):
    """Return a model as a fit makes it: two members, boosted trees, screening, averages."""
    X = table(200)
    y = X["size"] * (X["town"] == "Bath") + (X["grade"] == 2.0)
    X.loc[:20, "size"] = np.nan
    settings = {"n_members": 2, "max_iter": 3, "random_state": 0, "trees": True, "solver": "adam"}
    with shared_trees():
        if classes:
            model = CPClassifier(**settings).fit(X, np.digitize(y, [0.0, 1.0]))
        else:
            model = CPRegressor(**settings).fit(X, y)
    assert model.tensor_.trees is not None
    return model, X


def close(found, wanted):
    """Assert equality to 1e-5 of the scale of the predictions."""
    found, wanted = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    assert found.shape == wanted.shape
    scale = max(np.std(wanted), 1e-3 * np.abs(wanted).max(), 1e-12)
    assert np.isfinite(found).all()
    assert np.abs(found - wanted).max() <= 1e-5 * scale


def averaged_polynomial():
    """Return a fitted map whose missing values have elements of their own."""
    own = Polynomial(d=3).fit(coded()[0]).with_missing(np.array([0.3, 1.2]))
    own.missing_of_test = True
    return own


LOSSES_OF_NUMBERS = [loss for loss in LOSSES if "numbers" in loss.targets]
