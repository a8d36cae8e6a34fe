"""Model files that were changed: by chance, or on purpose with right checksums.

    python torture/files.py --minutes 30 --jobs 2

A case takes one of the models of `tests/stored.py` (every estimator, map and format) and either
damages the bytes of its file, or changes entries and arrays and writes right checksums. The file
must be refused by ModelFileError, within a time and a memory that go with its size, or load; what
loads must predict finite numbers or raise ValueError, and predict the same bits after it is saved
and loaded again. A share of what loads is also explained, reported and exported.

POLYADIC_TORTURE_MODELS names a folder of models and tables to take instead, without explanations:
few kernels are compiled then with NUMBA_BOUNDSCHECK=1, which finds indices out of bounds.
"""

from __future__ import annotations

import os
import pickle
import resource
import sqlite3
import time
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import stored  # of tests/
from common import pick, run, same_bits
from forging import Content, damaged, forged
from record import RESULTS, code_of

import polyadic
from polyadic import ModelFileError, explain, load
from polyadic.io.atomic import write_whole
from polyadic.io.files import read_file

GIVEN = os.environ.get("POLYADIC_TORTURE_MODELS")
MOST_SECONDS = 5.0  # of the processor, for a file of some ten kB
MOST_GROWTH = 200e6  # bytes of memory at the peak beyond those before
ROWS = 8  # to predict: every code path, at little cost
# Shares of the cases, and of what loads, about one case in twelve. In a million cases there are
# thousands of each, and together they take less than half of the time.
DAMAGED, EXPLAINED, REPORTED, EXPORTED = 0.5, 0.1, 0.03, 0.06


@cache
def base(name: str):
    """Return bytes, content and table of a fitted model; kept until the code changes."""
    folder = Path(GIVEN) if GIVEN else RESULTS / "models" / code_of("files")
    file = name if GIVEN else str(list(stored.MODELS).index(name))
    path, table = folder / f"{file}.safetensors", folder / f"{file}.table"
    if not (path.exists() and table.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        model, X = stored.built(name)
        model.save(path)
        write_whole(table, pickle.dumps(X))
    data, X = path.read_bytes(), pickle.loads(table.read_bytes())
    return data, Content.of(*read_file(path)), X[:ROWS]


@cache
def names() -> list[str]:
    return sorted(p.stem for p in Path(GIVEN).glob("*.table")) if GIVEN else list(stored.MODELS)


@cache
def prepare() -> None:
    """Import what loading a network imports, before memory is measured."""
    if not GIVEN:
        import torch  # noqa: F401


def used(rng, model, X, folder) -> str:
    """Use what was loaded; return one word."""
    for method in ("predict", "raw", "predict_proba"):
        if hasattr(model, method):
            try:
                found = np.asarray(getattr(model, method)(X))
            except ValueError:  # such as a table of other columns
                return "loaded"
            if found.dtype.kind == "f":
                assert np.all(np.isfinite(found)), f"{method} is not finite"
    if GIVEN:
        return "used"
    model.save(folder / "again")
    again = load(folder / "again")
    assert same_bits(again.raw(X), model.raw(X)), "saved and loaded, it predicts another thing"
    word, share = "used", float(rng.random())
    try:
        if share < EXPLAINED:
            word = "explained"
            explained(model, X)
        elif share < EXPLAINED + REPORTED:
            word = "reported"
            reported(model, X, folder / "page.html")
        elif share < EXPLAINED + REPORTED + EXPORTED:
            word = "exported"
            exported(rng, model, folder)
    except ValueError:
        word = f"used, not {word}"
    return word


def explained(model, X):
    explain.sobol(model)
    explain.effects(model)
    explain.interactions(model)
    explain.shapley(model, X[:3])


def reported(model, X, path):
    polyadic.report(model, X, None, str(path))
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>"), "half a page"


def exported(rng, model, folder):
    """Write the model as ONNX, which onnx must accept, or as SQL, which SQLite must accept."""
    if rng.random() < 0.5:
        polyadic.to_onnx(model, folder / "model.onnx")
        onnx.checker.check_model(onnx.load(folder / "model.onnx"))
        return
    sql = polyadic.to_sql(model, "sqlite", table="given")
    quoted = ['"' + name.replace('"', '""') + '"' for name in map(str, model.columns_.sources)]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE given ({', '.join(quoted)})")
        connection.executescript(sql.setup)
        assert connection.execute(sql.query).fetchall() == []


def case(rng, folder) -> str:
    prepare()
    name = pick(rng, names())
    data, content, X = base(name)
    by_chance = rng.random() < DAMAGED
    changed = damaged(rng, data) if by_chance else forged(rng, content, base(pick(rng, names()))[1])
    path = folder / "model"
    path.write_bytes(changed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        model = load(path)
    except (ModelFileError, ModuleNotFoundError):
        model = None
    assert time.process_time() - start < MOST_SECONDS, "loading took too long"
    grown = 1024.0 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MOST_GROWTH, f"loading took {grown / 1e6:.0f} MB"
    path.unlink()
    if model is None:
        return "refused, damaged" if by_chance else "refused, forged"
    if by_chance:
        assert changed == data, "a damaged file was loaded"
        return "unchanged"
    return used(rng, model, X, folder)


if __name__ == "__main__":
    run("files", case, block=200)
