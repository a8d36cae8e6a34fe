"""From a table to typed columns.

A table is a pandas, Polars or PyArrow table (read through narwhals, so none of these libraries has
to be installed), a two-dimensional NumPy array, or a list of rows. `Columns.learn` reads it once,
in `fit`, and keeps the name, the kind and the categories of each column; `Columns.code` then reads
any later table the same way. Both return one array per column:

    numeric       float64, (n,), NaN for a missing number
    categorical   int64,   (n,), the position among the categories, -1 for a missing or unseen one

Two rules hold for all tables. The columns of a table with string column names are found by name;
those of every other table by position, under the names x0, x1, ... Text is never read as a number,
not even "1.5". A column of dates becomes several: one per part (`polyadic.data.dates`).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from polyadic.data.dates import CIRCLES, part_from_json, read_part, useful_parts
from polyadic.data.kinds import KINDS, choose_kinds, order_of, sort_categories
from polyadic.data.tables import (
    Scalar,
    Table,
    Values,
    factorise,
    listing,
    n_rows,
    numbers,
    plain_frame,
    read_table,
)

__all__ = ["Column", "Columns", "n_rows"]

_MANY_UNSEEN = 10  # rows from which on unseen values are no accident; chosen by hand
# Categories of a column that a streamed fit tells apart: those with the most rows. The others are
# treated as unseen ones are. A million of them would take more memory than the rows.
MOST_STREAMED = 2**16


@dataclass(frozen=True)
class Column:
    """One column of the input table.

    Attributes
    ----------
    name : str
    kind : str
        "numeric" or "categorical".
    categories : tuple or None
        The categories in the order of an ordered type, otherwise sorted, numbers before text; the
        code of a category is its position. Two values are one category when they are equal in
        Python, as 1, 1.0 and True are. None for a numeric column.
    part, part_of : str or None
        The part of a date that the column is, "month" for example, and the table's column that
        holds the dates; None for any other column.
    has_order : bool
        Whether the table gave the categories an order.
    """

    name: str
    kind: str
    categories: tuple[Scalar, ...] | None = field(default=None, repr=False)
    part: str | None = None
    part_of: str | None = None
    has_order: bool = False

    @property
    def source(self) -> str:
        """The name of the table's column."""
        return self.name if self.part_of is None else self.part_of

    @property
    def ordered(self) -> bool:
        """Whether its values have an order: those of all columns but plain categories."""
        return self.kind == "numeric" or self.has_order or self.circle

    @property
    def circle(self) -> bool:
        """Whether the first category follows the last, as January follows December."""
        return self.part in CIRCLES

    @cached_property
    def code_of(self) -> dict[Scalar | None, int]:
        """The code of each category."""
        return {category: code for code, category in enumerate(self.categories or ())}

    def __reduce__(self) -> tuple:
        # `code_of` is left out: it would double the size of a pickled model.
        given = (self.name, self.kind, self.categories, self.part, self.part_of, self.has_order)
        return Column, given


@dataclass
class Columns:
    """The columns a model was fitted on.

    Attributes
    ----------
    columns : list of Column
    named : bool
        Whether the table had string column names; if not, the names are x0, x1, ...

    Examples
    --------
    >>> import polars as pl
    >>> train = pl.DataFrame({"area": [70.0, 95.0, None], "city": ["Ulm", "Bonn", "Ulm"]})
    >>> columns, coded = Columns.learn(train)
    >>> columns.columns[1].categories
    ('Bonn', 'Ulm')
    >>> coded
    [array([70., 95., nan]), array([1, 0, 1])]
    >>> columns.code(pl.DataFrame({"city": ["Bonn", "Kiel", None], "area": [1, 2, 3]}))
    [array([1., 2., 3.]), array([ 0, -1, -1])]
    """

    columns: list[Column]
    named: bool

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def sources(self) -> list[str]:
        """The names of the table's columns; those of dates are the source of several columns."""
        return list(dict.fromkeys(column.source for column in self.columns))

    @classmethod
    def learn(
        cls,
        X: Any,
        *,
        categorical_features: str | Iterable | None = "from_dtype",
        kinds: Mapping[str | int, str] | None = None,
        estimator_name: str = "estimator",
    ) -> tuple[Columns, list[np.ndarray]]:
        """Learn names, kinds and categories from a table, and code its columns.

        Parameters
        ----------
        X : table, (n, N)
        categorical_features : "from_dtype", list or None
            Which columns are categorical. "from_dtype": in a data frame those of type category,
            enum, string, boolean and object (also an object column that holds only numbers), in an
            array none. A list of names, a list of positions or a boolean mask, (N,): those and no
            others. None: no column.
        kinds : dict, optional
            "numeric" or "categorical" by name or position of a column; overrules
            `categorical_features`.
        estimator_name : str
            The name used in errors.

        Returns
        -------
        columns : Columns
        coded : list of N arrays, (n,)
            float64 or int64, as described at the top of this module.
        """
        table = read_table(X, estimator_name)
        if table.named:
            hint = "Name it in categorical_features (or leave that at 'from_dtype'), or convert it."
        else:
            hint = "Pass categorical_features=[...] or a DataFrame, or convert it to a number."
        columns, coded = [], []
        for position, kind in enumerate(choose_kinds(table, categorical_features, kinds)):
            name, values = table.names[position], table.values[position]
            if kind == "dates":
                parts = [learn_part(name, values, part) for part in useful_parts(values)]
                columns += [column for column, _ in parts]
                coded += [x for _, x in parts]
            elif kind == "numeric":
                columns.append(Column(name, kind))
                coded.append(numbers(values, table.label(position), hint))
            else:
                number, scalars = factorise(values, table.label(position))
                order = order_of(values)
                categories = sort_categories(scalars, order)
                columns.append(Column(name, kind, categories, has_order=bool(order)))
                coded.append(category_codes(columns[-1], number, scalars))
        check_part_names(columns)
        return cls(columns, table.named), coded

    def code(self, X: Any, *, estimator_name: str = "estimator") -> list[np.ndarray]:
        """Code the columns of a later table.

        Parameters
        ----------
        X : table, (n, N)
            If both this table and the fitted one have string column names, columns are found by
            name: their order does not matter and further columns are ignored.

        Returns
        -------
        coded : list of N arrays, (n,)
            float64 or int64, as described at the top of this module.
        """
        return self.chunks(X, None, estimator_name=estimator_name)[0]()

    def chunks(
        self, X: Any, size: int | None, *, estimator_name: str = "estimator"
    ) -> list[Callable[[], list[np.ndarray]]]:
        """Cut a later table into chunks of `size` rows; None makes one chunk of all rows.

        Returns one function per chunk, which codes its columns when called, in any thread.
        """
        read: Callable[[slice], list[np.ndarray]]
        block = self.block(X)
        if block is not None:
            n_rows, read = len(block), partial(code_block, block)
        else:
            table = read_table(X, estimator_name)
            places = list(zip(self.columns, self.positions(table, estimator_name)))
            hint = f"{estimator_name} was fitted on numbers here. Convert it; NaN means missing."
            n_rows, read = len(table.values[0]), partial(code_columns, table, places, hint)
        size = size or n_rows
        return [partial(read, slice(start, start + size)) for start in range(0, n_rows, size)]

    def block(self, X: Any) -> np.ndarray | None:
        """Return a table of finite numbers or NaN, with its columns as fitted, as one array.

        None for any other table. Such a table needs no checks of types and names column by column,
        which would take longer than predicting a few rows.
        """
        if any(column.kind != "numeric" or column.part for column in self.columns):
            return None
        block = plain_frame(X, self.names) if self.named else X
        if type(block) is not np.ndarray or block.dtype.kind not in "iuf" or block.size == 0:
            return None
        if block.dtype.itemsize > 8:  # a number of more bits may be infinite in double precision
            return None
        if block.ndim != 2 or block.shape[1] != len(self.columns) or np.isinf(block).any():
            return None
        return block

    def positions(self, table: Table, estimator_name: str) -> list[int]:
        """Find the source of each fitted column in a later table."""
        sources = self.sources
        if self.named and table.named:
            found = {name: position for position, name in enumerate(table.names)}
            absent = [name for name in sources if name not in found]
            if absent:
                raise ValueError(
                    f"X lacks {len(absent)} of the {len(sources)} columns that "
                    f"{estimator_name} was fitted on: {listing(absent)}. "
                    f"X has the columns {listing(table.names)}."
                )
            return [found[column.source] for column in self.columns]
        if len(table.names) != len(sources):
            raise ValueError(
                f"X has {len(table.names)} features, but {estimator_name} "
                f"is expecting {len(sources)} features as input."
            )
        if self.named:
            warnings.warn(
                f"X does not have valid feature names, but {estimator_name} was fitted with "
                "feature names",
                stacklevel=3,
            )
        elif table.named:
            warnings.warn(
                f"X has feature names, but {estimator_name} was fitted without feature names",
                stacklevel=3,
            )
        place = {name: position for position, name in enumerate(sources)}
        return [place[column.source] for column in self.columns]

    def to_json(self) -> dict[str, Any]:
        """Return the columns as dicts, lists and scalars that JSON can hold."""
        columns = [
            {
                "name": c.name,
                "kind": c.kind,
                "categories": c.categories and list(c.categories),
                **({"part": c.part, "part_of": c.part_of} if c.part else {}),
                **({"ordered": True} if c.has_order else {}),
            }
            for c in self.columns
        ]
        return {"named": self.named, "columns": columns}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Columns:
        """Build the columns from what `to_json` returned; refuse what no table can have."""
        columns = []
        for n, c in enumerate(state["columns"]):
            name, kind = c["name"], c["kind"]
            if not isinstance(name, str) or kind not in KINDS:
                raise ValueError(
                    f"column {n} has the name {name!r} and the kind {kind!r}. The name must be a "
                    f"string, and the kind one of: {', '.join(KINDS)}."
                )
            categories = None if kind == "numeric" else tuple(c["categories"])
            if not all(isinstance(category, Scalar) for category in categories or ()):
                raise ValueError(f"column {n} has categories that are neither numbers nor text.")
            parts = part_from_json(n, c, kind, categories)
            columns.append(Column(name, kind, categories, *parts, c.get("ordered") is True))
        out = cls(columns, state["named"] is True)
        if not columns or len(set(out.names)) < len(columns):
            raise ValueError("there must be columns, and their names must differ.")
        return out


def code_block(block: np.ndarray, rows: slice) -> list[np.ndarray]:
    """Code the columns of an array of numbers."""
    return list(np.ascontiguousarray(block[rows].T, dtype=np.float64))


def code_columns(
    table: Table, places: list[tuple[Column, int]], hint: str, rows: slice
) -> list[np.ndarray]:
    """Code the columns of any table; `places` holds each column with its position in the table."""
    coded = []
    for column, position in places:
        values = table.values[position][rows]
        if column.part is not None:
            coded.append(code_part(column, read_part(values, column.part, table.label(position))))
        elif column.kind == "numeric":
            coded.append(numbers(values, table.label(position), hint))
        else:
            number, scalars = factorise(values, table.label(position))
            coded.append(category_codes(column, number, scalars))
            warn_of_unseen(column, coded[-1], number, scalars)
    return coded


def warn_of_unseen(
    column: Column, codes: np.ndarray, number: np.ndarray, scalars: list[Scalar | None]
) -> None:
    """Warn where most values of a column are new, as those of a column that changed its type."""
    known = np.array([*(scalar is not None for scalar in scalars), False])[number]
    unseen = known & (codes < 0)
    n_known, n_unseen = np.count_nonzero(known), np.count_nonzero(unseen)
    few, expected = n_unseen < _MANY_UNSEEN, len(column.categories or ()) >= MOST_STREAMED
    if few or expected or 2 * n_unseen <= n_known or not column.categories:
        return
    warnings.warn(
        f"{n_unseen:,} of {n_known:,} values of the column {column.name!r} were not seen in "
        f"training, such as {scalars[number[np.argmax(unseen)]]!r}; training had "
        f"{listing(list(column.categories), 5)}. "
        "Has the column changed its type?",
        UserWarning,
        stacklevel=2,
    )


# ---- dates ---------------------------------------------------------------------------------------


def learn_part(name: str, values: Values, part: str) -> tuple[Column, np.ndarray]:
    """Return the column of a part of the dates of a table's column, and its rows, coded."""
    read, label = read_part(values, part, name), f"{name} ({part})"
    if part not in CIRCLES:
        return Column(label, "numeric", None, part, name), read
    seen = np.unique(read[read >= 0])
    categories = tuple(CIRCLES[part][place] for place in seen)
    column = Column(label, "categorical", categories, part, name)
    return column, code_part(column, read)


def code_part(column: Column, read: np.ndarray) -> np.ndarray:
    """Return the codes of places on a circle; a trend stays as it is."""
    if not column.circle:
        return read
    names = CIRCLES[str(column.part)]
    codes = [column.code_of.get(category, -1) for category in names]
    return np.array([*codes, -1], dtype=np.int64)[read]  # a missing one, -1, picks the last


def check_part_names(columns: Sequence[Column]) -> None:
    """Refuse a table in which another column has the name of a part of a date."""
    names = Counter(column.name for column in columns)
    for column in columns:
        if column.part is not None and names[column.name] > 1:
            raise ValueError(
                f"Column {column.part_of!r} holds dates, and its {column.part} would be named "
                f"{column.name!r}, as another column is. Rename one of them."
            )


# ---- categories ----------------------------------------------------------------------------------


def category_codes(column: Column, number: np.ndarray, scalars: list[Scalar | None]) -> np.ndarray:
    """Return the code of each row, (n,) int64, given what `factorise` returned for the column."""
    code_of = column.code_of
    codes = [code_of.get(scalar, -1) for scalar in scalars]
    return np.array([*codes, -1], dtype=np.int64)[number]  # number -1 picks the last
