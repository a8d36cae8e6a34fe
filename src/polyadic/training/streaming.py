"""Members that learn from rows that do not fit into memory, read block by block.

A sample of the rows, in memory, decides everything first: strategy, strength, rate, length. It also
trains the strategies that need all of their rows at once. Then the members that train in epochs go
on over all rows, and shares that held-out rows choose mix both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from polyadic.data.rows import CodedRows
from polyadic.maps.base import FeatureMap
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.adam import Adam
from polyadic.solvers.blockwise import BlockLoop
from polyadic.solvers.contract import Solution, check
from polyadic.solvers.loop import Schedule
from polyadic.solvers.workers import Exchange, JointLoop
from polyadic.training.fits import Fits
from polyadic.training.merge import Member
from polyadic.training.plan import FINISHED, Choice
from polyadic.training.strategy_training import StrategyTraining
from polyadic.training.watch import Progressing

_MOST_CHECKS = 50  # of the loss on held-out rows, in all passes; chosen by hand
CHECKPOINT_SECONDS = 10.0  # between two states that are kept; a state takes less than one to write
_STREAM_SEED = 0x57EA  # an arbitrary number, so that blocks have a random stream of their own


class Blocks(Protocol):
    """Coded rows in blocks, each of which fits into memory: see `polyadic.scale.store`."""

    sizes: np.ndarray  # rows of each block

    def blocks(self, order: Sequence[int] | np.ndarray) -> Iterator[CodedRows]:
        """Yield blocks in this order."""
        ...


@dataclass(frozen=True)
class AllRows:
    """The rows that do not fit into memory, and what is known of all of them.

    Attributes
    ----------
    blocks : Blocks
    columns : sequence of int
        The order in which training takes their columns.
    effective_rows : float
        How many rows of weight one they count as.
    mean_weight : float
    shares : callable
        Returns the share of all rows that use each element of each map; maps in training order.
    passes : int or None
        How often to go over all rows; None: as long as pilots found best, and once at least.
    exchange : Exchange or None
        Where several workers train each member together: how they do. Each has a part of each
        block; `blocks.sizes` are those of whole blocks.
    seconds : float
        Between two states that are kept in the checkpoint.
    """

    blocks: Blocks
    columns: Sequence[int]
    effective_rows: float
    mean_weight: float
    shares: Callable[[Sequence[FeatureMap]], list[np.ndarray]]
    passes: int | None = None
    exchange: Exchange | None = None
    seconds: float = field(default_factory=lambda: CHECKPOINT_SECONDS)


# Trains members further, by this solver, somewhere else than in this process.
Elsewhere = Callable[[Fits, AllRows, Adam, list[Member]], list[Member]]


def go_on(training: StrategyTraining, rows: AllRows, elsewhere: Elsewhere | None = None) -> None:
    """Train the members of a strategy further, on all rows."""
    fits = training.fits
    solver = training.solver.continued()
    assert isinstance(solver, Adam)
    n_rows, n_sample = int(rows.blocks.sizes.sum()), len(fits.rows)
    passes, why = rows.passes, "as given"
    if passes is None:
        passes = max(1, -(-solver.max_iter * n_sample // n_rows))
        why = "as many rows in all as pilots found best, and each row once at least"
    training.choices.append(Choice("passes over all rows", str(passes), why))
    solver = replace(solver, max_iter=passes, n_threads=None)
    start = time.perf_counter()
    if elsewhere is not None:
        training.members = elsewhere(fits, rows, solver, training.members)
    else:
        n_checks = _count_checks(rows, solver) * len(training.members)
        fits.expect(FINISHED, len(training.members), n_checks)
        work = partial(train_member, fits, rows, solver)
        training.members = fits.pool.run(work, training.members)
    training.seconds["members on all rows"] = time.perf_counter() - start


def train_member(fits: Fits, rows: AllRows, solver: Adam, member: Member) -> Member:
    """Train one member further, on all rows."""
    name, n_checks = fits.plan.strategy.name, _count_checks(rows, solver)
    with fits.watch.step(name, FINISHED, n_checks) as step:
        return _Streamed(fits, rows, solver, member).train(step)


def _stride(rows: AllRows, solver: Adam) -> int:
    """Return the blocks between two checks of the loss."""
    return -(-len(rows.blocks.sizes) * solver.max_iter // _MOST_CHECKS)


def _count_checks(rows: AllRows, solver: Adam) -> int:
    return -(-len(rows.blocks.sizes) * solver.max_iter // _stride(rows, solver))


class _Streamed:
    """One member that goes on over all rows."""

    def __init__(self, fits: Fits, rows: AllRows, solver: Adam, member: Member):
        self.fits, self.rows, self.member = fits, rows, member
        self.solver = solver.until(fits.deadline)
        self.stride = _stride(rows, solver)

    def train(self, step: Progressing) -> Member:
        """Go over all blocks, as often as the solver says."""
        fits, number = self.fits, self.member.number
        name = f"streamed member {number}"
        if fits.out_of_time:
            return self.member
        loop, prepare = self._start()
        kept = None if fits.checkpoint is None else fits.checkpoint.arrays(name)
        done = 0
        if kept is not None:
            done = int(kept.pop("done"))
            loop.restore(kept)
        report = step.reporter(True, lambda now: self._member(Solution(now)))
        saved = time.perf_counter()
        for place, block, rates, rng in self._blocks(loop, done):
            loop.train_block(prepare(block), rates, rng)
            if (place + 1) % self.stride == 0 or place + 1 == self._n_blocks:
                loop.measure(float(rates[-1]))
                asked = report is not None and report(loop.n_iter - 1, loop.latest, loop.current)
                if asked or loop.should_stop() or fits.watch.stopped:
                    break
            late = time.perf_counter() - saved >= self.rows.seconds
            if fits.checkpoint is not None and late and self._keeps:
                fits.checkpoint.keep(name, {**loop.snapshot(), "done": np.array(place + 1)})
                saved = time.perf_counter()
        found = self._member(loop.solution())
        step.member = lambda: found
        fits.problems.pop((number, True), None)  # the sample, encoded: not needed any more
        return found

    @property
    def _keeps(self) -> bool:
        """Whether this process writes what all workers know."""
        return self.rows.exchange is None or self.rows.exchange.rank == 0

    @property
    def _n_blocks(self) -> int:
        return len(self.rows.blocks.sizes) * self.solver.max_iter

    def _start(self) -> tuple[BlockLoop, Callable[[CodedRows], Rows]]:
        """Return the loop at its start, and the function that prepares a block for it."""
        fits, plan, rows = self.fits, self.fits.plan, self.rows
        built = fits.built(self.member.number, True)
        problem = replace(
            built.problem, effective_rows=rows.effective_rows, weight_unit=rows.mean_weight
        )
        problem = plan.strategy.regularise(problem, built.own_maps, self.member.strength)
        check(self.solver, problem)
        cores = self.member.solution.cores
        cores = replace(cores, factors=[cores.factors[n] for n in fits.columns])
        rng = np.random.default_rng((plan.seed, self.member.number))
        free = fits.start(problem, cores.rank, self.member.number, rng).free
        batch = min(self.solver.batch_size, len(problem.local))
        n_batches = int(np.sum(-(-rows.blocks.sizes // batch)))
        every = rows.shares(built.maps)
        shares = [every[n] for n in fits.columns]
        n_checks = _count_checks(rows, self.solver)
        args = (self.solver, problem, cores, free, n_batches, shares, n_checks)
        exchange = rows.exchange
        loop = BlockLoop(*args) if exchange is None else JointLoop(*args, exchange=exchange)
        if problem.held_out is not None:  # the start is kept if no check is better
            loop.best = loop.averaged(None)
            loop.best_loss = loop.held_out_loss(loop.best)

        def prepare(block: CodedRows) -> Rows:
            own = block.restricted([rows.columns[n] for n in fits.columns])
            return prepared(problem, Rows.encode(own, built.own_maps), fits)

        return loop, prepare

    def _blocks(
        self, loop: BlockLoop, done: int
    ) -> Iterator[tuple[int, CodedRows, np.ndarray, np.random.Generator]]:
        """Yield place, rows, rates and random numbers of every block from `done` on."""
        sizes, seed, number = self.rows.blocks.sizes, self.fits.plan.seed, self.member.number
        total, first = loop.n_batches * self.solver.max_iter, 0
        for epoch in range(self.solver.max_iter):
            order = np.random.default_rng((seed, _STREAM_SEED, number, epoch))
            places = epoch * len(sizes) + np.arange(len(sizes))
            turn = order.permutation(len(sizes))
            skipped = places < done
            first += int(np.sum(-(-sizes[turn[skipped]] // loop.batch)))
            blocks = self.rows.blocks.blocks(turn[~skipped])
            for place, k, block in zip(places[~skipped], turn[~skipped], blocks):
                n_steps = -(-int(sizes[k]) // loop.batch)
                rng = np.random.default_rng((seed, _STREAM_SEED, number, epoch, int(k)))
                rates = Schedule.rates(self.solver, total, first, first + n_steps)
                yield int(place), block, rates, rng
                first += n_steps

    def _member(self, solution: Solution) -> Member:
        built = self.fits.built(self.member.number, True)
        own = replace(self.member, maps=built.own_maps, solution=solution)
        return self.fits.on_all_columns(own)


def prepared(problem: Problem, rows: Rows, fits: Fits) -> Rows:
    """Return rows with what the strategy makes of their targets: see `FactorPenalties.prepare`."""
    built = replace(problem, rows=rows, penalties=())
    return fits.plan.strategy.prepare(built, []).rows
