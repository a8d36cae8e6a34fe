"""Reading tables: CSV, TSV, Parquet and Arrow, also compressed, from files and standard input.

A CSV file has no types. When a model is fitted, pyarrow finds them from the whole file; later the
model says which columns are numbers and which are text, so that "01" and "NA" stay what they were.
An empty cell is missing in every column.
"""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from polyadic.scale import open_source
from polyadic.training.model import FittedModel, classes_of, target_names

STDIN = "-"
Types = dict[str, pa.DataType]

# The kind of a file by the end of its name, without .gz.
_KINDS = {".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
_KINDS |= {".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
# The kind of standard input, and of a compressed one, by its first bytes.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_GZIP = b"\x1f\x8b"
_BLOCK = 4 << 20  # bytes of a CSV file that are read at a time where it is streamed
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
    with _named_errors(label):
        table = _read(path, types)
    _check_names(table.column_names, label)
    if table.num_rows == 0:
        raise ValueError(f"{label} has no rows.")
    return table


@contextmanager
def _named_errors(label: str) -> Iterator[None]:
    """Say in the errors of pyarrow which table they are about."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None or isinstance(error, FileNotFoundError):
            raise  # of the system, or ours: it names the file
        raise ValueError(f"{label} cannot be read as a table: {error}") from error


def _read(path: str, types: Callable[[list[str]], Types] | None) -> pa.Table:
    if path == STDIN:
        data = _unpacked(sys.stdin.buffer.read())
        kind = next((k for magic, k in _MAGIC.items() if data.startswith(magic)), "csv")
        return _parse(kind, lambda: pa.BufferReader(data), types)
    if not Path(path).is_file():
        return pa.Table.from_batches(open_source(path).batches())  # says what is missing
    return _parse(_kind(path), lambda: _open(path), types)


def _parse(
    kind: str, open_file: Callable[[], Any], types: Callable[[list[str]], Types] | None
) -> pa.Table:
    """Return the table in a file, which is opened once more to see the names in a CSV file."""
    if kind == "parquet":
        return pyarrow.parquet.read_table(open_file())
    if kind == "arrow":
        return pyarrow.feather.read_table(open_file())
    header, delimiter = _header(open_file(), kind)
    known = {} if types is None else types(header)
    options = _csv_options(delimiter, known)
    return _empty_as_missing(pyarrow.csv.read_csv(open_file(), **options))


def _kind(path: str) -> str:
    """Return the kind of a file by its name."""
    name = Path(path.lower().removesuffix(".gz"))
    if name.suffix not in _KINDS:
        raise ValueError(
            f"Cannot tell what {path!r} is by its name: it must end in {', '.join(_KINDS)}, "
            "which .gz may follow."
        )
    return _KINDS[name.suffix]


def _open(path: str) -> Any:
    """Open a file to read; .gz is unpacked on the way."""
    if path.lower().endswith(".gz"):
        return pa.input_stream(path, compression="gzip")
    return pa.OSFile(path)


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    return pa.input_stream(pa.BufferReader(data), compression="gzip").read()


# ---- CSV -----------------------------------------------------------------------------------------


def _header(file: Any, kind: str) -> tuple[list[str], str]:
    """Return the names of the columns, and what separates them."""
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as lines:
        first = lines.readline()
        tabs = kind == "tsv" or ("\t" in first and "," not in first)
        delimiter = "\t" if tabs else ","
        if '"' in first:  # a quoted name may hold a line break
            first += lines.read(1 << 16)
    return next(csv.reader(io.StringIO(first, newline=""), delimiter=delimiter), []), delimiter


def _csv_options(delimiter: str, types: Types, columns: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options for pyarrow's readers; without `columns`, all are read."""
    return {
        "parse_options": pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        # "NA" is a missing number, but may be a category: text stays as it is.
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=types, strings_can_be_null=False, include_columns=list(columns)
        ),
    }


def _empty_as_missing(table: Any) -> Any:
    """Return a table or a batch in which an empty text is a missing one."""
    arrays = []
    for column in table.columns:
        if pa.types.is_string(column.type):
            empty = pyarrow.compute.equal(column, "")
            column = pyarrow.compute.if_else(empty, pa.scalar(None, column.type), column)
        arrays.append(column)
    return type(table).from_arrays(arrays, names=table.schema.names)


# ---- tables for a model --------------------------------------------------------------------------


def read_for(model: FittedModel, path: str, target: str | None) -> pa.Table:
    """Read a whole table that a model is to predict."""
    return read(path, lambda header: types_for(model, header, target))


def stream_for(model: FittedModel, path: str, keep: Sequence[str]) -> Any:
    """Return a source of `polyadic.scale` with what a model reads, and the columns to keep."""
    if path != STDIN and (not Path(path).is_file() or _kind(path) not in ("csv", "tsv")):
        return path
    if path == STDIN:
        table = read_for(model, path, None)
        return table.to_batches
    with _named_errors(repr(path)):
        header, delimiter = _header(_open(path), _kind(path))
    _check_names(header, repr(path))
    wanted = list(dict.fromkeys([*keep, *model.columns_.sources]))
    for name in wanted:
        find(header, name, repr(path))
    options = _csv_options(delimiter, types_for(model, header, None), wanted)
    options["read_options"] = pyarrow.csv.ReadOptions(block_size=_BLOCK)

    def batches() -> Iterator[Any]:
        with _named_errors(repr(path)):
            for batch in pyarrow.csv.open_csv(_open(path), **options):
                yield _empty_as_missing(batch)

    return batches


def types_for(model: FittedModel, header: list[str], target: str | None) -> Types:
    """Return the types of known columns: numbers or text; pyarrow infers those of the others."""
    columns = model.columns_
    # A model without column names takes columns by position, as `Columns.code` does.
    inputs = columns.sources if columns.named else [name for name in header if name != target]
    name_of = dict(zip(columns.sources, inputs))
    types: Types = {}
    for column in columns.columns:
        name = name_of.get(column.source)
        if name is None or column.part is not None:
            continue  # pyarrow knows dates by their form
        if column.categories is None:
            types[name] = pa.float64()
        elif _all_text(column.categories):
            types[name] = pa.string()
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


def _check_names(names: Sequence[str], label: str) -> None:
    """Refuse two columns of one name: it would not be known which is meant."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{label} has {names.count(twice[0])} columns named {twice[0]!r}. Rename or remove "
            "them: columns are found by their names."
        )
