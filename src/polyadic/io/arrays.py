"""Named arrays of a model file: taken one by one, and checked.

Taking an array removes it from the dict: an array that is left at the end belongs to no part.
"""

from __future__ import annotations

import numpy as np

Arrays = dict[str, np.ndarray]


def take(arrays: Arrays, name: str, shape: tuple | None = None) -> np.ndarray:
    """Remove an array and return it; refuse a shape other than `shape`, with None for any."""
    if name not in arrays:
        raise ValueError(f"the array {name!r} is missing.")
    array = arrays.pop(name)
    if shape is not None:
        check_shape(name, array, shape)
    return array


def take_floats(arrays: Arrays, name: str, shape: tuple) -> np.ndarray:
    """Remove an array of finite floating-point numbers and return it."""
    array = take(arrays, name, shape)
    if array.dtype.kind != "f" or not np.all(np.isfinite(array)):
        raise ValueError(f"the array {name!r} must hold finite floating-point numbers.")
    return array


def check_shape(name: str, array: np.ndarray, shape: tuple) -> None:
    """Refuse a shape other than `shape`, with None for any."""
    if array.ndim != len(shape) or any(
        want not in (None, have) for have, want in zip(array.shape, shape)
    ):
        wanted = " x ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"the array {name!r} has the shape {array.shape} and should be {wanted}.")


def check_finite(arrays: Arrays) -> None:
    """Refuse to save arrays that are not finite, which could not be loaded again."""
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(
                f"The model cannot be saved: its {name} is not finite. Training has diverged; fit "
                "again with a lower learning_rate, or scale a target of huge numbers first."
            )
