"""The command line: one function per command, each in a file of its own.

A new command is a function with typer's annotations and a line at the end of this file.
"""

from __future__ import annotations

from typing import Annotated

import typer

from polyadic.cli import demo, report
from polyadic.version import __version__

app = typer.Typer(
    help="Tabular models that can be read exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"polyadic {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Tabular models that can be read exactly."""


app.command()(demo.demo)
app.command()(report.report)
