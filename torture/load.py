"""Load: processes and threads that predict and fit at once. No error, no drift, the same bits.

    python torture/load.py --minutes 10 --processes 8 --threads 4

A case lasts `--seconds`: child processes, forked from one that has fitted the models, each with
threads that predict all models over and over, and one that fits; every result must have the bits of
the first. The memory of each child after its first round must not grow by more than a little. A
long soak is one case: `--seconds 1800 --minutes 0.1`.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import threading
import time
from functools import cache

import numpy as np
from common import run, same_bits

from polyadic import CPClassifier, CPRegressor

LOAD = {"processes": 2, "threads": 8, "seconds": 5.0}  # unless the command line says otherwise
MOST_GROWTH = 30e6  # bytes; what threads and caches of memory take


def memory() -> float:
    """Return the bytes of memory that this process holds now."""
    with open("/proc/self/statm") as file:
        return float(int(file.read().split()[1]) * resource.getpagesize())


@cache
def material():
    """Return a table, fitted models, and what they predict."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    y = X[:, 0] * X[:, 1] + X[:, 2]
    options = {"rank": 6, "max_iter": 2, "random_state": 0}
    models = [
        CPRegressor(n_members=2, n_jobs=1, **options).fit(X, y),
        CPRegressor(n_members=1, trees=True, **options).fit(X, y),
        CPClassifier(n_members=1, **options).fit(X, np.arange(2000) % 3),
        CPRegressor(n_members=1, maps="polynomial", **options).fit(X, y),
    ]
    return X, y, models, [model.raw(X) for model in models]


def fitted():
    X, y, _, _ = material()
    return CPRegressor(n_members=2, n_jobs=2, rank=6, max_iter=2, random_state=0).fit(X, y).raw(X)


def predict_until(end, number, failures, counts):
    """Predict all models, in rows of any number, until the end."""
    X, _, models, want = material()
    rng = np.random.default_rng(number)
    while time.monotonic() < end and not failures:
        k, n = int(rng.integers(len(models))), int(rng.integers(1, 400))
        try:
            if not same_bits(models[k].raw(X[:n]), want[k][:n]):
                failures.append(f"model {k} predicts other bits for {n} rows")
        except Exception as error:
            failures.append(repr(error))
        counts[number] += 1


def busy(seconds) -> tuple[list[str], int, float]:
    """Let threads predict and one fit; return failures, predictions and the growth of memory."""
    want = material()[3]
    failures, counts = [], [0] * LOAD["threads"]
    predict_until(time.monotonic() + 0.1 * seconds, 0, failures, counts)
    before, end = memory(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=predict_until, args=(end, k, failures, counts))
        for k in range(LOAD["threads"])
    ]
    for thread in threads:
        thread.start()
    while time.monotonic() < end and not failures:
        if not same_bits(fitted(), want[0]):
            failures.append("a fit beside predictions has other bits")
    for thread in threads:
        thread.join()
    growth = memory() - before
    if growth > MOST_GROWTH + 3e6 * LOAD["threads"]:
        failures.append(f"memory has grown by {growth / 1e6:.0f} MB")
    return failures, sum(counts), growth


def case(rng, folder) -> str:
    material()
    sys.stdout.flush()
    pids = []
    for k in range(LOAD["processes"]):
        pid = os.fork()
        if pid == 0:
            try:
                (folder / f"{k}").write_bytes(pickle.dumps(busy(LOAD["seconds"])))
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    found = [pickle.loads((folder / f"{k}").read_bytes()) for k in range(LOAD["processes"])]
    failures = [text for one in found for text in one[0]]
    assert not failures, failures[:3]
    n_predicted = sum(one[1] for one in found)
    print(f"    {n_predicted:,} predictions, memory {max(one[2] for one in found) / 1e6:+.1f} MB")
    return "{processes} processes of {threads} threads, {seconds:g} s".format(**LOAD)


def options(parser):
    for name, value in LOAD.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return lambda given: LOAD.update({name: getattr(given, name) for name in LOAD})


if __name__ == "__main__":
    run("load", case, block=1, options=options)
