"""A container that ships compiled kernels, in a folder that is read-only, compiles nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polyadic
from polyadic import CPRegressor

PACKAGE = Path(polyadic.__file__).parent
RECIPE = Path(__file__).resolve().parents[1] / "examples" / "container" / "Dockerfile"

# As in the recipe, but only the kernels that predictions need: all of them take minutes.
BUILD = """
import polyadic
from polyadic.kernels import examples
from polyadic.training import compiling

def work(_):
    form = examples.Form()
    yield from examples.hats_examples(form)
    yield from examples.hat_examples()

compiling._examples_for = lambda needs: list(work(needs))
polyadic.warmup(n_jobs=1, verbose=False)
"""
SERVE = """
import os, sys
if os.geteuid() == 0:  # may write anywhere: let it find out that it may not
    os.access = lambda *args, **more: False
from numba.core import event
recorder = event.RecordingListener()
event.register("numba:compile", recorder)
import numpy as np
import polyadic
found = polyadic.load(sys.argv[1]).predict(np.load(sys.argv[2]))
assert polyadic.__file__.startswith(sys.argv[3])
assert np.array_equal(found, np.load(sys.argv[4]))
print("compiled", len(recorder.buffer) // 2)
"""


def run(code, folder, *args):
    """Run code with the package of a folder, without any folder of the user for caches."""
    known = {"PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"}
    environment = {key: value for key, value in os.environ.items() if key in known}
    environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nowhere"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code, *map(str, args)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def image(tmp_path):
    """Return a folder with a copy of the package, without anything compiled."""
    folder = tmp_path / "image"
    shutil.copytree(PACKAGE, folder / "polyadic", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


def test_the_first_prediction_compiles_nothing(image, tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 2))
    settings = {"rank": 2, "n_members": 1, "max_iter": 2, "trees": False, "solver": "adam"}
    model = CPRegressor(**settings, random_state=0).fit(X, X[:, 0])
    given = [tmp_path / name for name in ("model.safetensors", "rows.npy", "wanted.npy")]
    model.save(given[0])
    np.save(given[1], X)
    np.save(given[2], model.predict(X))
    run(BUILD, image)
    before = files(image)
    assert any(path.suffix == ".nbc" for path in before)
    for path in [image, *image.rglob("*")]:
        path.chmod(0o555)
    assert run(SERVE, image, given[0], given[1], image, given[2]) == "compiled 0\n"
    assert files(image) == before


def test_the_recipe_compiles_while_the_image_is_built():
    steps = [line for line in RECIPE.read_text().splitlines() if line and line[0] != "#"]
    warm = next(n for n, line in enumerate(steps) if "polyadic.warmup(" in line)
    assert steps[warm].startswith("RUN ")
    assert any(line.startswith("ENV NUMBA_CPU_NAME=") for line in steps[:warm])
    assert warm < next(n for n, line in enumerate(steps) if line.startswith("USER "))
