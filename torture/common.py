"""What the parts of the campaign share: numbered cases, worker processes, a limit of time.

A part is a function of a case: it is given a random generator that depends on the seed and on the
number of the case alone, and an empty folder in memory, and returns one word for what happened. Any
error that it raises is a failure. Worker processes take blocks of cases. A case during which a
worker dies, or does not come to an end, is a failure too, and a new worker goes on after it.
`record.py` keeps what was run.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from record import Block, Record, code_of

Case = Callable[[Any, Path], str]  # of a generator, or of a number
Numbered = Callable[[int, Path], str]

# One thread per worker for BLAS and torch: threads that wait for each other measure the machine.
ONE_THREAD = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")
LONGEST_BLOCK = 3600.0  # seconds; chosen by hand, above the soak of half an hour
MOST_FAILURES = 100  # of a run, which then ends
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a folder that lies in memory


def run(
    part: str,
    case: Case,
    block: int,
    options: Callable | None = None,
    total: Callable[[], int] | None = None,
) -> None:
    """Run a part from the command line; leave with status 1 where a case has failed.

    Parameters
    ----------
    part : str
        The name of the file.
    case : function
    block : int
        Cases that a worker takes at a time: a few seconds' work.
    options : function, optional
        Adds arguments of its own to the parser, and returns a function that is told their values.
    total : function, optional
        Returns the number of cases, of a part that is a list of cases: a case is then given its
        number in place of a generator, and the run ends with the last one.
    """
    parser = argparse.ArgumentParser(description=f"The part {part!r} of the campaign.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30.0, help="stop after about this time")
    parser.add_argument("--cases", type=int, help="stop after so many cases of the seed in all")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--case", type=int, help="run this case alone, to repeat a failure")
    parser.add_argument("--trial", action="store_true", help="from case 0, and keep no record")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    shared = vars(parser.parse_args([])).keys()
    tell = options(parser) if options is not None else lambda given: None
    given = parser.parse_args()
    tell(given)
    own = {name: value for name, value in vars(given).items() if name not in shared}
    warnings.simplefilter("ignore")
    start = drawn if total is None else numbered
    if given.case is not None:
        print(one_case(start(case, given.seed), given.case))
    elif given.worker is not None:
        work(start(case, given.seed), given.seed, Path(given.worker))
    else:
        if total is not None:
            given.cases = min(total(), given.cases or total())
        Boss(part, given, block, own).run()


def drawn(case: Case, seed: int) -> Numbered:
    """Return a function of the number of a case, of which it makes a generator."""
    return lambda number, folder: case(np.random.default_rng((seed, number)), folder)


def numbered(case: Case, seed: int) -> Numbered:
    """Return a case that takes its number itself."""
    return case


def one_case(case: Numbered, number: int) -> str:
    """Run one case, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="torture-", dir=MEMORY))
    try:
        return case(number, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- a worker ------------------------------------------------------------------------------------


def work(case: Numbered, seed: int, place: Path) -> None:
    """Take ranges of cases from standard input; write a line of JSON for each when it is done.

    `place` is a folder. The number of the case that is running is written to a file in it.
    """
    with (place / "running").open("r+b") as file, mmap.mmap(file.fileno(), 8) as running:
        out, folder = os.fdopen(os.dup(1), "w"), place / "case"
        for text in sys.stdin:
            first, last = map(int, text.split())
            done = run_block(case, Block(seed, first, last, ""), folder, running)
            out.write(json.dumps(asdict(done)) + "\n")
            out.flush()


def run_block(case: Numbered, block: Block, folder: Path, running) -> Block:
    """Run the cases of a block, and fill in what became of them."""
    start, cpu, counts = time.monotonic(), cpu_seconds(), Counter()
    for number in range(block.first, block.last):
        running[:] = number.to_bytes(8, "little")
        if not folder.is_dir() or any(os.scandir(folder)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        try:
            counts[case(number, folder)] += 1
        except Exception:
            block.failures.append((number, traceback.format_exc()))
    block.counts = dict(counts)
    block.seconds, block.cpu = time.monotonic() - start, cpu_seconds() - cpu
    return block


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    return sum(os.times()[:4])


# ---- the process that hands out blocks -----------------------------------------------------------


class Boss:
    """Hands out blocks of cases to workers, and records what they tell."""

    def __init__(self, part: str, given: argparse.Namespace, size: int, own: dict[str, Any]):
        self.part, self.given, self.size = part, given, size
        # Of the part, and not of all: a case is not the same without them.
        self.options = [text for name in own for text in (f"--{name}", str(own[name]))]
        self.record, self.code = Record(part, kept=not given.trial), code_of(part)
        self.own: list[Block] = []  # of this run
        self.first = self.next = self.record.next_case(given.seed)
        self.left: deque[tuple[int, int]] = deque()  # of blocks in which a worker has died
        self.end = time.monotonic() + 60.0 * given.minutes
        self.lock = threading.Lock()

    def run(self) -> None:
        """Run until the time or the cases are over; print two lines and leave."""
        threads = [threading.Thread(target=self.feed) for _ in range(self.given.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("this run: " + self.record.line(self.code, self.own))
        if not self.given.trial:
            print("all runs: " + self.record.line(self.code), flush=True)
        sys.exit(1 if self.record.n_failed(self.code) else 0)

    def take(self) -> tuple[int, int] | None:
        """Return the next range of cases, None at the end."""
        with self.lock:
            if self.left:
                return self.left.popleft()
            most = self.given.cases
            if sum(len(block.failures) for block in self.own) > MOST_FAILURES:
                return None
            if time.monotonic() > self.end or (most is not None and self.next >= most):
                return None
            first, self.next = self.next, self.next + self.size
            if most is not None:
                self.next = min(self.next, most)
            return first, self.next

    def feed(self) -> None:
        """Give blocks to a worker, and start another where it dies."""
        worker = None
        while (cases := self.take()) is not None:
            worker = worker or Worker(self.given.seed)
            done = worker.run(*cases)
            if done is None:  # it died, or had to be killed, in the case that it had noted
                number = worker.running()
                worker.stop()
                if not cases[0] <= number < cases[1]:
                    raise RuntimeError(f"The worker of {self.part!r} could not be started.")
                text = f"the worker ended in this case, with status {worker.process.returncode}"
                done = Block(self.given.seed, number, number + 1, "", failures=[(number, text)])
                again = [(cases[0], number), (number + 1, cases[1])]
                self.left.extend(own for own in again if own[0] < own[1])
                worker = None
            done.code, done.options = self.code, self.options
            with self.lock:
                self.own.append(done)
                self.record.add(done)
        if worker is not None:
            worker.stop()


class Worker:
    """A process that runs blocks of cases."""

    def __init__(self, seed: int):
        self.place = Path(tempfile.mkdtemp(prefix="torture-", dir=MEMORY))
        (self.place / "running").write_bytes(b"\xff" * 8)  # no case
        own = [text for text in sys.argv[1:] if text != "--trial"]
        self.process = subprocess.Popen(
            [sys.executable, sys.argv[0], *own, "--worker", str(self.place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD},
        )

    def run(self, first: int, last: int) -> Block | None:
        """Run a block; None where the worker dies, or takes far too long."""
        try:
            self.process.stdin.write(f"{first} {last}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        watch = threading.Timer(LONGEST_BLOCK, self.process.kill)
        watch.start()
        try:
            for text in self.process.stdout:
                if text.startswith("{"):
                    return Block(**json.loads(text))
                print(text, end="", flush=True)
        finally:
            watch.cancel()
        return None

    def running(self) -> int:
        """Return the case that the worker has noted."""
        return int.from_bytes((self.place / "running").read_bytes(), "little")

    def stop(self) -> None:
        """End the process, and remove its folder."""
        self.process.stdin.close()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.place, ignore_errors=True)


# ---- for cases -----------------------------------------------------------------------------------


def pick(rng: np.random.Generator, items):
    """Return one of the items."""
    items = items if isinstance(items, list | tuple) else list(items)
    return items[int(rng.integers(len(items)))]


def same_bits(first, second) -> bool:
    """Tell whether two arrays have the same type, shape and bits; of objects, whether all equal."""
    first, second = np.asarray(first), np.asarray(second)
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.dtype == object:
        return bool(np.all(first == second))
    return first.tobytes() == second.tobytes()
