"""Tables outside of the suite: errors relative to CatBoost, by several splits of each.

`--group small` are 25 tables of 151 to 2,201 rows, `--group large` 79 others of 360 rows and more,
of which at most 10,000 are used for training. docs/defaults.md tells what was chosen on them.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "tabular"))

import numpy as np
from common import machine, print_table
from models import catboost, cp, lightgbm, lightgbm_1000, linear
from outside_tables import LARGE, SMALL, TABLES, split
from scores import measure

GROUPS = {"small": (SMALL, 4), "large": (LARGE, 1)}  # and splits of each
TINY = 1e-3  # errors are compared from here on: below, all of them are good
MODELS: dict[str, Callable] = {
    "catboost": catboost.build,
    "cp": cp.build,
    "lightgbm": lightgbm.build,
    "lightgbm_1000": lightgbm_1000.build,
    "linear": linear.build,
    "five members": partial(cp.build, n_members=5),
}


def main() -> None:
    """Fit, and print the ratios of every table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group", default="small", choices=GROUPS)
    parser.add_argument("--splits", type=int, help="by default 4 of small tables, 1 of large ones")
    parser.add_argument("--models", default="catboost,cp", help=", ".join(MODELS))
    parser.add_argument("--sets", help="names of tables; by default those of the group")
    given = parser.parse_args()
    tables, n_splits = GROUPS[given.group]
    sets = given.sets.split(",") if given.sets else list(tables)
    for wrong in {*given.models.split(","), *sets} - {*MODELS, *TABLES}:
        parser.error(f"{wrong!r} is neither a model nor a set")
    n_splits = given.splits or n_splits
    warnings.simplefilter("ignore")
    models = ["catboost", *(m for m in given.models.split(",") if m != "catboost")]
    ratios: dict[str, list[float]] = {name: [] for name in models[1:]}
    times: dict[str, list[float]] = {name: [] for name in models}
    lines = []
    for name in sets:
        errors: dict[str, list[float]] = {model: [] for model in models}
        seconds = dict.fromkeys(models, 0.0)
        for number in range(n_splits):
            data = split(name, number)
            for model in models:
                start = time.perf_counter()
                errors[model].append(measure(MODELS[model](data, 0), data)["error"])
                seconds[model] += time.perf_counter() - start
        logs = {model: np.log(np.maximum(errors[model], TINY)).mean() for model in models}
        own = [float(np.exp(logs[model] - logs["catboost"])) for model in models[1:]]
        for model, ratio in zip(models[1:], own):
            ratios[model].append(ratio)
        for model in models:
            times[model].append(seconds[model])
        rows, columns = data.X_train.shape
        size = f"{rows:,} x {columns}"
        lines.append([name, size, f"{np.mean(errors['catboost']):.4g}", *(f"{r:.3f}" for r in own)])
        print(" ".join(lines[-1]), file=sys.stderr, flush=True)
    print(machine())
    print(f"Errors relative to CatBoost, geometric means over {n_splits} splits")
    print_table(["set", "size", "CatBoost's error", *models[1:]], lines)
    for model, own in ratios.items():
        below = sum(ratio < 1 for ratio in own)
        relative = np.median(np.divide(times[model], times["catboost"]))
        print(
            f"{model}: below CatBoost on {below} of {len(own)}, geometric mean "
            f"{np.exp(np.mean(np.log(own))):.3f}, median {np.median(own):.3f}, worst "
            f"{max(own):.3f}; time, median of ratios {relative:.2f}"
        )


if __name__ == "__main__":
    main()
