"""Converters for skl2onnx, so that pipelines with our estimators become ONNX graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic.estimators import CPClassifier, CPRegressor, TNClassifier, TNRegressor
from polyadic.export.columns import NUMBERS, check_columns, content_of
from polyadic.export.graph import OPSETS, ROWS, Graph, Symbol
from polyadic.export.onnx_model import add_model, plain_labels
from polyadic.training.model import classes_of

__all__ = ["register_converters"]

_OPTIONS = {
    "zipmap": [True, False],
    "nocl": [True, False],
    "output_class_labels": [False, True],
}


def register_converters() -> None:
    """Tell skl2onnx how to convert our estimators: call it once, before `skl2onnx.to_onnx`.

    Columns reach our estimator in the precision of the steps before it; with inputs in double
    precision, the graph predicts what the pipeline predicts.

    Examples
    --------
    >>> import skl2onnx
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polyadic import CPRegressor
    >>> register_converters()
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> pipeline = make_pipeline(StandardScaler(), CPRegressor(n_members=1, max_iter=2))
    >>> pipeline = pipeline.fit(X, X[:, 0])
    >>> graph = skl2onnx.to_onnx(pipeline, X)
    >>> [output.name for output in graph.graph.output]
    ['variable']
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ModuleNotFoundError(
            "register_converters needs the package skl2onnx, which is not installed. "
            "Install it with: pip install 'polyadic[onnx]'"
        ) from error
    for estimator in (CPRegressor, TNRegressor):
        alias = f"Polyadic{estimator.__name__}"
        update_registered_converter(estimator, alias, _set_types, _convert)
    for estimator in (CPClassifier, TNClassifier):
        alias = f"Polyadic{estimator.__name__}"
        update_registered_converter(estimator, alias, _set_types, _convert, options=_OPTIONS)


def _set_types(operator: Any) -> None:
    """Set the types of the outputs: numbers as the inputs have them, labels as the classes.

    Probabilities are in single precision, since skl2onnx has nothing else for its dictionaries.
    """
    from skl2onnx.common.data_types import (
        DoubleTensorType,
        FloatTensorType,
        Int64TensorType,
        StringTensorType,
    )

    model = operator.raw_operator
    double = any(isinstance(given.type, DoubleTensorType) for given in operator.inputs)
    numbers = DoubleTensorType if double else FloatTensorType
    classes = classes_of(model)
    if classes is None:
        operator.outputs[0].type = numbers([None, model.tensor_.n_outputs])
        return
    classes = plain_labels(classes)
    if classes.dtype.kind == "f" and np.any(classes != np.round(classes)):
        raise ValueError(
            f"skl2onnx has labels that are text or whole numbers, and the model has "
            f"{classes.tolist()!r:.80}. Turn them into text before fit."
        )
    labels = Int64TensorType if classes.dtype.kind in "iubf" else StringTensorType
    operator.outputs[0].type = labels([None])
    operator.outputs[1].type = FloatTensorType([None, len(classes)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the operators of a model of ours to the graph of a pipeline."""
    model = operator.raw_operator
    graph = Graph(scope.get_unique_variable_name("polyadic"))
    inputs = _columns(graph, model, operator.inputs)
    outputs = list(add_model(graph, model, inputs).values())
    for value, wanted in zip(outputs, operator.outputs):
        _write_output(graph, value, wanted)
    container.initializers.extend(graph.constants.values())
    container.nodes.extend(graph.nodes)
    container.node_domain_version_pair_sets.update(OPSETS.items())


def _columns(graph: Graph, model: Any, given: list[Any]) -> list[Symbol]:
    """Return the columns of all inputs, (n, 1) each, as the model reads them."""
    from skl2onnx.common.data_types import StringTensorType

    raw: list[tuple[Symbol, bool]] = []
    for own in given:
        text = isinstance(own.type, StringTensorType)
        kind = np.dtype(object) if text else _numpy_type(own.type)
        width = own.type.shape[1]
        whole = Symbol(graph, own.onnx_name, kind, (ROWS, width))
        raw += [(whole[:, n : n + 1] if width > 1 else whole, text) for n in range(width)]
    columns = check_columns(model, "ONNX")
    if len(raw) != len(columns):
        raise ValueError(
            f"{type(model).__name__} was fitted on {len(columns)} columns, and its inputs have "
            f"{len(raw)}. Give skl2onnx the types of all columns."
        )
    out = []
    for (symbol, text), column in zip(raw, columns):
        if text == (content_of(column, "ONNX") == NUMBERS):
            raise ValueError(
                f"The column {column.name!r} was fitted on {content_of(column, 'ONNX')}, and its "
                f"input is declared as {'text' if text else 'numbers'}."
            )
        out.append(symbol if text else symbol.cast(np.float64))
    return out


def _numpy_type(declared: Any) -> Any:
    """Return the NumPy type of an input that skl2onnx has declared."""
    from onnx import helper
    from skl2onnx.common.data_types import guess_proto_type

    return helper.tensor_dtype_to_np_dtype(guess_proto_type(declared))


def _write_output(graph: Graph, value: Symbol, wanted: Any) -> None:
    """Give a symbol the type and the name that the pipeline expects."""
    from onnx import helper
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType

    if isinstance(wanted.type, FloatTensorType) and not isinstance(wanted.type, DoubleTensorType):
        value = value.cast(np.float32)
    elif isinstance(wanted.type, Int64TensorType):
        value = value.cast(np.int64)
    graph.nodes.append(helper.make_node("Identity", [value.name], [wanted.onnx_name]))
