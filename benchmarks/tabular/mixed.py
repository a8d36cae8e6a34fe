"""Tables of numbers, categories and missing values, from `POLYADIC_DATA`/mixed."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
from tasks import held_out


def read(name: str, task: str, split: int) -> tuple:
    """Return training rows, training target, test rows and test target of one split."""
    folder = Path(os.environ.get("POLYADIC_DATA", "")) / "mixed"
    table = pd.read_parquet(folder / f"{name}.parquet")
    y = table.pop("target").to_numpy()
    return held_out(table, y, task, 0.2, split)
