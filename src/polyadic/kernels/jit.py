"""The one set of compiler flags that all kernels share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

# Sums may be reordered and fused, which vectorisation needs. NaN and infinity keep their meaning:
# they are how divergence is seen.
FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile for this CPU, without the GIL, cached on disk."""
    return njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")(function)


def jit_exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without leave to reorder: for code in which the last bit matters."""
    return njit(nogil=True, cache=True, error_model="numpy")(function)


def jit_shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without counting references, for kernels that many arrays are handed to.

    What is compiled so allocates nothing.
    """
    return njit(  # type: ignore[call-overload]
        fastmath=FAST, nogil=True, cache=True, error_model="numpy", _nrt=False
    )(function)
