"""The report of the paper's experiments: verdicts, figures, every section, and a quick run."""

import csv
import json

import needs
import numpy as np
import pytest

from experiments import __main__ as command
from experiments import figures, report
from experiments.cells import Cell, Found, Record, Scale
from experiments.published import CALIFORNIA, CHECK_POINTS, MOVIELENS, SYNTHETIC


def test_verdicts_distinguish_the_mean_from_the_best_seed():
    assert report.verdict([0.1, 0.3], 0.2001) == report.REACHED
    assert report.verdict([0.19, 0.3, 0.4], 0.2001) == "reached by 1 of 3 seeds"
    assert report.verdict([0.3], 0.2001) == report.MISSED
    assert report.verdict([0.3], 0.2001, larger=True) == report.REACHED
    assert report.verdict([], 0.2001) == report.OPEN
    assert report.verdict([0.7838], 0.784, larger=True) == report.REACHED  # as many digits
    assert report.verdict([0.7862], 0.7863, larger=True) == report.MISSED
    assert report.verdict([0.33115], 0.3311) == report.REACHED  # errors are cut off


def test_spread_of_one_fit_has_no_deviation():
    assert report.spread([0.5]) == ["0.5000", "", "", "1"]
    assert report.spread([0.5, float("inf")])[0] == "diverged"


def test_curves_that_diverged_are_drawn(tmp_path):
    figure, (panel,) = figures.new_figure()
    curves = {"a": [[1.0, 0.5, None], [1.0, 1e30, None]], "b": []}
    figures.draw_curves(panel, curves, "title", "loss")
    assert panel.lines[0].get_ydata()[-1] == figures._LARGEST
    figures.save(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_every_published_row_has_a_cell():
    for name, rows in (
        ("synthetic", SYNTHETIC),
        ("movielens", MOVIELENS),
        ("california", CALIFORNIA),
    ):
        models = {cell.model for cell in command.EXPERIMENTS[name].cells(Scale())}
        assert {command.movielens.model_of(row) for row in rows} <= models
        assert set(report.ADDITIONS) <= models


def test_the_command_refuses_unknown_experiments_and_docs_of_a_quick_run(capsys):
    with pytest.raises(SystemExit):
        command.parse(["--only", "cifar"])
    assert "Choose from: synthetic" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.parse(["--docs", "--quick"])


def made_up(cell):
    """Return a result with everything that any cell returns; better for CP."""
    rng = np.random.default_rng(cell.seed)
    score = 0.2 + 0.01 * rng.uniform() + 0.1 * ("cp" not in cell.model)
    epochs = cell.settings.get("epochs", 3)
    curve = [
        None if cell.seed == 1 and "d=5" in cell.model else score + 1 / (1 + e) for e in range(9)
    ]
    return {
        **dict.fromkeys(("val", "test", "train", "seconds", "cell_seconds", "held_out"), score),
        "auc": 1 - score,
        "auc_best": 1 - score,
        "epoch": epochs,
        "epoch_best": epochs,
        "curve": curve,
        "train_curve": curve,
        "parameters": 10,
        "accuracy": 1 - score,
        "finite": cell.seed != 1,
        "spread": 1.0,
        "digits": "0123",
        "refused": "too large",
        "row_seconds": 1.0,
        "rows": 100,
        "gap": 1e-7,
    }


@pytest.mark.parametrize("name", [n for n in command.EXPERIMENTS if n != "coefficients"])
def test_every_section_is_written_from_the_cells_of_a_full_run(name, tmp_path):
    needs.package("matplotlib")
    with needs.data():
        cells = command.EXPERIMENTS[name].cells(Scale())
    records = [Record(c.experiment, c.model, c.seed, c.settings, made_up(c)) for c in cells]
    section = command.EXPERIMENTS[name].section(Found(records), tmp_path)
    for table in section.tables:
        assert {len(row) for row in table.rows} == {len(table.header)}, table.caption
    assert section.claims
    assert all(claim.holds in (True, False, None) for claim in section.claims)
    assert "nan" not in section.markdown()
    for picture in section.pictures:
        assert (tmp_path / picture.file).exists()


def test_a_sweep_is_drawn_by_the_seeds_of_each_point():
    _, (panel,) = figures.new_figure()
    figures.draw_sweep(panel, {"a": {2: [1.0] * 50, 75: [3.0, 4.0, 5.0]}}, ("x", "y"))
    assert panel.lines[0].get_ydata().tolist() == [1.0, 4.0]


# ---- a quick run --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    needs.package("matplotlib")
    folder, printed = tmp_path_factory.mktemp("results"), []
    scale = Scale(quick=True, seeds=1, most_epochs=2)
    command.reproduce(folder, scale, ["synthetic", "coefficients"], printed.append)
    return folder, scale, printed


def test_quick_run_writes_the_report(quick_run):
    folder, _, _ = quick_run
    text = (folder / "REPORT.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings[:2] == ["## In short", "## Synthetic regression"]
    assert "A quick run" in text
    for row in SYNTHETIC.values():
        assert f"| {row.name}" in text
        assert f"| {row.score:.4f} |" in text
    assert "(added)" in text
    assert "the paper says" in text
    for line in text.splitlines():
        if line.startswith("!["):
            assert (folder / line.split("](")[1].rstrip(")")).exists()


def test_quick_run_meets_the_check_points(quick_run):
    folder, _, _ = quick_run
    with open(folder / "check_points.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = [p for p in CHECK_POINTS if p.experiment == "synthetic"]
    assert len(rows) == len(wanted)
    for row, point in zip(rows, wanted):
        assert row["verdict"] == "**met**"
        assert float(row["ours"]) == pytest.approx(point.value, abs=point.tolerance)


def test_quick_run_writes_tables_and_raw_numbers(quick_run):
    folder, scale, _ = quick_run
    with open(folder / "table1_synthetic.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == report.REGRESSION
    assert {len(row) for row in rows} == {len(report.REGRESSION)}
    assert (folder / "table1_synthetic.md").exists()
    raw = json.loads((folder / "raw.json").read_text())
    assert len(raw) == len(command.synthetic.cells(scale) + command.coefficients.cells(scale))


def test_the_report_is_written_again_from_kept_cells(quick_run, monkeypatch):
    folder, scale, _ = quick_run
    monkeypatch.setattr(command.models, "warm_up", lambda: None)

    def refuse(cell):
        raise ModuleNotFoundError(f"{cell.model} should have been kept")

    before = json.loads((folder / "raw.json").read_text())
    monkeypatch.setattr(Cell, "run", refuse)
    command.reproduce(folder, scale, ["synthetic", "coefficients"], lambda text: None)
    kept = [r for r in before if "skipped" not in r["result"]]
    after = json.loads((folder / "raw.json").read_text())
    assert [r for r in after if "skipped" not in r["result"]] == kept


def test_docs_take_the_report_and_its_pictures(quick_run, tmp_path):
    folder, _, _ = quick_run
    own = tmp_path / "figures"
    own.mkdir()
    for name in ("figure_of_an_earlier_run.png", "page.png"):
        (own / name).touch()
    command.copy_to_docs(folder, tmp_path)
    assert not (own / "figure_of_an_earlier_run.png").exists()
    assert (own / "page.png").exists()
    text = (tmp_path / "results.md").read_text()
    assert "](figures/figure_synthetic_curves.png)" in text
    assert (tmp_path / "figures" / "figure_synthetic_curves.png").exists()
