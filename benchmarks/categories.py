"""How categories are best read: which are folded, and whether their order helps; inner splits.

The training rows of each set are split again, 80 to 20, and 600 of the 80 are kept: rare categories
and orders matter on short tables. Test rows are never read. The error is the mean squared error, or
the log-loss of classes, relative to that of the first way of reading.

    python benchmarks/categories.py rare
    python benchmarks/categories.py ordered
    python benchmarks/categories.py dates

`hashed` is about long tables, which are read in parts: of the categories of a column, only the most
frequent are told apart. It makes a table of its own, with 300,000 skewed categories, and compares
ways to read the rare ones.

    python benchmarks/categories.py hashed
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.append(str(Path(__file__).resolve().parent / "tabular"))

from common import machine, print_table, print_title
from sklearn.metrics import log_loss
from tasks import Data, load

from polyadic import CPClassifier, CPRegressor
from polyadic.maps import OneHot

ROWS, NEW_ROWS = 600, 2000  # to fit, and to predict
SETS = ["ames", "hotel", "lending", "wa_churn", "adult"]
_QUALITY = ["Poor", "Fair", "Typical", "Good", "Excellent"]
_FINISH = ["No_Basement", "Unf", "LwQ", "Rec", "BLQ", "ALQ", "GLQ"]
_CONDITION = ["Very_Poor", "Poor", "Fair", "Below_Average", "Average"]
_CONDITION += ["Above_Average", "Good", "Very_Good", "Excellent"]
_NORMAL = ["lt-norm", "norm", "gt-norm"]
# Columns with an order by their meaning. The tables have categories without one.
ORDERS: dict[str, dict[str, list[str]]] = {
    "ames": {
        "Lot_Shape": ["Irregular", "Moderately_Irregular", "Slightly_Irregular", "Regular"],
        "Land_Slope": ["Gtl", "Mod", "Sev"],
        "Overall_Cond": _CONDITION,
        "Exter_Cond": _QUALITY,
        "Bsmt_Cond": ["No_Basement", *_QUALITY],
        "Bsmt_Exposure": ["No_Basement", "No", "Mn", "Av", "Gd"],
        "BsmtFin_Type_1": _FINISH,
        "BsmtFin_Type_2": _FINISH,
        "Heating_QC": _QUALITY,
        "Functional": ["Sal", "Sev", "Maj2", "Maj1", "Mod", "Min2", "Min1", "Typ"],
        "Garage_Finish": ["No_Garage", "Unf", "RFn", "Fin"],
        "Garage_Cond": ["No_Garage", *_QUALITY],
        "Paved_Drive": ["Dirt_Gravel", "Partial_Pavement", "Paved"],
    },
    "lending": {
        "sub_grade": [f"{letter}{number}" for letter in "ABCDEFG" for number in range(1, 6)],
        "emp_length": ["emp_lt_1", *(f"emp_{n}" for n in range(1, 10)), "emp_ge_10"],
        "verification_status": ["Not_Verified", "Source_Verified", "Verified"],
    },
    "soybean": {
        "date": ["april", "may", "june", "july", "august", "september", "october"],
        "precip": _NORMAL,
        "temp": _NORMAL,
        "severity": ["minor", "pot-severe", "severe"],
        "germination": ["lt-80", "80-89", "90-100"],
    },
    "wa_churn": {"contract": ["Month-to-month", "One year", "Two year"]},
}


def few_rows(name: str, split: int) -> Data:
    """Return an inner split of a set, with few rows."""
    data = load(import_module(f"data.{name}"), split, inner=True)
    rng = np.random.default_rng(split)
    rows = rng.permutation(len(data.X_train))[:ROWS]
    new = rng.permutation(len(data.X_test))[:NEW_ROWS]
    train, test = data.X_train.iloc[rows], data.X_test.iloc[new]
    return Data(name, data.task, train, data.y_train[rows], test, data.y_test[new])


def error(data: Data, maps: Any = "auto") -> float:
    """Fit, and return the error on the rows that were split off."""
    model = CPRegressor if data.task == "regression" else CPClassifier
    fitted = model(maps=maps, random_state=0).fit(data.X_train, data.y_train)
    if data.task == "regression":
        return float(np.mean((fitted.predict(data.X_test) - data.y_test) ** 2))
    return log_loss(data.y_test, fitted.predict_proba(data.X_test), labels=fitted.classes_)


def changed(data: Data, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Data:
    """Return the same rows with changed columns."""
    X, X_test = change(data.X_train), change(data.X_test)
    return Data(data.name, data.task, X, data.y_train, X_test, data.y_test)


def compare(
    kinds: list[str], sets: list[str], splits: int, errors: Callable[[str, int], list[float]]
) -> None:
    """Print the errors of several ways on every split, and their mean ratio to the first way."""
    lines, logs = [], []
    for name in sets:
        for split in range(splits):
            found = errors(name, split)
            logs.append(np.log(np.array(found) / found[0]))
            lines.append([f"{name}, split {split}", *(f"{e:.4f}" for e in found)])
            print(*lines[-1], flush=True)
    lines.append(["ratio", *(f"{ratio:.3f}" for ratio in np.exp(np.mean(logs, axis=0)))])
    print_table(["set", *kinds], lines)


# ---- rare categories -----------------------------------------------------------------------------

COUNTS: list[int | str] = [1, "auto", 2, 3, 5, 10]


def with_identifier(data: Data, rows_each: int) -> Data:
    """Add a column of random names, each with this many rows on average; with 1, all differ."""
    rng = np.random.default_rng(5)

    def add(X: pd.DataFrame) -> pd.DataFrame:
        names = rng.integers(0, ROWS // max(rows_each, 1), len(X))
        if rows_each == 1:
            names = rng.permutation(10**6)[: len(X)]
        return X.assign(name=[f"name {k}" for k in names])

    return data if rows_each == 0 else changed(data, add)


def rare(splits: int) -> None:
    """Compare the least rows of a category, without and with a column of identifiers."""
    what = {0: "as it is", 1: "and unique names", 3: "and names of three rows"}
    ratios: dict[int, list[np.ndarray]] = {k: [] for k in what}
    for name in SETS:
        for split in range(splits):
            for rows_each in what:
                data = with_identifier(few_rows(name, split), rows_each)
                categories = data.X_train.select_dtypes(exclude="number").columns
                maps = [dict.fromkeys(categories, OneHot(min_count=k)) for k in COUNTS]
                errors = np.array([error(data, own) for own in maps])
                ratios[rows_each].append(np.log(errors / errors[0]))
                told = "  ".join(f"{e:.4f}" for e in errors)
                print(f"{name}, split {split}, {what[rows_each]}: {told}", flush=True)
    lines = [
        [what[k], *(f"{ratio:.3f}" for ratio in np.exp(np.mean(logs, axis=0)))]
        for k, logs in ratios.items()
    ]
    print_table(["table", *(f"min_count={k}" for k in COUNTS)], lines)


# ---- ordered categories --------------------------------------------------------------------------


def as_ordered(orders: dict[str, list[str]]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a change that gives categories their order."""
    types = {c: pd.CategoricalDtype(order, ordered=True) for c, order in orders.items()}
    return lambda X: X.astype(types)


def as_ranks(orders: dict[str, list[str]]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a change that replaces categories by their places: hats with a knot on each."""
    places = {c: {value: float(k) for k, value in enumerate(o)} for c, o in orders.items()}
    return lambda X: X.assign(**{c: X[c].map(place).astype(float) for c, place in places.items()})


def ordered(splits: int) -> None:
    """Compare one element per category, without and with a penalty along the order, with hats."""

    def errors(name: str, split: int) -> list[float]:
        orders, data = ORDERS[name], few_rows(name, split)
        in_order = changed(data, as_ordered(orders))
        lines = dict.fromkeys(orders, OneHot(along="line"))
        return [error(in_order), error(in_order, lines), error(changed(data, as_ranks(orders)))]

    compare(["one-hot", "along a line", "hats on ranks"], list(ORDERS), splits, errors)


# ---- dates ---------------------------------------------------------------------------------------


def bike_dates(X: pd.DataFrame) -> pd.DataFrame:
    """Write year, month, day and hour of the bike table as one date, and leave out part counts."""
    year, month, day, hour = (np.rint(X[f"x{n}"] - X[f"x{n}"].min()) for n in (0, 1, 2, 6))
    parts = {"year": 2011 + year, "month": 1 + month, "day": 1 + day, "hour": hour}
    others = X.drop(columns=[f"x{n}" for n in (0, 1, 2, 3, 4, 5, 6, 8, 15, 16)])
    return others.assign(when=pd.to_datetime(pd.DataFrame(parts)))


def hotel_dates(X: pd.DataFrame) -> pd.DataFrame:
    """Write the arrival, a year with its fraction, as a date."""
    year = np.floor(X.arrival_date_num)
    days = np.rint((X.arrival_date_num - year) * np.where(year % 4 == 0, 366, 365))
    start = pd.to_datetime(year.astype(int).astype(str) + "-01-01")
    when = start + pd.to_timedelta(days, unit="D")
    return X.drop(columns="arrival_date_num").assign(when=when)


def trend_alone(X: pd.DataFrame) -> pd.DataFrame:
    """Replace the date by the number of days since the first."""
    return X.assign(when=(X.when - pd.Timestamp(2011, 1, 1)) / pd.Timedelta(days=1))


def as_numbers(X: pd.DataFrame) -> pd.DataFrame:
    """Replace the date by its parts, all as numbers."""
    when = X.when.dt
    parts = {"month": when.month, "weekday": when.day_of_week, "hour": when.hour}
    parts = {name: part.astype(float) for name, part in parts.items() if part.nunique() > 1}
    return trend_alone(X).assign(**parts)


def dates(splits: int) -> None:
    """Compare ways to read a column of dates."""
    read = {"bike": bike_dates, "hotel": hotel_dates}
    parts = {"bike": ("month", "weekday", "hour"), "hotel": ("month", "weekday")}

    def errors(name: str, split: int) -> list[float]:
        data = changed(few_rows(name, split), read[name])
        one_hot = {f"when ({part})": OneHot() for part in parts[name]}
        days, numbers = changed(data, trend_alone), changed(data, as_numbers)
        return [error(days), error(numbers), error(data, one_hot), error(data)]

    kinds = ["days", "parts as numbers", "one-hot parts", "parts on circles"]
    compare(kinds, list(read), splits, errors)


# ---- rare categories of long tables --------------------------------------------------------------

LONG_ROWS, LONG_NEW_ROWS = 400_000, 100_000
CATEGORIES, TOLD_APART, SHARED = 300_000, 4_096, 4_096


def long_table(seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return numbers, the category of each row, and a target with a random effect of each."""
    rng = np.random.default_rng(seed)
    n_rows = LONG_ROWS + LONG_NEW_ROWS
    x = rng.normal(size=(n_rows, 3))
    code = (CATEGORIES * rng.random(n_rows) ** 3).astype(np.int64)
    effect = rng.normal(size=CATEGORIES)
    y = np.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] + effect[code] + 0.5 * rng.normal(size=n_rows)
    return pd.DataFrame(x, columns=["a", "b", "c"]), code, y


def read_rare(code: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the column by each way of reading, and which rows have a rare category."""
    counts = np.bincount(code[:LONG_ROWS], minlength=CATEGORIES)
    frequent = np.zeros(CATEGORIES, dtype=bool)
    frequent[np.argsort(-counts, kind="stable")[:TOLD_APART]] = True
    rare = ~frequent[code]
    own = np.char.add("v", code.astype("U7")).astype(object)
    # A multiplication that mixes bits: neighbours, which are equally frequent, come apart.
    mixed = np.arange(CATEGORIES, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    place = (mixed >> np.uint64(40)) % np.uint64(SHARED)
    shared = np.char.add("h", place[code].astype("U7")).astype(object)
    ways = {"as unseen": np.where(rare, None, own), "hashed": np.where(rare, shared, own)}
    return {**ways, "all told apart": own}, rare


def hashed(splits: int) -> None:
    """Compare rare categories that are treated as unseen with ones that share elements."""
    lines = []
    for seed in range(splits):
        X, code, y = long_table(seed)
        ways, rare = read_rare(code)
        for name, column in ways.items():
            table = X.assign(category=column)
            model = CPRegressor(n_members=2, trees=False, solver="adam", rank=8, random_state=0)
            model.fit(table[:LONG_ROWS], y[:LONG_ROWS])
            errors = (model.predict(table[LONG_ROWS:]) - y[LONG_ROWS:]) ** 2
            parts = (errors, errors[rare[LONG_ROWS:]], errors[~rare[LONG_ROWS:]])
            lines.append([f"{name}, seed {seed}", *(f"{part.mean():.4f}" for part in parts)])
            print(*lines[-1], flush=True)
    told = f"{LONG_ROWS:,} rows, {CATEGORIES:,} categories, of which {TOLD_APART:,} are told apart"
    print(f"{told}; {rare.mean():.0%} of the rows have another one; {SHARED:,} shared elements.")
    print_table(["rare categories", "MSE", "of rare ones", "of frequent ones"], lines)


def main() -> None:
    """Run one comparison."""
    ways = {"rare": rare, "ordered": ordered, "dates": dates, "hashed": hashed}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=list(ways))
    parser.add_argument("--splits", type=int, default=2)
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of the names, which are new in other rows
    n_rows = LONG_ROWS if given.what == "hashed" else ROWS
    print_title(f"Categories, {n_rows:,} rows. {machine()}")
    ways[given.what](given.splits)


if __name__ == "__main__":
    main()
