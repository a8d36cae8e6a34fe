"""Entries of a model file: each is looked up and checked, since a file may hold anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic.trees.source import UnreadableModel


def entry(dump: Any, *path: str) -> Any:
    """Return the entry of nested dicts under these names.

    >>> entry({"a": {"b": 3}}, "a", "b")
    3
    """
    for depth, name in enumerate(path):
        if not isinstance(dump, dict) or name not in dump:
            where = ".".join(path[: depth + 1])
            raise UnreadableModel(
                f"The model lacks the entry {where}. It may be of a version that is not known here."
            )
        dump = dump[name]
    return dump


def rows_of(dump: Any, *path: str) -> list[Any]:
    """Return the entry under these names, which must be a list."""
    found = entry(dump, *path)
    if not isinstance(found, list):
        raise UnreadableModel(f"{'.'.join(path)} of the model must be a list, not {found!r:.50}.")
    return found


def integer(text: Any, what: str) -> int:
    """Return a whole number that may be written as text.

    >>> integer("3", "num_class")
    3
    """
    try:
        if isinstance(text, (str, int)):
            return int(text)
    except ValueError:
        pass
    raise UnreadableModel(f"{what} of the model must be a whole number, not {text!r:.50}.")


def integers(values: Any, what: str, length: int | None = None) -> np.ndarray:
    """Return whole numbers that fit int32, (length,)."""
    out = _array(values, what, length)
    if out.dtype.kind not in "iub" or (out.size and (out.min() < -(2**31) or out.max() >= 2**31)):
        raise UnreadableModel(f"{what} of the model must be whole numbers of 32 bits.")
    return out.astype(np.int32)


def reals(values: Any, what: str, length: int | None = None) -> np.ndarray:
    """Return numbers in double precision, (length,)."""
    out = _array(values, what, length)
    if out.dtype.kind not in "iufb":
        raise UnreadableModel(f"{what} of the model must be numbers.")
    return out.astype(np.float64)


def _array(values: Any, what: str, length: int | None) -> np.ndarray:
    try:
        out = np.asarray(values)
    except (ValueError, OverflowError):  # nested lists of different lengths
        raise UnreadableModel(f"{what} of the model must be a list of numbers.") from None
    if out.ndim != 1:
        raise UnreadableModel(f"{what} of the model must be a list of numbers, not {values!r:.50}.")
    if length is not None and len(out) != length:
        raise UnreadableModel(f"{what} of the model has {len(out)} numbers instead of {length}.")
    return out if out.size else np.zeros(0, dtype=np.int32)
