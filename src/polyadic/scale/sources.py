"""Where the rows of a table larger than memory come from.

A source is read batch by batch, as often as needed, always in the same order: files in the order of
their names, and the rows of each file in theirs.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Batch = Any  # a pyarrow.RecordBatch
Batches = Callable[[], Iterable[Batch]]

_BATCH_ROWS = 65_536  # rows of a batch; a batch of 20 numbers per row takes 10 MB
_READ_AHEAD = 2  # batches that are read while one is used
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc"}
_FORMATS |= {".csv": "csv", ".tsv": "csv", ".gz": "csv"}


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


def open_source(source: Any, columns: Sequence[str] | None = None) -> Source:
    """Return the source of a table.

    Parameters
    ----------
    source : str, path, Dataset, callable or Source
        A Parquet, Arrow or CSV file, a folder or a glob pattern of such files; a
        `pyarrow.dataset.Dataset`; or a function without arguments that returns Arrow batches (or
        tables), the same ones at every call.
    columns : sequence of str, optional
        The columns to read; by default all.

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
        return open_source(source).restricted(columns)
    if isinstance(source, Source):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _from_dataset(_open_files(source), repr(os.fspath(source)))
    datasets = _datasets()
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


def _datasets() -> Any:
    """Import pyarrow.dataset, or say what to install."""
    try:
        import pyarrow.dataset
    except ImportError as error:
        raise ImportError(
            "Tables in files are read by pyarrow: pip install 'polyadic[tables]'."
        ) from error
    return pyarrow.dataset


def _open_files(path: str | os.PathLike) -> Any:
    """Return the dataset of the files that a path names."""
    datasets, text = _datasets(), os.fspath(path)
    files = find_files(text)
    kinds = {_FORMATS.get(Path(file).suffix.lower(), "") for file in files}
    if len(kinds) != 1 or "" in kinds:
        endings = sorted({Path(file).suffix or Path(file).name for file in files})
        raise ValueError(
            f"{text!r} must be files of one kind, {', '.join(sorted(_FORMATS))}; got "
            f"{', '.join(endings)}."
        )
    kind = kinds.pop()
    if kind == "csv" and any(".tsv" in Path(file).name.lower() for file in files):
        from pyarrow import csv

        options = csv.ParseOptions(delimiter="\t")
        return datasets.dataset(files, format=datasets.CsvFileFormat(parse_options=options))
    return datasets.dataset(files, format=kind)


def find_files(text: str) -> list[str]:
    """Return the files of a path, a folder or a pattern, in the order of their names."""
    if os.path.isdir(text):
        found = sorted(str(p) for p in Path(text).rglob("*") if _is_data(p))
        if not found:
            raise FileNotFoundError(
                f"The folder {text!r} has no file that ends in {', '.join(sorted(_FORMATS))}."
            )
        return found
    if os.path.isfile(text):
        return [text]
    found = sorted(p for p in glob.glob(text, recursive=True) if os.path.isfile(p))
    if not found:
        raise FileNotFoundError(f"There is no file {text!r}, and no file matches it as a pattern.")
    return found


def _is_data(path: Path) -> bool:
    """Tell whether a file of a folder is part of the table; hidden ones and _metadata are not."""
    return path.is_file() and path.name[0] not in "._" and path.suffix.lower() in _FORMATS


def _from_dataset(dataset: Any, label: str) -> Source:
    # Text files are counted only by reading them.
    kind = getattr(getattr(dataset, "format", None), "default_extname", "")
    n_rows = dataset.count_rows() if kind in ("parquet", "ipc") else None
    in_groups = kind == "parquet" and _has_pieces(dataset)

    def batches(rows: int, columns: list[str] | None) -> Iterator[Batch]:
        how = {"columns": columns, "batch_size": rows, "batch_readahead": _READ_AHEAD}
        if in_groups:
            return _one_ahead(_row_groups(dataset, how))
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


def _one_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield batches; a thread reads the next one while one is used."""
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(next, batches, None)
        while (batch := ahead.result()) is not None:
            ahead = reader.submit(next, batches, None)
            yield batch


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
