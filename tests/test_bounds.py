"""Fuzzed files under checks of bounds: the kernels of hats index nothing beyond their arrays."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import stored

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_forged_files_of_hats_index_nothing_out_of_bounds(tmp_path):
    """In a process of its own: kernels with checks are compiled anew, and kept beside the others.

    Without vector types, whose loads no check sees.
    """
    for name in ("merged members", "several outputs"):
        model, X = stored.built(name)
        model.save(tmp_path / f"{name}.safetensors")
        (tmp_path / f"{name}.table").write_bytes(pickle.dumps(X))
    cache = Path(os.environ["NUMBA_CACHE_DIR"]).parent / "kernels-with-bounds"
    settings = {
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(cache),
        "POLYADIC_SIMD": "0",
        "POLYADIC_TORTURE_MODELS": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
    }
    run = subprocess.run(
        [sys.executable, "torture/files.py", "--trial", "--seed", "77", "--cases", "150"],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert "150 cases" in run.stdout
    assert "used " in run.stdout  # some files were loaded and have predicted
