"""One row, as a person gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyadic.data.columns import Column, code_part
from polyadic.data.dates import read_moment
from polyadic.data.tables import is_missing
from polyadic.explain.grids import code_points
from polyadic.explain.listing import pandas
from polyadic.explain.models import code
from polyadic.explain.wrapped import SteppedColumns
from polyadic.training.model import FittedModel


def code_row(model: FittedModel, row: Any) -> list[np.ndarray]:
    """Return one row, coded, from a dict, a Series, an array or a table."""
    if hasattr(row, "to_dict") and getattr(row, "ndim", 2) == 1:  # a pandas Series
        row = row.to_dict()
    if isinstance(row, Mapping) and isinstance(model.columns_, SteppedColumns):
        row = pandas().DataFrame([dict(row)])  # which the steps before the model take
    if isinstance(row, Mapping):
        return [_code_value(column, row) for column in model.columns_.columns]
    if isinstance(row, np.ndarray | list | tuple) and np.ndim(row) == 1:
        row = [list(row)] if not isinstance(row, np.ndarray) else row[None]
    rows = code(model, row)
    if len(rows[0]) != 1:
        raise ValueError(f"One row is needed, got {len(rows[0])}. Pass one row, such as X[:1].")
    return rows


def _code_value(column: Column, row: Mapping[str, Any]) -> np.ndarray:
    """Return the value of a column in a row, coded; that of a part of a date from the date."""
    if column.name in row:
        return code_points(column, [row[column.name]])
    if column.source not in row:
        raise ValueError(f"The row has no value for the column {column.source!r}. Use None or NaN.")
    assert column.part is not None
    given = row[column.source]
    moment = read_moment(None if is_missing(given) else given, column.part, column.name)
    return code_part(column, moment)
