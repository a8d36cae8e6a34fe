"""The kind of each column of a table, and the order of the categories of one.

Used by `columns`. A kind is what the user says, or else follows from the type of the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import narwhals as nw
import numpy as np

from polyadic.data.dates import PARTS, holds_dates
from polyadic.data.tables import (
    CATEGORICAL,
    Scalar,
    Table,
    Values,
    as_scalar,
    is_null,
    listing,
    unsuitable,
)

KINDS = ("numeric", "categorical")


def choose_kinds(
    table: Table,
    categorical_features: str | Iterable | None,
    kinds: Mapping[str | int, str] | None,
) -> list[str]:
    """Return the kind of each column: what `kinds` says, else `categorical_features`."""
    given = {}
    for key, kind in (kinds or {}).items():
        if kind not in KINDS:
            raise ValueError(
                f"Unknown kind {kind!r} of column {key!r}. Choose from: {', '.join(KINDS)}."
            )
        if key not in table.names and is_part_name(table, key):
            continue  # its kind is that of the part
        position = find_column(table, key, "maps")
        if kind == "categorical" or not holds_dates(table.values[position]):
            given[position] = kind
    if isinstance(categorical_features, str):
        if categorical_features != "from_dtype":
            raise ValueError(
                f"Unknown categorical_features {categorical_features!r}. Choose 'from_dtype', "
                "None, a list of column names or positions, or a boolean mask."
            )
        return [
            given.get(position) or kind_from_dtype(values, table.label(position))
            for position, values in enumerate(table.values)
        ]
    chosen = categorical_positions(table, categorical_features)
    usual = [
        "dates" if holds_dates(values) and position not in chosen else KINDS[position in chosen]
        for position, values in enumerate(table.values)
    ]
    return [given.get(position) or kind for position, kind in enumerate(usual)]


def categorical_positions(table: Table, categorical_features: Iterable | None) -> set[int]:
    """Return the positions given by a list of names, a list of positions or a mask."""
    if not isinstance(categorical_features, Iterable | None):
        raise ValueError(
            "categorical_features must be 'from_dtype', a list, a mask or None, got "
            f"{categorical_features!r}. For one column, pass a list of it."
        )
    items = [] if categorical_features is None else list(categorical_features)
    if not items or not all(isinstance(item, bool | np.bool_) for item in items):
        return {find_column(table, item, "categorical_features") for item in items}
    if len(items) != len(table.names):
        raise ValueError(
            f"categorical_features is a mask of length {len(items)}, but X has "
            f"{len(table.names)} columns. Give one boolean per column."
        )
    return {position for position, item in enumerate(items) if item}


def find_column(table: Table, key: Any, source: str) -> int:
    """Return the position of the column given by its name or position."""
    n_columns = len(table.names)
    if isinstance(key, str) and key in table.names:
        return table.names.index(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= key < n_columns:
        return int(key)
    raise ValueError(
        f"{source} names the column {key!r}, which X does not have. Choose from the names "
        f"{listing(table.names)} or the positions 0 to {n_columns - 1}."
    )


def kind_from_dtype(values: Values, label: str) -> str:
    """Return the kind of a column by its type; columns of an array are numeric."""
    if holds_dates(values):
        return "dates"
    if isinstance(values, np.ndarray) or values.dtype.is_numeric():
        return "numeric"
    if isinstance(values.dtype, CATEGORICAL) or is_null(values):
        return "categorical"
    raise unsuitable(values, label)


def is_part_name(table: Table, key: Any) -> bool:
    """Return whether a key names a part of a column of dates: "sold (month)", for example."""
    return any(
        key == f"{name} ({part})"
        for name, values in zip(table.names, table.values)
        if holds_dates(values)
        for part in PARTS
    )


# ---- categories ----------------------------------------------------------------------------------


def order_of(values: Values) -> tuple[Scalar | None, ...]:
    """Return the categories of an ordered type in their order; none for any other type."""
    if isinstance(values, nw.Series) and isinstance(values.dtype, nw.Enum):
        return tuple(as_scalar(category) for category in values.dtype.categories)
    return ()


def sort_categories(
    scalars: list[Scalar | None], order: tuple[Scalar | None, ...] = ()
) -> tuple[Scalar, ...]:
    """Sort the distinct categories: in this order, then numbers before text.

    Codes do not depend on the order of the rows.

    >>> sort_categories(["high", "low", None, "low"], ("low", "middle", "high"))
    ('low', 'high')
    >>> sort_categories(["b", 2, "a"])
    (2, 'a', 'b')
    """
    # A dict keeps the order of insertion, and so of memory, which sorts faster than that of a set.
    distinct = dict.fromkeys(scalar for scalar in scalars if scalar is not None)
    first = [category for category in order if category is not None and category in distinct]
    others = [category for category in distinct if category not in order] if first else distinct
    text = [category for category in others if isinstance(category, str)]
    rest = [category for category in others if not isinstance(category, str)]
    return (*first, *sorted(rest), *sorted(text))
