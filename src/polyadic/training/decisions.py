"""The decisions of one fit, each noted with its reason, and the settings for its solver.

This is what a solver's `from_settings` is given: see `polyadic.solvers.contract.SolverSettings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from polyadic.kernels.losses import SQUARED
from polyadic.maps.base import FeatureMap
from polyadic.training.plan import Choice, Task

_MAX_CHECKS = 100  # of the loss in one training, where nothing else is said; chosen by hand
_SHORTEST = 8  # epochs of a training, where nothing else is said; chosen by hand
_NARROW = 10  # columns up to which a table counts as narrow; chosen by hand


class Settings(Protocol):
    """The parameters that a plan reads from any estimator."""

    maps: Any
    init: Any
    l2: Any
    smoothness: Any
    order_alpha: float
    order_beta: float
    max_iter: Any
    batch_size: Any
    learning_rate: Any
    schedule: str
    ema_decay: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int | None
    tol: float
    rank: Any
    solver: str
    device: str


class CPSettings(Settings, Protocol):
    """The parameters that a plan reads from CP estimators."""

    engine: str
    n_members: Any
    trees: Any
    warm_start: bool
    separate_outputs: bool


class Decisions:
    """Choices as they are made, for one task and one set of parameters.

    Attributes
    ----------
    choices : list of Choice
    maps : list of fitted FeatureMap
    width : int
        Numbers per element of a core.
    usual_rate : float
        Peak learning rate of a narrow table.
    usual_sweeps : int
    n_columns : int
        Columns that take part in products.
    first_length : float
        Share of the usual length to begin with, where pilots find how long to train.
    rate : float
        The peak learning rate that was decided.
    n_threads : int or None
        See `polyadic.solvers.adam.Adam`.
    """

    def __init__(self, params: Settings, task: Task, usual_rate: float):
        self.params, self.task, self.usual_rate = params, task, usual_rate
        self.maps: Sequence[FeatureMap] = task.maps
        self.choices: list[Choice] = []
        self.width, self.usual_sweeps = 1, 1
        self.n_columns = len(task.rows.columns)
        self.first_length, self.rate = 1.0, usual_rate
        self.n_threads: int | None = None
        self._note_maps()

    # ---- notes ----------------------------------------------------------------------------------

    def note(self, name: str, value: Any, why: str) -> Any:
        """Note a choice, and return it."""
        self.choices.append(Choice(name, str(value), why))
        return value

    def decide(self, name: str, auto: Any, why: str) -> Any:
        """Return what the user gave for a parameter, or the value of "auto"; note which it was."""
        given = getattr(self.params, name)
        if given != "auto":
            return self.note(name, given, "as given")
        return self.note(name, auto, why)

    def _note_maps(self) -> None:
        """Note the kinds of maps and their numbers of elements."""
        sizes: dict[str, list[int]] = {}
        for one in self.maps:
            sizes.setdefault(type(one).__name__, []).append(one.dim)
        parts = []
        for kind, dims in sizes.items():
            least, most = min(dims), max(dims)
            span = f"{least} to {most}" if most > least else f"{least}"
            parts.append(f"{len(dims)} {kind} of {span}")
        auto = isinstance(self.params.maps, str) and self.params.maps == "auto"
        why = "elements; by the kind of each column and its distinct values" if auto else "as given"
        self.note("maps", ", ".join(parts), why)

    # ---- what solvers ask for -------------------------------------------------------------------

    @property
    def max_checks(self) -> int | None:
        """How often the loss is measured: after every epoch where the user counts epochs."""
        counts = self.params.max_iter != "auto" or self.params.n_iter_no_change is not None
        return None if counts else _MAX_CHECKS

    @property
    def solver(self) -> str:
        """The parameter `solver`."""
        return self.params.solver

    @property
    def device(self) -> str:
        """The parameter `device`."""
        return self.params.device

    def epochs(self, usual_rate: float | None = None) -> dict[str, Any]:
        """Return the settings of a solver that trains in epochs.

        About 10,000 steps for 2,000 rows, more for fewer rows, fewer for wide tables. One step
        moves a product of N factors by up to N times the rate, so wide tables also need smaller
        steps, unless the solver has a usual rate of its own.
        """
        params, task = self.params, self.task
        n_rows, n_columns = len(task.rows), self.n_columns
        batch = int(np.clip(n_rows // 40, 16, 128))
        batch = int(self.decide("batch_size", batch, "a fortieth of the rows"))
        narrow = min(1.0, _NARROW / n_columns)
        # One step with the squared error learns more than one with the loss of a class.
        least = 0.35 if task.loss.code == SQUARED else 1.0
        steps = 10_000 * np.clip((2000 / n_rows) ** 0.75, least, 2.5)
        epochs = int(np.clip(steps * batch / n_rows * narrow, 16, 1000 * narrow + 20))
        epochs = max(_SHORTEST, round(self.first_length * epochs))
        why = f"by {n_rows:,} rows and {n_columns:,} columns"
        if self.first_length < 1.0:
            why += ", to begin with"
        epochs = int(self.decide("max_iter", epochs, why))
        if usual_rate is None:
            rate = self.usual_rate * min(1.0, np.sqrt(_NARROW / n_columns))
            why = f"{self.usual_rate:g}, less for more than {_NARROW} columns"
        else:
            rate, why = usual_rate, "whatever the number of columns"
        rate = self.rate = float(self.decide("learning_rate", rate, why))
        return {
            "ema_decay": params.ema_decay,
            "n_iter_no_change": params.n_iter_no_change,
            "tol": float(params.tol),
            "schedule": params.schedule,
            "batch_size": batch,
            "max_iter": epochs,
            "learning_rate": rate,
        }

    def sweeps(self, usual_patience: int) -> dict[str, Any]:
        """Return when a solver that trains in sweeps stops."""
        return {
            "n_iter_no_change": self.params.n_iter_no_change or usual_patience,
            "tol": float(self.params.tol),
        }
