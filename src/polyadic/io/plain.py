"""Parameters as JSON, and back.

Numbers, text, None, lists and dicts stay what they are. Other values become a dict whose first key
begins with @:

    {"@number": "inf"}    {"@tuple": [...]}    {"@pairs": [[key, value], ...]}    a dict by pairs
    {"@array": [type, [...]]}    {"@map": class, "params": {...}}    {"@part": class, "params": ...}
    {"@loss": class, "params": {...}}    a loss that is not polyadic's own

A part is a loss or an init. Classes are looked up among polyadic's own and those that the user has
passed, never imported by name.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from polyadic.maps import MAPS, FeatureMap
from polyadic.objective import losses
from polyadic.solvers import inits

FindClass = Callable[[str, str], Any]  # by a name and "map" or "loss"

# The array types that a tensor can have.
NUMBERS = ("bool", "float16", "float32", "float64") + tuple(
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
)
DEPTH = 20  # levels of lists and dicts within each other; chosen by hand
OWN_MAPS: dict[str, type[FeatureMap]] = {cls.__name__: cls for cls in MAPS.values()}
_PARTS: dict[str, Any] = {
    cls.__name__: cls for cls in (*losses.LOSSES.values(), *inits.INITS.values())
}


def dumps(value: Any) -> str:
    """Return packed values as one line of strict JSON, always the same for the same values."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def pack(value: Any, depth: int = 0) -> Any:
    """Return a parameter as values that JSON can hold.

    >>> pack({"alpha": np.float64(0.5), "loss": losses.Quantile(0.9)})
    {'alpha': 0.5, 'loss': {'@part': 'Quantile', 'params': {'level': 0.9}}}
    >>> pack({1: "one"})
    {'@pairs': [[1, 'one']]}
    """
    depth = _deeper(depth)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return {"@number": str(value)}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        items = [pack(item, depth) for item in value]
        return items if isinstance(value, list) else {"@tuple": items}
    if isinstance(value, dict):
        if all(isinstance(key, str) and key[:1] != "@" for key in value):
            return {str(key): pack(item, depth) for key, item in value.items()}
        return {"@pairs": [[pack(key, depth), pack(item, depth)] for key, item in value.items()]}
    if isinstance(value, np.ndarray) and (value.dtype.name in NUMBERS or value.dtype.kind in "UO"):
        name = value.dtype.name if value.dtype.name in NUMBERS else value.dtype.kind
        return {"@array": [name, pack(value.tolist(), depth)]}
    if isinstance(value, FeatureMap):
        return {"@map": class_name(type(value)), "params": pack(value.params(), depth)}
    name = type(value).__name__
    if _PARTS.get(name) is type(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"@part": name, "params": pack(fields, depth)}
    if isinstance(value, losses.Loss):
        return {"@loss": class_name(type(value)), "params": pack(vars(value), depth)}
    raise TypeError(
        f"A model file cannot hold {value!r} of type {name}, found among the parameters. "
        "Use numbers, text, lists, dicts, arrays, maps, losses, and polyadic's own inits."
    )


def unpack(value: Any, find_class: FindClass, depth: int = 0) -> Any:
    """Return the parameter that `pack` was given.

    `find_class` returns, by its name, the class of a "map", or of a "loss" that is not polyadic's.

    >>> unpack({"@pairs": [[1, {"@number": "-inf"}]]}, lambda name, kind: None)
    {1: -inf}
    """
    depth = _deeper(depth)

    def inner(item: Any) -> Any:
        return unpack(item, find_class, depth)

    match value:
        case list():
            return [inner(item) for item in value]
        case {"@number": str(text)}:
            return float(text)
        case {"@tuple": list(items)}:
            return tuple(inner(item) for item in items)
        case {"@pairs": list(pairs)}:
            return {inner(key): inner(item) for key, item in pairs}
        case {"@array": [str(name), list(items)]} if name in (*NUMBERS, "U", "O"):
            return np.array(inner(items), dtype=name)
        case {"@map": str(name), "params": dict(params)}:
            return find_class(name, "map")(**inner(params))
        case {"@loss": str(name), "params": dict(params)}:
            return find_class(name, "loss")(**inner(params))
        case {"@part": str(name), "params": dict(params)} if name in _PARTS:
            return _PARTS[name](**inner(params))
        case dict():
            unknown = [key for key in value if key[:1] == "@"]
            if unknown:
                raise ValueError(f"{unknown[0]} does not describe anything known: {value!r:.200}")
            return {key: inner(item) for key, item in value.items()}
    return value


def _deeper(depth: int) -> int:
    if depth > DEPTH:
        raise ValueError(f"lists and dicts are nested more than {DEPTH} deep.")
    return depth + 1


def class_name(cls: type) -> str:
    """Return the name of one of polyadic's maps, or the dotted name of another class."""
    own = OWN_MAPS.get(cls.__name__) is cls
    return cls.__name__ if own else f"{cls.__module__}.{cls.__qualname__}"


def to_text(value: Any) -> np.ndarray:
    """Return a value as JSON in UTF-8, one byte per element."""
    return np.frombuffer(dumps(pack(value)).encode(), dtype=np.uint8)


def from_text(array: np.ndarray) -> Any:
    """Return the value that `to_text` was given; it holds no maps."""
    return unpack(json.loads(array.tobytes()), lambda name, kind: OWN_MAPS[name])


def pack_labels(labels: np.ndarray) -> tuple[str, np.ndarray]:
    """Return how labels, (K,), are written, and the array they are written to."""
    if labels.dtype.kind == "U":
        native = np.ascontiguousarray(labels, dtype=labels.dtype.newbyteorder("="))
        return "text", native.view(np.uint32).reshape(len(labels), -1)  # code points
    if labels.dtype.kind == "O":
        return "objects", to_text(labels.tolist())
    return "numbers", labels


def unpack_labels(how: str, array: np.ndarray) -> np.ndarray:
    """Return the labels that `pack_labels` was given, in their type.

    >>> unpack_labels(*pack_labels(np.array(["no", "yes"])))
    array(['no', 'yes'], dtype='<U3')
    """
    if how == "text" and array.ndim == 2 and array.dtype == np.uint32:
        if np.any(array > sys.maxunicode):
            raise ValueError("labels hold numbers that are not Unicode characters.")
        return np.ascontiguousarray(array).view(f"U{array.shape[1]}")[:, 0]
    if how == "objects":
        return np.array(from_text(array), dtype=object)
    if how == "numbers":
        return array
    raise ValueError(f"Labels cannot be written as {how!r} and have the shape {array.shape}.")
