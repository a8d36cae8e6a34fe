"""Predictions for tables larger than memory: those of the table itself, in order, or no file."""

import os
import subprocess
import sys
from itertools import pairwise

import needs
import numpy as np
import pytest

from polyadic import CPClassifier, CPRegressor, scale

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
    sources = [
        folder,
        str(folder / "part-*.parquet"),
        datasets.dataset(folder),
        rows.to_batches,
        lambda: [rows.slice(0, 100), rows.slice(100)],
        tmp_path / "rows.csv",
        tmp_path / "rows.tsv",
    ]
    wanted = models["regression"].predict(rows.select(COLUMNS))
    for k, source in enumerate(sources):
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
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=r"files of one kind"):
        scale.predict(model, tmp_path / "a.txt", out)
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
