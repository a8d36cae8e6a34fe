"""Choose the map of each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from polyadic.maps.base import FeatureMap
from polyadic.maps.hat import Hat
from polyadic.maps.onehot import OneHot


class _Column(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def circle(self) -> bool: ...


def map_kinds(maps: Any, X: Any, resolve) -> dict[Any, str] | None:
    """Return the kinds of columns that explicitly given maps require, or None."""
    if isinstance(maps, list | tuple):
        raise TypeError(
            f"maps got a {type(maps).__name__}. It must be 'auto', one map for all columns, or a "
            "dict from column name or position to map, such as {0: 'hat'}."
        )
    if isinstance(maps, dict):
        return {key: resolve(m).kind for key, m in maps.items()}
    if isinstance(maps, str) and maps == "auto":
        return None
    if resolve(maps).kind == "categorical":
        shape = X.shape if hasattr(X, "shape") else np.shape(X)
        if len(shape) < 2:
            return None  # no table: reading it says what is wrong
        return dict.fromkeys(range(shape[1]), "categorical")
    return None


def choose_maps(maps: Any, columns: Sequence[_Column], resolve) -> list[FeatureMap]:
    """Return one unfitted map per column.

    `maps` is "auto", one map for all columns of its kind, or a dict from column name or position to
    map; the remaining columns get hats if they are numeric and one-hot if they are categorical. A
    part of a date is meant by its own name. A map of numbers under the name of the date is for its
    year or days; one of categories makes every date a category.
    """
    special: dict[Any, FeatureMap] = {}
    chosen: dict[str, FeatureMap] = {"numeric": Hat(), "categorical": OneHot()}
    circle: FeatureMap = OneHot(along="circle")
    if isinstance(maps, dict):
        special = {key: resolve(m) for key, m in maps.items()}
    elif not (isinstance(maps, str) and maps == "auto"):
        own = resolve(maps)
        chosen[own.kind] = own
    place = {name: n for n, name in enumerate(dict.fromkeys(c.source for c in columns))}
    names = [column.name for column in columns]
    unknown = [k for k in special if isinstance(k, str) and k not in place and k not in names]
    if unknown:
        raise ValueError(
            f"maps names the column {unknown[0]!r}, which there is not. Choose from: "
            f"{', '.join(map(repr, names))}."
        )
    out = []
    for column in columns:
        own = circle if column.circle else chosen[column.kind]
        of_source = special.get(column.source, special.get(place[column.source], own))
        own = special.get(column.name, of_source if of_source.kind == column.kind else own)
        if own.kind != column.kind:
            raise ValueError(
                f"The column {column.name!r} is {column.kind}, and {own!r} is a map of "
                f"{own.kind} columns. Choose another map for it."
            )
        out.append(own.clone())
    return out
