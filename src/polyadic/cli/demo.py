"""`polyadic demo`: fit, compare, explain, on the data and the split of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyadic.cli.command import command
from polyadic.cli.console import console


@command
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the pictures and the live page.")
    ] = Path("demo"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Few rows and a tiny model, to check that everything works."),
    ] = False,
) -> None:
    """Fit a model, compare it with three others, and describe what it has learnt.

    California housing on the split of the paper, 13,208 training rows; takes half a minute.
    """
    from polyadic.cli.demonstration import run

    run(out, quick, console())
