"""Kernels compiled ahead: all that a fit needs, by several processes, and said once."""

import os
import subprocess
import sys

import numpy as np
import pytest
from parts import all_kernels

import polyadic
from polyadic import CPClassifier, CPRegressor, maps
from polyadic.kernels import compiling, cp, examples
from polyadic.kernels.examples import Plan

X = np.random.default_rng(0).normal(size=(120, 3))
Y = X[:, 0] * X[:, 1] + X[:, 2]
FEW = {"random_state": 0, "n_members": 1, "rank": 3}
FITS = {
    "regression": lambda: CPRegressor(**FEW).fit(X, Y),
    "polynomials": lambda: CPRegressor(maps=maps.Polynomial(3), **FEW).fit(X, Y),
    "order": lambda: CPRegressor(order_alpha=0.1, max_epochs=2, **FEW).fit(X, Y),
    "two classes": lambda: CPClassifier(random_state=0).fit(X, Y > 0),
    "three classes": lambda: CPClassifier(max_epochs=2, **FEW).fit(X, np.digitize(Y, [-1, 1])),
}


def signatures():
    return {(k.py_func.__qualname__, str(s)) for k in all_kernels() for s in k.signatures}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_meets_no_kernel_in_a_form_that_was_not_compiled_ahead(name):
    for example in examples.all_examples():
        compiling.compile_example(example)
    before = signatures()
    FITS[name]().predict(X)
    assert signatures() == before


# A group that is compiled in a few seconds: contraction, losses, and the kernels of a prior.
_SMALL = ["False"] * 5 + ["True", "False"]
_SHARED = f"""
import os
from pathlib import Path
from polyadic.kernels import compiling
own = []
original = compiling.compile_example
compiling.compile_example = lambda example: (own.append(example), original(example))
compiling.compile_all("fit", {_SMALL!r}, n_processes=2)
work = list(compiling._GROUPS["fit"](*{_SMALL!r}))
print(len(own), len(work), all(compiling._is_cached(kernel) for kernel, _ in work))
"""


def test_processes_share_the_work_and_leave_it_in_one_cache(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", _SHARED], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    own, work, cached = run.stdout.split()
    assert 0 < int(own) < int(work)
    assert cached == "True"


@pytest.mark.parametrize("executable", ["", "/nowhere/python", sys.executable + "-missing"])
def test_without_a_helper_process_everything_is_compiled_here(executable, monkeypatch):
    done = []
    monkeypatch.setattr(sys, "executable", executable)
    compiling.compile_all("fit", _SMALL, n_processes=2, done=done.append)
    n_kernels = len(list(compiling._GROUPS["fit"](*_SMALL)))
    assert done == list(range(1, n_kernels + 1))


def test_warmup_shows_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setitem(compiling._GROUPS, "all", examples.loss_examples)
    monkeypatch.setattr(compiling, "_all", examples.loss_examples)
    polyadic.warmup(n_jobs=1)
    assert "Compiling kernels [####" in capsys.readouterr().err
    polyadic.warmup(n_jobs=1, verbose=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("n_jobs", [0, -1, 1.5, "two"])
def test_warmup_refuses_an_odd_number_of_processes(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be a whole number of at least 1, or None"):
        polyadic.warmup(n_jobs=n_jobs)


def test_what_is_ready_is_not_compiled_again(monkeypatch):
    monkeypatch.setattr(compiling, "_ready", set())
    plan = Plan(prior=True)
    for example in examples.fit_examples(plan):
        compiling.compile_example(example)
    monkeypatch.setattr(compiling, "compile_all", lambda *_: pytest.fail("nothing is missing"))
    compiling.prepare_fit(plan)


# ---- what is said -------------------------------------------------------------------------------

_TOLD = """
import numpy as np
from numba import njit
from polyadic.kernels import compiling
with compiling.announced({verbose}):
    for _ in range(2):
        njit(lambda x: x + 1)(1)
with compiling.announced({verbose}):
    pass
"""


@pytest.mark.parametrize("verbose", [True, False])
def test_a_compilation_is_told_once_with_its_time_and_only_where_asked(verbose):
    code = _TOLD.format(verbose=verbose)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = run.stderr.splitlines()
    if not verbose:
        assert lines == []
        return
    assert lines[0] == "Compiling kernels, once on this machine ..."
    assert lines[1].startswith("Kernels were compiled in ")
    assert len(lines) == 2
    assert float(lines[1].split()[4]) < 60


def test_a_kernel_for_kernels_refuses_to_be_called_from_python():
    with pytest.raises(TypeError, match="is_dense is called by other kernels only; mark it @jit"):
        cp.is_dense(None, 0)
