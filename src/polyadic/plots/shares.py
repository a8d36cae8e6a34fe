"""Plots of how much each column, and each order of interaction, contributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyadic.explain import Effects, Shapley, Sobol, Terms, sobol
from polyadic.explain.listing import Numbers, percent
from polyadic.plots.style import (
    BLUE,
    INK,
    OUTPUTS,
    colour_of,
    left_out,
    legend_above,
    new_axes,
    result_of,
    short,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LIGHT = "#a9c6e3"  # the total share, behind the first-order one
_LEAST_SHARE = 5e-4  # of the variance; orders below it go into the last bar. Chosen by hand
_ORDERS = ["single columns", "pairs", "threes", "fours", "fives", "sixes"]


def importance(result: Any, top: int = 15, ax: Axes | None = None) -> Axes:
    """Draw how much each column matters, as bars, the strongest on top.

    For Sobol indices, a dark bar is the share of the main effect, a light one that of all terms
    with the column; for Shapley values, a bar is their mean absolute value; for effects, their
    share of the variance.

    Parameters
    ----------
    result : Sobol, Shapley or Effects, or a fitted model
        From `polyadic.explain`; of a model, the Sobol indices are drawn.
    top : int
        Number of columns to draw.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib axes
    """
    sources = {
        Sobol: "explain.sobol(model)",
        Shapley: "explain.shapley(model, X)",
        Effects: "explain.effects(model)",
    }
    result = result_of("importance", result, sources, sobol)
    size = _size(result)
    order = np.argsort(-size, kind="stable")[:top]
    ax = new_axes(ax, 6.4, 0.9 + 0.3 * len(order))
    places = np.arange(len(order))
    if isinstance(result, Sobol):
        ax.barh(places, result.total[order], 0.72, color=_LIGHT, label="with interactions")
        ax.barh(places, result.first[order], 0.72, color=BLUE, label="by itself")
        ax.set_xlabel("share of the variance")
    elif isinstance(result, Shapley):
        _stack(ax, result, order)
        ax.set_xlabel(f"mean absolute Shapley value{result.target.scale()}")
    else:
        ax.barh(places, size[order], 0.72, color=BLUE)
        ax.set_xlabel("share of the variance by itself")
    _write(ax, places, size[order], _numbers(size[order], not isinstance(result, Shapley)))
    ax.set_yticks(places, [short(result.columns[n]) for n in order])
    if not isinstance(result, Shapley):
        ax.xaxis.set_major_formatter(lambda share, _: percent(round(share, 9)))
    _finish(ax, len(order))
    legend_above(ax)
    left_out(ax, len(size) - len(order))
    return ax


def orders(result: Any, ax: Axes | None = None) -> Axes:
    """Draw the share of the variance due to single columns, pairs, threes and so on.

    Orders with a share near zero are summed in the last bar, so that all bars add up to one.

    Parameters
    ----------
    result : Sobol or Terms, or a fitted model
        From `polyadic.explain.sobol`, which has every order and is called for a model, or from
        `terms` or `interactions`.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib axes
    """
    sources = {Sobol: "explain.sobol(model)", Terms: "explain.terms(model)"}
    result = result_of("orders", result, sources, sobol)
    shares = np.asarray(result.orders, dtype=float)
    known = len(shares)
    if isinstance(result, Terms) and shares.any():
        shares = np.append(shares, max(0.0, 1.0 - shares.sum()))  # all higher orders
    shown = int(np.flatnonzero(shares >= _LEAST_SHARE).max(initial=0)) + 1
    shown = min(shown, len(_ORDERS), known)
    rest = float(shares[shown:].sum())
    drawn, names = shares[:shown], _ORDERS[:shown]
    if rest > 0:
        drawn, names = np.append(drawn, rest), [*names, f"{shown + 1} and more"]
    ax = new_axes(ax, 6.4, 0.9 + 0.34 * len(drawn))
    places = np.arange(len(drawn))
    ax.barh(places, drawn, 0.72, color=BLUE)
    _write(ax, places, drawn, _numbers(drawn, shares=True))
    ax.set_yticks(places, names)
    ax.xaxis.set_major_formatter(lambda share, _: percent(round(share, 9)))
    ax.set_xlabel("share of the variance")
    _finish(ax, len(drawn))
    return ax


def _size(result: Any) -> np.ndarray:
    """Return the size that the columns are ordered by, (N,)."""
    if isinstance(result, Sobol):
        return result.total
    return result.importance if isinstance(result, Shapley) else result.share


def _numbers(values: np.ndarray, shares: bool) -> list[str]:
    """Write shares in per cent, other numbers with as many decimals as the largest needs."""
    if shares:
        return [percent(v) for v in values]
    number = Numbers(np.append(values, 0.0), n_digits=3)
    return [number(v) for v in values]


def _stack(ax: Axes, result: Shapley, order: np.ndarray) -> None:
    """Draw the mean absolute values of the outputs as stacked bars."""
    values = np.abs(result.values).mean(axis=0)[order]  # (k, L)
    left = np.zeros(len(order))
    named = 1 < values.shape[1] <= len(OUTPUTS)
    for k, value in enumerate(values.T):
        label = short(result.outputs[k], 16) if named else None
        colour = colour_of(k, values.shape[1])
        ax.barh(np.arange(len(order)), value, 0.72, left=left, color=colour, label=label)
        left = left + value


def _write(ax: Axes, places: np.ndarray, ends: np.ndarray, texts: list[str]) -> None:
    """Write each bar's number behind its end."""
    for place, end, text in zip(places, ends, texts):
        ax.annotate(
            text,
            (end, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=INK,
        )
    ax.set_xlim(0.0, 1.12 * (float(ends.max(initial=0.0)) or 1.0))


def _finish(ax: Axes, n_bars: int) -> None:
    tidy(ax, "x")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(max(n_bars, 1) - 0.4, -0.6)  # the first on top
