"""How kernels are compiled: one set of options for all of them.

A kernel is either called from Python (`jit`, `jit_exact`) or by other kernels alone (`inner`,
`inner_exact`). The latter are compiled as parts of their callers. They have no entry for Python,
which is often as much code as the kernel itself, and no cache file of their own.

No kernel allocates: what it writes to is handed to it. So reference counts are left out of the
compiled code, and so are the functions of NumPy that Numba would compile with a kernel. Together
this makes the first fit several times faster (`benchmarks/startup.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.registry import CPUDispatcher

# Sums may be reordered and fused, which vectorisation needs. NaN and infinity keep their meaning:
# they are how divergence is seen.
FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}

# POLYADIC_SIMD=0 compiles the plain form of every kernel: see `polyadic.kernels.simd`.
VECTORS = os.environ.get("POLYADIC_SIMD", "1") != "0"

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def _entry(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    if not VECTORS:
        # Numba names its cache files by this: the two forms of a kernel must not share one.
        function.__qualname__ += "_plain"
    options = {"cache": True, "no_cfunc_wrapper": True, **_OPTIONS, **options}
    return njit(**options)(function)


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that Python calls: for this CPU, without the GIL, cached on disk."""
    return _entry(function, fastmath=FAST)


def jit_exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without leave to reorder: for code in which the last bit matters."""
    return _entry(function)


class _Inner(CPUDispatcher):
    """A kernel without an entry for Python, which would end the process if it were called."""

    def __call__(self, *args: Any) -> Any:
        name = self.py_func.__name__
        raise TypeError(f"{name} is called by other kernels only; mark it @jit to call it here.")


def _part(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_OPTIONS, **options}
    kernel = njit(**options)(function)
    if isinstance(kernel, CPUDispatcher):  # and not the function itself, under NUMBA_DISABLE_JIT
        kernel.__class__ = _Inner
    return kernel


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that only other kernels call, as a part of them."""
    return _part(function, fastmath=FAST)


def inner_exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """Do the same without leave to reorder."""
    return _part(function)
