"""Kernels compiled ahead of a fit: all that it needs, by several processes, announced once."""

import json
import os
import subprocess
import sys

import numpy as np
import parts
import pytest

import polyadic
from polyadic import CPClassifier, CPRegressor, maps
from polyadic.kernels import cp, examples
from polyadic.kernels.examples import MIXTURE, Form, Needs
from polyadic.training import compiling, members

X = np.random.default_rng(0).normal(size=(120, 3))
Y = X[:, 0] * X[:, 1] + X[:, 2]
FAST = {"random_state": 0, "n_members": 1, "rank": 3}
# A fit, and the needs from which its kernels are compiled ahead.
FITS = {
    "regression": (lambda: CPRegressor(**FAST).fit(X, Y), Needs(members=False)),
    "members": (lambda: CPRegressor(max_iter=2, random_state=0).fit(X, Y), Needs()),
    "polynomials": (
        lambda: CPRegressor(maps=maps.Polynomial(3), **FAST).fit(X, Y),
        Needs(Form(dense=True), members=False),
    ),
    "order": (
        lambda: CPRegressor(order_alpha=0.1, max_iter=2, solver="adam", **FAST).fit(X, Y),
        Needs(Form(order=True), least_squares=False, members=False),
    ),
    "two classes": (
        lambda: CPClassifier(**FAST).fit(X, Y > 0),
        Needs(adam=False, prior=True, members=False),
    ),
    "trees": (
        lambda: CPRegressor(max_iter=2, random_state=0, trees=True).fit(X, Y),
        Needs(trees=True),
    ),
    "mixture": (lambda: CPClassifier(random_state=0).fit(X, Y > 0), MIXTURE),
    "own loss": (
        lambda: CPRegressor(loss=parts.Expectile(), max_iter=2, solver="als+adam", **FAST).fit(
            X, Y
        ),
        Needs(Form(own_loss=True), members=False),
    ),
    "three classes": (
        lambda: CPClassifier(max_iter=2, **FAST).fit(X, np.digitize(Y, [-1, 1])),
        Needs(least_squares=False, members=False),
    ),
}


def forms(kernels):
    return {(k.py_func.__qualname__, str(s)) for k in kernels for s in k.signatures}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_calls_no_kernel_in_a_form_that_was_not_compiled_ahead(name, monkeypatch):
    fit, needs = FITS[name]
    asked = []
    monkeypatch.setattr(members, "prepare_fit", asked.append)
    work = list(examples.fit_examples(needs))
    for example in work:
        compiling.compile_example(example)
    kernels = {kernel for kernel, _ in work}
    before = forms(kernels)
    fit()
    assert asked == [needs]
    assert forms(kernels) == before


# Needs that are compiled in a few seconds: contraction, losses, and hats in two forms.
SMALL = Needs(least_squares=False, adam=False)
_SHARED = """
import os, time
from polyadic.training import compiling, members
from polyadic.kernels.examples import Needs
own, original, compile_unclaimed = [], compiling.compile_example, compiling._compile_unclaimed

def wait_for_help(work, claims, done):
    end = time.time() + 60
    while not os.listdir(claims) and time.time() < end:
        time.sleep(0.01)
    compile_unclaimed(work, claims, done)

compiling._compile_unclaimed = wait_for_help
compiling.compile_example = lambda example: (own.append(example), original(example))
needs = Needs(least_squares=False, adam=False)
compiling.compile_all(needs, n_processes=2)
work = compiling._examples_for(needs)
entries = [name for _, _, names in os.walk(os.environ["NUMBA_CACHE_DIR"]) for name in names]
forms = sum(name.endswith(".nbc") for name in entries)
print(len(own), len(work), forms, all(compiling._is_cached(kernel) for kernel, _ in work))
"""


def test_processes_share_the_work_and_leave_it_in_one_cache(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", _SHARED], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    own, work, forms, cached = run.stdout.split()
    assert int(own) < int(work) == int(forms)
    assert cached == "True"


@pytest.mark.parametrize("executable", ["", "/nowhere/python", "/nowhere/uwsgi"])
def test_without_a_helper_process_everything_is_compiled_here(executable, monkeypatch):
    done = []
    monkeypatch.setattr(sys, "executable", executable)
    compiling.compile_all(SMALL, n_processes=2, done=done.append)
    n_kernels = len({kernel for kernel, _ in compiling._examples_for(SMALL)})
    assert done == list(range(1, n_kernels + 1))


def test_without_a_temporary_folder_everything_is_compiled_here(monkeypatch):
    def refuse(*args, **options):
        raise FileNotFoundError(2, "No usable temporary directory found")

    done = []
    monkeypatch.setattr(compiling.tempfile, "TemporaryDirectory", refuse)
    compiling.compile_all(SMALL, n_processes=2, done=done.append)
    n_kernels = len({kernel for kernel, _ in compiling._examples_for(SMALL)})
    assert done == list(range(1, n_kernels + 1))


def test_no_helper_is_started_for_a_cache_that_is_only_read(monkeypatch):
    """What a helper compiles there is kept nowhere."""
    started = []
    monkeypatch.setattr(compiling, "is_shipped", lambda: True)
    monkeypatch.setattr(compiling.subprocess, "Popen", lambda *args, **_: started.append(args))
    compiling.compile_all(SMALL, n_processes=2)
    assert started == []


def test_a_helper_process_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(compiling, "_HELPER", "import time; time.sleep(1000)")
    monkeypatch.setattr(compiling, "_HELPER_TIMEOUT", 0.1)
    started = []
    helpers = compiling._helpers
    monkeypatch.setattr(
        compiling, "_helpers", lambda *args: started.extend(helpers(*args)) or started
    )
    compiling.compile_all(SMALL, n_processes=2)
    assert [helper.poll() is not None for helper in started] == [True]


def test_needs_sent_as_json_give_a_helper_the_same_work():
    for needs in (Needs(), SMALL, Needs(Form(dense=True, order=True), members=False)):
        sent = compiling._examples_for(json.loads(json.dumps(needs)))
        wanted = list(examples.fit_examples(needs))
        assert [kernel for kernel, _ in sent] == [kernel for kernel, _ in wanted]
        assert [len(args) for _, args in sent] == [len(args) for _, args in wanted]


def test_warmup_shows_its_progress(monkeypatch, capsys):
    monkeypatch.setattr(compiling, "_examples_for", lambda _: list(examples.loss_examples()))
    polyadic.warmup(n_jobs=1)
    assert "Compiling kernels [####" in capsys.readouterr().err
    polyadic.warmup(n_jobs=np.int64(1), verbose=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("n_jobs", [0, -1, 1.5, "two", True])
def test_warmup_refuses_an_invalid_number_of_processes(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be a whole number of at least 1, or None"):
        polyadic.warmup(n_jobs=n_jobs)


def test_kernels_that_are_ready_are_not_compiled_again(monkeypatch):
    monkeypatch.setattr(compiling, "_prepared", set())
    needs = Needs(prior=True)
    for example in examples.fit_examples(needs):
        compiling.compile_example(example)
    monkeypatch.setattr(compiling, "compile_all", lambda *_: pytest.fail("nothing is missing"))
    compiling.prepare_fit(needs)


# ---- announcements ------------------------------------------------------------------------------

_ANNOUNCED = """
import numpy as np
from numba import njit
from polyadic.training import compiling, members
with compiling.announced({verbose}):
    for _ in range(2):
        njit(lambda x: x + 1)(1)
with compiling.announced({verbose}):
    pass
"""


@pytest.mark.parametrize("verbose", [True, False])
def test_a_compilation_is_announced_once_with_its_time_and_only_on_request(verbose):
    code = _ANNOUNCED.format(verbose=verbose)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = run.stderr.splitlines()
    if not verbose:
        assert lines == []
        return
    assert lines[0] == "Compiling kernels, once on this machine ..."
    assert lines[1].startswith("Kernels were compiled in ")
    assert len(lines) == 2
    assert float(lines[1].split()[4]) < 60


def test_an_inner_kernel_refuses_to_be_called_from_python():
    with pytest.raises(TypeError, match="is_dense is called by other kernels only; mark it @jit"):
        cp.is_dense(None, 0)


@pytest.mark.parametrize("verbose", [True, False])
def test_announcing_works_without_a_console(verbose, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with compiling.announced(verbose):
        pass


NOTHING_CAN_BE_WRITTEN = """
import warnings
import numba.core.caching as caching
# As where neither the package nor HOME can be written to.
(getattr(caching, "CacheImpl", None) or caching._CacheImpl)._locator_classes = []
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    import numpy as np
    import polyadic
    from polyadic.kernels import encode
    from polyadic.maps import Polynomial
    from polyadic.training.compiling import prepare_fit
    from polyadic.kernels.examples import Needs
    prepare_fit(Needs())
    value = Polynomial(4, normalize=True).fit(np.arange(5.0)).dense(np.arange(5.0))
texts = [str(w.message) for w in found if "cannot be kept" in str(w.message)]
print(len(texts), np.allclose((value**2).sum(axis=1), 1.0))
"""


def test_where_nothing_can_be_written_kernels_are_compiled_without_a_cache():
    run = subprocess.run(
        [sys.executable, "-c", NOTHING_CAN_BE_WRITTEN], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["1", "True"]
