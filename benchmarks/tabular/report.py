"""The tables and the two pictures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, NullLocator
from scores import Figures, geometric, ratios

BASE = "lightgbm"  # the model that ratios are relative to
PEER = "catboost"  # the model of the table of regression sets
TITLES = {
    "error": "Error: MSE over the variance of the target, or log-loss",
    "auc": "AUC",
    "accuracy": "Accuracy",
    "brier": "Brier score",
    "fit_s": "Fit, seconds",
    "predict_us": "Predict, microseconds per row",
}


def names(found: Figures) -> tuple[list[str], list[str]]:
    """Return the sets and the models in the order they were run."""
    sets = list(dict.fromkeys(own for own, _ in found))
    return sets, list(dict.fromkeys(model for _, model in found))


def tables(found: Figures) -> str:
    """Return all figures as markdown: a table for each, one line per set, one column per model."""
    sets, models = names(found)
    parts = []
    for name, title in TITLES.items():
        rows = [
            [own, *(cell(found.get((own, model), {}).get(name)) for model in models)]
            for own in sets
            if any(name in found.get((own, model), {}) for model in models)
        ]
        if rows:
            parts.append(f"## {title}\n\n" + markdown(["", *models], rows))
    if BASE in models:
        parts.append(f"## Geometric means of ratios to {BASE}\n\n{summary(found)}")
    if any(model == PEER for _, model in found):
        parts.append(f"## Regression sets, relative to {PEER}\n\n{against_peer(found)}")
    return "\n\n".join(parts)


def summary(found: Figures) -> str:
    """Return the mean ratios of each model, over the sets it was run on."""
    rows = []
    for model in names(found)[1]:
        errors = ratios(found, model, BASE, "error")
        if errors:
            times = ratios(found, model, BASE, "fit_s")
            means = (cell(geometric(each.values())) for each in (errors, times))
            rows.append([model, *means, str(len(errors))])
    return markdown(["", "error", "fit time", "sets"], rows)


def against_peer(found: Figures) -> str:
    """Return error, wins and fit time of each model relative to the peer, over regression sets."""
    kept = {key: figures for key, figures in found.items() if figures["task"] == "regression"}
    rows = []
    for model in names(kept)[1]:
        errors = list(ratios(kept, model, PEER, "error").values())
        times = ratios(kept, model, PEER, "fit_s").values()
        if errors:
            lower = f"{sum(error < 1 for error in errors)} of {len(errors)}"
            rows.append([model, cell(geometric(errors)), lower, cell(median(times))])
    header = ["", "error, geometric mean", "sets with a lower error", "fit time, median"]
    return markdown(header, rows)


def cell(value: float | None) -> str:
    """Return a number with four digits, or a dash."""
    return "-" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned markdown table: the first column to the left, the others to the right."""
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for row in [header, rule, *rows]:
        first, *others = (
            text.rjust(width) if n else text.ljust(width)
            for n, (text, width) in enumerate(zip(row, widths))
        )
        lines.append("| " + " | ".join([first, *others]) + " |")
    return "\n".join(lines)


def draw(found: Figures, folder: Path) -> None:
    """Draw the error on each set, and the mean error against the mean fit time."""
    models = [model for model in names(found)[1] if ratios(found, model, BASE, "error")]
    if not models:
        return
    colours = {model: plt.get_cmap("tab20")(n) for n, model in enumerate(models)}
    draw_sets(found, colours, folder / "errors.png")
    draw_means(found, colours, folder / "error_time.png")


def draw_sets(found: Figures, colours: dict[str, tuple], path: Path) -> None:
    """Draw a line of dots for each set: the models' error ratios."""
    sets = [own for own in names(found)[0] if (own, BASE) in found]
    figure, axes = plt.subplots(figsize=(9, max(4, 1.5 + 0.35 * len(sets))), layout="constrained")
    for model, colour in colours.items():
        values = ratios(found, model, BASE, "error")
        places = [sets.index(own) for own in values]
        axes.scatter(list(values.values()), places, color=colour, label=model, zorder=2)
    axes.set(xscale="log", xlabel=f"error / error of {BASE}; left is better")
    plain_ticks(axes.xaxis)
    axes.set_yticks(range(len(sets)), sets)
    axes.invert_yaxis()
    axes.axvline(1, color="grey", linewidth=1)
    axes.grid(axis="y", alpha=0.4)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_means(found: Figures, colours: dict[str, tuple], path: Path) -> None:
    """Draw a dot for each model: geometric means of error and fit-time ratios."""
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for model, colour in colours.items():
        x, y = (geometric(ratios(found, model, BASE, n).values()) for n in ("fit_s", "error"))
        axes.scatter(x, y, color=colour)
        axes.annotate(model, (x, y), xytext=(5, 4), textcoords="offset points")
    axes.set(xscale="log", yscale="log", xlabel=f"fit time / fit time of {BASE}")
    axes.set_ylabel(f"error / error of {BASE}")
    axes.set_title("Geometric means over the sets each model was run on")
    plain_ticks(axes.yaxis)
    axes.margins(0.2)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def plain_ticks(axis: Axis) -> None:
    """Label a log scale of ratios near one with plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")
