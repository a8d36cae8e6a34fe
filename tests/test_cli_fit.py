"""`polyadic fit`: tables of every kind, every option, and clear errors."""

import gzip
import json
import re
import tomllib

import numpy as np
import pandas as pd
import pytest
from commands import failed, houses, run

import polyadic
from polyadic.cli import fitting, summary
from polyadic.cli.settings import PRESETS, Preset
from polyadic.scale import sources

FAST = ("--preset", "fast", "--rank", "2")
X_COLUMNS = ["area", "rooms", "zip", "city"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the same table in every kind of file."""
    path = tmp_path_factory.mktemp("tables")
    table = houses()
    table.to_csv(path / "t.csv", index=False)
    table.to_csv(path / "t.tsv", index=False, sep="\t")
    table.to_csv(path / "t.csv.gz", index=False)
    table.to_parquet(path / "t.parquet", index=False)
    table.to_feather(path / "t.arrow")
    return path


def fit(folder, *options, data="t.csv", out="model.safetensors", target="price"):
    """Fit a tiny model and return what was printed as JSON, and the model."""
    path = folder / out
    asked = ("fit", folder / data, "--target", target, "-o", path, "--json", *FAST, *options)
    result = run(*asked)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), polyadic.load(path)


# ---- kinds of tables -----------------------------------------------------------------------------


def test_the_same_table_gives_the_same_model_from_every_kind_of_file(folder):
    drop = ("--drop", "sold,id", "--drop", "zip")
    want = None
    for name in ("t.csv", "t.tsv", "t.csv.gz", "t.parquet", "t.arrow"):
        _, model = fit(folder, *drop, data=name)
        raw = model.raw(houses()[X_COLUMNS])
        want = raw if want is None else want
        assert raw.tobytes() == want.tobytes(), name


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet", "t.arrow"])
def test_standard_input_is_read_whatever_it_holds(folder, name):
    data = (folder / name).read_bytes()
    options = ("--drop", "sold", "--drop", "id", "--json", *FAST)
    result = run("fit", "-", "--target", "price", *options, input=data)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == 200


def test_text_that_looks_like_something_else_stays_text(folder):
    _, model = fit(folder, "--drop", "sold,id", data="t.parquet")
    by_name = {column.name: column for column in model.columns_.columns}
    assert by_name["zip"].categories == ("01", "1", "7")
    assert by_name["city"].categories == ("Bonn", "NA", "Ulm")
    _, model = fit(folder, "--drop", "sold,id")
    by_name = {column.name: column for column in model.columns_.columns}
    assert by_name["city"].categories == ("Bonn", "NA", "Ulm")  # not a missing value
    assert by_name["rooms"].kind == "numeric"


def test_an_empty_cell_is_missing_in_numbers_and_in_text(tmp_path):
    rows = "".join(f"{'' if n % 3 else n},{'' if n % 4 else 'b'},{n}\n" for n in range(60))
    (tmp_path / "t.csv").write_text("x,kind,y\n" + rows)
    _, model = fit(tmp_path, target="y")
    assert model.columns_.columns[1].categories == ("b",)
    assert [m.missing for m in model.marginals_] == [pytest.approx(2 / 3), pytest.approx(3 / 4)]


# ---- options -------------------------------------------------------------------------------------


def test_options_reach_the_estimator_and_are_kept_in_the_file(folder):
    asked = ("--drop", "sold,id,city", "--categorical", "rooms", "--weight", "zip")
    said, model = fit(folder, *asked, "--seed", "3", "--max-time", "100", "--valid", "0.25")
    assert model.get_params()["rank"] == 2
    assert model.get_params()["random_state"] == 3
    assert model.get_params()["max_time"] == 100.0
    assert model.columns_.names == ["area", "rooms"]
    assert model.columns_.columns[1].categories == (1, 2, 3, 4, 5)
    assert said["rows"] == 150
    assert said["valid"]["rows"] == 50
    assert model.configuration_ == said["configuration"]
    assert said["configuration"]["drop"] == ["sold", "id", "city"]
    assert said["configuration"]["valid"] == 0.25
    assert model.target_names_ == ["price"]
    assert model.verbose == 0


def test_a_weight_counts_as_rows(folder):
    doubled = pd.concat([houses()[:80], houses()[:40]])
    doubled.to_csv(folder / "twice.csv", index=False)
    weighted = houses()[:80].assign(w=np.repeat([2.0, 1.0], 40))
    weighted.to_csv(folder / "weighted.csv", index=False)
    drop = ("--drop", "sold,id")
    _, one = fit(folder, *drop, data="twice.csv")
    _, other = fit(folder, *drop, "--weight", "w", data="weighted.csv")
    X = houses()[X_COLUMNS].assign(zip=houses()["zip"].astype(int))
    assert one.raw(X).tobytes() == other.raw(X).tobytes()


def test_held_out_rows_may_come_from_a_file(folder):
    houses(80, seed=1).to_csv(folder / "valid.csv", index=False)
    said, model = fit(folder, "--drop", "sold,id", "--valid", folder / "valid.csv")
    X, y = houses(80, seed=1)[X_COLUMNS], houses(80, seed=1)["price"]
    X = X.assign(zip=X["zip"].astype(int))
    found = said["valid"]
    assert found["model"]["r2"] == pytest.approx(model.score(X, y))
    constant = np.full(80, houses()["price"].mean())
    assert found["baseline"]["rmse"] == pytest.approx(np.sqrt(np.mean((y - constant) ** 2)))


def test_a_file_of_settings_has_the_same_keys_and_options_overrule_it(folder):
    config = folder / "fit.toml"
    config.write_text(
        'target = "price"\ndrop = ["sold", "id"]\npreset = "fast"\nmax-time = 50\nrank = 7\n'
    )
    out = folder / "by_config.safetensors"
    result = run("fit", folder / "t.csv", "--config", config, "--rank", "2", "-o", out)
    assert result.exit_code == 0, result.output
    model = polyadic.load(out)
    assert (model.rank, model.n_members, model.max_time) == (2, 1, 50)
    shown = result.stdout.split("\n\n")[1]  # a file of settings in its turn
    assert tomllib.loads(shown) == model.configuration_
    (folder / "again.toml").write_text(shown)
    result = run("fit", folder / "t.csv", "--config", folder / "again.toml")
    assert result.exit_code == 0, result.output
    assert polyadic.load(out).configuration_ == model.configuration_


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tarjet = 'price'", "known keys are categorical, "),
        ("rank = 'high'", "rank must be a whole number"),
        ("drop = 'id'", "drop must be a list of texts"),
        ("target = ", "Invalid value"),
        ("task = 'guess'", "not one of auto, regression, classification"),
    ],
)
def test_a_wrong_file_of_settings_is_a_wrong_command(folder, text, message):
    (folder / "wrong.toml").write_text(text)
    asked = ("fit", folder / "t.csv", "--config", folder / "wrong.toml")
    result = run(*asked, *(() if "target" in text else ("--target", "price")))
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.replace("│", " ").split())


def test_the_parameters_of_every_preset_are_those_of_an_estimator():
    assert PRESETS.keys() == {str(one) for one in Preset}
    for preset in PRESETS:
        settings = fitting.FitSettings("t.csv", "y", task="regression", preset=preset)
        made = fitting.make_estimator(settings, [])
        assert PRESETS[preset].items() <= made.get_params().items()


@pytest.mark.parametrize("option", ["memory", "checkpoint"])
def test_memory_and_checkpoint_are_passed_on_only_if_given(option):
    settings = fitting.FitSettings("t.csv", "y")
    assert option not in settings.parameters()
    given = fitting.replace(settings, **{option: "2GB"})
    assert given.parameters()[option] == "2GB"


# ---- the task ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([1.5, 2.5, 3.5] * 20, "regression"),
        ([1, 2, 3] * 20, "regression"),
        ([0, 1, 1] * 20, "classification"),
        (["a", "b", "c"] * 20, "classification"),
        ([True, False, False] * 20, "classification"),
    ],
    ids=str,
)
def test_the_task_is_found_from_the_target(tmp_path, values, task):
    rows = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60), "y": values})
    rows.to_parquet(tmp_path / "t.parquet")
    said, model = fit(tmp_path, data="t.parquet", target="y")
    assert said["task"] == task
    assert hasattr(model, "classes_") == (task == "classification")
    if task == "classification":
        assert set(model.classes_.tolist()) == set(values)


def test_whole_numbers_may_be_classes_and_the_user_is_told(tmp_path):
    rows = pd.DataFrame({"x": np.arange(60.0), "y": [1, 2, 3] * 20})
    rows.to_csv(tmp_path / "t.csv", index=False)
    result = run("fit", tmp_path / "t.csv", "--target", "y", *FAST)
    assert "--task classification" in result.stdout
    said, model = fit(tmp_path, "--task", "classification", target="y")
    assert said["task"] == "classification"
    assert model.classes_.tolist() == [1, 2, 3]


# ---- what is printed -----------------------------------------------------------------------------


def test_the_summary_has_a_baseline_and_says_what_to_do_next(folder):
    out = folder / "a model.safetensors"
    asked = ("fit", folder / "t.csv", "--target", "price", "--drop", "sold,id", *FAST, "-o", out)
    result = run(*asked)
    assert result.exit_code == 0
    assert "of the variance (R² about 0.9" in result.stdout
    assert "the mean explains 0 %" in result.stdout
    assert f"polyadic evaluate '{out}' TEST.csv" in result.stdout
    assert result.stderr == ""  # no bar in a pipe
    assert "\x1b" not in result.stdout
    assert not any(line.endswith(" ") for line in result.stdout.splitlines())


def test_without_an_output_nothing_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("fit", folder / "t.csv", "--target", "sold", "--drop", "price,id", *FAST)
    assert result.exit_code == 0
    assert "was not saved" in result.stdout
    assert "No rows were held out" in result.stdout  # the prior of two classes needs none
    result = run("fit", folder / "t.csv", "--target", "city", "--drop", "sold,id", *FAST)
    assert re.search(r"the loss is [\d.]+, and [\d.]+ for a constant prediction", result.stdout)
    assert list(tmp_path.iterdir()) == []


def test_the_held_out_loss_of_the_summary_is_that_of_the_plan(folder):
    said, model = fit(folder, "--drop", "sold,id")
    assert said["held_out_loss"] == float(model.plan_["held-out loss"])
    assert said["constant_loss"] == pytest.approx(1.0, abs=0.5)  # of a standardised target
    assert said["held_out_loss"] < 0.2 * said["constant_loss"]


# ---- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["cannot be read as a table", "Empty CSV file"]),
        ("x,y\n", ["has no rows"]),
        ("x,y\n1,2\n3\n", ["cannot be read as a table", "Expected 2 columns, got 1"]),
        ("x,x,y\n1,2,3\n", ["has 2 columns named 'x'"]),
        ("x,z\n1,2\n", ["has no column 'y'", "Choose from: x, z."]),
        ("x,y\n1,2\n2,\n3,4\n4,\n", ["'y' is missing in 2 of 4 rows, first in row 1"]),
        ("y\n1\n2\n", ["No column is left to learn from"]),
        ("x,y\n1,2024-01-01\n2,2024-01-02\n", ["type date32", "numbers, text or booleans"]),
    ],
    ids=["empty", "no rows", "ragged", "twice", "no target", "missing", "no column", "dates"],
)
def test_a_wrong_table_is_refused_in_one_line(tmp_path, text, messages):
    (tmp_path / "t.csv").write_text(text)
    out = tmp_path / "m.safetensors"
    failed(run("fit", tmp_path / "t.csv", "--target", "y", "-o", out), *messages)
    assert not out.exists()


def test_a_wrong_place_is_refused_before_the_work(folder, tmp_path):
    asked = ("fit", folder / "t.csv", "--target", "price", "-o")
    failed(run(*asked, tmp_path), "it is a folder. Add a file name")
    failed(run(*asked, tmp_path / "no" / "m.safetensors"), "there is no folder")
    failed(run("fit", tmp_path / "absent.csv", "--target", "y"), "There is no file")
    (tmp_path / "t.xlsx").write_text("x")
    failed(run("fit", tmp_path / "t.xlsx", "--target", "y"), "it must end in .csv, ")
    (tmp_path / "t.parquet").write_text("no parquet")
    failed(run("fit", tmp_path / "t.parquet", "--target", "y"), "cannot be read as a table")
    with gzip.open(tmp_path / "cut.csv.gz", "wb") as file:
        file.write(b"x,y\n1,2\n" * 10_000)
    whole = (tmp_path / "cut.csv.gz").read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    failed(run("fit", tmp_path / "cut.csv.gz", "--target", "y"), "cut.csv.gz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--drop", "ide"), "has no column 'ide'"),
        (("--categorical", "rooms,zipp"), "has no column 'zipp'"),
        (("--weight", "mass"), "has no column 'mass'"),
        (("--weight", "city"), "must hold numbers"),
        (("--weight", "area"), "'area' is missing in 10 of 200 rows"),
        (("--drop", "price"), "cannot be a weight, or left out"),
        (("--task", "regression", "--target", "sold"), "y holds text"),
        (("--valid", "absent.csv"), "There is no file 'absent.csv'"),
    ],
)
def test_a_wrong_column_is_named(folder, options, message):
    failed(run("fit", folder / "t.csv", "--target", "price", *FAST, *options), message)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--target", "price", "--rank", "0"),
        ("--target", "price", "--rank", "many"),
        ("--target", "price", "--valid", "1.5"),
        ("--target", "price", "--preset", "slow"),
        ("--target", "price", "--no-such-option"),
        ("--target", "price", "--config", "absent.toml"),
    ],
    ids=str,
)
def test_a_wrong_command_ends_with_two(folder, options):
    assert run("fit", folder / "t.csv", *options).exit_code == 2


def test_debug_shows_where(folder):
    result = run("fit", folder / "absent.csv", "--target", "price", "--debug")
    assert isinstance(result.exception, FileNotFoundError)


# ---- files larger than memory --------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_larger_than_the_memory_for_it_is_streamed(folder, ending):
    table, path = houses(6000), folder / f"large.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path, index=False)
    houses(80, seed=1).to_csv(folder / "valid.csv", index=False)
    asked = ("--drop", "sold,id,zip", "--memory", "1MB", "--valid", folder / "valid.csv")
    said, model = fit(folder, *asked, "--checkpoint", folder / "state", data=path.name)
    assert said["rows"] == (None if ending == "csv" else 6000)
    assert said["columns"] == 3
    assert model.columns_.names == ["area", "rooms", "city"]
    assert model.memory == "1MB"
    assert said["valid"]["model"]["r2"] > 0.9
    assert model.marginals_[0].weight == 6000  # all rows, not a sample
    large = ("fit", path, "--target", "price", "--memory", "1MB")
    failed(run(*large, "--valid", "0.2"), "Give a file of held-out rows")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_task_of_a_large_file_is_found_from_all_its_rows(folder, ending):
    n = 150_000  # more than a batch
    rows = pd.DataFrame({"x": np.arange(n) % 97, "y": np.arange(n) % 2})
    rows.loc[n - 30 :, "y"] = np.arange(30)
    path = folder / f"late.{ending}"
    rows.to_csv(path, index=False) if ending == "csv" else rows.to_parquet(path, index=False)
    data = fitting.read_data(fitting.FitSettings(str(path), "y", memory="1MB"))
    assert data.streams
    assert data.settings.task == "regression"
    assert data.why == "the target has 30 different numbers"
    rows.loc[1000:1100, "y"] = np.arange(101)
    rows.to_csv(path, index=False) if ending == "csv" else rows.to_parquet(path, index=False)
    data = fitting.read_data(fitting.FitSettings(str(path), "y", memory="1MB"))
    assert data.why == "the target has at least 101 different numbers"


def test_a_large_file_has_the_types_of_all_its_rows(folder):
    rows = houses(6000).drop(columns=["sold", "id", "zip"])
    text = rows.assign(rooms=rows["rooms"].astype(str))
    text.loc[5990:, "rooms"] = "2.5"
    text.loc[::7, "city"] = ""
    text.to_csv(folder / "late.csv", index=False)
    (folder / "parts").mkdir()
    for k in range(3):
        text[2000 * k : 2000 * k + 2000].to_csv(folder / "parts" / f"{k}.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_BLOCK", 1 << 14)
        _, model = fit(folder, "--memory", "1MB", data="late.csv")
    assert model.marginals_[0].weight > 5000  # all rows but a tenth, which is held out
    whole, again = (fit(folder, data=name)[1] for name in ("late.csv", "parts"))
    X = rows.drop(columns="price")
    assert whole.raw(X).tobytes() == again.raw(X).tobytes()
    for one in (model, whole, again):
        assert [column.categories for column in one.columns_.columns] == [
            None,
            None,
            ("Bonn", "NA", "Ulm"),
        ]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_without_rows_are_refused_in_folders_too(tmp_path, ending):
    none = houses(0)
    (none.to_csv if ending == "csv" else none.to_parquet)(tmp_path / f"a.{ending}", index=False)
    for data in (tmp_path, tmp_path / f"a.{ending}"):
        failed(run("fit", data, "--target", "price"), "has no rows.")
    with pytest.raises(ValueError, match="has no rows"):
        polyadic.CPRegressor().fit(tmp_path, "price")


def test_ctrl_c_after_a_model_was_saved_does_not_deny_it(folder, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(summary, "conclude", interrupted)
    out = tmp_path / "m.safetensors"
    asked = ("fit", folder / "t.csv", "--target", "price", "--drop", "sold,id", *FAST, "-o", out)
    result = run(*asked)
    assert result.exit_code == 130
    assert result.stderr.strip() == "Error: Interrupted."
    assert out.exists()
