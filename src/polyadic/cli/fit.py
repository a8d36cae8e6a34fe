"""`polyadic fit`: from a table to a model file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from polyadic.cli.command import Json, command
from polyadic.cli.settings import Preset, Task, resolve


@command
def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="The table: CSV, TSV, Parquet or Arrow, also .gz; - for standard input.",
        ),
    ],
    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="COL", help="The column to predict.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The model file to write.")
    ] = None,
    task: Annotated[
        Task | None, typer.Option(help="What to predict; auto, the default, looks at the target.")
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL", help="Columns of numbers that are categories; repeat it, or use commas."
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COL", help="Columns to leave out.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COL", help="The column of row weights.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option(metavar="N", help="Terms of each member.", min=1)
    ] = None,
    preset: Annotated[Preset | None, typer.Option(help="How much time to take.")] = None,
    valid: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|SHARE",
            help="Held-out rows: a file, or the share of the rows to hold out.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed; 0 by default.", min=0)
    ] = None,
    max_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Start nothing new after this time: keep the best so far.",
            min=0,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder for the state of the fit, to resume from."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory for rows, such as 2GB; larger files stream."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file with the same settings; options overrule it."),
    ] = None,
    json: Json = False,
) -> None:
    """Fit a model to a table, say how good it is, and write it to a file.

    Ctrl-C ends the fit and keeps the best model so far, if there is a file to write it to.
    """
    given: dict[str, Any] = {
        "data": data,
        "target": target,
        "output": output,
        "task": task,
        "categorical": categorical,
        "drop": drop,
        "weight": weight,
        "rank": rank,
        "preset": preset,
        "valid": valid,
        "seed": seed,
        "max_time": max_time,
        "checkpoint": checkpoint,
        "memory": memory,
    }
    settings = resolve(given, config)
    # The command line is read before the libraries are loaded, which takes a second or two.
    from polyadic.cli import fitting, summary
    from polyadic.cli.interrupt import ended_by_ctrl_c
    from polyadic.io.atomic import check_place

    if settings.output is not None:
        check_place(settings.output)  # before the work, not after it
    table = fitting.read_data(settings)
    summary.announce(table, json)
    estimator = fitting.make_estimator(table.settings, table.categorical)
    start = time.perf_counter()
    with ended_by_ctrl_c(settings.output is not None) as interrupt:
        fitting.fit_estimator(estimator, table)
        seconds = time.perf_counter() - start
        if settings.output is not None:
            estimator.save(settings.output)
    summary.conclude(estimator, table, seconds, interrupt.cut_short, json)
