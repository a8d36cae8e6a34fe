"""The plan of a tensor network other than CP: one member, on the torch engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from polyadic.kernels.losses import LOGISTIC, SOFTMAX
from polyadic.networks.cores import Cores
from polyadic.solvers import inits
from polyadic.solvers.als import MAX_SWEEPS
from polyadic.solvers.registry import NETWORKS
from polyadic.solvers.torch_solver import TorchOptim
from polyadic.training.decisions import Decisions, Settings
from polyadic.training.plan import Choice, Plan, Task
from polyadic.training.resolve import build_plan, factor_penalties, with_choices

# learning_rate="auto" for a narrow table. Products of matrices change more per step than products
# of numbers do, and chains of 784 of them collapse at the rate of CP.
TN_PEAK_RATE = 0.005


def resolve_tn(params: Settings, task: Task, init: Any, is_network: bool = True) -> Plan:
    """Return the plan of a tensor network: one member, on the torch engine.

    `is_network`: whether the format has a weight tensor.
    """
    decisions = Decisions(params, task, TN_PEAK_RATE)
    decisions.usual_sweeps = MAX_SWEEPS
    strategy = factor_penalties(params)
    decisions.note("solver", params.solver, "as given")
    decisions.note("strategy", strategy, "for every network")
    decisions.note("rank", params.rank, "as given")
    plan = build_plan(
        decisions,
        strategy=strategy,
        solver=NETWORKS.get(params.solver, TorchOptim).from_settings(decisions),
        init=init,
        ranks=(params.rank, params.rank),
        n_members=1,
        separate_outputs=False,
        extras_l2=0.0 if params.l2 == "auto" else float(params.l2),
        n_jobs=1,
    )
    classes = task.loss.code in (LOGISTIC, SOFTMAX)
    if classes and params.solver == "als" and params.l2 == "auto" and params.order_alpha == 0:
        return _like_logistic_regression(plan, task, is_network)
    return plan


def _like_logistic_regression(plan: Plan, task: Task, is_network: bool) -> Plan:
    """Return the plan with the penalty of logistic regression with C = 1, for sweeps on classes.

    Where classes can be separated, the log-loss has no minimum, and a sweep goes further towards
    infinity than many epochs do. L2 on the cores does not stop it: other arrays can grow while
    these shrink. The order penalty acts on the coefficients themselves. Those of degree one are
    penalised by |w|^2 / (2 n) as there, and N times as much for every further degree, since there
    are about N times as many products. Formats without a weight tensor have L2 on all arrays
    instead, of the strength that it has on the cores.
    """
    n_rows, n_columns = task.rows.effective_rows(), len(task.maps)
    if not is_network:
        note = Choice("l2", f"{1.0 / n_rows:.3g} on other arrays", "as on the cores: 1 / n")
        return replace(with_choices(plan, (), note), extras_l2=1.0 / n_rows)
    alpha, beta = 0.5 / (n_rows * n_columns), float(np.sqrt(n_columns))
    note = Choice("order_alpha", f"{alpha:.3g}", "1 / (2 n N), for sweeps on classes")
    return replace(with_choices(plan, (), note), order_alpha=alpha, order_beta=beta)


def resume_tn(params: Settings, task: Task, cores: Cores) -> Plan:
    """Return the plan of going on from a fitted network."""
    plan = resolve_tn(params, task, None, cores.format.is_network)
    start = Choice("start", "the fitted model", "warm_start=True; it keeps its maps")
    plan = with_choices(plan, ("maps",), start)
    held = cores.format.keeps_weights and isinstance(inits.resolve(params.init), inits.Gaussian)
    free = np.zeros_like(cores.extras[-1]) if held else None  # as at the start of the first fit
    return replace(plan, intercept=cores.intercept, resume_from=cores, free=free)
