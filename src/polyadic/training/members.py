"""Train the members: models that differ in their knots and held-out rows, and are averaged.

The first fits are pilots: they try the strategy's ladder of strengths on held-out rows. The members
are then trained with the strength of the lowest held-out loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from polyadic.data.rows import CodedRows, column_seeds, folds
from polyadic.data.slots import n_slots
from polyadic.kernels.examples import Form, Needs
from polyadic.kernels.losses import OWN
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective import penalties
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.als import ALS
from polyadic.solvers.inits import NearOne
from polyadic.solvers.threads import MANY_SLOTS
from polyadic.training.compiling import prepare_fit
from polyadic.training.merge import Member
from polyadic.training.plan import Plan
from polyadic.training.progress import Progress

_FOLD_SEED = 0xF01D  # an arbitrary number, so that folds have a random stream of their own


class Fit(NamedTuple):
    """One fit of a pilot or a member."""

    number: int
    strength: float
    rank: int
    all_rows: bool  # or those outside of its fold
    start: CPCores | None = None  # cores to go on from


@dataclass(frozen=True)
class Trial:
    """One strength of the ladder, and the mean held-out loss of its pilots."""

    strength: float
    loss: float
    pilots: list[Member] = field(repr=False)


@dataclass(frozen=True)
class Training:
    """The result of a training: members, the strengths tried, and seconds per phase."""

    members: list[Member]
    trials: tuple[Trial, ...] = ()
    rank: int | None = None  # of the members, where pilots decide
    seconds: dict[str, float] = field(default_factory=dict)


def train(plan: Plan, rows: CodedRows, held_out: CodedRows | None, title: str = "") -> Training:
    """Train all members of a plan; with a title, show a progress bar.

    The result depends on the plan's seed, not on how many members are trained at a time.
    """
    prepare_kernels(plan)
    bar = Progress(plan.n_epochs, title) if title else None
    try:
        if plan.resume_from is not None:
            return Training([_resume(plan, rows, held_out, bar)])
        return _MemberTraining(plan, rows, held_out, bar).train()
    finally:
        if bar is not None:
            bar.close()


def prepare_kernels(plan: Plan) -> None:
    """Compile the kernels of the fit that are not in the cache: see `training.compiling`.

    Only for starts near one. Other inits, and a fitted model to go on from, may have an additive
    part or not, which takes different kernels: those are compiled when they are called.
    """
    phases = plan.solver.phases
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
        prior=plan.strategy.learns_spreads,
        members=plan.n_members > 1,
    )
    prepare_fit(needs)


class _MemberTraining:
    """The pilots and members of one plan, and what they share."""

    def __init__(
        self, plan: Plan, rows: CodedRows, held_out: CodedRows | None, bar: Progress | None
    ):
        self.plan, self.rows, self.held_out, self.bar = plan, rows, held_out, bar
        self.column_seeds = column_seeds(rows.columns)
        self.fold_of = assign_folds(plan, rows)
        self.problems: dict[tuple[int, bool], tuple[list[FeatureMap], Problem]] = {}

    def train(self) -> Training:
        """Let pilots choose the strength, then train the members with it."""
        plan, strategy = self.plan, self.plan.strategy
        start = time.perf_counter()
        trials = self.try_ladder()
        best = min(trials, key=lambda trial: trial.loss) if trials else None
        strength = plan.ladder.strengths[0] if best is None else best.strength
        piloted = time.perf_counter()
        self.problems.clear()
        kept = best.pilots[: plan.n_members] if best and strategy.keeps_pilots else []
        rank = strategy.member_rank(strength, plan.ranks)
        fits = [
            Fit(number, strength, rank, not strategy.holds_out_rows)
            for number in range(len(kept), plan.n_members)
        ]
        members = [*kept, *side_by_side(self.train_one, fits, plan.n_jobs)]
        done = time.perf_counter()
        seconds = {"pilots": piloted - start, "members": done - piloted}
        return Training(members, tuple(trials), rank, seconds)

    def try_ladder(self) -> list[Trial]:
        """Try the strengths of the ladder, then finer steps around the best so far."""
        ladder = self.plan.ladder
        if len(ladder.strengths) == 1:
            return []
        if self.plan.strategy.continued_sweeps is None:
            trials = self.train_pilots(ladder.strengths)
        else:
            trials = self.train_pilots(ladder.strengths[:1])
            trials += self.train_pilots(ladder.strengths[1:], trials[0])
        for step in ladder.refine:
            best = min(trials, key=lambda trial: trial.loss)
            trials += self.train_pilots((best.strength / step, best.strength * step), best)
        return trials

    def train_pilots(self, strengths: Iterable[float], start: Trial | None = None) -> list[Trial]:
        """Train the pilots of each strength and average their held-out losses.

        They go on from the pilots of `start`, if the strategy says so: a neighbouring strength has
        a neighbouring optimum.
        """
        n_pilots, rank = self.plan.ladder.n_pilots, self.plan.ranks[0]
        strengths = list(strengths)
        starts = [None] * n_pilots
        if start is not None and self.plan.strategy.continued_sweeps is not None:
            starts = [pilot.solution.cores for pilot in start.pilots]
        fits = [
            Fit(number, strength, rank, False, starts[number])
            for strength in strengths
            for number in range(n_pilots)
        ]
        pilots = side_by_side(self.train_one, fits, self.plan.n_jobs)
        groups = [pilots[k : k + n_pilots] for k in range(0, len(pilots), n_pilots)]
        losses = [float(np.mean([pilot.solution.loss for pilot in group])) for group in groups]
        return [Trial(*trial) for trial in zip(strengths, losses, groups)]

    def train_one(self, fit: Fit) -> Member:
        """Train a pilot or a member."""
        number, strength, rank, all_rows, cores = fit
        plan, seed = self.plan, self.plan.seed
        maps, problem = self.problem(number, strength, all_rows)
        rngs = [np.random.default_rng((seed, number, own)) for own in self.column_seeds]
        rng = np.random.default_rng((seed, number))
        start = plan.init.start(problem, rank, [*rngs, rng])
        solver, report = plan.solver, self.report(number)
        if cores is not None:
            sweeps = plan.strategy.continued_sweeps
            assert isinstance(solver, ALS)
            assert sweeps is not None
            solver = replace(solver, max_iter=sweeps)
            start = replace(start, cores=cores)
        solution = solver.solve(problem, start.cores, start.free, rng, report)
        return Member(maps, solution, strength)

    def problem(
        self, number: int, strength: float, all_rows: bool
    ) -> tuple[list[FeatureMap], Problem]:
        """Return maps and problem of a member; another strength changes the penalties only."""
        if (number, all_rows) not in self.problems:
            self.problems[number, all_rows] = self.build(number, all_rows)
        maps, problem = self.problems[number, all_rows]
        return maps, self.plan.strategy.regularise(problem, maps, strength)

    def build(self, number: int, all_rows: bool) -> tuple[list[FeatureMap], Problem]:
        """Return the maps and the problem of a member, without the strategy's penalties."""
        plan, maps = self.plan, self.plan.maps
        if plan.n_members > 1:
            maps = [
                m.jitter(np.random.default_rng((plan.seed, number, own, 1)))
                for m, own in zip(plan.maps, self.column_seeds)
            ]
        fold_of = None if all_rows else self.fold_of
        rows, held_rows = hold_out(self.rows, self.held_out, fold_of, number)
        return maps, build_problem(plan, maps, rows, held_rows)

    def report(self, number: int) -> Callable[[int, float], None] | None:
        """Return the function that a solver calls after each epoch."""
        bar = self.bar
        return None if bar is None else lambda epoch, loss: bar(number, epoch, loss)


def _resume(
    plan: Plan, rows: CodedRows, held_out: CodedRows | None, bar: Progress | None
) -> Member:
    """Train a fitted model further; keep it as it is where that does not help."""
    fold_of = assign_folds(plan, rows) if plan.strategy.holds_out_rows else None
    rows, held_rows = hold_out(rows, held_out, fold_of, 0)
    strength = plan.ladder.strengths[0]
    problem = build_problem(plan, plan.maps, rows, held_rows)
    problem = plan.strategy.regularise(problem, plan.maps, strength)
    report = None if bar is None else lambda epoch, loss: bar(0, epoch, loss)
    rng = np.random.default_rng(plan.seed)
    start, free = plan.resume_from, plan.free
    solution = plan.solver.solve(problem, start, free, rng, report, resumed=True)
    return Member(plan.maps, solution, strength)


def side_by_side(work: Callable[[Any], Any], tasks: list, n_jobs: int) -> list:
    """Do the work for every task, n_jobs at a time.

    With n_jobs=1, the work stays in the calling thread: torch starts threads of its own for every
    thread that calls it, and they slow each other down.
    """
    if n_jobs == 1 or len(tasks) < 2:
        return [work(task) for task in tasks]
    with ThreadPoolExecutor(min(n_jobs, len(tasks))) as pool:
        return list(pool.map(work, tasks))


def assign_folds(plan: Plan, rows: CodedRows) -> np.ndarray | None:
    """Return the fold of each row, (n,), or None for a plan without; member m holds out fold m."""
    if plan.n_folds == 0:
        return None
    return folds(rows.y, plan.n_folds, np.random.default_rng((plan.seed, _FOLD_SEED)))


def hold_out(
    rows: CodedRows, held_out: CodedRows | None, fold_of: np.ndarray | None, number: int
) -> tuple[CodedRows, CodedRows | None]:
    """Return the rows that member `number` trains on, and its held-out rows."""
    if fold_of is None:
        return rows, held_out
    out = fold_of == number % (fold_of.max() + 1)
    return rows.take(~out), rows.take(out)


def build_problem(
    plan: Plan,
    maps: list[FeatureMap],
    rows: CodedRows,
    held_out: CodedRows | None,
    rows_before: float = 0.0,
) -> Problem:
    """Return the problem of a member, before the strategy regularises it.

    `rows_before`: effective rows of earlier passes.
    """
    problem = Problem(
        rows=Rows.encode(rows, maps),
        held_out=None if held_out is None else Rows.encode(held_out, maps),
        loss=plan.loss,
        intercept=plan.intercept,
        degrees=[m.degrees for m in maps],
        separate=plan.separate_outputs,
        extras_l2=plan.extras_l2,
        effective_rows=rows_before + rows.effective_rows(),
    )
    if plan.order_alpha > 0:
        emphasis = penalties.emphasis(maps, plan.order_beta)
        problem = problem.penalised(penalties.Order(plan.order_alpha, emphasis))
    return plan.strategy.prepare(problem, maps)
