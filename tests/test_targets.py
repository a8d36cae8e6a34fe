"""One model file, read on several CPUs: the predictions are the same."""

import os
import pickle
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mixed import labels, table

import polyadic
from polyadic import CPClassifier, CPRegressor, maps

# Environment variables that compile for another CPU, or without vector types. Empty features mean
# those of the named CPU, not of this machine. `make test-target` tries further ones.
TARGETS = {
    "generic": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "plain": {"POLYADIC_SIMD": "0"},
}
SAME = 1e-6  # of the largest prediction; seen on znver3: 2e-7 for raw, 5e-7 for probabilities
FAST = {"max_iter": 5, "random_state": 0}

PREDICT = """
import sys

import numpy as np
from test_targets import predict

np.savez(sys.argv[2], **predict(sys.argv[1]))
"""


def numeric(n=400):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    X[rng.random(X.shape) < 0.05] = np.nan
    known = np.nan_to_num(X)
    return X, known[:, 0] * known[:, 1] + np.sin(3 * known[:, 2]) + 10


def fitted():
    """Return models by name, and their tables: maps of every kind, missing values, categories."""
    X, y = numeric()
    frame, target = table(400)
    each = [maps.Polynomial(6), maps.BSpline(), maps.Fourier(), maps.Chebyshev(), maps.Hat(), "hat"]
    return {
        "regression": (CPRegressor(**FAST).fit(X, y), X),
        "several outputs": (CPRegressor(**FAST).fit(X, np.stack([y, y**2], axis=1)), X),
        "maps": (CPRegressor(maps=dict(enumerate(each)), init="linear", **FAST).fit(X, y), X),
        "polynomials": (CPRegressor(maps="polynomial", init="linear", **FAST).fit(X, y), X),
        "categories": (CPRegressor(**FAST).fit(frame, target), frame),
        "two classes": (CPClassifier(**FAST).fit(frame, labels(target, 2)), frame),
        "many classes": (CPClassifier(**FAST).fit(frame, labels(target, 3)), frame),
    }


def predict(folder):
    """Return what the models in this folder predict for their tables."""
    found = {}
    for name, X in pickle.loads((Path(folder) / "tables.pickle").read_bytes()).items():
        model = polyadic.load(Path(folder) / name)
        found[f"{name}, raw"] = model.raw(X)
        if hasattr(model, "predict_proba"):
            found[f"{name}, probabilities"] = model.predict_proba(X)
    return found


def predict_in_process(folder, target):
    """Predict in a process that compiles for another target, and caches what it compiled."""
    cache = Path(os.environ["NUMBA_CACHE_DIR"])
    if target != "plain":  # whose kernels have names of their own: test_simd.py uses them too
        cache /= f"target-{target}"
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    own = {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": path, **TARGETS[target]}
    command = [sys.executable, "-c", PREDICT, folder, folder / f"{target}.npz"]
    subprocess.run(command, env=os.environ | own, check=True)
    return dict(np.load(folder / f"{target}.npz"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models = fitted()
    for name, (model, _) in models.items():
        model.save(folder / name)
    tables = {name: X for name, (_, X) in models.items()}
    (folder / "tables.pickle").write_bytes(pickle.dumps(tables))
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    return predict(folder)


@pytest.mark.parametrize("target", TARGETS)
def test_a_saved_model_predicts_the_same_on_every_target(folder, expected, target):
    found = predict_in_process(folder, target)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        scale = np.abs(values).max()
        np.testing.assert_allclose(found[name], values, rtol=0, atol=SAME * scale, err_msg=name)


@pytest.mark.parametrize("host", ["znver3", "haswell", "generic"])
@pytest.mark.parametrize("has_avx2", [False, True])
def test_ci_compiles_for_every_other_target_in_turn(host, has_avx2):
    place = Path(__file__).parents[1] / ".ci" / "target.py"
    other_target = runpy.run_path(str(place))["other_target"]
    chosen = {other_target(turn, host, has_avx2) for turn in range(6)}
    possible = {"generic", "plain"} | ({"haswell"} if has_avx2 else set())
    assert chosen == possible - {host}
