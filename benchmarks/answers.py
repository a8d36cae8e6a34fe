"""What a default fit spends on answers that are right: hints, and neutral missing values.

Printed is the share of a default fit's time, the median of three fits per set. The same functions
run in every fit; a progress bar or a callback costs time only where it is asked for.

    python benchmarks/answers.py

Uses internals: it imports modules of polyadic that are not public.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent / "tabular"))

from common import machine, print_table, print_title
from tasks import load

from polyadic import CPClassifier, CPRegressor
from polyadic.estimators import base

SETS = ["abalone", "adult", "ames", "california", "hotel", "segment"]
PARTS = {"warn_of_columns": base, "_average_missing": base.TableEstimator}


def timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Return the function, which adds the seconds that it takes to a list."""

    def run(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent.append(time.perf_counter() - start)

    return run


def main() -> None:
    """Fit every set, and print the shares."""
    print_title(f"What hints and neutral missing values take of a default fit. {machine()}")
    warnings.simplefilter("ignore")
    spent: list[float] = []
    for name, owner in PARTS.items():
        setattr(owner, name, timed(getattr(owner, name), spent))
    lines = []
    for name in SETS:
        data = load(import_module(f"data.{name}"), 0, inner=False)
        kind = CPRegressor if data.task == "regression" else CPClassifier
        shares, totals = [], []
        for seed in range(3):
            spent.clear()
            start = time.perf_counter()
            kind(random_state=seed).fit(data.X_train, data.y_train)
            totals.append(time.perf_counter() - start)
            shares.append(sum(spent) / totals[-1])
        lines.append([name, f"{np.median(totals):.2f}", f"{np.median(shares):.2%}"])
    print_table(["set", "fit s", "share"], lines)


if __name__ == "__main__":
    main()
