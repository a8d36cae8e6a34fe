"""A progress bar on standard error."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

_WIDTH = 30  # characters of the bar itself


class Progress:
    """Show which share of `total` is done, the latest loss if there is one, and the time so far.

    Members report from threads of their own. On a terminal the bar is redrawn in place ten times a
    second at most; elsewhere only the last line is written.
    """

    def __init__(self, total: int, title: str, stream: TextIO | None = None):
        self.total, self.title = max(total, 1), title
        self.stream = sys.stderr if stream is None else stream
        self.done, self.share = 0, 0.0
        self.loss: float | None = None
        self._start = time.perf_counter()
        self._drawn = 0.0
        self._lock = threading.Lock()

    def __call__(self, member: int, epoch: int, loss: float) -> None:
        """Count one epoch."""
        with self._lock:
            self.loss = loss
            self.reach(self.done + 1)

    def expect(self, more: int) -> None:
        """Count more epochs than were expected; what is shown does not go back."""
        with self._lock:
            self.total += max(0, more)

    def reach(self, done: int) -> None:
        """Show that `done` of the total are done."""
        self.done = done
        now = time.perf_counter()
        if self.stream.isatty() and now - self._drawn > 0.1:
            self._drawn = now
            self.stream.write("\r" + self.line())
            self.stream.flush()

    def line(self) -> str:
        """Return the bar as text."""
        share = self.share = max(self.share, min(1.0, self.done / self.total))
        filled = int(share * _WIDTH)
        seconds = time.perf_counter() - self._start
        bar = "#" * filled + "-" * (_WIDTH - filled)
        loss = "" if self.loss is None else f"  loss {self.loss:.4f}"
        return f"{self.title} [{bar}] {share:4.0%}{loss}  {seconds:.1f} s"

    def close(self) -> None:
        """Draw the finished bar; members that stopped early count as finished."""
        self.done = self.total
        start = "\r" if self.stream.isatty() else ""
        self.stream.write(start + self.line() + "\n")
        self.stream.flush()
