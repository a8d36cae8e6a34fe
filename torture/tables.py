"""Random tables of nasty columns: every estimator and task, held to the rules.

    python torture/tables.py --minutes 30 --jobs 2

A fit of finite or missing values either works or raises ValueError, TypeError or MemoryError. A
fitted model predicts finite numbers for its own training rows; far outside of them it does, or
raises ValueError. On any number of threads, with the rows or the columns in another order, a CP
model has the same bits; its predictions multiply columns in the order of the table, and round so.
Saved and loaded, every model predicts the same bits.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from common import pick, run, same_bits
from sklearn.base import clone

from polyadic import CPClassifier, CPRegressor, TNClassifier, TNRegressor, load

DEFINED = (ValueError, TypeError, MemoryError)
FORMATS = ["cp", "tt", "tr", "ht", "tucker", "fm", "pn"]
MAPS = ["auto", "auto", "auto", "polynomial", "chebyshev", "bspline", "step", "fourier", "hat"]
LOSSES = ["huber", "absolute_error", "poisson", "quantile"]
DENSE = ("polynomial", "chebyshev", "fourier")  # maps that alternating least squares refuses
WHOLE = 0.0025  # share of cases with rows enough for trees, all defaults and no limit of time
ROWS_OF_TREES = 50  # of fewer rows, fewer than five would be held out
UNFIT = 0.05  # share of the cases whose settings may refuse each other
TEXTS = ["", " ", "a", "A", "ß", "☃", "nan", "None", "x" * 300, "1.5", "\n", "<b>"]


# ---- columns -------------------------------------------------------------------------------------


def numeric(rng, n):
    """Return a column of numbers, of one of many kinds."""
    x = rng.normal(size=n)
    kinds = [
        x,
        rng.standard_cauchy(n),
        x * 1e300,
        1.7e308 * rng.uniform(-1, 1, n),
        x * 1e-310,
        1e9 + x * 1e-6,
        np.round(3 * x),
        np.zeros(n),
        np.full(n, 7.5),
        (rng.random(n) < 0.5) * 1.0,
        np.where(np.arange(n) == 0, 1e12, x),
        np.sort(x),
        np.repeat(x[: (n + 2) // 3], 3)[:n],
        np.exp(20 * x),
        np.arange(n, dtype=float),
        np.nextafter(np.ones(n), 2) * (1 + (rng.random(n) < 0.5)),
    ]
    out = np.array(pick(rng, kinds), dtype=float)
    share = pick(rng, [0.0, 0.0, 0.1, 0.9, 1.0])
    out[rng.random(n) < share] = np.nan
    return pick(rng, [out, out, pd.Series(out).astype("Float64"), out.astype(np.float32)])


def whole(rng, n):
    kind = pick(rng, ["int8", "int64", "uint64", "bool", "Int64"])
    return pd.Series(rng.integers(0, 2 if kind == "bool" else 100, n)).astype(kind)


def category(rng, n):
    """Return a column of categories: text, mixed objects, ordered, identifiers, all missing."""
    texts = np.array(TEXTS[: int(rng.integers(1, len(TEXTS) + 1))], dtype=object)
    x = texts[rng.integers(0, len(texts), n)]
    x[rng.random(n) < pick(rng, [0.0, 0.2, 1.0])] = None
    match int(rng.integers(5)):
        case 0:
            return pd.Series(x, dtype=object)
        case 1:
            return pd.Series(pd.Categorical(x))
        case 2:
            return pd.Series(pd.Categorical(x, categories=TEXTS, ordered=True))
        case 3:
            return pd.Series([f"id{k}" for k in range(n)], dtype=object)
        case _:
            mixed = np.array([1, 2.5, "x", True, None], dtype=object)
            return pd.Series(mixed[rng.integers(0, 5, n)], dtype=object)


def dates(rng, n):
    start = pd.Timestamp("1999-12-31 23:59:59")
    out = pd.Series(start + pd.to_timedelta(rng.integers(0, 10**9, n), unit="s"))
    out[rng.random(n) < pick(rng, [0.0, 0.3])] = pd.NaT
    return out


def table(rng, n=None):
    """Return a table, mostly small: what breaks a fit seldom needs many rows or columns."""
    n = n or pick(rng, [2, 3, 5, 5, 8, 12, 12, 20, 40, 90])
    n_columns = 15 if rng.random() < 0.05 else pick(rng, [1, 1, 2, 2, 3, 4])
    kinds = [numeric, numeric, numeric, whole, category, category, dates]
    columns = [pick(rng, kinds)(rng, n) for _ in range(n_columns)]
    return pd.DataFrame({f"c{k} {TEXTS[k % 12]}": x for k, x in enumerate(columns)})


# ---- targets and estimators ----------------------------------------------------------------------


def target(rng, task, n):
    if task == "numbers":
        return pick(
            rng,
            [
                rng.normal(size=n),
                rng.standard_cauchy(n) * 1e6,
                np.full(n, 3.0),
                1e12 + rng.normal(size=n),
                rng.normal(size=n) * 1e200,
                rng.normal(size=n) * 1e-200,
                np.round(np.abs(rng.normal(size=n))),
                rng.normal(size=(n, 3)),
            ],
        )
    labels = pick(rng, [np.array(["a", "b", "c", "d"]), np.arange(4), np.array([0.0, 1, 2, 3])])
    n_classes = 2 if task == "two classes" else pick(rng, [3, 4])
    y = labels[rng.integers(0, n_classes, n)]
    y[: min(n, n_classes)] = labels[: min(n, n_classes)]
    return y


def estimator(rng, task):
    """Return an estimator with small settings; one in fifty CP models has all defaults."""
    numbers = task == "numbers"
    common = {"max_iter": pick(rng, [1, 2, 3]), "rank": pick(rng, [1, 2, 4]), "random_state": 0}
    if rng.random() < 0.2:
        common["solver"] = pick(rng, ["Adam", "Adam", "als", "riemannian", "SGD", "auto"])
        common["maps"] = pick(rng, ["auto", "auto", "polynomial", "hat"])
        return (TNRegressor if numbers else TNClassifier)(pick(rng, FORMATS), **common)
    cls = CPRegressor if numbers else CPClassifier
    if rng.random() < 0.02:
        return cls(max_time=0.5, n_jobs=1, random_state=0)
    common |= {"n_members": pick(rng, [1, 1, 1, 2]), "n_jobs": 1}
    common["maps"] = pick(rng, MAPS)
    common["solver"] = pick(rng, ["auto", "adam", "als", "als+adam", "adam+als"])
    common["trees"] = pick(rng, [False, False, False, True])
    common |= pick(rng, [{}, {}, {}, {"init": "linear"}, {"order_alpha": 0.1}, {"l2": 0.0}])
    if numbers:
        common["loss"] = pick(rng, ["squared_error", "squared_error", *LOSSES])
        common["quantile"] = 0.9 if common["loss"] == "quantile" else None
    elif rng.random() < 0.2:
        common["class_weight"] = "balanced"
    return cls(**common)


def fitting(model, n_rows):
    """Return an estimator without settings that every fit of so many rows refuses at once."""
    given = model.get_params(deep=False)
    if "format" in given:
        if model.solver == "auto":  # the solver of CP models only
            model.set_params(solver="Adam")
        elif model.solver == "riemannian":
            model.set_params(format="tt")
        return model.set_params(maps="auto") if model.format in ("fm", "pn") else model
    if "als" in model.solver and model.maps in DENSE:
        model.set_params(maps="hat")
    if model.trees is True:  # of few losses, and held-out rows choose their share
        model.set_params(n_members=2, trees=n_rows >= ROWS_OF_TREES)
        if given.get("loss") in LOSSES and model.loss != "poisson":
            model.set_params(loss="squared_error", quantile=None)
    return model


# ---- the rules -----------------------------------------------------------------------------------


def predictions(model, X, names=("raw", "predict", "predict_proba", "decision_function")):
    """Return what a model predicts in these ways."""
    return {name: getattr(model, name)(X) for name in names if hasattr(model, name)}


def check_same(found, want, what):
    for name, have in found.items():
        assert same_bits(have, want[name]), f"{name} depends on {what}"


def check_columns(model, other):
    """Check that each column has the same core, whatever its place."""
    own = dict(zip(model.columns_.names, model.cores_))
    for name, core in zip(other.columns_.names, other.cores_):
        assert same_bits(core, own[name]), "a core depends on the order of columns"


def check_far(rng, model, X):
    """Check rows far outside of the training range: finite, or an error that says so."""
    far = X.copy()
    for name in far.columns:
        if far[name].dtype == float:
            far[name] = rng.choice([1e10, -1e300, 1e-300, 0.0, 1.7e308], len(far))
    told, found = "", np.zeros(1)
    try:
        found = model.raw(far)
    except ValueError as error:
        told = str(error)
    assert not told or "cannot be predicted" in told, told
    assert np.all(np.isfinite(found)), "a far row is not finite"


def check_again(rng, fitted, X, y, weight, want) -> list[str]:
    """Fit again in other ways, each in a third of the cases, and compare; return their names."""
    told = []

    def again(X, y, weight, **changes):
        return clone(fitted).set_params(**changes).fit(X, y, sample_weight=weight)

    if fitted.n_members != 1 and rng.random() < 1 / 3:
        told.append("n_jobs")
        other = again(X, y, weight, n_jobs=2)
        check_same(predictions(other, X, ["raw"]), want, "n_jobs")
    if rng.random() < 1 / 3:
        told.append("rows")
        order = rng.permutation(len(X))
        own = None if weight is None else weight[order]
        other = again(X.iloc[order], y[order], own)
        check_same(predictions(other, X, ["raw"]), want, "the order of rows")
    if rng.random() < 1 / 3:
        told.append("columns")
        names = list(rng.permutation(X.columns))
        other = again(X[names], y, weight)
        check_columns(fitted, other)
        raw = other.raw(X[names])  # products of float32 round by their order
        # Where terms cancel each other, predictions of zero round to something else than zero.
        unit = np.abs(y).max() if y.dtype.kind == "f" else 1.0
        size = max(np.abs(want["raw"]).max(), 1e-3 * unit)
        assert np.allclose(raw, want["raw"], rtol=1e-3, atol=1e-3 * size), "predictions differ"
    return told


def drawn(rng):
    """Return a table, a target, weights and an estimator."""
    task = pick(rng, ["numbers", "numbers", "two classes", "classes"])
    whole = rng.random() < WHOLE
    X = table(rng, 600 if whole else None)
    y = target(rng, task, len(X))
    if whole:
        cls = CPRegressor if task == "numbers" else CPClassifier
        return X, y, None, cls(n_jobs=1, random_state=0)
    model = estimator(rng, task)
    if rng.random() > UNFIT:
        model = fitting(model, len(X))
        y = np.abs(y) if getattr(model, "loss", "") == "poisson" else y
    if getattr(model, "format", "") == "tucker" and X.shape[1] > 4:
        model.set_params(rank=1)  # its core has a power of the rank
    return X, y, pick(rng, [None, None, np.round(rng.random(len(X)), 2) + 0.01]), model


def case(rng, folder) -> str:
    X, y, weight, model = drawn(rng)
    try:
        model.fit(X, y, sample_weight=weight)
    except DEFINED:
        return "refused"
    want = predictions(model, X)  # an error here is a failure
    for name, found in want.items():
        if np.asarray(found).dtype.kind == "f":
            assert np.all(np.isfinite(found)), f"{name} of the training rows is not finite"
    model.save(folder / "model")
    check_same(predictions(load(folder / "model"), X, ["raw", "predict"]), want, "saving")
    check_far(rng, model, X)
    if not isinstance(model, CPRegressor | CPClassifier) or model.max_time is not None:
        return "fitted"
    told = check_again(rng, model, X, y, weight, want)
    return " and ".join(["fitted", *told])


if __name__ == "__main__":
    run("tables", case, block=20)
