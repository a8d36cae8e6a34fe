"""Time of prediction: one row, a thousand rows and a million, beside CatBoost and LightGBM.

Default models on California housing, on the paper's split; all of them use every core.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from catboost import CatBoostRegressor
from common import machine, medians, print_table, print_title, verdict
from lightgbm import LGBMRegressor

from polyadic import CPRegressor
from polyadic.datasets import fetch_california_housing

OURS, THEIRS = "CPRegressor", "CatBoost"


def build(rank: int) -> dict[str, Any]:
    """Return the models to compare."""
    return {
        OURS: CPRegressor(rank=rank, random_state=0),
        THEIRS: CatBoostRegressor(random_seed=0, allow_writing_files=False, verbose=0),
        "LightGBM": LGBMRegressor(random_state=0, verbose=-1),
    }


def compare(models: dict[str, Any], X: Any, repeats: int) -> list[str]:
    """Return the microseconds per row that each model takes for X, and the verdict."""
    times = medians({name: partial(m.predict, X) for name, m in models.items()}, repeats)
    each = [f"{1e6 * time / len(X):.3g}" for time in times.values()]
    return [*each, f"{times[OURS] / times[THEIRS]:.2f}", verdict(times[OURS] <= times[THEIRS])]


def main() -> None:
    """Fit on the training rows, predict the test rows, repeated to make a million."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, default=32, help="rank of each of the five members")
    parser.add_argument("--quick", action="store_true", help="a tenth of the million rows")
    options = parser.parse_args()
    print(machine())
    split = fetch_california_housing(split="paper")
    names = [f"x{n}" for n in range(split.X_train.shape[1])]
    # LightGBM gives the columns of an array names, and then warns that they are missing.
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    on_arrays, on_frames = build(options.rank), build(options.rank)
    for model in on_arrays.values():
        model.fit(split.X_train, split.y_train)
    for model in on_frames.values():
        model.fit(pd.DataFrame(split.X_train, columns=names), split.y_train)
    n_many = 100_000 if options.quick else 1_000_000
    many = np.resize(split.X_test, (n_many, len(names)))
    print_title("Microseconds per row, medians; the ratio to CatBoost's, at most 1")
    rows = []
    for n_rows, repeats in ((1, 500), (1_000, 100), (n_many, 5)):
        X = many[:n_rows]
        frame = pd.DataFrame(X, columns=names)
        rows.append([f"{n_rows:,} NumPy", *compare(on_arrays, X, repeats)])
        rows.append([f"{n_rows:,} pandas", *compare(on_frames, frame, repeats)])
    print_table(["rows", *on_arrays, "ratio", ""], rows)


if __name__ == "__main__":
    main()
