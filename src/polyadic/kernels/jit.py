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
import itertools
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core import caching
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
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


# The sources of all kernels, and their form.
FORM = _fingerprint() + ("" if VECTORS else "_plain")
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def _entry(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    # Numba names its cache files by this.
    function.__qualname__ += f"_{FORM}"
    kernel = njit(**{"no_cfunc_wrapper": True, **_OPTIONS, **options})(function)
    if isinstance(kernel, CPUDispatcher):  # and not the function itself, under NUMBA_DISABLE_JIT
        _keep_on_disk(kernel)
    return kernel


# Numba has renamed it.
_InTree: Any = vars(caching).get("InTreeCacheLocator") or vars(caching)["_InTreeCacheLocator"]


class _Shipped(_InTree):
    """Finds compiled code beside the kernels, in a folder that may be read but not written to."""

    def ensure_cache_path(self) -> None:
        """Do nothing: the folder is there, and it need not be writable."""


class _ShippedForm(caching.CompileResultCacheImpl):
    _locator_classes: Any = (_Shipped,)


class _ShippedCache(caching.FunctionCache):
    """Compiled code that came with the package, as in a container: it is only read."""

    _impl_class = _ShippedForm

    def save_overload(self, sig: Any, data: Any) -> None:
        """Do nothing: a kernel that is not there is compiled again by the next process."""


@cache
def is_shipped() -> bool:
    """Tell whether compiled kernels lie in a folder of the package that cannot be written to."""
    folder = Path(__file__).parent / "__pycache__"
    if getattr(config, "CACHE_DIR", "") or os.access(folder, os.W_OK):
        return False
    return next(folder.glob(f"*{FORM}*.nbi"), None) is not None


def _keep_on_disk(kernel: CPUDispatcher) -> None:
    """Let compiled code be kept on disk; where no folder can be written to, say so once."""
    if is_shipped():
        vars(kernel)["_cache"] = _ShippedCache(kernel.py_func)
        return
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


class _LinkedLibrary(JITCodeLibrary):
    """Code that is only linked into that of its callers: no machine code is made of it."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _PartCompiler(Compiler):
    """Compiles an inner kernel as far as its callers need it.

    Numba makes machine code of every function, with all that it calls inside. Of an inner kernel
    it would never be run: its callers get the optimised code before that step.
    """

    def __init__(self, typingctx, targetctx, library, args, return_type, flags, locals):
        if library is None:
            library = _LinkedLibrary(targetctx.codegen(), f"part{next(_PARTS)}")
        flags.no_compile = True
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)

    def compile_extra(self, func: Any) -> Any:
        """Compile a function. Callers find it by an entry point, which here is any built-in."""
        result = super().compile_extra(func)
        entry: Any = [].append
        result.target_context.insert_user_function(entry, result.fndesc, [result.library])
        return result._replace(entry_point=entry)


_PARTS = itertools.count()  # names of their libraries


class _Inner(CPUDispatcher):
    """A kernel without an entry point for Python: calling it would crash the process."""

    def __call__(self, *args: Any) -> Any:
        name = self.py_func.__name__
        raise TypeError(f"{name} is called by other kernels only; mark it @jit to call it here.")


def _part(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_OPTIONS, **options}
    options["pipeline_class"] = _PartCompiler
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
