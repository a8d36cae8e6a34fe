"""`polyadic predict`: predictions for a table, in its order, batch by batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyadic.cli.command import Json, command
from polyadic.cli.console import note, print_json

if TYPE_CHECKING:
    import numpy as np

    from polyadic.scale.predicting import More

_ENDINGS = (".parquet", ".pq", ".csv", ".tsv", ".arrow", ".feather")
_STDOUT = "-"
_ROWS, _ROWS_SHAPLEY = 65_536, 4096  # rows at a time; each has a Shapley value per column


@command
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="The rows; - reads standard input.")],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write: .parquet, .csv, .tsv or .arrow; - for CSV to standard output.",
        ),
    ] = _STDOUT,
    proba: Annotated[bool, typer.Option("--proba", help="The probability of every class.")] = False,
    shapley: Annotated[
        bool, typer.Option("--shapley", help="Also the exact Shapley value of every column.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="LEVEL",
            help="Also an interval that holds this share of targets, such as 0.9.",
        ),
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="DATA", help="Rows with targets that the fit has not seen, for --interval."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COL", help="The target of the rows of --calibrate.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COL", help="Columns to copy, such as an identifier."),
    ] = None,
    json: Json = False,
) -> None:
    """Predict the rows of a table, in their order, and write the predictions to a file.

    The table is read in batches: it may be larger than memory.
    """
    _check_options(output, interval, calibrate, json)
    from polyadic.cli import tables
    from polyadic.cli.intervals import half_width
    from polyadic.estimators.loading import load
    from polyadic.io.atomic import drafted
    from polyadic.scale.predicting import predicted_tables, write_tables

    fitted: Any = load(model)
    parts: list[More] = []
    if shapley:
        parts.append(lambda rows, found: _shapley_columns(fitted, rows))
    if interval is not None:
        assert calibrate is not None
        half = half_width(fitted, calibrate, tables.target_for(fitted, target), interval)
        parts.append(lambda rows, found: {"lower": found - half, "upper": found + half})
    found = predicted_tables(
        fitted,
        tables.stream_for(fitted, data, keep or []),
        method="predict_proba" if proba else "predict",
        keep=keep or [],
        batch_rows=_ROWS_SHAPLEY if shapley else _ROWS,
        more=lambda rows, own: {k: v for part in parts for k, v in part(rows, own).items()},
    )
    if output == _STDOUT:
        write_tables(found, sys.stdout.buffer, ".csv")
        return
    with drafted(output) as draft:
        n_rows = write_tables(found, draft, output)
    if json:
        print_json({"output": output, "rows": n_rows})
    else:
        note(f"{output}: {n_rows:,} rows")


def _check_options(output: str, interval: float | None, calibrate: str | None, json: bool) -> None:
    """Refuse options that do not go together, before anything is read."""
    if output != _STDOUT and not output.lower().endswith(_ENDINGS):
        raise typer.BadParameter(
            f"{output!r} must end in {', '.join(_ENDINGS)}.", param_hint="'--output'"
        )
    if json and output == _STDOUT:
        raise typer.BadParameter(
            "predictions go to standard output: add -o.", param_hint="'--json'"
        )
    if interval is not None and not 0.0 < interval < 1.0:
        raise typer.BadParameter(
            f"must be between 0 and 1, got {interval}.", param_hint="'--interval'"
        )
    if (interval is None) != (calibrate is None):
        raise typer.BadParameter(
            "an interval is measured on rows with targets that the fit has not seen: give both, "
            "--interval 0.9 and --calibrate FILE.",
            param_hint="'--interval'",
        )


def _shapley_columns(model: Any, rows: Any) -> dict[str, np.ndarray]:
    """Return a column per Shapley value, and the base: they add up to the raw prediction.

    The base is called `shapley_base_value` where a column of the table is called `base`.
    """
    import numpy as np

    from polyadic.explain import shapley

    found = shapley(model, rows)
    base = "base_value" if "base" in found.columns else "base"
    columns: list[tuple[str, np.ndarray]] = []
    for k, name in enumerate(found.outputs):
        start = "shapley" if len(found.outputs) == 1 else f"shapley_{name}"
        columns += [(f"{start}_{c}", found.values[:, n, k]) for n, c in enumerate(found.columns)]
        columns.append((f"{start}_{base}", np.full(len(found), found.base[k])))
    out = dict(columns)
    if len(out) < len(columns):
        raise ValueError(
            "Two Shapley values would have the same column: names of classes or columns run into "
            "each other. Fit the model with other names, or use polyadic.explain.shapley."
        )
    return out
