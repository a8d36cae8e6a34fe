"""Read tables of every kind, and turn the values of one column into an array.

Used by `columns`. All that depends on whether a table comes from pandas, Polars, PyArrow, NumPy or
plain lists is here; nothing here is kept by a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

Scalar = str | int | float | bool
Values = np.ndarray | nw.Series  # one column of a table as it was given

JOINABLE = (nw.Categorical, nw.Enum, nw.String, nw.Boolean)  # see `factorise_by_join`
CATEGORICAL = (*JOINABLE, nw.Object)  # the types that are categorical by default

# Rows up to which a pandas table is copied into one array. For more rows a copy costs memory and
# saves no time. Chosen by hand.
FEW_ROWS = 4096


class Table(NamedTuple):
    """A table split into columns: the values of each as they were given."""

    names: list[str]
    named: bool
    values: list[Values]

    def label(self, position: int) -> str:
        """Return how error messages refer to a column: by its name, or by its position."""
        return f"Column {self.names[position]!r}" if self.named else f"Column {position}"


def read_table(X: Any, estimator_name: str) -> Table:
    """Split a table into columns; refuse what is not a table with at least one row and column."""
    try:
        frame = nw.from_native(X, pass_through=True)
        names = list(frame.columns) if isinstance(frame, nw.DataFrame | nw.LazyFrame) else []
    except ValueError as error:
        raise ValueError(
            f"Column names must differ from each other; rename the columns. {error}"
        ) from error
    if isinstance(frame, nw.LazyFrame):
        raise TypeError("X is a lazy table. Call .collect() on it first.")
    if not isinstance(frame, nw.DataFrame):
        return read_array(X, estimator_name)
    if 0 in frame.shape:  # raises scikit-learn's error for an empty table
        check_array(np.empty(frame.shape), estimator=estimator_name)
    named = check_names(names)
    if not named:
        names = generated_names(len(names))
    return Table(names, named, list(frame.iter_columns()))


def plain_frame(X: Any, names: list[str]) -> np.ndarray | None:
    """Return a pandas table of a few rows with these columns as one array; None for any other."""
    if nw.dependencies.is_pandas_dataframe(X) and len(X) <= FEW_ROWS and list(X.columns) == names:
        return X.to_numpy()
    return None


def check_names(names: list) -> bool:
    """Return whether all names are strings; refuse a mixture, as scikit-learn does."""
    strings = [isinstance(name, str) for name in names]
    if any(strings) and not all(strings):
        types = sorted({type(name).__qualname__ for name in names})
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your "
            f"input has {types} as feature name / column name types. Convert them all to strings, "
            "by X.columns = X.columns.astype(str) for example."
        )
    return all(strings)


def read_array(X: Any, estimator_name: str) -> Table:
    """Split an array or a list of rows into columns."""
    if sparse.issparse(X):
        raise TypeError(
            f"X is a sparse matrix of shape {X.shape}, and {estimator_name} reads dense tables "
            "only. Pass the table itself: categories need no encoding. In a pipeline, use "
            "OneHotEncoder(sparse_output=False) and ColumnTransformer(..., sparse_threshold=0); "
            "X.toarray() makes a small matrix dense."
        )
    if isinstance(X, np.ma.MaskedArray):
        X = _without_mask(X)
    if isinstance(X, list | tuple):
        array = np.asarray(X)
        # NumPy turns the numbers of a mixed list into text; keep each value as it is.
        X = np.asarray(X, dtype=object) if array.dtype.kind in "US" else array
    X = check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator_name)
    return Table(generated_names(X.shape[1]), False, list(X.T))


def _without_mask(X: np.ma.MaskedArray) -> np.ndarray:
    """Return an array in which masked entries are missing values."""
    if not np.ma.is_masked(X):
        return X.data
    if X.dtype.kind in "fiub":
        return np.ma.filled(X.astype(np.float64), np.nan)
    values = X.data.astype(object)
    values[np.ma.getmaskarray(X)] = None
    return values


def series_names(y: Any) -> list[str] | None:
    """Return the name of a series, or those of the columns of a table; None for any other array.

    >>> import pandas as pd
    >>> series_names(pd.Series([1.0], name="price")), series_names(np.ones(1))
    (['price'], None)
    """
    found: Any = nw.from_native(y, allow_series=True, pass_through=True)
    if not isinstance(found, nw.Series | nw.DataFrame):
        return None
    names = [found.name] if isinstance(found, nw.Series) else list(found.columns)
    return names if all(isinstance(name, str) and name for name in names) else None


def generated_names(n_columns: int) -> list[str]:
    """Return x0, x1, ..., as scikit-learn does."""
    return [f"x{position}" for position in range(n_columns)]


def n_rows(X: Any) -> int:
    """Return the number of rows of any table, without reading it."""
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape else len(X)


def listing(names: Sequence[Scalar], most: int = 10) -> str:
    """Return the names as text, separated by commas; only the first `most` of them."""
    tail = [f"... ({len(names) - most} more)"] if len(names) > most else []
    return ", ".join([repr(name) for name in names[:most]] + tail)


def is_null(values: nw.Series) -> bool:
    """Return whether a column has the type that libraries give to a column without any value."""
    return isinstance(values.dtype, nw.Unknown) and values.null_count() == len(values)


_SEVERAL_VALUES = (
    "several values in one row. Give each its own column (scikit-learn's MultiLabelBinarizer makes "
    "columns of lists of labels), turn them into one number or text, or drop the column."
)


def unsuitable(values: Values, label: str) -> ValueError:
    """Return the error for a column that is neither numbers nor categories."""
    native: Any = values if isinstance(values, np.ndarray) else values.to_native()
    dtype = native.dtype if hasattr(native, "dtype") else native.type
    if isinstance(values, nw.Series) and values.dtype.is_nested():
        return ValueError(f"{label} has the type {dtype}: {_SEVERAL_VALUES}")
    return ValueError(
        f"{label} has the type {dtype}, which is neither a number, a date nor a category. Turn it "
        "into numbers or dates (a period by .dt.to_timestamp()), drop it, or name it in "
        "categorical_features to make each distinct value a category."
    )


# ---- numbers ------------------------------------------------------------------------------------


def numbers(values: Values, label: str, hint: str) -> np.ndarray:
    """Return a column as float64, (n,), NaN for a missing number; it may be a view of the table.

    Refuses text and infinity; `hint` is what the error message advises about text.
    """
    array = values if isinstance(values, np.ndarray) else series_to_array(values, label)
    if array.dtype.kind in "mM":
        raise unsuitable(values, label)
    if array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # what overflows is infinite, and refused below
            result = np.ascontiguousarray(array, dtype=np.float64)
    else:
        result = floats_from_objects(array, label, hint)
    n_infinite = int(np.isinf(result).sum())
    if n_infinite:
        raise ValueError(
            f"{label} holds infinity in {n_infinite} of {len(result)} rows. "
            "Replace it by a finite number, or by NaN, which means missing."
        )
    return result


def series_to_array(values: nw.Series, label: str) -> np.ndarray:
    """Return a data frame's column as numbers, or as objects if its type may hold other values."""
    dtype = values.dtype
    if isinstance(dtype, nw.Int128 | nw.UInt128):  # NumPy has none
        values = values.cast(nw.Float64)
    if dtype.is_numeric() and not isinstance(dtype, nw.Decimal):
        return values.to_numpy()
    if isinstance(dtype, (*CATEGORICAL, nw.Decimal)) or is_null(values):
        return np.fromiter(values.to_list(), dtype=object, count=len(values))
    raise unsuitable(values, label)


def floats_from_objects(objects: np.ndarray, label: str, hint: str) -> np.ndarray:
    """Convert objects to float64, (n,); refuse text."""
    text = next((value for value in objects if isinstance(value, str | bytes)), None)
    if text is not None:
        shown = as_scalar(text)  # 'a', not np.str_('a')
        raise ValueError(f"{label} is numeric but holds {shown!r}, which is text. {hint}")
    try:
        floats = [np.nan if is_missing(value) else float(value) for value in objects]
    except TypeError as error:
        raise TypeError(f"{label}: {error}") from error
    except OverflowError as error:
        raise ValueError(
            f"{label} holds a whole number that no float can hold, beyond 1.8e308. Divide it first."
        ) from error
    return np.array(floats, dtype=np.float64)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # neither NA nor an array has a truth value
        return type(value).__name__ == "NAType"
    except ArithmeticError:  # a signalling NaN among decimals
        return True


# ---- categories ----------------------------------------------------------------------------------


def factorise(values: Values, label: str) -> tuple[np.ndarray, list[Scalar | None]]:
    """Give each distinct value of a column a number; refuse lists, dicts and the like.

    Only distinct values are handled one by one in Python, so a long column with few categories is
    fast; the rows are numbered by the compiled code of each kind of table.

    Returns
    -------
    number : (n,) ints
        Position in `scalars`; -1 for what the table's library itself treats as missing.
    scalars : list
        Distinct values in no particular order; None for missing. In rare cases two are equal.
    """
    if isinstance(values, nw.Series) and values.dtype.is_nested():
        raise unsuitable(values, label)
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufmM":
        array, number = np.unique(values, return_inverse=True)
        distinct = list(array)
    elif isinstance(values, nw.Series) and values.implementation.is_pandas():
        try:
            number, index = values.to_native().factorize()
            distinct = index.tolist()
        except TypeError as error:
            raise unhashable(values.to_list(), label) from error
    elif isinstance(values, nw.Series) and _is_arrow_text(values):
        number, distinct = factorise_arrow(values)
    elif isinstance(values, nw.Series) and isinstance(values.dtype, JOINABLE):
        number, distinct = factorise_by_join(values)
    else:
        items = values.to_list() if isinstance(values, nw.Series) else values.tolist()
        try:
            number, distinct = factorise_list(items)
        except TypeError as error:
            raise unhashable(items, label) from error
    return number, [as_scalar(value) for value in distinct]


def _is_arrow_text(values: nw.Series) -> bool:
    return values.implementation.is_pyarrow() and isinstance(values.dtype, nw.String)


def factorise_arrow(values: nw.Series) -> tuple[np.ndarray, list]:
    """Give each distinct text of a PyArrow column a number, -1 for a missing one."""
    coded = values.to_native().combine_chunks().dictionary_encode()
    return coded.indices.fill_null(-1).to_numpy(), coded.dictionary.to_pylist()


def factorise_by_join(values: nw.Series) -> tuple[np.ndarray, list]:
    """Give each distinct value of a Polars column, or of a PyArrow column, a number."""
    series = values.unique()
    if isinstance(values.dtype, nw.String) and 4 * len(series) > len(values):
        # Where many rows differ, a dict is faster than the join that `replace_strict` does.
        return factorise_list(values.to_list())
    distinct = series.to_list()
    if not any(value is not None for value in distinct):  # PyArrow has no type for such a list
        return np.zeros(len(values), np.int64), [None]
    number = values.replace_strict(distinct, list(range(len(distinct))), return_dtype=nw.Int64)
    return number.to_numpy(), distinct


def factorise_list(values: list) -> tuple[np.ndarray, list]:
    """Give each distinct value of a list a number, with a dict."""
    distinct = list(dict.fromkeys(values))
    position_of = {value: position for position, value in enumerate(distinct)}
    number = np.fromiter(map(position_of.__getitem__, values), dtype=np.int64, count=len(values))
    return number, distinct


def unhashable(values: list, label: str) -> ValueError:
    """Return the error for a column with a list, a dict or another container among its values."""
    first = next(value for value in values if not _has_hash(value))
    return ValueError(f"{label} holds {first!r:.60}, a {type(first).__name__}: {_SEVERAL_VALUES}")


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:  # also a tuple with a list in it
        return False
    return True


def as_scalar(value: Any) -> Scalar | None:
    """Return a value as str, int, float or bool, other types by their text; None if missing."""
    if isinstance(value, str):
        return str(value)
    if is_missing(value):
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    return str(value)
