"""A progress bar on standard error, for fits that someone is waiting for."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

_WIDTH = 30


class Progress:
    """Show how many of `total` epochs are done, the latest loss and the time it has taken.

    Members report from threads of their own. On a terminal the bar is redrawn in place ten times a
    second at most; elsewhere only the last line is written.
    """

    def __init__(self, total: int, title: str, stream: TextIO | None = None):
        self.total, self.title = max(total, 1), title
        self.stream = sys.stderr if stream is None else stream
        self.done, self.loss = 0, float("nan")
        self._start = time.perf_counter()
        self._drawn = 0.0
        self._lock = threading.Lock()

    def __call__(self, member: int, epoch: int, loss: float) -> None:
        """Count one epoch."""
        with self._lock:
            self.done += 1
            self.loss = loss
            now = time.perf_counter()
            if self.stream.isatty() and now - self._drawn > 0.1:
                self._drawn = now
                self.stream.write("\r" + self.line())
                self.stream.flush()

    def line(self) -> str:
        """Return the bar as text."""
        share = min(1.0, self.done / self.total)
        filled = int(share * _WIDTH)
        seconds = time.perf_counter() - self._start
        bar = "#" * filled + "-" * (_WIDTH - filled)
        return f"{self.title} [{bar}] {share:4.0%}  loss {self.loss:.4f}  {seconds:.1f} s"

    def close(self) -> None:
        """Draw the finished bar; members that stopped early count as finished."""
        self.done = self.total
        start = "\r" if self.stream.isatty() else ""
        self.stream.write(start + self.line() + "\n")
        self.stream.flush()
