"""The threads of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from joblib.parallel import get_active_backend

from polyadic.solvers.contract import Deadline


class Pool:
    """Threads for the fits of all strategies of a plan.

    With one job everything stays in the calling thread: torch starts threads of its own for every
    thread that calls it, and they slow each other down. `spreads` tells that the user has chosen a
    backend of joblib that has other processes, such as those of Ray or Dask: fits are then handed
    to it.

    An error in the calling thread, such as that of Ctrl-C, stops all threads: `deadline` is over
    for them, and what they have not begun is left out.
    """

    def __init__(self, n_jobs: int, deadline: Deadline | None = None):
        self.n_jobs, self.deadline = n_jobs, deadline
        self.spreads = n_jobs > 1 and not _is_local(get_active_backend()[0])
        self.threads = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None
        self.error: BaseException | None = None  # the first one; what it stops has others

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.threads is not None:
            self.threads.shutdown(cancel_futures=True)
        self.error = None  # it holds the frames that hold the tables

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list:
        """Do the work for every task, n_jobs at a time."""
        if self.threads is None or (self.n_jobs == 1 and len(tasks) < 2):
            return [work(task) for task in tasks]
        with self.stopped_by_errors():
            return list(self.threads.map(work, tasks))

    def side_by_side(self, works: Sequence[Callable[[], Any]]) -> list:
        """Call functions that hand their work to `run`, so that it shares the same threads.

        Where fits are spread, one after the other: a backend belongs to the thread that chose it.
        """
        if self.threads is None or self.spreads or len(works) < 2:
            return [work() for work in works]
        with ThreadPoolExecutor(len(works)) as waiting, self.stopped_by_errors():
            return [future.result() for future in [waiting.submit(work) for work in works]]

    @contextmanager
    def stopped_by_errors(self) -> Iterator[None]:
        """Stop all threads where an error comes up, which would else wait for them to finish."""
        try:
            yield
        except BaseException as error:
            self.error = self.error or error
            if self.deadline is not None:
                self.deadline.stop()
            if self.threads is not None:
                self.threads.shutdown(wait=False, cancel_futures=True)
            if self.error is error:
                raise
            raise self.error from None


def _is_local(backend: Any) -> bool:
    """Tell whether a backend of joblib is one of its own: threads do better than its processes."""
    return type(backend).__module__ == "joblib._parallel_backends"
