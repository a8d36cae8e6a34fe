"""Small fitted models to explain, and explanations of them by brute force."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from polyadic import CPClassifier, CPRegressor, maps

ROWS, FAST = 60, {"rank": 4, "n_members": 1, "max_iter": 2, "random_state": 0}


def numbers(seed=0, n_columns=3):
    """Rows of few distinct values, so that the marginals are uneven."""
    rng = np.random.default_rng(seed)
    return rng.choice(
        [-1.0, -0.3, 0.2, 0.9, 2.0], size=(ROWS, n_columns), p=[0.3, 0.3, 0.2, 0.1, 0.1]
    )


def target(X, seed=1):
    noise = np.random.default_rng(seed).normal(size=len(X))
    return X[:, 0] + X[:, 1] ** 2 - 2 * X[:, 0] * X[:, 2] + 0.3 * noise


def mixed():
    X = numbers()
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["c"] = pd.Categorical(np.array(["u", "v", "w"])[np.arange(ROWS) % 3])
    frame.loc[::7, "b"] = np.nan
    frame.loc[::11, "c"] = None
    return frame


def one_output():
    X = numbers()
    return CPRegressor(**FAST).fit(X, target(X)), X


def three_outputs():
    X = numbers()
    return CPRegressor(**FAST).fit(X, np.column_stack([target(X, s) for s in range(3)])), X


def additive_part():
    X = numbers()
    y = np.column_stack([target(X, s) for s in range(2)])
    model = CPRegressor(**FAST | {"rank": 2, "init": "linear"}).fit(X, y)
    assert model.tensor_.additive is not None
    return model, X


def merged_members():
    X = np.random.default_rng(3).normal(size=(ROWS, 3))
    model = CPRegressor(maps=maps.Hat(n_knots=4), **FAST | {"n_members": 2}).fit(X, target(X))
    return model, X[:9]


def merged_additive():
    X = numbers()
    model = CPRegressor(**FAST | {"rank": 2, "init": "linear", "n_members": 2}).fit(X, target(X))
    assert model.tensor_.additive is not None
    return model, X


def mixed_columns():
    X = mixed()
    return CPRegressor(**FAST).fit(X, target(numbers())), X


def no_constant():
    X = numbers()
    map_ = maps.Polynomial(4, normalize=True)
    return CPRegressor(maps=map_, init="gaussian", **FAST).fit(X, target(X)), X


def two_classes():
    X = mixed()
    return CPClassifier(**FAST).fit(X, np.where(target(numbers()) > 0, "high", "low")), X


def three_classes():
    X = mixed()
    label = np.digitize(target(numbers()), [-1.0, 1.0])
    return CPClassifier(**FAST).fit(X, np.array(["low", "middle", "high"])[label]), X


def merged_classes():
    X = mixed()
    y = np.where(target(numbers()) > 0, "high", "low")
    model = CPClassifier(rank=3, n_members=2, max_iter=2, random_state=0).fit(X, y)
    return model, X


def separate_outputs():
    X = numbers()
    y = np.column_stack([target(X, s) for s in range(2)])
    return CPRegressor(separate_outputs=True, **FAST).fit(X, y), X


def squared_labels():
    X = mixed()
    label = np.digitize(target(numbers()), [-1.0, 1.0])
    model = CPClassifier(loss="squared_error", class_weight={0: 1, 1: 3, 2: 1}, **FAST)
    return model.fit(X, label), X


def odd_columns():
    X = pd.DataFrame({"same": np.ones(ROWS), "none": np.full(ROWS, np.nan)})
    X["rare"] = pd.Categorical(np.where(np.arange(ROWS) < 2, "few", "many"))
    model = CPRegressor(maps={"rare": maps.OneHot(min_count=5)}, **FAST)
    return model.fit(X, target(numbers())), X


def one_column():
    X = numbers(n_columns=1)
    return CPRegressor(**FAST).fit(X, X[:, 0] ** 2), X


CASES = [
    one_output,
    three_outputs,
    additive_part,
    merged_members,
    merged_additive,
    mixed_columns,
    no_constant,
    two_classes,
    three_classes,
    merged_classes,
    separate_outputs,
    squared_labels,
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


def relative(model, f):
    """Return what is explained of raw predictions (..., L): scores less their mean over classes."""
    many = hasattr(model, "classes_") and f.shape[-1] > 2 and model.loss_.link_name == "softmax"
    return f - f.mean(axis=-1, keepdims=True) if many else f


def distinct(column):
    """Return one row for each distinct value, and the shares of those values."""
    _, first, counts = np.unique(
        np.where(np.isnan(column), 99.0, column), return_index=True, return_counts=True
    )
    return first, counts / len(column)


def whole_grid(model, X):
    """Evaluate what is explained on all combinations of distinct values, in double precision.

    Returns f : (k_1, ..., k_N, L), and rows and shares of the values of each column.
    """
    coded = model.columns_.code(X)
    picked = [distinct(np.asarray(c, dtype=float)) for c in coded]
    cores, n_columns = model.tensor_, len(coded)
    f = cores.weights.astype(float)
    terms, extra = np.ones((1, cores.rank)), np.zeros((1, cores.n_outputs))
    for n, (rows, _) in enumerate(picked):
        phi = model.maps_[n].dense(coded[n][rows])
        terms = (terms[:, None] * (phi @ cores.factors[n])).reshape(-1, cores.rank)
        own = np.zeros((len(rows), 1)) if cores.additive is None else phi @ cores.additive[n]
        extra = (extra[:, None] + own).reshape(-1, cores.n_outputs)
    f = relative(model, cores.intercept + extra + terms @ f)
    shape = [len(rows) for rows, _ in picked]
    assert len(shape) == n_columns
    return f.reshape(*shape, -1), [rows for rows, _ in picked], [share for _, share in picked]


def average(f, shares, kept):
    """Average over all columns but the kept ones; averaged axes stay, with length one."""
    for n, share in enumerate(shares):
        if n not in kept:
            weights = share.reshape([-1 if m == n else 1 for m in range(f.ndim)])
            f = (f * weights).sum(axis=n, keepdims=True)
    return f


def pure_terms(f, shares):
    """Return every pure term of the functional ANOVA, by its definition."""
    out = {}
    for order in range(len(shares) + 1):
        for chosen in combinations(range(len(shares)), order):
            smaller = [t for t in out if set(t) < set(chosen)]
            out[chosen] = average(f, shares, chosen) - sum(out[t] for t in smaller)
    return out


def variance(term, shares):
    return float(average((term**2).sum(axis=-1, keepdims=True), shares, ()).sum())
