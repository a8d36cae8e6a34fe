"""How kernels are compiled: one set of options for all of them.

A kernel is either called from Python (`jit`, `jit_exact`) or only by other kernels (`inner`,
`inner_exact`). The latter are compiled as parts of their callers. They have no entry point for
Python, which is often as much code as the kernel itself, and no cache file of their own.

No kernel allocates memory: it writes to arrays that it is given. So the compiled code has no
reference counting, and none of the NumPy functions that Numba would compile with a kernel. Together
this makes the first fit several times faster (`benchmarks/startup.py`).
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.registry import CPUDispatcher

# Sums may be reordered and fused, which vectorisation needs. NaN and infinity keep their meaning,
# since they show that training diverged.
FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}

# POLYADIC_SIMD=0 compiles the plain form of every kernel: see `polyadic.kernels.simd`.
VECTORS = os.environ.get("POLYADIC_SIMD", "1") != "0"


def _fingerprint() -> str:
    """Return a name for the sources of all kernels together.

    A compiled kernel holds those that it calls, and Numba looks at the file of the kernel alone. So
    a cached one would outlive a change of what it calls, and an update of this package.
    """
    digest = hashlib.blake2b(digest_size=4)
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


_FORM = _fingerprint() + ("" if VECTORS else "_plain")
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def _entry(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    # Numba names its cache files by this.
    function.__qualname__ += f"_{_FORM}"
    kernel = njit(**{"no_cfunc_wrapper": True, **_OPTIONS, **options})(function)
    if isinstance(kernel, CPUDispatcher):  # and not the function itself, under NUMBA_DISABLE_JIT
        _keep_on_disk(kernel)
    return kernel


def _keep_on_disk(kernel: CPUDispatcher) -> None:
    """Let compiled code be kept on disk; where no folder can be written to, say so once."""
    try:
        kernel.enable_caching()
    except RuntimeError as error:
        if "cannot cache function" not in str(error):
            raise
        _warn_once()


@cache
def _warn_once() -> None:
    warnings.warn(
        "Compiled code cannot be kept: neither the folder of polyadic nor a cache folder of the "
        "user can be written to. So every process compiles again, which takes up to a minute. Set "
        "the environment variable NUMBA_CACHE_DIR to a folder that can be written to.",
        RuntimeWarning,
        stacklevel=2,
    )


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that Python calls: for this CPU, without the GIL, cached on disk."""
    return _entry(function, fastmath=FAST)


def jit_exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that Python calls, without reordering of sums: every bit is defined."""
    return _entry(function)


class _Inner(CPUDispatcher):
    """A kernel without an entry point for Python: calling it would crash the process."""

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
    """Do the same as `inner`, without reordering of sums."""
    return _part(function)
