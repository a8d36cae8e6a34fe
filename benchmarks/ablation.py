"""What each part of the defaults contributes: errors relative to CatBoost's, on inner splits.

The training rows of each set are split again, 80 to 20; test rows are never read. The error is the
mean squared error, or the log-loss of classes.

Uses internals: it imports modules of polyadic that are not public.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent / "tabular"))

from common import machine, print_table, print_title, seconds
from models import catboost
from sklearn.metrics import log_loss
from tasks import Data, load

from polyadic import CPClassifier, CPRegressor
from polyadic.maps import Hat
from polyadic.objective import prior
from polyadic.solvers import loop
from polyadic.training import forest, members, mixing, screening, strategy_training
from polyadic.training.strategies import FactorPenalties, MixedPrior

SETS = [
    "airfoil",
    "bike",
    "california",
    "concrete",
    "diabetes",
    "energy",
    "protein",
    "pumadyn32nm",
    "skillcraft",
    "sml",
]
# Long enough for trees, for --trees.
LONG = [
    "abalone",
    "ames",
    "bike",
    "california",
    "hotel",
    "protein",
    "pumadyn32nm",
    "skillcraft",
    "sml",
]
CLASSES = ["breast_cancer", "cells", "hpc", "lending", "phoneme", "segment", "wa_churn"]
ONE_STRENGTH = {"strengths": (1.0,), "strengths_of_long_tables": (1.0,)}


def without(place: Any, **values: Any) -> Callable[[], Any]:
    """Return a context in which these names of a module or class have other values."""
    return lambda: patch.multiple(place, **values)


@contextmanager
def nothing() -> Iterator[None]:
    """Change nothing."""
    yield


def only(kind: str) -> Callable[[], Any]:
    """Return a context in which the members of one strategy make up the model.

    Where it was not trained, as trees are not on short tables, the first strategy takes its place.
    """

    def shares(groups, fits):
        own = [group for group in groups if group[0].kind == kind] or groups
        return own[:1], np.ones(1), []

    return without(members, find_shares=shares)


def equal_shares(loss: Any, y: Any, weight: Any, raws: np.ndarray) -> np.ndarray:
    """Return equal shares for all strategies."""
    return np.full(len(raws), 1.0 / len(raws))


def no_deviations(groups: Any, shares: Any, numbers: Any, columns: Any) -> np.ndarray:
    """Suppose that members do not differ, and nothing is gained by their mean."""
    return np.zeros((0, len(columns[0]), 1))


def no_search(task: Any) -> screening.Screening:
    """Keep all columns, and start from no interaction."""
    return screening.Screening(list(range(len(task.maps))), 0, 0, 0, [], True)


def no_seeds(task: Any) -> screening.Screening:
    """Screen columns, but start from no interaction."""
    return replace(SEARCH(task), seeds=[])


SEARCH = screening.search


# What all targets share: name, what is changed inside, parameters that differ from the defaults.
SHARED: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    ("the defaults", nothing, {}),
    ("factor penalties alone", only("factor penalties"), {}),
    ("tensor prior alone", only("tensor prior"), {}),
    ("additive alone", only("additive"), {}),
    ("linear alone", only("linear"), {}),
    ("no linear model", without(members, possible=lambda *args: False), {}),
    ("shares not pulled", without(mixing, _PULL=0.0), {}),
    ("tensor prior of rank 24", without(MixedPrior, ranks=(24, 24)), {}),
    ("equal shares", without(mixing, find_shares=equal_shares), {}),
    ("all columns, no search", without(screening, search=no_search), {}),
    ("no terms to start from", without(screening, search=no_seeds), {}),
    ("one length for all tables", without(strategy_training, _LEAST_GAIN=np.inf), {}),
    ("three members", nothing, {"n_members": 3}),
    ("rank 16", nothing, {"rank": 16}),
    ("rank 48", nothing, {"rank": 48}),
]
TREES: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    ("trees alone", only("trees"), {}),
    ("no trees", nothing, {"trees": False}),
    ("share of trees without averaging", without(mixing, deviations=no_deviations), {}),
    ("all rows in every tree of many classes", without(forest, _ROW_SHARE_OF_CLASSES=1.0), {}),
]
VARIANTS: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    *SHARED,
    *TREES,
    ("one strength for all tables", without(FactorPenalties, **ONE_STRENGTH), {}),
    ("one weight for all columns", without(loop, _WEIGHT_PACE=0.0), {}),
    ("48 knots for all tables", nothing, {"maps": Hat(48)}),
    ("knots at the same places in all members", without(Hat, jitter=lambda self, rng: self), {}),
    ("a quarter of the knots by the target", nothing, {"maps": Hat(by_target=0.25)}),
    ("half of the knots by the target", nothing, {"maps": Hat(by_target=0.5)}),
    ("one member, one strength", nothing, {"n_members": 1}),
]
CLASS_VARIANTS: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    *SHARED,
    *TREES,
    (
        "labels that are certain",
        without(FactorPenalties, prepare=lambda self, p, maps, over: p),
        {},
    ),
    ("no lower limit of the spread", without(prior, _LEAST_TOTAL_SPREAD=0.0), {}),
    ("spreads start 30 times as large", without(prior, _FIRST_TOTAL_SPREAD=30.0), {}),
    ("one member", nothing, {"n_members": 1}),
]


def error(model: Any, data: Data) -> float:
    """Return the error on the rows that were split off."""
    if data.task == "regression":
        return float(np.mean((model.predict(data.X_test) - data.y_test) ** 2))
    return log_loss(data.y_test, model.predict_proba(data.X_test), labels=model.classes_)


def errors(build: Callable[[Data], Any], tables: list[Data]) -> tuple[np.ndarray, float]:
    """Return the error on each table and the seconds of all fits."""
    found, time = [], 0.0
    for data in tables:
        model = build(data)
        time += seconds(lambda m=model, d=data: m.fit(d.X_train, d.y_train))
        found.append(error(model, data))
    return np.array(found), time


def mean_ratio(found: np.ndarray, to: np.ndarray) -> float:
    """Return the geometric mean of ratios."""
    return float(np.exp(np.mean(np.log(found / to))))


def compare(names: list[str], kind: type, variants: list) -> None:
    """Fit all variants on all sets and print their errors relative to CatBoost's."""
    tables = [load(import_module(f"data.{name}"), 0, True) for name in names]
    small = min(tables, key=lambda data: len(data.y_train))
    kind(max_iter=1).fit(small.X_train, small.y_train)  # compiles the kernels
    kind(random_state=0).fit(small.X_train, small.y_train)
    theirs, time = errors(lambda data: catboost.build(data, 0), tables)
    lines = [["CatBoost", "1.000", f"{time:.1f}"]]
    for name, change, params in variants:
        with change():
            ours, time = errors(lambda _, p=params: kind(random_state=0, **p), tables)
        lines.append([name, f"{mean_ratio(ours, theirs):.3f}", f"{time:.1f}"])
        print(name, np.round(ours / theirs, 3).tolist(), file=sys.stderr, flush=True)
    print_title(", ".join(names))
    print_table(["", "error", "fit s"], lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the small sets")
    parser.add_argument("--classes", action="store_true", help="only the tables of classes")
    parser.add_argument("--trees", action="store_true", help="long sets, lines about trees")
    parser.add_argument("--sets", help="only these sets")
    args = parser.parse_args()
    print(machine())
    if args.sets:
        given = args.sets.split(",")
        for known, kind, variants in (
            (SETS, CPRegressor, VARIANTS),
            (CLASSES, CPClassifier, CLASS_VARIANTS),
        ):
            if names := [name for name in given if name in known]:
                compare(names, kind, variants)
        return
    if args.trees:
        compare(LONG, CPRegressor, [SHARED[0], *TREES])
        compare(
            [name for name in CLASSES if name != "breast_cancer"], CPClassifier, [SHARED[0], *TREES]
        )
        return
    if not args.classes:
        small = ["airfoil", "concrete", "diabetes", "energy"]
        compare(small if args.quick else SETS, CPRegressor, VARIANTS)
    small = ["breast_cancer", "hpc", "phoneme"]
    compare(small if args.quick else CLASSES, CPClassifier, CLASS_VARIANTS)


if __name__ == "__main__":
    main()
