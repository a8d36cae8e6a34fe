"""The UCI regression tables and their ten splits, from `POLYADIC_DATA`/uci; the target is last."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd


def read(name: str, split: int) -> tuple:
    """Return training rows, training target, test rows and test target of one split."""
    folder = Path(os.environ.get("POLYADIC_DATA", "")) / "uci" / name
    table = pd.read_csv(folder / "data.csv.gz", header=None)
    test = pd.read_csv(folder / "test_mask.csv.gz", header=None)[split].to_numpy(bool)
    X = table.iloc[:, :-1].add_prefix("x")
    y = table.iloc[:, -1].to_numpy()
    return X[~test], y[~test], X[test], y[test]
