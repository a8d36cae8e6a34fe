"""Alternating least squares beside Adam: error on validation rows and seconds of a fit.

California housing on the paper's split; airfoil and concrete of the UCI tables, a fifth of the
training rows of the first split held out; synthetic ratings of items by users. No test row is read.
Errors are mean squared errors divided by the variance of the training targets.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from common import machine, print_table, print_title, seconds

from polyadic import CPRegressor
from polyadic.datasets import fetch_california_housing

SOLVERS = ("adam", "als", "als+adam")
MEMBERS = (1, 6)
SHORT = 0.3  # share of Adam's epochs in the lines "short": how soon is an error reached?


class Split(NamedTuple):
    """Rows to fit on and rows to measure on."""

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray


def california() -> Split:
    """Return the paper's training and validation rows."""
    split = fetch_california_housing(split="paper")
    return Split(split.X_train, split.y_train, split.X_val, split.y_val)


def uci(name: str) -> Split:
    """Return an inner split, 80 to 20, of the training rows of a UCI table's first split."""
    folder = Path(os.environ["POLYADIC_DATA"]) / "uci" / name
    table = np.loadtxt(folder / "data.csv.gz", delimiter=",")
    test = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",")[:, 0] > 0
    table = table[~test]
    table = table[np.random.default_rng(0).permutation(len(table))]
    X, y = table[:, :-1], table[:, -1]
    cut = len(table) * 4 // 5
    y = (y - y[:cut].mean()) / y[:cut].std()
    return Split(X[:cut], y[:cut], X[cut:], y[cut:])


def ratings() -> Split:
    """Return synthetic ratings: the inner product of three hidden traits of users and of items."""
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 2000, 60_000), rng.integers(0, 1000, 60_000)
    traits = rng.normal(size=(2000, 3)), rng.normal(size=(1000, 3))
    y = np.sum(traits[0][user] * traits[1][item], axis=1) + 0.3 * rng.normal(size=len(user))
    X, y = np.column_stack([user, item]), (y - y.mean()) / y.std()
    return Split(X[:50_000], y[:50_000], X[50_000:], y[50_000:])


def measure(split: Split, seeds: int, **parameters: Any) -> list[str]:
    """Fit with each seed; return mean and spread of the error, the median time, the epochs."""
    errors, times = [], []
    for seed in range(seeds):
        model = CPRegressor(random_state=seed, **parameters)
        times.append(seconds(lambda model=model: model.fit(split.X, split.y)))
        errors.append(np.mean((model.predict(split.X_val) - split.y_val) ** 2))
    spread = f"{np.std(errors):.4f}"
    return [f"{np.mean(errors):.4f}", spread, f"{median(times):.2f}", str(model.n_iter_)]


def sweep_time(split: Split) -> float:
    """Return the seconds that one more sweep takes, on one thread."""

    def fit(sweeps: int) -> float:
        model = CPRegressor(
            solver="als", n_members=1, max_iter=sweeps, n_iter_no_change=99, random_state=0
        )
        return seconds(lambda: model.fit(split.X, split.y))

    fit(1)
    return median((fit(11) - fit(1)) / 10 for _ in range(3))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed")
    seeds = 1 if parser.parse_args().quick else 3
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    print(machine())
    tables = {"california": california(), "airfoil": uci("airfoil"), "concrete": uci("concrete")}
    for name, split in tables.items():
        print_title(f"{name}: {split.X.shape[0]} rows, {split.X.shape[1]} columns, {seeds} seeds")
        lines = []
        for n_members in MEMBERS:
            for solver in SOLVERS:  # a first fit compiles the kernels, or loads them
                CPRegressor(solver=solver, n_members=1, max_iter=1).fit(split.X, split.y)
                own = {"solver": solver, "n_members": n_members}
                lines.append([solver, str(n_members), *measure(split, seeds, **own)])
                if solver != "als":
                    short = int(SHORT * (int(lines[-1][-1])))
                    found = measure(split, seeds, **own, max_iter=short)
                    lines.append([f"{solver}, short", str(n_members), *found])
        print_table(["solver", "members", "val MSE", "sd", "fit s", "epochs"], lines)
    split, categories = ratings(), {"categorical_features": [0, 1], "rank": 16, "n_members": 1}
    print_title("synthetic ratings: 50,000 rows, 2,000 users, 1,000 items, rank 16, one member")
    lines = [
        [
            solver,
            str(epochs),
            *measure(split, seeds, solver=solver, max_iter=epochs, **categories),
        ]
        for solver, epochs in (("adam", "auto"), ("adam", 100), ("als", "auto"))
    ]
    print_table(["solver", "max_iter", "val MSE", "sd", "fit s", "epochs"], lines)
    print_title("One sweep over California's 8 columns at rank 32, one thread")
    print(f"{1e3 * sweep_time(tables['california']):.0f} ms")


if __name__ == "__main__":
    main()
