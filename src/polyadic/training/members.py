"""Train the members: models that differ in their knots and held-out rows, and are averaged.

For each strategy of a plan, the first fits are pilots: they try its ladder of strengths on held-out
rows, and where it trains in epochs, how fast and how long to train. The members are then trained
with what did best. The strategies are mixed by shares that held-out rows choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from polyadic.data.rows import CodedRows
from polyadic.data.slots import n_slots
from polyadic.kernels.examples import Form, Needs
from polyadic.kernels.losses import OWN
from polyadic.networks.cp import CPCores
from polyadic.solvers.blas import one_blas_thread
from polyadic.solvers.contract import Deadline, Solution, Solver
from polyadic.solvers.inits import NearOne
from polyadic.solvers.threads import MANY_SLOTS
from polyadic.training import mixing
from polyadic.training.checkpoints import Checkpoint
from polyadic.training.compiling import prepare_fit
from polyadic.training.fits import Fit, Fits, Pool, assign_folds, build_problem, hold_out
from polyadic.training.forest import NAME, TreeTraining
from polyadic.training.linear import LinearTraining, possible
from polyadic.training.merge import Member, usable
from polyadic.training.plan import FINISHED, MEMBER, PILOT, Choice, Plan
from polyadic.training.watch import Listener, Watch

_PILOTS_SHARE = 0.5  # of `max_time` that pilots may take; chosen by hand
# Blocks of held-out rows, and the share of them in which a loss must fall; both chosen by hand.
_BLOCKS, _MOST_BLOCKS = 10, 0.7
# A longer training, or another rate, must lower the held-out loss by at least this share: of a gain
# of one per cent by twice the epochs, less than half would be left for the next step.
_LEAST_GAIN = 0.01
# Members are trained this many times as long as is best for one: what a longer training adds is
# partly noise, which their mean removes. Chosen on inner splits: 2 is no better.
_LONGER_MEMBERS = 1.5


@dataclass(frozen=True)
class Trial:
    """One strength of the ladder, and the mean held-out loss of its pilots."""

    strength: float
    loss: float
    pilots: list[Member] = field(repr=False)


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
                pool.side_by_side([*works, *(one.train for one in own)])
                if extend is not None:
                    extend(own[0])
                return _mix(own, beside, rows, held_out)
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


class StrategyTraining:
    """The pilots and members of one strategy."""

    def __init__(self, fits: Fits):
        self.fits, self.plan = fits, fits.plan
        self.solver: Solver = fits.plan.solver
        self.members: list[Member] = []
        self.additive: list[Member] = []  # the additive models that a prior was learnt from
        self.finished: dict[tuple[str, int], Member] = {}  # the same, trained further on all rows
        self.trials: list[Trial] = []
        self.choices: list[Choice] = []
        self.seconds: dict[str, float] = {}
        start = time.perf_counter()
        end = fits.deadline
        self.pilots_end = None if end is None else start + _PILOTS_SHARE * (end - start)

    def train(self) -> None:
        """Let pilots choose strength, rate and length, then train the members with them."""
        plan, strategy = self.plan, self.plan.strategy
        start = time.perf_counter()
        self.try_ladder()
        best = min(self.trials, key=lambda trial: trial.loss) if self.trials else None
        strength = plan.ladder.strengths[0] if best is None else best.strength
        lead = [] if best is None else best.pilots
        if lead and plan.adapts_length:
            lead = self.find_length(self.find_rate(lead))
        piloted = time.perf_counter()
        rank = strategy.member_rank(strength, plan.ranks)
        if lead and self.fits.out_of_time:  # the pilots are all that there is
            rank = plan.ranks[0]
        keeps = strategy.keeps_pilots and rank == plan.ranks[0]
        kept = lead[: plan.n_members] if keeps else []
        if plan.ranks[0] < plan.ranks[1]:
            self.choices.append(Choice("member rank", str(rank), "by what the pilots found"))
        fits = [
            Fit(number, strength, rank, self.solver, all_rows=not strategy.holds_out_rows)
            for number in range(len(kept), plan.n_members)
        ]
        self.fits.watch.skip(plan.strategy.name, MEMBER, len(kept))
        first = [] if kept else self.fits.run(MEMBER, fits[:1])
        more = self.fits.run(MEMBER, fits[len(first) :], some_will_do=True)
        own = [*kept, *first, *more]
        self.members = [self.fits.on_all_columns(one) for one in own]
        if strategy.learns_spreads and plan.mixed:
            self.additive = [self.additive_member(one.number, False) for one in own]
        if plan.finishes:
            self.finish(own)
        self.fits.problems.clear()
        done = time.perf_counter()
        self.seconds = {"pilots": piloted - start, "members": done - piloted}

    @property
    def no_more_pilots(self) -> bool:
        """Whether the time of pilots is over."""
        late = self.pilots_end is not None and time.perf_counter() >= self.pilots_end
        return late or self.fits.watch.stopped

    def groups(self) -> list[list[Member]]:
        """Return the members whose shares are to be found: its own, and the additive ones."""
        return [usable(self.members), *([self.additive] if self.additive else [])]

    # ---- the strength ----------------------------------------------------------------------------

    def try_ladder(self) -> None:
        """Try the strengths of the ladder, then finer steps around the best so far.

        Where the strategy says so, all but the first go on from an earlier pilot. While the best
        strength is the lowest or the highest so far, the next one in that direction is tried.
        """
        ladder = self.plan.ladder
        if len(ladder.strengths) == 1:
            return
        together = self.plan.strategy.continued_sweeps is None
        first = len(ladder.strengths) if together else 1
        self.try_strengths(ladder.strengths[:first])
        self.try_strengths(ladder.strengths[first:])
        for _ in range(ladder.n_beyond):
            tried = sorted(trial.strength for trial in self.trials)
            if len(tried) < 2:
                break
            best = self.best_trial().strength
            if best in (tried[0], tried[-1]):
                inner = tried[1] if best == tried[0] else tried[-2]
                self.fits.expect(PILOT, ladder.n_pilots, ladder.n_pilots * self.solver.max_iter)
                self.try_strengths([best * best / inner])
        for step in ladder.refine:
            best = self.best_trial().strength
            self.try_strengths((best / step, best * step))

    def best_trial(self) -> Trial:
        """Return the trial of the lowest held-out loss."""
        return min(self.trials, key=lambda trial: trial.loss)

    def try_strengths(self, strengths: Iterable[float]) -> None:
        """Train the pilots of each strength and average their held-out losses.

        They go on from the best pilots so far, if the strategy says so: a neighbouring strength has
        a neighbouring optimum.
        """
        strengths, ladder = list(strengths), self.plan.ladder
        if not strengths or (self.trials and self.no_more_pilots):
            return
        if self.no_more_pilots:  # reading the table took the time: one strength must do
            strengths = strengths[:1]
        solver, n_pilots = self.solver, ladder.n_pilots
        starts: list[CPCores | None] = [None] * n_pilots
        sweeps = self.plan.strategy.continued_sweeps
        if self.trials and sweeps is not None:
            starts = [pilot.solution.cores for pilot in self.best_trial().pilots]
            solver = solver.continued(sweeps)
        fits = [
            Fit(number, strength, self.plan.ranks[0], solver, start=starts[number])
            for strength in strengths
            for number in range(n_pilots)
        ]
        pilots = self.fits.run(PILOT, fits)
        groups = [pilots[k : k + n_pilots] for k in range(0, len(pilots), n_pilots)]
        losses = [self.mean_loss(group) for group in groups]
        self.trials += [Trial(*trial) for trial in zip(strengths, losses, groups)]

    # ---- rate and length -------------------------------------------------------------------------

    def find_rate(self, lead: list[Member]) -> list[Member]:
        """Return the pilots of the rate that does best: wide tables may bear a higher one.

        The usual rate falls with the number of columns, since a step moves a product of many
        factors; where few of the columns matter, that is too careful.
        """
        faster = self.plan.rates_to_try
        for rate in faster:
            if self.no_more_pilots:
                break
            solver = self.solver.with_rate(rate)
            pilots = self.fits.run_more(PILOT, [pilot_fit(pilot, solver) for pilot in lead])
            if not self.clearly_better(pilots, lead):
                break
            lead, self.solver = pilots, solver
            self.choices.append(Choice("rate", f"{rate:.3g}", "lower held-out loss of pilots"))
        return lead

    def find_length(self, lead: list[Member]) -> list[Member]:
        """Train the pilots twice as long each time, while that lowers the held-out loss clearly.

        Each training has a cycle of rates of its own, from the start: to go on from the end of a
        shorter one at the peak rate would first undo what that has found.
        """
        base = length = self.solver.continued().max_iter
        while 2 * length <= self.plan.longest * base and not self.no_more_pilots:
            solver = self.solver.lengthened(2 * length)
            longer = self.fits.run_more(PILOT, [pilot_fit(pilot, solver) for pilot in lead])
            if not self.clearly_better(longer, lead):
                break
            lead, self.solver, length = longer, solver, 2 * length
        members_length = round(_LONGER_MEMBERS * length)
        more = (members_length - base) * (self.plan.n_members - len(lead))
        self.fits.expect(MEMBER, 0, more)
        self.solver = self.solver.lengthened(members_length)
        why = f"{_LONGER_MEMBERS:g} times the length at which a doubling gained pilots little"
        self.choices.append(Choice("epochs", str(members_length), why))
        return lead

    def clearly_better(self, new: Sequence[Member], old: Sequence[Member]) -> bool:
        """Tell whether the held-out loss has fallen by enough, and in most blocks of the rows.

        A few rows may make most of the loss; that it falls in most blocks is no accident.
        """
        before, after = (self.block_losses(members) for members in (old, new))
        gains = before - after
        enough = gains.mean() > _LEAST_GAIN * abs(before.mean())
        return bool(enough and np.mean(gains > 0) >= _MOST_BLOCKS)

    def mean_loss(self, pilots: Sequence[Member]) -> float:
        """Return the mean held-out loss; infinite if nothing was trained."""
        if any(pilot.solution.held_out is None for pilot in pilots):
            return np.inf
        return float(np.mean(self.block_losses(pilots)))

    def block_losses(self, members: Sequence[Member]) -> np.ndarray:
        """Return the mean loss of every block of held-out rows."""
        numbers = [member.number for member in members]
        fits = self.fits
        y, weight = mixing.held_out_targets(fits.rows, fits.held_out, fits.fold_of, numbers)
        raw = mixing.held_out_raw(members, fits.fold_of, numbers)
        blocks = np.array_split(np.arange(len(y)), min(_BLOCKS, len(y)))
        loss = self.plan.loss
        return np.array([loss.value(y[b], raw[b], weight[b]) for b in blocks if weight[b].any()])

    def finish(self, own: Sequence[Member]) -> None:
        """Let the members go on with all rows: what they held out has served its purpose.

        Only those of a strategy that stops at an optimum, not by held-out rows.
        """
        solver = self.solver.continued(self.plan.strategy.continued_sweeps)
        fits = [
            Fit(one.number, one.strength, one.solution.cores.rank, solver, True, one.solution.cores)
            for one in own
        ]
        for member in self.fits.run(FINISHED, fits, some_will_do=True):
            whole = self.fits.on_all_columns(member)
            for final in (whole, self.additive_member(member.number, True)):
                self.finished[final.kind, final.number] = final

    def additive_member(self, number: int, all_rows: bool) -> Member:
        """Return the additive model that the prior of a member was learnt from, as a member."""
        built = self.fits.problems[number, all_rows]
        maps, problem = built.maps, built.whole
        assert problem.prior is not None
        cores = CPCores(
            [np.zeros((m.dim, 1)) for m in maps],  # one term, which has no weight
            np.zeros((1, problem.n_outputs)),
            problem.intercept,
            problem.prior.effects,
        )
        held_out = problem.held_out
        raw = None if held_out is None else cores.contract(held_out.local)
        return Member(maps, Solution(cores, held_out=raw), 0.0, number, "additive")


def pilot_fit(pilot: Member, solver: Solver) -> Fit:
    """Return a fit of the same pilot by another solver."""
    return Fit(pilot.number, pilot.strength, pilot.solution.cores.rank, solver)


def _mix(
    strategies: Sequence[StrategyTraining],
    beside: Sequence[LinearTraining | TreeTraining],
    rows: CodedRows,
    held_out: CodedRows | None,
) -> Training:
    """Return the members of all strategies, with shares that held-out rows choose."""
    every: list[StrategyTraining | LinearTraining | TreeTraining] = [*strategies, *beside]
    groups = [group for one in every for group in one.groups()]
    groups, shares, choices = _find_shares(groups, strategies[0].fits, rows, held_out)
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
        attributes.update(one.plan.strategy.fitted_attributes(one.members[0].strength))
    found = [choice for one in every for choice in one.choices]
    found += [_tried(one) for one in strategies[1:]]
    return Training(
        members,
        (*found, *choices),
        tuple(strategies[0].trials),
        attributes,
        _seconds(strategies),
    )


def _find_shares(
    groups: list[list[Member]], fits: Fits, rows: CodedRows, held_out: CodedRows | None
) -> tuple[list[list[Member]], np.ndarray, list[Choice]]:
    """Return the groups of members, their shares, and what is to be told of them."""
    told = [group for group in groups if all(m.solution.held_out is not None for m in group)]
    numbers = mixing.common_numbers(told) if told else []
    loss, alone_will_do = fits.plan.loss, np.ones(1)
    if not told:
        return groups[:1], alone_will_do, []
    if len(told) < 2 or not numbers:
        own = [member.number for member in told[0]]
        y, weight = mixing.held_out_targets(rows, held_out, fits.fold_of, own)
        raw = mixing.held_out_raw(told[0], fits.fold_of, own)
        return told[:1], alone_will_do, _held_out_losses(fits.plan, y, raw, weight)
    groups = told
    y, weight = mixing.held_out_targets(rows, held_out, fits.fold_of, numbers)
    raws = np.array([mixing.held_out_raw(group, fits.fold_of, numbers) for group in groups])
    shares = _shares(groups, numbers, fits, y, weight, raws)
    mixed = loss.value(y, np.tensordot(shares, raws, 1), weight)
    alone = [loss.value(y, raw, weight) for raw in raws]
    text = ", ".join(f"{group[0].kind} {share:.2f}" for group, share in zip(groups, shares))
    losses = ", ".join(f"{group[0].kind} {value:.4g}" for group, value in zip(groups, alone))
    why = f"held-out loss {mixed:.4g}; alone: {losses}"
    measured = _held_out_losses(fits.plan, y, np.tensordot(shares, raws, 1), weight)
    return groups, shares, [Choice("shares", text, why), *measured]


def _held_out_losses(
    plan: Plan, y: np.ndarray, raw: np.ndarray, weight: np.ndarray
) -> list[Choice]:
    """Return the loss of held-out rows, and that of the constant that training starts from.

    Not a choice, but what all of them came to: on the scale of the target in training.
    """
    found = plan.loss.value(y, raw, weight)
    constant = plan.loss.value(y, np.broadcast_to(plan.intercept, raw.shape), weight)
    return [
        Choice("held-out loss", f"{found:.4g}", "of the model, on the scale of training"),
        Choice("constant loss", f"{constant:.4g}", "of a constant prediction, on the same rows"),
    ]


def _shares(
    groups: list[list[Member]],
    numbers: list[int],
    fits: Fits,
    y: np.ndarray,
    weight: np.ndarray,
    raws: np.ndarray,
) -> np.ndarray:
    """Return the share of each group: first of the smooth ones, then of trees beside them."""
    loss, kinds = fits.plan.loss, [group[0].kind for group in groups]
    smooth = np.array([kind != NAME for kind in kinds])
    shares = np.zeros(len(groups))
    shares[smooth] = mixing.find_shares(loss, y, weight, raws[smooth])
    if np.all(smooth):
        return shares
    some = mixing.some_rows(len(y), fits.plan.seed)
    spread = np.zeros((0, len(some), raws.shape[2]))
    if fits.fold_of is not None:  # otherwise the mean of all members predicts held-out rows
        own = mixing.held_out_places(fits.fold_of, numbers)[some]
        columns = [column[own] for column in fits.rows.columns]
        used = [group for group, kind in zip(groups, kinds) if kind != NAME]
        spread = mixing.deviations(used, shares[smooth], numbers, columns)
    mixed, trees = np.tensordot(shares, raws, 1)[some], raws[kinds.index(NAME)][some]
    asked = fits.plan.trees != "auto"
    share = mixing.share_of_trees(loss, y[some], weight[some], mixed, trees, spread, asked)
    return np.where(smooth, (1.0 - share) * shares, share)


def _tried(one: StrategyTraining) -> Choice:
    """Return the strength that was chosen for a strategy, and those that were tried."""
    trials = sorted((trial.strength, trial.loss) for trial in one.trials)
    tried = ", ".join(f"{strength:.3g}: {loss:.4g}" for strength, loss in trials)
    strength = f"{one.members[0].strength:.3g}"
    return Choice(one.plan.strategy.name, strength, f"held-out losses: {tried}")


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
