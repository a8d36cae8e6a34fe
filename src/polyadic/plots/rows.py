"""Plots of Shapley values: a waterfall for one prediction, a beeswarm for many."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from polyadic.data.tables import is_missing
from polyadic.explain import Shapley, shapley
from polyadic.explain.listing import Numbers
from polyadic.explain.row import code_row
from polyadic.explain.shapley import explain_coded
from polyadic.plots.style import (
    BLUE,
    GREY,
    INK,
    PALE,
    SLATE,
    WARM,
    amount,
    axis_label,
    class_title,
    colour_map,
    left_out,
    legend_above,
    new_axes,
    result_of,
    short,
    tidy,
)
from polyadic.training.model import FittedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SOURCE = {Shapley: "explain.shapley(model, X)"}
# Chosen by hand:
_BINS = 110  # along the axis; points in the same bin are drawn above and below each other
_HALF = 0.42  # of a line's height: how far points may be moved up or down
_STEP = 0.1  # of a line's height: largest distance between points of the same bin


def waterfall(
    result: Any, row: Any = 0, output: Any = None, top: int = 10, ax: Axes | None = None
) -> Axes:
    """Draw how the columns lead from the mean prediction to that of one row.

    From top to bottom: the mean, or on the scale of probabilities what is predicted at the mean
    score, what each column adds (red) or takes away (blue), strongest
    first, the sum of the other columns, and the prediction.

    Parameters
    ----------
    result : Shapley, or a fitted model
        From `polyadic.explain.shapley`.
    row : int; for a model a dict, an array, or a table of one row
        Which of the rows of the result, or the row itself.
    output : label or int, optional
        Which of three or more classes, by its label, by default the predicted one; which of several
        numbers, by default the first.
    top : int
        Number of columns with a bar of their own.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib axes
    """
    if not isinstance(result, Shapley):
        result, row = result_of("waterfall", result, _SOURCE, partial(_explain_row, row=row)), 0
    if not -len(result) <= row < len(result):
        raise ValueError(f"There is no row {row}; there are {len(result)}, counted from 0.")
    k = result.find_output(output, row)
    own = result.values[row, :, k]
    order = np.argsort(-np.abs(own), kind="stable")
    steps = list(own[order[:top]])
    names = [f"{short(result.columns[n])} = {amount(result.data[n][row])}" for n in order[:top]]
    rest = order[top:]
    if len(rest):
        steps.append(own[rest].sum())
        names.append("other column" if len(rest) == 1 else f"other {len(rest)} columns")
    ax = new_axes(ax, 7.0, 1.4 + 0.32 * len(steps))
    levels = result.base[k] + np.concatenate([[0.0], np.cumsum(steps)])
    _draw_steps(ax, levels)
    start = "mean prediction" if result.scale == "raw" else "at the mean score"
    ax.set_yticks(np.arange(len(steps) + 2), [start, *names, "prediction"])
    ax.set_xlabel(axis_label(result, k))
    ax.set_title(class_title(result, k), loc="left", fontsize=11)
    return ax


def _draw_steps(ax: Axes, levels: np.ndarray) -> None:
    """Draw a bar from each level to the next, and dots at the first and the last."""
    steps = np.diff(levels)
    places = np.arange(1, len(steps) + 1)
    ax.barh(places, steps, 0.7, left=levels[:-1], color=[WARM if s >= 0 else BLUE for s in steps])
    # A thin line connects the end of each bar with the start of the next.
    ax.vlines(levels, np.arange(len(levels)), np.arange(1, len(levels) + 1), color=GREY, lw=0.8)
    ax.plot(levels[[0, -1]], [0, len(levels)], "o", color=INK, ms=6, ls="", zorder=3)
    span = float(np.ptp(levels)) or 1.0
    plain, signed = Numbers(levels, n_digits=3), Numbers(levels, signed=True, n_digits=3)
    right: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
    right["fontsize"] = 8.5
    for place, low, high, step in zip(places, levels[:-1], levels[1:], steps):
        ax.annotate(_minus(signed(step)), (max(low, high), place), color=INK, **right)
    for line, level in ((0, levels[0]), (len(levels), levels[-1])):
        ax.annotate(_minus(plain(level)), (level, line), color=INK, fontweight="bold", **right)
    ax.set_xlim(levels.min() - 0.05 * span, levels.max() + 0.16 * span)
    ax.set_ylim(len(levels) + 0.6, -0.6)
    tidy(ax, "x")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _minus(text: str) -> str:
    """Return a number with the minus sign that the axis has."""
    return text.replace("-", "\N{MINUS SIGN}")


def _explain_row(model: FittedModel, row: Any) -> Shapley:
    """Return the Shapley values of one row of a model."""
    if isinstance(row, int):
        raise TypeError(
            f"plots.waterfall of a model needs the row itself, got {row}. Pass a dict, an array or "
            "a table of one row: plots.waterfall(model, X[:1])."
        )
    return explain_coded(model, code_row(model, row), None)


def beeswarm(
    result: Any, X: Any = None, output: Any = None, top: int = 10, ax: Axes | None = None
) -> Axes:
    """Draw the Shapley values of many rows, one line per column, one point per row.

    The colour of a point is the rank of the row's value in the column: blue is low, red is high.
    Categories whose names are numbers are ranked too; other categories have no order and are drawn
    in one colour, missing values in pale grey. The same values always give the same plot.

    Parameters
    ----------
    result : Shapley, or a fitted model
        From `polyadic.explain.shapley`, which is called for a model.
    X : table, optional
        For a model only: the rows to draw.
    output : label or int, optional
        Which of three or more classes, by its label, by default the one that is predicted most
        often for these rows; which of several numbers, by default the first.
    top : int
        Number of columns to draw, largest mean absolute value of this output first.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib axes
    """
    result = result_of("beeswarm", result, _SOURCE, partial(_explain_rows, X=X))
    k = result.find_output(output)
    values = result.values[:, :, k]
    size = np.abs(values).mean(axis=0)
    order = np.argsort(-size, kind="stable")[:top]
    ax = new_axes(ax, 7.4, 1.1 + 0.42 * len(order))
    ax.axvline(0.0, color=GREY, lw=0.8, zorder=0.5)
    drawn = values[:, order]
    low, high = (float(drawn.min()), float(drawn.max())) if drawn.size else (0.0, 0.0)
    span = (high - low) or 1.0
    kinds = set()
    for place, n in enumerate(order):
        kinds |= _draw_swarm(ax, place, values[:, n], span, result.data[n])
    ax.set_xlim(low - 0.04 * span, high + 0.04 * span)
    ax.set_ylim(max(len(order), 1) - 0.4, -0.6)
    ax.set_yticks(np.arange(len(order)), [short(result.columns[n]) for n in order])
    ax.set_xlabel("adds to the " + axis_label(result, k))
    ax.set_title(class_title(result, k), loc="left", fontsize=11)
    tidy(ax, "x")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    _keys(ax, kinds)
    left_out(ax, len(result.columns) - len(order))
    return ax


def _explain_rows(model: FittedModel, X: Any) -> Shapley:
    """Return the Shapley values of rows of a model."""
    if X is None:
        raise TypeError("plots.beeswarm of a model needs rows: plots.beeswarm(model, X).")
    return shapley(model, X)


def _draw_swarm(ax: Axes, place: int, x: np.ndarray, span: float, data: np.ndarray) -> set[str]:
    """Draw the points of one column; return which kinds of points there are."""
    y = place + spread(x, span)
    rank, missing = ranks(data)
    look: dict[str, Any] = {"s": 9, "lw": 0, "rasterized": True}
    kinds = set()
    if rank is None:
        known = ~missing
        ax.scatter(x[known], y[known], color=SLATE, alpha=0.8, **look)
        kinds |= {"category"} if known.any() else set()
    else:
        known = ~missing
        colours = {"c": rank[known], "cmap": colour_map("ranked"), "vmin": 0.0, "vmax": 1.0}
        ax.scatter(x[known], y[known], alpha=0.9, **colours, **look)
        kinds |= {"rank"} if known.any() else set()
    if missing.any():
        ax.scatter(x[missing], y[missing], color=PALE, zorder=1.5, **look)
        kinds.add("missing")
    return kinds


def spread(x: np.ndarray, span: float) -> np.ndarray:
    """Return heights, around zero, at which points at x do not overlap.

    Points that are close are placed above and below each other in turn; where there are too many,
    the distance between them is reduced.

    >>> spread(np.array([0.0, 0.0, 0.0, 1.0]), span=1.0)
    array([ 0. ,  0.1, -0.1,  0. ])
    """
    place = np.round((x - x.min(initial=np.inf)) / span * _BINS).astype(np.int64)
    order = np.argsort(place, kind="stable")
    first = np.searchsorted(place[order], place[order], side="left")
    turn = np.arange(len(x)) - first  # 0, 1, 2, ... within a bin
    layer = (turn + 1) // 2 * np.where(turn % 2 == 1, 1, -1)
    out = np.empty(len(x))
    out[order] = layer * min(_STEP, _HALF / max(1, int(np.abs(layer).max(initial=0))))
    return out + 0.0


def ranks(data: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the rank of each value, 0 to 1 (None where there is no order), and which are missing.

    >>> ranks(np.array([3.0, 1.0, np.nan, 2.0]))
    (array([1. , 0. , nan, 0.5]), array([False, False,  True, False]))
    """
    missing = np.array([is_missing(v) for v in data.tolist()], dtype=bool)
    numbers = np.full(len(data), np.nan)
    try:
        numbers[~missing] = data[~missing].astype(float)
    except (TypeError, ValueError):
        return None, missing
    missing = np.isnan(numbers)
    rank = np.full(len(data), np.nan)
    known = rankdata(numbers[~missing]) if (~missing).any() else np.zeros(0)
    width = np.ptp(known) if len(known) else 0.0
    rank[~missing] = (known - known.min()) / width if width else 0.5
    return rank, missing


def _keys(ax: Axes, kinds: set[str]) -> None:
    """Add a legend of the colours: a bar from low to high, and the other kinds of points."""
    from matplotlib.cm import ScalarMappable

    if "rank" in kinds:
        bar = ax.figure.colorbar(
            ScalarMappable(cmap=colour_map("ranked")), ax=ax, ticks=[0, 1], pad=0.02, aspect=40
        )
        bar.ax.set_yticklabels(["low", "high"])
        bar.ax.tick_params(colors=INK, labelsize=9, length=0)
        bar.set_label("value of the column", labelpad=-14, fontsize=9)
        bar.outline.set_visible(False)
    for kind, colour in (("category", SLATE), ("missing", PALE)):
        if kind in kinds:
            ax.plot([], [], "o", ls="", ms=4, color=colour, label=kind)
    legend_above(ax)
