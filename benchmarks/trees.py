"""Models of trees, read as CP: time of reading, prediction, Shapley values and variances.

Default LightGBM, XGBoost and CatBoost on California housing (8 numeric columns) and Adult (numbers
and categories, with missing values). Each is read by `polyadic.trees.from_model`, and compared with
the library that has grown it, and with shap's TreeExplainer in both its modes.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import shap
from catboost import CatBoostClassifier, CatBoostRegressor
from common import machine, medians, print_table, print_title, seconds, verdict
from lightgbm import LGBMClassifier, LGBMRegressor
from xgboost import XGBClassifier, XGBRegressor

from polyadic import explain, trees
from polyadic.datasets import fetch_adult, fetch_california_housing

N_BACKGROUND, N_ROWS = 100, 300  # rows of a given background, and rows that are explained


def california() -> tuple[Any, ...]:
    """Return the paper's split as frames."""
    split = fetch_california_housing(split="paper")
    names = [f"x{n}" for n in range(split.X_train.shape[1])]
    frames = [pd.DataFrame(X, columns=names) for X in (split.X_train, split.X_test)]
    return frames[0], split.y_train, frames[1]


def adult() -> tuple[Any, ...]:
    """Return two thirds of the rows to train on, and the others, with category columns."""
    found = fetch_adult()
    X, y = found.data, np.asarray(found.target == found.target[0])
    first = np.random.default_rng(0).random(len(X)) < 2 / 3
    return X[first], y[first], X[~first]


def models(classes: bool, X: pd.DataFrame) -> dict[str, Any]:
    """Return the unfitted models; CatBoost has one-hot categories, which are products."""
    text = [name for name in X if isinstance(X[name].dtype, pd.CategoricalDtype)]
    catboost = CatBoostClassifier if classes else CatBoostRegressor
    xgboost = XGBClassifier if classes else XGBRegressor
    return {
        "LightGBM": (LGBMClassifier if classes else LGBMRegressor)(random_state=0, verbose=-1),
        "XGBoost": xgboost(random_state=0, enable_categorical=True),
        "CatBoost": catboost(
            random_seed=0,
            verbose=0,
            allow_writing_files=False,
            one_hot_max_size=255,
            cat_features=text,
        ),
    }


def for_catboost(X: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose categories are texts without missing values, as CatBoost needs them."""
    out = X.copy()
    for name in out:
        if isinstance(out[name].dtype, pd.CategoricalDtype):
            out[name] = (
                out[name].astype(object).where(out[name].notna(), "missing").astype("category")
            )
    return out


def raw_of(model: Any, X: pd.DataFrame) -> np.ndarray:
    """Return the raw prediction of a source model, (n,)."""
    kind = type(model).__name__
    if kind.startswith("LGBM"):
        return model.predict(X, raw_score=True)
    if kind.startswith("XGB"):
        return model.predict(X, output_margin=True)
    return model.predict(X, prediction_type="RawFormulaVal")


def measure(name: str, model: Any, X: pd.DataFrame, rows: pd.DataFrame, repeats: int) -> list[Any]:
    """Read a model, and return the line of the first table."""
    own: list[Any] = []
    reading = seconds(lambda: own.append(trees.from_model(model, X)))
    found = own[0]
    gap = np.abs(found.raw(rows)[:, 0] - raw_of(model, rows)).max() / np.ptp(raw_of(model, rows))
    times = medians(
        {"ours": partial(found.raw, rows), "source": partial(raw_of, model, rows)}, repeats
    )
    variance = seconds(lambda: own.append(explain.sobol(found)))
    forest = found.tensor_.trees
    size = sum(a.nbytes for a in (*forest.nodes, forest.value)) / 1e6
    shares = " ".join(f"{100 * share:.1f}" for share in own[1].orders[:4])
    leaves = f"{len(forest.leaves):,}"
    gap_text, ratio = f"{gap:.0e}", f"{times['ours'] / times['source']:.1f}"
    line = [
        name,
        leaves,
        f"{reading:.2f}",
        gap_text,
        ratio,
        f"{variance:.2f}",
        shares,
        f"{size:.1f}",
    ]
    return [found, line, gap]


def shapley(
    name: str, model: Any, found: Any, rows: pd.DataFrame, background: pd.DataFrame, repeats: int
) -> tuple[list[Any], list[bool]]:
    """Return the line of the second table: times beside TreeExplainer, and the largest gap."""
    works: dict[str, Callable[[], Any]] = {
        "marginals": partial(explain.shapley, found, rows),
        "path": partial(shap.TreeExplainer(model).shap_values, rows),
        "rows": partial(explain.shapley, found, rows, background),
    }
    gap = None
    try:
        other = shap.TreeExplainer(model, background, feature_perturbation="interventional")
        other.shap_values(rows[:2])
        works["interventional"] = partial(other.shap_values, rows, check_additivity=False)
    except Exception as error:  # of many types: shap refuses categories here
        print(f"{name}: TreeExplainer over given rows: {str(error).splitlines()[0][:90]}")
    times = medians(works, repeats)
    if "interventional" in times:
        theirs = works["interventional"]()
        ours = explain.shapley(found, rows, background).values[:, :, 0]
        gap = np.abs(ours - np.asarray(theirs).reshape(ours.shape)).max() / np.abs(ours).max()
    line = [name, f"{1e3 * times['marginals']:.0f}", f"{1e3 * times['path']:.0f}"]
    line += [f"{1e3 * times['rows']:.0f}"]
    line += [f"{1e3 * times['interventional']:.0f}" if "interventional" in times else "refused"]
    line += ["" if gap is None else f"{gap:.0e}"]
    faster = [times["marginals"] < times["path"]]
    if "interventional" in times:
        faster.append(times["rows"] < times["interventional"])
    return line, faster


def run(title: str, X: pd.DataFrame, y: np.ndarray, X_test: pd.DataFrame, repeats: int) -> None:
    """Print both tables of one data set."""
    classes = y.dtype == bool
    lines, others, faster, gaps = [], [], [], []
    for name, model in models(classes, X).items():
        own, rows = (for_catboost(t) if name == "CatBoost" else t for t in (X, X_test[:N_ROWS]))
        model.fit(own, y)
        found, line, gap = measure(name, model, own, rows, repeats)
        lines.append(line)
        gaps.append(gap)
        line, quick = shapley(name, model, found, rows, own[:N_BACKGROUND], repeats)
        others.append(line)
        faster += quick
    print_title(f"{title}: {len(X):,} rows, {X.shape[1]} columns")
    header = ["model", "leaves", "read, s", "largest gap", "predict, times source's"]
    print_table([*header, "Sobol, s", "% of orders 1 to 4", "MB"], lines)
    print_title(f"{title}: Shapley values of {N_ROWS:,} rows, milliseconds")
    header = ["model", "ours", "TreeExplainer", f"ours over {N_BACKGROUND} rows"]
    print_table([*header, "TreeExplainer over them", "gap"], others)
    print(f"\nEqual to the source to 1e-6 of its range: {verdict(max(gaps) <= 1e-6)}")
    print(f"Ours faster than TreeExplainer, where it does not refuse: {verdict(all(faster))}")


def main() -> None:
    """Measure both data sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="California only, fewer repeats")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine())
    repeats = 1 if options.quick else 3
    run("California", *california(), repeats)
    if not options.quick:
        run("Adult", *adult(), repeats)


if __name__ == "__main__":
    main()
