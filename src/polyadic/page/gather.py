"""All that the page shows, as plain JSON values: the model and its explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyadic.data import marginals
from polyadic.data.columns import Column
from polyadic.explain.outputs import centring, explained_cores, explained_raw, is_relative
from polyadic.networks.cp import CPCores
from polyadic.objective import losses
from polyadic.page import about, quality
from polyadic.page.learnt import learnt, left_out, nothing, refused
from polyadic.page.networks import network_payload
from polyadic.page.payload import encode_array, map_name, model_payload
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
_STOPS = 201  # positions of a slider
# From the link of a loss to the function of engine.js that undoes it.
_LINKS = {"identity": "identity", "log": "exp", "logit": "logistic", "softmax": "softmax"}


def gather(
    model: FittedModel,
    X: Any,
    y: Any,
    *,
    title: str | None = None,
    target: str | None = None,
    labels: Sequence[Any] | None = None,
    units: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the data of the page."""
    coded = model.columns_.code(X, estimator_name=type(model).__name__)
    n_rows = len(coded[0])
    labels, heading = _labels(labels, X, n_rows)
    target = target or target_of(model).name
    named = _checked_units(units, [*model.columns_.names, *_outputs(model), target or "target"])
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
    return {
        "title": title or (f"A model of {target}" if target else "A model"),
        "target": target or "target",
        "units": named,  # pairs: a name must not be taken for a key of the page's own
        "version": __version__,
        "summary": about.summary(model),
        "facts": about.facts(model, known, n_rows),
        "outputs": _outputs(model),
        "classes": _classes(model),
        "link": _link(model),
        "n_rows": n_rows,
        "background": "the training rows" if known_marginals(model) else "the rows passed",
        "quality": None if actual is None else _quality(model, actual, raw, shown),
        "model": _model(model, known, kept),
        "relative": is_relative(model),
        "columns": [
            _column(*parts) for parts in zip(model.columns_.columns, model.maps_, known, kept)
        ],
        "rows": {
            **_rows(model, coded, kept, picked, actual),
            "labels": None if labels is None else [str(labels[k]) for k in picked],
            "heading": heading,
        },
        **_explained(model, X, known, kept),
    }


def _explained(
    model: FittedModel,
    X: Any,
    known: list[marginals.Marginal],
    kept: list[np.ndarray | None],
) -> dict[str, Any]:
    """Return what the model has learnt, and sentences on what the page leaves out."""
    reason, n_columns = refused(model), len(known)
    if reason:
        lost = "Importance, effects, interactions and Shapley values"
        return {**nothing(n_columns), "left_out": [f"{lost}: {reason}"]}
    background = X if known_marginals(model) is None else None
    return {**learnt(model, known, kept, background), "left_out": left_out(n_columns)}


def _labels(given: Sequence[Any] | None, X: Any, n_rows: int) -> tuple[Any, str]:
    """Return the labels of the rows and what they are called; None where rows have only numbers."""
    if given is None:
        index = getattr(X, "index", None)  # of a table of pandas
        if index is None or callable(index) or list(index) == list(range(n_rows)):
            return None, "row"
        return list(index), index.name if isinstance(index.name, str) else "row"
    if isinstance(given, str) or len(given) != n_rows:
        raise ValueError(
            f"labels must have one entry for each of the {n_rows} rows, got "
            f"{'a text' if isinstance(given, str) else len(given)}."
        )
    name = getattr(given, "name", None)
    return list(given), name if isinstance(name, str) else "row"


def _checked_units(units: Mapping[str, str] | None, names: list[str]) -> list[list[str]]:
    """Return pairs of names and units; refuse a name that is neither a column nor a target."""
    for name, unit in (units or {}).items():
        if name not in names:
            known = ", ".join(repr(own) for own in names[:20] if own)
            raise ValueError(f"units has an entry for {name!r}, which is none of {known}.")
        if not isinstance(unit, str):
            raise TypeError(f"The unit of {name!r} must be a text, got {unit!r}.")
    return [[name, unit] for name, unit in (units or {}).items()]


# ---- the model and its columns -------------------------------------------------------------------


def _model(
    model: FittedModel, known: list[marginals.Marginal], kept: list[np.ndarray | None]
) -> dict[str, Any]:
    """Return the model itself: what the page computes predictions and explanations from."""
    cores = model.tensor_
    if isinstance(cores, CPCores):
        return model_payload(_shown_cores(model, cores), model.maps_, known, kept)
    weighed: Any = explained_cores(model)
    return network_payload(weighed, model.maps_, known, kept)


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
        level = model.loss_.level if isinstance(model.loss_, losses.Quantile) else None
        return {"regression": quality.regression(actual, share, _outputs(model), shown, level)}
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
