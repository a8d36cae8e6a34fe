"""Ctrl-C ends a fit soon, on any number of threads, and leaves the estimator as it was."""

import json
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from polyadic import CPClassifier, CPRegressor
from polyadic.data.features import encode
from polyadic.data.rows import CodedRows
from polyadic.losses import SquaredError
from polyadic.maps import Hat
from polyadic.objective import prior
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers import adam
from polyadic.solvers.contract import Deadline, FitStopped
from polyadic.training import forest
from polyadic.training.forest import Forest, bin_maps

# Seconds from the signal to the error: two of each core that works, which does not depend on what
# else a machine does; the clock may show more. The fits would take many minutes.
MOST_CPU_SECONDS, MOST_SECONDS = 2.0, 10.0

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
    usual = {"max_iter": "auto", "n_members": "auto", "rank": "auto", "early_stopping": True}
    cases += [(2, 0.3, usual)]  # it takes seconds, whatever the machine

    def interrupt():
        sent.extend([time.perf_counter(), time.process_time()])
        os.kill(os.getpid(), signal.SIGINT)

    for n_jobs, delay, options in cases:
        model.set_params(n_members=4, n_jobs=n_jobs).set_params(**options)
        timer, sent = threading.Timer(delay, interrupt), []
        timer.start()
        try:
            model.fit(X, y)
            told = "finished"
        except KeyboardInterrupt:
            told = "stopped"
        now = [time.perf_counter(), time.process_time()]
        timer.join()
        seconds = [after - before for after, before in zip(now, sent)]
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
    for n_jobs, told, (seconds, cpu_seconds), same, n_threads in found:
        assert told == "stopped", n_jobs
        assert seconds < MOST_SECONDS, (n_jobs, seconds)
        assert cpu_seconds < MOST_CPU_SECONDS * n_jobs, (n_jobs, cpu_seconds)
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


def test_an_additive_model_ends_within_one_column():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    maps = [Hat(6).fit(x) for x in X.T]
    rows = Rows(encode(maps, list(X.T)), X[:, :1] + X[:, 1:2], np.ones(300))
    problem = Problem(rows, None, SquaredError(), np.zeros(1), [m.degrees for m in maps])
    asked = []

    def out_of_time():
        asked.append(True)
        return len(asked) > 2

    shapes = [prior.precision(m) for m in maps]
    found = prior.fit_additive(problem, shapes, out_of_time)
    assert sum(bool(np.any(effect.values)) for effect in found.effects) == 2
    assert np.all(np.isfinite(found.after.slope))


def test_a_thread_of_a_stopped_fit_leaves_between_two_rounds_of_trees(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    rows = CodedRows(list(X.T), X[:, :1] * X[:, 1:2], np.ones(200))
    maps = bin_maps([Hat(6).fit(x) for x in X.T], rows)
    grown = [Forest(SquaredError(), maps, rows, np.zeros(1), seed=1) for _ in range(3)]
    grown[0].grow(5)
    monkeypatch.setattr(forest, "_MOST_WORK", 1)  # one round at a time
    grown[1].grow(5)
    assert np.array_equal(grown[0].raw, grown[1].raw)
    bins = np.array([m.encode(x)[0][:, 0] for m, x in zip(maps, rows.columns)])
    found = [np.zeros((200, 1)), np.zeros((200, 1))]
    for one, raw in zip(grown, found):
        one.first(5).add_bins(raw, bins)
    assert np.array_equal(*found)
    deadline, looks = Deadline(np.inf), []

    def look():
        looks.append(True)
        if len(looks) == 3:
            deadline.stop()
        deadline.leave_if_stopped()
        return False

    with pytest.raises(FitStopped):
        grown[2].grow(5, look)
    assert len(looks) == 3


def test_rounds_of_trees_that_time_cuts_short_are_not_kept(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    rows = CodedRows(list(X.T), X[:, :1] * X[:, 1:2], np.ones(200))
    maps = bin_maps([Hat(6).fit(x) for x in X.T], rows)
    one = Forest(SquaredError(), maps, rows, np.zeros(1), seed=1)
    monkeypatch.setattr(forest, "_MOST_WORK", 1)  # one round at a time
    answers = iter([False] * 8 + [True])
    watched = forest.HeldOutLoss(SquaredError(), one, rows)
    watched.grow(20, over=lambda: next(answers))
    assert len(watched.losses) == 1
    assert len(one.first(5)) == 5


@pytest.mark.parametrize("kind", ["numbers", "two classes", "three classes"])
def test_a_fit_whose_time_is_over_at_once_is_still_a_model(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 10))  # more than eight columns are searched, 1,000 rows have trees
    y = X[:, 0] * X[:, 1] + X[:, 2]
    if kind == "numbers":
        model = CPRegressor(max_time=1e-3, random_state=0).fit(X, y)
    else:
        y = np.digitize(y, [0.0] if kind == "two classes" else [-0.5, 0.5])
        model = CPClassifier(max_time=1e-3, random_state=0).fit(X, y)
    assert np.all(np.isfinite(model.raw(X)))


def test_max_time_is_kept_whatever_max_iter():
    X = np.random.default_rng(0).normal(size=(60, 2))
    options = {"n_members": 1, "rank": 2, "tol": 0.0, "early_stopping": False, "random_state": 0}
    for solver in ("adam", "auto"):
        model = CPRegressor(**options, solver=solver, trees=False, max_iter=2, max_time=1.0)
        model.fit(X, X[:, 0])  # compiles what is not in the cache
        start = time.perf_counter()
        model.set_params(max_iter=10**12).fit(X, X[:, 0])
        assert time.perf_counter() - start < 20.0
