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
import re
import sys
from collections.abc import Callable, Hashable
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
_MOST_ROOM = 20  # characters of an array of text for each that it holds; chosen by hand
_MOST_OF_ONE_HASH = 100  # keys; equal hashes are rare, except by design
DEPTH = 20  # levels of lists and dicts within each other; chosen by hand
# Texts in JSON, and what begins a list or a dict. The last text may have no end: a search for it
# from every quote would take long.
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]', re.DOTALL)
_QUOTE = ord('"')
_MOST_TAGS = 100  # in a list of categories: only numbers that are not finite need them
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
            keys = check_keys([inner(key) for key, _ in pairs])
            return {key: inner(item) for key, (_, item) in zip(keys, pairs)}
        case {"@array": [str(name), list(items)]} if name in (*NUMBERS, "U", "O"):
            return _text_array(inner(items)) if name == "U" else np.array(inner(items), dtype=name)
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


def _text_array(items: list) -> np.ndarray:
    """Return an array of text; of objects, where most texts are much shorter than the longest.

    An array of text has room for the longest at each place.
    """
    out = np.array(items, dtype=object)
    lengths = [len(item) for item in out.ravel() if isinstance(item, str)]
    if out.size * max(lengths, default=0) > _MOST_ROOM * (out.size + sum(lengths)):
        return out
    return out.astype("U")


def check_keys(keys: list) -> list:
    """Return the keys of a dict; refuse those that were made to have one hash.

    Whole numbers beyond 61 bits can be: each would be compared with all others.
    """
    _, counts = np.unique(
        [hash(key) for key in keys if isinstance(key, Hashable)], return_counts=True
    )
    if len(counts) and counts.max() > _MOST_OF_ONE_HASH:
        raise ValueError(f"{counts.max()} keys or categories have the same hash.")
    return keys


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


def from_text(array: np.ndarray) -> list:
    """Return the list that `to_text` was given, of numbers and text.

    Other lists and dicts within it would take many times the memory of the text.
    """
    text = array.tobytes()
    n_inner = 0
    for found in _TEXTS.finditer(text):
        n_inner += text[found.start()] != _QUOTE
        if n_inner > _MOST_TAGS:
            raise ValueError("a list holds values that are neither numbers nor text.")
    items = unpack(json.loads(text), lambda name, kind: OWN_MAPS[name])
    if not isinstance(items, list | tuple):
        raise ValueError(f"a list was expected, not {items!r:.60}.")
    return check_keys(list(items))


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
