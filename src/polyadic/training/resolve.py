"""Resolve the parameters of an estimator into a plan: every "auto" is decided here, and only here.

Each choice is noted with its reason, which `print(model.plan_)` shows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from polyadic.data.slots import MOST_SLOTS, dense_slots, n_slots
from polyadic.kernels.examples import MIXTURE
from polyadic.kernels.losses import LOGISTIC, SOFTMAX, SQUARED
from polyadic.maps.base import FeatureMap
from polyadic.networks.cores import Cores
from polyadic.networks.cp import CPCores
from polyadic.solvers import inits
from polyadic.solvers.adam import Adam
from polyadic.solvers.als import MAX_SWEEPS
from polyadic.solvers.blas import one_blas_thread
from polyadic.solvers.blocks import working_memory
from polyadic.solvers.contract import Solver, check_loss
from polyadic.solvers.registry import FUSED, NETWORKS
from polyadic.solvers.torch_solver import TorchOptim
from polyadic.training import forest, linear, screening
from polyadic.training.compiling import prepare_fit
from polyadic.training.decisions import CPSettings, Decisions, Settings
from polyadic.training.plan import Choice, Plan, Task
from polyadic.training.strategies import (
    FactorPenalties,
    Ladder,
    ManyClassPenalties,
    MixedPrior,
    Strategy,
    TensorPrior,
)

# learning_rate="auto" for a narrow table. Products of matrices change more per step than products
# of numbers do, and chains of 784 of them collapse at the rate of CP.
CP_PEAK_RATE = 0.015
TN_PEAK_RATE = 0.005

# Working memory of least squares in units of 24 bytes, 4.8 GB in all; above it, solver="auto" uses
# Adam alone. Chosen by hand. Where a fit may take so many bytes only, a quarter of them for each of
# two members that are trained at the same time, but 0.1 GB at least.
_MOST_MEMORY, _MEMORY_UNIT = 2e8, 24
_SHARE_OF_BUDGET, _LEAST_MEMORY = 0.125, 4e6
# Pilots may find that training should be up to this many times as long as usual, and at a peak rate
# that is this many times higher, but not at one above this. Chosen by hand.
_LONGEST = 4
_FASTER = 2.5
# Share of the usual length that they begin with: many pilots try strengths on a short table.
_FIRST_LENGTH, _FIRST_LENGTH_OF_SHORT_TABLES = 0.5, 0.25
_HIGHEST_RATE = 0.025
_FEWEST_ROWS = 5  # held-out rows; the loss of fewer says nothing. Chosen by hand
# Rows below which a mixture has this many members: so every row is held out once, by the usual
# validation_fraction, and more rows choose the shares. Chosen on tables outside of the suite.
_FEW_ROWS, _MEMBERS_OF_FEW_ROWS = 500, 10


# ---- what all estimators share ---------------------------------------------------------------


def _memory_limit(task: Task) -> float:
    """Return the working memory that least squares may take, in its units."""
    if task.memory is None:
        return _MOST_MEMORY
    share = _SHARE_OF_BUDGET * task.memory / _MEMORY_UNIT
    return min(_MOST_MEMORY, max(share, _LEAST_MEMORY))


def _factor_penalties(params: Settings) -> FactorPenalties:
    return FactorPenalties(
        l2=None if params.l2 == "auto" else float(params.l2),
        smoothness=None if params.smoothness == "auto" else float(params.smoothness),
    )


def _n_folds(decisions: Decisions) -> int:
    """Return the number of folds, of which each member holds one out."""
    params, task = decisions.params, decisions.task
    fraction = _held_out_share(params)
    if task.has_held_out:
        return decisions.note("n_folds", 0, "held-out rows are given as X_val")
    if fraction == 0:
        return decisions.note("n_folds", 0, "early_stopping=False: no rows are held out")
    if _too_few_to_hold_out(params, task):
        return decisions.note("n_folds", 0, f"fewer than {_FEWEST_ROWS} rows would be held out")
    return decisions.note("n_folds", max(2, round(1 / fraction)), "by validation_fraction")


def _held_out_share(params: Settings) -> float:
    """Return the share of the rows that each member is to hold out."""
    return float(params.validation_fraction) if params.early_stopping else 0.0


def _too_few_to_hold_out(params: Settings, task: Task) -> bool:
    """Tell whether rows are to be held out, but there are too few of them."""
    share = _held_out_share(params)
    return not task.has_held_out and 0 < share * len(task.rows) < _FEWEST_ROWS


def _ladder(strategy: Strategy, n_members: int, n_folds: int, decisions: Decisions) -> Ladder:
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


def _plan(
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
        ladder=_ladder(strategy, n_members, n_folds, decisions),
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


def _with_choices(plan: Plan, without: Iterable[str], *more: Choice) -> Plan:
    """Return the plan with some choices replaced, where another way was taken."""
    kept = (choice for choice in plan.choices if choice.name not in set(without))
    return replace(plan, choices=(*more, *kept))


# ---- CP --------------------------------------------------------------------------------------


def resolve_cp(params: CPSettings, task: Task, solver: str | None = None) -> Plan:
    """Return the plan of a CP fit; `solver` replaces the solver of the parameters."""
    init = inits.resolve(params.init)
    if solver is None and _mixes(params, init, task):
        return _with_trees(params, task, _mixture(params, init, task))
    decisions = Decisions(params, task, CP_PEAK_RATE)
    name, strategy = _solver_and_strategy(params, init, solver, decisions)
    plan = _cp_plan(params, decisions, name, strategy, init)
    return plan if solver is not None else _with_trees(params, task, plan)


def _cp_plan(
    params: CPSettings, decisions: Decisions, solver: str, strategy: Strategy, init: inits.Init
) -> Plan:
    """Return the plan of one strategy, with this solver."""
    task = decisions.task
    n_members = decisions.decide("n_members", strategy.n_members, f"with {strategy.name}")
    ranks = _ranks(params, strategy, task.maps, decisions)
    separate = bool(params.separate_outputs) and task.n_outputs > 1
    decisions.width = ranks[1] * (task.n_outputs if separate else 1)
    decisions.usual_sweeps = strategy.sweeps
    # Members run side by side; one alone shares its columns among the threads.
    decisions.n_threads = task.n_jobs if params.n_members == 1 else None
    return _plan(
        decisions,
        strategy=strategy,
        solver=_solver(params, solver, decisions),
        init=init,
        ranks=ranks,
        n_members=n_members,
        separate_outputs=separate,
        extras_l2=0.0,
        n_jobs=task.n_jobs,
    )


def _mixes(params: CPSettings, init: inits.Init, task: Task) -> bool:
    """Tell whether several strategies are trained and mixed.

    That takes held-out rows, several members, a loss and maps for which they are possible, and
    penalties, init and length that are left to the library.
    """
    held_out = task.has_held_out or _held_out_share(params) * len(task.rows) >= _FEWEST_ROWS
    free = all(
        value == "auto" for value in (params.solver, params.max_iter, params.l2, params.smoothness)
    )
    return (
        held_out
        and free
        and params.n_members != 1
        and params.engine == "fused"
        and params.order_alpha == 0
        and not (params.separate_outputs and task.n_outputs > 1)
        and init == inits.NearOne()
        and task.loss.code in (SQUARED, LOGISTIC, SOFTMAX)
        and dense_slots(task.maps) == 0
        and max(map(n_slots, task.maps)) <= MOST_SLOTS
        and working_memory(task.maps, MixedPrior.ranks[0], 0) <= _memory_limit(task)
    )


def _screened(
    task: Task, decisions: Decisions
) -> tuple[tuple[int, ...] | None, tuple[screening.Seed, ...]]:
    """Return the columns that take part in products, or None for all, and terms to start from."""
    n_columns = len(task.maps)
    if n_columns <= screening.FEW_COLUMNS:
        return None, ()
    prepare_fit(MIXTURE)  # the search runs some of its kernels already
    # Threads of BLAS without a core of their own wait for each other, for up to a hundred times as
    # long as one thread takes.
    with one_blas_thread():
        found = screening.search(task)
    if found is None:
        decisions.note("columns", n_columns, "all of them: no time is left to search")
        return None, ()
    why = (
        f"take part in products: {found.n_main} have a clear effect of their own, "
        f"{found.n_pairs} pairs and {found.n_triples} triples interact"
    )
    if not found.told:
        why += "; others may, unseen"
    decisions.note("columns", f"{len(found.columns)} of {n_columns}", why)
    columns = tuple(found.columns) if len(found.columns) < n_columns else None
    return columns, tuple(found.seeds)


def _mixture(params: CPSettings, init: inits.Init, task: Task) -> Plan:
    """Return the plan of factor penalties, mixed with the tensor prior."""
    decisions = Decisions(params, task, CP_PEAK_RATE)
    names = ["factor penalties", "tensor prior", "additive"]
    if linear.possible(task.maps, len(task.rows), task.n_outputs):
        names.append(linear.NAME)
    decisions.note("strategy", ", ".join(names), "mixed by held-out rows")
    one_sweep = task.loss.code in (SQUARED, LOGISTIC)
    name = "als+adam" if one_sweep else "adam"
    why = "one sweep is a good start for this loss" if one_sweep else "for many classes"
    decisions.note("solver", name, f"{why}; als for the tensor prior")
    columns, seeds = _screened(task, decisions)
    decisions.n_columns = len(task.maps) if columns is None else len(columns)
    short = len(task.rows) < FactorPenalties.long
    decisions.first_length = _FIRST_LENGTH_OF_SHORT_TABLES if short else _FIRST_LENGTH
    kind = ManyClassPenalties if task.loss.code == SOFTMAX else FactorPenalties
    few = len(task.rows) < _FEW_ROWS and not task.has_held_out
    usual = _MEMBERS_OF_FEW_ROWS if few else kind.n_members
    strategy = kind(uncertain_labels=True, n_members=usual)
    plan = _cp_plan(params, decisions, name, strategy, init)
    own = Decisions(params, task, CP_PEAK_RATE)
    other = _cp_plan(params, own, "als", MixedPrior(), init)
    # A short table has as many members as by the other strategy: its held-out rows are few.
    n_members = min(plan.n_members, usual if short else MixedPrior.n_members)
    ladder = _ladder(other.strategy, n_members, other.n_folds, own)
    dims = [task.maps[n].dim for n in (range(len(task.maps)) if columns is None else columns)]
    other = replace(
        other,
        n_members=n_members,
        ladder=ladder,
        ranks=MixedPrior().affordable_ranks(len(task.rows), dims, other.ranks),
        columns=columns,
        mixed=True,
    )
    faster = _FASTER * decisions.rate
    may_try = params.learning_rate == "auto" and faster <= _HIGHEST_RATE
    return replace(
        plan,
        adapts_length=True,
        rates_to_try=(faster,) if may_try else (),
        longest=round(_LONGEST / decisions.first_length),
        columns=columns,
        seeds=seeds,
        mixed=True,
        others=(other,),
    )


def _with_trees(params: CPSettings, task: Task, plan: Plan) -> Plan:
    """Return the plan with the decision whether trees are joined.

    By default only where strategies are mixed anyway, the table is long enough and not too wide,
    and `fit` need not go on from the model: trees cannot be trained further.
    """
    if params.trees != "auto" and params.trees:
        _check_trees(params, task)
        if _too_few_to_hold_out(params, task):
            _warn_of_no_trees(params, task)
            why = "too few rows to hold any out"
            return _with_choices(plan, (), Choice(forest.NAME, "no", why))
        return _with_choices(replace(plan, trees="yes"), (), Choice(forest.NAME, "yes", "as given"))
    long = len(task.rows) >= forest.FEWEST_ROWS
    useful = long and forest.affordable(task.maps, len(task.rows), task.n_outputs)
    if params.trees == "auto" and plan.mixed and useful and not params.warm_start:
        return replace(plan, trees="auto")
    return plan


def _check_trees(params: CPSettings, task: Task) -> None:
    """Refuse trees=True with settings that rule trees out.

    That a table is too short for held-out rows is no error of settings: `_warn_of_no_trees`.
    """
    if not forest.possible(task.loss):
        raise ValueError(
            f"trees=True cannot be used with the loss {task.loss!r}: there are trees for the "
            "squared error, Poisson and the log-loss of classes. Use trees=False."
        )
    if _held_out_share(params) == 0 and not task.has_held_out:
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
    fewest = ceil(_FEWEST_ROWS / params.validation_fraction)
    warnings.warn(
        f"trees=True has no effect on {len(task.rows)} distinct rows: {_FEWEST_ROWS} rows at least "
        "must be held out to choose the share of the trees, which takes "
        f"{fewest} with validation_fraction={params.validation_fraction:g}. The model has no "
        "trees. Fit more rows, pass X_val, or use trees=False.",
        UserWarning,
        stacklevel=2,
    )


def resume_cp(params: CPSettings, task: Task, cores: CPCores, strength: float | None) -> Plan:
    """Return the plan of going on from a fitted model, at the strength that was found for it."""
    plan = resolve_cp(params, task)
    if plan.mixed:  # all that was mixed is one model now, of too high a rank for least squares
        usual = {"others": (), "mixed": False, "columns": None, "seeds": (), "adapts_length": False}
        plan = replace(plan, solver=plan.solver.continued(), **usual)  # type: ignore[arg-type]
        plan = _with_choices(plan, ("strategy", "solver"), Choice("solver", "adam", "to go on"))
    strength = plan.strategy.resumed_strength(strength)
    plan = _with_choices(
        plan,
        ("maps", "rank", "n_members", "strengths"),
        Choice("start", "the fitted model", "warm_start=True; it keeps its maps"),
        Choice("rank", str(cores.rank), "of the fitted model"),
        Choice("strength", f"{strength:g}", "of the fitted model, or the usual one"),
    )
    return replace(
        plan,
        intercept=cores.intercept,
        resume_from=cores,
        free=separate_mask(cores) if params.separate_outputs else None,
        n_members=1,
        ladder=Ladder((strength,)),
    )


def plan_pass(params: CPSettings, task: Task) -> Plan:
    """Return the plan of one pass of `partial_fit`: an epoch of Adam at a constant rate."""
    plan = resolve_cp(params, task, solver="adam")
    solver = plan.solver
    assert isinstance(solver, Adam)
    plan = _with_choices(
        plan,
        ("solver", "max_iter", "n_members", "n_folds", "strengths"),
        Choice("solver", "adam", "partial_fit: one pass at a constant rate, one member"),
    )
    solver = replace(solver, max_iter=1, schedule="constant")
    ladder = Ladder((plan.strategy.usual_strength,))
    return replace(plan, solver=solver, ladder=ladder, n_members=1, n_folds=0)


def separate_mask(cores: CPCores) -> np.ndarray:
    """Return which output weights of a fitted model may move: separate tensors stay apart."""
    return (cores.weights != 0).astype(float)


def _solver_and_strategy(
    params: CPSettings, init: inits.Init, solver: str | None, decisions: Decisions
) -> tuple[str, Strategy]:
    """Return the name of the solver, and how the fit is regularised: they go together.

    The prior on the weight tensor belongs to solver="als", where penalties and init have their
    defaults.
    """
    factors = _factor_penalties(params)
    prior_allowed, why_not = _allows_prior(params, init, decisions.task)
    if solver is None:
        prior_wanted = prior_allowed and decisions.task.loss.code == LOGISTIC
        rank = (TensorPrior() if prior_wanted else factors).ranks[0]
        solver = _solver_name(params, init, prior_wanted, rank, decisions)
    if solver == "als" and prior_allowed:
        why = "solver='als' with penalties and init at their defaults"
        return solver, decisions.note("strategy", TensorPrior(), why)
    why = why_not or "the prior on the weight tensor is for solver='als'"
    return solver, decisions.note("strategy", factors, why)


def _allows_prior(params: CPSettings, init: inits.Init, task: Task) -> tuple[bool, str]:
    """Tell whether a prior on the weight tensor may replace the penalties on the factors.

    It may not where the user set penalties or an init, nor for losses on the scale of the target,
    whose penalties are in proportion to the noise. Where it may not, say why.
    """
    if not (params.l2 == "auto" and params.smoothness == "auto" and params.order_alpha == 0):
        return False, "penalties are given"
    if init != inits.NearOne():
        return False, "an init is given"
    if params.trees != "auto" and params.trees and not _too_few_to_hold_out(params, task):
        return False, "trees=True needs members that hold rows out"
    if task.loss.location_scale:
        return False, "for losses on the scale of the target"
    return True, ""


def _solver_name(
    params: CPSettings, init: inits.Init, prior_wanted: bool, rank: int, decisions: Decisions
) -> str:
    """Resolve solver="auto".

    Two classes: least squares alone ("als"), unless the user set max_iter, penalties or an init;
    then a sweep of least squares before Adam ("als+adam"), as for the squared error. Where all
    elements of a map are non-zero in every row, as those of polynomials, sweeps follow Adam instead
    ("adam+als"): such a model can be exact, and a sweep before Adam gains nothing. Adam alone for
    other losses and other inits, and where maps have many slots or elements.
    """
    if params.solver != "auto":
        return decisions.note("solver", params.solver, "as given")
    code, maps = decisions.task.loss.code, decisions.task.maps
    choice, why = "adam", "a sweep is no good start for this loss"
    if params.engine != "fused":
        why = f"engine={params.engine!r} has no other"
    elif init != inits.NearOne():
        why = f"init={params.init!r} replaces a start by least squares"
    elif params.max_iter == 0:
        why = "max_iter=0: nothing is trained"
    elif working_memory(maps, rank, 0) > _memory_limit(decisions.task):
        why = "a column has too many elements for least squares"
    elif max(map(n_slots, maps)) > MOST_SLOTS:
        why = "a map has too many slots for least squares"
    elif dense_slots(maps) > 0:
        why = "all elements of a map are non-zero in every row"
        if code == SQUARED and params.max_iter == "auto":
            choice, why = "adam+als", "small polynomials: sweeps can become exact"
    elif prior_wanted and params.max_iter == "auto":
        choice, why = "als", "two classes: a convex loss, and a prior on the tensor"
    elif code in (SQUARED, LOGISTIC):
        choice, why = "als+adam", "one sweep is a good start for this loss"
    return decisions.note("solver", choice, why)


def _ranks(
    params: CPSettings, strategy: Strategy, maps: list[FeatureMap], decisions: Decisions
) -> tuple[int, int]:
    """Return the rank of pilots, and the highest rank of members that fits into memory."""
    if params.rank != "auto":
        decisions.note("rank", params.rank, "as given")
        return params.rank, params.rank
    low, high = strategy.ranks
    if low < high:
        limit = _memory_limit(decisions.task)
        fitting = (r for r in range(high, low, -8) if working_memory(maps, r, 0) <= limit)
        high = next(fitting, low)
    if low < high:
        decisions.note("rank", f"{low} to {high}", "by the interaction that pilots find")
    else:
        decisions.note("rank", low, f"with {strategy.name}")
    return low, high


def _solver(params: CPSettings, name: str, decisions: Decisions) -> Solver:
    if params.engine == "fused":
        return FUSED[name].from_settings(decisions)
    if name != "adam":
        raise ValueError(
            f"solver={name!r} runs on engine='fused' only; engine='torch' has solver='adam'."
        )
    # Adam of torch.optim, with the penalties weighed by column as on the fused engine.
    return TorchOptim(**decisions.epochs(), device=params.device, weigh_columns=True)


# ---- other networks ----------------------------------------------------------------------------


def resolve_tn(params: Settings, task: Task, init: Any, is_network: bool = True) -> Plan:
    """Return the plan of a tensor network: one member, on the torch engine.

    `is_network`: whether the format has a weight tensor.
    """
    decisions = Decisions(params, task, TN_PEAK_RATE)
    decisions.usual_sweeps = MAX_SWEEPS
    strategy = _factor_penalties(params)
    decisions.note("solver", params.solver, "as given")
    decisions.note("strategy", strategy, "for every network")
    decisions.note("rank", params.rank, "as given")
    plan = _plan(
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
        return replace(_with_choices(plan, (), note), extras_l2=1.0 / n_rows)
    alpha, beta = 0.5 / (n_rows * n_columns), float(np.sqrt(n_columns))
    note = Choice("order_alpha", f"{alpha:.3g}", "1 / (2 n N), for sweeps on classes")
    return replace(_with_choices(plan, (), note), order_alpha=alpha, order_beta=beta)


def resume_tn(params: Settings, task: Task, cores: Cores) -> Plan:
    """Return the plan of going on from a fitted network."""
    plan = resolve_tn(params, task, None, cores.format.is_network)
    start = Choice("start", "the fitted model", "warm_start=True; it keeps its maps")
    plan = _with_choices(plan, ("maps",), start)
    held = cores.format.keeps_weights and isinstance(inits.resolve(params.init), inits.Gaussian)
    free = np.zeros_like(cores.extras[-1]) if held else None  # as at the start of the first fit
    return replace(plan, intercept=cores.intercept, resume_from=cores, free=free)
