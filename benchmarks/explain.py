"""Exact Shapley values beside the package shap, and beside an explainable boosting machine.

Default models on California housing, on the paper's split; the test rows are explained.

- TreeExplainer on a default LightGBM: path-dependent Shapley values of another model. Ours must not
  be slower.
- KernelExplainer on our own model, a few rows on a small background: it estimates what
  `explain.shapley` gives exactly on the same background, so its error can be seen. Ours must be a
  thousand times faster, a row.
- The explainable boosting machine: its fit and its explanation of the test rows, beside our fit and
  Shapley values.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from typing import Any

import numpy as np
import shap
from common import machine, medians, print_table, print_title, seconds, verdict
from lightgbm import LGBMRegressor

from polyadic import CPRegressor, explain
from polyadic.datasets import Split, fetch_california_housing

N_BACKGROUND = 100
FASTER = 1000  # than KernelExplainer, a row


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


def against_sampling(model: CPRegressor, split: Split, n_rows: int) -> None:
    """Time a few rows beside KernelExplainer on the same model and background."""
    background, X = split.X_train[:N_BACKGROUND], split.X_test[:n_rows]
    explainer = shap.KernelExplainer(model.predict, background)
    sampled: list[np.ndarray] = []
    slow = seconds(lambda: sampled.append(explainer.shap_values(X, silent=True)))
    same = partial(explain.shapley, model, X, background)
    product = partial(explain.shapley, model, split.X_test)
    times = medians({"same background": same, "marginals": product}, 5)
    exact = explain.shapley(model, X, background)
    error = np.abs(sampled[0] - exact.values[:, :, 0]).max()
    gap = np.abs(exact.base + exact.values.sum(axis=1) - model.raw(X)).max()
    each = {
        "KernelExplainer": slow / n_rows,
        "polyadic, the same background": times["same background"] / n_rows,
        "polyadic, training marginals": times["marginals"] / len(split.X_test),
    }
    print_title(f"One row, a background of {N_BACKGROUND} rows for the first two")
    rows = [
        [name, f"{1e6 * t:,.0f}", f"{each['KernelExplainer'] / t:,.0f}"] for name, t in each.items()
    ]
    print_table(["explainer", "µs a row", "times faster"], rows)
    print(f"Largest difference of KernelExplainer from the exact values: {error:.1e}")
    print(f"Largest miss of the exact values in additivity: {gap:.1e}")
    ratio = each["KernelExplainer"] / each["polyadic, training marginals"]
    print(f"At least {FASTER} times faster, product background: {verdict(ratio >= FASTER)}")
    ratio = each["KernelExplainer"] / each["polyadic, the same background"]
    print(f"The same background: {ratio:,.0f} times faster")


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
    for name, (fit, tell) in steps.items():
        fitting, telling = seconds(fit), seconds(tell)
        totals.append(fitting + telling)
        rows.append([name, f"{fitting:.2f}", f"{telling:.2f}", f"{totals[-1] / totals[0]:.1f}"])
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
    model = CPRegressor(random_state=0).fit(split.X_train, split.y_train)
    against_trees(model, split, 3 if options.quick else 11)
    against_sampling(model, split, 2 if options.quick else 10)
    if not options.quick:
        against_boosting(model, split)


if __name__ == "__main__":
    main()
