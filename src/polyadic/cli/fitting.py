"""From the settings of `polyadic fit` to a fitted model."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from sklearn.model_selection import train_test_split

from polyadic.cli import tables
from polyadic.cli.settings import FitSettings
from polyadic.estimators import CPClassifier, CPRegressor
from polyadic.estimators.validation import available_memory
from polyadic.scale import Source, open_source
from polyadic.scale.memory import fits_in_memory, parse_memory
from polyadic.scale.sources import find_files

Estimator = CPRegressor | CPClassifier
_CELL_BYTES = 4  # of a cell in a CSV file, and its comma; chosen by hand
_PACKED = 10  # times as large is a .gz file unpacked, about
_FEW_VALUES = 20  # whole numbers of so few values may be classes: the user is told. Chosen by hand


@dataclass(frozen=True)
class Rows:
    """Rows for a fit: a table, its target and, where there are any, its weights.

    Of a file that is streamed, X is a source, and the others are names of its columns.
    """

    X: Any
    y: Any
    weight: Any = None

    def take(self, rows: np.ndarray) -> Rows:
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Rows(self.X.take(pa.array(rows)), self.y[rows], weight)


@dataclass(frozen=True)
class FitData:
    """What a fit reads: rows to train on, held-out rows, and what they say about the task."""

    train: Rows
    held_out: Rows | None
    settings: FitSettings  # with the task decided
    why: str  # the task is what it is
    categorical: list[str]  # all columns that are read as categories

    @property
    def streams(self) -> bool:
        """Whether the rows to train on are read in parts, not held in memory."""
        return isinstance(self.train.X, Source)

    @property
    def n_rows(self) -> int | None:
        """The number of rows to train on; None where only reading the file would tell."""
        return self.train.X.n_rows if self.streams else len(self.train.y)

    @property
    def n_columns(self) -> int:
        """The number of columns to learn from."""
        used = 1 if self.train.weight is None else 2  # target and weight
        return len(self.train.X.names) - used if self.streams else self.train.X.num_columns


def read_data(settings: FitSettings) -> FitData:
    """Read the tables of a fit, and decide its task; a large file is only opened."""
    source = open_source(settings.data) if is_large(settings) else None
    table = tables.read(settings.data) if source is None else first_rows(source)
    tables.find(table.column_names, settings.target, "The table")
    settings = replace(
        settings,
        categorical=_names(settings.categorical, table.column_names),
        drop=_names(settings.drop, table.column_names),
    )
    chunks = [table.column(settings.target)] if source is None else column_of(source, settings)
    task, why = choose_task(table.schema.field(settings.target).type, chunks, settings.task)
    settings = replace(settings, task=task)
    train, held_out = rows_of(table, settings), None
    categorical = _categorical(train.X, settings)
    if source is not None:
        kept = [*train.X.column_names, settings.target]
        kept += [] if settings.weight is None else [settings.weight]
        train = Rows(source.restricted(kept), settings.target, settings.weight)
    if isinstance(settings.valid, float):
        if source is not None:
            raise ValueError(
                "A share of the rows cannot be held out of a file that is larger than the memory "
                "for it. Give a file of held-out rows, or more --memory."
            )
        train, held_out = hold_out(train, settings)
    elif settings.valid is not None:
        known = tables.read(settings.valid, lambda header: _types_like(table.schema, header))
        held_out = rows_of(known, settings)
    return FitData(train, held_out, settings, why, categorical)


def is_large(settings: FitSettings) -> bool:
    """Tell whether a file may be larger than the memory for its rows: the estimator then decides.

    The rows of text files are not known: they are taken to have few bytes per cell.
    """
    if settings.data == tables.STDIN:
        return False
    try:
        source = open_source(settings.data)
    except (pa.ArrowException, ValueError, OSError):
        return False  # reading it says what is wrong
    budget = parse_memory(settings.memory or "auto", available_memory())
    if source.n_rows is not None:
        return not fits_in_memory(source.n_rows, len(source.names), budget)
    cells = sum(map(_text_bytes, find_files(settings.data))) / _CELL_BYTES
    return not fits_in_memory(int(cells), 1, budget)


def _text_bytes(file: str) -> int:
    """Return about how many bytes of text a file holds."""
    return os.path.getsize(file) * (_PACKED if file.lower().endswith(".gz") else 1)


def first_rows(source: Source) -> pa.Table:
    """Return some rows of a source, which tell the names and types of its columns."""
    first = next(source.batches(), None)
    if first is None:
        raise ValueError(f"{source.label} has no rows.")
    return pa.Table.from_batches([first])


def _names(given: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names of columns; one that is no column may be several, with commas between."""
    out: list[str] = []
    for text in given:
        out += [text] if text in known else [name.strip() for name in text.split(",")]
    return [tables.find(known, name, "The table") for name in dict.fromkeys(out)]


def column_of(source: Source, settings: FitSettings) -> Iterator[pa.Array]:
    """Yield the target of a source, part by part: the first rows alone may have few values."""
    for batch in source.batches(columns=[settings.target]):
        yield batch.column(0)


def choose_task(kind: pa.DataType, chunks: Iterable[Any], asked: str) -> tuple[str, str]:
    """Return whether to predict numbers or classes, and the reason for it.

    Parameters
    ----------
    kind : pyarrow.DataType
        The type of the target.
    chunks : iterable of pyarrow arrays
        The target; read only until it has more values than decide.
    asked : str
        The task that the user wants, or "auto".
    """
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_number = _is_number(kind)
    if not (is_number or pa.types.is_boolean(kind) or _is_text(kind)):
        raise ValueError(
            f"The target holds values of type {kind}. It must hold numbers, text or booleans."
        )
    if asked != "auto":
        return asked, "as given"
    if not is_number:
        return "classification", "the target is text" if _is_text(kind) else "the target is boolean"
    n_values, is_all = count_values(chunks)
    if n_values == 2:
        return "classification", "the target has two values"
    why = f"the target has {'' if is_all else 'at least '}{n_values:,} different numbers"
    if n_values <= _FEW_VALUES and pa.types.is_integer(kind):
        why += "; if these are classes: --task classification"
    return "regression", why


def count_values(chunks: Iterable[Any]) -> tuple[int, bool]:
    """Return how many different values there are, and whether all chunks were read for it."""
    seen = None
    waiting = iter(chunks)
    for chunk in waiting:
        own = pyarrow.compute.drop_null(pyarrow.compute.unique(chunk))
        own = own.combine_chunks() if isinstance(own, pa.ChunkedArray) else own
        seen = own if seen is None else pyarrow.compute.unique(pa.concat_arrays([seen, own]))
        if len(seen) > _FEW_VALUES:
            return len(seen), next(waiting, None) is None
    return (0 if seen is None else len(seen)), True


def rows_of(table: pa.Table, settings: FitSettings) -> Rows:
    """Return the columns to learn from, the target and the weights."""
    weight = None
    if settings.weight is not None:
        tables.find(table.column_names, settings.weight, "The table")
        if not _is_number(table.column(settings.weight).type):
            raise ValueError(f"The column of weights, {settings.weight!r}, must hold numbers.")
        weight = tables.as_array(table, settings.weight).astype(float)
    out = {*settings.drop, *([settings.weight] if settings.weight else [])}
    if settings.target in out:
        raise ValueError(f"The target {settings.target!r} cannot be a weight, or left out.")
    X, y = tables.split_target(table, settings.target)
    X = X.drop_columns([name for name in X.column_names if name in out])
    if not X.column_names:
        raise ValueError("No column is left to learn from.")
    return Rows(X, y, weight)


def hold_out(rows: Rows, settings: FitSettings) -> tuple[Rows, Rows]:
    """Return the rows to train on and the rows that are held out; classes keep their shares."""
    every, share = np.arange(len(rows.y)), settings.valid
    strata = rows.y if settings.task == "classification" else None
    try:
        first, second = train_test_split(
            every, test_size=share, random_state=settings.seed, stratify=strata
        )
    except ValueError:  # a class of one row cannot be on both sides
        first, second = train_test_split(every, test_size=share, random_state=settings.seed)
    return rows.take(np.sort(first)), rows.take(np.sort(second))


def _types_like(schema: pa.Schema, header: Sequence[str]) -> tables.Types:
    """Return the types of a table for another CSV file; whole numbers may have decimals there."""
    known = {name: schema.field(name).type for name in header if name in schema.names}
    return {n: pa.float64() if pa.types.is_integer(kind) else kind for n, kind in known.items()}


def _categorical(X: pa.Table, settings: FitSettings) -> list[str]:
    """Return the columns that are read as categories: those of text, and those asked for."""
    asked = [name for name in settings.categorical if name in X.column_names]
    by_type = [field.name for field in X.schema if _is_category(field.type)]
    return list(dict.fromkeys([*by_type, *asked]))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_category(kind: pa.DataType) -> bool:
    some = _is_text(kind) or pa.types.is_dictionary(kind)
    return some or pa.types.is_boolean(kind) or pa.types.is_null(kind)


# ---- the fit -------------------------------------------------------------------------------------


def make_estimator(settings: FitSettings, categorical: Sequence[str]) -> Estimator:
    """Return the estimator of a task, not yet fitted; a bar is shown on a terminal only."""
    kind: Any = CPRegressor if settings.task == "regression" else CPClassifier
    given = settings.parameters()
    unknown = given.keys() - inspect.signature(kind).parameters.keys()
    if unknown:
        raise ValueError(f"--{min(unknown)} is not known to this version of {kind.__name__}.")
    if settings.categorical:
        given["categorical_features"] = list(categorical)
    return kind(**given, verbose=int(sys.stderr.isatty()))


def fit_estimator(estimator: Estimator, data: FitData) -> None:
    """Fit an estimator, and let it remember the settings: the one place where a fit starts."""
    train, held_out = data.train, data.held_out
    if held_out is None:
        estimator.fit(train.X, train.y, train.weight)
    else:
        estimator.fit(train.X, train.y, train.weight, held_out.X, held_out.y, held_out.weight)
    remember(estimator, data.settings)


def remember(estimator: Estimator, settings: FitSettings) -> None:
    """Let a fitted estimator know its settings, and the name of its target.

    The bar is no part of the model: the same fit gives the same file in a pipe.
    """
    estimator.target_names_ = [settings.target]
    estimator.configuration_ = settings.configuration()
    estimator.set_params(verbose=0)
