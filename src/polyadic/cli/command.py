"""What all commands share: one clear line for an error, notes for warnings, and `--debug`.

Exit codes: 0; 1 for data, a model or a file that is wrong; 2 for a command that is; 130 where
Ctrl-C has ended it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from polyadic.cli.console import console

FAILED, INTERRUPTED = 1, 130
# Errors that say by themselves what is wrong; any other is a mistake of ours.
_TOLD = (OSError, ValueError, TypeError, ImportError, MemoryError)

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function for typer: with `--debug`, and with errors as one line."""

    @functools.wraps(function)
    def run(*args: Any, debug: bool = False, **options: Any) -> None:
        with _warnings_as_notes(), _errors_as_one_line(debug):
            function(*args, **options)

    own = inspect.signature(function, eval_str=True)
    extra = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False)
    parameters = [*own.parameters.values(), extra.replace(annotation=Debug)]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


@contextmanager
def _errors_as_one_line(debug: bool) -> Iterator[None]:
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        print_error("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if debug:
            raise
        text = " ".join(str(error).split())
        if not isinstance(error, _TOLD):
            text = f"{type(error).__name__}: {text} (run with --debug to see where)"
        print_error(text or type(error).__name__)
        raise typer.Exit(FAILED) from error


def print_error(text: str) -> None:
    """Print one line on standard error, not broken."""
    shown = console(stderr=True)
    shown.print("Error:", style="bold red", end=" ")
    shown.print(text, markup=False, soft_wrap=True)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show each warning as one line, without the place in the code."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        shown = console(stderr=True)
        shown.print("Note:", style="yellow", end=" ")
        shown.print(" ".join(str(message).split()), markup=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
