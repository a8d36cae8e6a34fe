"""Predictions for tables larger than memory: those of the table itself, in order, or no file."""

import os
import subprocess
import sys
import threading
import time
from itertools import pairwise

import needs
import numpy as np
import pytest

from polyadic import CPClassifier, CPRegressor, scale
from polyadic.scale import sources
from polyadic.scale.ahead import one_ahead
from polyadic.scale.predicting import predicted

pa = needs.package("pyarrow")
pq = needs.package("pyarrow.parquet")
datasets = needs.package("pyarrow.dataset")
csv = needs.package("pyarrow.csv")

SMALL = {"rank": 2, "n_members": 1, "max_iter": 2, "random_state": 0}
COLUMNS = ["size", "kind"]


def table(n=700, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    size[::50] = np.nan
    kinds = np.array(["red", "green", "blue", None], dtype=object)[rng.integers(4, size=n)]
    return pa.table({"id": np.arange(n), "size": size, "kind": pa.array(kinds, pa.string())})


@pytest.fixture(scope="module")
def models():
    rows = table()
    X, size = rows.select(COLUMNS), np.nan_to_num(rows["size"].to_numpy())
    return {
        "regression": CPRegressor(**SMALL).fit(X, size**2),
        "two": CPClassifier(**SMALL).fit(X, size > 0),
        "three": CPClassifier(**SMALL).fit(X, np.digitize(size, [-0.5, 0.5])),
    }


def in_files(folder, rows, n_files=3):
    """Write the table as several Parquet files of several row groups each."""
    bounds = np.linspace(0, len(rows), n_files + 1).astype(int)
    for k, (a, b) in enumerate(pairwise(bounds)):
        pq.write_table(rows.slice(a, b - a), folder / f"part-{k}.parquet", row_group_size=60)
    return folder


CASES = [("regression", "predict"), ("two", "predict"), ("two", "predict_proba")]
CASES += [("two", "decision_function"), ("three", "predict_proba"), ("three", "decision_function")]


@pytest.mark.parametrize("batch_rows", [7, 256, 10_000])
@pytest.mark.parametrize(("name", "method"), CASES)
def test_a_file_holds_what_the_model_predicts(models, tmp_path, name, method, batch_rows):
    rows, model = table(seed=1), models[name]
    source = in_files(tmp_path, rows)
    out = tmp_path / "out.pq"
    n = scale.predict(model, source, out, method=method, keep=["id"], batch_rows=batch_rows)
    found = pq.read_table(out)
    assert n == len(rows) == len(found)
    assert found["id"].to_pylist() == rows["id"].to_pylist()
    wanted = np.asarray(getattr(model, method)(rows.select(COLUMNS)))
    wanted = wanted.reshape(len(rows), -1)
    columns = [c for c in found.column_names if c != "id"]
    assert len(columns) == wanted.shape[1]
    for name_of_column, own in zip(columns, wanted.T):
        values = found[name_of_column].to_numpy()
        if own.dtype.kind == "f":
            np.testing.assert_allclose(values, own, rtol=1e-6, atol=1e-9)
        else:
            assert values.tolist() == own.tolist()


def test_probabilities_are_named_after_their_classes(models, tmp_path):
    scale.predict(models["three"], table().to_batches, tmp_path / "a.pq", method="predict_proba")
    names = pq.read_table(tmp_path / "a.pq").column_names
    assert names == ["probability_0", "probability_1", "probability_2"]


def test_every_kind_of_source_is_the_same_table(models, tmp_path):
    rows = table()
    folder = tmp_path / "rows"
    folder.mkdir()
    in_files(folder, rows)
    csv.write_csv(rows, tmp_path / "rows.csv")
    (tmp_path / "rows.tsv").write_text((tmp_path / "rows.csv").read_text().replace(",", "\t"))
    (tmp_path / "rows.txt").write_text((tmp_path / "rows.csv").read_text())
    with pa.ipc.new_file(tmp_path / "rows.ipc", rows.schema) as file:
        file.write_table(rows)
    given = [
        folder,
        str(folder / "part-*.parquet"),
        datasets.dataset(folder),
        rows.to_batches,
        lambda: [rows.slice(0, 100), rows.slice(100)],
        tmp_path / "rows.csv",
        tmp_path / "rows.tsv",
        tmp_path / "rows.txt",
        tmp_path / "rows.ipc",
    ]
    wanted = models["regression"].predict(rows.select(COLUMNS))
    for k, source in enumerate(given):
        scale.predict(models["regression"], source, tmp_path / f"{k}.pq")
        found = pq.read_table(tmp_path / f"{k}.pq")["prediction"].to_numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path):
    rows = table(n=500)
    source = scale.open_source(in_files(tmp_path, rows, n_files=5))
    assert source.n_rows == 500
    found = [v for batch in source.batches(rows=33) for v in batch.column("id").to_pylist()]
    assert found == list(range(500))


def test_a_failure_leaves_no_file_and_keeps_the_old_one(models, tmp_path):
    rows = table()

    def broken():
        yield from rows.slice(0, 300).to_batches()
        raise OSError("the disk is gone")

    out = tmp_path / "out.pq"
    out.write_bytes(b"before")
    with pytest.raises(OSError, match="the disk is gone"):
        scale.predict(models["regression"], broken, out, batch_rows=50)
    assert out.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["out.pq"]


def test_bad_input_is_refused_by_name(models, tmp_path):
    model, rows, out = models["regression"], table(), tmp_path / "out.pq"
    with pytest.raises(FileNotFoundError, match=r"no file '.*gone\.parquet'"):
        scale.predict(model, tmp_path / "gone.parquet", out)
    with pytest.raises(FileNotFoundError, match="has no file that ends in"):
        scale.predict(model, tmp_path, out)
    (tmp_path / "a.doc").write_text("x")
    with pytest.raises(ValueError, match=r"files of one kind"):
        scale.predict(model, tmp_path / "a.doc", out)
    with pytest.raises(ValueError, match="has no column 'kind'"):
        scale.predict(model, rows.select(["size"]).to_batches, out)
    with pytest.raises(ValueError, match="has no column 'nothing'"):
        scale.predict(model, rows.to_batches, out, keep=["nothing"])
    with pytest.raises(ValueError, match="no predict_proba: use method='predict'"):
        scale.predict(model, rows.to_batches, out, method="predict_proba")
    with pytest.raises(ValueError, match="method must be one of"):
        scale.predict(model, rows.to_batches, out, method="score")
    with pytest.raises(TypeError, match="a function that returns Arrow batches; got int"):
        scale.predict(model, 3, out)
    with pytest.raises(ValueError, match="has no rows"):
        scale.predict(model, lambda: [rows.slice(0, 0)], out)
    with pytest.raises(ValueError, match="is not fitted"):
        scale.predict(CPRegressor(), rows.to_batches, out)
    unnamed = CPRegressor(**SMALL).fit(np.ones((60, 1)) * np.arange(60)[:, None], np.arange(60.0))
    with pytest.raises(ValueError, match="without column names"):
        scale.predict(unnamed, rows.to_batches, out)
    renamed = rows.rename_columns(["prediction", "size", "kind"])
    with pytest.raises(ValueError, match="the name of a prediction"):
        scale.predict(model, renamed.to_batches, out, keep=["prediction"])
    assert not out.exists()


def test_batches_with_other_columns_are_refused(models, tmp_path):
    rows = table()
    two = lambda: [rows, rows.rename_columns(["id", "width", "kind"])]  # noqa: E731
    with pytest.raises(ValueError, match="All batches must have the columns"):
        scale.predict(models["regression"], two, tmp_path / "out.pq")


def test_a_column_never_replaces_another(models, tmp_path):
    rows, out = table(), tmp_path / "out.pq"
    model = models["regression"]
    renamed = rows.rename_columns(["lower", "size", "kind"])

    def more(_, found):
        return {"lower": found - 1}

    with pytest.raises(ValueError, match=r"called 'lower'.*Leave the column out of keep"):
        scale.predict(model, renamed.to_batches, out, keep=["lower"], more=more)
    with pytest.raises(ValueError, match="called 'prediction'"):
        scale.predict(model, rows.to_batches, out, more=lambda _, found: {"prediction": found})
    # Ray predicts by this function, without the others.
    batch = rows.rename_columns(["prediction", "size", "kind"]).to_batches()[0]
    with pytest.raises(ValueError, match="called 'prediction'"):
        predicted(model, "predict", batch, COLUMNS, ["prediction"], None)
    assert not out.exists()


# ---- files ---------------------------------------------------------------------------------------


def read_all(source, **options):
    return pa.Table.from_batches(list(scale.open_source(source, **options).batches()))


def test_hidden_folders_are_no_part_of_a_table(tmp_path):
    for name in (".", ".ipynb_checkpoints", "_temporary/0", "_delta_log", "more"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": [name]}), tmp_path / name / "a.parquet")
    (tmp_path / "README.txt").write_text("About the table.")
    assert read_all(tmp_path)["x"].to_pylist() == [".", "more"]
    hidden = tmp_path / "_temporary"  # asked for by its name
    assert read_all(hidden)["x"].to_pylist() == ["_temporary/0"]


def test_folders_with_values_give_a_column(tmp_path, monkeypatch):
    for name in ("01", "02"):
        (tmp_path / f"k={name}").mkdir()
        pq.write_table(pa.table({"x": [1.5, 2.5]}), tmp_path / f"k={name}" / "a.parquet")
    assert read_all(tmp_path)["k"].to_pylist() == [1, 1, 2, 2]
    monkeypatch.chdir(tmp_path.parent)
    for source in (tmp_path, tmp_path / "k=*" / "*.parquet", f"{tmp_path.name}/**/*.parquet"):
        found = read_all(source, types={"k": pa.string()})
        assert found["k"].to_pylist() == ["01", "01", "02", "02"]
        assert found["x"].to_pylist() == [1.5, 2.5, 1.5, 2.5]
    assert scale.open_source(tmp_path / "k=01" / "a.parquet").names == ["x"]
    (tmp_path / "text" / "k=1").mkdir(parents=True)
    (tmp_path / "text" / "k=1" / "a.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match=r"folders named k=\.\.\..*write the table as Parquet"):
        scale.open_source(tmp_path / "text")


CELLS = {
    "decimals": (["1", "2.5"], pa.float64()),
    "text": (["1", "a"], pa.string()),
    "missing": (["", "7"], pa.int64()),
    "whole": (["3", ""], pa.int64()),
    "day": (["2024-01-01", "2024-01-02 03:04:05"], pa.timestamp("s")),
    "flag": (["true", "false"], pa.bool_()),
    "mixed": (["true", "2024-01-01"], pa.string()),
    "none": (["", ""], pa.null()),
}


@pytest.mark.parametrize("n_files", [1, 2])
def test_types_of_csv_files_are_those_of_all_rows(tmp_path, monkeypatch, n_files):
    monkeypatch.setattr(sources, "_BLOCK", 1000)
    header = ",".join(CELLS)
    first, last = (",".join(cells[k] for cells, _ in CELLS.values()) for k in (0, 1))
    parts = [[header, *[first] * 40], [*[header][: n_files - 1], *[last] * 40]]
    if n_files == 1:
        parts = [parts[0] + parts[1]]
    for k, lines in enumerate(parts):
        (tmp_path / f"{k}.csv").write_text("\n".join(lines) + "\n")
    found = read_all(tmp_path)
    kinds = {name: kind for name, (_, kind) in CELLS.items()}
    assert dict(zip(found.column_names, found.schema.types)) == kinds
    assert found["decimals"].to_pylist() == [1.0] * 40 + [2.5] * 40
    assert found["missing"].to_pylist() == [None] * 40 + [7] * 40
    if n_files == 1:
        assert found.equals(csv.read_csv(tmp_path / "0.csv"))


def test_known_types_and_empty_cells_of_csv_files(tmp_path):
    (tmp_path / "0.csv").write_text("k,x,t\n01,1,a\n02,,\n")
    (tmp_path / "1.csv").write_text('t,x,k\n"",2,NA\n')
    found = read_all(tmp_path, types={"k": pa.string()})
    assert found.to_pydict() == {"k": ["01", "02", "NA"], "x": [1, None, 2], "t": ["a", None, None]}
    (tmp_path / "semicolons.txt").write_text("k;x\n1,5;2\n")
    assert read_all(tmp_path / "semicolons.txt", delimiter=";").to_pydict() == {
        "k": ["1,5"],
        "x": [2],
    }
    (tmp_path / "2.csv").write_text("k,x\n1,2\n")
    with pytest.raises(ValueError, match=r"0\.csv' has a column 't', and '.*2\.csv' has not"):
        scale.open_source(tmp_path)


def test_text_of_a_model_is_text_in_csv_files_of_a_folder(tmp_path):
    codes, x = np.array(["01", "02", "1"] * 40, dtype=object), np.linspace(0, 1, 120)
    rows = pa.table({"id": ["007"] * 120, "code": pa.array(codes), "x": x})
    model = CPRegressor(**SMALL).fit(rows.select(["code", "x"]), x + (codes == "01"))
    (tmp_path / "rows").mkdir()
    for k in range(2):
        part = rows.slice(60 * k, 60)
        options = csv.WriteOptions(quoting_style="none")
        csv.write_csv(part, tmp_path / "rows" / f"{k}.csv", options)
    scale.predict(model, tmp_path / "rows", tmp_path / "out.pq", keep=["id", "x"])
    found = pq.read_table(tmp_path / "out.pq")
    wanted = model.predict(rows.select(["code", "x"]))
    np.testing.assert_allclose(found["prediction"].to_numpy(), wanted, rtol=1e-6)
    assert set(found["id"].to_pylist()) == {"007"}
    assert found["x"].type == pa.float64()


MEMORY = """
import resource, sys
import numpy as np, pyarrow as pa
from polyadic import CPRegressor, scale
X = np.linspace(0, 1, 400)
first = pa.table({"x": X})
model = CPRegressor(rank=2, n_members=1, max_iter=2, random_state=0).fit(first, X)
batch = pa.record_batch({"x": np.random.default_rng(0).uniform(size=50_000)})
def rows(n):
    return lambda: (batch for _ in range(n))
scale.predict(model, rows(2), sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
scale.predict(model, rows(40), sys.argv[1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Two million rows would take 16 MB for each column, and as much for the predictions."""
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "out.pq")]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert float(run.stdout) < 12


def test_a_table_that_is_left_in_the_middle_holds_no_thread():
    # A traceback keeps the iteration alive for as long as the user looks at it.
    items = one_ahead(iter(range(5)))
    before = threading.active_count()
    assert next(items) == 0
    end = time.monotonic() + 20.0
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert list(items) == [1, 2, 3, 4]
