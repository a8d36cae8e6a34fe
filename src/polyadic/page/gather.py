"""All that the page shows, as plain JSON values: the model and its explanations."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from polyadic import explain
from polyadic.data import marginals
from polyadic.data.columns import Column
from polyadic.explain.outputs import centring, explained_raw, is_relative
from polyadic.networks.cp import CPCores
from polyadic.objective import losses
from polyadic.page import quality
from polyadic.page.payload import encode_array, encode_short, map_name, model_payload
from polyadic.training.model import (
    FittedModel,
    classes_of,
    explained_maps,
    known_marginals,
    output_names,
    target_of,
)
from polyadic.version import __version__

# Sizes that keep a page small and readable; chosen by hand.
MOST_CATEGORIES = 2000  # of a column; with more, the page offers the KEPT_CATEGORIES most frequent
KEPT_CATEGORIES = 1000
_POINTS = 400  # rows whose targets the page holds: dots of a scatter plot
_ROWS = 50  # of those, that the user can pick in the page
_CHARTS = 40  # columns with an effect curve
_PAIRS = 8  # pairs of columns with a heat map
_MOST_PAIRS = 200_000  # of columns; with more, which takes too long, no interactions are shown
_SHOWN_CATEGORIES = 12  # in a chart
_GRID = 32  # points along each side of a heat map
_STOPS = 201  # positions of a slider
_FEW_VALUES = 24  # distinct values of a column up to which each has a bar of its own
_DENSITY_BINS = 40  # of a column with more values
# From the link of a loss to the function of engine.js that undoes it.
_LINKS = {"identity": "identity", "log": "exp", "logit": "logistic", "softmax": "softmax"}


def gather(
    model: FittedModel, cores: CPCores, X: Any, y: Any, title: str | None, target: str | None
) -> dict[str, Any]:
    """Return the data of the page; `cores` are those of the model."""
    coded = model.columns_.code(X, estimator_name=type(model).__name__)
    n_rows = len(coded[0])
    actual = None if y is None else model.code_target(y, n_rows)
    known = _marginals(model, coded)
    raw = model.raw(X)
    first = explained_raw(model, raw)[:, 0]
    shown = quality.even_ranks(first, _POINTS)
    picked = shown[quality.even_ranks(first[shown], _ROWS)]
    kept = [
        _kept(column, own, x[picked])
        for column, own, x in zip(model.columns_.columns, known, coded)
    ]
    target = target or target_of(model).name
    background = X if known_marginals(model) is None else None
    return {
        "title": title or (f"A model of {target}" if target else "A model"),
        "target": target or "target",
        "version": __version__,
        "summary": _summary(model, cores),
        "facts": _facts(model, cores, known, n_rows),
        "outputs": _outputs(model),
        "classes": _classes(model),
        "link": _link(model),
        "n_rows": n_rows,
        "background": "the training rows" if background is None else "the rows passed",
        "quality": None if actual is None else _quality(model, actual, raw, shown),
        "model": model_payload(_shown_cores(model, cores), model.maps_, known, kept),
        "relative": is_relative(model),
        "columns": [
            _column(*parts) for parts in zip(model.columns_.columns, model.maps_, known, kept)
        ],
        "rows": _rows(model, coded, kept, picked, actual),
        **_explained(model, known, kept, background),
    }


# ---- the model and its columns -------------------------------------------------------------------


def _shown_cores(model: FittedModel, cores: CPCores) -> CPCores:
    """Return cores with relative scores of many classes; the page subtracts the means of trees.

    A value for every class in each leaf would make a page of trees much larger.
    """
    if not is_relative(model):
        return cores
    smooth = replace(cores, trees=None).weigh_outputs(centring(cores.n_outputs))
    return replace(smooth, trees=cores.trees)


def _marginals(model: FittedModel, coded: list[np.ndarray]) -> list[marginals.Marginal]:
    """Return the training marginals; those of X for a model from an old file, which has none."""
    known = known_marginals(model)
    maps = explained_maps(model.maps_, model.tensor_)
    return known or marginals.learn(model.columns_.columns, maps, coded)


def _kept(column: Column, own: marginals.Marginal, codes: np.ndarray) -> np.ndarray | None:
    """Return the codes of the categories to offer: all, or the most frequent and `codes`."""
    if column.categories is None:
        return None
    if len(column.categories) <= MOST_CATEGORIES:
        return np.arange(len(column.categories))
    frequent = np.argsort(-own.shares, kind="stable")[:KEPT_CATEGORIES]
    return np.union1d(frequent, codes[codes >= 0])


def _column(
    column: Column, own_map: Any, own: marginals.Marginal, kept: np.ndarray | None
) -> dict[str, Any]:
    """Return what the page shows of a column, and the positions of its control."""
    out: dict[str, Any] = {
        "name": column.name,
        "kind": column.kind,
        "map": map_name(own_map),
        "missing": own.missing,
        **({"part": column.part} if column.part else {}),
    }
    if column.categories is None:
        points = own.quantiles if len(own.quantiles) else np.zeros(1)
        middle = [float(points[round(q * (len(points) - 1))]) for q in (0.05, 0.5, 0.95)]
        return {**out, "stops": encode_array(_stops(points)), "middle": middle}
    assert kept is not None
    shares = [float(own.shares[code]) for code in kept]
    labels = [str(column.categories[code]) for code in kept]
    return {**out, "categories": labels, "shares": shares, "total": len(column.categories)}


def _stops(quantiles: np.ndarray) -> np.ndarray:
    """Return the positions of a slider, ascending: at equal steps of quantiles, not of the range.

    Otherwise one far outlier would take most positions.
    """
    levels = np.linspace(0, len(quantiles) - 1, _STOPS)
    stops = np.interp(levels, np.arange(len(quantiles)), quantiles)
    if np.all(quantiles == np.round(quantiles)):
        stops = np.round(stops)
    return np.unique(np.concatenate([stops, quantiles]))


def _outputs(model: FittedModel) -> list[str]:
    """Return the names of the raw outputs, which can be explained; "" for a single one."""
    if model.tensor_.n_outputs == 1:
        return [""]
    return output_names(model)


def _classes(model: FittedModel) -> list[str] | None:
    classes = classes_of(model)
    return None if classes is None else [str(c) for c in classes]


def _link(model: FittedModel) -> str:
    """Return the name of the function in engine.js from raw to the prediction."""
    if classes_of(model) is not None and isinstance(model.loss_, losses.SquaredError):
        return "labels"
    loss = model.loss_
    if type(loss).inverse_link is not losses.Loss.inverse_link:
        raise ValueError(
            f"A page cannot show {loss!r}: it has an `inverse_link` of its own, which the page "
            f"cannot compute. Use one of the links {', '.join(_LINKS)} by its `link_name`."
        )
    return _LINKS[loss.link_name]


def _summary(model: FittedModel, cores: CPCores) -> str:
    """Describe the model in two sentences."""
    rank, n_members = cores.rank, len(model.history_)
    merged, products = "", f"a sum of {rank:,} products of one function per column"
    if n_members > 1 and rank % n_members == 0:
        merged = f", merged from {n_members} members of rank {rank // n_members}"
    additive = " and an additive part" if cores.additive is not None else ""
    if cores.trees is not None:
        leaves = f"{len(cores.trees.leaves):,} leaves of {len(cores.trees):,} trees"
        if n_members == 0 and not np.any(cores.weights):  # a model of another library
            products = f"a sum of {leaves}, each a product of one function per column"
        else:
            additive += f", and {leaves}"
    return (
        f"A {type(model).__name__}: {products}{merged}{additive}. The whole model is in this page."
    )


def _facts(
    model: FittedModel, cores: CPCores, known: list[marginals.Marginal], n_rows: int
) -> list[list[str]]:
    """Return names and texts of the facts about the model."""
    kinds = Counter(column.kind for column in model.columns_.columns)
    maps = Counter(map_name(own) for own in model.maps_)
    numbers = sum(a.size for a in [*cores.factors, *(cores.additive or []), cores.weights])
    if cores.trees is not None:
        numbers += len(cores.trees.leaves.column) * 2 + cores.trees.leaves.value.size
    classes = classes_of(model)
    task = "Regression" if classes is None else f"{len(classes)} classes"
    return [
        ["Task", f"{task}, {_spaced(type(model.loss_).__name__)} loss"],
        ["Columns", ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))],
        ["Maps", ", ".join(f"{count:,} {name}" for name, count in sorted(maps.items()))],
        ["Parameters", f"{numbers:,}"],
        _training_rows(model, known[0].weight),
        ["Rows passed", f"{n_rows:,}"],
        ["Settings", _settings(model)],
    ]


def _training_rows(model: FittedModel, weight: float) -> list[str]:
    """Return how many rows the model was trained on: rows count by their sample weights."""
    if known_marginals(model) is None:
        return ["Training rows", "unknown"]
    name = "Training rows" if float(weight).is_integer() else "Sum of training weights"
    return [name, f"{weight:,.12g}"]


def _spaced(name: str) -> str:
    """Return a class name as words.

    >>> _spaced("SquaredError")
    'squared error'
    """
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def _settings(model: FittedModel) -> str:
    """Return the constructor parameters that are not the defaults."""
    usual = {k: p.default for k, p in inspect.signature(type(model)).parameters.items()}
    quiet = {"verbose", "n_jobs"}
    given = model.get_params(deep=False).items()
    changed = [f"{k}={v!r}" for k, v in given if k not in quiet and repr(v) != repr(usual.get(k))]
    return ", ".join(changed) or "defaults"


def target_name(y: Any) -> str | None:
    """Return the name of a series of targets, where it has one."""
    name = getattr(y, "name", None)
    return name if isinstance(name, str) and name else None


# ---- rows and how well they are predicted --------------------------------------------------------


def _quality(
    model: FittedModel, actual: np.ndarray, raw: np.ndarray, shown: np.ndarray
) -> dict[str, Any]:
    share, classes = model.response(raw), _classes(model)
    if classes is None:
        return {"regression": quality.regression(actual, share, _outputs(model), shown)}
    if len(classes) == 2:
        share = np.hstack((1.0 - share, share))
    return {"classification": quality.classification(actual[:, 0], share, classes)}


def _rows(
    model: FittedModel,
    coded: list[np.ndarray],
    kept: list[np.ndarray | None],
    picked: np.ndarray,
    actual: np.ndarray | None,
) -> dict[str, Any]:
    """Return the rows to pick from: their numbers, values and targets."""
    values: list[list[Any]] = []
    for x, codes in zip(coded, kept):
        own = x[picked]
        if codes is not None:
            found = np.searchsorted(codes, own)
            values.append([int(at) if code >= 0 else -1 for at, code in zip(found, own)])
        else:
            values.append([None if np.isnan(v) else float(v) for v in own])
    target: list[Any] | None = None
    if actual is not None:
        classes = _classes(model)
        chosen = actual[picked]
        target = chosen.tolist() if classes is None else [classes[k] for k in chosen[:, 0]]
    return {"numbers": picked.tolist(), "values": values, "target": target}


# ---- explanations of the model -------------------------------------------------------------------


def _explained(
    model: FittedModel,
    known: list[marginals.Marginal],
    kept: list[np.ndarray | None],
    background: Any,
) -> dict[str, Any]:
    shares = explain.sobol(model, background)
    strongest = np.argsort(-np.asarray(shares.total), kind="stable")
    found = explain.effects(model, background)
    return {
        "importance": {
            "first": np.asarray(shares.first).tolist(),
            "total": np.asarray(shares.total).tolist(),
            "orders": np.asarray(shares.orders).tolist(),
            "strongest": strongest.tolist(),
        },
        "effects": [_effect(found, known[n], kept[n], int(n)) for n in strongest[:_CHARTS]],
        **_pairs(model, known, background),
    }


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
    """Return the strongest interactions of two columns, on grids."""
    n_columns = len(model.maps_)
    if n_columns < 2 or n_columns * (n_columns - 1) // 2 > _MOST_PAIRS:
        return {"pairs": []}
    found = explain.interactions(model, max_order=2, top=None, background=background)
    position = {name: n for n, name in enumerate(model.columns_.names)}
    pairs = [term for term in found.rows if term.variance > 0]
    out = []
    for term in pairs[:_PAIRS]:
        places = [position[name] for name in term.columns]
        sides = [_side(model.columns_.columns[n], known[n]) for n in places]
        surface = explain.partial_dependence(
            model,
            list(term.columns),
            grid=[grid for _, grid in sides],
            background=background,
            pure=True,
        )
        out.append(
            {
                "columns": places,
                "share": term.share,
                "axes": [axis for axis, _ in sides],
                "values": encode_short(surface.values),
            }
        )
    return {"pairs": out}


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
