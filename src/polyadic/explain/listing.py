"""Results that print themselves as a small table, and turn into a pandas frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from polyadic.data.tables import is_missing

_MOST_LINES = 40  # of a printed table
_SIGNED = ("lowest", "highest", "largest difference")  # columns whose numbers have a sign


class Listing(ABC):
    """A result that prints itself as a table."""

    @abstractmethod
    def table(self) -> dict[str, list[Any]]:
        """Return the columns of the table by name, as lists of equal length; shares are in 0..1."""

    def footer(self) -> str:
        """Return a line to print below the table, or an empty text."""
        return ""

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("This needs pandas. Install it with: pip install pandas") from error
        return pd.DataFrame(self.table())

    def __repr__(self) -> str:
        table = self.table()
        cells = [[_cell(name, value) for value in values] for name, values in table.items()]
        rows = list(zip(*cells))
        lines = align(tuple(table), rows[:_MOST_LINES])
        if len(rows) > _MOST_LINES:
            lines.append(f"... and {len(rows) - _MOST_LINES} more; see to_pandas().")
        return "\n".join([*lines, *([self.footer()] if self.footer() else [])])


def align(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table, its first column aligned left, the others right.

    >>> align(("column", "share"), [("age", "10.0 %")])
    ['column   share', 'age     10.0 %']
    """
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
        for row in (head, *rows)
    ]


def amount(value: Any) -> str:
    """Write one value of a row.

    >>> amount(8.3252), amount(1432.0), amount(35682.25), amount("Sales"), amount(None)
    ('8.325', '1,432', '35,682', 'Sales', 'missing')
    """
    if is_missing(value):
        return "missing"
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return str(value)
    number = float(value)
    if number.is_integer() and abs(number) < 1e9:
        return f"{number:,.0f}"
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e9 else f"{number:.4g}"


def percent(share: float) -> str:
    """Write a share for a sentence or a label.

    >>> percent(0.1234), percent(0.0042), percent(0.0001), percent(0.0)
    ('12 %', '0.4 %', '< 0.1 %', '0 %')
    """
    if 0 <= share < 5e-4:
        return "< 0.1 %" if share else "0 %"
    return f"{100 * share:.0f} %" if share >= 0.0095 else f"{100 * share:.1f} %"


def aligned_percent(share: float) -> str:
    """Write a share for a table: one decimal, whatever its size.

    >>> aligned_percent(0.1234), aligned_percent(0.0)
    ('12.3 %', '0.0 %')
    """
    return f"{100 * share:.1f} %"


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if "share" in name:
        return aligned_percent(value)
    return f"{value:+.3g}" if name in _SIGNED else f"{value:.3g}"
