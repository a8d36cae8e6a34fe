"""How much memory a fit may take, and what that means for rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from numbers import Real
from typing import Any

AUTO_SHARE = 0.5  # of the machine's memory, for memory="auto"; chosen by hand
# Bytes of a fit in memory per row and column, about: the table, its numbers, and for each member
# that is trained at the same time its slots and what least squares keeps of them.
# `benchmarks/stream.py` prints what was measured.
BYTES_PER_CELL = 120
# Bytes of a streamed fit per row of a block, column and member: two blocks and the slots of one.
_BYTES_PER_STREAMED_CELL = 48
_MEMBERS = 5  # that may be trained at the same time; the usual number, so that n_jobs has no effect
_BLOCK_SHARE = 0.25  # of the memory, for blocks
_SAMPLE_SHARE = 0.5  # of the memory, for a fit of the sample, which ends before blocks are read
_FEWEST_SAMPLED = 10_000  # rows of the sample, whatever the memory; chosen by hand
# Bytes per element of a map and member. Training takes 1,100: eight arrays of 32 terms in single
# precision, and a start in double. Merging takes more, since members and model are then both there:
# five members of 131,000 elements took 1.19 GB more than the program and its rows.
_BYTES_PER_ELEMENT = 1_800
_ELEMENT_SHARE = 0.5  # of the memory, for the categories of all columns
_FEWEST_CATEGORIES = 256  # of a column, whatever the memory; chosen by hand
_FEWEST, _MOST = 4_096, 524_288  # rows of a block; chosen by hand

_UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_TEXT = re.compile(r"\s*([0-9.]+)\s*([KMGT]?I?)B?\s*", re.IGNORECASE)


def to_float(number: Any) -> float:
    """Return a number as a float: infinity for a whole number that is beyond all floats.

    >>> to_float(3), to_float(-(10**400))
    (3.0, -inf)
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def shown(value: Any) -> str:
    """Return a value as errors show it. Python refuses to write very long whole numbers.

    >>> shown("2 GB"), shown(10**400)
    ("'2 GB'", 'a whole number of 1,329 bits, more than a float can hold')
    """
    if isinstance(value, int) and math.isinf(to_float(value)):
        return f"a whole number of {value.bit_length():,} bits, more than a float can hold"
    return repr(value)


def parse_memory(memory: Any, available: float) -> float:
    """Return bytes: of "auto", a number, or a text such as "2GB" or "500 MiB".

    >>> parse_memory("2GB", 1e12), parse_memory("1 KiB", 1e12), parse_memory("auto", 8e9)
    (2000000000.0, 1024.0, 4000000000.0)
    """
    if isinstance(memory, str) and memory == "auto":
        return AUTO_SHARE * available
    number: float | None = None
    if isinstance(memory, Real) and not isinstance(memory, bool):
        number = to_float(memory)
    elif isinstance(memory, str) and (found := _TEXT.fullmatch(memory)):
        unit = {**_UNITS, **_BINARY}.get(found[2].upper())
        try:
            number = float(found[1]) * unit if unit else None
        except ValueError:
            number = None
    if number is None or not 0 < number < float("inf"):
        raise ValueError(
            f"memory must be 'auto', a number of bytes above zero, or a text such as '2GB' or "
            f"'500 MB', got {shown(memory)}."
        )
    return number


def fits_in_memory(n_rows: int, n_columns: int, budget: float) -> bool:
    """Tell whether a fit of a whole table takes no more than this many bytes, about."""
    return BYTES_PER_CELL * float(n_rows) * n_columns <= budget


def choose_block_rows(n_columns: int, budget: float) -> int:
    """Return how many rows a block of a streamed fit should have.

    >>> choose_block_rows(20, 2e9)
    104166
    """
    cost = _BYTES_PER_STREAMED_CELL * n_columns * _MEMBERS
    return int(min(max(_BLOCK_SHARE * budget / cost, _FEWEST), _MOST))


def choose_sample_rows(n_columns: int, budget: float, most: int) -> int:
    """Return how many rows the sample may have, of which a fit is made in memory.

    >>> choose_sample_rows(20, 2e9, 100_000), choose_sample_rows(500, 2e9, 100_000)
    (100000, 16666)
    """
    allowed = int(_SAMPLE_SHARE * budget / (BYTES_PER_CELL * n_columns))
    return min(most, max(allowed, _FEWEST_SAMPLED))


def choose_categories(sizes: Sequence[int], budget: float, most: int) -> int:
    """Return how many categories a column may have, so that all columns fit into the memory.

    Columns of fewer categories leave what they do not need to the others.

    >>> choose_categories([10, 60_000, 65_536], 4e9, 65_536)
    65536
    >>> choose_categories([10, 60_000, 65_536], 5e8, 65_536)
    13883
    """
    left = int(_ELEMENT_SHARE * budget / (_BYTES_PER_ELEMENT * _MEMBERS))
    for k, size in enumerate(sorted(min(size, most) for size in sizes)):
        share = left // (len(sizes) - k)
        if size > share:
            return max(share, _FEWEST_CATEGORIES)
        left -= size
    return most
