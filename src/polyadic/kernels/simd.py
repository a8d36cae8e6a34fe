"""Several numbers at a time, for Numba.

The inner loops of the kernels run over the rank: a few dozen numbers, in arrays that may overlap
for all that the compiler knows. So it would add overlap tests and scalar remainders to each short
loop, which take longer than the loop. Instead the kernels load, multiply, add and store eight
numbers at a time explicitly, and tables are padded to a multiple of `PAD`. Measured on the training
kernel, this halves the time.

With the environment variable POLYADIC_SIMD=0 a vector is one plain number (LANES is 1), and the
same kernels are ordinary Numba: for a CPU, or a version of Numba, on which the vectors fail.

>>> import numpy as np
>>> from numba import njit
>>> @njit
... def double(a):
...     for k in range(0, 8, LANES):
...         store(a, k, load(a, k) + load(a, k))
>>> numbers = np.arange(8, dtype=np.float32)
>>> double(numbers)
>>> float(numbers.sum())
56.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyadic.kernels.jit import VECTORS

if VECTORS or TYPE_CHECKING:
    from polyadic.kernels.vectors import (
        LANES,
        fill,
        flush_denormals,
        load,
        peek,
        prefetch,
        restore_denormals,
        root,
        store,
        total,
    )
else:
    from polyadic.kernels.plain import (
        LANES,
        fill,
        flush_denormals,
        load,
        peek,
        prefetch,
        restore_denormals,
        root,
        store,
        total,
    )

__all__ = [
    "LANES",
    "LINE",
    "PAD",
    "aligned",
    "fill",
    "flush_denormals",
    "load",
    "padded",
    "peek",
    "prefetch",
    "restore_denormals",
    "root",
    "store",
    "total",
]

PAD = 8  # tables are padded to a multiple of this rank, for any number of lanes
LINE = 16  # float32 numbers in a cache line


def padded(rank: int) -> int:
    """Return the width of a table for this rank: the next multiple of PAD."""
    return -(-rank // PAD) * PAD


def aligned(size: int, dtype: Any) -> np.ndarray:
    """Return zeros that start on a cache line, so that no vector is in two of them."""
    memory: np.ndarray = np.zeros(size + LINE, dtype)
    start = -memory.ctypes.data % (4 * LINE) // memory.itemsize
    return memory[start : start + size]
