"""The plan of a CP fit: one strategy, or several that are mixed; of a new model, or of going on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyadic.data.slots import MOST_SLOTS, dense_slots, n_slots
from polyadic.kernels.examples import MIXTURE
from polyadic.kernels.losses import LOGISTIC, SOFTMAX, SQUARED
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.solvers import inits
from polyadic.solvers.adam import Adam
from polyadic.solvers.blas import one_blas_thread
from polyadic.solvers.blocks import working_memory
from polyadic.solvers.contract import Solver
from polyadic.solvers.registry import FUSED
from polyadic.solvers.torch_solver import TorchOptim
from polyadic.training import linear, screening
from polyadic.training.compiling import prepare_fit
from polyadic.training.decisions import CPSettings, Decisions
from polyadic.training.plan import Choice, Plan, Task
from polyadic.training.resolve import (
    FEWEST_HELD_OUT,
    build_plan,
    choose_ladder,
    factor_penalties,
    held_out_share,
    too_few_to_hold_out,
    with_choices,
)
from polyadic.training.resolve_trees import with_trees
from polyadic.training.strategies import (
    FactorPenalties,
    Ladder,
    ManyClassPenalties,
    MixedPrior,
    Strategy,
    TensorPrior,
)

CP_PEAK_RATE = 0.015  # learning_rate="auto" for a narrow table

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
# Rows below which a mixture has this many members: so every row is held out once, by the usual
# validation_fraction, and more rows choose the shares. Chosen on tables outside of the suite.
_FEW_ROWS, _MEMBERS_OF_FEW_ROWS = 500, 10


def resolve_cp(params: CPSettings, task: Task, solver: str | None = None) -> Plan:
    """Return the plan of a CP fit; `solver` replaces the solver of the parameters."""
    init = inits.resolve(params.init)
    if solver is None and _mixes(params, init, task):
        return with_trees(params, task, _mixture(params, init, task))
    decisions = Decisions(params, task, CP_PEAK_RATE)
    name, strategy = _solver_and_strategy(params, init, solver, decisions)
    plan = _cp_plan(params, decisions, name, strategy, init)
    return plan if solver is not None else with_trees(params, task, plan)


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
    return build_plan(
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
    held_out = task.has_held_out or held_out_share(params) * len(task.rows) >= FEWEST_HELD_OUT
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
    ladder = choose_ladder(other.strategy, n_members, other.n_folds, own)
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


def resume_cp(params: CPSettings, task: Task, cores: CPCores, strength: float | None) -> Plan:
    """Return the plan of going on from a fitted model, at the strength that was found for it."""
    plan = resolve_cp(params, task)
    if plan.mixed:  # all that was mixed is one model now, of too high a rank for least squares
        usual = {"others": (), "mixed": False, "columns": None, "seeds": (), "adapts_length": False}
        plan = replace(plan, solver=plan.solver.continued(), **usual)  # type: ignore[arg-type]
        plan = with_choices(plan, ("strategy", "solver"), Choice("solver", "adam", "to go on"))
    strength = plan.strategy.resumed_strength(strength)
    plan = with_choices(
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
    plan = with_choices(
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
    factors = factor_penalties(params)
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
    if params.trees != "auto" and params.trees and not too_few_to_hold_out(params, task):
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


def _memory_limit(task: Task) -> float:
    """Return the working memory that least squares may take, in its units."""
    if task.memory is None:
        return _MOST_MEMORY
    share = _SHARE_OF_BUDGET * task.memory / _MEMORY_UNIT
    return min(_MOST_MEMORY, max(share, _LEAST_MEMORY))
