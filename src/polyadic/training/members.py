"""Train the members: models that differ in their knots and held-out rows, and are averaged.

The strategies of a plan are trained side by side, with linear models and trees beside them, and
mixed by shares that held-out rows choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from polyadic.data.rows import CodedRows
from polyadic.data.slots import n_slots
from polyadic.kernels.examples import Form, Needs
from polyadic.kernels.losses import OWN
from polyadic.solvers.blas import one_blas_thread
from polyadic.solvers.contract import Deadline, Solution
from polyadic.solvers.inits import NearOne
from polyadic.solvers.threads import MANY_SLOTS
from polyadic.training import mixing
from polyadic.training.checkpoints import Checkpoint
from polyadic.training.compiling import prepare_fit
from polyadic.training.fits import Fits, assign_folds, build_problem, hold_out
from polyadic.training.forest import TreeTraining
from polyadic.training.linear import LinearTraining, possible
from polyadic.training.merge import Member
from polyadic.training.plan import MEMBER, Choice, Plan
from polyadic.training.pool import Pool
from polyadic.training.shares import find_shares
from polyadic.training.strategy_training import StrategyTraining, Trial
from polyadic.training.watch import Listener, Watch


@dataclass(frozen=True)
class Training:
    """The result of a training.

    Attributes
    ----------
    members : list of Member
        Of all strategies, with their shares.
    choices : tuple of Choice
        What the pilots decided.
    trials : tuple of Trial
        The strengths of the first strategy that were tried.
    attributes : dict
        Attributes of a fitted estimator, by name.
    seconds : dict
        Time of each phase.
    """

    members: list[Member]
    choices: tuple[Choice, ...] = ()
    trials: tuple[Trial, ...] = ()
    attributes: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def histories(self) -> list[dict[str, list[float]]]:
        """The learning curves of the members, of the first strategy that has any."""
        first = next((m.kind for m in self.members if m.solution.history), None)
        return [m.solution.history for m in self.members if m.kind == first and m.solution.history]


def train(
    plan: Plan,
    rows: CodedRows,
    held_out: CodedRows | None,
    listeners: Sequence[Listener] = (),
    deadline: Deadline | None = None,
    checkpoint: Checkpoint | None = None,
    extend: Callable[[StrategyTraining], None] | None = None,
) -> Training:
    """Train all members of a plan, and tell listeners how it goes.

    The result depends on the plan's seed, not on how many members are trained at a time. `deadline`
    is a time of `time.perf_counter` after which nothing more is started. What is finished is kept
    in the checkpoint. `extend` trains the members of the first strategy further, before shares are
    found.
    """
    prepare_kernels(plan)
    watch = Watch(listeners)
    try:
        watch.start(plan.work, plan.most_steps)
        if plan.resume_from is not None:
            member = _resume(plan, rows, held_out, watch, deadline)
            return Training([member], attributes=plan.strategy.fitted_attributes(member.strength))
        with Pool(plan.n_jobs, deadline) as pool:
            own = [
                StrategyTraining(Fits(one, rows, held_out, pool, watch, deadline, checkpoint))
                for one in (plan, *plan.others)
            ]
            beside: list[LinearTraining | TreeTraining] = []
            if plan.mixed and possible(plan.maps, len(rows), len(plan.intercept)):
                beside.append(LinearTraining(own[-1].fits))
            if plan.trees != "no":
                beside.append(TreeTraining(own[-1].fits))
            # BLAS threads beside those of the pool wait for each other; matrices here are small.
            with one_blas_thread() if plan.mixed else nullcontext():
                # The linear model is the cheapest: first, for a fit that ends by its deadline.
                works: list[Callable[[], Any]] = [
                    partial(pool.run, LinearTraining.train, [one])
                    if isinstance(one, LinearTraining)
                    else one.train
                    for one in beside
                ]
                # What goes on over other rows than these is trained in any case.
                if extend is None and comparable(own):
                    pool.side_by_side([*works, *(one.pilot for one in own)])
                    kept = worth_training(own, beside)
                    pool.side_by_side([one.train_members for one in kept])
                else:
                    pool.side_by_side([*works, *(one.train for one in own)])
                if extend is not None:
                    extend(own[0])
                return _mix(own, beside)
    finally:
        watch.close()


def prepare_kernels(plan: Plan) -> None:
    """Compile the kernels of the fit that are not in the cache: see `training.compiling`.

    Only for starts near one. Other inits, and a fitted model to go on from, may have an additive
    part or not, which takes different kernels: those are compiled when they are called.
    """
    plans = (plan, *plan.others)
    phases = {phase for one in plans for phase in one.solver.phases}
    if not phases or not isinstance(plan.init, NearOne) or plan.resume_from is not None:
        return
    shared = plan.n_members == 1 and sum(map(n_slots, plan.maps)) >= MANY_SLOTS
    needs = Needs(
        Form(
            dense=any(m.all_slots for m in plan.maps),
            order=plan.order_alpha > 0,
            own_loss=plan.loss.code == OWN,
        ),
        least_squares="sweeps" in phases,
        adam="epochs" in phases and not shared,
        prior=any(one.strategy.learns_spreads for one in plans),
        members=plan.n_members > 1,
        additive=plan.mixed,
        trees=plan.trees != "no",
    )
    prepare_fit(needs)


def comparable(strategies: Sequence[StrategyTraining]) -> bool:
    """Tell whether pilots can show that a strategy is not worth training further.

    The one pilot of a long table says little, and threads would be idle while others wait for it.
    """
    return len(strategies) > 1 and all(one.plan.ladder.n_pilots > 1 for one in strategies)


def worth_training(
    strategies: Sequence[StrategyTraining], beside: Sequence[LinearTraining | TreeTraining]
) -> list[StrategyTraining]:
    """Return the strategies whose pilots have a share in a mixture of all, or else the best one."""
    fits = strategies[0].fits
    if fits.out_of_time:
        return list(strategies)
    groups = [group for one in strategies for group in one.pilot_groups()]
    groups += [group for one in beside for group in one.groups()]
    groups, shares, _ = find_shares(groups, fits)
    if len(groups) < 2:
        return list(strategies)
    by_kind = {group[0].kind: share for group, share in zip(groups, shares)}
    own = [sum(by_kind.get(kind, 0.0) for kind in one.kinds) for one in strategies]
    kept = [one for one, share in zip(strategies, own) if share > 0]
    kept = kept or [min(strategies, key=lambda one: one.mean_loss(one.lead))]
    for one in strategies:
        if one not in kept:
            one.leave_out()
            why = "gets no members: a mixture of pilots has no share of it"
            one.choices.append(Choice("left out", one.plan.strategy.name, why))
    return kept


def _mix(
    strategies: Sequence[StrategyTraining], beside: Sequence[LinearTraining | TreeTraining]
) -> Training:
    """Return the members of all strategies, with shares that held-out rows choose.

    Those that have a share are trained further, on all rows.
    """
    every: list[StrategyTraining | LinearTraining | TreeTraining] = [*strategies, *beside]
    groups = [group for one in every for group in one.groups()]
    fits = strategies[0].fits
    groups, shares, choices = find_shares(groups, fits)
    used = {group[0].kind for group, share in zip(groups, shares) if share > 0}
    # Trees grow one after the other: they begin first, so that nothing waits for them at the end.
    fits.pool.side_by_side([partial(one.finish, used) for one in reversed(every)])
    finished = {place: member for one in every for place, member in one.finished.items()}
    members = [
        finished_or_own
        for group, share in zip(groups, shares)
        if share > 0
        for finished_or_own in mixing.with_share(
            [finished.get((member.kind, member.number), member) for member in group], share
        )
    ]
    attributes: dict[str, float] = {}
    for one in strategies:
        attributes.update(one.plan.strategy.fitted_attributes(one.strength))
    found = [choice for one in every for choice in one.choices]
    found += [_tried(one) for one in strategies[1:]]
    return Training(
        members,
        (*found, *choices),
        tuple(strategies[0].trials),
        attributes,
        _seconds(strategies),
    )


def _tried(one: StrategyTraining) -> Choice:
    """Return the strength that was chosen for a strategy, and those that were tried."""
    trials = sorted((trial.strength, trial.loss) for trial in one.trials)
    tried = ", ".join(f"{strength:.3g}: {loss:.4g}" for strength, loss in trials)
    return Choice(one.plan.strategy.name, f"{one.strength:.3g}", f"held-out losses: {tried}")


def _seconds(strategies: Sequence[StrategyTraining]) -> dict[str, float]:
    """Return the seconds of each phase; strategies run side by side."""
    if len(strategies) == 1:
        return strategies[0].seconds
    return {
        f"{phase} of {one.plan.strategy.name}": spent
        for one in strategies
        for phase, spent in one.seconds.items()
    }


def _resume(
    plan: Plan,
    rows: CodedRows,
    held_out: CodedRows | None,
    watch: Watch,
    deadline: Deadline | None,
) -> Member:
    """Train a fitted model further; keep it as it is where that does not help."""
    fold_of = assign_folds(plan, rows) if plan.strategy.holds_out_rows else None
    rows, held_rows = hold_out(rows, held_out, fold_of, 0)
    strength = plan.ladder.strengths[0]
    problem = plan.strategy.prepare(build_problem(plan, plan.maps, rows, held_rows), plan.maps)
    problem = plan.strategy.regularise(problem, plan.maps, strength)
    rng = np.random.default_rng(plan.seed)
    start, free, solver = plan.resume_from, plan.free, plan.solver.until(deadline)
    with watch.step(plan.strategy.name, MEMBER, solver.max_iter) as step:
        report = step.reporter(
            held_rows is not None, lambda now: Member(plan.maps, Solution(now), strength)
        )
        solution = solver.solve(problem, start, free, rng, report, resumed=True)
    return Member(plan.maps, solution, strength)
