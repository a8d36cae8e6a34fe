"""One row, as a person gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

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
        absent = [c.name for c in model.columns_.columns if c.name not in row]
        if absent:
            raise ValueError(f"The row has no value for the column {absent[0]!r}. Use None or NaN.")
        pairs = ((c, row[c.name]) for c in model.columns_.columns)
        return [code_points(c, [v]) for c, v in pairs]
    if isinstance(row, np.ndarray | list | tuple) and np.ndim(row) == 1:
        row = [list(row)] if not isinstance(row, np.ndarray) else row[None]
    rows = code(model, row)
    if len(rows[0]) != 1:
        raise ValueError(f"One row is needed, got {len(rows[0])}. Pass one row, such as X[:1].")
    return rows
