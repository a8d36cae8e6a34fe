"""Tables that are refused, and with which message."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from frames import FRAMES, frames, tables

from polyadic.data.columns import Columns


@tables
@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
def test_infinity_is_refused_with_advice(make, infinity):
    table = make({"a": [1.0, 2.0, 3.0], "b": [infinity, 1.0, infinity]})
    message = r"Column ('b'|1) holds infinity in 2 of 3 rows\. .* NaN, which means missing"
    with pytest.raises(ValueError, match=message):
        Columns.learn(table)
    columns, _ = Columns.learn(make({"a": [1.0], "b": [1.0]}))
    with pytest.raises(ValueError, match=message):
        columns.code(table)


@frames
def test_text_in_a_numeric_column_of_a_frame_is_refused(make):
    table = make({"a": [1.0, 2.0], "b": [None, "1.5"]})
    for choice in (None, ["a"]):
        with pytest.raises(ValueError, match=r"Column 'b' is numeric but holds '1.5'.*categorical"):
            Columns.learn(table, categorical_features=choice)
    columns, _ = Columns.learn(make({"a": [1.0], "b": [1.0]}))
    with pytest.raises(ValueError, match=r"'b' .* '1.5'.*CPRegressor was fitted on numbers here"):
        columns.code(table, estimator_name="CPRegressor")


@pytest.mark.parametrize("dtype", [object, str, "T", "list"])
def test_text_in_an_array_is_refused(dtype):
    X = [[1.0, 2.0], [3.0, "red"]]
    X = X if dtype == "list" else np.array(X, dtype=object)[:, 1:].astype(np.dtype(dtype))
    message = r"Column [01] is numeric but holds '(2.0|red)'.*Pass categorical_features=\[\.\.\.\]"
    with pytest.raises(ValueError, match=message + " or a DataFrame"):
        Columns.learn(X)


NEITHER = [b"raw"]


def has_a_type(make, value):
    """Return False where pandas holds the value as an object, that is, as a category."""
    table = make({"bytes": [value]})
    return not isinstance(table, pd.DataFrame) or table["bytes"].dtype != object


@pytest.mark.parametrize(
    ("make", "value"),
    [
        pytest.param(make, value, id=f"{name}-{type(value).__name__}")
        for name, make in FRAMES.items()
        for value in NEITHER
        if has_a_type(make, value)
    ],
)
def test_types_that_are_neither_numbers_nor_categories_are_refused(make, value):
    table = make({"a": [1.0, 2.0], "bytes": [value, value]})
    with pytest.raises(ValueError, match=r"Column 'bytes' has the type .*drop it, or name it"):
        Columns.learn(table)
    with pytest.raises(ValueError, match=r"Column 'bytes' has the type"):
        Columns.learn(table, categorical_features=None)


def test_dates_in_a_column_of_numbers_are_refused():
    columns, _ = Columns.learn(pd.DataFrame({"when": [1.0, 2.0]}))
    days = pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    with pytest.raises(ValueError, match=r"Column 'when' has the type datetime64"):
        columns.code(days)


@pytest.mark.parametrize("value", [["red", "round"], {"k": 1}], ids=["list", "dict"])
@pytest.mark.parametrize("choice", ["from_dtype", ["tags"], None])
@frames
def test_several_values_in_one_row_are_refused(make, value, choice):
    table = make({"a": [1.0, 2.0], "tags": [value, value]})
    with pytest.raises((ValueError, TypeError), match="Column 'tags'") as refused:
        Columns.learn(table, categorical_features=choice)
    if choice is not None:
        assert "several values in one row. Give each its own column" in str(refused.value)
    columns, _ = Columns.learn(make({"a": [1.0, 2.0], "tags": ["red", "round"]}))
    with pytest.raises(ValueError, match=r"Column 'tags' (holds|has the type) .*several values"):
        columns.code(table)


def test_a_tuple_with_a_list_in_it_is_refused():
    table = pd.DataFrame({"tags": [("red", 1), ("red", [1])]})
    with pytest.raises(ValueError, match=r"'tags' holds \('red', \[1\]\), a tuple: several values"):
        Columns.learn(table)


@pytest.mark.parametrize(
    "table",
    [np.empty((0, 3)), pd.DataFrame({"a": []}), pl.DataFrame({"a": []}), pa.table({"a": []})],
    ids=["numpy", "pandas", "polars", "pyarrow"],
)
def test_a_table_without_rows_is_refused(table):
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\).*by CPRegressor"):
        Columns.learn(table, estimator_name="CPRegressor")


@pytest.mark.parametrize("table", [np.empty((3, 0)), pd.DataFrame(index=[1, 2, 3])])
def test_a_table_without_columns_is_refused(table):
    message = r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required."
    with pytest.raises(ValueError, match=message):
        Columns.learn(table)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (
            np.zeros(3),
            ValueError,
            "Expected 2D array, got 1D array instead(.|\n)*Reshape your data",
        ),
        ([1.0, 2.0], ValueError, "Expected 2D array, got 1D array instead"),
        (np.zeros((2, 2, 2)), ValueError, "Found array with dim 3"),
        (pd.Series([1.0]), ValueError, "Expected a 2-dimensional container"),
        (np.array([[1j]]), ValueError, "Complex data not supported"),
        (scipy.sparse.csr_matrix([[1.0]]), TypeError, r"sparse_output=False.*X\.toarray\(\)"),
        (scipy.sparse.csr_array([[1.0]]), TypeError, r"sparse matrix of shape \(1, 1\).*dense"),
        (np.array([[{"a": 1}]], dtype=object), TypeError, "argument must be .* string.* number"),
        (pl.LazyFrame({"a": [1]}), TypeError, r"lazy table. Call \.collect\(\)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "must differ(.|\n)*'a'"),
        (pa.table([[1], [2]], names=["a", "a"]), ValueError, "must differ(.|\n)*'a'"),
        (pd.DataFrame({"a": [1], 0: [2]}), TypeError, "names are only supported if all"),
    ],
)
def test_what_is_not_a_table_of_numbers_and_categories_is_refused(table, error, message):
    with pytest.raises(error, match=message):
        Columns.learn(table)
