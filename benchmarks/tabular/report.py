"""The tables and the two pictures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, NullLocator
from scores import Set, compare, geometric, mean_ranks

OWN = "cp"  # the model that is compared with the others
MADE_UP = {"hidden"}  # sets that no claim is about
BASE = "catboost"  # errors and times in the pictures are relative to it
GROUPS = (
    "regression, small",
    "regression, large",
    "regression, wide",
    "two classes",
    "many classes",
)
TITLES = {
    "error": "Error: MSE in variances of the target, or log-loss",
    "auc": "AUC",
    "accuracy": "Accuracy",
    "brier": "Brier score",
    "fit_s": "Fit, seconds",
    "predict_us": "Predict, microseconds per row",
}


def models_of(found: dict[str, Set]) -> list[str]:
    """Return the models in the order in which they were run."""
    return list(dict.fromkeys(model for own in found.values() for model in own.figures))


def tables(found: dict[str, Set]) -> str:
    """Return all figures as markdown: medians over the splits, and the comparisons by group."""
    models, parts = models_of(found), []
    for name, title in TITLES.items():
        rows = [
            [own.name, *(number(own.score(model, name)) for model in models)]
            for own in in_groups(found)
            if any(own.score(model, name) is not None for model in models)
        ]
        if rows:
            parts.append(f"## {title}\n\n" + markdown(["", *models], rows))
    if OWN in models:
        parts.append(f"## {OWN} against the others\n\n{comparisons(found)}")
    if BASE in models:
        parts.append(f"## Every model against {BASE}\n\n{against_base(found)}")
    return "\n\n".join(parts)


def against_base(found: dict[str, Set]) -> str:
    """Return errors and times of every model relative to one, by kind of target; real sets only."""
    rows = []
    for kind in ("regression", "two classes", "many classes"):
        sets = [s for s in found.values() if s.group.startswith(kind) and s.name not in MADE_UP]
        for model in models_of(found):
            told = compare(sets, model, BASE)
            if told is not None and model != BASE:
                below, worst = f"{told.n_below} of {told.n_sets}", f"{told.worst:.3f}"
                numbers = [told.geometric, told.median]
                cells = [f"{kind}: {model}", below, *(f"{n:.3f}" for n in numbers)]
                rows.append([*cells, f"{worst} ({told.worst_set})", f"{told.time_median:.2f}"])
    header = ["kind: model", "sets below", "geometric mean", "median", "worst", "time, median"]
    return markdown(header, rows)


def in_groups(found: dict[str, Set]) -> list[Set]:
    """Return the sets group by group."""
    return sorted(found.values(), key=lambda own: (GROUPS.index(own.group), own.name))


def comparisons(found: dict[str, Set]) -> str:
    """Return how the own model compares with each other one, over all sets and by group."""
    rows = []
    regression = [own for own in found.values() if own.group.startswith("regression")]
    groups = {"all": list(found.values()), "regression": regression}
    groups |= {name: [own for own in found.values() if own.group == name] for name in GROUPS}
    for group, sets in groups.items():
        others = [model for model in models_of(found) if model != OWN]
        for other in others:
            told = compare(sets, OWN, other)
            if told is None:
                continue
            ranks = mean_ranks(sets, [OWN, other])
            rows.append(
                [
                    f"{group}: {other}",
                    f"{told.n_below} of {told.n_sets}",
                    number(told.geometric),
                    number(told.median),
                    f"{number(told.worst)} ({told.worst_set})",
                    number(ranks.get(OWN)),
                    number(told.time_median),
                    number(told.time_worst),
                ]
            )
    header = [
        "group: other",
        "sets below",
        "geometric mean",
        "median",
        "worst",
        "mean rank of two",
        "time, median",
        "time, worst",
    ]
    text = markdown(header, rows)
    ranked = [m for m in models_of(found) if all(m in own.figures for own in found.values())]
    ranks = mean_ranks(found.values(), ranked)
    if len(ranks) > 2:
        order = sorted(ranks, key=ranks.__getitem__)
        text += "\n\nMean rank among all: " + ", ".join(f"{m} {ranks[m]:.2f}" for m in order) + "."
    return text


def number(value: float | None) -> str:
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


def draw(found: dict[str, Set], folder: Path) -> None:
    """Draw the error on each set, and the mean error against the mean fit time."""
    models = [model for model in models_of(found) if compare(found.values(), model, BASE)]
    if not models:
        return
    colours = {model: plt.get_cmap("tab20")(n) for n, model in enumerate(models)}
    draw_sets(found, colours, folder / "errors.png")
    draw_means(found, colours, folder / "error_time.png")


def draw_sets(found: dict[str, Set], colours: dict[str, tuple], path: Path) -> None:
    """Draw a line of dots for each set: the models' error ratios."""
    sets = [own for own in in_groups(found) if BASE in own.figures]
    figure, axes = plt.subplots(figsize=(9, max(4, 1.5 + 0.35 * len(sets))), layout="constrained")
    for model, colour in colours.items():
        values = [own.ratio(model, BASE, "error") for own in sets]
        places = [n for n, value in enumerate(values) if value is not None]
        axes.scatter([values[n] for n in places], places, color=colour, label=model, zorder=2)
    axes.set(xscale="log", xlabel=f"error / error of {BASE}; left is better")
    plain_ticks(axes.xaxis)
    axes.set_yticks(range(len(sets)), [own.name for own in sets])
    axes.invert_yaxis()
    axes.axvline(1, color="grey", linewidth=1)
    axes.grid(axis="y", alpha=0.4)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_means(found: dict[str, Set], colours: dict[str, tuple], path: Path) -> None:
    """Draw a dot for each model: geometric means of error and fit-time ratios."""
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for model, colour in colours.items():
        own = [s for s in found.values() if s.ratio(model, BASE, "error") is not None]
        x, y = (geometric(s.ratio(model, BASE, name) for s in own) for name in ("fit_s", "error"))
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
