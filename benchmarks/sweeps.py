"""Sweeps of least squares beside Adam, in every format: errors and times, with outliers too.

California housing (4,000 rows) and the synthetic task, both on the paper's split, with the defaults
of both solvers. Outliers are two changed training rows: one column of the one is 50 standard
deviations from its mean, and so is the target of the other. Errors are mean squared errors of the
validation rows, which are not changed, over the variance of the training targets. No test row is
read.
"""

from __future__ import annotations

import argparse
import warnings
from statistics import geometric_mean, mean
from typing import NamedTuple

import numpy as np
import torch
from common import machine, print_table, print_title, seconds, verdict
from sklearn.exceptions import ConvergenceWarning

from polyadic import TNRegressor
from polyadic.datasets import Split, fetch_california_housing, load_synthetic
from polyadic.maps import FeatureMap, Polynomial

# Format and rank; a core tensor of eight columns has rank ** 8 numbers.
FORMATS = {"cp": 20, "tt": 5, "tr": 5, "ht": 5, "tucker": 3, "fm": 5, "pn": 5}
ORDER = 3  # of fm and pn
FAR = 50.0  # standard deviations
MOST_ROWS, QUICK_ROWS = 4000, 500  # training rows
ALLOWED = 1.0  # error of sweeps over that of Adam, geometric mean over the formats


class Table(NamedTuple):
    """Rows to fit on and rows to measure on."""

    name: str
    map: FeatureMap  # of the formats that take maps
    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray

    @classmethod
    def read(cls, name: str, family: FeatureMap, split: Split, n_rows: int) -> Table:
        """Take so many training rows at most, and the validation rows."""
        own = slice(n_rows)
        X, y = np.asarray(split.X_train)[own], np.asarray(split.y_train)[own]
        return cls(name, family, X, y, np.asarray(split.X_val), np.asarray(split.y_val))

    def with_outliers(self) -> Table:
        """Move one column of a row far away, and the target of another row."""
        X, y = self.X.copy(), self.y.copy()
        X[0, 0] = X[:, 0].mean() + FAR * X[:, 0].std()
        y[1] = y.mean() + FAR * y.std()
        return self._replace(X=X, y=y)


class Fit(NamedTuple):
    """The error of a fit, its seconds, and whether it warned that it learnt nothing useful."""

    error: float
    time: float
    warned: bool


def fit(name: str, solver: str, table: Table, variance: float, seed: int) -> Fit:
    """Fit and measure."""
    family = "auto" if name in ("fm", "pn") else table.map
    model = TNRegressor(
        name, maps=family, rank=FORMATS[name], order=ORDER, solver=solver, random_state=seed
    )
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        time = seconds(lambda: model.fit(table.X, table.y))
    error = float(np.mean((model.predict(table.X_val) - table.y_val) ** 2) / variance)
    return Fit(error, time, any(issubclass(w.category, ConvergenceWarning) for w in raised))


def compare(table: Table, variance: float, seeds: int) -> list[float]:
    """Print both solvers; return the error of sweeps over that of Adam, for each format."""
    lines, ratios = [], []
    for name in FORMATS:
        found = {
            solver: [fit(name, solver, table, variance, seed) for seed in range(seeds)]
            for solver in ("Adam", "als")
        }
        errors = {solver: mean(one.error for one in own) for solver, own in found.items()}
        times = {solver: mean(one.time for one in own) for solver, own in found.items()}
        warned = [solver for solver, own in found.items() if any(one.warned for one in own)]
        ratios.append(errors["als"] / errors["Adam"])
        lines.append(
            [
                name,
                FORMATS[name],
                f"{errors['Adam']:.4f}",
                f"{errors['als']:.4f}",
                f"{ratios[-1]:.3f}",
                f"{times['als'] / times['Adam']:.2f}",
                ", ".join(warned) or "none",
            ]
        )
    header = ["format", "rank", "Adam", "als", "als/Adam", "time als/Adam", "warned"]
    print_table(header, lines)
    return ratios


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"one seed, {QUICK_ROWS:,} rows")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of torch; all cores where not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    seeds, n_rows = (1, QUICK_ROWS) if options.quick else (options.seeds, MOST_ROWS)
    print(f"{machine()}, torch on {torch.get_num_threads()} threads")
    california = fetch_california_housing(split="paper")
    tables = [
        Table.read("synthetic", Polynomial(3), load_synthetic(split="paper"), n_rows),
        Table.read("california", Polynomial(5, normalize=True), california, n_rows),
    ]
    verdicts = []
    for table in tables:
        variance = float(np.var(table.y))
        for kind, own in (("as it is", table), ("with outliers", table.with_outliers())):
            print_title(f"{table.name}, {kind}: {len(table.y):,} rows, {table.map!r}")
            ratios = compare(own, variance, seeds)
            verdicts.append((table.name, kind, ratios))
    print("\nError of sweeps over that of Adam, geometric mean (at most 1) and worst format")
    for name, kind, ratios in verdicts:
        overall = geometric_mean(ratios)
        holds = verdict(overall <= ALLOWED)
        print(f"  {name + ', ' + kind:26} {overall:.3f}  {max(ratios):.3f}  {holds}")


if __name__ == "__main__":
    main()
