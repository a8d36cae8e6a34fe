"""Faults from outside: killed, interrupted, no space, no memory. Nothing is lost or half written.

    python torture/faults.py --minutes 30

Every case is a child process, forked from one that has compiled what it needs. It fits, also with
checkpoints and block by block from files, saves, loads, predicts files, or writes a report or an
ONNX graph, while one of these happens: SIGKILL or SIGINT at a random moment, files of limited size
(as on a full disk), a folder in which nothing can be written, or limited memory. Afterwards the old
file or the new one is there, whole; a fit goes on to the bits of one that was not disturbed; the
same step once more leaves nothing behind; no thread is left.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
import traceback

from common import pick, run
from steps import READ_ONLY, STEPS, material, prepare

# What a step may raise where it has too little of something.
LACKING = (MemoryError, OSError)
LONGEST = 120.0  # seconds of a child
FAULTS = ["SIGKILL", "SIGKILL", "SIGINT", "SIGINT", "disk full", "read only", "no memory"]


def limited(rng, fault):
    """Set the limit of this process that makes a fault."""
    if fault == "disk full":
        most = int(rng.integers(1, 30_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    elif fault == "no memory":
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        most = now + int(rng.integers(-100_000_000, 20_000_000))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def child(rng, work, fault, told):
    """Do the work with a fault; tell what happened by the status: 0 done, 3 lacking, 4 stopped."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        limited(rng, fault)
        work()
        status = 0
    except LACKING:
        status = 3
    except RuntimeError as error:
        status = 3 if "start new thread" in str(error) else 1
        if status == 1:
            told.write_text(traceback.format_exc())
    except KeyboardInterrupt:
        end = time.monotonic() + 5.0  # a thread that was just being started ends by itself
        while threading.active_count() > 1 and time.monotonic() < end:
            time.sleep(0.01)
        status = 4 if threading.active_count() == 1 else 5
    except BaseException:
        told.write_text(traceback.format_exc())
    finally:
        os._exit(status)


def wait(pid) -> int:
    """Wait for a child, and return its status, negative for a signal."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"the child did not end within {LONGEST:.0f} s")


def drawn(rng):
    """Return the name of a step, and a fault that it can meet."""
    name, fault = pick(rng, list(STEPS)), pick(rng, FAULTS)
    step = STEPS[name]
    if fault in ("disk full", "read only") and (not step.writes or name == "load"):
        fault = "SIGINT"
    if fault == "no memory" and not step.few_threads:
        fault = "SIGKILL"
    return name, fault


def case(rng, folder) -> str:
    prepare()
    material()[2].save(folder / "model")
    name, fault = drawn(rng)
    step, told = STEPS[name], folder / "told"
    # Python waits for ever for a thread that finds no memory while it starts: one thread then.
    n_jobs = 1 if fault == "no memory" else 2
    place = READ_ONLY if fault == "read only" else folder
    delay = float(rng.exponential(0.2))
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        child(rng, lambda: step.work(place, n_jobs), fault, told)
    if fault.startswith("SIG"):
        time.sleep(delay)
        os.kill(pid, getattr(signal, fault))
        sent = time.monotonic()
    status = wait(pid)
    if fault == "SIGINT":
        assert time.monotonic() - sent < 10.0, "Ctrl-C took more than ten seconds"
    allowed = {"SIGKILL": {0, -9}, "SIGINT": {0, 4, -2}, "read only": {3}}.get(fault, {0, 3})
    problem = told.read_text() if told.exists() else ""
    assert status in allowed, f"{name} with {fault} ended with status {status}. {problem}"
    step.check(folder)
    return f"{name}, {fault}: {'done' if status == 0 else 'stopped'}"


if __name__ == "__main__":
    run("faults", case, block=5)
