"""Where the rows of a table larger than memory come from.

A source is read batch by batch, as often as needed, always in the same order: files in the order of
their names, and the rows of each file in theirs.

CSV files have no types. Those that nobody has told are found from all rows of all files: numbers
with decimals somewhere are all floats. An empty cell is missing in every column.
"""

from __future__ import annotations

import csv
import glob
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from polyadic.scale.ahead import one_ahead

Types = dict[str, Any]  # pyarrow.DataType by the name of the column
Batch = Any  # a pyarrow.RecordBatch
Batches = Callable[[], Iterable[Batch]]

_BATCH_ROWS = 65_536  # rows of a batch; a batch of 20 numbers per row takes 10 MB
_READ_AHEAD = 2  # batches that are read while one is used
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc"}
_FORMATS |= {".ipc": "ipc", ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".gz": "csv"}
_IN_FOLDERS = _FORMATS.keys() - {".txt"}  # there, it may be a note about the table
_BLOCK = 4 << 20  # bytes of a CSV file that are read at a time


class Source:
    """A table that is read in batches.

    Parameters
    ----------
    open_batches : callable
        Called with the number of rows of a batch at most and the columns wanted; returns batches.
    names : list of str
        The columns.
    n_rows : int or None
        How many rows there are, where that is known without reading them.
    label : str
        How errors refer to the source.
    types : dict
        The type of each column, as Arrow names it, where that is known.
    """

    def __init__(
        self,
        open_batches: Callable[[int, list[str] | None], Iterable[Batch]],
        names: list[str],
        n_rows: int | None,
        label: str,
        types: dict[str, str] | None = None,
    ):
        self._open = open_batches
        self.names, self.n_rows, self.label = names, n_rows, label
        self.types = types or {}

    def batches(
        self, rows: int = _BATCH_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[Batch]:
        """Yield the batches in order, none of them empty.

        Parameters
        ----------
        rows : int
            Rows of a batch at most.
        columns : sequence of str or None
            Columns wanted, None for all.
        """
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows!r}.")
        wanted = None if columns is None else self._check(columns)
        for batch in self._open(rows, wanted):
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)

    def restricted(self, columns: Sequence[str]) -> Source:
        """Return the same rows with these columns only."""
        kept = self._check(columns)

        def batches(rows: int, wanted: list[str] | None) -> Iterable[Batch]:
            return self._open(rows, kept if wanted is None else wanted)

        types = {name: kind for name, kind in self.types.items() if name in kept}
        return Source(batches, kept, self.n_rows, self.label, types)

    def _check(self, columns: Sequence[str]) -> list[str]:
        """Return the columns; refuse one that is missing."""
        missing = [name for name in columns if name not in self.names]
        if missing:
            raise ValueError(
                f"{self.label} has no column {missing[0]!r}. Its columns are: "
                f"{', '.join(map(repr, self.names))}."
            )
        return list(columns)


def open_source(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    types: Types | None = None,
    delimiter: str | None = None,
) -> Source:
    """Return the source of a table.

    Parameters
    ----------
    source : str, path, Dataset, callable or Source
        A Parquet, Arrow or CSV file, a folder or a glob pattern of such files; a
        `pyarrow.dataset.Dataset`; or a function without arguments that returns Arrow batches (or
        tables), the same ones at every call.
    columns : sequence of str, optional
        The columns to read; by default all.
    types : dict, optional
        The `pyarrow.DataType` of columns of CSV files, and of folders such as `year=2024`, by name.
        Types that are not given are found from all rows. Other files have types of their own.
    delimiter : str, optional
        What separates the columns of CSV files; by default a tab if the name of the file says so,
        or if the first line has tabs and no comma, and else a comma.

    Returns
    -------
    Source

    Examples
    --------
    >>> import pyarrow as pa
    >>> from polyadic.scale import open_source
    >>> table = pa.table({"x": [1.0, 2.0, 3.0]})
    >>> [batch.num_rows for batch in open_source(table.to_batches).batches(rows=2)]
    [2, 1]
    """
    if columns is not None:
        whole = open_source(source, types=types, delimiter=delimiter)
        return whole.restricted(columns)
    if isinstance(source, Source):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _open_files(os.fspath(source), types or {}, delimiter)
    datasets = import_datasets()
    if isinstance(source, datasets.Dataset):
        return _from_dataset(source, "The dataset")
    if callable(source):
        return _from_function(source)
    raise TypeError(
        "A table larger than memory is a path, a glob pattern or a folder of Parquet files, a "
        "pyarrow.dataset.Dataset, or a function that returns Arrow batches; got "
        f"{type(source).__name__}."
    )


def is_source(X: Any) -> bool:
    """Tell whether a table is a source: a path, a dataset, a function or a `Source`.

    >>> is_source("rows.parquet"), is_source([[1.0]])
    (True, False)
    """
    if isinstance(X, (str, os.PathLike, Source)) or (callable(X) and not isinstance(X, type)):
        return not hasattr(X, "__array__")
    return (
        type(X).__module__.startswith("pyarrow")
        and hasattr(X, "to_batches")
        and not hasattr(X, "column")
    )


def import_datasets() -> Any:
    """Import pyarrow.dataset, or say what to install."""
    try:
        import pyarrow.dataset
    except ImportError as error:
        raise ImportError(
            "Tables in files are read by pyarrow: pip install 'polyadic[tables]'."
        ) from error
    return pyarrow.dataset


def _open_files(text: str, types: Types, delimiter: str | None) -> Source:
    """Return the source of the files that a path names."""
    import_datasets()  # says what to install
    files, label = find_files(text), repr(text)
    kinds = {_FORMATS.get(Path(file).suffix.lower(), "") for file in files}
    if len(kinds) != 1 or "" in kinds:
        endings = sorted({Path(file).suffix or Path(file).name for file in files})
        raise ValueError(
            f"{label} must be files of one kind, {', '.join(sorted(_FORMATS))}; got "
            f"{', '.join(endings)}."
        )
    kind, base = kinds.pop(), _base(text)
    keys = _keys(files, base)
    if kind != "csv":
        return _from_dataset(_open_dataset(files, kind, base, keys, types), label)
    if keys:
        raise ValueError(
            f"{label} has folders named {keys[0]}=..., whose column is not in the CSV files. Add "
            "the column to the files, write the table as Parquet, or, in Python, give "
            "pyarrow.dataset.dataset(path, format='csv', partitioning='hive')."
        )
    found = _CsvFiles(files, types, delimiter)
    return Source(found.batches, found.names, None, label)


def _base(text: str) -> str:
    """Return the folder of a path below which folders may hold values; of a pattern, its start."""
    if os.path.isdir(text):
        return os.path.abspath(text)
    if os.path.isfile(text):
        return os.path.dirname(os.path.abspath(text))
    parts = Path(text).parts
    plain = next(k for k, part in enumerate(parts) if glob.has_magic(part))
    return os.path.abspath(os.path.join("", *parts[:plain]))


def _keys(files: list[str], base: str) -> list[str]:
    """Return the names in folders such as `year=2024`, which hold a column of the table."""
    folders = [Path(os.path.abspath(file)).relative_to(base).parent.parts for file in files]
    return sorted({part.split("=")[0] for parts in folders for part in parts if "=" in part})


def _open_dataset(files: list[str], kind: str, base: str, keys: list[str], types: Types) -> Any:
    """Return the dataset of files; folders such as `year=2024` give a column `year`."""
    datasets = import_datasets()
    if not keys:
        return datasets.dataset(files, format=kind)
    import pyarrow as pa

    where = {"format": kind, "partition_base_dir": base}
    paths = [os.path.abspath(file) for file in files]
    found = datasets.dataset(paths, partitioning="hive", **where).schema
    fields = pa.schema([(key, types.get(key, found.field(key).type)) for key in keys])
    known = datasets.partitioning(fields, flavor="hive")
    return datasets.dataset(paths, partitioning=known, **where)


def find_files(text: str) -> list[str]:
    """Return the files of a path, a folder or a pattern, in the order of their names."""
    if os.path.isdir(text):
        found = sorted(str(p) for p in Path(text).rglob("*") if _is_data(p, Path(text)))
        if not found:
            raise FileNotFoundError(
                f"The folder {text!r} has no file that ends in {', '.join(sorted(_IN_FOLDERS))}."
            )
        return found
    if os.path.isfile(text):
        return [text]
    found = sorted(p for p in glob.glob(text, recursive=True) if os.path.isfile(p))
    if not found:
        raise FileNotFoundError(f"There is no file {text!r}, and no file matches it as a pattern.")
    return found


def _is_data(path: Path, folder: Path) -> bool:
    """Tell whether a file of a folder is part of the table.

    Hidden files and folders are not, nor are _metadata, _temporary/ and the like.
    """
    parts = path.relative_to(folder).parts
    hidden = any(part[0] in "._" and "=" not in part for part in parts)
    return not hidden and path.suffix.lower() in _IN_FOLDERS and path.is_file()


def _from_dataset(dataset: Any, label: str) -> Source:
    # Text files are counted only by reading them.
    kind = getattr(getattr(dataset, "format", None), "default_extname", "")
    n_rows = dataset.count_rows() if kind in ("parquet", "ipc") else None
    in_groups = kind == "parquet" and _has_pieces(dataset)

    def batches(rows: int, columns: list[str] | None) -> Iterator[Batch]:
        how = {"columns": columns, "batch_size": rows, "batch_readahead": _READ_AHEAD}
        if in_groups:
            return one_ahead(_row_groups(dataset, how))
        return dataset.to_batches(**how, fragment_readahead=1)

    types = {field.name: str(field.type) for field in dataset.schema}
    return Source(batches, list(dataset.schema.names), n_rows, label, types)


def _has_pieces(dataset: Any) -> bool:
    """Tell whether a dataset can be read piece by piece: not where the user has filtered it."""
    try:
        dataset.get_fragments()
    except ValueError:
        return False
    return True


def _row_groups(dataset: Any, how: dict[str, Any]) -> Iterator[Batch]:
    """Yield the rows of a Parquet dataset, one row group at a time.

    The dataset's own scan reads many row groups ahead, whatever it is told: for rows of 20 columns
    it held 0.2 to 0.5 GB, and this at most 0.05 GB, at the same speed.
    """
    for file in dataset.get_fragments():
        for group in file.split_by_row_group():
            yield from group.to_batches(schema=dataset.schema, **how)


def _from_function(function: Batches) -> Source:
    first = next(iter(function()), None)
    if first is None:
        raise ValueError("The function returned no batch. It must return at least one.")
    names = list(first.schema.names)

    def batches(rows: int, columns: list[str] | None) -> Iterator[Batch]:
        for found in function():
            if list(found.schema.names) != names:
                raise ValueError(
                    f"All batches must have the columns {names}; one has "
                    f"{list(found.schema.names)}."
                )
            chosen = found if columns is None else found.select(columns)
            yield from chosen.to_batches() if hasattr(chosen, "to_batches") else [chosen]

    return Source(batches, names, None, "The table")


# ---- CSV -----------------------------------------------------------------------------------------


class _CsvFiles:
    """CSV files of the same columns, read as one table.

    Parameters
    ----------
    files : list of str
    types : dict
        The types of columns that are known; the others are found from all rows.
    delimiter : str or None
        What separates columns; None to see it in each file.
    """

    def __init__(self, files: list[str], types: Types, delimiter: str | None):
        self._types, self._delimiters = dict(types), dict[str, str]()
        for file in files:
            with named_errors(repr(file)):
                names, found = csv_header(open_text(file), is_tsv(file), delimiter)
            check_names(names, repr(file))
            self._delimiters[file] = found
            if file == files[0]:
                self.names = names
            elif set(names) != set(self.names):
                other = sorted(set(names) ^ set(self.names))[0]
                having = (file, files[0]) if other in names else (files[0], file)
                raise ValueError(
                    f"{having[0]!r} has a column {other!r}, and {having[1]!r} has not. All files "
                    "of a table must have the same columns."
                )

    def batches(self, rows: int, columns: list[str] | None) -> Iterator[Batch]:
        """Yield the rows of all files in order; how many at a time depends on their length."""
        wanted = self.names if columns is None else columns
        self._find_types([name for name in wanted if name not in self._types])
        for file in self._delimiters:
            for batch in self._read(file, wanted, self._types):
                yield empty_as_missing(batch)

    def _read(self, file: str, columns: list[str], types: Types) -> Iterator[Batch]:
        from pyarrow import csv as arrow_csv

        options = csv_options(self._delimiters[file], types, columns)
        read = arrow_csv.ReadOptions(block_size=_BLOCK)
        with named_errors(repr(file)):
            yield from arrow_csv.open_csv(open_text(file), read_options=read, **options)

    def _find_types(self, columns: list[str]) -> None:
        """Find the types of columns that are not known.

        Mostly the first block of the first file tells them, which reading everything confirms.
        """
        if not columns:
            return
        try:
            first: Types = {}
            for file in self._delimiters:
                for batch in self._read(file, columns, first):
                    first = first or {field.name: field.type for field in batch.schema}
        except ValueError:
            first = self._types_of_blocks(columns)
        self._types |= first

    def _types_of_blocks(self, columns: list[str]) -> Types:
        """Return the types that hold the values of every block."""
        import pyarrow as pa

        as_text = dict.fromkeys(columns, pa.string())
        found: dict[str, list[Any]] = {name: [pa.null()] for name in columns}
        for file in self._delimiters:
            for batch in self._read(file, columns, as_text):
                for field in _inferred(batch):
                    if field.type not in found[field.name]:
                        found[field.name].append(field.type)
        return {name: reduce(_wider, kinds) for name, kinds in found.items()}


def _inferred(batch: Batch) -> Any:
    """Return the schema that pyarrow would find for texts, had they been a CSV file."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    sink = pa.BufferOutputStream()
    arrow_csv.write_csv(batch, sink)
    options = csv_options(",", {}, batch.schema.names)
    return arrow_csv.read_csv(pa.BufferReader(sink.getvalue()), **options).schema


def _wider(one: Any, other: Any) -> Any:
    """Return the type of a column that holds values of two types; text, if nothing else does."""
    import pyarrow as pa

    numbers = [pa.null(), pa.int64(), pa.float64()]
    times = [pa.null(), pa.date32(), pa.timestamp("s"), pa.timestamp("ns")]
    for ladder in (numbers, times, [pa.null(), one], [pa.null(), other]):
        if one in ladder and other in ladder:
            return max(one, other, key=ladder.index)
    return pa.string()


def open_text(path: str) -> Any:
    """Open a file to read; .gz is unpacked on the way."""
    import pyarrow as pa

    if path.lower().endswith(".gz"):
        return pa.input_stream(path, compression="gzip")
    return pa.OSFile(path)


def is_tsv(path: str) -> bool:
    """Tell whether the name of a file says that tabs separate its columns."""
    return path.lower().removesuffix(".gz").endswith(".tsv")


def csv_header(file: Any, tabs: bool, delimiter: str | None = None) -> tuple[list[str], str]:
    """Return the names of the columns, and what separates them."""
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as lines:
        first = lines.readline()
        tabs = tabs or ("\t" in first and "," not in first)
        delimiter = delimiter or ("\t" if tabs else ",")
        if '"' in first:  # a quoted name may hold a line break
            first += lines.read(1 << 16)
    return next(csv.reader(io.StringIO(first, newline=""), delimiter=delimiter), []), delimiter


def csv_options(delimiter: str, types: Types, columns: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options for pyarrow's readers; without `columns`, all are read."""
    from pyarrow import csv as arrow_csv

    return {
        "parse_options": arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        # "NA" is a missing number, but may be a category: text stays as it is.
        "convert_options": arrow_csv.ConvertOptions(
            column_types=types, strings_can_be_null=False, include_columns=list(columns)
        ),
    }


def empty_as_missing(table: Any) -> Any:
    """Return a table or a batch in which an empty text is a missing one."""
    import pyarrow as pa
    import pyarrow.compute

    arrays = []
    for column in table.columns:
        if pa.types.is_string(column.type):
            empty = pyarrow.compute.equal(column, "")
            column = pyarrow.compute.if_else(empty, pa.scalar(None, column.type), column)
        arrays.append(column)
    return type(table).from_arrays(arrays, names=table.schema.names)


@contextmanager
def named_errors(label: str) -> Iterator[None]:
    """Say in the errors of pyarrow which table they are about."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None or isinstance(error, FileNotFoundError):
            raise  # of the system, or ours: it names the file
        raise ValueError(f"{label} cannot be read as a table: {error}") from error


def check_names(names: Sequence[str], label: str) -> None:
    """Refuse two columns of one name: it would not be known which is meant."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{label} has {names.count(twice[0])} columns named {twice[0]!r}. Rename or remove "
            "them: columns are found by their names."
        )
