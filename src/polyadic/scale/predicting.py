"""Predictions for tables larger than memory: from files to a file, in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from polyadic.io.atomic import drafted
from polyadic.scale.sources import Batch, import_datasets, open_source

_BATCH_ROWS = 65_536
More = Callable[[Any, np.ndarray], dict[str, np.ndarray]]
_METHODS = ("predict", "predict_proba", "decision_function")


def predict(
    model: Any,
    source: Any,
    target: str | os.PathLike,
    *,
    method: str = "predict",
    keep: Sequence[str] = (),
    batch_rows: int = _BATCH_ROWS,
    more: More | None = None,
) -> int:
    """Predict a table batch by batch, and write the predictions to a file.

    The rows of the file are those of the source, in the same order. Memory does not grow with the
    number of rows. The file is complete or not there: it gets its name when all is written.

    Parameters
    ----------
    model : fitted estimator
        Any estimator of this library that was fitted to a table with column names.
    source : path, glob pattern, folder, pyarrow.dataset.Dataset or callable
        See `open_source`. It may have more columns than the model reads.
    target : path
        The file to write: CSV, TSV or Arrow by the end of its name, Parquet for any other.
    method : {"predict", "predict_proba", "decision_function"}
        What to write: a column `prediction`; or a column per class, `probability_` or `raw_` and
        the class.
    keep : sequence of str
        Columns of the source to copy, such as an identifier. Those of a CSV file that the model
        does not read are copied as text, as they are in the file.
    batch_rows : int
        Rows that are read, predicted and written at a time.
    more : callable, optional
        Called with each batch, an Arrow table of the columns that the model reads, and with what
        was predicted for it; returns further columns to write, arrays (n,) by name.

    Returns
    -------
    int
        The number of rows written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    >>> from polyadic import CPRegressor, scale
    >>> x = np.linspace(0, 1, 60)
    >>> model = CPRegressor(max_iter=5, n_members=1, random_state=0)
    >>> table = pa.table({"id": np.arange(60), "x": x})
    >>> model = model.fit(table.select(["x"]), 2 * x)
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(table, os.path.join(folder, "rows.parquet"))
    >>> path = os.path.join(folder, "predicted.parquet")
    >>> scale.predict(model, os.path.join(folder, "rows.parquet"), path, keep=["id"])
    60
    >>> pq.read_table(path).column_names
    ['id', 'prediction']
    """
    tables = predicted_tables(
        model, source, method=method, keep=keep, batch_rows=batch_rows, more=more
    )
    with drafted(target) as draft:
        return write_tables(tables, draft, os.fspath(target))


def predicted_tables(
    model: Any,
    source: Any,
    *,
    method: str = "predict",
    keep: Sequence[str] = (),
    batch_rows: int = _BATCH_ROWS,
    more: More | None = None,
) -> Iterator[Any]:
    """Yield the predictions of a table batch by batch, as Arrow tables: see `predict`."""
    wanted = model_columns(model, method)
    table = open_source(source, types=file_types(model, keep))
    names = list(dict.fromkeys([*keep, *wanted]))
    n_rows = 0
    for batch in table.batches(batch_rows, names):
        yield predicted(model, method, batch, wanted, list(keep), more)
        n_rows += batch.num_rows
    if n_rows == 0:
        raise ValueError(f"{table.label} has no rows.")


def write_tables(tables: Iterable[Any], sink: Any, name: str) -> int:
    """Write Arrow tables one after another to a path or a stream; return the number of rows.

    The end of the name says how: .csv, .tsv, .arrow or .feather; Parquet for any other.
    """
    n_rows, writer = 0, None
    try:
        for table in tables:
            writer = writer or _open_writer(sink, name.lower(), table.schema)
            writer.write_table(table)
            n_rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return n_rows


def _open_writer(sink: Any, name: str, schema: Any) -> Any:
    """Return the writer of a file, by the end of its name."""
    import pyarrow as pa  # `open_source` has said what to install
    import pyarrow.csv
    import pyarrow.parquet

    if name.endswith((".csv", ".tsv")):
        delimiter = "\t" if name.endswith(".tsv") else ","
        options = pyarrow.csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
        return pyarrow.csv.CSVWriter(sink, schema, write_options=options)
    if name.endswith((".arrow", ".feather")):
        return pa.ipc.new_file(sink, schema)
    return pyarrow.parquet.ParquetWriter(sink, schema)


def model_columns(model: Any, method: str) -> list[str]:
    """Return the columns that a model reads."""
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(_METHODS)}, got {method!r}.")
    if not hasattr(model, method):
        raise ValueError(f"{type(model).__name__} has no {method}: use method='predict'.")
    if not hasattr(model, "n_features_in_"):
        raise ValueError(f"This {type(model).__name__} is not fitted. Call fit first.")
    if not hasattr(model, "feature_names_in_"):
        raise ValueError(
            "The model was fitted to a table without column names: it cannot tell the columns of a "
            "file apart. Fit it to a table with names."
        )
    return list(model.feature_names_in_)


def file_types(model: Any, keep: Sequence[str] = ()) -> dict[str, Any]:
    """Return the types that columns of a file without types have for a model: numbers or text.

    Columns to keep that the model does not read are text: an identifier stays as it is.
    """
    import_datasets()  # says what to install
    import pyarrow as pa

    columns = model.columns_
    types = {name: pa.string() for name in keep if name not in columns.sources}
    for column in columns.columns:
        if column.part is not None:
            continue  # pyarrow knows dates by their form
        if column.categories is None:
            types[column.source] = pa.float64()
        elif all(isinstance(value, str) for value in column.categories):
            types[column.source] = pa.string()
    return types


def _names(model: Any, method: str) -> list[str]:
    """Return the names of the columns with predictions."""
    if method == "predict":
        return ["prediction"]
    start = "probability" if method == "predict_proba" else "raw"
    classes = model.classes_
    if method == "decision_function" and len(classes) == 2:
        classes = classes[1:]
    return [f"{start}_{value}" for value in classes]


def predicted(
    model: Any,
    method: str,
    batch: Batch,
    wanted: list[str],
    keep: list[str],
    more: More | None,
) -> Any:
    """Return the table to write for a batch."""
    import pyarrow as pa

    rows = pa.table(batch.select(wanted))
    found = np.asarray(getattr(model, method)(rows))
    columns = found[:, None] if found.ndim == 1 else found
    names = _names(model, method)
    if columns.shape[1] != len(names):  # several targets
        names = [f"{names[0]}_{k}" for k in range(columns.shape[1])]
    arrays = {name: batch.column(name) for name in keep}
    _add(arrays, dict(zip(names, columns.T)))
    if more is not None:
        _add(arrays, more(rows, found))
    return pa.table(arrays)


def _add(arrays: dict[str, Any], new: dict[str, np.ndarray]) -> None:
    """Add columns to write; refuse a name that is taken, for one would replace the other."""
    import pyarrow as pa

    for name, column in new.items():
        if name in arrays:
            raise ValueError(
                f"Two columns to write are called {name!r}: one is the name of a prediction or of "
                "what belongs to it. Leave the column out of keep, or rename it in the table."
            )
        arrays[name] = pa.array(column)
