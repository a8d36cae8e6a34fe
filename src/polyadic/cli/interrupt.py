"""Ctrl-C during a fit: the first one asks it to end with what it has, the second ends at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from polyadic.cli.command import INTERRUPTED
from polyadic.training.watch import listening

_STDERR = 2
_TOLD = (
    b"\nStopping: the best model so far is kept, and will be saved. "
    b"Press Ctrl-C again to end at once.\n"
)
_NOTHING_KEPT = b"\nError: Interrupted; nothing was written.\n"


class Interrupt:
    """A listener of a fit that ends it as soon as it was asked to.

    Attributes
    ----------
    asked : bool
        Whether Ctrl-C was pressed.
    cut_short : bool
        Whether that was before the training was over.
    """

    def __init__(self, keeps: bool) -> None:
        self.asked = self.cut_short = False
        self._keeps, self._has_begun = keeps, False

    def start(self, work: Any, most_steps: int) -> None:
        """Note that training has begun: from now on there is something to keep."""
        self._has_begun = True

    def expect(self, key: Any, n_epochs: int) -> None:
        """Do nothing."""

    def begin(self, step: Any) -> None:
        """Do nothing."""

    def epoch(self, step: Any, loss: float, held_out: bool, member: Any) -> bool:
        """Return whether to end the step."""
        return self.asked

    def end(self, step: Any, member: Any) -> bool:
        """Return whether to end the fit."""
        return self.asked

    def close(self) -> None:
        """Note that the training is over: what follows is not cut short."""
        self.cut_short = self.asked

    def handle(self, number: int, frame: Any) -> None:
        """Ask the fit to end; where there is nothing to keep, end at once."""
        if not self._has_begun:
            raise KeyboardInterrupt
        if not self._keeps:  # an exception would wait for the threads that train
            os.write(_STDERR, _NOTHING_KEPT)
            os._exit(INTERRUPTED)
        self.asked = True
        # The system ends the process by itself, also while compiled code runs.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.write(_STDERR, _TOLD)  # a stream may be in the middle of writing the bar


@contextmanager
def ended_by_ctrl_c(keeps: bool) -> Iterator[Interrupt]:
    """Let Ctrl-C end the fits within: with the best model so far, or at once if none is kept.

    Signals come to the main thread only: elsewhere, nothing changes.
    """
    interrupt = Interrupt(keeps)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        with listening(interrupt):
            yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
