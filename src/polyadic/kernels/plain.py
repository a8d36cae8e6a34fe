"""The functions of `polyadic.kernels.vectors` for vectors of one number, in ordinary Numba.

See `polyadic.kernels.simd`, which chooses between the two.
"""

from __future__ import annotations

import numpy as np

from polyadic.kernels.jit import inner

LANES = 1


@inner
def load(array, at):
    """Return array[at]."""
    return array[at]


@inner
def peek(array, at):
    """Return array[at]."""
    return array[at]


@inner
def store(array, at, value):
    """Set array[at]."""
    array[at] = value


@inner
def fill(array, x):
    """Return the number x in the type of `array`."""
    return array.dtype.type(x)


@inner
def root(value):
    """Return the square root."""
    return np.sqrt(value)


@inner
def total(value):
    """Return the number itself."""
    return value


@inner
def flush_denormals():
    """Do nothing; return a value for `restore_denormals`."""
    return 0


@inner
def restore_denormals(before):
    """Do nothing."""


@inner
def prefetch(array, at):
    """Do nothing."""
