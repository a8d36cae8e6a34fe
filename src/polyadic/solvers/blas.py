"""Keep BLAS to one thread while small matrices are multiplied in threads of our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from threadpoolctl import threadpool_limits

_lock = Lock()
_limits: list[threadpool_limits] = []  # one entry per block that is being run, all the same


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; fits in several threads may overlap.

    The limit holds for the whole process. The first to enter sets it, the last to leave lifts it.

    >>> with one_blas_thread(), one_blas_thread():
    ...     len(_limits)
    2
    """
    with _lock:
        _limits.append(_limits[0] if _limits else threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()
