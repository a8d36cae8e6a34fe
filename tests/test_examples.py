"""The examples of the gallery run on small tables, and write the pictures of the docs."""

import importlib.util
import re
from pathlib import Path

import matplotlib as mpl
import needs
import pytest

mpl.use("Agg")

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "docs" / "gallery"
EXAMPLES = ["california", "adult", "movielens", "trees"]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Few rows of MovieLens hold few of its users and films.
@pytest.mark.filterwarnings("ignore:.*were not seen in training:UserWarning")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs_and_draws_what_the_gallery_holds(name, tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")  # as where the file is run as a program
    with needs.data():
        load(name).main(tmp_path / "pictures", quick=True)
    drawn = {path.name for path in (tmp_path / "pictures").glob("*.png")}
    assert drawn == {path.name for path in GALLERY.glob(f"{name}_*.png")}
    shown = capsys.readouterr().out
    assert "test rows: " in shown
    assert re.search(r"(adds|takes away) \d", shown)  # one row in words


def test_the_example_of_an_own_loss_runs(capsys):
    model = load("own_loss").main(n_rows=400)
    assert repr(model.loss) == "Tweedie(power=1.5)"
    shown = capsys.readouterr().out
    assert shown.count("deviance on new policies") == 2
    assert "of the variance" in shown


def test_the_example_of_an_own_table_learns_from_numbers_and_categories(capsys):
    needs.package("torch")
    with needs.data():
        loss = load("own_table").main(n_rows=2000, n_epochs=2)
    # A constant has 0.55; this had 0.36.
    assert loss < 0.45
    assert "gender 3," in capsys.readouterr().out


def test_pictures_are_small_and_the_docs_show_only_existing_ones():
    sizes = {path.name: path.stat().st_size for path in GALLERY.glob("*.png")}
    assert max(sizes.values()) < 100_000
    assert sum(sizes.values()) < 1_000_000
    page = "".join((ROOT / "docs" / f"{name}.md").read_text() for name in ("explain", "trees"))
    shown = re.findall(r"\(gallery/(\w+\.png)\)", page)
    assert len(shown) >= 8
    assert set(shown) <= set(sizes)
