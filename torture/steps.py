"""What a process does while it is disturbed, and what must hold afterwards: for `faults.py`.

A step has a name; `work` is run by the process that is disturbed, `check` by the one that is not.
`check` may do the same work again: what was left behind must then be gone, and the result must have
the bits of a run that nobody disturbed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import streams  # of tests/

from polyadic import CPClassifier, CPRegressor, load, report, scale, to_onnx

FEATURES = ["a", "b", "kind"]
LONG = {"rank": 8, "n_members": 4, "random_state": 0}


@dataclass(frozen=True)
class Step:
    """A step; `writes` says whether it writes files, `few_threads` whether it can do without."""

    work: Callable[[Path, int], None]  # of a folder and a number of threads
    check: Callable[[Path], None]
    writes: bool = True
    few_threads: bool = True


@cache
def material():
    """Return a table, a target, and two fitted models, of which one is saved first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2])
    options = {"rank": 8, "n_members": 2, "n_jobs": 1, "random_state": 0}
    first = CPRegressor(max_iter=2, **options).fit(X, y)
    second = CPRegressor(max_iter=3, **options).fit(X, y)
    CPClassifier(max_iter=1, **options).fit(X, y > 0).predict(X)
    first.predict(X)
    return X, y, first, second


def assert_tidy(folder: Path, *names: str) -> None:
    """Check that a folder has these files at most."""
    left = {path.name for path in folder.iterdir()} - {"model", "told", *names}
    assert not left, f"left behind: {sorted(left)}"


# ---- fit, save, load, report ---------------------------------------------------------------------


def fit(folder, n_jobs):
    X, y, _, _ = material()
    CPRegressor(max_iter=5 if n_jobs == 1 else 400, n_jobs=n_jobs, tol=0.0, **LONG).fit(X, y)


def save(folder, n_jobs):
    for _ in range(50):
        material()[3].save(folder / "model")


def read(folder, n_jobs):
    for _ in range(10):
        load(folder / "model").predict(material()[0])


def check_model(folder):
    """Check that the model is the old one or the new one, and that the next save tidies up."""
    X, _, first, second = material()
    found = load(folder / "model").predict(X).tobytes()
    assert found in (first.predict(X).tobytes(), second.predict(X).tobytes()), "another model"
    second.save(folder / "model")
    assert_tidy(folder)


def write_report(folder, n_jobs):
    X, y, _, second = material()
    for _ in range(5):
        report(second, X[:200], y[:200], str(folder / "page.html"))


def check_report(folder):
    page = folder / "page.html"
    assert not page.exists() or page.read_text().rstrip().endswith("</html>"), "half a page"
    write_report(folder, 1)
    assert_tidy(folder, "page.html")


def write_onnx(folder, n_jobs):
    for _ in range(10):
        to_onnx(material()[3], folder / "model.onnx")


@cache
def onnx_bytes() -> bytes:
    return to_onnx(material()[3]).SerializeToString()


def check_onnx(folder):
    path = folder / "model.onnx"
    assert not path.exists() or path.read_bytes() == onnx_bytes(), "another graph, or half of it"
    to_onnx(material()[3], path)
    assert path.read_bytes() == onnx_bytes()
    assert_tidy(folder, "model.onnx")


# ---- a fit with checkpoints ----------------------------------------------------------------------


def kept_fit(folder, n_jobs):
    X, y, _, _ = material()
    model = CPRegressor(max_iter=8, trees=False, n_jobs=n_jobs, checkpoint=folder, **LONG)
    return model.fit(X[:800], y[:800]).raw(X)


@cache
def unkept_fit():
    return kept_fit(None, 2).tobytes()


def check_kept(folder):
    """Check that the fit goes on to the same bits, and removes what was kept."""
    assert kept_fit(folder / "kept", 2).tobytes() == unkept_fit(), "other bits after the stop"
    left = [path for path in (folder / "kept").rglob("*") if path.is_file()]
    assert not left, f"left behind: {left}"


# ---- a streamed fit, and streamed predictions ----------------------------------------------------


@cache
def rows_on_disk() -> Path:
    """Return a folder with a table, which stays until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="torture-rows-"))
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder))
    return streams.write_rows(folder, ["y"], n_rows=1500)


def streamed(folder, n_jobs, kept=None):
    """Fit block by block; the blocks are put into the folder."""
    options = {"n_members": 1, "max_iter": 4, "random_state": 0, "trees": False}
    source = rows_on_disk()
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        with streams.small_limits():
            model = CPRegressor(memory=streams.TINY, checkpoint=kept, n_jobs=n_jobs, **options)
            model.fit(source, "y")
    finally:
        tempfile.tempdir = before
    return model


@cache
def streamed_once():
    """Return what a streamed fit predicts that nobody has disturbed, and the model."""
    with tempfile.TemporaryDirectory() as folder:
        model = streamed(folder, 2)
    return model.predict(streams.make_rows(200, seed=8).select(FEATURES)).tobytes(), model


def check_streamed(folder, kept=None):
    model = streamed(folder, 2, kept)
    found = model.predict(streams.make_rows(200, seed=8).select(FEATURES)).tobytes()
    assert found == streamed_once()[0], "other bits after the stop"
    assert_tidy(folder, "kept")  # no blocks
    left = [path for path in (folder / "kept").rglob("*") if path.is_file()]
    assert not left, f"left behind: {left}"


def predict_rows(folder, n_jobs):
    model = streamed_once()[1]
    for _ in range(5):
        scale.predict(model, rows_on_disk(), folder / "out.parquet", batch_rows=50)


def check_predicted(folder):
    path, n_rows = folder / "out.parquet", 1500
    assert not path.exists() or pq.read_metadata(path).num_rows == n_rows, "half a file"
    predict_rows(folder, 2)
    found = pq.read_table(path)["prediction"].to_numpy()
    want = streamed_once()[1].predict(streams.make_rows(n_rows).select(FEATURES))
    assert found.tobytes() == want.tobytes(), "other predictions"
    assert_tidy(folder, "out.parquet")


STEPS = {
    "fit": Step(fit, check_model, writes=False),
    "save": Step(save, check_model),
    "load": Step(read, check_model),
    "report": Step(write_report, check_report),
    "onnx": Step(write_onnx, check_onnx),
    "checkpoint": Step(lambda folder, n_jobs: kept_fit(folder / "kept", n_jobs), check_kept),
    "stream": Step(streamed, check_streamed, few_threads=False),
    "stream, checkpoint": Step(
        lambda folder, n_jobs: streamed(folder, n_jobs, folder / "kept"),
        lambda folder: check_streamed(folder, folder / "kept"),
        few_threads=False,
    ),
    "predict": Step(predict_rows, check_predicted, few_threads=False),
}
READ_ONLY = Path("/proc/self")  # nobody can make a file here


@cache
def prepare() -> None:
    """Compile and fit before the first case, so that children do not."""
    warnings.simplefilter("ignore")
    material(), onnx_bytes(), unkept_fit(), streamed_once()
    with tempfile.TemporaryDirectory() as folder:
        predict_rows(Path(folder), 2)
        write_report(Path(folder), 1)
    assert os.path.isdir(READ_ONLY)
