"""Read ahead: make the next item in a thread while one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
_END = object()


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items; a thread makes the next one while one is used.

    There is a thread per item, which ends with it. So an iteration that an error has left in the
    middle holds no thread, for as long as a traceback may keep it.

    >>> list(one_ahead(iter([1, 2, 3])))
    [1, 2, 3]
    """
    ahead = _in_thread(next, items, _END)
    try:
        while (item := ahead.result()) is not _END:
            ahead = _in_thread(next, items, _END)
            yield item
    finally:
        wait([ahead])


def _in_thread(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Call a function in a thread of its own."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work).start()
    return future
