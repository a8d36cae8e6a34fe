"""The command line, run as a user would run it."""

import os
import re
import subprocess
import sys

import needs
import numpy as np
import pytest
from pages import data_of
from sklearn.ensemble import HistGradientBoostingRegressor

import polyadic
from polyadic import cli, datasets

needs.package("typer")
from typer.testing import CliRunner  # noqa: E402

from polyadic.cli import demonstration as demo  # noqa: E402
from polyadic.cli.app import app  # noqa: E402

COMMANDS = ("fit", "predict", "evaluate", "explain", "report", "inspect", "export", "demo")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "100"})


@pytest.fixture
def unreachable(monkeypatch):
    def fetch(**_):
        raise datasets.DatasetUnavailable("California housing could not be obtained.")

    monkeypatch.setattr(datasets, "fetch_california_housing", fetch)


def test_demo_uses_the_synthetic_table_without_a_network(unreachable, tmp_path, monkeypatch):
    # Threads with many small steps are slow where tests run in parallel: two trees are enough.
    monkeypatch.setitem(
        demo.RIVALS, "HistGradientBoosting", lambda: HistGradientBoostingRegressor(max_iter=2)
    )
    (tmp_path / "pictures").mkdir()
    (tmp_path / "kept").write_bytes(b"before")
    os.link(tmp_path / "kept", tmp_path / "pictures" / "effects.png")
    result = run("demo", "--quick", "--out", tmp_path / "pictures")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "kept").read_bytes() == b"before"  # replaced, and not written over
    assert "cannot be obtained here" in result.output
    assert "Synthetic table, the paper's split: 400 / 480 / 600 rows" in result.output
    for model in ("polyadic CPRegressor", *demo.RIVALS):
        row = next(line for line in result.output.splitlines() if line.startswith(f"│ {model} "))
        numbers = [float(cell) for cell in row.split("│")[2:-1]]
        assert len(numbers) == 4
        assert min(numbers) >= 0
    assert "of the variance)." in result.output
    for picture in ("learning_curve.png", "effects.png"):
        assert (tmp_path / "pictures" / picture).read_bytes().startswith(b"\x89PNG")
    page = tmp_path / "pictures" / "page.html"
    assert result.output.rstrip().endswith(page.resolve().as_uri())
    assert data_of(page)["quality"] is not None


def test_demo_needs_no_torch_ray_or_pandas(tmp_path):
    code = """import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "ray", "pandas"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from polyadic import CPRegressor, cli, datasets, explain
from polyadic.cli import demonstration as demo
def fetch(**_):
    raise datasets.DatasetUnavailable("none")
datasets.fetch_california_housing = fetch
demo.RIVALS.clear()
sys.argv = ["polyadic", "demo", "--quick", "--out", sys.argv[1]]
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "learning_curve.png").exists()


def test_demo_without_matplotlib_leaves_the_pictures_out(unreachable, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "RIVALS", {})
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("demo", "--quick", "--out", tmp_path / "pictures")
    assert result.exit_code == 0, result.output
    assert "pip install 'polyadic[plot]'" in result.output
    assert [p.name for p in (tmp_path / "pictures").iterdir()] == ["page.html"]


def test_the_model_is_fitted_in_the_units_of_the_table():
    task = demo._read(datasets.load_synthetic, "Synthetic table", "y", "y")
    whole = datasets.load_synthetic()
    rows = np.column_stack([whole.data, whole.target])
    for part in ("train", "val", "test"):
        X, y = (getattr(task.split, f"{name}_{part}") for name in "Xy")
        table = task.table(X)
        assert table.column_names == whole.feature_names
        back = np.column_stack([*(c.to_numpy() for c in table.columns), task.target(y)])
        distance = abs(back[:5, None] - rows[None]).max(axis=2).min(axis=1)
        assert distance.max() < 1e-9


def test_version_is_that_of_the_package():
    result = run("--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"polyadic {polyadic.__version__}"


def test_help_lists_the_commands():
    result = run("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert re.search(rf"^\W*{command} ", result.output, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_debug(command):
    result = run(command, "-h")
    assert result.exit_code == 0
    assert "--debug" in result.output


def test_help_loads_no_heavy_library():
    code = (
        "import sys\nfrom polyadic.cli.app import app\n"
        "print([m for m in ('sklearn', 'numba', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["typer", "rich", "pyarrow"])
def test_without_the_extra_the_command_says_what_to_install(monkeypatch, capsys, missing):
    for name in [n for n in sys.modules if n.startswith("polyadic.cli.")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(cli, name.rpartition(".")[2])
    for name in [n for n in sys.modules if n.split(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert "pip install 'polyadic[cli]'" in capsys.readouterr().err
