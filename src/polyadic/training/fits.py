"""Single fits of pilots and members: their rows, maps and problems."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from polyadic.data.rows import CodedRows, column_seeds, folds
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective import penalties
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.blas import one_blas_thread
from polyadic.solvers.contract import Deadline, Solution, Solver
from polyadic.solvers.inits import Start
from polyadic.solvers.sequences import AlsThenAdam
from polyadic.training.checkpoints import Checkpoint, name_of
from polyadic.training.merge import Member
from polyadic.training.plan import Plan
from polyadic.training.pool import Pool
from polyadic.training.screening import seeded
from polyadic.training.watch import Progressing, Watch

_FOLD_SEED = 0xF01D  # an arbitrary number, so that folds have a random stream of their own


class Fit(NamedTuple):
    """One fit of a pilot or a member."""

    number: int
    strength: float
    rank: int
    solver: Solver
    all_rows: bool = False  # or those outside of its fold
    start: CPCores | None = None  # cores to go on from
    resumed: bool = False  # whether the start is kept if no epoch is better


class Built(NamedTuple):
    """Maps and problems of a member: of all columns, and of those that take part in products."""

    maps: list[FeatureMap]
    own_maps: list[FeatureMap]
    whole: Problem
    problem: Problem


class Fits:
    """The fits of one strategy, and what they share."""

    def __init__(
        self,
        plan: Plan,
        rows: CodedRows,
        held_out: CodedRows | None,
        pool: Pool,
        watch: Watch | None = None,
        deadline: Deadline | None = None,
        checkpoint: Checkpoint | None = None,
    ):
        self.plan, self.rows, self.held_out = plan, rows, held_out
        self.pool, self.deadline, self.checkpoint = pool, deadline, checkpoint
        self.watch = Watch() if watch is None else watch
        self.column_seeds = column_seeds(rows.columns)
        every = range(len(rows.columns))
        self.columns = list(every if plan.columns is None else plan.columns)
        self.fold_of = assign_folds(plan, rows)
        self.problems: dict[tuple[int, bool], Built] = {}
        self.built_maps: dict[int, list[FeatureMap]] = {}
        self.openings: dict[tuple[int, int, bool], Future[Solution]] = {}
        self.lock = Lock()

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed, or someone who watches has asked to end the fit."""
        late = self.deadline is not None and self.deadline.over
        return late or self.watch.stopped

    def leave_if_stopped(self) -> None:
        """End this thread where an error has stopped the fit."""
        if self.deadline is not None:
            self.deadline.leave_if_stopped()

    def is_over(self) -> bool:
        """Tell whether time is over; a thread of a fit that was stopped ends here."""
        self.leave_if_stopped()
        return self.out_of_time

    def run(self, kind: str, fits: Sequence[Fit], least: int | None = None) -> list[Member]:
        """Train pilots or members, several at a time; `kind` tells which.

        Those that would start after the deadline are left out, beyond the first `least` of them.
        By default all are trained.
        """
        spread: list[Solution | None] = [None] * len(fits)
        if self.pool.spreads and len(fits) > 1 and not self.out_of_time:
            spread = self.solve_apart(fits)

        def one(task: tuple[int, Fit, Solution | None]) -> Member | None:
            place, fit, found = task
            needed = least is None or place < least or found is not None
            if not needed and self.out_of_time:
                return None
            with self.watch.step(self.plan.strategy.name, kind, fit.solver.max_iter) as step:
                return self.train_one(fit, step, found)

        tasks = list(zip(range(len(fits)), fits, spread))
        return [member for member in self.pool.run(one, tasks) if member is not None]

    def solve_apart(self, fits: Sequence[Fit]) -> list[Solution | None]:
        """Let the processes of joblib's backend find solutions, where the checkpoint has none."""
        left = None if self.deadline is None else float(self.deadline) - time.perf_counter()
        share = (self.plan, self.rows, self.held_out, left)
        is_new = [self.kept(fit) is None for fit in fits]
        tasks = [delayed(_solve_apart)(*share, fit) for fit, new in zip(fits, is_new) if new]
        found = iter(Parallel(self.pool.n_jobs)(tasks))
        return [next(found) if new else None for new in is_new]

    def kept(self, fit: Fit) -> Solution | None:
        """Return the solution of a fit that the checkpoint has, if any."""
        if self.checkpoint is None:
            return None
        return self.checkpoint.solution(name_of(fit, self.plan.strategy.name))

    def run_more(self, kind: str, fits: Sequence[Fit]) -> list[Member]:
        """Train pilots or members that the plan did not count on."""
        self.expect(kind, len(fits), sum(fit.solver.max_iter for fit in fits))
        return self.run(kind, fits)

    def expect(self, kind: str, n_steps: int, n_epochs: int) -> None:
        """Tell those who watch that there is more to do than the plan counts."""
        self.watch.expect(self.plan.strategy.name, kind, n_steps, n_epochs)

    def train_one(self, fit: Fit, step: Progressing, known: Solution | None = None) -> Member:
        """Train a pilot or a member, unless it is known or in the checkpoint."""
        plan, number = self.plan, fit.number
        built = self.built(number, fit.all_rows)

        def member(solution: Solution) -> Member:
            return Member(built.own_maps, solution, fit.strength, number, plan.strategy.name)

        found = known or self.kept(fit)
        if found is None:
            problem = plan.strategy.regularise(built.problem, built.own_maps, fit.strength)
            rng = np.random.default_rng((plan.seed, number))
            start = self.seeded_start(fit, problem, built.own_maps, rng)
            report = step.reporter(
                problem.held_out is not None, lambda now: self.on_all_columns(member(Solution(now)))
            )
            solver = fit.solver.until(self.deadline)
            found = known = solver.solve(
                problem,
                start.cores,
                start.free,
                rng,
                report,
                state=self.opening(fit),
                resumed=fit.resumed,
            )
        whole = not (self.out_of_time or step.cut)
        if self.checkpoint is not None and known is not None and whole:
            name = name_of(fit, plan.strategy.name)
            self.checkpoint.keep_solution(name, found)
        step.member = lambda: self.on_all_columns(member(found))
        return member(found)

    def start(self, problem: Problem, rank: int, number: int, rng: np.random.Generator) -> Start:
        """Return what a member starts from; every column has random numbers of its own."""
        seed, seeds = self.plan.seed, [self.column_seeds[n] for n in self.columns]
        rngs = [np.random.default_rng((seed, number, own)) for own in seeds]
        return self.plan.init.start(problem, rank, [*rngs, rng])

    def seeded_start(
        self, fit: Fit, problem: Problem, maps: list[FeatureMap], rng: np.random.Generator
    ) -> Start:
        """Return what a fit starts from: with the terms that screening has found, if any."""
        start = self.start(problem, fit.rank, fit.number, rng)
        if fit.start is not None:
            return replace(start, cores=fit.start)
        if not self.plan.seeds:
            return start
        columns = [self.rows.columns[n] for n in self.columns]
        return replace(
            start, cores=seeded(start.cores, self.plan.seeds, columns, maps, self.columns)
        )

    def opening(self, fit: Fit) -> Solution | None:
        """Return what the sweeps before Adam find, which is the same for all pilots of a number.

        They are only a start, and take as long as some epochs: so they are made once, at the usual
        strength, whatever strength, rate and length a pilot tries.
        """
        solver = fit.solver
        if not isinstance(solver, AlsThenAdam) or fit.start is not None or fit.resumed:
            return None
        key = (fit.number, fit.rank, fit.all_rows)
        with self.lock:
            is_new = key not in self.openings
            found = self.openings.setdefault(key, Future())
        if is_new:
            try:
                found.set_result(self.sweep(fit, solver.first.until(self.deadline)))
            except BaseException as error:  # whoever waits for it must not wait for ever
                found.set_exception(error)
        return found.result()

    def sweep(self, fit: Fit, solver: Solver) -> Solution:
        """Return what the solver finds from the start of a fit, at the usual strength."""
        built, strategy = self.built(fit.number, fit.all_rows), self.plan.strategy
        problem = strategy.regularise(built.problem, built.own_maps, strategy.usual_strength)
        rng = np.random.default_rng((self.plan.seed, fit.number))
        start = self.seeded_start(fit, problem, built.own_maps, rng)
        return solver.solve(problem, start.cores, start.free, rng)

    def release(self) -> None:
        """Forget what only further pilots and members would need."""
        self.problems.clear()
        self.openings.clear()

    def built(self, number: int, all_rows: bool) -> Built:
        """Return maps and problem of a member: the same for all strengths."""
        if (number, all_rows) not in self.problems:
            built = self.problems[number, all_rows] = self.build(number, all_rows)
            self.built_maps[number] = built.maps
        return self.problems[number, all_rows]

    def build(self, number: int, all_rows: bool) -> Built:
        """Return the maps and the problem of a member, without the strategy's penalties.

        What the strategy learns from the rows, it learns from all columns; products are of those
        that screening has left.
        """
        self.leave_if_stopped()
        plan, maps = self.plan, self.member_maps(number)
        fold_of = None if all_rows else self.fold_of
        rows, held_rows = hold_out(self.rows, self.held_out, fold_of, number)
        whole = own = build_problem(plan, maps, rows, held_rows)
        own_maps = maps
        if plan.columns is not None:
            own_maps = [maps[n] for n in self.columns]
            held_rows = None if held_rows is None else held_rows.restricted(self.columns)
            own = build_problem(plan, own_maps, rows.restricted(self.columns), held_rows)
        self.leave_if_stopped()
        if all_rows and plan.finishes:
            # A tenth more rows change the spreads by little, and learning them takes long.
            prior = self.built(number, False).whole.prior
            assert prior is not None
            whole = replace(whole, prior=replace(prior, n_rows=whole.effective_rows))
        else:
            whole = plan.strategy.prepare(whole, maps, self.is_over)
        own = replace(own, rows=replace(own.rows, y=whole.y))
        if whole.prior is not None:
            own = replace(own, prior=whole.prior.restricted(self.columns))
        return Built(maps, own_maps, whole, own)

    def member_maps(self, number: int) -> list[FeatureMap]:
        """Return the maps of a member: with knots of its own, if there are several members."""
        plan = self.plan
        if plan.n_members == 1:
            return plan.maps
        return [
            m.jitter(np.random.default_rng((plan.seed, number, own, 1)))
            for m, own in zip(plan.maps, self.column_seeds)
        ]

    def on_all_columns(self, member: Member) -> Member:
        """Return the same member with factors of one for the columns that were left out."""
        if self.plan.columns is None:
            return member
        maps = self.built_maps[member.number]
        cores = member.solution.cores
        factors = [np.zeros((m.dim, cores.rank)) for m in maps]
        for factor in factors:
            factor[0] = 1.0
        for n, factor in zip(self.columns, cores.factors):
            factors[n] = factor
        solution = replace(member.solution, cores=replace(cores, factors=factors))
        return replace(member, maps=maps, solution=solution)


def _solve_apart(
    plan: Plan, rows: CodedRows, held_out: CodedRows | None, left: float | None, fit: Fit
) -> Solution:
    """Find the solution of one fit in another process, to the same bits; `left` are seconds."""
    deadline = None if left is None else Deadline(time.perf_counter() + left)
    fits = Fits(plan, rows, held_out, Pool(1), deadline=deadline)
    with (
        one_blas_thread() if plan.mixed else nullcontext(),
        fits.watch.step(plan.strategy.name, "", fit.solver.max_iter) as step,
    ):
        return fits.train_one(fit, step).solution


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
        two_classes=plan.two_classes,
        separate=plan.separate_outputs,
        extras_l2=plan.extras_l2,
        effective_rows=rows_before + rows.effective_rows(),
    )
    if plan.order_alpha > 0:
        emphasis = penalties.emphasis(maps, plan.order_beta)
        problem = problem.penalised(penalties.Order(plan.order_alpha, emphasis))
    return problem
