"""Fits by several processes, on one machine or on several.

The steps are those of `polyadic.estimators.streamed`, each done by many processes: statistics are
gathered from parts of the table and merged, rows are coded into blocks of a folder that all share,
a sample of the rows decides how to train, and the members go on over all rows. What starts the
processes, and starts them again when they die, is a cluster: see `polyadic.scale.ray`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from polyadic.data.marginals import Marginal
from polyadic.data.rows import CodedRows
from polyadic.estimators.block_marginals import BlockMarginals
from polyadic.estimators.streamed import (
    Choosing,
    StreamedFit,
    block_marginals,
    budget_of,
    check_streams,
    gather,
    is_single,
    join_rows,
    learn_table,
    sort_rows,
    weigh_target,
)
from polyadic.scale.memory import choose_block_rows
from polyadic.scale.reading import Reading
from polyadic.scale.shared import SharedStore
from polyadic.scale.sources import Source
from polyadic.scale.statistics import Statistics
from polyadic.solvers.adam import Adam
from polyadic.solvers.contract import Solution
from polyadic.solvers.workers import Exchange
from polyadic.training.checkpoints import Checkpoint
from polyadic.training.fits import Fits
from polyadic.training.merge import Member
from polyadic.training.plan import Plan
from polyadic.training.pool import Pool
from polyadic.training.strategy_training import StrategyTraining
from polyadic.training.streaming import AllRows, go_on, train_member

WAYS = ("rows", "members", "shards")


class Cluster(Protocol):
    """Processes that work together, and a table that they read."""

    storage: Path  # a folder that all processes can reach

    @property
    def source(self) -> Source:
        """Names and types of the table's columns."""
        ...

    def map_tables(self, work: Callable[[Any, int, int], Any]) -> Iterator[Any]:
        """Yield work(table, number, first) of every part of the table, in order.

        `first` is the place of the part's first row.
        """
        ...

    def map(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list:
        """Return work(task) of every task, in order."""
        ...

    def train(self, work: Callable[[Exchange], None]) -> None:
        """Let all workers do this work together; they begin again where one of them dies."""
        ...


def fit_on(estimator: Any, cluster: Cluster, y: Any, sample_weight: Any, how: str) -> Any:
    """Fit an estimator to the table of a cluster, and return it."""
    if how not in WAYS:
        raise ValueError(f"how must be one of {', '.join(map(repr, WAYS))}, got {how!r}.")
    check_streams(estimator)
    if estimator.max_time is not None:
        raise ValueError(
            "max_time cannot be used for a fit by several processes: their clocks differ. Set "
            "max_iter instead."
        )
    if not isinstance(estimator.random_state, (int, np.integer)):
        raise ValueError(
            "A fit by several processes needs random_state to be a whole number, so that one that "
            f"starts again draws the same random numbers; got {estimator.random_state!r}."
        )
    reading, budget = Reading(cluster.source, y, sample_weight), budget_of(estimator)
    with estimator._all_or_nothing() as model:
        model.checkpoint, start = cluster.storage / "checkpoint", time.perf_counter()
        statistics = gather_parts(model, cluster, y, sample_weight)
        learn_table(model, reading, statistics)
        read = time.perf_counter() - start
        with _store_parts(model, cluster, reading, statistics, budget, how) as fit:
            given = (reading.source, reading.targets, reading.weight)
            callbacks = model._learn(estimator, given, fit.sample, fit.held_out, None, fit)
        seconds = {"statistics": read, **fit.seconds, **model.plan_.seconds}
        model.plan_ = replace(model.plan_, seconds=seconds)
        model.checkpoint = estimator.checkpoint
    for one in callbacks:
        one.finish()
    return estimator


# ---- statistics and rows -------------------------------------------------------------------------


def gather_parts(model: Any, cluster: Cluster, y: Any, sample_weight: Any) -> Statistics:
    """Return the statistics of all rows, merged from those of the parts."""
    one_thread = copy.copy(model)  # the parts are gathered side by side
    one_thread.n_jobs = 1
    work = partial(_gather_part, one_thread, y, sample_weight)
    total: Statistics | None = None
    for found in cluster.map_tables(work):
        if found is None:
            continue
        if total is None:
            total = found
        else:
            total.merge(found)
    if total is None:
        raise ValueError(f"{cluster.source.label} has no rows of a weight above zero.")
    return total


def _gather_part(
    model: Any, y: Any, sample_weight: Any, table: Any, number: int, first: int
) -> Statistics | None:
    reading = Reading(_source_of(table), y, sample_weight)
    if not any(len(part.weight) for part in reading.parts()):
        return None
    return gather(model, reading)


def _source_of(table: Any) -> Source:
    """Return a source of an Arrow table in memory."""

    def batches(rows: int, columns: list[str] | None) -> Iterable[Any]:
        return (table if columns is None else table.select(columns)).to_batches(rows)

    return Source(batches, table.column_names, table.num_rows, "A part of the table")


def _store_parts(
    model: Any, cluster: Cluster, reading: Reading, statistics: Statistics, budget: float, how: str
) -> DistributedFit:
    """Code all rows into blocks that all processes can read."""
    start = time.perf_counter()
    target, learnt = statistics.target, statistics.learnt()
    class_weights = model._learn_class_weights(target)
    n_blocks = -(-target.n_rows // choose_block_rows(len(learnt), budget))
    single = [one.column.kind == "numeric" and is_single(reading, one) for one in learnt]
    n_targets = _count_targets(model) if target.mean is None else len(target.mean)
    folder = cluster.storage / "rows"
    store = SharedStore(folder, [one.column for one in learnt], n_targets, n_blocks, single)
    chosen = Choosing.of(model, target.n_rows, class_weights, model.early_stopping, n_blocks)
    work = partial(
        _store_part, model, chosen, store, (reading.targets, reading.flat), reading.weight
    )
    counts, inside, outside = zip(*cluster.map_tables(work))
    told = np.array(counts)
    store.checksums = cluster.map(partial(_join_block, store, told), range(n_blocks))
    store.finish_blocks(told)
    sample = sort_rows(model, join_rows([rows for part in inside for rows in part]))
    out = None
    if model.early_stopping:
        out = sort_rows(model, join_rows([rows for part in outside for rows in part]))
    passes = None if model.max_iter == "auto" else int(model.max_iter)
    seconds = {"blocks": time.perf_counter() - start}
    weighed = weigh_target(model, target, class_weights)
    known = (learnt, target, weighed, class_weights, store, passes, sample, out, seconds)
    return DistributedFit(*known, cluster, how)


def _count_targets(model: Any) -> int:
    """Return how many numbers stand for a class."""
    return model._read_target(np.asarray(model.classes_[:1]), 1, fresh=False).shape[1]


def _store_part(
    model: Any,
    chosen: Choosing,
    store: SharedStore,
    targets: tuple[list[str], bool],
    sample_weight: str | None,
    table: Any,
    number: int,
    first: int,
) -> tuple[np.ndarray, list[CodedRows], list[CodedRows]]:
    """Code the rows of a part; return rows per block, rows of the sample, and held-out rows."""
    names, flat = targets
    reading = Reading(_source_of(table), names[0] if flat else names, sample_weight)
    parts = [chosen.divide(model, p, first) for p in reading.parts() if len(p.weight)]
    if not parts:
        return np.zeros(len(store), np.int64), [], []
    inside, outside, kept, blocks = zip(*parts)
    counts = store.write_piece(number, join_rows(kept), np.concatenate(blocks))
    return counts, list(inside), list(outside)


def _join_block(store: SharedStore, counts: np.ndarray, block: int) -> int:
    return store.join_pieces(block, counts)


# ---- training ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What a process needs to train members over all rows."""

    plan: Plan
    sample: CodedRows
    held_out: CodedRows | None
    rows: AllRows
    solver: Adam
    checkpoint: Checkpoint

    def fits(self) -> Fits:
        """Return the fits of one process."""
        return Fits(self.plan, self.sample, self.held_out, Pool(1), checkpoint=self.checkpoint)


@dataclass
class DistributedFit(StreamedFit):
    """What is known of all rows, while many processes fit a model to them.

    Attributes
    ----------
    cluster : Cluster
    how : str
        One of `WAYS`: see `polyadic.scale.ray.fit`.
    """

    store: SharedStore
    cluster: Cluster
    how: str

    def __enter__(self) -> DistributedFit:
        return self

    def __exit__(self, *error: Any) -> None:
        self.store.__exit__(*error)

    @property
    def identity(self) -> tuple:
        """What the fit depends on, besides its parameters and the sample."""
        return (*super().identity, self.how)

    def extend(self, order: Sequence[int]) -> Callable[[StrategyTraining], None]:
        """Return what lets the processes train the members of a strategy further."""
        return partial(go_on, rows=self.all_rows(order), elsewhere=self.train_members)

    def train_members(
        self, fits: Fits, rows: AllRows, solver: Adam, members: list[Member]
    ) -> list[Member]:
        """Train members further, by all processes."""
        assert fits.checkpoint is not None
        task = Task(fits.plan, fits.rows, fits.held_out, rows, solver, fits.checkpoint)
        if self.how == "rows":
            self.cluster.train(partial(_train_together, task, members))
            found = [self.finished(fits.checkpoint, member) for member in members]
        else:
            # Members share a shard where there are fewer blocks than members.
            n_shards = min(len(members), len(self.store)) if self.how == "shards" else 1
            found = self.cluster.map(partial(_train_alone, task, n_shards), members)
        return [
            replace(member, maps=fits.member_maps(member.number), solution=solution)
            for member, solution in zip(members, found)
        ]

    def finished(self, checkpoint: Checkpoint, member: Member) -> Solution:
        """Return what the workers have found."""
        found = _finished(checkpoint, member)
        if found is None:
            raise RuntimeError(
                f"No worker has left member {member.number} in {str(self.cluster.storage)!r}. "
                "storage must be a folder that all workers and the driver share."
            )
        return found

    def measure(self, model: Any) -> list[Marginal]:
        """Return the marginals of the columns: the moments of all rows."""
        start = time.perf_counter()
        measure = block_marginals(model, self)
        work = partial(_measure_block, measure, self.store)
        parts = self.cluster.map(work, np.flatnonzero(self.store.sizes).tolist())
        found = measure.join(parts)
        self.seconds["marginals"] = time.perf_counter() - start
        return found


def _measure_block(measure: BlockMarginals, store: SharedStore, block: int) -> list[Marginal]:
    return measure(store.read(block))


def _name(member: Member) -> str:
    return f"finished member {member.number}"


def _finished(checkpoint: Checkpoint, member: Member) -> Solution | None:
    return checkpoint.solution(_name(member))


def _train_together(task: Task, members: list[Member], exchange: Exchange) -> None:
    """Train members one after the other, as one of several workers; keep what is finished."""
    store = task.rows.blocks
    assert isinstance(store, SharedStore)
    blocks = store.part(exchange.rank, exchange.size)
    rows, fits = replace(task.rows, blocks=blocks, exchange=exchange), task.fits()
    for member in members:
        known = _finished(task.checkpoint, member) is not None
        if exchange.gather(np.array([int(known)]))[0][0]:  # the first worker decides for all
            continue
        found = train_member(fits, rows, task.solver, member)
        if exchange.rank == 0:
            task.checkpoint.keep_solution(_name(member), found.solution)


def _train_alone(task: Task, n_shards: int, member: Member) -> Solution:
    """Train one member, on all rows or on the blocks of its shard."""
    known = _finished(task.checkpoint, member)
    if known is not None:
        return known
    store = task.rows.blocks
    assert isinstance(store, SharedStore)
    rows = task.rows
    if n_shards > 1:
        own = np.arange(member.number % n_shards, len(store.sizes), n_shards)
        rows = replace(rows, blocks=store.some(own))
    found = train_member(task.fits(), rows, task.solver, member).solution
    task.checkpoint.keep_solution(_name(member), found)
    return found
