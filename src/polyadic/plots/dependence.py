"""Plots of partial dependence: a curve for one column, a heat map for two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from polyadic.data.tables import is_missing
from polyadic.explain import PartialDependence, interactions, partial_dependence
from polyadic.explain.outputs import find_output
from polyadic.plots.style import (
    BLUE,
    GREY,
    INK,
    amount,
    axis_label,
    class_title,
    colour_map,
    effect_label,
    new_axes,
    result_of,
    short,
    tidy,
)
from polyadic.training.model import FittedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Chosen by hand:
_MOST_LABELS = 20  # categories that are named along an axis
_FAR = 0.2  # an end point farther from its neighbour than this share of the range is not shown
_FINE = 12  # points of a grid from which end points may be left out


def interaction(
    result: Any,
    columns: Sequence[str | int] | None = None,
    ax: Axes | None = None,
    output: Any = None,
) -> Axes:
    """Draw a partial dependence: two columns as a heat map, one as a curve.

    The colours of a pure interaction are centred at zero: red is above the sum of what the columns
    do one by one, blue is below. A column with a single grid point is written in the title; NaN
    cells stay white.

    Parameters
    ----------
    result : PartialDependence, or a fitted model
        From `polyadic.explain.partial_dependence`; with ``pure=True`` for interactions. Of a model,
        the pure interaction of `columns` is drawn.
    columns : list of str or int, optional
        For a model only, by default its strongest pair.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure.
    output : label or int, optional
        Which of several classes, by its label, or of several numbers; by default the first.

    Returns
    -------
    ax : matplotlib axes
    """
    source = {PartialDependence: "explain.partial_dependence(model, columns)"}
    result = result_of("interaction", result, source, partial(_pure, columns=columns))
    k = find_output(output, result.outputs, result.classes)
    values = result.values[..., k]
    free = [i for i, points in enumerate(result.grid) if len(points) > 1]
    if len(free) > 2:
        raise ValueError(
            f"A heat map has two columns, got three: {', '.join(result.columns)}. Give one of them "
            "a single value: partial_dependence(model, columns, grid=[..., ..., [value]])."
        )
    free = free or [0]
    fixed = [i for i in range(len(result.grid)) if i not in free]
    grids = [result.grid[i] for i in free]
    values = values.reshape([len(points) for points in grids])
    ax = new_axes(ax, 6.0, 4.6 if len(free) == 2 else 3.6)
    names = [result.columns[i] for i in free]
    (_heat_map if len(free) == 2 else _line)(ax, names, grids, values, result, k)
    ax.tick_params(colors=INK, labelsize=9)
    fixed_values = [f"{short(result.columns[i])} = {amount(result.grid[i][0])}" for i in fixed]
    parts = [" and ".join(short(name) for name in names), *fixed_values, class_title(result, k)]
    title = ", ".join(part for part in parts if part)
    ax.set_title(title, loc="left", fontsize=11)
    return ax


def _pure(model: FittedModel, columns: Sequence[str | int] | None) -> PartialDependence:
    """Return the pure interaction of columns of a model, by default of the strongest pair."""
    if columns is None:
        strongest = interactions(model, max_order=2, top=1).rows
        if not strongest:
            raise ValueError("The model has one column, and so no interactions to draw.")
        columns = strongest[0].columns
    return partial_dependence(model, columns, pure=True)


class _Axis:
    """Places and cell edges of one column's points, ascending."""

    def __init__(self, points: np.ndarray):
        numeric = points.dtype.kind in "fiub" and not any(is_missing(p) for p in points.tolist())
        self.labels = None if numeric else [amount(p) for p in points.tolist()]
        self.order = np.argsort(points, kind="stable") if numeric else np.arange(len(points))
        self.places = points[self.order].astype(float) if numeric else np.arange(len(points)) * 1.0
        self.edges = _edges(self.places)

    def limits(self) -> tuple[float, float]:
        """Return the range to draw; a single outlier at an end is left out."""
        low, high = 0, len(self.edges) - 1
        if self.labels is None and len(self.places) >= _FINE:
            far = _FAR * (self.places[-1] - self.places[0])
            low += self.places[1] - self.places[0] > far
            high -= self.places[-1] - self.places[-2] > far
        return float(self.edges[low]), float(self.edges[high])

    def mark(self, ax: Any, set_ticks: Any, **look: Any) -> None:
        """Name the categories, all of them or as many as can be read."""
        if self.labels is not None:
            step = -(-len(self.labels) // _MOST_LABELS)
            set_ticks(self.places[::step], self.labels[::step], **look)


def _edges(places: np.ndarray) -> np.ndarray:
    """Return the borders between neighbouring points, halfway, (k + 1,).

    >>> _edges(np.array([0.0, 1.0, 4.0]))
    array([-0.5,  0.5,  2.5,  5.5])
    """
    if len(places) == 1:
        return places[0] + np.array([-0.5, 0.5])
    middle = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - middle[0]], middle, [2 * places[-1] - middle[-1]]])


def _heat_map(
    ax: Axes, names: list[str], grids: Any, values: np.ndarray, result: Any, output: int
) -> None:
    x, y = _Axis(grids[0]), _Axis(grids[1])
    values = values[np.ix_(x.order, y.order)]
    seen = _inside(x, y, values)
    low, high = float(np.nanmin(seen)), float(np.nanmax(seen))
    scale = "sized"
    if result.pure:
        scale, high = "signed", max(-low, high) or 1.0
        low = -high
    look: dict[str, Any] = {"vmin": low, "vmax": high, "rasterized": True}
    mesh = ax.pcolormesh(x.edges, y.edges, values.T, cmap=colour_map(scale), **look)
    ax.set_xlim(x.limits())
    ax.set_ylim(y.limits())
    x.mark(ax, ax.set_xticks, rotation=45, ha="right", rotation_mode="anchor")
    y.mark(ax, ax.set_yticks)
    ax.set_xlabel(short(names[0]))
    ax.set_ylabel(short(names[1]))
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=INK, labelsize=9, length=0)
    bar.set_label(_label(result, output))


def _inside(x: _Axis, y: _Axis, values: np.ndarray) -> np.ndarray:
    """Return the values of the cells that are shown, which set the range of colours."""
    keep = []
    for axis in (x, y):
        low, high = axis.limits()
        keep.append((axis.places >= low) & (axis.places <= high))
    return values[np.ix_(*keep)]


def _line(
    ax: Axes, names: list[str], grids: Any, values: np.ndarray, result: Any, output: int
) -> None:
    x = _Axis(grids[0])
    if result.pure:
        ax.axhline(0.0, color=GREY, lw=0.8)
    if x.labels is None:
        dot = "o" if len(x.places) == 1 else ""
        ax.plot(x.places, values[x.order], color=BLUE, lw=1.8, marker=dot)
        if len(x.places) > 1:
            ends = np.clip(x.limits(), x.places[0], x.places[-1])
            ax.set_xlim(*ends)
    else:
        small = 6 if len(x.places) <= _MOST_LABELS else 2.5
        # Dots, no bars: bars would start at zero, which has no meaning here.
        ax.plot(x.places, values, "o", color=BLUE, ms=small)
        x.mark(ax, ax.set_xticks, rotation=45, ha="right", rotation_mode="anchor")
    tidy(ax)
    ax.set_xlabel(short(names[0]))
    ax.set_ylabel(_label(result, output))


def _label(result: PartialDependence, output: int) -> str:
    if not result.pure:
        return "mean " + axis_label(result, output)
    what = effect_label(result, output)
    return f"interaction {what}" if len(result.columns) > 1 else what
    name = result.outputs[output]
    return f"{what} for {short(name, 16)}" if name else what
