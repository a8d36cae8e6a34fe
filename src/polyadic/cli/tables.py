"""Reading tables: CSV, TSV, Parquet and Arrow, also compressed, from files and standard input.

A CSV file has no types. When a model is fitted, they are found from all rows; later the model says
which columns are numbers and which are text, so that "01" and "NA" stay what they were. An empty
cell is missing in every column. `polyadic.scale.sources` has the same rules for files in batches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from polyadic.scale import open_source
from polyadic.scale.predicting import file_types
from polyadic.scale.sources import (
    Types,
    check_names,
    csv_header,
    csv_options,
    empty_as_missing,
    named_errors,
    open_text,
)
from polyadic.training.model import FittedModel, classes_of, target_names

STDIN = "-"

# The kind of a file by the end of its name, without .gz.
_KINDS = {".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
_KINDS |= {".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
# The kind of standard input, and of a compressed one, by its first bytes.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_GZIP = b"\x1f\x8b"
_MOST_NAMES = 20  # columns that an error lists


def read(path: str, types: Callable[[list[str]], Types] | None = None) -> pa.Table:
    """Read a whole table.

    Parameters
    ----------
    path : str
        A file, a folder or a pattern of files, or "-" for standard input.
    types : callable, optional
        Given the names of the columns of a CSV file, returns the types of those that are known.
    """
    label = "Standard input" if path == STDIN else repr(path)
    with named_errors(label):
        table = _read(path, types)
    check_names(table.column_names, label)
    if table.num_rows == 0:
        raise ValueError(f"{label} has no rows.")
    return table


def _read(path: str, types: Callable[[list[str]], Types] | None) -> pa.Table:
    if path == STDIN:
        data = _unpacked(sys.stdin.buffer.read())
        kind = next((k for magic, k in _MAGIC.items() if data.startswith(magic)), "csv")
        return _parse(kind, lambda: pa.BufferReader(data), types)
    if not Path(path).is_file():
        return _read_files(path, types)
    return _parse(_kind(path), lambda: open_text(path), types)


def _read_files(path: str, types: Callable[[list[str]], Types] | None) -> pa.Table:
    """Return the table in the files of a folder or a pattern; say what is missing."""
    source = open_source(path)
    if types is not None:
        source = open_source(path, types=types(source.names))
    batches = list(source.batches())
    if not batches:
        raise ValueError(f"{source.label} has no rows.")
    return pa.Table.from_batches(batches)


def _parse(
    kind: str, open_file: Callable[[], Any], types: Callable[[list[str]], Types] | None
) -> pa.Table:
    """Return the table in a file, which is opened once more to see the names in a CSV file."""
    if kind == "parquet":
        return pyarrow.parquet.read_table(open_file())
    if kind == "arrow":
        return pyarrow.feather.read_table(open_file())
    header, delimiter = csv_header(open_file(), kind == "tsv")
    known = {} if types is None else types(header)
    options = csv_options(delimiter, known)
    return empty_as_missing(pyarrow.csv.read_csv(open_file(), **options))


def _kind(path: str) -> str:
    """Return the kind of a file by its name."""
    name = Path(path.lower().removesuffix(".gz"))
    if name.suffix not in _KINDS:
        raise ValueError(
            f"Cannot tell what {path!r} is by its name: it must end in {', '.join(_KINDS)}, "
            "which .gz may follow."
        )
    return _KINDS[name.suffix]


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    return pa.input_stream(pa.BufferReader(data), compression="gzip").read()


# ---- tables for a model --------------------------------------------------------------------------


def read_for(model: FittedModel, path: str, target: str | None) -> pa.Table:
    """Read a whole table that a model is to predict."""
    return read(path, lambda header: types_for(model, header, target))


def stream_for(model: FittedModel, path: str, keep: Sequence[str]) -> Any:
    """Return a source of `polyadic.scale` with what a model reads, and the columns to keep."""
    if path != STDIN:
        if Path(path).is_file():
            _kind(path)  # refuses a name that says nothing
        return path
    return read(path, lambda header: file_types(model, keep)).to_batches


def types_for(model: FittedModel, header: list[str], target: str | None) -> Types:
    """Return the types of known columns: numbers or text; pyarrow infers those of the others."""
    columns, known = model.columns_, file_types(model)
    # A model without column names takes columns by position, as `Columns.code` does.
    inputs = columns.sources if columns.named else [name for name in header if name != target]
    types = {name: known[own] for own, name in zip(columns.sources, inputs) if own in known}
    if target is not None:
        types.pop(target, None)
        classes = classes_of(model)
        if _all_text([None] if classes is None else classes):
            types[target] = pa.string()
    return types


def _all_text(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def target_for(model: FittedModel, given: str | None) -> str | None:
    """Return the column that a model predicts: as given, or as the model file says."""
    names = target_names(model) or []
    return given or (names[0] if len(names) == 1 else None)


# ---- columns -------------------------------------------------------------------------------------


def split_target(table: pa.Table, target: str | None) -> tuple[pa.Table, Any]:
    """Return the other columns, and the target as an array, (n,); None without a target."""
    if target is None:
        return table, None
    find(table.column_names, target, "The table")
    return table.drop_columns([target]), as_array(table, target)


def as_array(table: pa.Table, name: str) -> Any:
    """Return a column without missing values as an array, (n,)."""
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = pyarrow.compute.cast(column, column.type.value_type)
    missing = column.is_null(nan_is_null=True)
    n_missing = pyarrow.compute.sum(missing).as_py()
    if n_missing:
        first = missing.index(pa.scalar(True)).as_py()
        raise ValueError(
            f"The column {name!r} is missing in {n_missing:,} of {table.num_rows:,} rows, first in "
            f"row {first}. Remove these rows, or fill in the values."
        )
    return column.to_numpy()


def find(names: Sequence[str], wanted: str, label: str) -> str:
    """Return the name of a column; refuse one that is not there."""
    if wanted not in names:
        more = ", ..." if len(names) > _MOST_NAMES else ""
        raise ValueError(
            f"{label} has no column {wanted!r}. Choose from: "
            f"{', '.join(names[:_MOST_NAMES])}{more}."
        )
    return wanted
