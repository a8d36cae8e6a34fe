"""`polyadic inspect`: what is in a model file, without any data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyadic.cli.command import Json, command
from polyadic.cli.console import print_json, say, show_pairs, show_table

_MOST_CATEGORIES = 4  # of a column, that are shown


@command
def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    json: Json = False,
) -> None:
    """Show columns, maps, rank, plan and training record of a model."""
    from polyadic.estimators.loading import load

    fitted: Any = load(model)
    about = _about(fitted, model)
    columns = _columns(fitted)
    if json:
        print_json({**about, "columns": columns, **_record(fitted)})
        return
    show_pairs({name: str(value) for name, value in about.items() if value is not None})
    say()
    say("Columns", style="bold")
    names = ("name", "kind", "map", "values", "elements")
    show_table({name: [str(column[name]) for column in columns] for name in names}, left=4)
    record = _record(fitted)
    if record["plan"]:
        say()
        say("Plan", style="bold")
        show_pairs({one["name"]: f"{one['value']} ({one['why']})" for one in record["plan"]})
    if record["members"]:
        say()
        say("Training record", style="bold")
        _show_members(record["members"])
    if record["configuration"]:
        from polyadic.cli.settings import as_toml

        say()
        say("Configuration of polyadic fit", style="bold")
        say(as_toml(record["configuration"]))


def _about(model: Any, path: Path) -> dict[str, Any]:
    """Return what a model is, in a few words."""
    classes, cores = getattr(model, "classes_", None), model.tensor_
    names = getattr(model, "target_names_", None)
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "model": type(model).__name__,
        "format": cores.name,
        "target": None if names is None else ", ".join(names),
        "classes": None if classes is None else ", ".join(map(str, classes[:20].tolist())),
        "loss": repr(model.loss_),
        "rank": cores.rank,
        "trees": None if cores.trees is None else len(cores.trees),
        "outputs": cores.n_outputs,
    }


def _columns(model: Any) -> list[dict[str, Any]]:
    """Return name, kind and map of each column, and the values that it had in training."""
    from polyadic.training.model import known_marginals

    marginals: list[Any] = [*(known_marginals(model) or [])]
    marginals = marginals or [None] * len(model.maps_)  # an old file has none
    return [
        {
            "name": column.name,
            "kind": column.kind,
            "map": type(own).__name__,
            "elements": own.dim,
            "values": _values(column, own, marginal),
        }
        for column, own, marginal in zip(model.columns_.columns, model.maps_, marginals)
    ]


def _values(column: Any, own: Any, marginal: Any) -> str:
    """Return the categories of a column, or the range of its numbers, as text."""
    from polyadic.explain.listing import number

    if column.categories is not None:
        shown = ", ".join(map(str, column.categories[:_MOST_CATEGORIES]))
        more = len(column.categories) - _MOST_CATEGORIES
        return f"{shown}, and {more:,} more" if more > 0 else shown
    quantiles = getattr(marginal, "quantiles", None)
    if quantiles is None or len(quantiles) == 0:
        return ""
    return f"{number(float(quantiles[0]))} to {number(float(quantiles[-1]))}"


def _record(model: Any) -> dict[str, Any]:
    """Return the plan, the learning curves in short, and the settings of the command line."""
    plan = getattr(model, "plan_", None)
    members = [
        {
            "epochs": len(next(iter(history.values()), [])),
            **{f"lowest {name.replace('_', ' ')}": min(history[name]) for name in _losses(history)},
        }
        for history in model.history_
    ]
    return {
        "plan": [] if plan is None else [choice._asdict() for choice in plan.choices],
        "trials": [] if plan is None else plan.trials,
        "members": members,
        "configuration": getattr(model, "configuration_", {}),
    }


def _losses(history: dict[str, list[float]]) -> list[str]:
    """Return which learning curves are losses."""
    return [name for name, curve in history.items() if name.endswith("loss") and curve]


def _show_members(members: list[dict[str, Any]]) -> None:
    from polyadic.explain.listing import number

    names = list(members[0])
    table = {"member": [str(k + 1) for k in range(len(members))]}
    for name in names:
        table[name] = [number(member[name]) if name in member else "" for member in members]
    show_table(table)
