"""The steps of `polyadic demo`: fit, compare, explain, on the data and the split of the paper."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.svm import SVR

from polyadic import datasets, explain, plots
from polyadic.data.columns import Columns
from polyadic.estimators import CPRegressor
from polyadic.io.atomic import drafted
from polyadic.page import report

_LEAST_SECONDS = 0.2  # predictions are repeated until they have taken this long in all
_FITS, _SHORT_FIT = 3, 1.0  # fits shorter than a second are timed three times; the shortest counts
_QUICK = {"n_members": 2, "rank": 4, "max_iter": 3}  # settings of --quick
_PARTS = ("train", "val", "test")
_QUICK_ROWS = 400  # training rows of --quick

RIVALS: dict[str, Callable[[], Any]] = {
    "Linear regression": LinearRegression,
    "RBF SVR (C=10)": lambda: SVR(C=10),
    "HistGradientBoosting": lambda: HistGradientBoostingRegressor(random_state=0),
}


@dataclass(frozen=True)
class DemoData:
    """A standardised split, and how to return to the units of the table.

    A column in its own units is shift + scale times the standardised one, and so is the target.
    """

    title: str
    unit: str
    target_name: str
    split: datasets.Split
    names: list[str]
    shift: np.ndarray  # (N,)
    scale: np.ndarray  # (N,)
    target_shift: float
    target_scale: float

    def table(self, X: np.ndarray) -> pa.Table:
        """Return standardised columns in their own units, with their names."""
        own = self.shift + self.scale * X
        return pa.table({name: own[:, n] for n, name in enumerate(self.names)})

    def target(self, y: np.ndarray) -> np.ndarray:
        """Return a standardised target in its own unit."""
        return self.target_shift + self.target_scale * y


@dataclass(frozen=True)
class Result:
    """One line of the comparison."""

    name: str
    validation: float
    test: float
    fit_seconds: float
    row_microseconds: float


def run(out: Path, quick: bool, console: Console) -> None:
    """Fit, compare, explain, draw, and write the live page."""
    data = load_data(console)
    if quick:
        rows = slice(_QUICK_ROWS)
        data = replace(
            data,
            split=replace(
                data.split, X_train=data.split.X_train[rows], y_train=data.split.y_train[rows]
            ),
        )
    model, first = fit_ours(data, console, quick)
    results = [first]
    for name, make in RIVALS.items():
        with console.status(f"Fitting {name} ..."):
            results.append(measure(name, make(), data.split))
        console.print(f"Fitted {name}.", style="dim")
    console.print(comparison(data, results))
    print_findings(model, data, console)
    draw(model, out, console)
    write_page(model, data, out, console)


# ---- the data -----------------------------------------------------------------------------------


def load_data(console: Console) -> DemoData:
    """Return California housing or, where no source of it can be reached, the synthetic table."""
    try:
        with console.status("Fetching California housing ..."):
            return _read(
                datasets.fetch_california_housing, "California housing", "100,000 dollars", "price"
            )
    except datasets.DatasetUnavailable as error:
        console.print(f"California housing cannot be obtained here. {error}", markup=False)
        console.print("The demo continues with the synthetic table of the paper.\n")
        return _read(datasets.load_synthetic, "Synthetic table", "the units of y", "y")


def _read(load: Callable[..., Any], title: str, unit: str, name: str) -> DemoData:
    whole, split = load(), load(split="paper")
    raw = np.column_stack(Columns.learn(whole.data)[1])
    standard = np.vstack([split.X_train, split.X_val, split.X_test])
    target = np.concatenate([split.y_train, split.y_val, split.y_test])
    # Both hold the same rows in a different order, so their ranges give the scale.
    scale = np.ptp(raw, axis=0) / np.ptp(standard, axis=0)
    shift = raw.min(axis=0) - scale * standard.min(axis=0)
    target_scale = float(np.ptp(whole.target) / np.ptp(target))
    target_shift = float(whole.target.min() - target_scale * target.min())
    names = whole.feature_names
    return DemoData(title, unit, name, split, names, shift, scale, target_shift, target_scale)


# ---- fitting and comparing ----------------------------------------------------------------------


def fit_ours(data: DemoData, console: Console, quick: bool) -> tuple[CPRegressor, Result]:
    """Fit the default CPRegressor in the units of the table, with kernels compiled before."""
    split = data.split
    own: Any = replace(
        split,
        **{f"X_{part}": data.table(getattr(split, f"X_{part}")) for part in _PARTS},
        **{f"y_{part}": data.target(getattr(split, f"y_{part}")) for part in _PARTS},
    )
    message = (
        "Compiling the kernels: about 15 s the first time, later they are read from a cache ..."
    )
    with console.status(message):
        warm = CPRegressor(**_QUICK, random_state=0).fit(
            own.X_train.slice(0, 200), own.y_train[:200]
        )
        warm.predict(own.X_val)
    console.print(
        "The kernels are compiled: this is done once (about 15 s) and not part of the times below.",
        style="dim",
    )
    verbose = int(console.is_terminal)
    model = CPRegressor(verbose=verbose, random_state=0, **(_QUICK if quick else {}))
    return model, measure("polyadic CPRegressor", model, own, data.target_scale, once=True)


def measure(
    name: str, model: Any, split: datasets.Split, unit: float = 1.0, once: bool = False
) -> Result:
    """Fit a model on the training rows; measure its time, and its error on the other rows.

    Errors are divided by the square of `unit`, one standard deviation of the target.
    """
    fits: list[float] = []
    while not fits or (len(fits) < _FITS and fits[-1] < _SHORT_FIT and not once):
        start = time.perf_counter()
        model.fit(split.X_train, split.y_train)
        fits.append(time.perf_counter() - start)
    validation = float(np.mean((model.predict(split.X_val) - split.y_val) ** 2))
    times: list[float] = []
    while sum(times) < _LEAST_SECONDS:
        start = time.perf_counter()
        prediction = model.predict(split.X_test)
        times.append(time.perf_counter() - start)
    test = float(np.mean((prediction - split.y_test) ** 2))
    row_time = 1e6 * min(times) / len(prediction)
    return Result(name, validation / unit**2, test / unit**2, min(fits), row_time)


def comparison(data: DemoData, results: list[Result]) -> Table:
    """Return the table of the models, the best of each column in bold."""
    sizes = [f"{len(y):,}" for y in (data.split.y_train, data.split.X_val, data.split.y_test)]
    table = Table(
        title=f"{data.title}, the paper's split: {' / '.join(sizes)} rows",
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


def print_findings(model: CPRegressor, data: DemoData, console: Console) -> None:
    """Print the strongest effects and interactions in words."""
    terms = explain.terms(model, max_order=2, top=7)
    console.print("\nWhat the model has learnt", style="bold")
    console.print(
        f"Exact, from its weights. Columns are taken as independent; effects in {data.unit}.",
        style="dim",
    )
    listing = Table.grid(padding=(0, 1))
    for sentence in explain.in_words(model, top=7):
        listing.add_row("-", escape(sentence))
    console.print(listing)
    alone, pairs = (100 * share for share in terms.orders)
    console.print(
        f"In all, single columns explain {alone:.0f} % of the variance, pairs {pairs:.0f} %, "
        f"three and more columns {max(0.0, 100 - alone - pairs):.0f} %."
    )


def draw(model: CPRegressor, out: Path, console: Console) -> None:
    """Write the learning curve and the effects as pictures."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        console.print("\nThe pictures need matplotlib: pip install 'polyadic[plot]'", markup=False)
        return
    out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    plots.learning_curve(model, figure.subplots())
    _write_picture(figure, out / "learning_curve.png")
    figure = Figure(figsize=(11.0, 4.8), layout="constrained")
    plots.effects(explain.effects(model), axes=figure.subplots(2, 4, sharey=True))
    _write_picture(figure, out / "effects.png")
    console.print(f"\nPictures: {out / 'learning_curve.png'}, {out / 'effects.png'}", markup=False)


def _write_picture(figure: Any, path: Path) -> None:
    with drafted(path) as draft:
        figure.savefig(draft, format="png", dpi=150)


def write_page(model: CPRegressor, data: DemoData, out: Path, console: Console) -> None:
    """Write the live page with the test rows, and say where it is."""
    out.mkdir(parents=True, exist_ok=True)
    X, y = data.table(data.split.X_test), data.target(data.split.y_test)
    path = report(model, X, y, out / "page.html", title=data.title, target=data.target_name)
    console.print("\nThe live page, which holds the model itself. Open it in a browser:")
    console.print(f"  {path.resolve().as_uri()}", markup=False, soft_wrap=True, style="bold")
