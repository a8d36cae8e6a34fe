"""Whether trees are joined to the plan of a CP fit."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import ceil

from polyadic.training import forest
from polyadic.training.decisions import CPSettings
from polyadic.training.plan import Choice, Plan, Task
from polyadic.training.resolve import (
    FEWEST_HELD_OUT,
    held_out_share,
    too_few_to_hold_out,
    with_choices,
)


def with_trees(params: CPSettings, task: Task, plan: Plan) -> Plan:
    """Return the plan with the decision whether trees are joined.

    By default only where strategies are mixed anyway, the table is long enough and not too wide,
    and `fit` need not go on from the model: trees cannot be trained further.
    """
    if params.trees != "auto" and params.trees:
        _check_trees(params, task)
        if too_few_to_hold_out(params, task):
            _warn_of_no_trees(params, task)
            why = "too few rows to hold any out"
            return with_choices(plan, (), Choice(forest.NAME, "no", why))
        return with_choices(replace(plan, trees="yes"), (), Choice(forest.NAME, "yes", "as given"))
    long = len(task.rows) >= forest.FEWEST_ROWS
    if params.trees != "auto" or params.warm_start or not (plan.mixed and long):
        return plan
    if not forest.affordable(len(task.maps), task.n_outputs):
        return with_choices(plan, (), Choice(forest.NAME, "no", "too many columns or outputs"))
    return replace(plan, trees="auto")


def _check_trees(params: CPSettings, task: Task) -> None:
    """Refuse trees=True with settings that rule trees out.

    That a table is too short for held-out rows is no error of settings: `_warn_of_no_trees`.
    """
    if not forest.possible(task.loss):
        raise ValueError(
            f"trees=True cannot be used with the loss {task.loss!r}: there are trees for the "
            "squared error, Poisson and the log-loss of classes. Use trees=False."
        )
    if not forest.most_rounds(task.n_outputs):
        raise ValueError(
            f"trees=True cannot be used with {task.n_outputs} outputs or classes: each needs trees "
            f"of its own, {forest.STEP} at least, and there may be {forest.MOST_TREES:,} in all. "
            "Use trees=False."
        )
    if held_out_share(params) == 0 and not task.has_held_out:
        raise ValueError(
            "trees=True needs held-out rows, which choose the share of the trees, but got "
            f"early_stopping={params.early_stopping!r} and "
            f"validation_fraction={params.validation_fraction!r}. Set early_stopping=True and "
            "validation_fraction above 0, pass X_val, or use trees=False."
        )
    if params.warm_start:
        raise ValueError(
            "trees=True cannot be used with warm_start=True: trees cannot be trained further."
        )


def _warn_of_no_trees(params: CPSettings, task: Task) -> None:
    """Warn that a table is too short for the trees that were asked for."""
    fewest = ceil(FEWEST_HELD_OUT / params.validation_fraction)
    warnings.warn(
        f"trees=True has no effect on {len(task.rows)} distinct rows: {FEWEST_HELD_OUT} rows at "
        "least must be held out to choose the share of the trees, which takes "
        f"{fewest} with validation_fraction={params.validation_fraction:g}. The model has no "
        "trees. Fit more rows, pass X_val, or use trees=False.",
        UserWarning,
        stacklevel=2,
    )
