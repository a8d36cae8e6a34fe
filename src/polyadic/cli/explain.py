"""`polyadic explain`: what a model has learnt, or how one prediction comes about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyadic.cli.command import Json, command
from polyadic.cli.console import print_json, say, show_table

_MOST_WORDS = 5  # sentences on a model, and columns that the text on a prediction names


@command
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="The table of the row to explain.")
    ] = None,
    row: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The row of DATA; the first is 0.")
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many terms, or columns, to show.")
    ] = 20,
    json: Json = False,
) -> None:
    """Describe the strongest effects and interactions of a model, or one of its predictions.

    All numbers are exact, from the model itself; columns are taken as independent.
    """
    if (row is None) != (data is None):
        raise typer.BadParameter(
            "one prediction needs both: DATA and --row N.", param_hint="'--row'"
        )
    from polyadic.estimators.loading import load

    fitted: Any = load(model)
    if row is None or data is None:
        _explain_model(fitted, top, json)
    else:
        _explain_row(fitted, data, row, top, json)


def _explain_model(model: Any, top: int, json: bool) -> None:
    """Print the terms of a model by their share of the variance."""
    from polyadic.explain import in_words, terms

    found = terms(model, max_order=min(2, len(model.columns_.names)), top=top)
    words = in_words(model, top=min(top, _MOST_WORDS))
    if json:
        listed = [{"columns": term.columns, "share": term.share} for term in found.rows]
        print_json({"terms": listed, "shares_by_order": found.orders, "words": words})
        return
    for sentence in words:
        say(f"- {sentence}")
    say()
    _show_listing(found, top)


def _show_listing(found: Any, top: int, left: int = 1) -> None:
    """Print the first lines of a result, and what belongs below them."""
    show_table({name: texts[:top] for name, texts in found.cells().items()}, left)
    say(found.footer(), style="dim")


def _explain_row(model: Any, data: str, row: int, top: int, json: bool) -> None:
    """Print the prediction of a row and what each column adds to it."""
    from polyadic.cli import tables
    from polyadic.explain import describe, shapley

    table = tables.read_for(model, data, None)
    if row >= table.num_rows:
        raise ValueError(
            f"There is no row {row}: the table has {table.num_rows:,}, the first is 0."
        )
    one = table.slice(row, 1).select(model.columns_.sources)
    found = shapley(model, one)
    columns = found.table()
    text = describe(model, one, top=min(top, _MOST_WORDS))
    if json:
        k = found.find_output()
        print_json(
            {
                "row": row,
                "prediction": model.predict(one)[0],
                "base": found.base[k],
                "raw": found.base[k] + found.values[0, :, k].sum(),
                "adds": dict(zip(columns["column"], columns["adds"])),
                "words": text,
            }
        )
        return
    say(text)
    say()
    _show_listing(found, top)
