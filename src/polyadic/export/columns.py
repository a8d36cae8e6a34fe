"""What exports read of a model: its columns, values and trees; and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyadic.data.columns import Column
from polyadic.data.tables import Scalar, is_missing, listing, numbers, read_table
from polyadic.kernels.trees import BY_SET
from polyadic.maps.base import FeatureMap
from polyadic.networks.cores import Cores
from polyadic.networks.trees import Trees
from polyadic.training.model import FittedModel

TEXT, NUMBERS = "text", "numbers"


def check_model(model: Any) -> None:
    """Refuse what is no fitted estimator of ours; tell what to do with a pipeline."""
    if hasattr(model, "steps") or hasattr(model, "regressor_"):
        raise TypeError(
            f"Got a {type(model).__name__}, where a fitted estimator of polyadic is needed. Call "
            "polyadic.export.register_converters() once, and convert the whole by "
            "skl2onnx.to_onnx."
        )
    if not any(kind.__module__.startswith("polyadic.") for kind in type(model).__mro__):
        raise TypeError(
            f"Got a {type(model).__name__}, where a fitted CPRegressor, CPClassifier, TNRegressor "
            "or TNClassifier is needed."
        )
    check_is_fitted(model, "tensor_")


def check_columns(model: FittedModel, target: str) -> list[Column]:
    """Return the columns of a model; refuse those that have no form in the target language."""
    columns = model.columns_.columns
    dates = list(dict.fromkeys(c.source for c in columns if c.part is not None))
    if dates:
        raise ValueError(
            f"{target} has no form for columns of dates, and the model has {listing(dates)}. Turn "
            "dates into numbers or categories before fit, such as the year and the month."
        )
    for column in columns:
        content_of(column, target)
    return columns


def content_of(column: Column, target: str) -> str:
    """Return whether a column holds numbers or text; refuse one that holds both.

    >>> content_of(Column("town", "categorical", ("Bath", "Cork")), "ONNX")
    'text'
    """
    categories = column.categories or ()
    texts = [category for category in categories if isinstance(category, str)]
    if column.kind == "numeric" or not texts:
        if len(set(map(float, categories))) < len(categories):
            raise ValueError(
                f"{target} reads numbers in double precision, in which some categories of the "
                f"column {column.name!r} are equal. Turn them into text before fit."
            )
        return NUMBERS if column.kind == "numeric" or categories else TEXT
    if len(texts) < len(categories):
        raise ValueError(
            f"{target} needs columns of one type, and the categories of {column.name!r} are both "
            f"numbers and text: {listing(categories, 5)}. Turn them all into text before fit."
        )
    return TEXT


def no_form(own: FeatureMap, column: Column, target: str, known: Any) -> ValueError:
    """Return the error for a map that has no form in the target language."""
    names = ", ".join(sorted(cls.__name__ for cls in known))
    return ValueError(
        f"The map of the column {column.name!r}, {own!r}, has no form in {target}. Maps with one: "
        f"{names}."
    )


def table_values(model: FittedModel, X: Any, target: str) -> list[tuple[Column, str, np.ndarray]]:
    """Return the values of a table's columns, (n,): float64 with NaN, or text with None."""
    columns = check_columns(model, target)
    table = read_table(X, type(model).__name__)
    out = []
    for column, place in zip(columns, model.columns_.positions(table, type(model).__name__)):
        values: Any = table.values[place]
        if column.kind == "numeric":
            hint = "The model was fitted on numbers here. Convert it; NaN means missing."
            out.append((column, NUMBERS, numbers(values, table.label(place), hint)))
            continue
        items = values.tolist() if isinstance(values, np.ndarray) else values.to_list()
        content = content_of(column, target)
        if content == NUMBERS:
            floats = [np.nan if _is_no_number(item) else float(item) for item in items]
            out.append((column, content, np.array(floats, dtype=np.float64)))
        else:
            texts: np.ndarray = np.empty(len(items), dtype=object)
            texts[:] = [None if is_missing(item) else str(item) for item in items]
            out.append((column, content, texts))
    return out


def _is_no_number(item: Scalar | None) -> bool:
    """Tell whether a value is missing, or text where categories are numbers: an unseen category."""
    return is_missing(item) or isinstance(item, str)


def constant_factor(core: np.ndarray) -> np.ndarray | None:
    """Return the row of a core (d, R) whose rows are all the same, (R,); None for any other."""
    return core[0] if np.all(core == core[:1]) else None


def uses_constants(cores: Cores) -> bool:
    """Tell whether the format of a model uses the implied constant elements."""
    return cores.format.constants


def left_bins(trees: Trees, k: int) -> np.ndarray:
    """Return which bins go left at a node of trees, (d,) flags; bin 0 is that of missing values."""
    nodes, dim = trees.nodes, trees.maps[trees.nodes.column[k]].dim
    if nodes.missing[k] == BY_SET:
        return nodes.sets[nodes.place[k], :dim].astype(bool)
    flags = np.arange(dim) <= nodes.place[k]
    flags[0] = nodes.missing[k] == 1
    return flags
