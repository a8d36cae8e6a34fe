"""Fits of tables that are not in memory: files, datasets, functions that yield batches.

A table that fits into the memory that the user allows is read whole, and fitted as any other. Of a
larger one, three things are read in turn:

1. statistics of all columns and of the target, in one pass (`polyadic.scale.statistics`);
2. all rows, coded, into blocks on the disk (`polyadic.scale.store`); held-out rows, and a sample,
   both chosen by a hash of the row, stay in memory;
3. the blocks, as often as training goes over them (`polyadic.training.streaming`).
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from polyadic import maps
from polyadic.data import marginals
from polyadic.data.hints import warn_of_columns
from polyadic.data.rows import CodedRows, distinct_rows, place_hashes, row_hashes
from polyadic.estimators import validation
from polyadic.estimators.block_marginals import BlockMarginals
from polyadic.maps.base import FeatureMap
from polyadic.maps.choice import map_kinds
from polyadic.scale.memory import (
    choose_block_rows,
    choose_sample_rows,
    fits_in_memory,
    parse_memory,
)
from polyadic.scale.reading import Part, Reading
from polyadic.scale.sources import open_source
from polyadic.scale.statistics import Learnt, Statistics, TargetStatistics, touched_shares
from polyadic.scale.store import RowStore
from polyadic.training.model import explained_maps
from polyadic.training.strategy_training import StrategyTraining
from polyadic.training.streaming import AllRows, go_on

# Rows of the sample that decides how to train, and held-out rows, at most; chosen by hand.
# Quantiles of so many rows are wrong by 0.6 % of the rows at most, with a chance of 0.999999.
SAMPLE_ROWS, HELD_OUT_ROWS = 100_000, 50_000
_EVERY = 2.0**64  # hashes are below it


@dataclass
class StreamedFit:
    """What is known of all rows, while a model is fitted to them.

    Attributes
    ----------
    learnt : list of Learnt
        The columns, each with a few weighted values that stand for all of its rows.
    target : TargetStatistics
        Before class weights are applied.
    weighed : TargetStatistics
        After that: the same where there are none.
    class_weights : (K,) or None
    store : RowStore
    passes : int or None
        How often to go over all rows; None: as pilots find best.
    sample, held_out : CodedRows or None
    seconds : dict
        Time of each phase so far.
    """

    learnt: list[Learnt]
    target: TargetStatistics
    weighed: TargetStatistics
    class_weights: np.ndarray | None
    store: RowStore
    passes: int | None
    sample: CodedRows
    held_out: CodedRows | None
    seconds: dict[str, float]

    @property
    def identity(self) -> tuple:
        """What the fit depends on, besides its parameters and the sample."""
        return self.target, self.store.sizes.tolist(), self.store.checksums

    def fit_maps(self, chosen: list[FeatureMap], order: Sequence[int]) -> list[FeatureMap]:
        """Return fitted maps, in the order in which training takes the columns."""
        return [self._fit_map(chosen[n], n) for n in order]

    def _fit_map(self, own: FeatureMap, n: int) -> FeatureMap:
        if getattr(own, "by_target", 0):  # its knots depend on the target: the sample has that
            return own.fit(self.sample.columns[n], self.sample.y[:, 0], self.sample.weight)
        known = self.learnt[n]
        unit = self.target.typical_weight if own.kind == "categorical" else 1.0
        return own.fit(known.x, None, known.weight / unit)

    def extend(self, order: Sequence[int]) -> Callable[[StrategyTraining], None]:
        """Return what trains the members of a strategy further, on all rows."""
        return partial(go_on, rows=self.all_rows(order))

    def all_rows(self, order: Sequence[int]) -> AllRows:
        """Return all rows, with their columns in the order in which training takes them."""
        learnt = [self.learnt[n] for n in order]
        return AllRows(
            self.store,
            order,
            self.weighed.effective_rows,
            self.weighed.weight / self.weighed.n_rows,
            partial(touched_shares, learnt, total=self.target.weight),
            self.passes,
        )

    def measure(self, model: Any) -> list[marginals.Marginal]:
        """Return the marginals of the columns: the moments of all rows."""
        start, measure = time.perf_counter(), block_marginals(model, self)
        blocks = self.store.blocks(np.flatnonzero(self.store.sizes))
        with ThreadPoolExecutor(model._threads()) as pool:
            found = measure.join(measure(block, pool.map) for block in blocks)
        self.seconds["marginals"] = time.perf_counter() - start
        return found


def block_marginals(model: Any, fit: StreamedFit) -> BlockMarginals:
    """Return what measures the columns of a model, block by block."""
    own = explained_maps(model.maps_, model.tensor_)
    points = [(known.x, known.weight) for known in fit.learnt]
    numbers_of = getattr(model, "_numbers_of", None)
    return BlockMarginals(model.columns_.columns, own, points, fit.class_weights, numbers_of)


def open_reading(X: Any, y: Any, sample_weight: Any) -> Reading:
    """Return a table that is not in memory, with the names of its target and weights."""
    return Reading(open_source(X), y, sample_weight)


def budget_of(model: Any) -> float:
    """Return the bytes that a fit may take."""
    return parse_memory(model.memory, validation.available_memory())


def is_small(reading: Reading, budget: float) -> bool:
    """Tell whether a table can be fitted in memory; where its rows are not known, count them."""
    n_columns = len(reading.source.names)
    if reading.source.n_rows is not None:
        return fits_in_memory(reading.source.n_rows, n_columns, budget)
    n_rows = 0
    for batch in reading.source.batches():
        n_rows += batch.num_rows
        if not fits_in_memory(n_rows, n_columns, budget):
            return False
    return True


def check_streams(model: Any) -> None:
    """Refuse, by name, what a streamed fit cannot do."""
    refused = {
        "engine": model.engine != "fused" and "the fused engine reads blocks of rows",
        "solver": model.solver == "als" and "sweeps need all rows in memory",
        "warm_start": model.warm_start and "use partial_fit to go on from a model",
    }
    for name, why in refused.items():
        if why:
            raise ValueError(
                f"{name}={getattr(model, name)!r} cannot be used for a table larger than memory: "
                f"{why}. Leave it at its default, or raise memory={model.memory!r}."
            )


def _parts(model: Any, reading: Reading, what: str) -> Iterator[Part]:
    """Yield the rows in parts; with verbose=1, say on a terminal how many were read."""
    tells = bool(model.verbose) and sys.stderr.isatty()
    of = "" if reading.source.n_rows is None else f" of {reading.source.n_rows:,}"
    for part in reading.parts():
        if len(part.weight):
            yield part
        if tells:
            read = part.first + len(part.weight)
            print(f"\r{type(model).__name__}: {what}, {read:,}{of} rows", end="", file=sys.stderr)
    if tells:
        print(file=sys.stderr)


def gather(model: Any, reading: Reading) -> Statistics:
    """Read all rows once: learn columns, classes, and centre and scale of the target."""
    statistics: Statistics | None = None
    name = type(model).__name__
    for part in _parts(model, reading, "statistics"):
        if statistics is None:
            statistics = Statistics(
                part.X,
                categorical_features=model.categorical_features,
                kinds=map_kinds(model.maps, part.X, maps.resolve),
                estimator_name=name,
            )
        statistics.add(part.X, part.weight, model._threads())
        statistics.target.merge(model._target_statistics(part.y, part.weight))
    if statistics is None:
        raise ValueError(f"{reading.source.label} has no rows of a weight above zero.")
    return statistics


def learn_table(model: Any, reading: Reading, statistics: Statistics) -> None:
    """Set what a model knows of the table: columns, names, classes, scale of the target."""
    statistics.limit_categories(budget_of(model))
    model.columns_ = statistics.learn_columns()
    model.n_features_in_ = len(model.columns_.sources)
    model._set_names()
    model.target_names_ = list(reading.targets)
    model._learn_target(statistics.target, reading.flat)
    by_dtype = isinstance(model.categorical_features, str)
    n_known = [one.weight.sum() / statistics.target.typical_weight for one in statistics.learnt()]
    names = model.columns_.names
    warn_of_columns(model.columns_.columns, n_known, () if by_dtype else names)


def store_rows(
    model: Any, reading: Reading, statistics: Statistics, budget: float, held_out: CodedRows | None
) -> StreamedFit:
    """Read all rows a second time: write them to blocks, and keep held-out rows and the sample."""
    start = time.perf_counter()
    target, learnt = statistics.target, statistics.learnt()
    class_weights = model._learn_class_weights(target)
    block_rows = choose_block_rows(len(learnt), budget)
    n_blocks = -(-target.n_rows // block_rows)
    single = [one.column.kind == "numeric" and is_single(reading, one) for one in learnt]
    first = next(part for part in reading.parts() if len(part.weight))
    n_targets = code_part(model, first, class_weights)[1].shape[1]
    store = RowStore([one.column for one in learnt], n_targets, n_blocks, single)
    try:
        holds_out = held_out is None and model.early_stopping
        sample, own = _fill(model, reading, store, target.n_rows, class_weights, holds_out)
    except BaseException:
        store.__exit__()
        raise
    passes = None if model.max_iter == "auto" else int(model.max_iter)
    out = own if held_out is None else held_out
    seconds = {"blocks": time.perf_counter() - start}
    weighed = weigh_target(model, target, class_weights)
    return StreamedFit(learnt, target, weighed, class_weights, store, passes, sample, out, seconds)


def weigh_target(
    model: Any, target: TargetStatistics, class_weights: np.ndarray | None
) -> TargetStatistics:
    """Return what is known of the target after class weights, (K,), are applied."""
    if class_weights is None:
        return target
    return target.weighed(dict(zip(model.classes_.tolist(), class_weights.tolist())))


@dataclass(frozen=True)
class Choosing:
    """Which rows are held out, which are in the sample, and to which block each belongs.

    Attributes
    ----------
    class_weights : (K,) or None
    share_out, share_in : float
        Hashes below the first, as a share of the highest, are of rows that are held out; those
        between the two are of rows of the sample.
    n_blocks : int
    """

    class_weights: np.ndarray | None
    share_out: float
    share_in: float
    n_blocks: int

    @classmethod
    def of(
        cls,
        model: Any,
        n_rows: int,
        class_weights: np.ndarray | None,
        holds_out: bool,
        n_blocks: int,
    ) -> Choosing:
        """Return what chooses among this many rows."""
        n_sample = choose_sample_rows(len(model.columns_.columns), budget_of(model), SAMPLE_ROWS)
        n_out = HELD_OUT_ROWS * n_sample / SAMPLE_ROWS
        share_out = min(model.validation_fraction, n_out / n_rows) if holds_out else 0.0
        share_in = min(1.0, share_out + n_sample / n_rows)
        return cls(class_weights, share_out, share_in, n_blocks)

    def divide(
        self, model: Any, part: Part, first: int = 0
    ) -> tuple[CodedRows, CodedRows, CodedRows, np.ndarray]:
        """Return the sample, the held-out rows, the rows for the blocks, and the block of each.

        Targets of the first two are not scaled yet.

        `first` is the place in the table of the first row that was read with this part.
        """
        rows, target = code_part(model, part, self.class_weights)
        hashed = row_hashes(model.columns_.names, rows.columns, target) / _EVERY
        used = rows.weight > 0  # the weight of a class may be zero
        out = used & (hashed < self.share_out)
        stays = used & ~out
        sampled = stays & (hashed < self.share_in)
        places = place_hashes(first + part.places[stays])
        block_of = (places % self.n_blocks).astype(np.int64)
        plain = replace(rows, y=target)
        return _take(plain, sampled), _take(plain, out), _take(rows, stays), block_of


def _fill(
    model: Any,
    reading: Reading,
    store: RowStore,
    n_rows: int,
    class_weights: np.ndarray | None,
    holds_out: bool,
) -> tuple[CodedRows, CodedRows | None]:
    """Code all rows; return the sample and, if wanted, the held-out rows."""
    chosen = Choosing.of(model, n_rows, class_weights, holds_out, len(store))
    inside, outside = [], []
    for part in _parts(model, reading, "writing blocks"):
        sampled, out, kept, block_of = chosen.divide(model, part)
        inside.append(sampled)
        outside.append(out)
        store.add(kept, block_of)
    sample = sort_rows(model, join_rows(inside))
    return sample, sort_rows(model, join_rows(outside)) if holds_out else None


def code_part(
    model: Any, part: Part, class_weights: np.ndarray | None
) -> tuple[CodedRows, np.ndarray]:
    """Code some rows with what the model has learnt; return the targets before scaling too."""
    with warnings.catch_warnings():
        # The statistics know all values: those that are not among the categories are rare ones.
        warnings.filterwarnings(
            "ignore", message=".* were not seen in training", category=UserWarning
        )
        coded = model.columns_.code(part.X, estimator_name=type(model).__name__)
    target = model._read_target(part.y, len(part.weight), fresh=False)
    weight, counts = part.weight, None
    if class_weights is not None:
        counts, weight = weight, weight * class_weights[model._numbers_of(target)]
    return CodedRows(coded, model._to_scale(target), weight, counts), target


def _take(rows: CodedRows, kept: np.ndarray) -> CodedRows:
    counts = None if rows.counts is None else rows.counts[kept]
    return replace(rows.take(kept), counts=counts)


def join_rows(parts: Sequence[CodedRows]) -> CodedRows:
    """Return rows of several parts together."""
    counts = None
    if parts[0].counts is not None:
        counts = np.concatenate([part.counts for part in parts if part.counts is not None])
    return CodedRows(
        [np.concatenate(columns) for columns in zip(*(part.columns for part in parts))],
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.weight for part in parts]),
        counts,
    )


def sort_rows(model: Any, rows: CodedRows) -> CodedRows:
    """Return distinct rows in an order by content, as those of a fit in memory, and scale y.

    An order by scaled targets would depend on how the scale was rounded.
    """
    if not np.any(rows.weight > 0):
        raise ValueError(
            "No row of the table was chosen for the sample or to be held out: nearly all of its "
            "rows are equal. Raise `memory`, so that it is fitted in memory."
        )
    names = model.columns_.names if model.columns_.named else None
    places, weight = distinct_rows(rows.columns, rows.y, rows.weight, names)
    counts = None
    if rows.counts is not None:
        counts = weight * (rows.counts[places] / rows.weight[places])
    y = model._to_scale(rows.y[places])
    return CodedRows([c[places] for c in rows.columns], y, weight, counts)


def is_single(reading: Reading, one: Learnt) -> bool:
    """Tell whether a column of the source holds numbers that are exact in single precision."""
    kind = reading.source.types.get(one.column.source, "")
    return one.column.part is None and kind in ("float", "halffloat", "int8", "uint8", "int16")
