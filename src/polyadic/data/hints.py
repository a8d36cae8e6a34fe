"""Warnings at fit time of columns that were probably meant in another way."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence

from polyadic.data.columns import Column

# Both chosen by hand: on fewer rows all values of a column may differ by chance.
_FEWEST_ROWS = 20
_UNIQUE_SHARE = 0.95  # of rows whose values differ, from which on a column names its rows

_TEXTS_READ = 50  # of a column, to tell whether they are dates
_DATE = re.compile(
    r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})"  # 2024-05-31, 31.5.2024
    r"([T ]\s*\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*([AaPp][Mm])?(Z|[+-]\d{2}:?\d{2})?)?\s*"
)


def warn_of_columns(
    columns: Sequence[Column], n_known: Sequence[float], asked_for: Collection[str] = ()
) -> None:
    """Warn of columns of identifiers, and of dates that are text.

    `n_known` are the rows of each column that are not missing. `asked_for` are the columns that the
    user named as categories: their dates are left alone.
    """
    for column, rows in zip(columns, n_known):
        texts = [value for value in column.categories or () if isinstance(value, str)]
        if len(texts) < 2:
            continue
        if column.name not in asked_for and looks_like_dates(texts):
            warnings.warn(
                f"Column {column.name!r} holds dates as text, such as {texts[0]!r}, and is read as "
                "categories. Convert it by pandas.to_datetime or polars' str.to_datetime: then its "
                "year, month, weekday and hour become columns by themselves.",
                UserWarning,
                stacklevel=2,
            )
        elif rows >= _FEWEST_ROWS and len(texts) >= _UNIQUE_SHARE * rows:
            warnings.warn(
                f"Column {column.name!r} has {len(texts):,} different texts in {rows:,.0f} rows, "
                "as an identifier has. It can say nothing about other rows: drop it.",
                UserWarning,
                stacklevel=2,
            )


def looks_like_dates(texts: Sequence[str]) -> bool:
    """Return whether texts are dates, as far as some of them tell.

    >>> looks_like_dates(["2024-05-31", "2024-06-01T10:30"])
    True
    >>> looks_like_dates(["2024-05-31", "spring"])
    False
    """
    some = texts[:: -(-len(texts) // _TEXTS_READ)]
    return all(_DATE.fullmatch(text) for text in some)
