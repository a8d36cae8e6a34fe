"""What each part of the defaults is worth: errors relative to CatBoost's, on inner splits.

The training rows of each regression set are split again, 80 to 20; test rows are never read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent / "tabular"))

from common import machine, print_table, seconds
from models import catboost
from tasks import Data, load

from polyadic import CPRegressor, ensemble
from polyadic.maps import Hat
from polyadic.solvers import course

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
PLAIN = {"STRENGTHS": (1.0,), "STRENGTHS_LONG": (1.0,)}


def without(place: Any, **values: Any) -> Callable[[], Any]:
    """Return a context in which these names of a module or class have other values."""
    return lambda: patch.multiple(place, **values)


@contextmanager
def nothing() -> Iterator[None]:
    """Change nothing."""
    yield


# Name, what is changed inside, parameters that differ from the defaults.
VARIANTS: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    ("the defaults", nothing, {}),
    ("one strength for all tables", without(ensemble, **PLAIN), {}),
    ("one weight for all columns", without(course, _WEIGHT_PACE=0.0), {}),
    ("no sweep before Adam", nothing, {"solver": "adam"}),
    ("sweeps alone", nothing, {"solver": "als"}),
    ("48 knots for all tables", nothing, {"maps": Hat(48)}),
    ("knots at the same places in all members", without(Hat, jitter=lambda self, rng: self), {}),
    ("a quarter of the knots by the target", nothing, {"maps": Hat(by_target=0.25)}),
    ("half of the knots by the target", nothing, {"maps": Hat(by_target=0.5)}),
    ("three members", nothing, {"n_members": 3}),
    ("one member, one strength", nothing, {"n_members": 1}),
    ("rank 16", nothing, {"rank": 16}),
    ("rank 64", nothing, {"rank": 64}),
    ("no penalties", nothing, {"l2": 0.0, "smoothness": 0.0}),
]


def errors(build: Callable[[], Any], tables: list[Data]) -> tuple[np.ndarray, float]:
    """Return the error on each table and the seconds of all fits."""
    found, time = [], 0.0
    for data in tables:
        model = build()
        time += seconds(lambda m=model, d=data: m.fit(d.X_train, d.y_train))
        found.append(np.mean((model.predict(data.X_test) - data.y_test) ** 2))
    return np.array(found), time


def mean_ratio(found: np.ndarray, to: np.ndarray) -> float:
    """Return the geometric mean of ratios."""
    return float(np.exp(np.mean(np.log(found / to))))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four small sets")
    quick = parser.parse_args().quick
    names = ["airfoil", "concrete", "diabetes", "energy"] if quick else SETS
    tables = [load(import_module(f"data.{name}"), 0, True) for name in names]
    print(machine())
    CPRegressor(max_epochs=1).fit(tables[0].X_train, tables[0].y_train)  # compiles the kernels
    theirs, time = errors(lambda: catboost.build(tables[0], 0), tables)
    lines = [["CatBoost", "1.000", f"{time:.1f}"]]
    for name, change, params in VARIANTS:
        with change():
            ours, time = errors(lambda p=params: CPRegressor(random_state=0, **p), tables)
        lines.append([name, f"{mean_ratio(ours, theirs):.3f}", f"{time:.1f}"])
        print(name, np.round(ours / theirs, 3).tolist(), file=sys.stderr, flush=True)
    print_table(["", "error", "fit s"], lines)


if __name__ == "__main__":
    main()
