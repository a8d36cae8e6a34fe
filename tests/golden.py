"""Fingerprints of models and explanations, to compare before and after a change of code.

Bits depend on the CPU, so no fingerprint is kept in the repository. On one machine:

    python tests/golden.py write before.json      # on the commit that is known to be right
    python tests/golden.py compare before.json    # after the change

Every estimator, loss, solver, init, format and map kind is trained on small tables; predictions,
explanations, and predictions after a save and a load are hashed. `compare` names what differs, and
by how much. New cases go to the end, under new names, so that older files can still be compared.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import polyadic
from polyadic import CPClassifier, CPRegressor, TNClassifier, TNRegressor, explain, losses, maps

N_ROWS = 160
# A parameter of an older version -> its name now, so that both versions can be compared.
RENAMED = {"max_epochs": "max_iter", "average": "ema_decay"}
BRIEF = {"random_state": 0, "n_members": 2, "rank": 4, "max_iter": 3}


@dataclasses.dataclass(frozen=True)
class PseudoHuber(losses.Loss):
    """A loss as a user would write it: its baseline is found numerically."""

    location_scale = True

    @staticmethod
    def value_and_slope(y: float, raw: float) -> tuple[float, float]:
        """Return a smooth version of the absolute error."""
        root = np.sqrt(1.0 + (raw - y) ** 2)
        return root - 1.0, (raw - y) / root

    def torch_losses(self, y: Any, raw: Any) -> Any:
        """Return the same in torch."""
        return ((1.0 + (raw - y) ** 2) ** 0.5 - 1.0).sum(1)


def mixed(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table of numbers and categories with missing values, and a target."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.gamma(3.0, 20.0, N_ROWS),
            "age": rng.integers(0, 60, N_ROWS).astype(float),
            "town": rng.choice(["Aarau", "Bern", "Chur", "Davos"], N_ROWS),
            "old": rng.random(N_ROWS) < 0.3,
        }
    )
    y = 0.05 * X["size"] + np.sin(X["age"] / 9.0) * (X["town"] == "Bern") + 0.5 * X["old"]
    X.loc[rng.random(N_ROWS) < 0.1, "age"] = np.nan
    X.loc[rng.random(N_ROWS) < 0.1, "town"] = None
    return X, (y + 0.1 * rng.normal(size=N_ROWS)).to_numpy()


def numeric(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return three numeric columns and a target with a product in it."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (N_ROWS, 3))
    return X, X[:, 0] * X[:, 1] + X[:, 2] + 0.05 * rng.normal(size=N_ROWS)


def classes(y: np.ndarray, n: int) -> np.ndarray:
    """Return labels by quantiles of a target."""
    edges = np.quantile(y, np.arange(1, n) / n)
    return np.array(["a", "b", "c", "d"])[np.searchsorted(edges, y)]


def make(cls: type, **parameters: Any) -> Any:
    """Return an estimator of this version, whatever it calls its parameters."""
    known = cls().get_params()
    old = {new: name for name, new in RENAMED.items() if new not in known}
    return cls(**{old.get(name, name): value for name, value in parameters.items()})


def cases() -> Iterator[tuple[str, Any, Any, Any, dict[str, Any]]]:
    """Yield name, estimator, X, y and other arguments of `fit`."""
    X, y = mixed()
    Z, t = numeric()
    Y = np.column_stack([y, 3.0 - 2.0 * y])
    weight = np.random.default_rng(1).integers(0, 3, N_ROWS).astype(float)

    def cp(**own: Any) -> Any:
        return make(CPRegressor, **{**BRIEF, **own})

    def cpc(**own: Any) -> Any:
        return make(CPClassifier, **{**BRIEF, **own})

    brief = {name: value for name, value in BRIEF.items() if name != "n_members"}

    def tn(cls: type, **own: Any) -> Any:
        return make(cls, **{**brief, "rank": 2, "learning_rate": 0.02, **own})

    yield "regressor, defaults", make(CPRegressor, random_state=0), X, y, {}
    yield "regressor, defaults, numbers", make(CPRegressor, random_state=0), Z, t, {}
    yield "two classes, defaults", make(CPClassifier, random_state=0), X, classes(y, 2), {}
    yield "three classes, defaults", make(CPClassifier, random_state=0), X, classes(y, 3), {}
    for loss in ("squared_error", "absolute_error", "huber", "poisson", losses.Quantile(0.9)):
        for solver in ("auto", "adam", "als", "als+adam"):
            yield f"loss {loss}, solver {solver}", cp(loss=loss, solver=solver), X, abs(y), {}
        yield f"loss {loss}, torch", cp(loss=loss, engine="torch", solver="adam"), X, abs(y), {}
        yield f"loss {loss}, init linear", cp(loss=loss, init="linear"), X, abs(y), {}
    for loss in ("log_loss", "squared_error"):
        for n in (2, 3):
            for solver in ("auto", "adam", "als", "als+adam"):
                name = f"{n} classes, {loss}, {solver}"
                yield name, cpc(loss=loss, solver=solver), X, classes(y, n), {}
            name = f"{n} classes, {loss}, torch"
            yield name, cpc(loss=loss, engine="torch", solver="adam"), X, classes(y, n), {}
    yield "balanced classes", cpc(class_weight="balanced"), X, classes(y, 3), {}
    yield "two classes, rank auto", cpc(rank="auto", max_iter="auto"), X, classes(y, 2), {}
    yield "two classes, one member", cpc(n_members=1, max_iter="auto"), X, classes(y, 2), {}
    yield "two classes, no hold-out", cpc(early_stopping=False), X, classes(y, 2), {}
    for family in (
        maps.Hat(6),
        maps.Hat(6, by_target=0.5),
        maps.Polynomial(3),
        maps.Polynomial(2),
        maps.Polynomial(4, normalize=True),
        maps.BSpline(5),
        maps.Fourier(2),
        maps.Trigonometric(),
        maps.Chebyshev(4),
    ):
        yield f"map {family}", cp(maps=family), X, y, {}
        yield f"map {family}, one member", cp(maps=family, n_members=1), Z, t, {}
    yield "one-hot with few rows", cp(maps={"town": maps.OneHot(min_count=30)}), X, y, {}
    for init in ("near_one", "gaussian", "linear"):
        for n in (1, 2):
            name = f"init {init}, {n} outputs"
            yield name, cp(init=init, rank=10), X, (y if n == 1 else Y), {}
            yield (
                name + ", apart",
                cp(init=init, separate_outputs=True),
                X,
                (y if n == 1 else Y),
                {},
            )
    yield "adam+als", cp(maps=maps.Polynomial(3), solver="adam+als"), Z, t, {}
    yield "polish by default", cp(maps=maps.Polynomial(3), max_iter="auto", n_members=1), Z, t, {}
    for solver in ("adam", "als", "als+adam"):
        name = f"order penalty, {solver}"
        yield name, cp(order_alpha=0.01, order_beta=2.0, solver=solver), X, y, {}
    yield "order penalty, torch", cp(order_alpha=0.01, engine="torch", solver="adam"), X, y, {}
    yield "given penalties", cp(l2=0.01, smoothness=0.02), X, y, {}
    yield "given l2", cp(l2=0.01), X, y, {}
    yield "weights", cp(), X, y, {"sample_weight": weight}
    yield "held-out rows", cp(), X, y, {"X_val": X[:40], "y_val": y[:40]}
    yield (
        "held-out rows, classes",
        cpc(),
        X,
        classes(y, 2),
        {"X_val": X[:40], "y_val": classes(y, 2)[:40]},
    )
    yield "no held-out rows", cp(early_stopping=False), X, y, {}
    yield "patience", cp(max_iter=30, n_iter_no_change=2), X, y, {}
    yield "constant schedule", cp(schedule="constant", ema_decay=0.0, batch_size=16), X, y, {}
    yield "one thread", cp(n_jobs=1), X, y, {}
    yield "one member", cp(n_members=1), X, y, {}
    wide = np.random.default_rng(2).normal(size=(N_ROWS, 60))
    yield "many columns, one member", cp(n_members=1), wide, wide[:, 0] * wide[:, 1], {}
    for name in ("cp", "tt", "tr", "ht", "tucker", "fm", "pn"):
        yield f"network {name}", tn(TNRegressor, format=name), X, y, {}
        yield f"network {name}, two outputs", tn(TNRegressor, format=name), X, Y, {}
        yield f"network {name}, classes", tn(TNClassifier, format=name), X, classes(y, 3), {}
        yield f"network {name}, gaussian", tn(TNRegressor, format=name, init="gaussian"), X, y, {}
    for name in ("cp", "tt", "tr", "ht", "tucker"):
        yield (
            f"network {name}, order penalty",
            tn(TNRegressor, format=name, order_alpha=0.01),
            X,
            y,
            {},
        )
    for name in ("cp", "tt", "tr"):
        yield (
            f"network {name}, linear",
            tn(TNRegressor, format=name, init="linear", rank=8),
            X,
            y,
            {},
        )
    yield "network, l2", tn(TNRegressor, l2=0.01), X, y, {}
    yield "network, SGD", tn(TNRegressor, solver="SGD"), X, y, {}
    for alpha in (0.0, 0.01):
        own = {"solver": "riemannian", "order_alpha": alpha}
        yield f"riemannian, order {alpha}", tn(TNRegressor, **own), X, y, {}
    for loss in ("absolute_error", "huber", "poisson"):
        yield f"network, {loss}", tn(TNRegressor, loss=loss), X, abs(y), {}
    yield "loss quantile by name", cp(loss="quantile", quantile=0.9), X, y, {}
    yield "own loss", cp(loss=PseudoHuber()), X, y, {}
    yield "own loss, torch", cp(loss=PseudoHuber(), engine="torch", solver="adam"), X, y, {}
    yield "own loss, network", tn(TNRegressor, loss=PseudoHuber()), X, y, {}
    yield "torch, two outputs", cp(engine="torch", solver="adam"), X, Y, {}
    held_out = {"X_val": X[:40], "y_val": y[:40]}
    own_weights = {**held_out, "sample_weight_val": 1.0 + weight[:40]}
    yield "held-out rows with weights", cp(), X, y, own_weights
    for n in (2, 3):
        riemannian = tn(TNClassifier, solver="riemannian")
        yield f"riemannian, {n} classes", riemannian, X, classes(y, n), {}
    yield "network, weights", tn(TNRegressor), X, y, {"sample_weight": weight}
    yield "network, held-out rows", tn(TNRegressor), X, y, held_out
    both = {"sample_weight": weight, **own_weights}
    yield "network, held-out rows with weights", tn(TNRegressor), X, y, both


def continued() -> Iterator[tuple[str, Any, Any]]:
    """Yield models that continue a fitted one: name, model, table."""
    X, y = mixed()
    for name, own in {"": {}, ", apart": {"separate_outputs": True}}.items():
        model = make(CPRegressor, **BRIEF, warm_start=True, **own)
        Y = np.column_stack([y, -y])
        yield f"warm start{name}", model.fit(X, Y).fit(X, Y), X
        model = make(CPRegressor, **BRIEF, **own)
        yield f"partial fits{name}", model.partial_fit(X[:80], Y[:80]).partial_fit(X, Y), X
    label = classes(y, 2)
    model = make(CPClassifier, **BRIEF, warm_start=True)
    yield "warm start, classes", model.fit(X, label).fit(X, label), X
    model = make(CPClassifier, **BRIEF)
    yield "partial fits, classes", model.fit(X, label).partial_fit(X, label), X
    model = make(TNRegressor, rank=2, max_iter=3, random_state=0, warm_start=True)
    yield "warm start, network", model.fit(X, y).fit(X, y), X


def readings(model: Any, X: Any) -> Iterator[tuple[str, Any]]:
    """Yield predictions and explanations of a fitted model, by name."""
    yield "raw", model.raw(X)
    yield "predict", model.predict(X)
    if hasattr(model, "predict_proba"):
        yield "predict_proba", model.predict_proba(X)
    yield "n_iter", model.n_iter_
    yield "history", model.history_
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        yield "loaded", polyadic.load(Path(folder) / "model", losses=[PseudoHuber]).raw(X)
    few = X[:5]
    for name in ("effects", "sobol", "terms", "interactions", "in_words", "coefficients"):
        yield name, _result_or_error(getattr(explain, name), model)
    yield "shapley", _result_or_error(explain.shapley, model, few)
    yield "shapley, background", _result_or_error(explain.shapley, model, few, X[:20])
    yield "shapley_interactions", _result_or_error(explain.shapley_interactions, model, few)
    yield "feature_importances_", getattr(model, "feature_importances_", "not available")
    yield "partial_dependence", _result_or_error(explain.partial_dependence, model, [0, 1])


def _result_or_error(function: Any, *args: Any) -> Any:
    """Return the result, or the error as text."""
    try:
        return function(*args)
    except (ValueError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"


def numbers(value: Any) -> Iterator[Any]:
    """Yield the arrays and texts that a result consists of, in a fixed order."""
    if dataclasses.is_dataclass(value):
        for own in dataclasses.fields(value):
            yield from numbers(getattr(value, own.name))
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from (str(key), *numbers(value[key]))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield np.ascontiguousarray(value)
    elif isinstance(value, np.ndarray):
        yield from numbers(value.tolist())
    elif value is not None:
        yield str(value)


def fingerprint(value: Any) -> dict[str, Any]:
    """Return a hash of a result's bits, and its size: does only the last bit differ, or more?"""
    digest, size = hashlib.sha256(), 0.0
    for item in numbers(value):
        digest.update(item.encode() if isinstance(item, str) else item.tobytes())
        if isinstance(item, np.ndarray) and item.dtype.kind == "f" and item.size:
            size += float(np.nansum(np.abs(np.where(np.isfinite(item), item, 0.0))))
    return {"sha256": digest.hexdigest()[:16], "size": size}


def all_fingerprints() -> dict[str, dict[str, Any]]:
    """Train and read everything."""
    out = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = ((name, m.fit(X, y, **more), X) for name, m, X, y, more in cases())
        for source in (fitted, continued()):
            for name, model, X in source:
                for what, value in readings(model, X):
                    out[f"{name}: {what}"] = fingerprint(value)
                if sys.stderr.isatty():
                    print(f"\r{len(out)} fingerprints", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return out


def compare(before: dict, after: dict) -> int:
    """Print which fingerprints differ, and return how many."""
    wrong = 0
    for name in [*before, *(n for n in after if n not in before)]:
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            print(f"{name}: only {'after' if old is None else 'before'}")
        elif old["sha256"] != new["sha256"]:
            print(f"{name}: size {old['size']:.9g} before, {new['size']:.9g} after")
        else:
            continue
        wrong += 1
    print(f"{wrong} of {len(before)} fingerprints differ")
    return wrong


if __name__ == "__main__":
    what, place = sys.argv[1:]
    if what == "write":
        Path(place).write_text(json.dumps(all_fingerprints(), indent=1))
    else:
        known = json.loads(Path(place).read_text())
        sys.exit(compare(known, all_fingerprints()) > 0)
