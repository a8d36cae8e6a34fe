"""The kinds of table that hold the same data; a test over all of them is marked with `tables`."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest


def rows(data):
    """Return the table as a list of rows."""
    return [list(row) for row in zip(*data.values())]


def nullable(data):
    with np.errstate(invalid="ignore"):  # pandas 2 warns of infinity
        return pd.DataFrame(data).convert_dtypes()


FRAMES = {
    "pandas": pd.DataFrame,
    "pandas-pyarrow": lambda data: pa.table(data).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas-nullable": nullable,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
}
ARRAYS = {"numpy": lambda data: np.array(rows(data), dtype=object), "list": rows}
TABLES = FRAMES | ARRAYS

frames = pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
arrays = pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
tables = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
