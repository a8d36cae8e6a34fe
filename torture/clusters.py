"""Faults of a Ray cluster: a worker or the driver is killed, or the driver is interrupted.

    python torture/clusters.py --minutes 30

A local cluster of two CPUs lives as long as the process that runs the cases. A case is a fit by
`polyadic.scale.ray`, in a process of its own, the driver. At a random moment a process of Ray that
works for the fit gets SIGKILL, or the driver gets SIGKILL or SIGINT. A fit that has lost a worker
must go on. Otherwise the same call is made once more, by a new driver or by the same one. The model
is then that of a fit that nobody disturbed, as docs/scale.md promises it: bit for bit, or up to
rounding. No CPU stays reserved, and no process, thread, state, row or folder of the fit is left.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from functools import cache

import numpy as np
from common import pick, run, same_bits
from drivers import SHAPES, SOON, keep_cluster, processes, serve, works_for_fit
from steps import rows_on_disk

LONGEST = 120.0  # seconds of a fit
# What becomes of a fit that is not done before it is disturbed.
STOPPED = {"worker killed": "done", "driver killed": "killed", "driver interrupted": "stopped"}
FAULTS = ["worker killed", *STOPPED]
FORK = multiprocessing.get_context("fork")  # children have imported and compiled everything


def quietly(work, *args) -> None:
    """Do work without what Ray writes about every process that dies: errors come by the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    work(*args)


class Child:
    """A process that is forked from this one, and ends with it."""

    def __init__(self, work, *args):
        self.pipe, other = FORK.Pipe()
        sys.stdout.flush()
        self.process = FORK.Process(target=quietly, args=(work, other, *args), daemon=True)
        self.process.start()
        other.close()

    def hear(self, seconds: float = LONGEST):
        """Return what the process says next."""
        assert self.pipe.poll(seconds), f"no answer within {seconds:.0f} s"
        return self.pipe.recv()

    def start(self, *call) -> None:
        """Let a driver start a fit."""
        self.pipe.send(call)
        assert self.hear() == "started"

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@cache
def address() -> str:
    """Start the cluster, which lives as long as this process, and return its address."""
    return Child(keep_cluster).hear()


DRIVERS: list[Child] = []  # at most one, which lives until it is killed


def driver() -> Child:
    if not DRIVERS:
        rows_on_disk()  # the files belong to this process
        DRIVERS.append(Child(serve, address()))
    return DRIVERS[0]


def kill_driver() -> None:
    DRIVERS.pop().kill()


@cache
def undisturbed(name: str) -> tuple[np.ndarray, float]:
    """Return what a fit predicts that nobody disturbs, and its seconds."""
    expected = SHAPES[name].fit_alone() if SHAPES[name].exact else None
    for _ in range(2):  # processes of Ray that are there already make the second one faster
        with tempfile.TemporaryDirectory() as temporary:
            driver().start(name, None, temporary)
            start = time.monotonic()
            status, found = driver().hear()
            seconds = time.monotonic() - start
            assert status == "done", found
    return found if expected is None else expected, seconds


def strike(fault: str, choice: float) -> None:
    """Do the harm."""
    if fault == "driver killed":
        kill_driver()
    elif fault == "driver interrupted":
        os.kill(driver().process.pid, signal.SIGINT)
    else:
        while not driver().pipe.poll(0.005):  # the fit may be done before a worker is found
            found = sorted(pid for pid, name in processes().items() if works_for_fit(name))
            if found:
                os.kill(found[int(choice * len(found))], signal.SIGKILL)
                break


def case(rng, folder) -> str:
    try:
        return disturb(rng, folder)
    except BaseException:
        if DRIVERS:  # it may be busy, and disturb the next case
            kill_driver()
        raise


def disturb(rng, folder) -> str:
    """Disturb a fit, make the same call again where it was stopped, and check what is left."""
    name, fault = pick(rng, list(SHAPES)), pick(rng, FAULTS)
    moment, choice, waits = rng.random(), rng.random(), rng.random() < 0.5
    (folder / "temporary").mkdir()
    call = (name, folder / "storage" if rng.random() < 0.7 else None, folder / "temporary")
    expected, seconds = undisturbed(name)
    driver().start(*call)
    time.sleep(moment * seconds)
    strike(fault, choice)
    status, found = "killed", None
    if fault != "driver killed":
        status, found = driver().hear(SOON if fault == "driver interrupted" else LONGEST)
    assert status in ("done", STOPPED[fault]), found
    check_whole(folder)
    if status != "done":
        if waits:  # otherwise the next fit meets what Ray is still ending
            check_left()
        driver().start(*call)
        again, found = driver().hear()
        assert again == "done", found
    check_same(SHAPES[name], found, expected)
    check_left()
    left = [path for path in folder.rglob("*") if path.is_file()]
    left += (folder / "temporary").iterdir()
    assert not left, f"left behind: {left}"
    return f"{name}, {fault}: {'went on' if status == 'done' else 'again'}"


def check_whole(folder) -> None:
    """Check that every state that was kept can be read."""
    for path in folder.rglob("*.npz"):
        try:
            with np.load(path) as arrays:
                dict(arrays)
        except FileNotFoundError:  # replaced or removed by a process that still ends
            continue


def check_left() -> None:
    driver().pipe.send(None)
    left = driver().hear()
    assert not left, f"left in the cluster or the driver: {left}"


def check_same(shape, found: np.ndarray, expected: np.ndarray) -> None:
    if shape.exact:
        assert same_bits(found, expected), "other bits than on one machine"
    else:
        worst = np.abs(found - expected).max() / expected.std()
        assert worst < 1e-4, f"predictions differ by {worst:.1e} of their deviation"


if __name__ == "__main__":
    run("clusters", case, block=2)
