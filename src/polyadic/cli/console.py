"""What the commands print: text for people, JSON for machines.

Results go to standard output; progress, notes and errors go to standard error. In a pipe there are
no colours, no bars, and no line is broken or cut.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_NO_LIMIT = 100_000  # characters of a line where nothing wraps


def console(stderr: bool = False) -> Console:
    """Return the console of standard output or of standard error, as it is now."""
    stream: TextIO = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _NO_LIMIT
    return Console(stderr=stderr, highlight=False, width=width, emoji=False)


def say(text: str = "", style: str | None = None) -> None:
    """Print one line of a result, as it is."""
    console().print(text, style=style, markup=False)


def note(text: str) -> None:
    """Print a line on standard error: what happens, or is worth knowing."""
    console(stderr=True).print(text, style="dim", markup=False)


def command_line(text: str) -> None:
    """Print a command to type; it is not broken into lines, so that it can be copied."""
    console().print(f"  {text}", markup=False, soft_wrap=True)


def show_table(
    columns: Mapping[str, Sequence[str]], left: int = 1, title: str | None = None
) -> None:
    """Print a table of texts; the first `left` columns are aligned left, the others right."""
    table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left")
    for place, name in enumerate(columns):
        justify: Any = "left" if place < left else "right"
        table.add_column(escape(name), justify=justify, header_style="bold", overflow="fold")
    for row in zip(*columns.values()):
        table.add_row(*(escape(str(cell)) for cell in row))
    _print_trimmed(table)


def show_pairs(pairs: Mapping[str, str]) -> None:
    """Print names and what belongs to them, one pair per line."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in pairs.items():
        table.add_row(escape(name), escape(text))
    _print_trimmed(table)


def _print_trimmed(table: Table) -> None:
    """Print a table without the spaces at the ends of its lines."""
    shown = console()
    with shown.capture() as captured:
        shown.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line; a number that JSON lacks becomes null."""
    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Return values that JSON can hold.

    >>> import numpy as np
    >>> plain({"r2": np.float64(0.5), "auc": float("nan"), "columns": ("a",)})
    {'r2': 0.5, 'auc': None, 'columns': ['a']}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(own) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(own) for own in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, bool, int, float, type(None))) else str(value)
