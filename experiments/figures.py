"""Pictures: lines with the range over seeds around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_DPI = 80  # small files: the pictures are kept in the repository
_LARGEST = 1e6  # values that are larger or not finite are drawn there; chosen by hand


def new_figure(n_panels: int = 1) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * n_panels, 3.6), layout="constrained")
    panels = figure.subplots(1, n_panels, squeeze=False)[0]
    return figure, list(panels)


def save(figure: Any, path: Path) -> None:
    """Write a small PNG; the same figure gives the same file."""
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})


def draw_curves(
    panel: Any, curves: Mapping[str, Sequence[Sequence[float | None]]], title: str, what: str
) -> None:
    """Draw the median learning curve of every model, and the range over its seeds."""
    for name, runs in curves.items():
        if runs:
            draw_band(panel, 1 + np.arange(max(map(len, runs))), _stacked(runs), name)
    panel.set(xlabel="epoch", ylabel=what, yscale="log", title=title)
    panel.legend(fontsize="small")


def draw_sweep(
    panel: Any,
    lines: Mapping[str, Mapping[Any, Sequence[float]]],
    labels: tuple[str, str],
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> None:
    """Draw, for every line, the values over seeds at each point."""
    for name, points in lines.items():
        known = {x: _drawable(values) for x, values in points.items() if values}
        if known:  # each point by its own seeds: fast fits have more of them
            middle, low, high = (
                np.array([f(v) for v in known.values()]) for f in (np.median, np.min, np.max)
            )
            _draw_line(panel, name, np.array(list(known)), middle, low, high, marker="o")
    panel.set(xlabel=labels[0], ylabel=labels[1], title=title)
    if log_x:
        panel.set_xscale("log")
    if log_y:
        panel.set_yscale("log")
    panel.legend(fontsize="small")


def draw_band(panel: Any, x: np.ndarray, runs: np.ndarray, name: str) -> None:
    """Draw the median over runs : (seeds, points), with their range; diverged runs on top."""
    runs = np.where(np.isnan(np.atleast_2d(runs)), _LARGEST, np.atleast_2d(runs))
    _draw_line(panel, name, x, np.median(runs, axis=0), runs.min(axis=0), runs.max(axis=0))


def _draw_line(
    panel: Any,
    name: str,
    x: np.ndarray,
    middle: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    marker: str = "",
) -> None:
    (drawn,) = panel.plot(x, middle, marker=marker, markersize=3, label=name)
    panel.fill_between(x, low, high, alpha=0.2, color=drawn.get_color(), linewidth=0)


def _drawable(values: Sequence[float | None]) -> np.ndarray:
    """Return values with those on top that are too large or not finite."""
    found = np.array([np.nan if v is None else v for v in values], dtype=float)
    return np.where(np.abs(found) < _LARGEST, found, _LARGEST)


def _stacked(runs: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Return runs of any length as one array, (runs, longest), NaN where there is nothing."""
    out = np.full((len(runs), max(map(len, runs))), np.nan)
    for row, run in zip(out, runs):
        values = np.array([np.nan if v is None else v for v in run], dtype=float)
        row[: len(values)] = np.where(np.abs(values) < _LARGEST, values, np.nan)
    return out


def draw_distribution(panel: Any, values: Sequence[float], published: float, what: str) -> None:
    """Draw how many seeds have which score, and the published one as a line."""
    finite = [v for v in values if np.isfinite(v) and abs(v) < _LARGEST]
    if finite:
        panel.hist(finite, bins=max(5, len(finite) // 3), color="C0", alpha=0.7)
    panel.axvline(published, color="C3", linestyle="--", label=f"published: {published:g}")
    panel.set(xlabel=what, ylabel="seeds")
    panel.legend(fontsize="small")
