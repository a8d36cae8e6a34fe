"""Compile kernels before they are called, in several processes, and tell the user about it.

The first fit on a machine compiles the kernels that it needs; later fits read them from Numba's
cache. Numba compiles one kernel at a time in a process, so helper processes do a part of the work:
each takes the next kernel that no other has claimed, and writes it to the cache for all.
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
from polyadic.kernels.jit import is_shipped
from polyadic.training.progress import Progress

# Chosen by hand: a process takes half a second to start, and a fifth one finds little left to do.
_MOST_PROCESSES = 4
# Missing kernels that this process compiles before a helper has started; chosen by hand.
_FEW_KERNELS = 2

_SIDE_BY_SIDE = "polyadic:compile"  # the event of several kernels compiled in several processes

_HELPER_TIMEOUT = 120.0  # seconds that a helper may take longer than this process; chosen by hand

# What a helper process runs: which kernels, and where claims are written, come as arguments.
_HELPER = "from polyadic.training.compiling import compile_as_helper; compile_as_helper()"


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_cached(kernel: Any) -> bool:
    """Tell whether Numba has written this kernel to its cache, in whatever form.

    A wrong answer costs time only: a kernel that turns out to be missing is compiled when it is
    called.
    """
    if kernel.signatures:
        return True
    function = kernel.py_func
    name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}"
    line = function.__code__.co_firstlineno
    if kernel.stats.cache_path is None:  # nothing can be kept: helpers could not pass it on
        return True
    return any(Path(kernel.stats.cache_path).glob(f"{name}-{line}.*.nbi"))


def compile_example(example: Example) -> None:
    """Compile one kernel in one form, or load it from the cache."""
    kernel, args = example
    kernel.compile(tuple(typeof(arg) for arg in args))  # type: ignore[attr-defined]


def _compile_unclaimed(
    work: Sequence[Example], claims: Path | None, done: Callable[[int], None]
) -> None:
    """Compile the kernels that no other process has claimed; `done` is told how many are claimed.

    A kernel is claimed in all its forms: Numba keeps one index of them, and would lose entries if
    two processes wrote to it. Without a folder for claims, this process compiles all.
    """
    forms: dict[Any, list[Example]] = {}
    for example in work:
        forms.setdefault(example[0], []).append(example)
    for number, own in enumerate(forms.values()):
        if claims is not None and not _claim(claims / str(number)):
            continue
        for example in own:
            compile_example(example)
        done(number + 1 if claims is None else len(os.listdir(claims)))


def _claim(path: Path) -> bool:
    """Tell whether this process is the first to claim a kernel."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@contextmanager
def _folder_of_claims() -> Iterator[Path | None]:
    """Make a folder for claims; None where no temporary folder can be written to."""
    try:
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    except OSError:
        yield None
        return
    with folder as path:
        yield Path(path)


def compile_as_helper() -> None:
    """Compile kernels for another process, which passes them as arguments: see `compile_all`."""
    needs, claims = sys.argv[1:]
    _compile_unclaimed(_examples_for(json.loads(needs)), Path(claims), lambda _: None)


def _examples_for(needs: Sequence[Any] | None) -> list[Example]:
    """Return the kernels for `needs`: a Needs, or its copy from JSON; None: all kernels."""
    if needs is None:
        return list(examples.all_examples())
    form, *others = needs
    return list(examples.fit_examples(Needs(Form(*form), *others)))


def _may_start_helpers() -> bool:
    """Tell whether this is a main process, with a Python that can be started again.

    The processes of a parallel job start none: they compile side by side already. Helpers could not
    pass on what they compile where the cache came with the package, and is only read.
    """
    name = Path(sys.executable or "").stem.lower()
    alone = multiprocessing.current_process().name == "MainProcess" and not is_shipped()
    return alone and name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def _helpers(n_helpers: int, needs: Needs | None, claims: Path | None) -> list[subprocess.Popen]:
    """Start helper processes; where that is not possible, this process does all the work."""
    started: list[subprocess.Popen] = []
    if claims is None or not _may_start_helpers():
        return started
    command = [sys.executable, "-c", _HELPER, json.dumps(needs), str(claims)]
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
    """Compile the kernels for `needs`, or all; `done` is told how many are claimed so far.

    A kernel that a helper claims and does not compile is compiled when it is called.
    """
    n_processes = min(_usable_cores(), _MOST_PROCESSES) if n_processes is None else n_processes
    with _folder_of_claims() as claims:
        helpers = _helpers(n_processes - 1, needs, claims)
        try:
            _compile_unclaimed(_examples_for(needs), claims, done)
            for helper in helpers:
                helper.wait(_HELPER_TIMEOUT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()


_prepared: set[Needs] = set()


def prepare_fit(needs: Needs) -> None:
    """Compile the kernels of a fit ahead, where several are missing and there are several cores."""
    if needs in _prepared:
        return
    needed = {kernel for kernel, _ in examples.fit_examples(needs)}
    missing = [kernel for kernel in needed if not _is_cached(kernel)]
    if len(missing) > _FEW_KERNELS and _usable_cores() > 1:
        with event.trigger_event(_SIDE_BY_SIDE):
            compile_all(needs)
    _prepared.add(needs)


def warmup(n_jobs: int | None = None, verbose: bool = True) -> None:
    """Compile every kernel now, so that no later fit has to.

    For container images, and for anyone who would rather wait now than later: kernels are compiled
    once per kind of CPU and installed version, and kept in Numba's cache beside the package, or in
    the folder that NUMBA_CACHE_DIR names. An image that is built on one CPU and runs on another
    must be compiled for both: set NUMBA_CPU_NAME=generic when building and when running. Kernels
    for losses of your own (docs/losses.md) are compiled by the first fit with one.

    Parameters
    ----------
    n_jobs : int, optional
        Number of processes. By default one per core, four at most.
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
    bar = Progress("Compiling kernels", len({kernel for kernel, _ in _examples_for(None)}))
    try:
        compile_all(None, n_jobs, bar.reach)
    finally:
        bar.close()


class _Stopwatch(event.Listener):
    """Tell the user when the first kernel is compiled, and add up the time that all take."""

    def __init__(self, say: Callable[[str], None]):
        self.say, self.seconds = say, 0.0
        self._depth, self._begin = 0, 0.0

    def on_start(self, event: Any) -> None:
        """Start with the outermost kernel: the kernels that it calls are compiled within it."""
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
    """Tell the user on standard error that kernels are compiled, and how long it took.

    Only where someone is likely to read it: with `verbose`, or on a terminal.
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
