"""The command line: one function per command, each in a file of its own.

A new command is a function with typer's annotations, marked `@command`, and a line at the end of
this file. It imports what it needs when it runs, so that help and completion take no time.
"""

from __future__ import annotations

from typing import Annotated

import typer

from polyadic.cli import demo, evaluate, explain, export, fit, inspect, predict, report
from polyadic.version import __version__

app = typer.Typer(
    help="Tabular models that can be read exactly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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


for function in (
    fit.fit,
    predict.predict,
    evaluate.evaluate,
    explain.explain,
    report.report,
    inspect.inspect,
    export.export,
    demo.demo,
):
    app.command()(function)
