"""One model on one thread and on two: whole fits of Adam, one member, by number of columns."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from common import machine, medians, print_table, print_title

from polyadic import CPRegressor


def fit(X: np.ndarray, y: np.ndarray, n_jobs: int) -> Callable[[], CPRegressor]:
    """Return a function that fits for a few epochs."""
    settings = {"solver": "adam", "n_members": 1, "max_iter": 6, "random_state": 0}
    return lambda: CPRegressor(n_jobs=n_jobs, **settings).fit(X, y)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats, rng, lines = parser.parse_args().repeats, np.random.default_rng(0), []
    print(machine())
    for n_rows, n_columns in ((20_000, 8), (20_000, 30), (10_000, 100)):
        X = rng.normal(size=(n_rows, n_columns))
        y = X[:, 0] * X[:, 1] + X[:, 2]
        works = {str(n_jobs): fit(X, y, n_jobs) for n_jobs in (1, 2)}
        times = medians(works, repeats)
        same = np.array_equal(works["1"]().predict(X), works["2"]().predict(X))
        lines.append(
            [
                f"{n_rows:,} x {n_columns}",
                *(f"{times[k]:.3f}" for k in works),
                f"{times['1'] / times['2']:.2f}x",
                "yes" if same else "NO",
            ]
        )
    print_title("Seconds of a fit of six epochs; tables of fewer than 24 columns are not split")
    print_table(["table", "1 thread", "2 threads", "faster", "same bits"], lines)


if __name__ == "__main__":
    main()
