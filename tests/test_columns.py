"""Laws of the columns: one coding whatever the kind of table, the order of rows or of columns."""

import copy
import datetime
import decimal
import json
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from frames import ARRAYS, FRAMES, arrays, frames, rows, tables
from hypothesis import given
from hypothesis import strategies as st

from polyadic import CPRegressor, explain
from polyadic.data.columns import Column, Columns, n_rows

DATA = {
    "x": [1.5, None, -2.0, 4.0],
    "count": [3, 1, 2, 3],
    "city": ["Ulm", "Bonn", None, "Ulm"],
    "open": [True, False, True, True],
}
CODED = [[1.5, np.nan, -2.0, 4.0], [3, 1, 2, 3], [1, 0, -1, 1], [1, 0, 1, 1]]


def check_coded(coded, expected):
    assert len(coded) == len(expected)
    for array, values in zip(coded, expected):
        assert array.dtype in (np.float64, np.int64)
        np.testing.assert_array_equal(array, values)


# ---- one coding for every kind of table ---------------------------------------------------------


@tables
def test_every_kind_of_table_is_coded_alike(make):
    columns, coded = Columns.learn(make(DATA), categorical_features=[2, 3])
    check_coded(coded, CODED)
    assert [c.kind for c in columns.columns] == ["numeric"] * 2 + ["categorical"] * 2
    assert [c.categories for c in columns.columns] == [None, None, ("Bonn", "Ulm"), (False, True)]
    check_coded(columns.code(make(DATA)), CODED)
    assert n_rows(make(DATA)) == 4


@frames
def test_types_of_a_frame_decide_the_kinds(make):
    columns, coded = Columns.learn(make(DATA))
    check_coded(coded, CODED)
    assert columns.named
    assert columns.names == list(DATA)


@arrays
def test_arrays_are_numeric_and_get_names(make):
    columns, coded = Columns.learn(make({"a": [1, 2], "b": [True, None]}))
    assert columns == Columns([Column("x0", "numeric"), Column("x1", "numeric")], named=False)
    check_coded(coded, [[1, 2], [1, np.nan]])


@frames
@pytest.mark.parametrize("n", [4, 40])  # short and long columns are coded by different code
def test_long_columns_are_coded_like_short_ones(make, n):
    columns, coded = Columns.learn(make({"city": DATA["city"] * n, "open": DATA["open"] * n}))
    check_coded(coded, [CODED[2] * n, CODED[3] * n])
    check_coded(columns.code(make(DATA)), CODED[2:])


@tables
def test_codes_do_not_depend_on_the_order_of_rows(make):
    shuffled = {name: [values[i] for i in (2, 0, 3, 1)] for name, values in DATA.items()}
    columns, coded = Columns.learn(make(DATA), categorical_features=[1, 2, 3])
    other, other_coded = Columns.learn(make(shuffled), categorical_features=[1, 2, 3])
    assert columns == other
    check_coded(other_coded, [array[[2, 0, 3, 1]] for array in coded])


CATEGORY_TYPES = {
    "pandas": pd.DataFrame(
        {"c": pd.Categorical(["b", None, "a", "b"], categories=["c", "b", "a"])}
    ),
    "polars": pl.DataFrame({"c": pl.Series(["b", None, "a", "b"], dtype=pl.Categorical)}),
    "enum": pl.DataFrame({"c": pl.Series(["b", None, "a", "b"], dtype=pl.Enum(["c", "b", "a"]))}),
    "pyarrow": pa.table(
        {"c": pa.DictionaryArray.from_arrays(pa.array([1, None, 2, 1]), ["c", "b", "a"])}
    ),
}


@pytest.mark.parametrize("table", CATEGORY_TYPES.values(), ids=CATEGORY_TYPES)
def test_only_observed_levels_are_categories(table):
    columns, coded = Columns.learn(table)
    ordered = isinstance(table, pl.DataFrame) and table["c"].dtype == pl.Enum
    assert columns.columns[0].categories == (("b", "a") if ordered else ("a", "b"))
    check_coded(coded, [[0, -1, 1, 0] if ordered else [1, -1, 0, 1]])


NUMBER_TYPES = {
    "Int64": pd.DataFrame({"x": pd.array([1, None], dtype="Int64")}),
    "Float64": pd.DataFrame({"x": pd.array([1.0, None], dtype="Float64")}),
    "float16": pd.DataFrame({"x": np.array([1, np.nan], dtype=np.float16)}),
    "polars-uint8": pl.DataFrame({"x": pl.Series([1, None], dtype=pl.UInt8)}),
    "polars-decimal": pl.DataFrame({"x": [decimal.Decimal("1.0"), None]}),
    "pyarrow-decimal": pa.table({"x": [decimal.Decimal("1.0"), None]}),
    "pyarrow-int8": pa.table({"x": pa.array([1, None], pa.int8())}),
    "object-array": np.array([[1], [pd.NA]], dtype=object),
    "decimal-array": np.array([[decimal.Decimal(1)], [None]], dtype=object),
    "float32-array": np.array([[1], [np.nan]], dtype=np.float32),
}


@pytest.mark.parametrize("table", NUMBER_TYPES.values(), ids=NUMBER_TYPES)
def test_every_type_of_number_becomes_float64_with_nan_for_missing(table):
    columns, coded = Columns.learn(table)
    assert columns.columns[0].kind == "numeric"
    check_coded(coded, [[1.0, np.nan]])


ALL_MISSING = {
    "pandas": pd.DataFrame({"x": pd.Series([None, None], dtype=object)}),
    "polars": pl.DataFrame({"x": [None, None]}),
    "pyarrow": pa.table({"x": pa.nulls(2)}),
}


@pytest.mark.parametrize("table", ALL_MISSING.values(), ids=ALL_MISSING)
def test_a_column_that_never_held_a_value_is_missing_throughout(table):
    columns, coded = Columns.learn(table)
    assert columns.columns[0].categories == ()
    check_coded(coded, [[-1, -1]])
    for learnt, missing in [([1.0], np.nan), (["a"], -1)]:
        columns, _ = Columns.learn(pd.DataFrame({"x": learnt}))
        check_coded(columns.code(table), [[missing, missing]])


# ---- categories ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "Float64", "double[pyarrow]"])
def test_a_numeric_table_is_coded_as_a_whole_like_column_by_column(dtype):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]}).astype({"a": dtype})
    later = frame[["b", "a"]]  # in another order the columns are read one by one
    columns, coded = Columns.learn(frame)
    for found in (columns.code(frame), columns.code(later)):
        assert [x.dtype for x in found] == [np.dtype(np.float64)] * 2
        np.testing.assert_array_equal(found, coded)
    chunks = columns.chunks(frame, 2)
    np.testing.assert_array_equal(np.hstack([read() for read in chunks]), coded)


@frames
def test_missing_and_unseen_categories_code_to_minus_one(make):
    columns, _ = Columns.learn(make({"c": ["b", "a", "b"]}))
    check_coded(columns.code(make({"c": ["a", None, "z", "b"]})), [[0, -1, -1, 1]])


def test_every_kind_of_missing_value_codes_to_minus_one():
    values = ["a", None, np.nan, pd.NA, pd.NaT, float("nan"), np.datetime64("NaT")]
    table = np.array([[value] for value in values], dtype=object)
    for X in (table, pd.DataFrame(table, columns=["c"])):
        columns, coded = Columns.learn(X, categorical_features=[0])
        assert columns.columns[0].categories == ("a",)
        check_coded(coded, [[0] + [-1] * 6])


def test_categories_are_plain_scalars_sorted_numbers_before_text():
    values = ["b", np.float64(2.5), 10, np.int64(-1), np.str_("a"), np.bool_(True), (1, 2)]
    values += [datetime.date(2020, 1, 2), decimal.Decimal("1.50")]
    expected = (-1, True, 2.5, 10, "(1, 2)", "1.50", "2020-01-02", "a", "b")
    columns, coded = Columns.learn(pd.DataFrame({"c": pd.Series(values, dtype=object)}))
    assert columns.columns[0].categories == expected
    assert [type(c) for c in columns.columns[0].categories] == [int, bool, float, int] + [str] * 5
    check_coded(coded, [[8, 2, 3, 0, 7, 1, 4, 6, 5]])


def test_categories_are_matched_by_equality_not_by_type():
    columns, _ = Columns.learn(np.array([[2], [1]]), categorical_features=[0])
    check_coded(columns.code(np.array([[1.0], [2.0], [1.5], [np.nan]])), [[0, 1, -1, -1]])
    columns, _ = Columns.learn(np.array([["2"], ["1"]]), categorical_features=[0])
    check_coded(columns.code(np.array([[1], [2]])), [[-1, -1]])


@frames
def test_dates_are_categories_when_asked_for(make):
    days = [datetime.date(2024, 5, 1), None, datetime.date(2023, 5, 1)]
    columns, coded = Columns.learn(make({"day": days}), categorical_features=["day"])
    assert columns.columns[0].categories == ("2023-05-01", "2024-05-01")
    check_coded(coded, [[1, -1, 0]])


def test_dates_of_an_array_are_categories_when_asked_for():
    days = np.array([["2024-05-01"], ["NaT"], ["2023-05-01"]], dtype="datetime64[D]")
    columns, coded = Columns.learn(days, kinds={0: "categorical"})
    assert columns.columns[0].categories == ("2023-05-01", "2024-05-01")
    check_coded(coded, [[1, -1, 0]])


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_codes_give_back_the_text_in_every_kind_of_table(values):
    expected = tuple(sorted({value for value in values if value is not None}))
    for make in (pd.DataFrame, pl.DataFrame, pa.table, ARRAYS["numpy"], ARRAYS["list"]):
        columns, coded = Columns.learn(make({"c": values}), categorical_features=[0])
        column = columns.columns[0]
        assert column.categories == expected
        decoded = [None if code < 0 else column.categories[code] for code in coded[0]]
        assert decoded == values
        check_coded(columns.code(make({"c": values})), coded)


# ---- which columns are categorical --------------------------------------------------------------

TABLE = pl.DataFrame({"a": [1, 2], "b": [3, 4], "c": [0, 1]})


@pytest.mark.parametrize(
    "choice",
    [["b", "c"], [1, 2], [False, True, True], np.array([1, 2]), np.array([False, True, True])]
    + [("b", np.int64(2)), pd.Index(["b", "c"])],
)
def test_names_positions_and_masks_choose_the_same_columns(choice):
    columns, coded = Columns.learn(TABLE, categorical_features=choice)
    assert [c.kind for c in columns.columns] == ["numeric", "categorical", "categorical"]
    check_coded(coded, [[1, 2], [0, 1], [0, 1]])


@pytest.mark.parametrize("choice", [None, [], "from_dtype", [False] * 3])
def test_numbers_are_numeric_unless_chosen(choice):
    columns, _ = Columns.learn(TABLE, categorical_features=choice)
    assert {c.kind for c in columns.columns} == {"numeric"}


def test_kinds_overrule_types_and_choices():
    table = pd.DataFrame({"a": [1, 2], "b": [True, False], "d": pd.to_datetime(["2020", "2021"])})
    kinds = {"a": "categorical", 1: "numeric", "d": "categorical"}
    for choice in ("from_dtype", None, [1]):
        columns, coded = Columns.learn(table, categorical_features=choice, kinds=kinds)
        assert [c.kind for c in columns.columns] == ["categorical", "numeric", "categorical"]
        check_coded(coded, [[0, 1], [1, 0], [0, 1]])


def test_object_columns_of_numbers_are_categorical_by_type_and_numeric_on_request():
    table = pd.DataFrame({"x": pd.Series([2.5, None, 1], dtype=object)})
    columns, coded = Columns.learn(table)
    assert columns.columns[0].categories == (1, 2.5)
    check_coded(coded, [[1, -1, 0]])
    check_coded(Columns.learn(table, kinds={"x": "numeric"})[1], [[2.5, np.nan, 1]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"categorical_features": ["z"]}, r"column 'z'.*'a', 'b', 'c' or the positions 0 to 2"),
        ({"categorical_features": [3]}, r"column 3, which X does not have.*0 to 2"),
        ({"categorical_features": [-1]}, r"column -1, which X does not have"),
        ({"categorical_features": [0.5]}, r"column 0.5, which X does not have"),
        ({"categorical_features": [True]}, r"mask of length 1, but X has 3 columns"),
        ({"categorical_features": "a"}, r"Unknown categorical_features 'a'. Choose 'from_dtype'"),
        ({"kinds": {"z": "numeric"}}, r"maps names the column 'z'"),
        (
            {"kinds": {"a": "ordinal"}},
            r"Unknown kind 'ordinal' of column 'a'. Choose from: numeric, categorical",
        ),
    ],
)
def test_wrong_choices_list_the_right_ones(arguments, message):
    with pytest.raises(ValueError, match=message):
        Columns.learn(TABLE, **arguments)


# ---- finding the columns of a later table -------------------------------------------------------


@frames
@pytest.mark.parametrize("later", FRAMES.values(), ids=FRAMES)
def test_frames_are_matched_by_name_whatever_the_order_and_the_rest(make, later):
    columns, _ = Columns.learn(make(DATA))
    reordered = {"new": [0] * 4} | {name: DATA[name] for name in ("open", "city", "count", "x")}
    check_coded(columns.code(later(reordered)), CODED)


@frames
def test_absent_columns_are_listed(make):
    columns, _ = Columns.learn(make(DATA))
    message = r"X lacks 2 of the 4 columns that CPRegressor was fitted on: 'count', 'open'\."
    with pytest.raises(ValueError, match=message):
        columns.code(make({"x": [1.0], "city": ["Ulm"]}), estimator_name="CPRegressor")


def test_long_lists_of_columns_are_cut_off():
    columns, _ = Columns.learn(pl.DataFrame({f"c{i}": [i] for i in range(13)}))
    with pytest.raises(ValueError, match=r"'c9', \.\.\. \(3 more\)\. X has the columns 'z'"):
        columns.code(pl.DataFrame({"z": [1]}))


@arrays
def test_an_array_after_a_frame_is_matched_by_position_with_a_warning(make):
    columns, _ = Columns.learn(pl.DataFrame(DATA))
    message = "X does not have valid feature names, but CPRegressor was fitted with feature names"
    with pytest.warns(UserWarning, match=message):
        check_coded(columns.code(make(DATA), estimator_name="CPRegressor"), CODED)


@frames
def test_a_frame_after_an_array_is_matched_by_position_with_a_warning(make):
    columns, _ = Columns.learn(rows(DATA), categorical_features=[2, 3])
    message = "X has feature names, but CPRegressor was fitted without feature names"
    with pytest.warns(UserWarning, match=message):
        check_coded(columns.code(make(DATA), estimator_name="CPRegressor"), CODED)


def test_frames_without_string_names_are_matched_by_position():
    columns, coded = Columns.learn(pd.DataFrame({7: [1.0], 3: ["a"]}))
    assert not columns.named
    assert columns.names == ["x0", "x1"]
    check_coded(coded, [[1.0], [0]])
    check_coded(columns.code(pd.DataFrame({3: [2.0], 7: ["a"]})), [[2.0], [0]])
    check_coded(columns.code([[2.0, "a"]]), [[2.0], [0]])


@tables
def test_a_wrong_number_of_columns_is_refused_in_the_words_of_scikit_learn(make):
    columns, _ = Columns.learn(np.zeros((2, 4)))
    message = r"^X has 1 features, but CPRegressor is expecting 4 features as input\.$"
    with pytest.raises(ValueError, match=message):
        columns.code(make({"x": [1.0]}), estimator_name="CPRegressor")


# ---- keeping the columns ------------------------------------------------------------------------


@tables
def test_columns_survive_json_pickle_and_copy(make):
    columns, coded = Columns.learn(make(DATA), categorical_features=[0, 1, 2, 3])
    columns.code(make(DATA))
    kept = [
        Columns.from_json(json.loads(json.dumps(columns.to_json()))),
        pickle.loads(pickle.dumps(columns)),
        copy.deepcopy(columns),
    ]
    for other in kept:
        assert other == columns
        check_coded(other.code(make(DATA)), coded)


def test_a_numeric_column_and_an_empty_one_survive_json():
    columns, _ = Columns.learn(pl.DataFrame({"x": [1.0], "nothing": [None]}))
    assert Columns.from_json(json.loads(json.dumps(columns.to_json()))) == columns


def test_a_pickle_does_not_grow_with_use():
    columns, _ = Columns.learn(pl.DataFrame({"c": ["a", "b"]}))
    fresh = pickle.dumps(Columns(columns.columns, named=True))
    columns.code(pl.DataFrame({"c": ["a"]}))
    assert len(pickle.dumps(columns)) == len(fresh)


def test_reading_does_not_change_the_table():
    array = np.array([[1.0, 2.0], [np.nan, 3.0]])
    before = array.copy()
    array.flags.writeable = False
    Columns.learn(array, categorical_features=[1])
    np.testing.assert_array_equal(array, before)


def test_no_data_frame_library_is_needed():
    code = """
import sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name in {"pandas", "polars", "pyarrow"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent)
from polyadic.data.columns import Columns
print(Columns.learn([[1.0, "a"]], categorical_features=[1])[1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[array([1.]), array([0])]"


ORDER = ["low", "middle", "high", "top"]
ORDERED = {
    "pandas": lambda values: pd.DataFrame({"size": pd.Categorical(values, ORDER, ordered=True)}),
    "polars": lambda values: pl.DataFrame({"size": pl.Series(values, dtype=pl.Enum(ORDER))}),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_ordered_categories_keep_their_order(kind, tmp_path):
    values = ["high", "low", None, "middle", "low", "high"] * 5
    X = ORDERED[kind](values)
    columns, (codes,) = Columns.learn(X)
    assert columns.columns[0].categories == ("low", "middle", "high")  # no row is at the top
    assert codes[:6].tolist() == [2, 0, -1, 1, 0, 2]
    assert Columns.from_json(columns.to_json()).columns == columns.columns
    y = np.arange(30.0)
    model = CPRegressor(n_members=1, max_iter=2, random_state=0).fit(X, y)
    assert explain.effects(model)["size"].grid.tolist() == ["low", "middle", "high"]
    text = X.to_pandas() if kind == "polars" else X
    np.testing.assert_array_equal(model.predict(text.astype(object)), model.predict(X))
