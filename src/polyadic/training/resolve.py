"""Resolve the parameters of an estimator into a plan: every "auto" is decided here, and only here.

Each choice is noted with its reason, which `print(model.plan_)` shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from polyadic.data.slots import MOST_SLOTS, dense_slots, n_slots
from polyadic.kernels.losses import LOGISTIC, SQUARED
from polyadic.maps.base import FeatureMap
from polyadic.objective.losses import Loss
from polyadic.solvers import inits
from polyadic.solvers.adam import Adam
from polyadic.solvers.als import ALS, MAX_SWEEPS, PATIENCE
from polyadic.solvers.blocks import sweep_cost, working_memory
from polyadic.solvers.contract import Solver
from polyadic.solvers.sequences import AdamThenAls, AlsThenAdam
from polyadic.training.plan import Choice, Plan, Task
from polyadic.training.strategies import FactorPenalties, Ladder, Strategy, TensorPrior

# learning_rate="auto" for a narrow table. Products of matrices change more per step than products
# of numbers do, and chains of 784 of them collapse at the rate of CP.
CP_PEAK_RATE = 0.015
TN_PEAK_RATE = 0.005

_NARROW = 10  # columns up to which a table counts as narrow; chosen by hand
_START_SWEEPS = 1  # solver="als+adam": a second sweep costs more than it gains
# Working memory of least squares in units of 24 bytes, 4.8 GB in all; above it, solver="auto" uses
# Adam alone. Chosen by hand.
_MOST_ROOM = 2e8
_FEWEST_ROWS = 5  # held-out rows; the loss of fewer says nothing. Chosen by hand


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
    separate_outputs: bool


# ---- what all estimators share ---------------------------------------------------------------


class _Notes(list[Choice]):
    """The choices of a plan, in the order in which they are made."""

    def add(self, name: str, value: Any, why: str) -> Any:
        self.append(Choice(name, str(value), why))
        return value


def _given_or(name: str, given: Any, auto: Any, why: str, notes: _Notes) -> Any:
    """Return what the user gave, or the value of "auto"; note which it was."""
    if given != "auto":
        return notes.add(name, given, "as given")
    return notes.add(name, auto, why)


def _steps(
    params: Settings, task: Task, peak_rate: float, notes: _Notes, why_rate: str = ""
) -> dict[str, Any]:
    """Return the settings of a solver that trains in epochs.

    About 10,000 steps for 2,000 rows, more for fewer rows, fewer for wide tables. One step moves a
    product of N factors by up to N times the rate, so wide tables also need smaller steps.
    """
    n_rows, n_columns = len(task.rows), len(task.rows.columns)
    batch = int(np.clip(n_rows // 40, 16, 128))
    batch = int(_given_or("batch_size", params.batch_size, batch, "a fortieth of the rows", notes))
    narrow = min(1.0, _NARROW / n_columns)
    # One step with the squared error learns more than one with the loss of a class.
    least = 0.35 if task.loss.code == SQUARED else 1.0
    steps = 10_000 * np.clip((2000 / n_rows) ** 0.75, least, 2.5)
    epochs = int(np.clip(steps * batch / n_rows * narrow, 16, 1000 * narrow + 20))
    why = f"by {n_rows:,} rows and {n_columns:,} columns"
    epochs = int(_given_or("max_iter", params.max_iter, epochs, why, notes))
    rate = peak_rate * min(1.0, np.sqrt(_NARROW / n_columns))
    why = why_rate or f"{peak_rate:g}, less for more than {_NARROW} columns"
    rate = float(_given_or("learning_rate", params.learning_rate, rate, why, notes))
    return {
        "ema_decay": params.ema_decay,
        "n_iter_no_change": params.n_iter_no_change,
        "tol": float(params.tol),
        "schedule": params.schedule,
        "batch_size": batch,
        "max_iter": epochs,
        "learning_rate": rate,
    }


def _note_maps(params: Settings, maps: list[FeatureMap], notes: _Notes) -> None:
    """Note the kinds of maps and their numbers of elements."""
    sizes: dict[str, list[int]] = {}
    for one in maps:
        sizes.setdefault(type(one).__name__, []).append(one.dim)
    told = (
        f"{len(dims)} {kind} of {min(dims)}" + (f" to {max(dims)}" if max(dims) > min(dims) else "")
        for kind, dims in sizes.items()
    )
    auto = isinstance(params.maps, str) and params.maps == "auto"
    why = "elements; by the kind of each column and its distinct values" if auto else "as given"
    notes.add("maps", ", ".join(told), why)


def _factor_penalties(params: Settings) -> FactorPenalties:
    return FactorPenalties(
        l2=None if params.l2 == "auto" else float(params.l2),
        smoothness=None if params.smoothness == "auto" else float(params.smoothness),
    )


def _n_folds(params: Settings, task: Task, notes: _Notes) -> int:
    """Return the number of folds, of which each member holds one out."""
    fraction = params.validation_fraction if params.early_stopping else 0.0
    if task.has_held_out:
        return notes.add("n_folds", 0, "held-out rows are given as X_val")
    if fraction == 0:
        return notes.add("n_folds", 0, "early_stopping=False: no rows are held out")
    if fraction * len(task.rows) < _FEWEST_ROWS:
        return notes.add("n_folds", 0, f"fewer than {_FEWEST_ROWS} rows would be held out")
    return notes.add("n_folds", max(2, round(1 / fraction)), "by validation_fraction")


def _ladder(strategy: Strategy, task: Task, n_members: int, n_folds: int, notes: _Notes) -> Ladder:
    """Return the strengths to try, or the usual one where there are no held-out rows."""
    if not (task.has_held_out or n_folds):
        ladder = Ladder((strategy.usual_strength,))
        why = "there are no held-out rows to try others on"
    else:
        ladder = strategy.ladder(len(task.rows), len(task.rows.columns), n_members)
        why = f"{ladder.n_pilots} pilots per strength" if ladder.n_pilot_fits else "none to try"
    notes.add("strengths", ", ".join(f"{s:g}" for s in ladder.strengths), why)
    return ladder


# ---- CP --------------------------------------------------------------------------------------


def resolve_cp(params: CPSettings, task: Task, solver: str | None = None) -> Plan:
    """Return the plan of a CP fit; `solver` replaces the solver of the parameters."""
    notes = _Notes()
    _note_maps(params, task.maps, notes)
    prior_allowed = _allows_prior(params, task.loss)
    name = solver or _solver_name(params, task, prior_allowed, notes)
    strategy = _strategy(params, name, prior_allowed, notes)
    n_members = _given_or(
        "n_members", params.n_members, strategy.n_members, f"with {strategy.name}", notes
    )
    ranks = _ranks(params, strategy, task.maps, notes)
    width = ranks[1] * (task.n_outputs if params.separate_outputs and task.n_outputs > 1 else 1)
    resolved = _solver(params, task, name, strategy, width, notes)
    n_folds = _n_folds(params, task, notes)
    return Plan(
        loss=task.loss,
        intercept=task.baseline(),
        maps=task.maps,
        strategy=strategy,
        ladder=_ladder(strategy, task, n_members, n_folds, notes),
        solver=resolved,
        init=inits.resolve(params.init),
        ranks=ranks,
        n_members=n_members,
        n_folds=n_folds,
        order_alpha=float(params.order_alpha),
        order_beta=float(params.order_beta),
        separate_outputs=bool(params.separate_outputs) and task.n_outputs > 1,
        extras_l2=0.0,
        seed=task.seed,
        n_jobs=task.n_jobs,
        choices=tuple(notes),
    )


def resume_cp(params: CPSettings, task: Task, cores: Any, strength: float | None) -> Plan:
    """Return the plan of going on from a fitted model, at the strength that was found for it."""
    plan = resolve_cp(params, task)
    return replace(
        plan,
        intercept=cores.intercept,
        resume_from=cores,
        free=separate_mask(cores) if params.separate_outputs else None,
        ladder=Ladder((plan.strategy.resumed_strength(strength),)),
    )


def plan_pass(params: CPSettings, task: Task) -> Plan:
    """Return the plan of one pass of `partial_fit`: an epoch of Adam at a constant rate."""
    plan = resolve_cp(params, task, solver="adam")
    assert isinstance(plan.solver, Adam)
    solver = replace(plan.solver, max_iter=1, schedule="constant")
    return replace(plan, solver=solver, ladder=Ladder((plan.strategy.usual_strength,)))


def separate_mask(cores: Any) -> np.ndarray:
    """Return which output weights of a fitted model may move: separate tensors stay apart."""
    return (cores.weights != 0).astype(float)


def _allows_prior(params: CPSettings, loss: Loss) -> bool:
    """Tell whether a prior on the weight tensor may replace the penalties on the factors.

    It may not where the user set penalties or an init, nor for losses on the scale of the target,
    whose penalties are in proportion to the noise.
    """
    auto = params.l2 == "auto" and params.smoothness == "auto" and params.order_alpha == 0
    return auto and params.init == "near_one" and not loss.location_scale


def _solver_name(params: CPSettings, task: Task, prior_allowed: bool, notes: _Notes) -> str:
    """Resolve solver="auto".

    Two classes: least squares alone ("als"), unless the user set max_iter, penalties or an init;
    then a sweep of least squares before Adam ("als+adam"), as for the squared error. Where all
    elements of a map are non-zero in every row, as those of polynomials, sweeps follow Adam instead
    ("adam+als"): such a model can be exact, and a sweep before Adam gains nothing. Adam alone for
    other losses and other inits, and where maps have many slots or elements.
    """
    if params.solver != "auto":
        return notes.add("solver", params.solver, "as given")
    code, maps = task.loss.code, task.maps
    tensor_prior = code == LOGISTIC and prior_allowed
    rank = (TensorPrior if tensor_prior else FactorPenalties).ranks[0]
    if params.engine != "fused" or params.init != "near_one" or params.max_iter == 0:
        return notes.add("solver", "adam", "engine, init or max_iter=0 rule least squares out")
    if working_memory(maps, rank, 0) > _MOST_ROOM:
        return notes.add("solver", "adam", "a column has too many elements for least squares")
    if max(map(n_slots, maps)) > MOST_SLOTS:
        return notes.add("solver", "adam", "a map has too many slots for least squares")
    if dense_slots(maps) > 0:
        if code == SQUARED and params.max_iter == "auto":
            return notes.add("solver", "adam+als", "small polynomials: sweeps can become exact")
        return notes.add("solver", "adam", "all elements of a map are non-zero in every row")
    if tensor_prior and params.max_iter == "auto":
        return notes.add("solver", "als", "two classes: a convex loss, and a prior on the tensor")
    if code in (SQUARED, LOGISTIC):
        return notes.add("solver", "als+adam", "one sweep is a good start for this loss")
    return notes.add("solver", "adam", "a sweep is no good start for this loss")


def _strategy(params: CPSettings, solver: str, prior_allowed: bool, notes: _Notes) -> Strategy:
    strategy: Strategy = _factor_penalties(params)
    why = "the tensor prior is for solver='als' with penalties and init at their defaults"
    if solver == "als" and prior_allowed:
        strategy, why = TensorPrior(), "solver='als', no scale of the target, default penalties"
    notes.add("strategy", strategy.name, why)
    return strategy


def _ranks(
    params: CPSettings, strategy: Strategy, maps: list[FeatureMap], notes: _Notes
) -> tuple[int, int]:
    """Return the rank of pilots, and the highest rank of members that fits into memory."""
    if params.rank != "auto":
        notes.add("rank", params.rank, "as given")
        return params.rank, params.rank
    low, high = strategy.ranks
    if low < high:
        roomy = (r for r in range(high, low, -8) if working_memory(maps, r, 0) <= _MOST_ROOM)
        high = next(roomy, low)
    value = f"{low} to {high}" if low < high else low
    notes.add("rank", value, "by the interaction that pilots find" if low < high else "the usual")
    return low, high


def _solver(
    params: CPSettings,
    task: Task,
    name: str,
    strategy: Strategy,
    width: int,
    notes: _Notes,
) -> Solver:
    if params.engine == "torch":
        return _torch_solver(params, task, name, notes)
    if name == "als":
        sweeps = _given_or("max_iter", params.max_iter, strategy.sweeps, "sweeps", notes)
        patience = params.n_iter_no_change or PATIENCE
        return ALS(max_iter=sweeps, n_iter_no_change=patience, tol=float(params.tol))
    # Members run side by side; a single member shares its columns among the threads.
    threads = task.n_jobs if params.n_members == 1 else None
    adam = Adam(**_steps(params, task, CP_PEAK_RATE, notes), n_threads=threads)
    if name == "adam":
        return adam
    if name == "als+adam":
        return AlsThenAdam(ALS(max_iter=_START_SWEEPS), adam)
    # As many sweeps after Adam as take no longer than Adam does.
    sweeps = int(adam.max_iter / sweep_cost(task.maps, width))
    if params.solver != "auto":
        sweeps = max(1, sweeps)
    sweeps = notes.add("sweeps", min(sweeps, MAX_SWEEPS), "as many as take no longer than Adam")
    return AdamThenAls(adam, ALS(max_iter=sweeps)) if sweeps else adam


def _torch_solver(params: CPSettings, task: Task, name: str, notes: _Notes) -> Solver:
    if name != "adam":
        raise ValueError(
            f"solver={name!r} runs on engine='fused' only; engine='torch' has solver='adam'."
        )
    from polyadic.solvers.torch_solver import TorchOptim

    steps = _steps(params, task, CP_PEAK_RATE, notes)
    return TorchOptim(**steps, device=params.device, weigh_columns=True)


# ---- other networks ----------------------------------------------------------------------------


def resolve_tn(params: Settings, task: Task, init: Any) -> Plan:
    """Return the plan of a tensor network: one member, on the torch engine."""
    notes = _Notes()
    _note_maps(params, task.maps, notes)
    strategy = _factor_penalties(params)
    notes.add("solver", params.solver, "as given")
    notes.add("strategy", strategy.name, "for every network")
    notes.add("rank", params.rank, "as given")
    solver = _network_solver(params, task, notes)
    n_folds = _n_folds(params, task, notes)
    return Plan(
        loss=task.loss,
        intercept=task.baseline(),
        maps=task.maps,
        strategy=strategy,
        ladder=_ladder(strategy, task, 1, n_folds, notes),
        solver=solver,
        init=init,
        ranks=(params.rank, params.rank),
        n_members=1,
        n_folds=n_folds,
        order_alpha=float(params.order_alpha),
        order_beta=float(params.order_beta),
        separate_outputs=False,
        extras_l2=0.0 if params.l2 == "auto" else float(params.l2),
        seed=task.seed,
        n_jobs=1,
        choices=tuple(notes),
    )


def _network_solver(params: Settings, task: Task, notes: _Notes) -> Solver:
    if params.solver == "riemannian":
        from polyadic.solvers.riemannian import PEAK_RATE, Riemannian

        why = "a share of the full step, for any number of columns"
        steps = _steps(params, task, PEAK_RATE, notes, why)
        if params.learning_rate == "auto":
            steps["learning_rate"] = PEAK_RATE
        return Riemannian(**steps, device=params.device)
    from polyadic.solvers.torch_solver import TorchOptim

    steps = _steps(params, task, TN_PEAK_RATE, notes)
    return TorchOptim(**steps, optimiser=params.solver, device=params.device)
