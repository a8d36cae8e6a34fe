"""The command that writes the live page of a saved model."""

import os
import subprocess
import sys

import needs
import numpy as np
import pandas as pd
import pytest
from pages import data_of, mixed_model, tiny_classifier

import polyadic

needs.package("typer")
from typer.testing import CliRunner  # noqa: E402

from polyadic.cli.app import app  # noqa: E402


@pytest.fixture(scope="module")
def mixed():
    return mixed_model()


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


@pytest.fixture
def saved(mixed, tmp_path):
    """A model file, and its table with the target as CSV and Parquet."""
    model, X, y = mixed
    model.save(tmp_path / "model.polyadic")
    table = X.assign(**{"class": y, "grade": X["grade"].astype(int)})
    table.to_csv(tmp_path / "table.csv", index=False)
    table.to_parquet(tmp_path / "table.parquet", index=False)
    return tmp_path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_command_writes_the_page_of_a_saved_model(saved, mixed, kind):
    model, X, y = mixed
    out = saved / "out.html"
    options = ("--target", "class", "--out", out, "--title", "A title")
    result = run("report", saved / "model.polyadic", saved / f"table.{kind}", *options)
    assert result.exit_code == 0, result.output
    assert "240 rows" in result.output
    page = polyadic.report(model, X, y, saved / "page.html", title="A title", target="class")
    here, there = data_of(out), data_of(page)
    assert here["rows"] == there["rows"]
    assert here["quality"] == there["quality"]
    assert (here["title"], here["target"]) == ("A title", "class")


def test_the_command_needs_rows_but_no_target(saved):
    out = saved / "out.html"
    asked = ("report", saved / "model.polyadic")
    assert run(*asked, saved / "table.parquet", "--out", out).exit_code == 0
    assert data_of(out)["quality"] is None
    head = (saved / "table.csv").read_text().splitlines()[0]
    (saved / "empty.csv").write_text(head + "\n")
    result = run(*asked, saved / "empty.csv", "--out", out)
    assert result.exit_code == 1
    assert "no rows" in result.output + (result.stderr or "")


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_text_in_a_csv_file_stays_text(named, tmp_path):
    rng = np.random.default_rng(0)
    words = np.array(["NA", "null", "nan", "N/A", "x"], dtype=object)
    X = pd.DataFrame(
        {
            "word": words[rng.integers(0, 5, 200)],
            "digit": np.array(["0", "1", "01"], dtype=object)[rng.integers(0, 3, 200)],
            "number": np.where(rng.random(200) < 0.2, np.nan, rng.random(200)),
        }
    )
    y = np.where(rng.random(200) < 0.5, "0", "1").astype(object)
    model = tiny_classifier(categorical_features=[0, 1])
    model.fit(X if named else X.to_numpy(object), y).save(tmp_path / "model.polyadic")
    X.insert(1, "class", y)
    for missing in ("", "NA"):
        X.to_csv(tmp_path / "table.csv", index=False, na_rep=missing)
        asked = ("report", tmp_path / "model.polyadic", tmp_path / "table.csv", "--target", "class")
        result = run(*asked, "--out", tmp_path / "out.html")
        assert result.exit_code == 0, result.output
        data = data_of(tmp_path / "out.html")
        numbers = data["rows"]["numbers"]
        for n, name in enumerate(["word", "digit"]):
            categories = data["columns"][n]["categories"]
            shown = [categories[code] for code in data["rows"]["values"][n]]
            assert shown == X[name][numbers].tolist()
        shown = np.array(data["rows"]["values"][2], dtype=float)
        assert np.array_equal(shown, X["number"][numbers], equal_nan=True)
        assert data["rows"]["target"] == X["class"][numbers].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "absent.polyadic"}, "There is no model file"),
        ({"model": "table.csv"}, "not a model file"),
        ({"table": "absent.csv"}, "There is no file"),
        ({"table": "model.polyadic"}, "it must end in .csv, "),
        ({"target": "price"}, "no column 'price'. Choose from: area, rooms, "),
        ({"target": "grade"}, "grade"),
        ({"out": "nowhere/page.html"}, "there is no folder"),
    ],
)
def test_the_command_says_what_is_wrong(saved, change, message):
    asked = {"model": "model.polyadic", "table": "table.csv", "target": "class", "out": "p.html"}
    asked |= change
    before = sorted(os.listdir(saved))
    result = run(
        "report",
        saved / asked["model"],
        saved / asked["table"],
        "--target",
        asked["target"],
        "--out",
        saved / asked["out"],
    )
    assert result.exit_code == 1, result.output
    assert message in result.output + (result.stderr or "")
    assert "Traceback" not in result.output
    assert sorted(os.listdir(saved)) == before


def test_the_page_needs_no_libraries_beyond_the_base():
    code = (
        "import sys\nclass Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('torch', 'matplotlib', 'pandas', 'pyarrow', 'jinja2', 'typer'):\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Absent())\nimport polyadic\nprint(polyadic.report.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "report"
