"""`polyadic report`: one live HTML page of a saved model."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer
from rich.console import Console

from polyadic.estimators.loading import load
from polyadic.page import report as write_page
from polyadic.training.model import FittedModel, classes_of


def report(
    model: Annotated[Path, typer.Argument(help="A model file, written by model.save.")],
    table: Annotated[Path, typer.Argument(help="Rows to measure it on: a CSV or a Parquet file.")],
    target: Annotated[
        str | None,
        typer.Option(help="The column that is predicted; without one, no accuracy is shown."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="The heading of the page.")] = None,
) -> None:
    """Write a live page of a model: what it has learnt, how good it is, and what-if.

    One HTML file that holds the model and up to 50 of the rows, and loads nothing from outside.
    """
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    try:
        with console.status("Reading the model ..."):
            fitted: Any = load(model)
        with console.status("Reading the table ..."):
            rows = read_rows(table, fitted, target)
            X, y = split_target(rows, target)
        with console.status("Writing the page ..."):
            path = write_page(fitted, X, y, out, title=title, target=target)
    except (OSError, ValueError, TypeError, ImportError) as error:
        errors.print(str(error), markup=False)
        raise typer.Exit(1) from error
    size = path.stat().st_size / 1e6
    console.print(f"{path}: {rows.num_rows:,} rows, {size:.2f} MB", markup=False)


def read_rows(path: Path, model: FittedModel, target: str | None) -> pa.Table:
    """Read a table; in a CSV file, columns that were text in training are read as text."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no table {str(path)!r}.")
    kind = path.suffix.lower()
    if kind == ".parquet":
        return pyarrow.parquet.read_table(path)
    if kind not in (".csv", ".txt", ".tsv"):
        raise ValueError(f"Cannot read {str(path)!r}: its name must end in .csv, .tsv or .parquet.")
    delimiter = "\t" if kind == ".tsv" else ","
    types = csv_types(_header(path, delimiter), model, target)
    return pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
        # "NA" is a missing number, but may be a category: text stays as it is.
        convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )


def csv_types(header: list[str], model: FittedModel, target: str | None) -> dict[str, pa.DataType]:
    """Return the types of known columns: numbers or text; pyarrow infers those of the others."""
    columns = model.columns_
    # A model without column names takes columns by position, as `Columns.code` does.
    inputs = columns.sources if columns.named else [name for name in header if name != target]
    name_of = dict(zip(columns.sources, inputs))
    types = {}
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


def _header(path: Path, delimiter: str) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return next(csv.reader(lines, delimiter=delimiter), [])


def split_target(rows: pa.Table, target: str | None) -> tuple[pa.Table, Any]:
    """Return the other columns, and the target as an array."""
    if rows.num_rows == 0:
        raise ValueError("The table has no rows.")
    if target is None:
        return rows, None
    if target not in rows.column_names:
        raise ValueError(
            f"The table has no column {target!r}. Choose the target from: "
            f"{', '.join(rows.column_names[:20])}."
        )
    y = rows.column(target).to_numpy(zero_copy_only=False)
    return rows.drop_columns([target]), y
