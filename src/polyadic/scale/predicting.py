"""Predictions for tables larger than memory: from files to a Parquet file, in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyadic.io.atomic import drafted
from polyadic.scale.sources import Batch, open_source

_BATCH_ROWS = 65_536
_METHODS = ("predict", "predict_proba", "decision_function")


def predict(
    model: Any,
    source: Any,
    target: str | os.PathLike,
    *,
    method: str = "predict",
    keep: Sequence[str] = (),
    batch_rows: int = _BATCH_ROWS,
) -> int:
    """Predict a table batch by batch, and write the predictions to a Parquet file.

    The rows of the file are those of the source, in the same order. Memory does not grow with the
    number of rows. The file is complete or not there: it gets its name when all is written.

    Parameters
    ----------
    model : fitted estimator
        Any estimator of this library that was fitted to a table with column names.
    source : path, glob pattern, folder, pyarrow.dataset.Dataset or callable
        See `open_source`. It may have more columns than the model reads.
    target : path
        The Parquet file to write.
    method : {"predict", "predict_proba", "decision_function"}
        What to write: a column "prediction"; or a column per class, "probability_" or "raw_" and
        the class.
    keep : sequence of str
        Columns of the source to copy, such as an identifier.
    batch_rows : int
        Rows that are read, predicted and written at a time.

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
    table = open_source(source)
    wanted = _columns(model, method)
    names = list(dict.fromkeys([*keep, *wanted]))
    taken = set(keep) & set(_names(model, method))
    if taken:
        raise ValueError(f"keep has {sorted(taken)[0]!r}, which is the name of a prediction.")
    import pyarrow.parquet as pq  # `open_source` has said what to install

    n_rows, writer = 0, None
    with drafted(target) as draft:
        try:
            for batch in table.batches(batch_rows, names):
                out = _predicted(model, method, batch, wanted, list(keep))
                if writer is None:
                    writer = pq.ParquetWriter(draft, out.schema)
                writer.write_table(out)
                n_rows += out.num_rows
            if writer is None:
                raise ValueError(f"{table.label} has no rows.")
        finally:
            if writer is not None:
                writer.close()
    return n_rows


def _columns(model: Any, method: str) -> list[str]:
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


def _names(model: Any, method: str) -> list[str]:
    """Return the names of the columns with predictions."""
    if method == "predict":
        return ["prediction"]
    start = "probability" if method == "predict_proba" else "raw"
    classes = model.classes_
    if method == "decision_function" and len(classes) == 2:
        classes = classes[1:]
    return [f"{start}_{value}" for value in classes]


def _predicted(model: Any, method: str, batch: Batch, wanted: list[str], keep: list[str]) -> Any:
    """Return the table to write for a batch."""
    import pyarrow as pa

    found = np.asarray(getattr(model, method)(pa.table(batch.select(wanted))))
    columns = found[:, None] if found.ndim == 1 else found
    names = _names(model, method)
    if columns.shape[1] != len(names):  # several targets
        names = [f"{names[0]}_{k}" for k in range(columns.shape[1])]
    arrays = {name: batch.column(name) for name in keep}
    arrays |= {name: pa.array(column) for name, column in zip(names, columns.T)}
    return pa.table(arrays)
