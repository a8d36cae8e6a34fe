"""A fitted model as an ONNX graph: raw columns in, predictions out."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import reduce
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyadic.data.columns import Column
from polyadic.export.columns import (
    TEXT,
    check_columns,
    check_model,
    table_values,
    uses_constants,
)
from polyadic.export.graph import ROWS, Graph, Symbol, join
from polyadic.export.links import classifier_link, is_squared, link_of
from polyadic.export.onnx_maps import ColumnSlots, Read, Search, input_type, read_columns
from polyadic.export.onnx_shapley import add_shapley, check_shapley
from polyadic.export.onnx_trees import TreeColumns
from polyadic.io.atomic import write_whole
from polyadic.networks.cores import NetworkCores
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel, classes_of

if TYPE_CHECKING:
    import onnx

__all__ = ["onnx_inputs", "to_onnx"]

_MISSING_TEXT = ""  # unless it is a category: then another text that is none


def to_onnx(
    model: FittedModel, path: str | Path | None = None, *, shapley: bool = False
) -> onnx.ModelProto:
    """Return a fitted model as an ONNX graph of standard operators, and write it to a file.

    The graph has one input per column, (n, 1), under the name of the column: numbers in double
    precision with NaN for a missing one, and text where the categories are text. What the model
    does not know as a category is unseen, and a missing category counts as unseen: any text that
    is no category stands for it, such as the empty one. `onnx_inputs` makes the inputs of a table.

    The outputs are "prediction", (n, L), in double precision; of a classifier "label", (n,), and
    "probabilities", (n, K), in the order of `classes_`. An output whose name a column already has
    gets an underscore at its end.

    Parameters
    ----------
    model : fitted estimator
    path : path, optional
        The file to write.
    shapley : bool
        Whether to add the outputs "shapley", (n, N, L), and "shapley_base", (L,): the values that
        `polyadic.explain.shapley` returns without a background. For models of format CP without
        trees.

    Returns
    -------
    onnx.ModelProto
        Checked by onnx. It needs ONNX Runtime 1.20 or newer.

    Examples
    --------
    >>> import onnxruntime
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    >>> model = CPRegressor(n_members=1, max_iter=5, random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> graph = to_onnx(model)
    >>> session = onnxruntime.InferenceSession(graph.SerializeToString())
    >>> [prediction] = session.run(["prediction"], onnx_inputs(model, X))
    >>> bool(np.allclose(prediction[:, 0], model.predict(X), atol=1e-5))
    True
    """
    _require_onnx()
    check_model(model)
    columns = check_columns(model, "ONNX")
    if shapley:
        check_shapley(model)
    graph = Graph()
    names = input_names(columns)
    inputs = [graph.input(name, input_type(c)) for name, c in zip(names, columns)]
    outputs = add_model(graph, model, inputs, shapley)
    for name, value in outputs.items():
        while name in names:
            name += "_"
        graph.output(name, value)
    out = graph.to_model(type(model).__name__, "Made by polyadic.to_onnx.")
    if path is not None:
        write_whole(path, out.SerializeToString())
    return out


def onnx_inputs(model: FittedModel, X: Any) -> dict[str, np.ndarray]:
    """Return the rows of a table as the inputs of the graph that `to_onnx` makes.

    >>> from polyadic import CPRegressor
    >>> X = np.arange(40.0).reshape(20, 2)
    >>> model = CPRegressor(n_members=1, max_iter=1).fit(X, X[:, 0])
    >>> {name: values.shape for name, values in onnx_inputs(model, X).items()}
    {'x0': (20, 1), 'x1': (20, 1)}
    """
    check_model(model)
    names, out = input_names(model.columns_.columns), {}
    for name, (column, content, values) in zip(names, table_values(model, X, "ONNX")):
        if content == TEXT:
            absent = _MISSING_TEXT
            while absent in column.code_of:
                absent += "?"
            values = np.array([absent if v is None else v for v in values], dtype=object)
        out[name] = values[:, None]
    return out


def input_names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the inputs: those of the columns; ONNX allows no empty one."""
    return [column.name or f"x{n}" for n, column in enumerate(columns)]


def _require_onnx() -> None:
    if importlib.util.find_spec("onnx") is None:
        raise ModuleNotFoundError(
            "to_onnx needs the package onnx, which is not installed. "
            "Install it with: pip install 'polyadic[onnx]'"
        )


# ---- the graph -----------------------------------------------------------------------------------


def add_model(
    graph: Graph, model: FittedModel, inputs: Sequence[Symbol], shapley: bool = False
) -> dict[str, Symbol]:
    """Add the operators of a model to a graph, and return the outputs by name."""
    search = Search(graph)
    reads = read_columns(model.columns_.columns, inputs, search)
    slots = [ColumnSlots(read, own) for read, own in zip(reads, model.maps_)]
    cores = model.tensor_
    trees = None if cores.trees is None else TreeColumns(cores.trees, reads)
    search.run()
    zeros = _zeros(reads[0])
    raw = zeros + _smooth(cores, slots, zeros)
    if trees is not None:
        raw = trees.add_to(raw)
    outputs = _respond(model, raw)
    return outputs | (add_shapley(model, slots, zeros) if shapley else {})


def _zeros(read: Read) -> Symbol:
    """Return a zero per row, (n, 1), in double precision."""
    some = read.missing if read.raw.dtype == np.float64 else read.code()[:, None]
    return some.cast(np.float64) * 0.0


def _smooth(cores: Any, slots: Sequence[ColumnSlots], zeros: Symbol) -> Any:
    """Return the raw prediction without trees, (n, L) or (L,)."""
    if isinstance(cores, CPCores):
        return _cp(cores, slots)
    if isinstance(cores, NetworkCores):
        return _network(cores, slots, zeros)
    raise TypeError(f"ONNX has no form for cores of type {type(cores).__name__}.")


def _cp(cores: CPCores, slots: Sequence[ColumnSlots]) -> Any:
    """Multiply the parts in single precision, as `predict` does, and add them up in double.

    Outputs are scaled to near one, so that targets of any size fit into single precision.
    """
    weights = np.asarray(cores.weights, dtype=np.float64)
    parts = []
    if cores.rank:
        for own, factor in zip(slots, cores.factors):
            part = own.part(factor, True, np.float32)
            if isinstance(part, Symbol):
                parts.append(part)
            else:
                weights = weights * part[:, None]
    raw: Any = cores.intercept
    if parts:
        size = np.abs(weights).max(axis=0)
        unit = np.ldexp(1.0, np.frexp(np.where(size > 0, size, 1.0))[1])
        product = reduce(mul, parts)
        raw = (product @ (weights / unit)).cast(np.float64) * unit[None] + raw[None]
    else:
        raw = raw + weights.sum(axis=0)
    for own, core in zip(slots, cores.additive or []):
        raw = own.part(core, True, np.float64) + raw
    return raw


def _network(cores: NetworkCores, slots: Sequence[ColumnSlots], zeros: Symbol) -> Symbol:
    """Trace the contraction of a format on the parts of all columns, (n, N, K)."""
    constants = uses_constants(cores)
    parts = [
        (zeros + own.part(factor, constants, np.float64)).reshape(ROWS, 1, factor.shape[1])
        for own, factor in zip(slots, cores.factors)
    ]
    extras = [np.asarray(extra, dtype=np.float64) for extra in cores.extras]
    found = cores.format.contract(join(parts, 1), extras)
    return found * cores.scale[None] + cores.intercept[None]


def _respond(model: FittedModel, raw: Symbol) -> dict[str, Symbol]:
    """Undo the link; of a classifier, return the labels and the probabilities.

    Where `predict` refuses a row, since its raw prediction is not finite, all numbers are NaN: a
    graph cannot raise, and a link would make a probability of one from an infinite number.
    """
    classes = classes_of(model)
    zero = (raw * 0.0).sum(1)[:, None]  # NaN for a row that is not finite
    if classes is None:
        return {"prediction": _undo(link_of(model.loss_, "ONNX"), raw) + zero}
    if is_squared(model.loss_):
        share = ((raw + 1.0) * 0.5).clip(*classifier_link())
        if raw.shape[1] > 1:
            share = share / share.sum(1)[:, None]
    else:
        share = _undo(link_of(model.loss_, "ONNX"), raw)
    share = share + zero
    if raw.shape[1] == 1:
        share = join([1.0 - share, share], 1)
    best = raw.graph.apply("ArgMax", share, shape=(ROWS,), dtype=np.int64, axis=1, keepdims=0)
    labels = raw.graph.constant(plain_labels(classes))
    return {"label": labels.rows_of(best), "probabilities": share}


def plain_labels(classes: np.ndarray) -> np.ndarray:
    """Return labels as an array of one type that ONNX has.

    >>> plain_labels(np.array([False, True], dtype=object))
    array([False,  True])
    """
    plain = classes
    if classes.dtype.kind == "O" and len(set(map(type, classes))) == 1:
        plain = np.array(classes.tolist())
    if plain.dtype.kind not in "biufU" and not all(isinstance(c, str) for c in classes):
        raise ValueError(
            f"ONNX needs labels of one type, and those of the model are {classes.tolist()!r:.80}. "
            "Turn them into text before fit."
        )
    return plain


def _undo(link: str, raw: Symbol) -> Symbol:
    if link == "log":
        return raw.clip(-np.finfo(float).max, 700.0).each("Exp")
    if link == "logit":
        return raw.each("Sigmoid")
    if link == "softmax":
        return raw.graph.apply("Softmax", raw, shape=raw.shape, axis=1)
    return raw
