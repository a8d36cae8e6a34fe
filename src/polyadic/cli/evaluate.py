"""`polyadic evaluate`: how good a model is on rows whose targets are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyadic.cli.command import Json, command
from polyadic.cli.console import print_json, show_table


@command
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Rows that the fit has not seen; - for standard input."
        ),
    ],
    target: Annotated[
        str | None, typer.Option(metavar="COL", help="The target; by default that of the fit.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure the predictions of a model, beside the best constant prediction."""
    from polyadic.cli import tables
    from polyadic.cli.measures import measure
    from polyadic.estimators.loading import load

    fitted: Any = load(model)
    name = tables.target_for(fitted, target)
    if name is None:
        raise ValueError("The model does not say which column it predicts: add --target.")
    X, y = tables.split_target(tables.read_for(fitted, data, name), name)
    found = measure(fitted, X, y)
    if json:
        print_json({"target": name, **found.as_json()})
    else:
        show_table(found.columns(), title=f"{name}, {found.n_rows:,} rows")
