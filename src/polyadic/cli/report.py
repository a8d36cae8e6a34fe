"""`polyadic report`: one live HTML page of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyadic.cli.command import Json, command
from polyadic.cli.console import note, print_json


@command
def report(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Rows to measure it on; - reads standard input."),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COL",
            help="The target; by default that of the fit. Without one, no accuracy is shown.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "--out", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="The heading of the page.")] = None,
    json: Json = False,
) -> None:
    """Write a live page of a model: what it has learnt, how good it is, and what-if.

    One HTML file that holds the model and up to 50 of the rows, and loads nothing from outside.
    """
    from polyadic.cli import tables
    from polyadic.estimators.loading import load
    from polyadic.page import report as write_page

    fitted: Any = load(model)
    name = tables.target_for(fitted, target)
    rows = tables.read_for(fitted, data, name)
    if target is None and name not in rows.column_names:
        name = None
    X, y = tables.split_target(rows, name)
    path = write_page(fitted, X, y, out, title=title, target=name)
    size = path.stat().st_size
    if json:
        print_json({"output": str(path), "rows": rows.num_rows, "bytes": size})
    else:
        note(f"{path}: {rows.num_rows:,} rows, {size / 1e6:.2f} MB")
