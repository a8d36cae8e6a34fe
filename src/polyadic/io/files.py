"""One file of arrays with a header: written whole or not at all, and checked when read.

The file is a safetensors file. Its metadata hold one JSON text, `polyadic`: a header, with the
number of the file format and two checksums. All arrays are tensors; from format 4 on, longer ones
are packed into bytes (`polyadic.io.packing`). The checksums find damage, but are no signature: code
that reads a header must not trust it (`polyadic.io.parts`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from polyadic.io.atomic import write_whole
from polyadic.io.packing import pack_arrays, unpack_arrays
from polyadic.io.plain import NUMBERS, dumps
from polyadic.version import __version__

FORMAT = 4  # raised when files change in a way that older code cannot read
_FIRST_PACKED = 4  # the format
_KEY = "polyadic"  # the only entry, since safetensors writes several in no fixed order


class ModelFileError(ValueError):
    """A model file that is damaged, inconsistent, too new, or not written by polyadic."""


def write_file(
    path: str | os.PathLike,
    header: dict[str, Any],
    arrays: dict[str, Any],
    least_bytes: float = 0.0,
) -> None:
    """Write a header of JSON values and arrays to one file, whole or not at all.

    The same content gives the same bytes every time. Arrays are packed only where `least_bytes`
    are left.
    """
    tensors = {name: _as_tensor(name, array) for name, array in arrays.items()}
    packed, tensors = pack_arrays(tensors, least_bytes)
    header = {"format": FORMAT, "version": __version__, **header, "packed": packed}
    header["tensors_sha256"] = digest(tensors)
    header["sha256"] = hashlib.sha256(dumps(header).encode()).hexdigest()
    write_whole(path, safetensors.numpy.save(tensors, {_KEY: dumps(header)}))


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a file, after its format and checksums are checked."""
    if path.is_dir():
        raise ModelFileError("It is a folder, not a model file.")
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {str(path)!r}.")
    if not path.is_file():  # reading could wait for ever
        raise ModelFileError("It is a device, a pipe or a socket, not a model file.")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or f"(os error {errno.ENOMEM})" in str(error):
            raise OSError(errno.ENOMEM, "Not enough memory to read the model", str(path)) from error
        raise ModelFileError(f"It is not a model file, or was cut short: {error}.") from error
    if text is None:
        raise ModelFileError("It is a safetensors file, but not one that polyadic has written.")
    header = json.loads(text)
    number = header["format"]
    if not isinstance(number, int) or number < 1:
        raise ModelFileError(f"Its file format is {number!r}, which never existed.")
    if number > FORMAT:
        raise ModelFileError(
            f"It has file format {number}, written by polyadic {header.get('version')}; polyadic "
            f"{__version__} reads formats up to {FORMAT}. Install a newer polyadic."
        )
    if header.pop("sha256") != hashlib.sha256(dumps(header).encode()).hexdigest():
        raise ModelFileError("It is damaged: the checksum of its header does not match.")
    if header["tensors_sha256"] != digest(tensors):
        raise ModelFileError("It is damaged: the checksum of its arrays does not match.")
    return header, tensors if number < _FIRST_PACKED else unpack_arrays(header["packed"], tensors)


def digest(tensors: dict[str, np.ndarray]) -> str:
    """Return the checksum of names, types, shapes and little-endian bytes."""
    out = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        out.update(f"{name} {_name_of(array.dtype)} {array.shape} ".encode())
        out.update(array.astype(_little(array.dtype), order="C", copy=False).data)
    return out.hexdigest()


@cache  # NumPy puts the name of a type together every time
def _name_of(dtype: np.dtype) -> str:
    return dtype.name


@cache
def _little(dtype: np.dtype) -> np.dtype:
    """Return a type with little-endian bytes."""
    return dtype.newbyteorder("<")


def _as_tensor(name: str, array: Any) -> np.ndarray:
    array = np.asarray(array)
    if _name_of(array.dtype) not in NUMBERS:
        raise TypeError(f"A model file cannot hold {name!r}, an array of type {array.dtype}.")
    return array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
