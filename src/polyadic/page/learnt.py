"""What a model has learnt, for the page: shares of the variance, main effects, pairs of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic import explain
from polyadic.data import marginals
from polyadic.data.columns import Column
from polyadic.networks.cores import NetworkCores
from polyadic.page.payload import encode_array, encode_short
from polyadic.training.model import FittedModel

# Sizes that keep a page small and readable; chosen by hand.
_CHARTS = 40  # columns with an effect curve
_PAIRS = 8  # pairs of columns with a heat map
LEAST_SHARE = 0.005  # of the variance; pairs with less are not drawn
_MOST_PAIRS = 200_000  # of columns; with more, which takes too long, no interactions are shown
_SHOWN_CATEGORIES = 12  # in a chart
_GRID = 32  # points along each side of a heat map
_FEW_VALUES = 24  # distinct values of a column up to which each has a bar of its own
_DENSITY_BINS = 40  # of a column with more values


def refused(model: FittedModel) -> str:
    """Return why a model has no explanations in closed form; an empty text where it has."""
    cores = model.tensor_
    if not isinstance(cores, NetworkCores):
        return ""
    try:
        cores.format.as_network(cores.extras)
    except ValueError as error:
        return str(error)
    return ""


def nothing(n_columns: int) -> dict[str, Any]:
    """Return the data of a page of a model without explanations."""
    order = list(range(n_columns))
    return {"importance": None, "order": order, "effects": [], "pairs": [], "weak_pairs": None}


def learnt(
    model: FittedModel,
    known: list[marginals.Marginal],
    kept: list[np.ndarray | None],
    background: Any,
) -> dict[str, Any]:
    """Return shares, effects and pairs; `order` has the column of the largest share first."""
    shares = explain.sobol(model, background)
    strongest = np.argsort(-np.asarray(shares.total), kind="stable")
    found = explain.effects(model, background)
    return {
        "importance": {
            "first": np.asarray(shares.first).tolist(),
            "total": np.asarray(shares.total).tolist(),
            "orders": np.asarray(shares.orders).tolist(),
        },
        "order": strongest.tolist(),
        "effects": [_effect(found, known[n], kept[n], int(n)) for n in strongest[:_CHARTS]],
        **_pairs(model, known, background),
    }


def left_out(n_columns: int) -> list[str]:
    """Return sentences on what a page of a table of so many columns lacks."""
    if _n_pairs(n_columns) <= _MOST_PAIRS:
        return []
    return [
        f"Interactions: {n_columns} columns have {_n_pairs(n_columns):,} pairs, more than the "
        f"{_MOST_PAIRS:,} that are searched."
    ]


def _n_pairs(n_columns: int) -> int:
    return n_columns * (n_columns - 1) // 2


def _effect(
    found: explain.Effects,
    own: marginals.Marginal,
    kept: np.ndarray | None,
    n: int,
) -> dict[str, Any]:
    """Return the main effect of a column, on its grid or on its most frequent categories."""
    grid, values = found.grid[n], found.values[n]
    if kept is not None:
        top = np.argsort(-own.shares, kind="stable")[:_SHOWN_CATEGORIES]
        labels = [str(grid[k]) for k in top]
        return {
            "column": n,
            "categories": labels,
            "places": np.searchsorted(kept, top).tolist(),
            "values": encode_short(values[top]),
            "density": own.shares[top].tolist(),
            "total": len(grid),
        }
    if len(grid) == 0:  # a column without any number
        grid, values = np.zeros(1), found.missing[n][None]
    return {
        "column": n,
        "grid": encode_array(grid),
        "values": encode_short(values),
        "ends": _range(own),
        **_density(own),
    }


def _density(own: marginals.Marginal) -> dict[str, list[float]]:
    """Return the share of the known rows at few values, or between edges in the range of a chart.

    Rows between two neighbouring percentiles are taken as evenly spread.
    """
    values, counts = np.unique(own.quantiles, return_counts=True)
    if len(values) <= _FEW_VALUES:
        return {"points": values.tolist(), "density": (counts / max(counts.sum(), 1)).tolist()}
    low, high = _range(own)
    edges = np.linspace(low, high, _DENSITY_BINS + 1)
    shares = np.diff(marginals.share_below(own.quantiles, edges))
    return {"edges": edges.tolist(), "density": shares.tolist()}


def _range(own: marginals.Marginal) -> list[float]:
    """Return the 1 % and 99 % quantiles or, where these are equal, minimum and maximum."""
    if len(own.quantiles) == 0:
        return [0.0, 0.0]
    inner = [float(own.quantiles[1]), float(own.quantiles[-2])]
    return inner if inner[0] < inner[1] else [float(own.quantiles[0]), float(own.quantiles[-1])]


def _pairs(model: FittedModel, known: list[marginals.Marginal], background: Any) -> dict[str, Any]:
    """Return the strongest interactions of two columns, on grids, and what is known of the others.

    `weak_pairs` has the number and the summed share of the pairs that are too weak to be drawn, and
    the number of those that are not drawn though they are not weak; None where nothing is searched.
    """
    n_columns = len(model.maps_)
    if n_columns < 2 or _n_pairs(n_columns) > _MOST_PAIRS:
        return {"pairs": [], "weak_pairs": None}
    found = explain.interactions(model, max_order=2, top=None, background=background)
    position = {name: n for n, name in enumerate(model.columns_.names)}
    strong = [term for term in found.rows if term.variance > 0 and term.share >= LEAST_SHARE]
    weak = found.rows[len(strong) :]
    return {
        "pairs": [
            _pair(model, known, term, [position[name] for name in term.columns], background)
            for term in strong[:_PAIRS]
        ],
        "weak_pairs": {
            "count": len(weak),
            "share": sum(term.share for term in weak),
            "below": LEAST_SHARE,
            "beyond": max(len(strong) - _PAIRS, 0),
        },
    }


def _pair(
    model: FittedModel,
    known: list[marginals.Marginal],
    term: explain.Term,
    places: list[int],
    background: Any,
) -> dict[str, Any]:
    """Return the pure interaction of two columns on a grid."""
    sides = [_side(model.columns_.columns[n], known[n]) for n in places]
    surface = explain.partial_dependence(
        model,
        list(term.columns),
        grid=[grid for _, grid in sides],
        background=background,
        pure=True,
    )
    return {
        "columns": places,
        "share": term.share,
        "axes": [axis for axis, _ in sides],
        "values": encode_short(surface.values),
    }


def _side(column: Column, own: marginals.Marginal) -> tuple[dict[str, Any], np.ndarray]:
    """Return one side of a heat map, and its grid: evenly spaced, or the frequent categories."""
    if column.categories is None:
        low, high = _range(own)
        grid = np.linspace(low, high, _GRID) if low < high else np.array([low])
        return {"grid": grid.tolist()}, grid
    top = np.argsort(-own.shares, kind="stable")[:_SHOWN_CATEGORIES]
    chosen = np.empty(len(top), dtype=object)
    chosen[:] = [column.categories[k] for k in top]
    return {"categories": [str(c) for c in chosen]}, chosen
