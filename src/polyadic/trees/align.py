"""The user's table beside a source: its columns in the source's order, of the source's kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyadic.data.columns import Column, Columns, category_codes
from polyadic.data.kinds import find_column, sort_categories
from polyadic.data.tables import Scalar, Table, as_scalar, factorise, listing, numbers
from polyadic.trees.source import Source

_HINT = "The model takes this column for numbers; NaN means missing."
_CODED = ("lightgbm", "xgboost")  # they cut a category that is a number to a whole one


def align(table: Table, source: Source, library: str) -> tuple[Columns, list[np.ndarray]]:
    """Return the columns of a source as the table has them, and the table coded.

    Categories are those of the source and of the table together.

    Parameters
    ----------
    table : Table, (n, N) or with more columns, if they have names
    source : Source
    library : str

    Returns
    -------
    columns : Columns
    coded : list of N arrays, (n,)
    """
    places = find_places(table, source.names, source.n_columns, library)
    columns, coded = [], []
    for n, place in enumerate(places):
        name, label, values = table.names[place], table.label(place), table.values[place]
        if n not in source.categories:
            columns.append(Column(name, "numeric"))
            coded.append(numbers(values, label, _HINT))
            continue
        number, found = factorise(values, label)
        known = [as_scalar(value) for value in source.categories[n]]
        _check_categories(found, known, label, library)
        columns.append(Column(name, "categorical", sort_categories([*found, *known])))
        coded.append(category_codes(columns[-1], number, found))
    return Columns(columns, table.named), coded


def find_places(
    table: Table, names: Sequence[str] | None, n_columns: int, library: str
) -> list[int]:
    """Return where in the table each column of a model is: by name if both have names."""
    if not table.named or names is None:
        if len(table.names) != n_columns:
            raise ValueError(
                f"X has {len(table.names)} columns, but the model was fitted on {n_columns}. Pass "
                "a table with the same columns in the same order."
            )
        return list(range(n_columns))
    found = {name: place for place, name in enumerate(table.names)}
    if library == "lightgbm":  # it writes _ in place of a space
        found = {name.replace(" ", "_"): place for name, place in found.items()} | found
    absent = [name for name in names if name not in found]
    if absent:
        raise ValueError(
            f"X lacks {len(absent)} of the {n_columns} columns that the model was fitted on: "
            f"{listing(absent)}. X has the columns {listing(table.names)}."
        )
    return [found[name] for name in names]


def _check_categories(
    found: list[Scalar | None], known: list[Scalar | None], label: str, library: str
) -> None:
    """Refuse categories that the model would read in another way than this library."""
    held, of_model = {value for value in found if value is not None}, set(known)
    new = sort_categories([value for value in held if value not in of_model])
    if library in _CODED and all(isinstance(value, int) for value in known):
        broken = [value for value in new if isinstance(value, float) and not value.is_integer()]
        if broken:
            raise ValueError(
                f"{label} holds the category {broken[0]!r}, but the model takes categories for "
                "whole numbers. Round them, and fit the model again."
            )
    if new and known and len(new) == len(held):
        raise ValueError(
            f"{label} holds the categories {_shown(new)}, of which the model knows none. It knows "
            f"{_shown(known)}. Pass the table that the model was fitted on."
        )


def _shown(values: Sequence[Any], most: int = 5) -> str:
    return ", ".join([repr(v) for v in values[:most]] + ["..."] * (len(values) > most))


def categories_for(
    model: Any, table: Table, given: Mapping[Any, Sequence[Any]] | None
) -> dict[int, list[Any]]:
    """Return the categories of a CatBoost model by column: those given, and those of the table.

    CatBoost keeps only hashes of texts, so that two categories of the same text are one.
    """
    if not model.is_fitted():
        return {}
    names = list(model.feature_names_)
    numbered = names == [str(n) for n in range(len(names))]
    places = find_places(table, None if numbered else names, len(names), "catboost")
    listed = {find_column(table, key, "categories"): own for key, own in (given or {}).items()}
    out = {}
    for n in model.get_cat_feature_indices():
        _, found = factorise(table.values[places[n]], table.label(places[n]))
        every = [*found, *(as_scalar(value) for value in listed.get(places[n], ()))]
        texts = {str(value): value for value in reversed(every) if value is not None}
        out[int(n)] = list(reversed(texts.values()))
    return out
