"""What `polyadic fit` prints: the settings before, and how good the model is after."""

from __future__ import annotations

import os
import shlex
from typing import Any

import numpy as np

from polyadic.cli.console import command_line, note, print_json, say, show_table
from polyadic.cli.fitting import Estimator, FitData
from polyadic.cli.measures import Measures, measure
from polyadic.cli.settings import as_toml
from polyadic.explain.listing import aligned_percent, percent
from polyadic.objective.losses import SquaredError

_MOST_COLUMNS = 5  # whose importance is told


def announce(data: FitData, json: bool) -> None:
    """Print what is about to be fitted, as the lines of a configuration file."""
    if json:
        return
    settings = data.settings
    rows = "rows in parts" if data.n_rows is None else f"{data.n_rows:,} rows"
    rows += ", streamed" if data.streams else ""
    if data.held_out is not None:
        rows += f", {len(data.held_out.y):,} held out"
    say(
        f"{settings.task.capitalize()} of {settings.target}: {rows}, "
        f"{data.n_columns:,} columns ({data.why})."
    )
    say()
    for line in as_toml(settings.configuration()).splitlines():
        say(line, style="dim")
    say()


def conclude(model: Estimator, data: FitData, seconds: float, cut_short: bool, json: bool) -> None:
    """Print how good the model is beside a constant, what matters, and what to do next."""
    found = None
    if data.held_out is not None:
        before = None if data.streams else data.train.y
        found = measure(model, data.held_out.X, data.held_out.y, before)
    losses = held_out_losses(model)
    matters = importances(model)
    if json:
        print_json(as_json(model, data, seconds, cut_short, found, losses, matters))
        return
    if cut_short:
        note("The fit was cut short: this is the best model so far.")
    say(f"Fitted in {seconds:.1f} s.", style="bold")
    say()
    if found is not None:
        show_table(found.columns(), title=f"On {found.n_rows:,} held-out rows")
    elif losses is not None:
        say(in_words(model, *losses))
    else:
        say("No rows were held out. To measure the model, add --valid 0.2, or evaluate it.")
    say()
    names, shares = zip(*matters[:_MOST_COLUMNS])
    show_table({"what matters": names, "share": [aligned_percent(share) for share in shares]})
    say()
    advise(data)


def held_out_losses(model: Estimator) -> tuple[float, float] | None:
    """Return the held-out loss of the model and of a constant, where rows were held out."""
    try:
        return float(model.plan_["held-out loss"]), float(model.plan_["constant loss"])
    except KeyError:
        return None


def in_words(model: Estimator, loss: float, constant: float) -> str:
    """Return how good a model is on rows that its members held out.

    These rows have also chosen settings, such as the shares of the strategies.
    """
    share = 1.0 - loss / constant if constant > 0 else 0.0
    if isinstance(model.loss_, SquaredError):
        found = f"explains {percent(max(share, 0.0))} of the variance (R² about {share:.3f})"
        return f"On held-out rows, the model {found}; the mean explains 0 %."
    return (
        f"On held-out rows, the loss is {loss:.4g}, and {constant:.4g} for a constant prediction: "
        f"{percent(max(share, 0.0))} lower."
    )


def importances(model: Estimator) -> list[tuple[str, float]]:
    """Return the columns by their importance, the highest first."""
    shares = model.feature_importances_
    names = model.columns_.names
    return [(names[n], float(shares[n])) for n in np.argsort(-shares, kind="stable")]


def advise(data: FitData) -> None:
    """Print what to do next."""
    path = data.settings.output
    if path is None:
        say("The model was not saved: add -o model.safetensors to keep it.")
        return
    say(f"Saved to {path} ({os.path.getsize(path) / 1e6:.2f} MB). Next:")
    file = shlex.quote(path)
    for text in (
        f"polyadic evaluate {file} TEST.csv",
        f"polyadic explain {file}",
        f"polyadic predict {file} NEW.csv -o predictions.parquet",
        f"polyadic report {file} TEST.csv -o page.html",
    ):
        command_line(text)


def as_json(
    model: Estimator,
    data: FitData,
    seconds: float,
    cut_short: bool,
    found: Measures | None,
    losses: tuple[float, float] | None,
    matters: list[tuple[str, float]],
) -> dict[str, Any]:
    """Return all that is known, for machines."""
    return {
        "output": data.settings.output,
        "task": data.settings.task,
        "rows": data.n_rows,
        "columns": data.n_columns,
        "configuration": data.settings.configuration(),
        "seconds": seconds,
        "interrupted": cut_short,
        "held_out_loss": None if losses is None else losses[0],
        "constant_loss": None if losses is None else losses[1],
        "valid": None if found is None else found.as_json(),
        "importances": dict(matters),
    }
