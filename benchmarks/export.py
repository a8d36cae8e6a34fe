"""Exported models beside `predict`: the largest difference, and the time in ONNX Runtime.

Default models of California housing, Adult, MovieLens and two tables of many classes; rows of the
test set as they are, and with missing and unseen values. A difference is relative to the standard
deviation of the predictions, or of a probability of one. `POLYADIC_DATA`/mixed has the tables hpc
and segment.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import onnxruntime
import pandas as pd
from common import machine, medians, print_table, print_title, verdict
from sklearn.model_selection import train_test_split

from polyadic import CPClassifier, CPRegressor, datasets
from polyadic.export import onnx_inputs, to_onnx, to_sql

MOST = 1e-5  # difference allowed
SETS = ("california", "adult", "movielens", "hpc", "segment")
SQL_ROWS = 200  # with missing values: SQLite takes milliseconds per row
BATCH = 500  # rows of a call; intermediate results then stay in the cache of the CPU


def read(name: str) -> tuple[pd.DataFrame, Any, pd.DataFrame]:
    """Return training rows, target and test rows."""
    if name == "california":
        split = datasets.fetch_california_housing(split=True)
    elif name == "adult":
        split = datasets.fetch_adult(split=True)
    elif name == "movielens":
        split = datasets.fetch_movielens100k(split=True)
    else:
        folder = Path(os.environ.get("POLYADIC_DATA", "")) / "mixed"
        table = pd.read_parquet(folder / f"{name}.parquet")
        y = table.pop("target").to_numpy()
        X, rest, target, _ = train_test_split(table, y, test_size=0.2, random_state=0, stratify=y)
        return X, target, rest
    if isinstance(split.X_train, np.ndarray):
        names = [f"x{n}" for n in range(split.X_train.shape[1])]
        frames = [pd.DataFrame(own, columns=names) for own in (split.X_train, split.X_test)]
        return frames[0], split.y_train, frames[1]
    return split.X_train, split.y_train, split.X_test


def with_gaps(X: pd.DataFrame) -> pd.DataFrame:
    """Return rows in which a twentieth of every column is missing or unseen."""
    rng, out = np.random.default_rng(0), X.copy()
    for name in out.columns:
        some = np.flatnonzero(rng.random(len(out)) < 0.05)
        if pd.api.types.is_numeric_dtype(out[name]):
            out[name] = out[name].astype(float)
            out.iloc[some, out.columns.get_loc(name)] = np.nan
        else:
            values = out[name].to_numpy(dtype=object, copy=True)
            values[some] = [None if i % 2 else "never seen" for i in some]
            out[name] = pd.Series(values, index=out.index, dtype=object)
    return out


def wanted(model: Any, X: pd.DataFrame) -> np.ndarray:
    """Return what `predict` or `predict_proba` says, (n, outputs)."""
    if hasattr(model, "classes_"):
        return model.predict_proba(X)
    return model.predict(X)[:, None]


def difference(model: Any, found: np.ndarray, true: np.ndarray) -> float:
    """Return the largest difference, relative to the spread of predictions."""
    scale = 1.0 if hasattr(model, "classes_") else true.std()
    return float(np.abs(found - true).max() / scale)


def run_onnx(session: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the last output for all rows, in batches."""
    n_rows = len(next(iter(inputs.values())))
    parts = [
        session.run(None, {name: x[i : i + BATCH] for name, x in inputs.items()})[-1]
        for i in range(0, n_rows, BATCH)
    ]
    return np.concatenate(parts)


def run_sql(model: Any, X: pd.DataFrame, dialect: str) -> np.ndarray:
    """Return the numbers that the query computes for a table."""
    sql = to_sql(model, dialect, table="rows")
    plain = X.astype({n: object for n in X.columns if not pd.api.types.is_numeric_dtype(X[n])})
    if dialect == "sqlite":
        connection: Any = sqlite3.connect(":memory:")
        plain.to_sql("rows", connection, index=False)
        connection.executescript(sql.setup)
    else:
        connection = duckdb.connect()
        for name, columns in {"rows": plain, **sql.tables}.items():
            connection.register("given", pd.DataFrame(columns))
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    rows = connection.execute(sql.query).fetchall()
    first = 1 if hasattr(model, "classes_") else 0  # after the label
    return np.array([row[first:] for row in rows], dtype=float)


def measure(name: str, repeats: int) -> list[list[str]]:
    """Fit one set, and return the lines of its table."""
    X, y, X_test = read(name)
    model = (CPRegressor if name == "california" else CPClassifier)(random_state=0).fit(X, y)
    graph = to_onnx(model).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    rest, gaps = X_test[:5000], with_gaps(X_test[:SQL_ROWS])
    lines = []
    for what, rows in (("as they are", rest), ("with gaps", gaps)):
        true, inputs = wanted(model, rows), onnx_inputs(model, rows)
        errors = [difference(model, run_onnx(session, inputs), true)]
        if what == "with gaps":
            errors += [
                difference(model, run_sql(model, rows, own), true) for own in ("duckdb", "sqlite")
            ]
        works = {
            "onnx": lambda inputs=inputs: run_onnx(session, inputs),
            "predict": lambda rows=rows: wanted(model, rows),
        }
        times = medians(works, repeats)
        shown = [f"{error:.1e}" for error in errors] + [""] * (3 - len(errors))
        ratio = f"{times['onnx'] / times['predict']:.2f}"
        size = f"{len(graph) / 1e6:.1f}"
        lines.append([f"{name}, {what}", size, *shown, ratio, verdict(max(errors) <= MOST)])
    return lines


def main() -> None:
    """Measure the chosen sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*were not seen in training")
    print(machine())
    print_title("Largest difference to predict, at most 1e-5; time of ONNX Runtime over predict's")
    header = ["rows", "MB", "ONNX", "DuckDB", "SQLite", "time", ""]
    for name in options.sets:
        print_table(header, measure(name, options.repeats))


if __name__ == "__main__":
    main()
