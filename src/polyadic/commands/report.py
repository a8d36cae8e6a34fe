"""`polyadic report`: one live HTML page of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer
from rich.console import Console

from polyadic.page import report as write_page
from polyadic.store import load


def report(
    model: Annotated[Path, typer.Argument(help="A model file, written by model.save.")],
    table: Annotated[Path, typer.Argument(help="Rows to judge it on: a CSV or a Parquet file.")],
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
            rows = read_rows(table, fitted.columns_)
            X, y = split_target(rows, target)
        with console.status("Writing the page ..."):
            path = write_page(fitted, X, y, out, title=title, target=target)
    except (OSError, ValueError, TypeError, ImportError) as error:
        errors.print(str(error), markup=False)
        raise typer.Exit(1) from error
    size = path.stat().st_size / 1e6
    console.print(f"{path}: {rows.num_rows:,} rows, {size:.2f} MB", markup=False)


def read_rows(path: Path, columns: Any) -> pa.Table:
    """Read a table; in a CSV file what the model knows as categories is not taken for numbers."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no table {str(path)!r}.")
    kind = path.suffix.lower()
    if kind == ".parquet":
        return pyarrow.parquet.read_table(path)
    if kind not in (".csv", ".txt", ".tsv"):
        raise ValueError(f"Cannot read {str(path)!r}: its name must end in .csv, .tsv or .parquet.")
    types = {c.name: _csv_type(c) for c in columns.columns if columns.named}
    known = {name: own for name, own in types.items() if own is not None}
    return pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t" if kind == ".tsv" else ","),
        convert_options=pyarrow.csv.ConvertOptions(column_types=known, strings_can_be_null=True),
    )


def _csv_type(column: Any) -> pa.DataType | None:
    """Return how a column is to be read: numbers as such, and as text where it was text."""
    if column.categories is None:
        return pa.float64()
    return pa.string() if all(isinstance(c, str) for c in column.categories) else None


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
