"""What the plans of all models share: held-out rows, strengths to try, and the rest of a plan.

The parameters of an estimator are resolved into a plan by `resolve_cp`, `resolve_trees` and
`resolve_networks`: every "auto" is decided there and here, and only there and here. Each choice is
noted with its reason, which `print(model.plan_)` shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from polyadic.solvers.contract import Solver, check_loss
from polyadic.training.decisions import Decisions, Settings
from polyadic.training.plan import Choice, Plan, Task
from polyadic.training.strategies import FactorPenalties, Ladder, Strategy

FEWEST_HELD_OUT = 5  # held-out rows; the loss of fewer says nothing. Chosen by hand


def factor_penalties(params: Settings) -> FactorPenalties:
    """Return the penalties on the factors, of the strengths that the user gave."""
    return FactorPenalties(
        l2=None if params.l2 == "auto" else float(params.l2),
        smoothness=None if params.smoothness == "auto" else float(params.smoothness),
    )


def _n_folds(decisions: Decisions) -> int:
    """Return the number of folds, of which each member holds one out."""
    params, task = decisions.params, decisions.task
    fraction = held_out_share(params)
    if task.has_held_out:
        return decisions.note("n_folds", 0, "held-out rows are given as X_val")
    if fraction == 0:
        return decisions.note("n_folds", 0, "early_stopping=False: no rows are held out")
    if too_few_to_hold_out(params, task):
        return decisions.note("n_folds", 0, f"fewer than {FEWEST_HELD_OUT} rows would be held out")
    return decisions.note("n_folds", max(2, round(1 / fraction)), "by validation_fraction")


def held_out_share(params: Settings) -> float:
    """Return the share of the rows that each member is to hold out."""
    return float(params.validation_fraction) if params.early_stopping else 0.0


def too_few_to_hold_out(params: Settings, task: Task) -> bool:
    """Tell whether rows are to be held out, but there are too few of them."""
    share = held_out_share(params)
    return not task.has_held_out and 0 < share * len(task.rows) < FEWEST_HELD_OUT


def choose_ladder(strategy: Strategy, n_members: int, n_folds: int, decisions: Decisions) -> Ladder:
    """Return the strengths to try, where there are held-out rows."""
    task = decisions.task
    if not (task.has_held_out or n_folds):
        ladder = Ladder((strategy.usual_strength,))
        why = "without held-out rows no others can be compared"
    else:
        ladder = strategy.ladder(len(task.rows), len(task.rows.columns), n_members)
        why = (
            f"{ladder.n_pilots} pilots per strength" if ladder.n_pilot_fits else "no others to try"
        )
    decisions.note("strengths", ", ".join(f"{s:g}" for s in ladder.strengths), why)
    return ladder


def _intercept(solver: Solver, task: Task) -> np.ndarray:
    """Return the intercept to start from, (L,).

    A loss that the solver cannot train is refused first: it may lack the form, or PyTorch, that
    computing its baseline takes.
    """
    check_loss(solver, task.loss, task.rows.y.shape[1] < task.n_outputs)
    return task.baseline()


def build_plan(
    decisions: Decisions, *, strategy: Strategy, solver: Solver, n_members: int, **own: Any
) -> Plan:
    """Return the plan, with what follows from the parameters in the same way for every model."""
    params, task = decisions.params, decisions.task
    n_folds = _n_folds(decisions)
    return Plan(
        loss=task.loss,
        intercept=_intercept(solver, task),
        maps=task.maps,
        strategy=strategy,
        ladder=choose_ladder(strategy, n_members, n_folds, decisions),
        solver=solver,
        n_members=n_members,
        n_folds=n_folds,
        order_alpha=float(params.order_alpha),
        order_beta=float(params.order_beta),
        seed=task.seed,
        two_classes=task.two_classes,
        choices=tuple(decisions.choices),
        **own,
    )


def with_choices(plan: Plan, without: Iterable[str], *more: Choice) -> Plan:
    """Return the plan with some choices replaced, where another way was taken."""
    kept = (choice for choice in plan.choices if choice.name not in set(without))
    return replace(plan, choices=(*more, *kept))
