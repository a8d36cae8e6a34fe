"""A progress bar on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import TextIO

import numpy as np

from polyadic.training.plan import Work
from polyadic.training.watch import GetMember, Key, Step

# Characters of the bar itself. In a terminal that is narrower than the whole line may become, the
# bar is short and so are the texts; there, a line that wraps could not be drawn over.
_WIDTH, _SHORT_WIDTH = 30, 10
_WIDE = 150
_PAUSE = 0.1  # seconds between two drawings at least
_TINY = 1e-9  # seconds that a unit of work takes at least
_NO_KEY: Key = ("", "")  # of work that has no parts
_FIRST_SHARE = 0.05  # from which the time left is told: before, it would be a guess


class Progress:
    """Show which share of the work is done, the phase, the lowest loss, and the time left.

    Work is counted in epochs, each by the time that those of its strategy and kind took so far, or
    may take by what the others took.

    The share never falls. Where there is more work than was expected, what is left of the bar
    stands for all that is left of the work, so that the bar goes on more slowly.

    On a terminal the bar is redrawn in place ten times a second at most; elsewhere only the last
    line is written.
    """

    def __init__(self, title: str, total: int = 0, stream: TextIO | None = None):
        self.title = title
        self.stream = sys.stderr if stream is None else stream
        self.share = 0.0
        self.losses = {False: np.inf, True: np.inf}  # the lowest, of held-out rows or not
        # By strategy and kind: epochs that are left, their relative costs, those that are done, and
        # the seconds that these took, in all threads together.
        self._left = Counter({_NO_KEY: total})
        self._costs: dict[Key, float] = {}
        self._done: Counter[Key] = Counter()
        self._seconds: dict[Key, float] = {}
        self._running: dict[Step, tuple[int, float]] = {}  # epochs so far, and time of the last
        self._phase = ""
        self._start = time.perf_counter()
        self._drawn = 0.0
        self._width = 0  # of what was drawn last

    # ---- what it is told ------------------------------------------------------------------------

    def start(self, work: dict[Key, Work], most_steps: int) -> None:
        """Expect this much work."""
        self._left = Counter({key: own.n_epochs for key, own in work.items()})
        self._costs = {key: own.cost for key, own in work.items()}

    def expect(self, key: Key, n_epochs: int) -> None:
        """Expect more epochs, or fewer; what is shown does not go back."""
        self._left[key] = max(0, self._left[key] + n_epochs)

    def begin(self, step: Step) -> None:
        """Show the phase of a step."""
        self._running[step] = 0, time.perf_counter()
        self._phase = step.phase
        self.draw()

    def epoch(self, step: Step, loss: float, held_out: bool, member: GetMember | None) -> bool:
        """Count one epoch."""
        count, before = self._running[step]
        now = time.perf_counter()
        self._running[step] = count + 1, now
        self._done[step.key] += 1
        self._seconds[step.key] = self._seconds.get(step.key, 0.0) + now - before
        self.losses[held_out] = min(self.losses[held_out], loss)  # NaN is not less
        self.advance(1, step.key)
        return False

    def end(self, step: Step, member: GetMember | None) -> bool:
        """Count the epochs that a step did not need."""
        count, _ = self._running.pop(step)
        if self._running:
            self._phase = next(reversed(self._running)).phase
        self.advance(step.n_epochs - count, step.key)
        return False

    def reach(self, done: int) -> None:
        """Show that `done` units of work, all of one kind, are done."""
        units, self._done[_NO_KEY] = done - self._done[_NO_KEY], done
        self._seconds[_NO_KEY] = time.perf_counter() - self._start
        self.advance(units, _NO_KEY)

    def advance(self, units: int, key: Key) -> None:
        """Count units of work as a share of what is left, beside one unit for the end."""
        if units > 0:
            cost, left = self.cost(key), self.seconds_left()
            left += cost * max(units - self._left[key], 0)  # more than was expected
            self.share += (1.0 - self.share) * cost * units / (left + cost)
            self._left[key] = max(self._left[key] - units, 0)
        self.draw()

    def cost(self, key: Key) -> float:
        """Return about how many seconds a unit of work takes.

        Measured, or by the relative costs of what was measured: of the same strategy if possible.
        """
        if self._done[key]:
            return max(self._seconds[key] / self._done[key], _TINY)
        for part in ({key[0]}, {name for name, _ in self._done}):
            known = [k for k in self._seconds if k[0] in part and self._done[k]]
            spent = sum(self._seconds[k] for k in known)
            if known:
                units = sum(self._done[k] * self._costs.get(k, 1.0) for k in known)
                return max(self._costs.get(key, 1.0) * spent / units, _TINY)
        return self._costs.get(key, 1.0)

    def seconds_left(self) -> float:
        """Return how long the work that is left would take in one thread."""
        return sum(count * self.cost(key) for key, count in self._left.items())

    # ---- what it shows --------------------------------------------------------------------------

    def draw(self) -> None:
        """Redraw the bar, if it was not drawn a moment ago."""
        now = time.perf_counter()
        if self.stream.isatty() and now - self._drawn >= _PAUSE:
            self._drawn = now
            self.write("")

    def write(self, end: str) -> None:
        """Write the bar over what was drawn before."""
        line, start = self.line(), "\r" if self.stream.isatty() else ""
        self.stream.write(start + line.ljust(self._width if start else 0) + end)
        self.stream.flush()
        self._width = len(line)

    def line(self) -> str:
        """Return the bar as text; of the steps that run side by side, the last has the phase."""
        width = self._columns()
        if width >= _WIDE:
            parts = [f"{self.title} {self._bar(_WIDTH)}", self._phase, self._loss(), self._time()]
            return "  ".join(part for part in parts if part)
        for phase in (self._phase, self._phase.split(": ")[-1]):  # without the strategy
            parts = [self._bar(_SHORT_WIDTH), phase or self.title]
            parts += [self._loss().replace(" loss", "", 1), self._time(True)]
            line = "  ".join(part for part in parts if part)
            if len(line) < width:
                break
        return line[: width - 1]

    def _bar(self, width: int) -> str:
        """Return the bar itself, and the share in per cent."""
        filled = int(self.share * width)
        return f"[{'#' * filled}{'-' * (width - filled)}] {int(100 * self.share):3d}%"

    def _columns(self) -> int:
        """Return the width of the terminal; where it is not known, there is no limit."""
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or _WIDE
        except (OSError, ValueError, AttributeError):
            return _WIDE

    def _loss(self) -> str:
        """Return the lowest loss so far as text, of held-out rows where there are any."""
        for held_out, name in ((True, "held-out loss"), (False, "loss")):
            if np.isfinite(self.losses[held_out]):
                return f"{name} {self.losses[held_out]:.4g}"
        return ""

    def _time(self, short: bool = False) -> str:
        """Return the time so far as text, and what is left if as many threads go on as before.

        In a short text, what is left alone.
        """
        seconds = time.perf_counter() - self._start
        busy = sum(self._seconds.values())
        if self.share >= 1.0 or self.share < _FIRST_SHARE or busy <= 0.0:
            return f"{seconds:.1f} s"
        left = f"{self.seconds_left() * seconds / busy:.0f} s left"
        return left if short else f"{seconds:.1f} s, about {left}"

    def close(self) -> None:
        """Draw the finished bar."""
        self.share, self._phase = 1.0, ""
        self.write("\n")
