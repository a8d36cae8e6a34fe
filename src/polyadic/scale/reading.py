"""Features, targets and weights of a table that is read in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from polyadic.scale.sources import Source

READ_ROWS = 131_072  # rows of a batch; chosen by hand
# Weights of a table that is read in batches are zero or between these. They are used in single
# precision and are squared, and a batch cannot be divided by a weight that a later one holds.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-30, 1e30


class Part(NamedTuple):
    """Some rows of a table, those of weight zero left out."""

    X: Any  # a pyarrow table
    y: np.ndarray  # (n,) or (n, L)
    weight: np.ndarray  # (n,)
    first: int  # place of the first row that was read for it, in the whole table
    places: np.ndarray  # (n,) of the rows, in the whole table


class Reading:
    """A source as features, target and weights.

    Parameters
    ----------
    source : Source
    y : str or list of str
        The column of the target, or the columns of several.
    sample_weight : str or None
        The column of the weights.
    """

    def __init__(self, source: Source, y: Any, sample_weight: Any = None):
        self.source = source
        self.flat = isinstance(y, str)
        self.targets = [y] if isinstance(y, str) else self._names(y)
        if sample_weight is not None and not isinstance(sample_weight, str):
            raise TypeError(
                "For a table in files, sample_weight is the name of a column, such as 'weight'; "
                f"got {type(sample_weight).__name__}."
            )
        self.weight = sample_weight
        used = [*self.targets, *([] if sample_weight is None else [sample_weight])]
        missing = [name for name in used if name not in source.names]
        if missing:
            known = ", ".join(map(repr, source.names))
            raise ValueError(
                f"{source.label} has no column {missing[0]!r}. Its columns are: {known}."
            )
        self.features = [name for name in source.names if name not in used]
        if not self.features:
            raise ValueError(f"{source.label} has no column besides {', '.join(used)}.")

    @staticmethod
    def _names(y: Any) -> list[str]:
        if not (isinstance(y, Sequence) and y and all(isinstance(name, str) for name in y)):
            raise TypeError(
                "For a table in files, y is the name of the target's column, such as 'price', or a "
                f"list of names; got {type(y).__name__}."
            )
        return list(y)

    def parts(self) -> Iterator[Part]:
        """Yield the rows in order, READ_ROWS at a time, however the source divides them."""
        import pyarrow as pa

        first, waiting, n_waiting = 0, [], 0
        for batch in self.source.batches(READ_ROWS):
            waiting.append(batch)
            n_waiting += batch.num_rows
            if n_waiting >= READ_ROWS:
                table = pa.Table.from_batches(waiting)
                yield self._part(table.slice(0, READ_ROWS), first)
                first += READ_ROWS
                waiting, n_waiting = table.slice(READ_ROWS).to_batches(), n_waiting - READ_ROWS
        if n_waiting:
            yield self._part(pa.Table.from_batches(waiting), first)

    def whole(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Return features, target and weights of all rows, in memory."""
        import pyarrow as pa

        batches = list(self.source.batches(READ_ROWS))
        if not batches:
            raise ValueError(f"{self.source.label} has no rows.")
        table = pa.Table.from_batches(batches)
        weight = None if self.weight is None else _array(table[self.weight])
        return table.select(self.features), self._target(table), weight

    def _part(self, table: Any, first: int) -> Part:
        import pyarrow as pa

        weight = np.ones(table.num_rows) if self.weight is None else self._weights(table)
        places = first + np.flatnonzero(weight > 0)
        if not weight.all():
            table, weight = table.filter(pa.array(weight > 0)), weight[weight > 0]
        return Part(table.select(self.features), self._target(table), weight, first, places)

    def _weights(self, table: Any) -> np.ndarray:
        try:
            weight = np.asarray(_array(table[self.weight]), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The weights in {self.weight!r} must be numbers.") from error
        if not np.all(np.isfinite(weight)) or np.any(weight < 0):
            wrong = weight[~(weight >= 0) | np.isinf(weight)][0]
            raise ValueError(
                f"The weights in {self.weight!r} must be finite and not negative; one is {wrong}."
            )
        odd = (weight > LARGEST_WEIGHT) | ((weight > 0) & (weight < SMALLEST_WEIGHT))
        if np.any(odd):
            raise ValueError(
                f"For a table that is read in parts, the weights in {self.weight!r} must be zero "
                f"or from {SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}; one is {weight[odd][0]:.6g}. "
                "Multiply all by the same number, or set tiny ones to zero."
            )
        return weight

    def _target(self, table: Any) -> np.ndarray:
        arrays = [_array(table[name]) for name in self.targets]
        return arrays[0] if self.flat else np.column_stack(arrays)


def _array(column: Any) -> np.ndarray:
    """Return a column of Arrow as a NumPy array: numbers, booleans or objects."""
    import pyarrow as pa

    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.to_numpy(zero_copy_only=False)
