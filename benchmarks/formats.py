"""California housing in every format, with the paper's ranks, beside the published figures.

The paper's split, d=75 normalised polynomials, L2 3e-7 and 100 epochs for all. Every network is
trained in the same way: batches of 512, a one-cycle schedule with a peak of 0.005, which was chosen
on the validation rows from 0.005 and 0.015 (by the mean over formats), and the epoch that is best
on them. The last row is the fused engine with the paper's own recipe.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from common import machine, paper_recipe, print_table, print_title, seconds, verdict
from sklearn.exceptions import ConvergenceWarning

from polyadic import TNRegressor
from polyadic.datasets import Split, fetch_california_housing
from polyadic.maps import Polynomial

FASTER = 10.0  # required ratio of the published fit time to ours
ORDER = 4  # of fm and pn


@dataclass(frozen=True)
class Row:
    """A format, its rank, and its published validation MSE and seconds."""

    format: str
    rank: int
    val: float
    seconds: float
    required: bool = True
    loss: str = "squared_error"


ROWS = [
    Row("tt", 5, 0.2128, 773.25),
    Row("tucker", 5, 0.2084, 659.86),
    Row("tr", 5, 0.2056, 249.53),
    Row("ht", 10, 0.1999, 113.32),
    Row("cp", 20, 0.1959, 118.84),
    Row("fm", 20, 0.3322, 51.69, required=False),
    Row("pn", 20, 0.2761, 9.06, required=False),
    Row("pn", 20, 0.2761, 9.06, required=False, loss="huber"),
]


def network(row: Row, epochs: int) -> TNRegressor:
    """Return the model of a format; fm and pn take the columns themselves."""
    no_maps = row.format in ("fm", "pn")
    return TNRegressor(
        row.format,
        maps="auto" if no_maps else Polynomial(75, normalize=True),
        rank=row.rank,
        order=ORDER,
        loss=row.loss,
        l2=3e-7,
        smoothness=0,
        batch_size=512,
        learning_rate=0.005,
        max_iter=epochs,
        n_iter_no_change=epochs,  # no early stopping: the same number of epochs for all
        random_state=0,
    )


def mse(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the mean squared error."""
    return float(np.mean((model.predict(X) - y) ** 2))


def n_parameters(model: Any) -> int:
    """Return how many numbers the model has learnt; fm and pn have no constant element."""
    cores = model.tensor_
    first = 0 if cores.format.constants else 1
    return sum(a[first:].size for a in cores.factors) + sum(a.size for a in cores.extras)


def fit(name: str, model: Any, row: Row, split: Split) -> tuple[list[str], float]:
    """Return a line of the table, and how many times faster than published the fit was."""
    rows = (split.X_train, split.y_train)
    time = seconds(lambda: model.fit(*rows, X_val=split.X_val, y_val=split.y_val))
    curve = model.history_[0]["validation_loss"]
    line = [
        name,
        row.rank,
        f"{n_parameters(model):,}",
        f"{mse(model, split.X_val, split.y_val):.4f}",
        f"{row.val:.4f}",
        f"{mse(model, split.X_test, split.y_test):.4f}",
        f"{np.argmin(curve) + 1} of {len(curve)}",
        f"{time:.1f}",
        f"{row.seconds:.1f}",
        f"{row.seconds / time:.1f}x",
    ]
    return [str(cell) for cell in line], row.seconds / time


def warm_up(split: Split) -> None:
    """Fit once on each engine: the first fit compiles or loads what the others use."""
    few = slice(0, 600)
    for model in (network(ROWS[0], 1), paper_recipe(0, 1)):
        model.fit(split.X_train[few], split.y_train[few])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 epochs instead of 100")
    parser.add_argument("--threads", type=int, help="of torch; all cores where not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    epochs = 5 if options.quick else 100
    split = fetch_california_housing(split="paper")
    print(f"{machine()}, torch {version('torch')} on {torch.get_num_threads()} threads")
    print_title(f"California housing, {len(split.y_train):,} rows, {epochs} epochs")
    warm_up(split)
    lines, faster = [], {}
    for row in ROWS:
        name = row.format if row.loss == "squared_error" else f"{row.format}, {row.loss}"
        line, faster[row] = fit(name, network(row, epochs), row, split)
        lines.append(line)
    recipe = next(row for row in ROWS if row.format == "cp")
    lines.append(fit("cp, the paper's recipe, fused", paper_recipe(0, epochs), recipe, split)[0])
    header = ["format", "rank", "parameters", "val MSE", "published", "test MSE", "best epoch"]
    print_table([*header, "fit s", "published", "faster"], lines)
    if options.quick:
        print("Times and errors of a quick run do not compare with 100 epochs: no verdict.")
        return
    print(f"\nAt least {FASTER:g} times faster than published:")
    for row, times in faster.items():
        if row.required:
            print(f"  {row.format:6} {times:6.1f}x  {verdict(times >= FASTER)}")


if __name__ == "__main__":
    main()
