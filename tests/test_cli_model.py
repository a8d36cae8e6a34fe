"""The commands that take a model file: predict, evaluate, explain, inspect and export."""

import contextlib
import json
import sqlite3

import numpy as np
import onnxruntime
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import failed, houses, run
from sklearn.metrics import log_loss, mean_absolute_error, roc_auc_score

import polyadic
from polyadic import explain, export
from polyadic.cli.intervals import quantile

COLUMNS = ["area", "rooms", "zip", "city"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models that were fitted by the command, and a table that they have not seen."""
    path = tmp_path_factory.mktemp("models")
    houses().to_parquet(path / "train.parquet", index=False)
    for name, target, drop in (("price", "price", "sold,id"), ("sold", "sold", "price,id")):
        asked = ("--target", target, "--drop", drop, "--preset", "fast", "--rank", "2")
        result = run("fit", path / "train.parquet", *asked, "-o", path / name)
        assert result.exit_code == 0, result.output
    kinds = houses().assign(city=houses()["city"].replace("NA", "Kiel"))
    kinds.to_parquet(path / "kinds.parquet", index=False)
    asked = ("--target", "city", "--drop", "sold,id", "--preset", "fast", "--rank", "2")
    assert run("fit", path / "kinds.parquet", *asked, "-o", path / "city").exit_code == 0
    table = houses(120, seed=1)
    table.to_csv(path / "new.csv", index=False)
    table.to_csv(path / "new.csv.gz", index=False)
    table.to_parquet(path / "new.parquet", index=False)
    return path


X_NEW = houses(120, seed=1)[COLUMNS]


def read(path):
    reads = {".csv": pd.read_csv, ".tsv": lambda p: pd.read_csv(p, sep="\t")}
    return reads.get(path.suffix, lambda p: pq.read_table(p).to_pandas())(path)


# ---- predict -------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["new.csv", "new.csv.gz", "new.parquet"])
def test_predictions_are_those_of_the_model_from_every_kind_of_file(folder, data):
    out = folder / "out.parquet"
    result = run("predict", folder / "price", folder / data, "-o", out, "--keep", "id")
    assert result.exit_code == 0, result.output
    found, model = read(out), polyadic.load(folder / "price")
    assert list(found) == ["id", "prediction"]
    assert found["id"].astype(int).tolist() == list(range(120))
    assert found["prediction"].to_numpy().tobytes() == model.predict(X_NEW).tobytes()


def test_a_kept_identifier_stays_as_it_is_in_the_file(folder, tmp_path):
    ids = ["007", "12345678901234567890", "NA"]
    table = houses(3, seed=1).assign(id=ids, rooms=[1, 2, 3])
    table.to_csv(tmp_path / "new.csv", index=False)
    out, asked = tmp_path / "out.csv", ("--keep", "id", "--keep", "rooms")
    for data, text in ((tmp_path / "new.csv", None), ("-", (tmp_path / "new.csv").read_bytes())):
        result = run("predict", folder / "price", data, "-o", out, *asked, input=text)
        assert result.exit_code == 0, result.output
        found = pd.read_csv(out, dtype=str, keep_default_na=False)
        assert found["id"].tolist() == ids
        assert found["rooms"].astype(float).tolist() == [1.0, 2.0, 3.0]


def test_csv_files_of_a_folder_are_read_as_one_file_is(folder, tmp_path):
    parts, out = tmp_path / "parts", tmp_path / "out.parquet"
    parts.mkdir()
    table = houses(120, seed=1)
    table.loc[:9, "city"] = None  # empty cells
    for k in range(2):
        table[60 * k : 60 * k + 60].to_csv(parts / f"{k}.csv", index=False)
    wanted = polyadic.load(folder / "price").predict(table[COLUMNS])
    for data in (parts, parts / "*.csv"):
        assert run("predict", folder / "price", data, "-o", out).exit_code == 0
        assert read(out)["prediction"].to_numpy().tobytes() == wanted.tobytes()
    table.to_csv(tmp_path / "whole.csv", index=False)
    both = (parts, tmp_path / "whole.csv")
    one, other = (run("evaluate", folder / "price", data, "--json") for data in both)
    assert one.exit_code == 0, one.output
    assert one.stdout == other.stdout


def test_a_column_that_is_written_never_replaces_another(folder, tmp_path):
    rng, out = np.random.default_rng(0), tmp_path / "out.parquet"
    table = pd.DataFrame({"base": rng.normal(size=80), "lower": np.arange(80.0)})
    table.assign(y=table["base"] * 2).to_csv(tmp_path / "t.csv", index=False)
    asked = ("--target", "y", "--preset", "fast", "--rank", "2", "-o", tmp_path / "m")
    assert run("fit", tmp_path / "t.csv", *asked).exit_code == 0
    given = ("predict", tmp_path / "m", tmp_path / "t.csv", "-o", out)
    assert run(*given, "--shapley").exit_code == 0
    found, raw = read(out), polyadic.load(tmp_path / "m").raw(table)
    assert list(found)[1:] == ["shapley_base", "shapley_lower", "shapley_base_value"]
    np.testing.assert_allclose(found.iloc[:, 1:].sum(axis=1), raw[:, 0], rtol=1e-4, atol=1e-4)
    out.unlink()
    asked = ("--keep", "lower", "--interval", "0.8", "--calibrate", tmp_path / "t.csv")
    failed(run(*given, *asked), "called 'lower'", "Leave the column out of keep")
    assert not out.exists()


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_probabilities_are_written_for_every_class(folder, ending):
    out = folder / f"proba.{ending}"
    result = run("predict", folder / "city", folder / "new.csv", "-o", out, "--proba", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"output": str(out), "rows": 120}
    share = polyadic.load(folder / "city").predict_proba(houses(120, seed=1))
    found = read(out)
    assert list(found) == ["probability_Bonn", "probability_Kiel", "probability_Ulm"]
    np.testing.assert_allclose(found.to_numpy(), share, rtol=1e-12)


def test_shapley_values_add_up_to_the_raw_prediction(folder):
    for name in ("price", "city"):
        out, model = folder / "shapley.parquet", polyadic.load(folder / name)
        result = run("predict", folder / name, folder / "new.csv", "-o", out, "--shapley")
        assert result.exit_code == 0, result.output
        found, want = read(out), explain.shapley(model, houses(120, seed=1))
        assert found.shape[1] == 1 + want.values.shape[2] * (want.values.shape[1] + 1)
        for k, label in enumerate(want.outputs):
            start = "shapley_" if name == "price" else f"shapley_{label}_"
            own = found[[f"{start}{column}" for column in want.columns]]
            np.testing.assert_allclose(own, want.values[:, :, k], rtol=1e-9, atol=1e-9)
            assert np.all(found[f"{start}base"] == want.base[k])


def test_predictions_go_to_standard_output_and_come_from_standard_input(folder):
    data = (folder / "new.csv").read_bytes()
    result = run("predict", folder / "sold", "-", input=data)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].strip('"') == "prediction"
    want = polyadic.load(folder / "sold").predict(X_NEW).tolist()
    assert [line.strip('"') for line in lines[1:]] == want


def test_an_interval_holds_the_share_of_targets_that_it_promises(folder):
    houses(300, seed=2).to_csv(folder / "calibrate.csv", index=False)
    houses(2000, seed=3).to_csv(folder / "many.csv", index=False)
    out = folder / "interval.parquet"
    asked = ("--interval", "0.8", "--calibrate", folder / "calibrate.csv", "-o", out)
    result = run("predict", folder / "price", folder / "many.csv", *asked)
    assert result.exit_code == 0, result.output
    found, y = read(out), houses(2000, seed=3)["price"]
    inside = np.mean((found["lower"] <= y) & (y <= found["upper"]))
    # 300 rows: the share of a beta distribution with a standard deviation of 0.023
    assert inside == pytest.approx(0.8, abs=0.08)
    middle = (found["lower"] + found["upper"]) / 2
    np.testing.assert_allclose(middle, found["prediction"])


def test_the_conformal_quantile_covers_by_counting():
    """A new error has each of the n + 1 ranks with the same probability."""
    for n, level in ((9, 0.8), (19, 0.9), (20, 0.5), (99, 0.99), (7, 0.3)):
        place = quantile(np.arange(1.0, n + 1), level)
        assert place / (n + 1) >= level - 1e-12  # ranks up to `place` are covered
        assert (place - 1) / (n + 1) < level  # and no fewer would do
    with pytest.raises(ValueError, match="give at least 19"):
        quantile(np.ones(18), 0.95)


def test_what_cannot_be_predicted_is_refused(folder, tmp_path):
    new, price = folder / "new.csv", folder / "price"
    out = tmp_path / "out.parquet"
    houses()[["area", "rooms"]].to_csv(tmp_path / "few.csv", index=False)
    failed(run("predict", price, tmp_path / "few.csv", "-o", out), "has no column 'zip'")
    failed(run("predict", price, new, "-o", out, "--keep", "ide"), "has no column 'ide'")
    failed(run("predict", price, new, "-o", out, "--proba"), "has no predict_proba")
    failed(run("predict", price, new, "-o", tmp_path / "no" / "out.csv"), "there is no folder")
    failed(run("predict", new, new, "-o", out), "Cannot load", "not a model file")
    failed(run("predict", folder / "absent", new, "-o", out), "There is no model file")
    failed(run("predict", price, folder / "absent.csv", "-o", out), "There is no file")
    (tmp_path / "bad.csv").write_text("area,rooms,zip,city\n1,2,01,Ulm\nlarge,2,01,Ulm\n")
    failed(run("predict", price, tmp_path / "bad.csv", "-o", out), "bad.csv", "large")
    for name in ("none.csv", "none.parquet", "none/a.csv"):
        (tmp_path / "none").mkdir(exist_ok=True)
        none = houses(0)
        write = none.to_csv if name.endswith("csv") else none.to_parquet
        write(tmp_path / name, index=False)
        for command in ("predict", "evaluate"):
            failed(run(command, price, (tmp_path / name)), f"{name}' has no rows.")
    failed(run("evaluate", price, tmp_path / "none"), "none' has no rows.")
    asked = ("--interval", "0.9", "--calibrate", new)
    failed(run("predict", folder / "sold", new, "-o", out, *asked), "predicts classes")
    assert not out.exists()
    for wrong in (
        ("-o", "out.xlsx"),
        ("--json",),
        ("--interval", "0.9"),
        ("--interval", "2", "--calibrate", "x"),
    ):
        assert run("predict", price, new, *wrong).exit_code == 2


def test_a_place_that_may_not_be_written_is_refused(folder):
    # Not even an administrator can create a file there; where there is no such folder, neither.
    result = run("predict", folder / "price", folder / "new.csv", "-o", "/proc/predicted.csv")
    failed(result, "/proc")


def test_a_table_larger_than_a_batch_is_predicted_in_order(folder, monkeypatch):
    from polyadic.cli import predict

    monkeypatch.setattr(predict, "_ROWS", 7)
    out = folder / "small_batches.parquet"
    assert run("predict", folder / "price", folder / "new.csv", "-o", out).exit_code == 0
    want = polyadic.load(folder / "price").predict(X_NEW)
    assert pq.read_table(out)["prediction"].to_numpy().tobytes() == want.tobytes()


# ---- evaluate ------------------------------------------------------------------------------------


def test_numbers_are_measured_beside_their_mean(folder):
    result = run("evaluate", folder / "price", folder / "new.csv", "--json")
    assert result.exit_code == 0, result.output
    said, model = json.loads(result.stdout), polyadic.load(folder / "price")
    y = houses(120, seed=1)["price"]
    assert said["target"] == "price"
    assert said["model"]["r2"] == pytest.approx(model.score(X_NEW, y))
    assert said["model"]["mae"] == pytest.approx(mean_absolute_error(y, model.predict(X_NEW)))
    assert said["baseline"]["r2"] == pytest.approx(0.0)
    assert said["baseline"]["rmse"] == pytest.approx(y.std(ddof=0))
    shown = run("evaluate", folder / "price", folder / "new.csv").stdout
    assert "root mean squared error" in shown


@pytest.mark.parametrize("name", ["sold", "city"])
def test_classes_are_measured_beside_the_most_frequent_one(folder, name):
    result = run("evaluate", folder / name, folder / "new.csv", "--json")
    if name == "city":  # "NA" is no class of the model
        failed(result, "'NA'")
        return
    said, model = json.loads(result.stdout), polyadic.load(folder / name)
    y = houses(120, seed=1)[name]
    share = model.predict_proba(X_NEW)
    assert said["model"]["accuracy"] == pytest.approx(model.score(X_NEW, y))
    assert said["model"]["auc"] == pytest.approx(roc_auc_score(y == "yes", share[:, 1]))
    assert said["model"]["log_loss"] == pytest.approx(log_loss(y, share))
    assert said["baseline"]["accuracy"] == pytest.approx(y.value_counts(normalize=True).max())
    assert said["baseline"]["auc"] == 0.5


def test_a_target_is_needed_and_may_be_named(folder):
    renamed = houses(50, seed=1).rename(columns={"price": "paid"})
    renamed.to_csv(folder / "renamed.csv", index=False)
    failed(run("evaluate", folder / "price", folder / "renamed.csv"), "has no column 'price'")
    result = run("evaluate", folder / "price", folder / "renamed.csv", "--target", "paid")
    assert result.exit_code == 0
    model = polyadic.CPRegressor(n_members=1, rank=2, max_iter=1, random_state=0)
    model.fit(houses()[["area"]], houses()["price"].to_numpy()).save(folder / "nameless")
    failed(run("evaluate", folder / "nameless", folder / "new.csv"), "add --target")


# ---- explain, inspect, export --------------------------------------------------------------------


def test_a_model_is_explained_by_its_strongest_terms(folder):
    result = run("explain", folder / "price", "--top", "3", "--json")
    said, model = json.loads(result.stdout), polyadic.load(folder / "price")
    want = explain.terms(model, 2, 3)
    assert [tuple(term["columns"]) for term in said["terms"]] == [t.columns for t in want.rows]
    assert said["terms"][0]["share"] == pytest.approx(want.rows[0].share)
    shown = run("explain", folder / "price", "--top", "3").stdout
    assert shown.startswith("- area raises the prediction of price")
    assert "3 of 10 terms" in shown


@pytest.mark.parametrize("name", ["price", "sold", "city"])
def test_a_row_is_explained_by_what_each_column_adds(folder, name):
    asked = ("explain", folder / name, folder / "new.csv", "--row", "5")
    said, model = json.loads(run(*asked, "--json").stdout), polyadic.load(folder / name)
    row = houses(120, seed=1)[5:6]
    raw = model.raw(row)[0]
    assert said["prediction"] == model.predict(row)[0]
    assert said["base"] + sum(said["adds"].values()) == pytest.approx(said["raw"])
    if len(raw) == 1:
        assert said["raw"] == pytest.approx(raw[0], rel=1e-5)
    shown = run(*asked, "--top", "2").stdout
    assert shown.startswith("The p")
    failed(run(*asked[:-1], "120"), "There is no row 120")
    assert run("explain", folder / name, "--row", "1").exit_code == 2
    assert run("explain", folder / name, folder / "new.csv").exit_code == 2


def test_a_file_is_inspected_without_data(folder):
    result = run("inspect", folder / "price", "--json")
    said, model = json.loads(result.stdout), polyadic.load(folder / "price")
    assert [column["name"] for column in said["columns"]] == COLUMNS
    assert [column["map"] for column in said["columns"]] == ["Hat", "Hat", "OneHot", "OneHot"]
    assert said["rank"] == model.tensor_.rank
    assert said["configuration"]["target"] == "price"
    assert {choice["name"] for choice in said["plan"]} >= {"rank", "held-out loss"}
    assert said["members"][0]["epochs"] == model.n_iter_
    shown = run("inspect", folder / "city").stdout
    for text in (
        "CPClassifier",
        "Bonn, Kiel, Ulm",
        "Columns",
        "Plan",
        "Training record",
        "drop = ",
    ):
        assert text in shown


def test_a_model_from_python_is_inspected_too(tmp_path):
    X = np.arange(40.0).reshape(20, 2)
    model = polyadic.CPRegressor(n_members=1, rank=2, max_iter=1, random_state=0)
    model.fit(X, X[:, 0]).save(tmp_path / "model")
    result = run("inspect", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "x1" in result.stdout


def test_an_exported_query_predicts_what_the_model_does(folder, tmp_path):
    asked = ("--table", "flats", "--dialect", "sqlite", "--keep", "id")
    result = run("export", folder / "price", "-o", tmp_path / "m.sql", *asked)
    assert result.exit_code == 0, result.output
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        houses(120, seed=1).to_sql("flats", connection)
        *setup, query = (tmp_path / "m.sql").read_text().rstrip(";\n").split(";\n")
        connection.executescript(";\n".join([*setup, ""]))
        found = pd.DataFrame(connection.execute(query).fetchall(), columns=["id", "prediction"])
    wanted = polyadic.load(folder / "price").predict(X_NEW)
    np.testing.assert_array_equal(found["id"], np.arange(120))
    np.testing.assert_allclose(found["prediction"], wanted, rtol=1e-5)


def test_an_exported_graph_predicts_what_the_model_does(folder, tmp_path):
    path = tmp_path / "m.onnx"
    result = run("export", folder / "price", "-o", path, "--shapley", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"output": str(path), "bytes": path.stat().st_size}
    model = polyadic.load(folder / "price")
    session = onnxruntime.InferenceSession(path)
    prediction, values = session.run(["prediction", "shapley"], export.onnx_inputs(model, X_NEW))
    np.testing.assert_allclose(prediction[:, 0], model.predict(X_NEW), rtol=1e-5)
    assert values.shape[:2] == X_NEW.shape


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("m.pmml", []),
        ("m.onnx", ["--dialect", "sqlite"]),
        ("m.sql", []),  # of which table?
        ("m.sql", ["--table", "flats", "--shapley"]),
    ],
)
def test_an_export_with_the_wrong_options_is_refused(folder, tmp_path, name, options):
    assert run("export", folder / "price", "-o", tmp_path / name, *options).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_an_export_says_what_is_wrong(folder, tmp_path):
    asked = ("export", folder / "price", "--table", "flats", "-o")
    failed(run(*asked, tmp_path / "no" / "m.sql"), "there is no folder")
    failed(run(*asked, tmp_path / "m.sql", "--dialect", "cobol"), "cobol", "sqlite")


# ---- the configuration in the file ---------------------------------------------------------------


def test_a_configuration_that_is_not_plain_is_refused(folder, tmp_path):
    model = polyadic.load(folder / "price")
    for wrong in (["a list"], {"data": {"deeper": 1}}, {"drop": [["deeper"]]}, {1: "number"}):
        model.configuration_ = wrong
        model.save(tmp_path / "wrong")
        failed(run("inspect", tmp_path / "wrong"), "the configuration")
    model.fit(houses()[COLUMNS], houses()["price"])
    assert not hasattr(model, "configuration_")  # it was that of another fit


def test_a_pyarrow_table_that_is_a_dictionary_is_a_text(folder):
    table = pq.read_table(folder / "new.parquet")
    place = table.column_names.index("sold")
    table = table.set_column(place, "sold", table["sold"].dictionary_encode())
    pq.write_table(table, folder / "dictionary.parquet")
    one, other = (
        run("evaluate", folder / "sold", folder / name, "--json").stdout
        for name in ("dictionary.parquet", "new.parquet")
    )
    assert pa.types.is_dictionary(table["sold"].type)
    assert one == other
