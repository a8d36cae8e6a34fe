"""Ctrl-C ends a fit soon, on any number of threads, and leaves the estimator as it was."""

import json
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from polyadic import CPRegressor
from polyadic.solvers import adam

# Seconds from the signal to the error. Two are wanted; a machine with other work needs more. The
# fits would take many minutes.
MOST_SECONDS = 10.0

CHILD = textwrap.dedent(
    """
    import json, os, pickle, signal, sys, threading, time, warnings
    import numpy as np
    from polyadic import CPRegressor

    warnings.simplefilter("ignore")
    # A shell that starts programs in the background lets them ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 8))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.1 * rng.normal(size=len(X))
    fast = {"rank": 4, "max_iter": 1, "random_state": 0}
    model = CPRegressor(n_members=2, n_jobs=2, **fast).fit(X, y)
    CPRegressor(max_time=0.5, random_state=0).fit(X, y)  # compiles what is not in the cache
    before = pickle.dumps({k: v for k, v in vars(model).items() if k.endswith("_")})
    long = {"max_iter": 20_000, "tol": 0.0, "early_stopping": False}
    cases = [(1, 0.3, long), (2, 0.05, long), (2, 1.0, long), (4, 1.0, long)]
    cases += [(2, 1.5, {"max_iter": "auto", "n_members": "auto", "rank": "auto"})]
    for n_jobs, delay, options in cases:
        model.set_params(n_members=4, n_jobs=n_jobs).set_params(**options)
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        start = time.perf_counter()
        timer.start()
        try:
            model.fit(X, y)
            told = "finished"
        except KeyboardInterrupt:
            told = "stopped"
        seconds = time.perf_counter() - start - delay
        timer.join()
        same = before == pickle.dumps({k: v for k, v in vars(model).items() if k.endswith("_")})
        print(json.dumps([n_jobs, told, seconds, same, threading.active_count()]), flush=True)
    """
)


def test_ctrl_c_stops_a_fit_on_any_number_of_threads(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=300, check=False
    )
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(found) == 5, run.stderr[-2000:]
    for n_jobs, told, seconds, same, n_threads in found:
        assert told == "stopped", n_jobs
        assert seconds < MOST_SECONDS, (n_jobs, seconds)
        assert same, "the fitted attributes have changed"
        assert n_threads == 1, "a thread is left"


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_max_time_is_kept_with_the_best_model_so_far(n_jobs):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 6))
    y = X[:, 0] * X[:, 1] + X[:, 2]
    model = CPRegressor(
        n_members=3, n_jobs=n_jobs, rank=4, max_iter=20_000, tol=0.0, max_time=2.0, random_state=0
    )
    start = time.perf_counter()
    model.fit(X, y)
    assert time.perf_counter() - start < 2.0 + MOST_SECONDS
    assert model.score(X, y) > 0.5


def test_long_epochs_are_cut_where_they_can_be_stopped(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    fast = {"n_members": 1, "rank": 4, "max_iter": 3, "random_state": 0, "batch_size": 32}
    whole = CPRegressor(**fast).fit(X, X[:, 0] * X[:, 1])
    monkeypatch.setattr(adam, "_MOST_WORK", 32 * 6 * 8 * 3)
    parts = CPRegressor(**fast).fit(X, X[:, 0] * X[:, 1])
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-4, atol=1e-4)


def test_max_time_is_kept_whatever_max_iter():
    X = np.random.default_rng(0).normal(size=(60, 2))
    options = {"n_members": 1, "rank": 2, "tol": 0.0, "early_stopping": False, "random_state": 0}
    for solver in ("adam", "auto"):
        model = CPRegressor(**options, solver=solver, trees=False, max_iter=2, max_time=1.0)
        model.fit(X, X[:, 0])  # compiles what is not in the cache
        start = time.perf_counter()
        model.set_params(max_iter=10**12).fit(X, X[:, 0])
        assert time.perf_counter() - start < 20.0
