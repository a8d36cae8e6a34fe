"""Pieces of SQL text: names, literals, choices, sums; and what depends on the dialect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Dialect:
    """What differs between database systems.

    Attributes
    ----------
    name : str
    number : str
        A column as a number in double precision, NULL where it is none; {} stands for the column.
    numeric : str
        The same for a column of numbers, where text may be a number too.
    text : str
        A column as text.
    greatest : str
        The function that returns the largest of its arguments.
    product : str
        The product of a column over the rows of a group; {} stands for the column.
    most_columns : int or None
        Columns that a subquery may have, and SELECTs that a UNION ALL may join.
    """

    name: str
    number: str
    numeric: str
    text: str
    greatest: str
    product: str
    most_columns: int | None = None
    most_parts: int | None = None


_MOST_ARGUMENTS = 100  # of a function: SQLite allows 127 by default
# SQLite has no product: it is made of logarithms, the number of negative factors, and whether one
# of them is zero. `nullif` keeps the logarithm from zero.
_BY_LOGARITHMS = (
    "CASE WHEN MIN(ABS({0})) = 0.0 THEN 0.0 ELSE "
    "(1 - 2 * (SUM({0} < 0.0) % 2)) * EXP(SUM(LN(NULLIF(ABS({0}), 0.0)))) END"
)
_DUCKDB_NUMBER = "NULLIF(CAST({} AS DOUBLE), CAST('NaN' AS DOUBLE))"
_SQLITE_NUMBER = "WHEN TYPEOF({0}) IN ('integer', 'real') THEN CAST({0} AS REAL)"
DIALECTS = {
    "duckdb": Dialect(
        "duckdb",
        number=_DUCKDB_NUMBER,
        numeric=_DUCKDB_NUMBER,
        text="CAST({} AS VARCHAR)",
        greatest="GREATEST",
        product="PRODUCT({})",
    ),
    "sqlite": Dialect(
        "sqlite",
        number=f"CASE {_SQLITE_NUMBER} END",
        numeric=f"CASE {_SQLITE_NUMBER} WHEN JSON_VALID({{0}}) THEN "
        "CASE WHEN JSON_TYPE({0}) IN ('integer', 'real') THEN CAST({0} AS REAL) END END",
        text="CAST({} AS TEXT) COLLATE BINARY",  # a column may compare without case
        greatest="MAX",
        product=_BY_LOGARITHMS,
        most_columns=1900,  # of 2000
        most_parts=450,  # of 500
    ),
}


def resolve(dialect: str) -> Dialect:
    """Return the dialect of that name."""
    if dialect not in DIALECTS:
        raise ValueError(
            f"Unknown dialect {dialect!r}. Choose from: {', '.join(sorted(DIALECTS))}."
        )
    return DIALECTS[dialect]


def _checked(text: str) -> str:
    """Return a text that a query can have."""
    if "\0" in text:
        raise ValueError(
            f"{text!r} has a null character, which ends a query. Give the column or the category "
            "another name before the model is fitted."
        )
    return text


def name(identifier: str) -> str:
    """Return a quoted name.

    >>> print(name('the "old" town'))
    "the ""old"" town"
    """
    return '"' + _checked(identifier).replace('"', '""') + '"'


def literal(value: Any) -> str:
    """Return a value as a literal; numbers in double precision have an exponent.

    DuckDB would read them as decimals without one.

    >>> literal(0.5), literal(3), literal("it's"), literal(True)
    ('0.5e0', '3', "'it''s'", 'TRUE')
    """
    if isinstance(value, str):
        return "'" + _checked(value).replace("'", "''") + "'"
    if isinstance(value, bool | np.bool_):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | np.integer):
        return str(int(value))
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"SQL has no literal for {number}.")
    text = repr(number)
    return text if "e" in text else f"{text}e0"


def summed(terms: Sequence[str]) -> str:
    """Return the sum of some terms, nested as a balanced tree: systems limit the depth.

    >>> summed(["a", "b", "c"])
    '(a + (b + c))'
    """
    if not terms:
        return "0.0e0"
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return f"({summed(terms[:middle])} + {summed(terms[middle:])})"


def multiplied(factors: Sequence[str]) -> str:
    """Return the product of some factors, nested as a balanced tree."""
    if len(factors) == 1:
        return factors[0]
    middle = len(factors) // 2
    return f"({multiplied(factors[:middle])} * {multiplied(factors[middle:])})"


def greatest(dialect: Dialect, values: Sequence[str]) -> str:
    """Return the largest of some values, in calls of few arguments: systems limit their number.

    >>> greatest(DIALECTS["sqlite"], ["a", "b", "c"])
    'MAX(a, b, c)'
    """
    while len(values) > _MOST_ARGUMENTS:
        some = [values[k : k + _MOST_ARGUMENTS] for k in range(0, len(values), _MOST_ARGUMENTS)]
        values = [greatest(dialect, each) for each in some]
    return f"{dialect.greatest}({', '.join(values)})" if len(values) > 1 else values[0]


def within_single(largest: str) -> str:
    """Return a condition: the largest product, without its sign, has a number of single precision.

    `predict` refuses other rows. NaN, which DuckDB takes for larger than all, fails it too.
    """
    return f"{largest} <= {literal(float(np.finfo(np.float32).max))}"


def choice(x: str, edges: Sequence[str], results: Sequence[str]) -> str:
    """Return results[k], k the number of edges that are at most x, by a binary search.

    >>> choice("x", ["1", "2"], ["a", "b", "c"])
    'CASE WHEN x < 2 THEN CASE WHEN x < 1 THEN a ELSE b END ELSE c END'
    """
    if not edges:
        return results[0]
    middle = len(edges) // 2
    low = choice(x, edges[:middle], results[: middle + 1])
    high = choice(x, edges[middle + 1 :], results[middle + 1 :])
    return f"CASE WHEN {x} < {edges[middle]} THEN {low} ELSE {high} END"


def clipped(x: str, low: float, high: float) -> str:
    """Return x held within two limits."""
    least, most = literal(low), literal(high)
    return f"CASE WHEN {x} < {least} THEN {least} WHEN {x} > {most} THEN {most} ELSE {x} END"


class Levels:
    """Steps of a query, each on top of the one before: its expressions use the names of all below.

    Every step is materialised: SQLite would otherwise copy an expression to wherever its name
    stands, and some stand in hundreds of places.
    """

    def __init__(self, source: str):
        self.source = source
        self.levels: list[dict[str, str]] = []

    def set(self, level: int, alias: str, expression: str) -> str:
        """Add a named expression to a level, and return its name."""
        while len(self.levels) <= level:
            self.levels.append({})
        self.levels[level][alias] = expression
        return alias

    def steps(self) -> tuple[list[str], str]:
        """Return the steps as text, and the name of the last."""
        out, source, last = [], self.source, ""
        for place, level in enumerate(self.levels):
            if not level:
                continue
            own = ",\n  ".join(f"{text} AS {alias}" for alias, text in level.items())
            everything = f"{last}.*,\n  " if last else ""
            last = f"step{place}"
            out.append(f"{last} AS MATERIALIZED (SELECT {everything}{own}\nFROM {source})")
            source = last
        return out, last

    @property
    def n_columns(self) -> int:
        """How many names there are."""
        return sum(map(len, self.levels))
