"""Compile kernels ahead, side by side, and tell who waits for it.

The first fit on a machine compiles the kernels that it needs; later ones read them from Numba's
cache. Numba compiles one kernel at a time in a process, so other processes take their share: each
takes the next kernel that no other has claimed, and leaves it in the cache, for all to read.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numba import typeof
from numba.core import event

from polyadic.kernels import examples
from polyadic.kernels.examples import Example, Form, Needs
from polyadic.training.progress import Progress

_MOST_PROCESSES = 4  # a process takes half a second to start; more of them find little left to do
_FEW = 2  # missing kernels that are compiled sooner than another process starts

_SIDE_BY_SIDE = "polyadic:compile"  # the event of several kernels compiled in several processes

_LONGEST = 120.0  # seconds that a helper may take longer than this process

# What a helper process runs: which kernels, and where claims are written, come as arguments.
_HELPER = "from polyadic.training.compiling import help_out; help_out()"


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_cached(kernel: Any) -> bool:
    """Tell whether Numba has written this kernel to its cache, in whatever form.

    Only what is worth doing depends on it: what turns out to be missing is compiled when it is
    called.
    """
    if kernel.signatures:
        return True
    function = kernel.py_func
    name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}"
    line = function.__code__.co_firstlineno
    return any(Path(kernel.stats.cache_path).glob(f"{name}-{line}.*.nbi"))


def compile_example(example: Example) -> None:
    """Compile one kernel in one form, or load it from the cache."""
    kernel, args = example
    kernel.compile(tuple(typeof(arg) for arg in args))  # type: ignore[attr-defined]


def _take_turns(work: Sequence[Example], claims: Path, done: Callable[[int], None]) -> None:
    """Compile the kernels that no other process has claimed; tell how many are claimed in all.

    A kernel is claimed in all its forms: Numba keeps one index of them, and would lose entries if
    two processes wrote to it.
    """
    forms: dict[Any, list[Example]] = {}
    for example in work:
        forms.setdefault(example[0], []).append(example)
    for number, own in enumerate(forms.values()):
        try:
            (claims / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        for example in own:
            compile_example(example)
        done(len(os.listdir(claims)))


def help_out() -> None:
    """Take part in what another process compiles: see `compile_all`."""
    needs, claims = sys.argv[1:]
    _take_turns(_work(json.loads(needs)), Path(claims), lambda _: None)


def _work(needs: Sequence[Any] | None) -> list[Example]:
    """Return the kernels of a needs, of which helpers get a copy in JSON; None: all kernels."""
    if needs is None:
        return list(examples.all_examples())
    form, *others = needs
    return list(examples.fit_examples(Needs(Form(*form), *others)))


def _may_start_helpers() -> bool:
    """Tell whether this is a process of its own, with a Python that can be started again.

    Not in one of the processes of a parallel job, which would compile side by side as it is.
    """
    name = Path(sys.executable or "").stem.lower()
    alone = multiprocessing.current_process().name == "MainProcess"
    return alone and name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def _helpers(n_helpers: int, needs: Needs | None, claims: str) -> list[subprocess.Popen]:
    """Start processes; where that is not possible, this one does all the work."""
    started: list[subprocess.Popen] = []
    if not _may_start_helpers():
        return started
    command = [sys.executable, "-c", _HELPER, json.dumps(needs), claims]
    path = os.pathsep.join(p for p in sys.path if p)
    # Nothing is imported from the folder that the user happens to be in.
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    none = subprocess.DEVNULL
    for _ in range(n_helpers):
        try:
            helper = subprocess.Popen(
                command, env=environment, stdin=none, stdout=none, stderr=none
            )
        except OSError:
            break
        started.append(helper)
    return started


def compile_all(
    needs: Needs | None,
    n_processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> None:
    """Compile the kernels of a needs, or all; `done` is told how many are claimed so far.

    What a helper cannot compile, or leaves when it fails, is compiled when it is called.
    """
    n_processes = min(_usable_cores(), _MOST_PROCESSES) if n_processes is None else n_processes
    with tempfile.TemporaryDirectory() as claims:
        helpers = _helpers(n_processes - 1, needs, claims)
        try:
            _take_turns(_work(needs), Path(claims), done)
            for helper in helpers:
                helper.wait(_LONGEST)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()


_ready: set[Needs] = set()


def prepare_fit(needs: Needs) -> None:
    """Compile what a fit needs, where most of it is missing and there are cores to share it."""
    if needs in _ready:
        return
    needed = {kernel for kernel, _ in examples.fit_examples(needs)}
    missing = [kernel for kernel in needed if not _is_cached(kernel)]
    if len(missing) > _FEW and _usable_cores() > 1:
        with event.trigger_event(_SIDE_BY_SIDE):
            compile_all(needs)
    _ready.add(needs)


def warmup(n_jobs: int | None = None, verbose: bool = True) -> None:
    """Compile every kernel ahead, so that no later fit has to.

    For images of containers, and for anyone who would rather wait now than later: kernels are
    compiled once per kind of CPU and installed version, and kept in Numba's cache beside the
    package, or in the folder that NUMBA_CACHE_DIR names. An image that is built on one CPU and runs
    on another needs a common one: set NUMBA_CPU_NAME=generic for both. Kernels for losses of your
    own (docs/losses.md) are left to the first fit with one.

    Parameters
    ----------
    n_jobs : int, optional
        Processes to compile in. By default one per core, four at most.
    verbose : bool
        Whether to show a progress bar.

    Examples
    --------
    >>> import polyadic
    >>> polyadic.warmup(verbose=False)  # doctest: +SKIP
    """
    whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if n_jobs is not None and not (whole and n_jobs >= 1):
        raise ValueError(f"n_jobs must be a whole number of at least 1, or None, got {n_jobs!r}.")
    if not verbose:
        compile_all(None, n_jobs)
        return
    bar = Progress(len({kernel for kernel, _ in _work(None)}), "Compiling kernels")
    try:
        compile_all(None, n_jobs, bar.reach)
    finally:
        bar.close()


class _Stopwatch(event.Listener):
    """Say when the first kernel is compiled, and add up how long it takes."""

    def __init__(self, say: Callable[[str], None]):
        self.say, self.seconds = say, 0.0
        self._depth, self._begin = 0, 0.0

    def on_start(self, event: Any) -> None:
        """Start with the outermost kernel: those that it calls are compiled within."""
        if self._depth == 0:
            self._begin = time.perf_counter()
            if not self.seconds:
                self.say("Compiling kernels, once on this machine ...")
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Stop with the outermost kernel."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._begin


@contextmanager
def announced(verbose: bool) -> Iterator[None]:
    """Say on standard error that kernels are compiled, and how long it took.

    Only where someone is likely to read it: on request, or on a terminal.
    """
    stream = sys.stderr  # None in a process without a console
    if stream is None or not (verbose or stream.isatty()):
        yield
        return

    def say(text: str) -> None:
        stream.write(text + "\n")
        stream.flush()

    watch = _Stopwatch(say)
    try:
        with (
            event.install_listener("numba:compile", watch),
            event.install_listener(_SIDE_BY_SIDE, watch),
        ):
            yield
    finally:
        if watch.seconds:
            say(f"Kernels were compiled in {watch.seconds:.1f} s; later fits find them ready.")
