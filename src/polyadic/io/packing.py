"""Arrays in fewer bytes, without loss: differences, bytes of equal rank together, then zlib.

The numbers are read as integers of the same bits. Differences of neighbours are small where a
sequence is smooth, and zero bytes where numbers have few digits. The first bytes of all numbers
follow each other, then the second ones, and so on: those that vary little are next to each other.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from polyadic.io.plain import NUMBERS

_LEAST_BYTES = 1024  # shorter arrays stay as they are: little is to be gained
# Arrays may unpack to this many times their own bytes, about twice what models need: a small file
# cannot exhaust the memory. Chosen by hand.
_MOST_TIMES = 10
_MOST_DIFFERENCES = 2
_LEVEL = 6  # of zlib: a higher one gains less than 1 %

Arrays = dict[str, np.ndarray]


def pack_arrays(arrays: Arrays, least_bytes: float = 0.0) -> tuple[dict[str, list], Arrays]:
    """Return an entry [type, shape, differences] for each array that was packed, and all arrays.

    Nothing is packed where fewer bytes would be left than `least_bytes`, or than could be unpacked.

    >>> entries, packed = pack_arrays({"roots": np.sqrt(np.arange(1000.0)), "one": np.ones(1)})
    >>> list(entries), packed["roots"].dtype, packed["roots"].nbytes < 8000
    (['roots'], dtype('uint8'), True)
    """
    entries: dict[str, list] = {}
    out = dict(arrays)
    for name, array in arrays.items():
        if array.nbytes < _LEAST_BYTES:
            continue
        order, short = min(_candidates(array), key=lambda one: len(one[1]))
        if len(short) < array.nbytes:
            entries[name] = [array.dtype.name, list(array.shape), order]
            out[name] = np.frombuffer(short, np.uint8)
    whole, stored = (sum(a.nbytes for a in some.values()) for some in (arrays, out))
    least_bytes = max(least_bytes, whole / _MOST_TIMES)
    return (entries, out) if stored >= least_bytes else ({}, arrays)


def unpack_arrays(entries: dict[str, Any], arrays: Arrays) -> Arrays:
    """Return the arrays that `pack_arrays` was given; refuse what it cannot have returned."""
    sizes = {name: _check_entry(name, entry) for name, entry in entries.items()}
    stored = sum(array.nbytes for array in arrays.values())
    if sum(sizes.values()) > _MOST_TIMES * stored:
        raise ValueError("its arrays would take far more memory than the file is long.")
    return arrays | {
        name: _restore(name, arrays[name], entry, sizes[name]) for name, entry in entries.items()
    }


def _candidates(array: np.ndarray) -> list[tuple[int, bytes]]:
    """Return the bytes of an array with and without differences, and how often those were taken."""
    words = _words(np.ascontiguousarray(array).reshape(-1))
    out = [(0, zlib.compress(_split_bytes(words), _LEVEL))]
    for order in range(1, _MOST_DIFFERENCES + 1):
        words = np.diff(words, prepend=words.dtype.type(0))  # modulo the size of a word
        out.append((order, zlib.compress(_split_bytes(_sign_last(words)), _LEVEL)))
    return out


def _check_entry(name: str, entry: Any) -> int:
    """Return the bytes of an array, by its entry."""
    dtype, shape, order = entry
    whole = isinstance(shape, list) and all(type(d) is int and d >= 0 for d in shape)
    if dtype not in NUMBERS or not whole or order not in range(_MOST_DIFFERENCES + 1):
        raise ValueError(f"the array {name!r} cannot be packed as {entry!r:.100}.")
    return math.prod(shape) * np.dtype(dtype).itemsize


def _restore(name: str, array: np.ndarray, entry: list, n_bytes: int) -> np.ndarray:
    """Return an array from its packed bytes."""
    dtype, shape, order = entry
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ValueError(f"the packed array {name!r} must be a row of bytes.")
    reader = zlib.decompressobj()
    text = reader.decompress(array.tobytes(), n_bytes + 1)  # no more, whatever it says of itself
    if len(text) != n_bytes or not reader.eof or reader.unused_data:
        raise ValueError(f"the packed array {name!r} does not hold {n_bytes} bytes.")
    words = _join_bytes(text, np.dtype(dtype).itemsize)
    if order:
        words = _sign_first(words)
    for _ in range(order):
        words = np.cumsum(words, dtype=words.dtype)
    return words.view(dtype).reshape(shape)


def _words(flat: np.ndarray) -> np.ndarray:
    """Return numbers as unsigned integers of the same bits."""
    return flat.view(f"u{flat.itemsize}")


def _split_bytes(words: np.ndarray) -> bytes:
    """Return the lowest bytes of all words, then the second lowest, and so on."""
    little = words.astype(words.dtype.newbyteorder("<"), copy=False)
    return little.view(np.uint8).reshape(len(words), -1).T.tobytes()


def _join_bytes(text: bytes, size: int) -> np.ndarray:
    """Return the words of `size` bytes that `_split_bytes` was given."""
    parts = np.frombuffer(text, np.uint8).reshape(size, -1).T
    return np.ascontiguousarray(parts).view(f"<u{size}").reshape(-1).astype(f"=u{size}")


def _sign_last(words: np.ndarray) -> np.ndarray:
    """Return 0, -1, 1, -2, 2, ... as 0, 1, 2, 3, 4, ...: small numbers have high bytes of zero."""
    signed = words.view(f"i{words.itemsize}")
    return ((signed << 1) ^ (signed >> (8 * words.itemsize - 1))).view(words.dtype)


def _sign_first(words: np.ndarray) -> np.ndarray:
    """Undo `_sign_last`."""
    one = words.dtype.type(1)
    return (words >> one) ^ (~(words & one) + one)
