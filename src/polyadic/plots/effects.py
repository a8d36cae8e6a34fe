"""Plots of main effects, side by side."""

from __future__ import annotations

from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from polyadic.explain import Effects
from polyadic.explain import effects as explain_effects
from polyadic.explain.listing import percent
from polyadic.explain.outputs import find_output
from polyadic.plots.style import (
    GREY,
    LABEL,
    OUTPUTS,
    PALE,
    axis_label,
    class_title,
    colour_of,
    effect_label,
    pyplot,
    result_of,
    short,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Chosen by hand:
_MOST_LABELS = 16  # categories that are named along an axis
_LINE = 26  # letters that fit below a panel, or beside it, in one line
_MOST_SLANTED = 10  # names that are slanted; more are vertical
_STRIP = 0.14  # of a panel's height, for the density below the curve
_LEAST_MISSING = 5e-4  # share of the rows from which a missing value is drawn


def effects(result: Any, top: int = 8, axes: Any = None, output: Any = None) -> np.ndarray:
    """Draw the main effects of the strongest columns side by side, on one scale.

    The title of a panel has the column and the share of the variance due to its effect. The pale
    strip below shows where the rows are; a diamond, or a hollow bar, is the effect of a missing
    value, where rows have one; their share is written below. More than 16 categories are sorted by
    their effect, unless they have an order.

    Parameters
    ----------
    result : Effects, or a fitted model
        From `polyadic.explain.effects`, which is called for a model.
    top : int
        Number of columns to draw, strongest first.
    axes : array of matplotlib axes, optional
        Where to draw; by default a new figure.
    output : label or int, optional
        Which of several classes, by its label, or of several numbers; by default all of them, each
        in a colour of its own.

    Returns
    -------
    axes : array of matplotlib axes
    """
    kinds = {Effects: "explain.effects(model)"}
    result = result_of("effects", result, kinds, explain_effects)
    if output is None:
        return draw_panels(result, top, axes)
    k = find_output(output, result.outputs, result.classes)
    return draw_panels(_one_output(result, k), top, axes, title=class_title(result, k))


def _one_output(result: Effects, k: int) -> Effects:
    """Return one of several outputs."""
    name = result.outputs[k] if result.classes is None else ""
    return replace(
        result,
        target=result.target._replace(name=name or result.target.name),
        outputs=result.outputs[k : k + 1],
        base=result.base[k : k + 1],
        values=[own[:, k : k + 1] for own in result.values],
        missing=[own[k : k + 1] for own in result.missing],
    )


def draw_panels(
    result: Effects, top: int, axes: Any, one_scale: bool = True, title: str = ""
) -> np.ndarray:
    """Draw one panel for each of the strongest columns, on one scale or each on its own."""
    order, given = np.argsort(-result.variance, kind="stable")[:top], axes
    axes = np.asarray(_panels(len(order), one_scale) if given is None else given)
    if given is None and title:
        axes.flat[0].figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    flat = axes.ravel()
    for ax in flat[len(order) :]:
        ax.set_visible(False)
    order = order[: len(flat)]
    for ax, n in zip(flat, order):
        (_curve if result.ends[n] is not None else _bars)(ax, result, n)
        for k in range(len(result.base)):
            ax.axhline(_level(result)[k], color=GREY, lw=0.8, zorder=0.5)
        ax.set_title(f"{short(result.columns[n])}, {percent(result.share[n])}", loc="left", size=10)
        tidy(ax)
    for some in [slice(None)] if one_scale else [slice(k, k + 1) for k in range(len(order))]:
        _one_scale(flat[: len(order)][some], result, order[some])
    if given is None:  # a figure of panels has one label, which may be longer than a panel
        flat[0].figure.supylabel(_scale_name(result), size=10)
    else:
        for ax in axes[:, 0] if axes.ndim == 2 else flat[:1]:
            ax.set_ylabel("\n".join(wrap(_scale_name(result), _LINE)))
    _legend(flat[0].figure, result)
    return axes


def _panels(n_columns: int, one_scale: bool) -> Any:
    """Make a figure of panels, at most four in a row."""
    width = min(4, max(1, n_columns))
    height = -(-max(1, n_columns) // width)
    size = (2.7 * width + 0.4 + 1.2 * (width == 1), 2.5 * height + 0.3)
    figure = pyplot().figure(figsize=size, layout="constrained")
    return figure.subplots(height, width, sharey=one_scale, squeeze=False)


def _level(result: Effects) -> np.ndarray:
    """Return the value of each output at which an effect is zero, (L,)."""
    return np.zeros(len(result.base)) if result.scale == "raw" else result.base


def _scale_name(result: Effects) -> str:
    one = len(result.outputs) == 1 and result.classes is not None
    if result.scale == "raw":
        return effect_label(result, 0 if one else None)
    return "mean " + (axis_label(result, 0) if one else short(result.target.prediction(), LABEL))


def _missing_share(result: Effects, n: int) -> float:
    return max(0.0, 1.0 - float(result.density[n].sum()))


def _curve(ax: Axes, result: Effects, n: int) -> None:
    """Draw the effect of a numeric column, and where its rows are."""
    grid, values = result.grid[n], result.values[n]
    n_outputs = values.shape[1]
    for k, value in enumerate(values.T):
        dot: dict[str, Any] = {"marker": "o", "ms": 5} if len(grid) == 1 else {}
        ax.plot(grid, value, lw=1.8, color=colour_of(k, n_outputs), **dot)
    low, high = _view(result, n)
    share = _missing_share(result, n)
    if share > _LEAST_MISSING:
        place, high = high + 0.06 * (high - low), high + 0.1 * (high - low)
        for k, value in enumerate(result.missing[n]):
            colour = colour_of(k, n_outputs)
            (mark,) = ax.plot([place], [value], "D", ms=6, mew=1.4, mec=colour, zorder=3)
            mark.set(markerfacecolor="white")
        ax.set_xlabel(f"\N{WHITE DIAMOND} missing, {percent(share)}", size=9)
    ax.set_xlim(low, high)
    whole = bool(np.all(grid == np.round(grid)))  # no ticks between two years
    ax.locator_params(axis="x", nbins=5, integer=whole)
    edges, density = result.edges[n], result.density[n]
    if edges is not None and len(density) and edges[0] < edges[-1]:
        height = density / np.diff(edges)  # so that bins of different widths are comparable
        seen = height[(edges[1:] > low) & (edges[:-1] < high)]
        strip = _STRIP * height / max(seen.max(initial=0.0), 1e-300)
        under = ax.get_xaxis_transform()
        ax.stairs(strip, edges, fill=True, color=PALE, transform=under, zorder=0.4)


def _view(result: Effects, n: int) -> tuple[float, float]:
    """Return the range in which a curve is shown.

    It reaches beyond the middle nine tenths of the rows by at most half their width, so that
    outliers do not squeeze the rest of the curve.
    """
    grid, ends = result.grid[n], result.ends[n]
    if ends is None or len(grid) == 0:
        return 0.0, 1.0
    low, high = ends
    if low < high:
        around = (high - low) / 2
        inside = grid[(grid >= low - around) & (grid <= high + around)]
        return float(inside[0]), float(inside[-1])
    if grid[0] < grid[-1]:  # nearly all rows have one value
        return float(grid[0]), float(grid[-1])
    around = 0.5 * abs(grid[0]) or 0.5
    return float(grid[0] - around), float(grid[0] + around)


def _bars(ax: Axes, result: Effects, n: int) -> None:
    """Draw the effect of a categorical column, one bar per category."""
    names = [short(c, 13) for c in result.grid[n]]
    values, density = result.values[n], result.density[n]
    few = len(names) <= _MOST_LABELS
    in_order = few or result.ordered[n]
    if not in_order:
        order = np.argsort(values[:, 0], kind="stable")
        names, values, density = [names[i] for i in order], values[order], density[order]
    share, level = _missing_share(result, n), _level(result)
    places = np.arange(len(names))
    n_outputs = values.shape[1]
    width = (0.8 if few else 1.0) / n_outputs
    for k, value in enumerate(values.T):
        offset = (k - (n_outputs - 1) / 2) * width
        colour = colour_of(k, n_outputs)
        ax.bar(places + offset, value - level[k], width, bottom=level[k], color=colour)
        if share > _LEAST_MISSING:
            place = len(names) + (0 if few else 0.04 * len(names))
            gap = width if few else 0.03 * len(names) / n_outputs
            at = place + (k - (n_outputs - 1) / 2) * gap
            (bar,) = ax.bar([at], [result.missing[n][k] - level[k]], gap, bottom=level[k])
            bar.set(facecolor="white", edgecolor=colour, linewidth=1.2)
    strip = _STRIP * density / max(density.max(initial=0.0), 1e-300)
    ax.bar(
        places,
        strip,
        0.8 if few else 1.0,
        color=PALE,
        transform=ax.get_xaxis_transform(),
        zorder=0.4,
    )
    below = []
    if in_order:
        _name(ax, names)
    else:
        ax.set_xticks([])
        below.append(f"{len(names):,} categories, by effect")
    if share > _LEAST_MISSING:
        below.append(f"\N{WHITE VERTICAL RECTANGLE} missing, {percent(share)}")
    ax.set_xlabel("\n".join(below), size=9)


def _name(ax: Axes, names: list[str]) -> None:
    """Name the bars, slanted or vertical where the names would overlap; of very many only some."""
    turn: dict[str, Any] = {}
    step = -(-len(names) // _MOST_LABELS)
    places, names = np.arange(len(names))[::step], names[::step]
    if sum(len(name) + 2 for name in names) > _LINE:
        turn = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    if len(names) > _MOST_SLANTED:
        turn = {"rotation": 90, "fontsize": 7.5}
    ax.set_xticks(places, names, **turn)


def _one_scale(axes: Any, result: Effects, order: np.ndarray) -> None:
    """Give all panels the same limits, with space for the strip below."""
    seen = [_level(result)]
    for n in order:
        values = result.values[n]
        if result.ends[n] is not None:
            low, high = _view(result, n)
            values = values[(result.grid[n] >= low) & (result.grid[n] <= high)]
        seen.append(values.ravel())
        if _missing_share(result, n) > _LEAST_MISSING:
            seen.append(result.missing[n])
    every = np.concatenate(seen)
    low, high = float(every.min()), float(every.max())
    span = high - low if high > low else 1.0
    from matplotlib.ticker import MaxNLocator

    ticks = np.asarray(MaxNLocator(6).tick_values(low, high))
    ticks = ticks[(ticks >= low - 0.06 * span) & (ticks <= high + 0.06 * span)]  # above the strip
    for ax in axes:
        ax.set_ylim(low - (_STRIP + 0.08) * span, high + 0.06 * span)
        ax.set_yticks(ticks)


def _legend(figure: Any, result: Effects) -> None:
    """Name the outputs above the panels, where the legend covers nothing."""
    n_outputs = len(result.outputs)
    if not 1 < n_outputs <= len(OUTPUTS):
        return
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=colour_of(k, n_outputs)) for k in range(n_outputs)]
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "handlelength": 1.2, "ncols": 5}
    names = [short(name, 14) for name in result.outputs]
    figure.legend(lines, names, loc="outside upper right", **look)
