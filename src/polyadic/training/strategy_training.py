"""The training of one strategy: its pilots, then its members.

The first fits are pilots: they try its ladder of strengths on held-out rows, and where it trains in
epochs, how fast and how long to train. The members are then trained with what did best.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective.problem import Problem
from polyadic.solvers.contract import Solution, Solver
from polyadic.training import mixing
from polyadic.training.fits import Fit, Fits, build_problem
from polyadic.training.merge import Member, usable
from polyadic.training.plan import FINISHED, MEMBER, PILOT, Choice

_PILOTS_SHARE = 0.5  # of `max_time` that pilots may take; chosen by hand
# Blocks of held-out rows, and the share of them in which a loss must fall; both chosen by hand.
_BLOCKS, _MOST_BLOCKS = 10, 0.7
# A longer training, or another rate, must lower the held-out loss by at least this share: of a gain
# of one per cent by twice the epochs, less than half would be left for the next step.
_LEAST_GAIN = 0.01
# Members are trained this many times as long as is best for one: what a longer training adds is
# partly noise, which their mean removes. Chosen on inner splits: 2 is no better.
_LONGER_MEMBERS = 1.5
ADDITIVE = "additive"  # the kind of the additive models


@dataclass(frozen=True)
class Trial:
    """One strength of the ladder, and the mean held-out loss of its pilots."""

    strength: float
    loss: float
    pilots: list[Member] = field(repr=False)


class StrategyTraining:
    """The pilots and members of one strategy."""

    def __init__(self, fits: Fits):
        self.fits, self.plan = fits, fits.plan
        self.solver: Solver = fits.plan.solver
        self.own: list[Member] = []  # on the columns that take part in products
        self.members: list[Member] = []  # the same, on all columns
        self.additive: list[Member] = []  # the additive models that a prior was learnt from
        self.finished: dict[tuple[str, int], Member] = {}  # the same, trained further on all rows
        self.trials: list[Trial] = []
        self.lead: list[Member] = []  # the pilots that did best
        self.strength = fits.plan.ladder.strengths[0]
        self.kinds = [fits.plan.strategy.name]  # of its members
        if fits.plan.strategy.learns_spreads:
            self.kinds.append(ADDITIVE)
        self.more_epochs = 0  # of members, than the plan counts
        self.choices: list[Choice] = []
        self.seconds: dict[str, float] = {}
        start = time.perf_counter()
        end = fits.deadline
        self.pilots_end = None if end is None else start + _PILOTS_SHARE * (end - start)

    def train(self) -> None:
        """Let pilots choose strength, rate and length, then train the members with them."""
        self.pilot()
        self.train_members()

    def pilot(self) -> None:
        """Let pilots choose strength, rate and length."""
        start = time.perf_counter()
        self.try_ladder()
        if self.trials:
            best = self.best_trial()
            self.strength, self.lead = best.strength, best.pilots
        if self.lead and self.plan.adapts_length:
            self.lead = self.find_length(self.find_rate(self.lead))
        self.seconds["pilots"] = time.perf_counter() - start

    def train_members(self) -> None:
        """Train the members with what the pilots chose."""
        plan, strategy, lead = self.plan, self.plan.strategy, self.lead
        start = time.perf_counter()
        self.fits.expect(MEMBER, 0, self.more_epochs)
        rank = strategy.member_rank(self.strength, plan.ranks)
        if lead and self.fits.out_of_time:  # the pilots are all that there is
            rank = plan.ranks[0]
        keeps = strategy.keeps_pilots and rank == plan.ranks[0]
        kept = lead[: plan.n_members] if keeps else []
        if plan.ranks[0] < plan.ranks[1]:
            self.choices.append(Choice("member rank", str(rank), "by what the pilots found"))
        fits = [
            Fit(number, self.strength, rank, self.solver, all_rows=not strategy.holds_out_rows)
            for number in range(len(kept), plan.n_members)
        ]
        self.fits.watch.skip(strategy.name, MEMBER, len(kept))
        self.own = [*kept, *self.fits.run(MEMBER, fits, least=0 if kept else 1)]
        self.members, self.additive = self.whole(self.own)
        if not plan.finishes:
            self.fits.release()
        self.seconds["members"] = time.perf_counter() - start

    def whole(self, own: Sequence[Member]) -> tuple[list[Member], list[Member]]:
        """Return members on all columns, and the additive models that their priors are from."""
        additive: list[Member] = []
        if self.plan.strategy.learns_spreads and self.plan.mixed:
            built = [(one.number, self.fits.built(one.number, False)) for one in own]
            additive = [additive_member(one.maps, one.whole, number) for number, one in built]
        return [self.fits.on_all_columns(one) for one in own], additive

    @property
    def no_more_pilots(self) -> bool:
        """Whether the time of pilots is over."""
        late = self.pilots_end is not None and time.perf_counter() >= self.pilots_end
        return late or self.fits.watch.stopped

    def groups(self) -> list[list[Member]]:
        """Return the members whose shares are to be found: its own, and the additive ones."""
        return _groups(self.members, self.additive)

    def pilot_groups(self) -> list[list[Member]]:
        """Return the same of the pilots that did best."""
        return _groups(*self.whole(self.lead))

    def leave_out(self) -> None:
        """Train no members."""
        self.do_not_expect(MEMBER)
        self.do_not_expect(FINISHED)
        self.fits.release()

    def do_not_expect(self, kind: str) -> None:
        """Tell those who watch that the steps of this kind will not be taken."""
        work = self.plan.work[self.plan.strategy.name, kind]
        self.fits.expect(kind, -work.n_steps, -work.n_epochs)

    # ---- the strength ----------------------------------------------------------------------------

    def try_ladder(self) -> None:
        """Try the strengths of the ladder, then finer steps around the best so far.

        Where the strategy says so, all but the first go on from an earlier pilot. While the best
        strength is the lowest or the highest so far, the next one in that direction is tried.
        """
        ladder = self.plan.ladder
        if len(ladder.strengths) == 1:
            return
        self.open_members()
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

    def open_members(self) -> None:
        """Make the sweeps before Adam for all members, where one pilot tries each strength.

        The pilots of all strengths have the same number, and would wait for the same sweep. Where
        time is limited, or a checkpoint may have what follows, sweeps wait until they are needed.
        """
        fits, plan = self.fits, self.plan
        limited = fits.deadline is not None and np.isfinite(fits.deadline)
        if plan.ladder.n_pilots > 1 or limited or fits.checkpoint or fits.pool.spreads:
            return
        rank, all_rows = plan.ranks[0], not plan.strategy.holds_out_rows
        fits.pool.run(
            lambda number: (
                None
                if fits.out_of_time
                else fits.opening(Fit(number, self.strength, rank, self.solver, all_rows))
            ),
            range(plan.n_members),
        )

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
        self.more_epochs = (members_length - base) * (self.plan.n_members - len(lead))
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

    def finish(self, kinds: Collection[str]) -> None:
        """Let the members go on with all rows: what they held out has served its purpose.

        Only those of a strategy that stops at an optimum, not by held-out rows, and of these kinds.
        """
        if self.plan.finishes and self.own:
            start = time.perf_counter()
            works = [self.finish_additive] if ADDITIVE in kinds else []
            if self.plan.strategy.name in kinds:
                works.append(self.finish_members)
            else:
                self.do_not_expect(FINISHED)
            self.fits.pool.side_by_side(works)
            self.seconds["members"] += time.perf_counter() - start
        self.fits.release()

    def finish_members(self) -> None:
        """Let the members go on with all rows, under the priors that they have."""
        solver = self.solver.continued(self.plan.strategy.continued_sweeps)
        fits = [
            Fit(one.number, one.strength, one.solution.cores.rank, solver, True, one.solution.cores)
            for one in self.own
        ]
        for member in self.fits.run(FINISHED, fits, least=0):
            self.finished[member.kind, member.number] = self.fits.on_all_columns(member)

    def finish_additive(self) -> None:
        """Fit the additive models once more, with all rows."""
        numbers = [one.number for one in self.own]
        for member in self.fits.pool.run(self.finished_additive, numbers):
            if member is not None:
                self.finished[member.kind, member.number] = member

    def finished_additive(self, number: int) -> Member | None:
        """Return the additive model of all rows, on the maps of a member, if there is time."""
        fits, maps = self.fits, self.fits.member_maps(number)
        if fits.out_of_time:
            return None
        problem = build_problem(self.plan, maps, fits.rows, None)
        problem = self.plan.strategy.prepare(problem, maps, fits.is_over)
        return None if fits.out_of_time else additive_member(maps, problem, number)


def _groups(members: list[Member], additive: list[Member]) -> list[list[Member]]:
    """Return the members that are worth averaging, by kind."""
    return [*([usable(members)] if members else []), *([additive] if additive else [])]


def additive_member(maps: list[FeatureMap], problem: Problem, number: int) -> Member:
    """Return the additive model that the prior of a problem was learnt from, as a member."""
    assert problem.prior is not None
    cores = CPCores(
        [np.zeros((m.dim, 1)) for m in maps],  # one term, which has no weight
        np.zeros((1, problem.n_outputs)),
        problem.intercept,
        problem.prior.effects,
    )
    held_out = problem.held_out
    raw = None if held_out is None else cores.contract(held_out.local)
    return Member(maps, Solution(cores, held_out=raw), 0.0, number, ADDITIVE)


def pilot_fit(pilot: Member, solver: Solver) -> Fit:
    """Return a fit of the same pilot by another solver."""
    return Fit(pilot.number, pilot.strength, pilot.solution.cores.rank, solver)
