"""`polyadic export`: a model for other programs, as ONNX or as SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyadic.cli.command import Json, command
from polyadic.cli.console import note, print_json

_OPTIONS = {".onnx": ("shapley",), ".sql": ("table", "dialect", "keep")}


@command
def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write: .onnx or .sql.")
    ],
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="SQL: the table that the query reads.")
    ] = None,
    dialect: Annotated[
        str | None, typer.Option(help="SQL: duckdb, the default, or sqlite.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COL", help="SQL: a column to return beside the predictions."),
    ] = None,
    shapley: Annotated[
        bool, typer.Option("--shapley", help="ONNX: exact Shapley values as a further output.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a model as ONNX, or as a query in SQL."""
    given = {"table": table, "dialect": dialect, "keep": keep, "shapley": shapley}
    options = _options(output, {name: value for name, value in given.items() if value})
    from polyadic.estimators.loading import load
    from polyadic.export import to_onnx, to_sql
    from polyadic.io.atomic import check_place, drafted, write_whole

    check_place(output)
    fitted = load(model)
    if output.suffix.lower() == ".sql":
        write_whole(output, str(to_sql(fitted, **options)).encode("utf-8"))
    else:
        with drafted(output) as draft:
            to_onnx(fitted, draft, **options)
    if json:
        print_json({"output": str(output), "bytes": output.stat().st_size})
    else:
        note(f"{output}: {output.stat().st_size / 1e6:.2f} MB")


def _options(output: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given options, if they are those of the kind of file; other kinds are refused."""
    ending = output.suffix.lower()
    if ending not in _OPTIONS:
        raise typer.BadParameter(
            f"{str(output)!r} must end in {' or '.join(_OPTIONS)}.", param_hint="'--output'"
        )
    for name in given.keys() - set(_OPTIONS[ending]):
        raise typer.BadParameter(f"{ending} files have no such option.", param_hint=f"'--{name}'")
    if ending == ".sql" and "table" not in given:
        raise typer.BadParameter(
            "a query needs the name of the table that it reads.", param_hint="'--table'"
        )
    return given
