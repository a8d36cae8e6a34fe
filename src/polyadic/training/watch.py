"""What a fit tells those who watch it: which steps it takes, and the loss after every epoch.

A step is the fit of one pilot or member, or a part of the growth of trees. Steps are taken side by
side, in threads; those who watch are told of one thing at a time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from polyadic.training.merge import Member
from polyadic.training.plan import Work

GetMember = Callable[[], Member]
Key = tuple[str, str]  # a strategy or the trees, and a kind of step


class Step:
    """One step of a fit.

    Attributes
    ----------
    key : (str, str)
        What it belongs to, a strategy or the trees, and its kind.
    phase : str
        Such as "pilot 3 of 7", "member 2 of 5" or "trees".
    n_epochs : int
        How many epochs it takes at most.
    """

    def __init__(self, key: Key, phase: str, n_epochs: int):
        self.key, self.phase, self.n_epochs = key, phase, n_epochs


class Listener(Protocol):
    """Someone who watches a fit."""

    def start(self, work: dict[Key, Work], most_steps: int) -> None:
        """Hear how much work is expected of each part and kind, and how many steps at most."""

    def expect(self, key: Key, n_epochs: int) -> None:
        """Hear that there are more epochs than was said before, or fewer."""

    def begin(self, step: Step) -> None:
        """Hear that a step begins."""

    def epoch(self, step: Step, loss: float, held_out: bool, member: GetMember | None) -> bool:
        """Hear the loss after an epoch, of held-out rows or others; return whether to end the step.

        `member` makes the model as it is now; None where there is none.
        """

    def end(self, step: Step, member: GetMember | None) -> bool:
        """Hear that a step has ended; return whether to end the whole fit with what there is."""

    def close(self) -> None:
        """Hear that the fit is done, or has failed."""


_OF_EVERY_FIT: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let someone watch every fit that this thread starts, as one who may end it from outside."""
    token = _OF_EVERY_FIT.set((*_OF_EVERY_FIT.get(), listener))
    try:
        yield
    finally:
        _OF_EVERY_FIT.reset(token)


class Watch:
    """Pass on what a fit tells to all listeners: its own, and those of every fit.

    Attributes
    ----------
    stopped : bool
        Whether a listener has asked to end the fit, or has failed: it goes on as if its time was
        over.
    """

    def __init__(self, listeners: Sequence[Listener] = ()):
        self.listeners = [*listeners, *_OF_EVERY_FIT.get()]
        self.stopped = False
        self._has_parts = False
        self._begun: Counter[Key] = Counter()  # steps of each part and kind
        self._expected: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def start(self, work: dict[Key, Work], most_steps: int) -> None:
        """Tell how much work is expected, by strategy and kind, and how many steps at most."""
        self._expected.update({key: own.n_steps for key, own in work.items()})
        self._has_parts = len({part for part, _ in work}) > 1
        self._tell(lambda one: one.start(work, most_steps))

    def expect(self, part: str, kind: str, n_steps: int, n_epochs: int) -> None:
        """Tell that there are more steps and epochs than was said before, or fewer."""
        self._expected[part, kind] += n_steps
        self._tell(lambda one: one.expect((part, kind), n_epochs))

    def skip(self, part: str, kind: str, n_steps: int) -> None:
        """Count steps that need not be taken, as those of members that are pilots."""
        self._begun[part, kind] += n_steps

    @contextmanager
    def step(self, part: str, kind: str, n_epochs: int) -> Iterator[Progressing]:
        """Tell that a step begins, and that it ends."""
        running = Progressing(self, Step((part, kind), self._phase(part, kind), n_epochs))
        self._tell(lambda one: one.begin(running.step))
        yield running
        asked = self._tell(lambda one: one.end(running.step, running.member))
        self.stopped |= any(asked)

    def _phase(self, part: str, kind: str) -> str:
        """Count a step, and return its name."""
        if part == kind:  # trees, which are not counted
            return kind
        with self._lock:
            self._begun[part, kind] += 1
            number = self._begun[part, kind]
        phase = f"{kind} {number} of {max(number, self._expected[part, kind])}"
        return f"{part}: {phase}" if self._has_parts else phase

    def close(self) -> None:
        """Tell that the fit is done, or has failed."""
        self._tell(lambda one: one.close())

    def _tell(self, what: Callable[[Listener], Any]) -> list[Any]:
        with self._lock:
            try:
                return [what(one) for one in self.listeners]
            except BaseException:
                self.stopped = True  # the other threads need not go on
                raise


class Progressing:
    """A step that is being taken, and its model as it is now."""

    def __init__(self, watch: Watch, step: Step):
        self.watch, self.step = watch, step
        self.member: GetMember | None = None
        self.cut = False  # whether it was asked to end before its time

    def epoch(self, loss: float, held_out: bool) -> bool:
        """Tell the loss after an epoch; return whether the step is to end."""
        asked = self.watch._tell(lambda one: one.epoch(self.step, loss, held_out, self.member))
        self.cut |= self.watch.stopped or any(asked)
        return self.cut

    def reporter(self, held_out: bool, make: Callable[[Any], Member]) -> Callable | None:
        """Return the function that a solver calls after each epoch; None if nobody listens.

        `make` makes a member of cores.
        """
        if not self.watch.listeners:
            return None

        def report(epoch: int, loss: float, cores: Callable[[], Any]) -> bool:
            self.member = lambda: make(cores())
            return self.epoch(loss, held_out)

        return report
