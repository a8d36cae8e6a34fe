"""Time and memory of a fit against rows, columns, rank, knots and categories.

Every point runs in a process of its own, which prints
- epoch ms: the median epoch of a member as the solver runs it, with the loss on held-out rows
  and the running average of the parameters;
- fit s: a whole `CPRegressor.fit` of one member with `EPOCHS` epochs, reading the table included;
- MB: how much that fit raised the peak of the process's memory.
Points take turns over the rounds, and medians over the rounds are printed. One thread throughout.
Last, whole fits at the defaults on tables of up to 1,000 columns, on all cores.

Uses internals: it imports modules of polyadic that are not public.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import warnings
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
from common import machine, print_table, print_title, seconds, verdict

EPOCHS = 5
# What is allowed above 1.0 for noise and caches; chosen by hand.
LARGEST_SLOPE = 1.1  # log time over log size, where the cost is linear
LARGEST_RATIO = 1.3  # time at the largest size over the smallest, where the cost is flat


@dataclass(frozen=True)
class Point:
    """The size of a table and of a model; with categories, one of the columns is categorical."""

    rows: int = 100_000
    columns: int = 8
    rank: int = 32
    knots: int = 48
    categories: int = 0
    batch: int = 1024


@dataclass(frozen=True)
class Sweep:
    """One size that varies while the others stay."""

    name: str
    values: tuple[int, ...]
    base: Point
    flat: bool = False
    judged: bool = True  # False: printed for information only

    def points(self) -> list[Point]:
        """Return a point for each value."""
        return [replace(self.base, **{self.name: value}) for value in self.values]


def sweeps(quick: bool) -> list[Sweep]:
    """Return what is measured."""
    small = replace(Point(), batch=128)
    # Every category occurs at least twice.
    many = replace(Point(), rows=500_000 if quick else 2_000_000)
    most = 250_000 if quick else 1_000_000
    counts = (10_000, 100_000, most)
    return [
        Sweep("rows", (10_000, 30_000, 100_000, 300_000) + (() if quick else (1_000_000,)), small),
        Sweep("columns", (4, 8, 16, 32, 64), replace(small, rows=20_000)),
        Sweep("rank", (8, 16, 32, 64, 128), replace(small, rows=20_000)),
        # A batch updates each knot it touches once. Batches that touch every knot many times spread
        # that cost over their rows; small batches show it.
        Sweep("knots", (16, 64, 256, 512), replace(Point(), batch=4096), flat=True),
        Sweep("knots", (16, 64, 256, 512), small, flat=True, judged=False),
        # Each row reads one category's parameters and moments from memory. In a table of 32
        # columns that is a small part of the work; in one of 8 it can be seen.
        Sweep("categories", counts, replace(many, columns=32), flat=True),
        Sweep("categories", counts, many, flat=True, judged=False),
    ]


def make_table(point: Point) -> tuple[np.ndarray, np.ndarray]:
    """Return X of uniform columns, the codes of the categories in column 0, and y."""
    rng = np.random.default_rng(0)
    X = rng.random((point.rows, point.columns))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=point.rows)
    if point.categories:
        X[:, 0] = rng.permutation(np.arange(point.rows) % point.categories)
    return X, y


def fit(point: Point, X: np.ndarray, y: np.ndarray, **others: Any) -> None:
    """Fit one member on one thread."""
    from polyadic import CPRegressor
    from polyadic.maps import Hat

    CPRegressor(
        maps=Hat(point.knots),
        rank=point.rank,
        n_members=1,
        n_jobs=1,
        max_iter=EPOCHS,
        batch_size=point.batch,
        categorical_features=[0] if point.categories else "from_dtype",
        random_state=0,
        **others,
    ).fit(X, y)


def epoch_seconds(point: Point, X: np.ndarray, y: np.ndarray) -> float:
    """Train a member and return the median time from one report of the solver to the next."""
    from polyadic.estimators import base

    ticks: list[float] = []

    class Ticks(base.Progress):
        """A progress bar that draws nothing, and records the time of every epoch."""

        def epoch(self, *report: Any) -> bool:
            ticks.append(perf_counter())
            return super().epoch(*report)

        def write(self, end: str) -> None:
            pass

    with patch.object(base, "Progress", Ticks):
        fit(point, X, y, solver="adam", verbose=1)
    return float(np.median(np.diff(ticks)))


def measure_here(point: Point) -> dict[str, float]:
    """Measure a point in this process."""
    import psutil

    # The base settings compile or load all kernels, on a table too small to raise the peak.
    tiny = replace(point, rows=2000, categories=min(point.categories, 100))
    fit(tiny, *make_table(tiny))
    X, y = make_table(point)
    before = psutil.Process().memory_info().rss
    whole = seconds(lambda: fit(point, X, y))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"epoch": epoch_seconds(point, X, y), "fit": whole, "memory": (peak - before) / 1e6}


def measure(point: Point) -> dict[str, float]:
    """Measure a point in a fresh process."""
    command = [sys.executable, __file__, "--point", json.dumps(asdict(point))]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def slope(x: tuple[int, ...], y: list[float]) -> float:
    """Return the exponent of the power law through the points."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def judge(sweep: Sweep, found: list[dict[str, float]]) -> None:
    """Print slopes or ratios, with a verdict where there is a requirement."""
    for name in ("epoch", "fit", "memory"):
        times = [entry[name] for entry in found]
        if sweep.flat:
            value, largest, word = times[-1] / times[0], LARGEST_RATIO, "last over first"
        else:
            value, largest, word = slope(sweep.values, times), LARGEST_SLOPE, "log-log slope"
        # Fit time and memory may grow: a core has one row per category to store and average.
        required = sweep.judged and (name == "epoch" or not sweep.flat)
        tail = f"  at most {largest}: {verdict(value <= largest)}" if required else ""
        print(f"{name:>6}: {word} {value:.2f}{tail}", flush=True)


def run(sweep: Sweep, rounds: int) -> None:
    """Measure a sweep and print it."""
    fixed = ", ".join(
        f"{f.name} {getattr(sweep.base, f.name):,}"
        for f in fields(Point)
        if f.name != sweep.name and getattr(sweep.base, f.name)
    )
    print_title(f"{sweep.name.capitalize()} ({fixed})")
    points = sweep.points()
    each: list[list[dict[str, float]]] = [[] for _ in points]
    for _ in range(rounds):
        for results, point in zip(each, points):
            results.append(measure(point))
    found = [{key: median(r[key] for r in results) for key in results[0]} for results in each]
    lines = [
        [f"{v:,}", f"{1e3 * e['epoch']:.1f}", f"{e['fit']:.2f}", f"{e['memory']:.0f}"]
        for v, e in zip(sweep.values, found)
    ]
    print_table([sweep.name, "epoch ms", "fit s", "MB"], lines)
    judge(sweep, found)


WIDE = (10, 30, 100, 300, 1000)  # columns of a whole fit at the defaults
WIDE_ROWS = 500


def wide_fit(columns: int, classes: int) -> float:
    """Return the seconds of a fit at the defaults: a few columns matter, the rest are noise."""
    from polyadic import CPClassifier, CPRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(WIDE_ROWS, columns))
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.5 * rng.normal(size=WIDE_ROWS)
    if not classes:
        return seconds(lambda: CPRegressor(random_state=0).fit(X, y))
    label = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    return seconds(lambda: CPClassifier(random_state=0).fit(X, label))


def run_wide(rounds: int) -> None:
    """Measure whole fits of wide tables; beyond 30 columns the time grows at most linearly."""
    print_title(f"Columns of a whole fit at the defaults ({WIDE_ROWS} rows, all cores)")
    lines = []
    for name, classes in (("regression", 0), ("two classes", 2), ("five classes", 5)):
        wide_fit(WIDE[0], classes)  # compiles the kernels
        times = [median(wide_fit(n, classes) for _ in range(rounds)) for n in WIDE]
        beyond = slope(WIDE[1:], times[1:])
        word = verdict(beyond <= LARGEST_SLOPE)
        told = f"{beyond:.2f} at most {LARGEST_SLOPE}: {word}"
        lines.append([name, *(f"{t:.2f}" for t in times), told])
    print_table(["fit s", *(str(n) for n in WIDE), "log-log slope beyond 30"], lines)


def main() -> None:
    """Measure and print; or, with --point, measure one point and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller tables, one round")
    parser.add_argument("--only", help="rows, columns, rank, knots, categories or wide")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        warnings.simplefilter("ignore")
        print(json.dumps(measure_here(Point(**json.loads(options.point)))))
        return
    rounds = 1 if options.quick else 3
    print(machine())
    print(f"one member, one thread, {EPOCHS} epochs; medians of {rounds} rounds of fresh processes")
    for sweep in sweeps(options.quick):
        if options.only in (None, sweep.name):
            run(sweep, rounds)
    if options.only in (None, "wide"):
        run_wide(rounds)


if __name__ == "__main__":
    main()
