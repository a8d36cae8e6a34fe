"""Exact Shapley values beside the package shap, and beside an explainable boosting machine.

Default models on California housing, on the paper's split; the test rows are explained.

- TreeExplainer on a default LightGBM: path-dependent Shapley values of another model. Ours must not
  be slower.
- KernelExplainer on our own model, a few rows on a small background, where it can try all sets of
  columns and its error is that of single precision. Ours, by default, must be a thousand times
  faster per row; the ratio over the same background rows is printed too.
- The explainable boosting machine: its fit and its explanation of the test rows, beside our fit and
  Shapley values.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from math import comb
from typing import Any

import numpy as np
import shap
from common import machine, medians, print_table, print_title, seconds, verdict
from lightgbm import LGBMRegressor

from polyadic import CPRegressor, explain
from polyadic.datasets import Split, fetch_california_housing

N_BACKGROUND = 100
FASTER = 1000  # required ratio of KernelExplainer's time per row to ours


def against_trees(model: CPRegressor, split: Split, repeats: int) -> None:
    """Time Shapley values of all test rows beside TreeExplainer's."""
    trees = LGBMRegressor(random_state=0, verbose=-1).fit(split.X_train, split.y_train)
    explainer = shap.TreeExplainer(trees)
    X = split.X_test
    works = {
        "polyadic, exact": partial(explain.shapley, model, X),
        "TreeExplainer": partial(explainer.shap_values, X),
        "LightGBM's own": partial(trees.predict, X, pred_contrib=True),
    }
    times = medians(works, repeats)
    found = explain.shapley(model, X)
    gap = np.abs(found.base + found.values.sum(axis=1) - model.raw(X)).max()
    print_title(f"Shapley values of {len(X):,} rows, {X.shape[1]} columns")
    ours = times["polyadic, exact"]
    rows = [[name, f"{1e3 * t:.1f}", f"{t / ours:.2f}"] for name, t in times.items()]
    print_table(["explainer", "ms", "times ours"], rows)
    print(f"Additivity: base and values miss the prediction by {gap:.1e} at most.")
    print(f"Not slower than TreeExplainer: {verdict(ours <= times['TreeExplainer'])}")


def by_definition(model: CPRegressor, X: np.ndarray, background: np.ndarray) -> np.ndarray:
    """Return Shapley values (n, N) by their definition: all subsets, in double precision."""
    n_columns, weights = X.shape[1], model.weights_[:, 0].astype(float)
    own, other = (
        [m.dense(x) @ a.astype(float) for m, x, a in zip(model.maps_, table.T, model.cores_)]
        for table in (X, background)
    )
    subset_value = np.empty((2**n_columns, len(X)))
    for chosen in range(2**n_columns):
        row, rest = np.ones_like(own[0]), np.ones_like(other[0])
        for n in range(n_columns):
            if chosen >> n & 1:
                row *= own[n]
            else:
                rest *= other[n]
        subset_value[chosen] = row @ (weights * rest.mean(axis=0))
    out = np.zeros(X.shape)
    for n in range(n_columns):
        for chosen in range(2**n_columns):
            if not chosen >> n & 1:
                share = 1 / (n_columns * comb(n_columns - 1, chosen.bit_count()))
                out[:, n] += share * (subset_value[chosen | 1 << n] - subset_value[chosen])
    return out


def against_sampling(model: CPRegressor, split: Split, n_rows: int) -> None:
    """Time rows beside KernelExplainer on the same model and background."""
    background = split.X_train[:N_BACKGROUND]
    few = split.X_test[:n_rows]
    explainer = shap.KernelExplainer(model.predict, background)
    sampled: list[np.ndarray] = []
    slow = seconds(lambda: sampled.append(explainer.shap_values(few, silent=True))) / n_rows
    works = {
        "polyadic, the same background": partial(explain.shapley, model, split.X_test, background),
        "polyadic, training marginals": partial(explain.shapley, model, split.X_test),
    }
    each = {name: t / len(split.X_test) for name, t in medians(works, 5).items()}
    truth = by_definition(model, few, background)
    ours = explain.shapley(model, few, background).values[:, :, 0]
    errors = [np.abs(found - truth).max() for found in (sampled[0], ours)]
    print_title(f"Time per row; the background is {N_BACKGROUND} rows except in the last line")
    rows = [["KernelExplainer", f"{1e6 * slow:,.1f}", "1", f"{errors[0]:.1e}"]]
    rows += [
        [name, f"{1e6 * t:,.1f}", f"{slow / t:,.0f}", error]
        for (name, t), error in zip(each.items(), (f"{errors[1]:.1e}", ""))
    ]
    print_table(["explainer", "µs per row", "times faster", "largest error"], rows)
    print("Errors are those against the sum over all subsets, in double precision.")
    fast = slow / each["polyadic, training marginals"] >= FASTER
    print(f"By default, over training marginals, at least {FASTER} times faster: {verdict(fast)}")
    print(f"At less than a thousandth of its error: {verdict(errors[1] < errors[0] / 1000)}")


def against_boosting(model: CPRegressor, split: Split) -> None:
    """Time fit and explanation beside the explainable boosting machine's."""
    from interpret.glassbox import ExplainableBoostingRegressor

    other = ExplainableBoostingRegressor(random_state=0)
    X, y = split.X_train, split.y_train
    rows: list[list[Any]] = []
    steps = {
        "polyadic": (partial(model.fit, X, y), partial(explain.shapley, model, split.X_test)),
        "explainable boosting machine": (
            partial(other.fit, X, y),
            partial(other.explain_local, split.X_test, split.y_test),
        ),
    }
    totals = []
    for name, (fit, explain_rows) in steps.items():
        fitting, explaining = seconds(fit), seconds(explain_rows)
        totals.append(fitting + explaining)
        rows.append([name, f"{fitting:.2f}", f"{explaining:.2f}", f"{totals[-1] / totals[0]:.1f}"])
    print_title("Fit and explain, seconds")
    print_table(["model", "fit", "explain test rows", "times ours"], rows)


def main() -> None:
    """Run the three comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="no boosting machine, fewer repeats")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    print(machine())
    split = fetch_california_housing(split="paper")
    # Without trees: the comparison by definition reads cores.
    model = CPRegressor(trees=False, random_state=0).fit(split.X_train, split.y_train)
    against_trees(model, split, 3 if options.quick else 11)
    against_sampling(model, split, 2 if options.quick else 10)
    if not options.quick:
        against_boosting(model, split)


if __name__ == "__main__":
    main()
