"""Compile kernels ahead, side by side, and tell who waits for it.

The first fit on a machine compiles the kernels that it needs; later ones read them from Numba's
cache. Numba compiles one kernel at a time in a process, so other processes take their share: each
takes the next kernel that no other has claimed, and leaves it in the cache, for all to read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba import typeof
from numba.core import event

from polyadic.kernels import examples
from polyadic.kernels.examples import Example, Form, Plan
from polyadic.progress import Progress

_MOST_PROCESSES = 4  # a process takes half a second to start; more of them find little left to do
_FEW = 4  # missing kernels that are compiled sooner than another process starts

_SIDE_BY_SIDE = "polyadic:compile"  # the event of several kernels compiled in several processes

# What a helper process runs: which kernels, and where claims are written, come as arguments.
_HELPER = "from polyadic.kernels.compiling import help_out; help_out()"


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
    """Compile what no other process has claimed; tell how many are claimed in all."""
    for number, example in enumerate(work):
        try:
            (claims / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        compile_example(example)
        done(len(os.listdir(claims)))


def help_out() -> None:
    """Take part in what another process compiles: see `compile_all`."""
    group, claims = sys.argv[1:3]
    _take_turns(list(_GROUPS[group](*sys.argv[3:])), Path(claims), lambda _: None)


def _all() -> Iterator[Example]:
    return examples.all_examples()


def _fit(*flags: str) -> Iterator[Example]:
    """Yield the kernels of the plan that `_flags` wrote down."""
    dense, additive, order, *others = (flag == "True" for flag in flags)
    return examples.fit_examples(Plan(Form(dense, additive, order), *others))


def _flags(plan: Plan) -> list[str]:
    return [str(flag) for flag in (*plan.form, *plan[1:])]


_GROUPS: dict[str, Callable[..., Iterator[Example]]] = {"all": _all, "fit": _fit}


def _helpers(n_helpers: int, group: str, claims: str, flags: Sequence[str]) -> list:
    """Start processes; where that is not possible, this one does all the work."""
    if not sys.executable or getattr(sys, "frozen", False):
        return []
    command = [sys.executable, "-c", _HELPER, group, claims, *flags]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        return [
            subprocess.Popen(command, env=environment, **quiet)  # type: ignore[call-overload]
            for _ in range(n_helpers)
        ]
    except OSError:
        return []


def compile_all(
    group: str,
    flags: Sequence[str] = (),
    n_processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> None:
    """Compile a group of kernels; `done` is told how many are claimed so far.

    What a helper cannot compile, or leaves when it fails, is compiled when it is called.
    """
    work = list(_GROUPS[group](*flags))
    n_processes = min(_usable_cores(), _MOST_PROCESSES) if n_processes is None else n_processes
    with tempfile.TemporaryDirectory() as claims:
        helpers = _helpers(n_processes - 1, group, claims, flags)
        try:
            _take_turns(work, Path(claims), done)
            for helper in helpers:
                helper.wait()
        except BaseException:
            for helper in helpers:
                helper.kill()
                helper.wait()
            raise


_ready: set[Plan] = set()


def prepare_fit(plan: Plan) -> None:
    """Compile what a fit needs, where most of it is missing and there are cores to share it."""
    if plan in _ready:
        return
    _ready.add(plan)
    needed = {kernel for kernel, _ in examples.fit_examples(plan)}
    missing = [kernel for kernel in needed if not _is_cached(kernel)]
    if len(missing) > _FEW and _usable_cores() > 1:
        with event.trigger_event(_SIDE_BY_SIDE):
            compile_all("fit", _flags(plan))


def warmup(n_jobs: int | None = None, verbose: bool = True) -> None:
    """Compile every kernel ahead, so that no later fit has to.

    For images of containers, and for anyone who would rather wait now than later: kernels are
    compiled once per machine and installed version, and kept in Numba's cache beside the package,
    or in the folder that NUMBA_CACHE_DIR names.

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
    if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs < 1):
        raise ValueError(f"n_jobs must be a whole number of at least 1, or None, got {n_jobs!r}.")
    if not verbose:
        compile_all("all", n_processes=n_jobs)
        return
    bar = Progress(sum(1 for _ in _all()), "Compiling kernels")
    compile_all("all", n_processes=n_jobs, done=bar.reach)
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
    if not (verbose or sys.stderr.isatty()):
        yield
        return

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

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
