"""What a fit must know of all rows before it trains, from one pass: mergeable, in little memory.

One object per column of the table gathers what `Columns.learn` and the maps would learn from the
whole column. Statistics of different rows can be merged, so that several processes can share the
pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import narwhals as nw
import numpy as np

from polyadic.data import dates
from polyadic.data.columns import MOST_STREAMED, Column, Columns, check_part_names
from polyadic.data.kinds import choose_kinds, order_of, sort_categories
from polyadic.data.tables import Values, factorise, factorise_list, numbers, read_table
from polyadic.scale.memory import choose_categories
from polyadic.scale.sketches import CategoryCounts, NumberSketch, TextCounts

_TEXT_HINT = "Name it in categorical_features, or convert it."


class Learnt(NamedTuple):
    """A column, and a few weighted values that stand for all of its rows."""

    column: Column
    x: np.ndarray  # float64, or codes
    weight: np.ndarray


class ColumnStatistics(Protocol):
    """What is gathered of one column of the table."""

    def add(self, values: Values, weight: np.ndarray, label: str) -> None:
        """Add the values of some rows."""

    def merge(self, other: Any) -> None:
        """Add the rows of statistics of the same column."""

    def learnt(self, most: int) -> list[Learnt]:
        """Return the columns that are made of this one, with this many categories at most."""


class Numbers:
    """A column of numbers."""

    def __init__(self, name: str):
        self.name, self.sketch = name, NumberSketch()

    def add(self, values: Values, weight: np.ndarray, label: str) -> None:
        """Add the values of some rows."""
        self.sketch.add(numbers(values, label, _TEXT_HINT), weight)

    def merge(self, other: Numbers) -> None:
        """Add the rows of statistics of the same column."""
        self.sketch.merge(other.sketch)

    def learnt(self, most: int) -> list[Learnt]:
        """Return the column."""
        return [Learnt(Column(self.name, "numeric"), *self.sketch.points())]


class Categories:
    """A column of categories."""

    def __init__(self, name: str, order: tuple[Any, ...] = ()):
        self.name, self.order = name, order
        self.counts, self.texts = CategoryCounts(), TextCounts()

    def add(self, values: Values, weight: np.ndarray, label: str) -> None:
        """Add the values of some rows."""
        found = _arrow_texts(values)
        if found is None:
            self._add_any(values, weight, label)
            return
        number, texts = found
        known = number >= 0
        if not known.all():
            number, weight = number[known], weight[known]
        self.texts.add(texts, np.bincount(number, weight, len(texts)))

    def _add_any(self, values: Values, weight: np.ndarray, label: str) -> None:
        number, scalars = factorise(values, label)
        totals = np.bincount(number[number >= 0], weight[number >= 0], len(scalars))
        found: dict[Any, float] = {}
        for scalar, total in zip(scalars, totals.tolist()):
            if scalar is not None and total > 0:
                found[scalar] = found.get(scalar, 0.0) + total
        self.counts.add(found)

    def merge(self, other: Categories) -> None:
        """Add the rows of statistics of the same column."""
        self.counts.merge(other.counts)
        self.texts.merge(other.texts)

    def _most(self, number: int) -> dict[Any, float]:
        """Return the values with the most rows, and their rows."""
        if not self.counts.of:
            return self.texts.most(number)
        every = CategoryCounts()
        every.merge(self.counts)
        every.add(self.texts.of)
        return every.most(number)

    def __len__(self) -> int:
        return len(self.counts.of) + len(self.texts.rows)

    def learnt(self, most: int) -> list[Learnt]:
        """Return the column, with its most frequent categories."""
        kept = self._most(most)
        categories = sort_categories(list(kept), self.order)
        column = Column(self.name, "categorical", categories, has_order=bool(self.order))
        rows = np.array([kept[category] for category in categories], dtype=np.float64)
        return [Learnt(column, np.arange(len(categories)), rows)]


def _arrow_texts(values: Values) -> tuple[np.ndarray, Any] | None:
    """Return the number of each row's text, -1 for a missing one, and the texts of an Arrow column.

    None for any other column.
    """
    if isinstance(values, np.ndarray) or not values.implementation.is_pyarrow():
        return None
    if not isinstance(values.dtype, nw.String):
        return None
    coded = values.to_native().combine_chunks().dictionary_encode()
    return coded.indices.fill_null(-1).to_numpy(), coded.dictionary


class Moments:
    """A column of dates, times or durations, of which several columns are made."""

    def __init__(self, name: str, values: Values):
        self.name = name
        found = dates.useful_parts(values)
        self.parts = found if found in (["hour"], ["days"]) else list(dates.PARTS)
        if len(self.parts) > 1:
            self.parts.remove("days")
        self.trends = {p: NumberSketch() for p in self.parts if p not in dates.CIRCLES}
        self.places = {p: np.zeros(len(dates.CIRCLES[p])) for p in self.parts if p in dates.CIRCLES}

    def add(self, values: Values, weight: np.ndarray, label: str) -> None:
        """Add the values of some rows."""
        for part in self.parts:
            read = dates.read_part(values, part, label)
            if part in self.trends:
                self.trends[part].add(read, weight)
            else:
                known = read >= 0
                own = self.places[part]
                own += np.bincount(read[known], weight[known], len(own))

    def merge(self, other: Moments) -> None:
        """Add the rows of statistics of the same column."""
        for part, sketch in self.trends.items():
            sketch.merge(other.trends[part])
        for part, own in self.places.items():
            own += other.places[part]

    def learnt(self, most: int) -> list[Learnt]:
        """Return the parts that are worth a column."""
        out = []
        for part in self.parts:
            label = f"{self.name} ({part})"
            if part in self.trends:
                column = Column(label, "numeric", None, part, self.name)
                out.append(Learnt(column, *self.trends[part].points()))
            elif self._comes_back(part):
                seen = np.flatnonzero(self.places[part])
                names = tuple(dates.CIRCLES[part][place] for place in seen)
                column = Column(label, "categorical", names, part, self.name)
                out.append(Learnt(column, np.arange(len(seen)), self.places[part][seen]))
        return out

    def _comes_back(self, part: str) -> bool:
        """Tell whether a part has several values, over more than one of its periods."""
        if "year" not in self.trends:
            return True
        year = self.trends["year"]
        several = int(np.count_nonzero(self.places[part])) > 1
        return several and dates.repeats(part, year.high - year.low)


@dataclass
class TargetStatistics:
    """Weights and targets: mean and variance of numbers, or the weight of each class.

    Attributes
    ----------
    n_rows : int
        Rows with a weight above zero.
    weight, squares : float
        Sum of the weights, and of their squares.
    mean : (L,) or None
        Mean of the targets.
    size, spread : (L,) or None
        A power of two near the largest target, and the sum of weighted squares of the deviations
        from the mean in units of it: squares of the targets as they are may overflow, or be zero.
    low, high : (L,) or None
    classes, class_squares : CategoryCounts or None
        The sum of the weights of each class, and of their squares.
    """

    n_rows: int = 0
    weight: float = 0.0
    squares: float = 0.0
    mean: Any = None
    size: Any = None
    spread: Any = None
    low: Any = None
    high: Any = None
    classes: CategoryCounts | None = None
    class_squares: CategoryCounts | None = None

    @classmethod
    def of_numbers(cls, y: np.ndarray, weight: np.ndarray) -> TargetStatistics:
        """Return the statistics of some rows, y : (n, L)."""
        total, size = weight.sum(), power_near(np.abs(y).max(axis=0))
        share = y / size
        mean = weight @ share / total
        spread = weight @ (share - mean) ** 2
        ends = y.min(axis=0), y.max(axis=0)
        each = float(total), float(weight @ weight)
        return cls(len(y), *each, mean * size, size, spread, *ends)

    @classmethod
    def of_classes(cls, y: Iterable[Any], weight: np.ndarray) -> TargetStatistics:
        """Return the statistics of some rows with labels."""
        number, labels = factorise_list(list(y))
        counts, squares = CategoryCounts(), CategoryCounts()
        for summary, own in ((counts, weight), (squares, weight**2)):
            summary.add(dict(zip(labels, np.bincount(number, own, len(labels)).tolist())))
        each = float(weight.sum()), float(weight @ weight)
        return cls(len(weight), *each, classes=counts, class_squares=squares)

    def merge(self, other: TargetStatistics) -> None:
        """Add the rows of other statistics, by the formula of Chan, Golub and LeVeque."""
        if other.n_rows == 0:
            return
        if other.classes is not None and other.class_squares is not None:
            self.classes = self.classes or CategoryCounts()
            self.classes.merge(other.classes)
            self.class_squares = self.class_squares or CategoryCounts()
            self.class_squares.merge(other.class_squares)
        elif self.mean is None:
            self.mean, self.size, self.spread = other.mean, other.size, other.spread
            self.low, self.high = other.low, other.high
        else:
            share, apart = other.weight / (self.weight + other.weight), other.mean - self.mean
            size = np.maximum(self.size, other.size)
            within = self._spread_in(size) + other._spread_in(size)
            self.spread = within + (apart / size) ** 2 * share * self.weight
            self.mean, self.size = self.mean + share * apart, size
            self.low = np.minimum(self.low, other.low)
            self.high = np.maximum(self.high, other.high)
        self.n_rows += other.n_rows
        self.weight += other.weight
        self.squares += other.squares

    def _spread_in(self, size: np.ndarray) -> np.ndarray:
        """Return the sum of weighted squares in units of these powers of two, none smaller."""
        return self.spread * (self.size / size) ** 2

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of the targets, (L,)."""
        return np.sqrt(self.spread / self.weight) * self.size

    def weighed(self, class_weights: Mapping[Any, float]) -> TargetStatistics:
        """Return the statistics after the weight of each row is multiplied by that of its class."""
        assert self.classes is not None
        assert self.class_squares is not None
        totals, squares = self.classes.of, self.class_squares.of
        weight = sum(own * totals[label] for label, own in class_weights.items())
        square = sum(own**2 * squares[label] for label, own in class_weights.items())
        return replace(self, weight=weight, squares=square)

    @property
    def effective_rows(self) -> float:
        """How many rows of weight one there are: see `CodedRows.effective_rows`."""
        return max(self.weight, self.weight**2 / self.squares)

    @property
    def typical_weight(self) -> float:
        """The weight of a typical row, at most one."""
        return min(1.0, self.squares / self.weight)


def power_near(largest: np.ndarray) -> np.ndarray:
    """Return the powers of two that are at most these numbers, and more than half of them.

    Division by a power of two does not round.

    >>> power_near(np.array([5.0, 1.0, 0.0]))
    array([4.e+000, 1.e+000, 5.e-324])
    """
    return np.where(largest > 0, np.ldexp(1.0, np.frexp(largest)[1] - 1), 5e-324)


class Statistics:
    """The statistics of all columns and of the target.

    Parameters
    ----------
    table : table
        The first rows, which tell names and types of the columns. They are not added.
    categorical_features, kinds
        As in `Columns.learn`.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> rows = pa.table({"x": [1.0, 2.0, 4.0], "kind": ["a", "b", "a"]})
    >>> gathered = Statistics(rows)
    >>> for part in (rows.slice(0, 2), rows.slice(2)):
    ...     gathered.add(part, np.ones(part.num_rows))
    >>> [learnt.column.categories for learnt in gathered.learnt()]
    [None, ('a', 'b')]
    """

    def __init__(
        self,
        table: Any,
        *,
        categorical_features: str | Iterable | None = "from_dtype",
        kinds: Mapping[str | int, str] | None = None,
        estimator_name: str = "estimator",
    ):
        read = read_table(table, estimator_name)
        self.names, self.estimator_name = read.names, estimator_name
        self.columns: list[ColumnStatistics] = []
        for name, values, kind in zip(
            read.names, read.values, choose_kinds(read, categorical_features, kinds)
        ):
            if kind == "dates":
                self.columns.append(Moments(name, values))
            elif kind == "numeric":
                self.columns.append(Numbers(name))
            else:
                self.columns.append(Categories(name, order_of(values)))
        self.target = TargetStatistics()
        self.most_categories = MOST_STREAMED
        self._learnt: list[Learnt] | None = None

    def add(self, table: Any, weight: np.ndarray, n_threads: int = 1) -> None:
        """Add rows with weights (n,), those of weight zero left out."""
        self._learnt = None
        read = read_table(table, self.estimator_name)

        def one(position: int) -> None:
            self.columns[position].add(read.values[position], weight, read.label(position))

        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(one, range(len(self.columns))))

    def merge(self, other: Statistics) -> None:
        """Add the rows of other statistics of the same table."""
        if self.names != other.names:
            raise ValueError(f"The columns differ: {self.names} and {other.names}.")
        self._learnt = None
        for own, more in zip(self.columns, other.columns):
            own.merge(more)
        self.target.merge(other.target)

    def limit_categories(self, budget: float) -> None:
        """Tell apart only as many categories as fit into this many bytes, those of most rows."""
        sizes = [len(own) for own in self.columns if isinstance(own, Categories)]
        self.most_categories = choose_categories(sizes, budget, MOST_STREAMED)
        self._learnt = None

    def learnt(self) -> list[Learnt]:
        """Return the columns, each with a few weighted values that stand for all of its rows."""
        if self._learnt is None:  # to sort many categories takes long
            most = self.most_categories
            self._learnt = [one for own in self.columns for one in own.learnt(most)]
            check_part_names([one.column for one in self._learnt])
        return self._learnt

    def learn_columns(self) -> Columns:
        """Return the columns, to code rows with."""
        return Columns([one.column for one in self.learnt()], named=True)


def touched_shares(learnt: Sequence[Learnt], maps: Sequence[Any], total: float) -> list[np.ndarray]:
    """Return the share of all rows that use each element of each map, (d_n,) per column."""
    out = []
    for one, own in zip(learnt, maps):
        index, value = own.slots(one.x)
        each = np.where(value != 0, one.weight[:, None], 0.0)
        out.append(np.bincount(index.ravel(), each.ravel(), own.dim) / total)
    return out
