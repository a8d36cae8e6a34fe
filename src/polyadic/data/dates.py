"""Dates and times as the parts that people speak of.

A moment is a year with its fraction, which makes a trend, and a month, a weekday and an hour, which
come back: they are categories on a circle. A time of day is its hour; a duration is its days.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np

from polyadic.data.tables import Scalar, Values, is_missing

CIRCLES: dict[str, tuple[Scalar, ...]] = {
    "month": (
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "hour": tuple(range(24)),
}
TRENDS = ("year", "days")  # numbers
PARTS = (*TRENDS, *CIRCLES)

_TIMES = (nw.Date, nw.Datetime, nw.Time, nw.Duration)
# A part is worth a column where moments are further apart than this: otherwise none of its values
# comes back, and it says nothing that the trend does not.
_PERIOD = {
    "month": np.timedelta64(366, "D"),
    "weekday": np.timedelta64(7, "D"),
    "hour": np.timedelta64(1, "D"),
}
_DAY = np.timedelta64(1, "D")
_DAYS_PER_YEAR = 365.2425  # of the Gregorian calendar
_FINE = ("us", "ns", "ps", "fs", "as")  # units of which microseconds do not overflow
_MONDAY = 3  # 1970-01-01 was a Thursday, the fourth day


def holds_dates(values: Values) -> bool:
    """Return whether a column has a type of dates, times or durations."""
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "mM"
    return isinstance(values.dtype, _TIMES) or _has_zone(values)


def useful_parts(values: Values) -> list[str]:
    """Return the parts that a column of dates is read as.

    >>> useful_parts(np.array(["2024-05-31", "2024-06-30", "NaT"], dtype="datetime64[D]"))
    ['year', 'weekday']
    """
    if _is_time(values):
        return ["hour"]
    moments = _moments(values)
    if moments.dtype.kind == "m":
        return ["days"]
    known = moments[~np.isnat(moments)]
    span = np.ptp(known) if len(known) else np.timedelta64(0, "D")
    found = [part for part in CIRCLES if repeats(part, span)]
    return ["year", *(part for part in found if len(np.unique(_place(known, part))) > 1)]


def repeats(part: str, span: np.timedelta64 | float) -> bool:
    """Return whether a part comes back within a time, given as such or in years.

    >>> repeats("hour", np.timedelta64(30, "h")), repeats("month", 0.8)
    (True, False)
    """
    if isinstance(span, np.timedelta64):
        return bool(span > _PERIOD[part])
    return bool(span * _DAYS_PER_YEAR > _PERIOD[part] / _DAY)


def read_part(values: Values, part: str, label: str) -> np.ndarray:
    """Return a part of each row: float64, NaN for missing, or its place on the circle, -1.

    >>> days = np.array(["2024-07-02", "NaT"], dtype="datetime64[D]")
    >>> read_part(days, "year", "Column 0"), read_part(days, "month", "Column 0")
    (array([2024.5,    nan]), array([ 6, -1]))
    """
    if isinstance(values, nw.Series) and isinstance(values.dtype, nw.Time) and part == "hour":
        hours = [-1 if is_missing(time) else time.hour for time in values.to_list()]
        return np.array(hours, dtype=np.int64)
    known = holds_dates(values) and not _is_time(values)
    moments = _moments(values) if known else _from_objects(values, part)
    if moments is None or (moments.dtype.kind == "m") != (part == "days"):
        wanted, how = ("durations", "timedelta") if part == "days" else ("dates", "datetime")
        raise ValueError(
            f"{label} was fitted on {wanted}, and has the type {_dtype(values)}. Convert it, by "
            f"pandas.to_{how} for example; NaT means missing."
        )
    if part == "days":
        return moments / _DAY
    missing = np.isnat(moments)
    if part == "year":
        return np.where(missing, np.nan, _years(moments))
    return np.where(missing, -1, _place(moments, part))


def read_moment(value: Any, part: str, label: str) -> np.ndarray:
    """Return a part of one value, as a person gives it: a date, a time, or text such as 2024-05-31.

    >>> read_moment("2024-05-31", "month", "Column 'sold'")
    array([4])
    """
    if part == "hour" and isinstance(value, dt.time):
        return np.array([value.hour])
    try:
        if isinstance(value, Real):
            raise TypeError("a number is no date")
        if isinstance(value, str) and part != "days":
            value = dt.datetime.fromisoformat(value)
        moment = np.array([_without_zone(value)], dtype=_kind(part))
        return read_part(moment, part, label)
    except (TypeError, ValueError) as error:
        what = "duration" if part == "days" else "date"
        raise ValueError(f"{label} is made of a {what}, and {value!r:.40} is none.") from error


def _kind(part: str) -> str:
    return "timedelta64[us]" if part == "days" else "datetime64[us]"


def _without_zone(value: Any) -> Any:
    """Return a moment of the standard library or pandas as the clock on the wall shows it."""
    return value if getattr(value, "tzinfo", None) is None else value.replace(tzinfo=None)


def _from_objects(values: Values, part: str) -> np.ndarray | None:
    """Return a column of another type, if every value is missing, a date or a duration."""
    items = values.tolist() if isinstance(values, np.ndarray) else values.to_list()
    wanted = dt.timedelta if part == "days" else dt.date  # of which datetime is a kind
    if not all(isinstance(item, wanted) or is_missing(item) for item in items):
        return None
    plain = [None if is_missing(item) else _without_zone(item) for item in items]
    return np.array(plain, dtype=_kind(part))


def _is_time(values: Values) -> bool:
    return isinstance(values, nw.Series) and isinstance(values.dtype, nw.Time)


def _has_zone(values: nw.Series) -> bool:
    """Return whether pandas has a time zone for a column; narwhals does not know all such types."""
    return getattr(getattr(values.to_native(), "dtype", None), "tz", None) is not None


def _dtype(values: Values) -> Any:
    native: Any = values if isinstance(values, np.ndarray) else values.to_native()
    return native.dtype if hasattr(native, "dtype") else native.type


def _moments(values: Values) -> np.ndarray:
    """Return a column as datetime64 of the clock on the wall, or as timedelta64."""
    array = values if isinstance(values, np.ndarray) else _wall(values).to_numpy()
    out = array.astype(f"{'timedelta64' if array.dtype.kind == 'm' else 'datetime64'}[us]")
    _check_range(array, out)
    return out


def _check_range(given: np.ndarray, moments: np.ndarray) -> None:
    """Refuse what has no number of microseconds in 64 bits: NumPy makes another time of it."""
    if np.datetime_data(given.dtype)[0] in _FINE:
        return
    wrong = (moments.astype(given.dtype) != given) & ~np.isnat(given)
    if np.any(wrong):
        raise ValueError(
            f"X has the date or duration {given[wrong][0].astype(np.int64)} in units of "
            f"{given.dtype}, which is more than 292,000 years from 1970, or from zero. Mark it as "
            "missing by NaT, or give the column as numbers."
        )


def _wall(values: nw.Series) -> nw.Series:
    """Return moments without their time zone, in microseconds."""
    if isinstance(values.dtype, nw.Datetime) and values.dtype.time_zone is not None:
        values = values.dt.replace_time_zone(None)
    elif _has_zone(values):
        native: Any = values.to_native()
        values = nw.from_native(native.dt.tz_localize(None), series_only=True)
    lasting = isinstance(values.dtype, nw.Duration)
    return values.cast(nw.Duration("us") if lasting else nw.Datetime("us"))


def _years(moments: np.ndarray) -> np.ndarray:
    """Return years with their fraction."""
    year = moments.astype("datetime64[Y]")
    begin, end = (y.astype("datetime64[us]") for y in (year, year + np.timedelta64(1, "Y")))
    return 1970.0 + year.astype(np.int64) + (moments - begin) / (end - begin)


def _place(moments: np.ndarray, part: str) -> np.ndarray:
    """Return the places of moments on the circle of a part."""
    if part == "month":
        return moments.astype("datetime64[M]").astype(np.int64) % 12
    if part == "weekday":
        return (moments.astype("datetime64[D]").astype(np.int64) + _MONDAY) % 7
    return moments.astype("datetime64[h]").astype(np.int64) % 24


def part_from_json(
    n: int, entry: Mapping[str, Any], kind: str, categories: tuple[Scalar, ...] | None
) -> tuple[str | None, str | None]:
    """Return which part of which column a column is; refuse what no column of dates has."""
    part, part_of = entry.get("part"), entry.get("part_of")
    if part is None and part_of is None:
        return None, None
    known = CIRCLES.get(part, ()) if isinstance(part, str) else ()
    fits = kind == ("categorical" if known else "numeric") and set(categories or ()) <= set(known)
    if part not in PARTS or not isinstance(part_of, str) or not fits:
        raise ValueError(
            f"column {n} is the part {part!r} of {part_of!r}. A part is one of {', '.join(PARTS)}, "
            "of a column given by its name, with categories of its own."
        )
    return part, part_of
