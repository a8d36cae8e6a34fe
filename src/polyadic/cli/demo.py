"""`polyadic demo`: fit, compare, explain, on the data and the split of the paper."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.svm import SVR

from polyadic import datasets, explain, plots
from polyadic.data.columns import Columns
from polyadic.estimators import CPRegressor
from polyadic.explain.words import sentences

_LEAST_SECONDS = 0.2  # predictions are timed again until so long has passed
_FITS, _SHORT_FIT = 3, 1.0  # fits shorter than a second are timed three times; the best counts
_QUICK = {"n_members": 2, "rank": 4, "max_iter": 3}
_QUICK_ROWS = 400

RIVALS: dict[str, Callable[[], Any]] = {
    "Linear regression": LinearRegression,
    "RBF SVR (C=10)": lambda: SVR(C=10),
    "HistGradientBoosting": lambda: HistGradientBoostingRegressor(random_state=0),
}


@dataclass(frozen=True)
class Task:
    """A standardised split, and what leads back to the units of the table.

    A column in its own units is shift + scale times the standardised one, and so is the target.
    """

    title: str
    unit: str
    split: datasets.Split
    names: list[str]
    shift: np.ndarray  # (N,)
    scale: np.ndarray  # (N,)
    target_shift: float
    target_scale: float

    def table(self, X: np.ndarray) -> pa.Table:
        """Return the columns with their names."""
        return pa.table({name: X[:, n] for n, name in enumerate(self.names)})


@dataclass(frozen=True)
class Result:
    """One line of the comparison."""

    name: str
    validation: float
    test: float
    fit_seconds: float
    row_microseconds: float


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Few rows, a tiny model: to see that all works.")
    ] = False,
) -> None:
    """Fit a model, compare it with three others, and say what it has learnt.

    California housing on the split of the paper, 13,208 training rows; takes half a minute.
    """
    console = Console(highlight=False)
    task = load_task(console)
    if quick:
        rows = slice(_QUICK_ROWS)
        task = replace(
            task,
            split=replace(
                task.split, X_train=task.split.X_train[rows], y_train=task.split.y_train[rows]
            ),
        )
    model, first = fit_ours(task, console, quick)
    results = [first]
    for name, make in RIVALS.items():
        with console.status(f"Fitting {name} ..."):
            split = task.split
            parts = (split.X_train, split.X_val, split.X_test)
            results.append(measure(name, make(), task, *parts))
        console.print(f"Fitted {name}.", style="dim")
    console.print(comparison(task, results))
    found = explain.effects(model)
    tell(model, found, task, console)
    draw(model, in_units(found, task), out, console)


# ---- the task -----------------------------------------------------------------------------------


def load_task(console: Console) -> Task:
    """Return California housing or, where no source of it can be reached, the synthetic table."""
    try:
        with console.status("Fetching California housing ..."):
            return _task(datasets.fetch_california_housing, "California housing", "100,000 dollars")
    except datasets.DatasetUnavailable as error:
        console.print(f"California housing cannot be had here. {error}", markup=False)
        console.print("The demo goes on with the synthetic table of the paper.\n")
        return _task(datasets.load_synthetic, "Synthetic table", "the units of y")


def _task(load: Callable[..., Any], title: str, unit: str) -> Task:
    whole, split = load(), load(split="paper")
    raw = np.column_stack(Columns.learn(whole.data)[1])
    standard = np.vstack([split.X_train, split.X_val, split.X_test])
    target = np.concatenate([split.y_train, split.y_val, split.y_test])
    # Both hold the same rows, if in another order: their ranges tell the scale.
    scale = np.ptp(raw, axis=0) / np.ptp(standard, axis=0)
    shift = raw.min(axis=0) - scale * standard.min(axis=0)
    target_scale = float(np.ptp(whole.target) / np.ptp(target))
    target_shift = float(whole.target.min() - target_scale * target.min())
    names = whole.feature_names
    return Task(title, unit, split, names, shift, scale, target_shift, target_scale)


# ---- fitting and comparing ----------------------------------------------------------------------


def fit_ours(task: Task, console: Console, quick: bool) -> tuple[CPRegressor, Result]:
    """Fit the default CPRegressor, compiled beforehand, and measure it."""
    split = task.split
    X, X_val, X_test = (task.table(part) for part in (split.X_train, split.X_val, split.X_test))
    message = "Compiling the kernels: about 15 s the first time, then they are kept ..."
    with console.status(message):
        warm = CPRegressor(**_QUICK, random_state=0).fit(X.slice(0, 200), split.y_train[:200])
        warm.predict(X_val)
    console.print(
        "The kernels are compiled: that is done once (about 15 s) and not in the times below.",
        style="dim",
    )
    model = CPRegressor(verbose=1, random_state=0, **(_QUICK if quick else {}))
    return model, measure("polyadic CPRegressor", model, task, X, X_val, X_test, once=True)


def measure(
    name: str, model: Any, task: Task, X: Any, X_val: Any, X_test: Any, once: bool = False
) -> Result:
    """Fit a model on the training rows; time it and judge it on the others."""
    fits: list[float] = []
    while not fits or (len(fits) < _FITS and fits[-1] < _SHORT_FIT and not once):
        start = time.perf_counter()
        model.fit(X, task.split.y_train)
        fits.append(time.perf_counter() - start)
    validation = float(np.mean((model.predict(X_val) - task.split.y_val) ** 2))
    times: list[float] = []
    while sum(times) < _LEAST_SECONDS:
        start = time.perf_counter()
        prediction = model.predict(X_test)
        times.append(time.perf_counter() - start)
    test = float(np.mean((prediction - task.split.y_test) ** 2))
    return Result(name, validation, test, min(fits), 1e6 * min(times) / len(prediction))


def comparison(task: Task, results: list[Result]) -> Table:
    """Return the table of the models, the best of each column in bold."""
    sizes = [f"{len(y):,}" for y in (task.split.y_train, task.split.X_val, task.split.y_test)]
    table = Table(
        title=f"{task.title}, the paper's split: {' / '.join(sizes)} rows",
        title_justify="left",
        title_style="bold",
        caption="MSE of the standardised target. Best in bold. Settings: defaults unless noted.",
        caption_justify="left",
    )
    heads = ("validation MSE", "test MSE", "fit, s", "predict, µs/row")
    table.add_column("model")
    for head in heads:
        table.add_column(head, justify="right")
    numbers = np.array([(r.validation, r.test, r.fit_seconds, r.row_microseconds) for r in results])
    for result, row in zip(results, numbers):
        cells = [f"{row[0]:.4f}", f"{row[1]:.4f}", f"{row[2]:.2f}", f"{row[3]:.2f}"]
        best = row == numbers.min(axis=0)
        marked = [f"[bold]{c}[/bold]" if b else c for c, b in zip(cells, best)]
        table.add_row(result.name, *marked)
    return table


# ---- explaining ---------------------------------------------------------------------------------


def in_units(found: explain.Effects, task: Task) -> explain.Effects:
    """Return the effects in the units of the table, not in standard deviations."""
    lines = list(zip(task.shift, task.scale))
    size = task.target_scale
    return replace(
        found,
        base=task.target_shift + size * found.base,
        grid=[a + b * x for (a, b), x in zip(lines, found.grid)],
        values=[v * size for v in found.values],
        missing=[v * size for v in found.missing],
        edges=[None if e is None else a + b * e for (a, b), e in zip(lines, found.edges)],
        variance=found.variance * size**2,
        ends=[e and (a + b * e[0], a + b * e[1]) for (a, b), e in zip(lines, found.ends)],
    )


def tell(model: CPRegressor, found: explain.Effects, task: Task, console: Console) -> None:
    """Print the strongest effects and interactions in words."""
    terms = explain.interactions(model, max_order=2, top=7)
    console.print("\nWhat the model has learnt", style="bold")
    console.print(
        f"Exact, from its weights. Columns as if independent; effects in {task.unit}.",
        style="dim",
    )
    listing = Table.grid(padding=(0, 1))
    for sentence in sentences(in_units(found, task), terms):
        listing.add_row("-", escape(sentence))
    console.print(listing)
    alone, pairs = (100 * share for share in terms.orders)
    console.print(
        f"In all, single columns make {alone:.0f} % of the variance, pairs {pairs:.0f} %, "
        f"three and more together {max(0.0, 100 - alone - pairs):.0f} %."
    )


def draw(model: CPRegressor, found: explain.Effects, out: Path, console: Console) -> None:
    """Write the learning curve and the effects as pictures."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        console.print(
            "\nNo pictures without matplotlib: pip install 'polyadic[plot]'", markup=False
        )
        return
    out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    plots.learning_curve(model, figure.subplots())
    figure.savefig(out / "learning_curve.png", dpi=150)
    figure = Figure(figsize=(11.0, 4.8), layout="constrained")
    plots.effects(found, axes=figure.subplots(2, 4, sharey=True))
    figure.savefig(out / "effects.png", dpi=150)
    console.print(f"\nPictures: {out / 'learning_curve.png'}, {out / 'effects.png'}", markup=False)
