"""The record of the torture campaign: failures can be repeated, and no run of other code counts."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

_FAILING = """
from common import run

GIVEN = {}

def case(rng, folder):
    assert GIVEN["size"] < 3, "too large"
    return "fine"

def options(parser):
    parser.add_argument("--size", type=int, default=1)
    return lambda given: GIVEN.update(size=given.size)

if __name__ == "__main__":
    run("failing", case, block=1, options=options)
"""


def test_the_command_that_repeats_a_failure_has_the_options_of_the_part(tmp_path):
    (tmp_path / "failing.py").write_text(_FAILING)
    given = ["failing.py", "--trial", "--seed", "7", "--cases", "1", "--size", "3"]
    run = subprocess.run(
        [sys.executable, *given],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "torture")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert "torture/failing.py --seed 7 --case 0 --size 3\n" in run.stdout


@pytest.fixture
def record(monkeypatch):
    """Return the module of the record."""
    spec = importlib.util.spec_from_file_location("record", ROOT / "torture" / "record.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "record", module)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_every_file_that_cases_are_made_with_changes_the_code(record, monkeypatch, tmp_path):
    monkeypatch.setattr(record, "ROOT", tmp_path)
    files = ["src/polyadic/a.py", "torture/load.py", "torture/common.py", "torture/forging.py"]
    files += [f"tests/{name}.py" for name in ("browsing", "parts", "stored", "streams")]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("before")
    seen = {record.code_of("load")}
    for file in files:
        (tmp_path / file).write_text("after")
        record.code_of.cache_clear()
        seen.add(record.code_of("load"))
    assert len(seen) == len(files) + 1
