"""Columns of dates: which parts they become, and that these are read the same everywhere."""

import datetime as dt
import json
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from frames import FRAMES, frames
from hypothesis import given
from hypothesis import strategies as st

from polyadic import CPClassifier, CPRegressor, explain, load, plots
from polyadic.data.columns import Columns
from polyadic.data.dates import CIRCLES, read_moment, read_part, useful_parts
from polyadic.maps import Fourier, OneHot
from polyadic.maps.base import knot_share

HOURS = [dt.datetime(2021, 1, 1) + dt.timedelta(hours=7 * k) for k in range(1500)]


def table(n_rows=400, seed=0):
    """Return moments of eight years and a number, and a target by month, hour and number."""
    rng = np.random.default_rng(seed)
    when = np.datetime64("2016-01-01T00:00", "s") + rng.integers(0, 8 * 365 * 86_400, n_rows)
    X = pd.DataFrame({"size": rng.normal(size=n_rows), "when": pd.to_datetime(when)})
    month, hour = X.when.dt.month, X.when.dt.hour
    y = np.cos(2 * np.pi * month / 12) + (hour >= 12) + X["size"] + 0.05 * rng.normal(size=n_rows)
    return X, y.to_numpy()


@pytest.fixture(scope="module")
def fitted():
    X, y = table()
    return CPRegressor(n_members=1, random_state=0).fit(X, y), X, y


# ---- parts ---------------------------------------------------------------------------------------


@given(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9998, 12, 31)))
def test_parts_are_those_of_the_standard_library(moment):
    values = np.array([moment], dtype="datetime64[us]")
    assert CIRCLES["month"][read_part(values, "month", "")[0]] == moment.strftime("%B")
    assert CIRCLES["weekday"][read_part(values, "weekday", "")[0]] == moment.strftime("%A")
    assert read_part(values, "hour", "")[0] == moment.hour
    start, end = dt.datetime(moment.year, 1, 1), dt.datetime(moment.year + 1, 1, 1)
    share = (moment - start) / (end - start)
    assert read_part(values, "year", "")[0] == pytest.approx(moment.year + share, abs=1e-9)


@frames
def test_every_kind_of_table_gives_the_same_parts(make):
    columns, coded = Columns.learn(make({"when": [*HOURS, None], "x": range(len(HOURS) + 1)}))
    names = ["when (year)", "when (month)", "when (weekday)", "when (hour)", "x"]
    assert columns.names == names
    assert columns.sources == ["when", "x"]
    assert [c.kind for c in columns.columns] == ["numeric", *["categorical"] * 3, "numeric"]
    assert columns.columns[1].categories == CIRCLES["month"]
    assert coded[1][:-1].tolist() == [moment.month - 1 for moment in HOURS]
    assert coded[2][:-1].tolist() == [moment.weekday() for moment in HOURS]
    assert coded[3][:-1].tolist() == [moment.hour for moment in HOURS]
    assert np.isnan(coded[0][-1])
    assert [own[-1] for own in coded[1:4]] == [-1, -1, -1]


@pytest.mark.parametrize(
    ("first", "step", "count", "parts"),
    [
        ("2020-01-01", "1h", 20, ["year"]),
        ("2020-01-01", "1h", 30, ["year", "hour"]),
        ("2020-01-01", "1D", 30, ["year", "weekday"]),
        ("2020-01-01", "7D", 30, ["year"]),
        ("2020-01-01", "1D", 500, ["year", "month", "weekday"]),
        ("2020-01-01", "YS", 30, ["year", "weekday"]),
    ],
)
def test_a_part_is_made_where_its_values_come_back(first, step, count, parts):
    days = pd.Series(pd.date_range(first, periods=count, freq=step))
    assert useful_parts(days.to_numpy()) == parts


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "pandas-pyarrow"])
def test_a_time_of_day_is_its_hour(kind):
    times = [dt.time(9, 30), None, dt.time(23, 59)]
    columns, coded = Columns.learn(FRAMES[kind]({"at": times, "x": [1.0, 2.0, 3.0]}))
    assert columns.names == ["at (hour)", "x"]
    assert columns.columns[0].categories == (9, 23)
    assert coded[0].tolist() == [0, -1, 1]


@frames
def test_a_duration_is_its_days(make):
    lengths = [dt.timedelta(days=2), None, dt.timedelta(hours=12)]
    columns, coded = Columns.learn(make({"took": lengths}))
    assert columns.names == ["took (days)"]
    np.testing.assert_array_equal(coded[0], [2.0, np.nan, 0.5])


def test_moments_with_a_time_zone_are_read_from_the_clock_on_the_wall():
    zone = ZoneInfo("America/New_York")
    here = [moment.replace(tzinfo=zone) for moment in HOURS]
    for make in (pd.Series, pl.Series):
        series = make(here) if make is pd.Series else make(here, dtype=pl.Datetime("us", zone.key))
        frame = pd.DataFrame({"t": series}) if make is pd.Series else pl.DataFrame({"t": series})
        coded = Columns.learn(frame)[1]
        assert coded[3].tolist() == [moment.hour for moment in HOURS]


def test_an_array_of_dates_has_parts_by_position():
    days = np.arange("2020-01-01", "2022-01-01", dtype="datetime64[D]")
    columns, _ = Columns.learn(days[:, None])
    assert columns.names == ["x0 (year)", "x0 (month)", "x0 (weekday)"]
    assert columns.sources == ["x0"]


def test_dates_that_are_named_as_categories_stay_categories():
    X, _ = table(20)
    columns, _ = Columns.learn(X, categorical_features=["when"])
    assert columns.names == ["size", "when"]
    assert columns.columns[1].kind == "categorical"
    assert Columns.learn(X, categorical_features=None)[0].names[1:2] == ["when (year)"]


def test_columns_survive_json():
    columns, _ = Columns.learn(table(50)[0])
    assert Columns.from_json(json.loads(json.dumps(columns.to_json()))) == columns


@pytest.mark.parametrize(
    "change",
    [
        {"part": "minute"},
        {"part": 3},
        {"part": None},
        {"part_of": 3},
        {"kind": "numeric"},
        {"categories": ["Smarch"]},
    ],
)
def test_parts_that_no_date_has_are_refused(change):
    state = Columns.learn(table(50)[0])[0].to_json()
    state["columns"][2] |= change
    with pytest.raises(ValueError, match="column 2"):
        Columns.from_json(state)


def test_a_column_with_the_name_of_a_part_is_refused():
    X, _ = table(50)
    with pytest.raises(ValueError, match=r"'when \(month\)', as another column is"):
        Columns.learn(X.assign(**{"when (month)": 1.0}))


# ---- maps ----------------------------------------------------------------------------------------


def circle_differences(values, closed):
    """Return the sum of squared differences of neighbours, those of both ends too if closed."""
    around = np.diff(np.append(values, values[0])) if closed else np.diff(values)
    return np.sum(around**2)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 12, 24])
@pytest.mark.parametrize("along", [None, "line", "circle"])
def test_roughness_is_the_sum_of_squared_differences_of_neighbours(along, count):
    own = OneHot(along=along).fit(np.repeat(np.arange(count), 3))
    values = np.random.default_rng(0).normal(size=count)  # by code
    core = np.zeros(own.dim)
    core[own.lookup_] = values
    dense = np.zeros((own.dim, own.dim))
    for k in range(own.dim):
        for offset in range(-2, 3):
            if 0 <= k + offset < own.dim:
                dense[k, k + offset] = own.roughness[k, 2 + offset]
    np.testing.assert_array_equal(dense, dense.T)
    wanted = 0.0 if along is None else circle_differences(values, along == "circle" and count > 2)
    assert core @ dense @ core == pytest.approx(
        wanted * (2 * np.pi / count) ** 2 * knot_share(count)
    )
    # Each code has an element of its own, whatever their order.
    np.testing.assert_array_equal(own.dense(np.arange(count)) @ core, core[0] + values)


def test_a_neighbourhood_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="along='square'"):
        OneHot(along="square").fit(np.arange(3))


def test_parts_have_maps_on_circles_and_take_others_by_name():
    X, y = table(120)
    model = CPRegressor(n_members=1, max_iter=1, random_state=0)
    named = dict(zip(model.fit(X, y).columns_.names, model.maps_))
    assert [named[f"when ({part})"].along for part in CIRCLES] == ["circle"] * 3
    own = {"when (month)": OneHot(), "when (year)": Fourier(1)}
    named = dict(zip(model.set_params(maps=own).fit(X, y).columns_.names, model.maps_))
    assert named["when (month)"].along is None
    assert named["when (hour)"].along == "circle"
    assert isinstance(named["when (year)"], Fourier)
    model.set_params(maps={"when": Fourier(1)}).fit(X, y)  # of the date: for its number
    assert [type(m) for m in model.maps_].count(Fourier) == 1
    with pytest.raises(ValueError, match=r"'when \(month\)' is categorical, and Fourier"):
        model.set_params(maps={"when (month)": Fourier(1)}).fit(X, y)
    with pytest.raises(ValueError, match=r"'when \(second\)', which X does not have"):
        model.set_params(maps={"when (second)": Fourier(1)}).fit(X, y)
    with pytest.raises(ValueError, match=r"'when \(days\)', which there is not. Choose from"):
        model.set_params(maps={"when (days)": Fourier(1)}).fit(X, y)


# ---- models --------------------------------------------------------------------------------------


def test_a_model_of_dates_learns_month_and_hour(fitted):
    model = fitted[0]
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["size", "when"]
    new, target = table(1000, seed=1)
    assert model.score(new, target) > 0.9
    strongest = {row.columns for row in explain.terms(model, top=3).rows}
    assert strongest == {("size",), ("when (month)",), ("when (hour)",)}
    assert list(explain.effects(model)["when (month)"].grid) == list(CIRCLES["month"])


def test_prediction_of_one_row_is_that_of_the_table(fitted):
    model, X, _ = fitted
    for row in (X.iloc[3], X.iloc[3].to_dict(), {"size": X["size"][3], "when": str(X.when[3])}):
        own = explain.shapley(model, X[3:4])
        drawn = plots.waterfall(model, row)
        assert drawn is not None
        np.testing.assert_allclose(
            model.predict(X[3:4]), own.base[0] + own.values[0].sum(), rtol=1e-4
        )


def test_a_row_takes_a_date_as_text_and_none_for_missing():
    assert read_moment("2024-05-31", "weekday", "").tolist() == [4]
    assert read_moment(None, "weekday", "").tolist() == [-1]
    assert read_moment(dt.time(7), "hour", "").tolist() == [7]
    assert read_moment(dt.timedelta(days=3), "days", "").tolist() == [3.0]
    with pytest.raises(ValueError, match="'spring' is none"):
        read_moment("spring", "month", "Column 'sold'")


def test_a_row_with_a_time_zone_is_read_as_the_table_is():
    zone = dt.timezone(dt.timedelta(hours=-5))
    moment = dt.datetime(2024, 5, 1, 23, tzinfo=zone)
    for own in (moment, moment.isoformat(), pd.Timestamp(moment)):
        assert read_moment(own, "hour", "").tolist() == [23]
        assert read_moment(own, "weekday", "").tolist() == [2]
    with pytest.raises(ValueError, match="3 is none"):
        read_moment(3, "days", "Column 'took'")


@pytest.mark.parametrize("missing", [None, np.nan, pd.NaT])
def test_dates_of_another_type_are_read_where_each_is_a_date_or_missing(fitted, missing):
    model, X, _ = fitted
    few = X[:3]
    alone = few[:1].assign(when=pd.Series([missing], dtype=object))
    np.testing.assert_array_equal(model.predict(alone), model.predict(few[:1].assign(when=pd.NaT)))
    objects = few.assign(when=few.when.astype(object))
    np.testing.assert_array_equal(model.predict(objects), model.predict(few))
    rows = few.to_numpy().tolist()
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_array_equal(model.predict(rows), model.predict(few))


def test_a_date_column_without_a_name_is_found_again():
    table = pd.DataFrame({"": pd.to_datetime(HOURS), "b": 1.0})
    columns, coded = Columns.learn(table)
    assert columns.sources == ["", "b"]
    for own, again in zip(coded, columns.code(table)):
        np.testing.assert_array_equal(own, again)


def test_missing_dates_are_neutral_where_training_had_none(fitted):
    model, X, _ = fitted
    missing = X[:5].assign(when=pd.NaT)
    values = explain.shapley(model, missing).values
    np.testing.assert_allclose(values[:, 1:], 0.0, atol=1e-5)


def test_dates_that_arrive_as_text_or_numbers_are_refused(fitted):
    model, X, _ = fitted
    for when in (X.when.astype(str), X.when.astype("int64"), X.when - X.when.min()):
        with pytest.raises(ValueError, match="'when' was fitted on dates, and has the type"):
            model.predict(X.assign(when=when))


def test_a_model_of_dates_is_saved_and_loaded(fitted, tmp_path):
    model, X, _ = fitted
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.columns_ == model.columns_
    assert again.n_features_in_ == 2
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("kind", FRAMES)
def test_other_tables_of_the_same_dates_are_predicted_alike(fitted, kind):
    model, X, _ = fitted
    few = X[:50]
    data = {"when": few.when.dt.to_pydatetime().tolist(), "size": few["size"].tolist()}
    np.testing.assert_array_equal(model.predict(FRAMES[kind](data)), model.predict(few))


def test_classes_of_dates():
    X, y = table()
    model = CPClassifier(n_members=1, random_state=0).fit(X, y > np.median(y))
    assert model.score(X, y > np.median(y)) > 0.9
    assert "when (month)" in explain.effects(model).__str__()


def test_order_of_rows_and_columns_does_not_matter(fitted):
    model, X, y = fitted
    turned = CPRegressor(n_members=1, random_state=0).fit(X[["when", "size"]][::-1], y[::-1])
    np.testing.assert_allclose(turned.predict(X), model.predict(X), atol=1e-5)


@pytest.mark.parametrize("kind", ["datetime64[s]", "datetime64[D]", "timedelta64[s]"])
def test_times_that_have_no_number_of_microseconds_are_refused(kind):
    """NumPy would make another time of them, without a word."""
    near, far = np.array([0, 10**8], kind), np.array([0, 10**15], kind)
    assert useful_parts(near)
    with pytest.raises(ValueError, match="more than 292,000 years"):
        useful_parts(far)
