"""How categories are best read: which are folded, and whether their order helps; inner splits.

The training rows of each set are split again, 80 to 20, and 600 of the 80 are kept: rare categories
and orders matter on short tables. Test rows are never read. The error is the mean squared error, or
the log-loss of classes, relative to that of the first way of reading.

    python benchmarks/categories.py rare
    python benchmarks/categories.py ordered
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


def as_ranks(orders: dict[str, list[str]]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a change that replaces categories by their places: hats with a knot on each."""
    places = {c: {value: float(k) for k, value in enumerate(o)} for c, o in orders.items()}
    return lambda X: X.assign(**{c: X[c].map(place).astype(float) for c, place in places.items()})


def ordered(splits: int) -> None:
    """Compare one element per category with hats on the ranks of the categories."""
    lines, logs = [], []
    for name, orders in ORDERS.items():
        for split in range(splits):
            data = few_rows(name, split)
            errors = error(data), error(changed(data, as_ranks(orders)))
            logs.append(np.log(errors[1] / errors[0]))
            lines.append(
                [name, str(split), *(f"{e:.4f}" for e in errors), f"{np.exp(logs[-1]):.3f}"]
            )
            print(*lines[-1], flush=True)
    lines.append(["geometric mean", "", "", "", f"{np.exp(np.mean(logs)):.3f}"])
    print_table(["set", "split", "one-hot", "hats on ranks", "ratio"], lines)


def main() -> None:
    """Run one comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["rare", "ordered"])
    parser.add_argument("--splits", type=int, default=2)
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of the names, which are new in other rows
    print_title(f"Categories, {ROWS} rows. {machine()}")
    {"rare": rare, "ordered": ordered}[given.what](given.splits)


if __name__ == "__main__":
    main()
