"""Results that print themselves as a small table, and how names and numbers are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import Any, ClassVar

import numpy as np

from polyadic.data.tables import is_missing

# Chosen by hand:
_MOST_LINES = 20  # of a printed table
_GROUPED = 10_000  # numbers from here on have thousands separators: years, such as 1990, have none
_LARGE, _SMALL = 1e9, 1e-4  # numbers beyond are written with powers of ten
_MOST_DECIMALS = 6  # of several numbers; smaller ones are written with powers of ten
_SIGNED = ("adds", "lowest", "highest", "largest difference")  # columns whose numbers have a sign


class Listing(ABC):
    """A result that prints itself as a table.

    The numbers of a column have as many decimals as the largest needs, except in columns whose
    numbers differ in their units, `mixed_units`.
    """

    mixed_units: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def table(self) -> dict[str, list[Any]]:
        """Return the columns of the table by name, as lists of equal length; shares are in 0..1."""

    def footer(self) -> str:
        """Return a line to print below the table, or an empty text."""
        return ""

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return pandas().DataFrame(self.table())

    def __repr__(self) -> str:
        head, rows, notes = self._shown()
        return "\n".join([*align(head, rows), *notes])

    def _repr_html_(self) -> str:
        head, rows, notes = self._shown()
        body = "".join(_html_row("td", row) for row in rows)
        below = "".join(f"<p>{escape(note)}</p>" for note in notes)
        return f"<table><thead>{_html_row('th', head)}</thead><tbody>{body}</tbody></table>{below}"

    def _shown(self) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
        """Return the head, the first lines, and the texts below them."""
        table = self.cells()
        rows = list(zip(*table.values()))
        more = len(rows) - _MOST_LINES
        notes = [f"... and {more} more; table() returns all."] if more > 0 else []
        return tuple(table), rows[:_MOST_LINES], notes + self.footer().splitlines()

    def cells(self) -> dict[str, list[str]]:
        """Return the columns of the table by name, with all numbers as text."""
        return {name: self._cells(name, values) for name, values in self.table().items()}

    def _cells(self, name: str, values: list[Any]) -> list[str]:
        """Write the values of one column of the table."""
        if not values or not isinstance(values[0], float):
            return [str(value) for value in values]
        if "share" in name:
            return [aligned_percent(value) for value in values]
        if name in self.mixed_units:
            return [number(value, 3) for value in values]
        write = Numbers(np.append(values, 0.0), signed=name in _SIGNED, n_digits=3)
        return [write(value) for value in values]


def pandas() -> Any:
    """Return the package pandas, or say how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("This needs pandas. Install it with: pip install pandas") from error
    return pandas


def _html_row(kind: str, cells: tuple[str, ...]) -> str:
    sides = ["left"] + ["right"] * (len(cells) - 1)
    texts = [
        f'<{kind} style="text-align: {side}">{escape(cell)}</{kind}>'
        for side, cell in zip(sides, cells)
    ]
    return f"<tr>{''.join(texts)}</tr>"


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


def number(value: float, digits: int = 4, signed: bool = False) -> str:
    """Write a number with so many significant digits, and all those before the decimal point.

    >>> number(8.32521), number(1990.0), number(35682.25), number(0.5, signed=True), number(2e-7)
    ('8.325', '1990', '35,682', '+0.5', '2e-07')
    """
    size = abs(value)
    sign = "+" if signed else ""
    if not _SMALL <= size < _LARGE:  # zero and NaN too
        return f"{value:{sign if value else ''}.{digits}g}"
    text = fixed(value, max(digits - 1 - int(np.floor(np.log10(size))), 0), signed)
    return _trimmed(text)


def _trimmed(text: str) -> str:
    """Return a number without zeros at its end."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def fixed(value: float, decimals: int, signed: bool = False) -> str:
    """Write a number with so many decimals; a rounded zero has no sign.

    >>> fixed(1990.4, 0), fixed(35682.25, 1), fixed(-0.001, 2), fixed(2.0, 1, signed=True)
    ('1990', '35,682.2', '0.00', '+2.0')
    """
    rounded = round(float(value), decimals) + 0.0
    sign = "+" if signed and rounded else ""
    group = "," if abs(rounded) >= _GROUPED else ""
    return f"{rounded:{sign}{group}.{decimals}f}"


class Numbers:
    """Write numbers with as many decimals as their range needs, at least two digits of it.

    With `trim`, zeros at the end are left out: for values of a column, which may be whole numbers.

    >>> [Numbers(np.array([1.23, 4.5]))(1.23), Numbers(np.array([1990.0, 2010.0]))(1995.0)]
    ['1.2', '1995']
    """

    def __init__(
        self, values: np.ndarray, signed: bool = False, n_digits: int = 2, trim: bool = False
    ):
        known = values[np.isfinite(values)]
        span = float(np.ptp(known)) or float(np.max(np.abs(known))) if len(known) else 0.0
        self.decimals = int(max(n_digits - 1 - np.floor(np.log10(span)), 0)) if span > 0 else 0
        self.signed, self.trim = signed, trim

    def __call__(self, value: float) -> str:
        """Write one of the numbers."""
        if self.decimals > _MOST_DECIMALS or not abs(value) < _LARGE:  # NaN too
            return f"{value:{'+' if self.signed else ''}.3g}"
        text = fixed(value, self.decimals, self.signed)
        return _trimmed(text) if self.trim else text


def amount(value: Any) -> str:
    """Write one value of a row.

    >>> amount(8.3252), amount(1432.0), amount(35682.25), amount("Sales"), amount(None)
    ('8.325', '1432', '35,682', 'Sales', 'missing')
    """
    if is_missing(value):
        return "missing"
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return str(value)
    return number(float(value))


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
