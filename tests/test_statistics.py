"""Statistics of parts of a table say what reading the whole table says."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from polyadic.data.columns import Columns
from polyadic.maps import Hat, OneHot
from polyadic.scale import memory
from polyadic.scale.statistics import Statistics, TargetStatistics, touched_shares


def mixed_table(n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    days = np.datetime64("2019-03-01") + rng.integers(0, 900, n_rows).astype("timedelta64[D]")
    words = np.array(["b", "a", "10", "9", None], dtype=object)
    return pa.table(
        {
            "x": pa.array(np.where(rng.random(n_rows) < 0.1, np.nan, rng.normal(size=n_rows))),
            "word": pa.array(rng.choice(words, n_rows).tolist()),
            "flag": pa.array(rng.random(n_rows) < 0.5),
            "sold": pa.array(days),
            "hour": pa.array(pd.to_timedelta(rng.integers(0, 90, n_rows), "h").to_numpy()),
            "whole": pa.array(rng.integers(0, 5, n_rows)),
        }
    )


def gather(table, cuts, **how):
    """Return statistics of the parts of a table, merged."""
    total = Statistics(table, **how)
    for start, stop in pairwise(cuts):
        one = Statistics(table, **how)
        one.add(table.slice(start, stop - start), np.ones(stop - start))
        total.merge(one)
    return total


@pytest.mark.parametrize("features", ["from_dtype", ["whole", "word", "flag"]])
def test_columns_are_those_of_the_whole_table(features):
    table = mixed_table()
    columns, coded = Columns.learn(table, categorical_features=features)
    learnt = gather(table, [0, 7, 90, 400], categorical_features=features).learnt()
    assert [one.column for one in learnt] == columns.columns
    for one, x in zip(learnt, coded):
        own = Hat() if one.column.kind == "numeric" else OneHot()
        maps = own.clone().fit(x), own.clone().fit(one.x, None, one.weight)
        assert maps[0].dim == maps[1].dim
        index, value = maps[0].slots(x)
        for a, b in zip((index, value), maps[1].slots(x)):
            np.testing.assert_array_equal(a, b)
        exact = np.bincount(index[value != 0], minlength=maps[0].dim) / len(x)
        (found,) = touched_shares([one], [maps[1]], len(x))
        if one.column.kind == "categorical":
            np.testing.assert_allclose(found, exact, atol=1e-12)
        else:
            np.testing.assert_allclose(found, exact, atol=0.05)


def test_categories_beyond_the_memory_are_the_rarest():
    words = [f"w{k}" for k in range(400)] + [f"w{k}" for k in range(300)]
    table = pa.table({"word": words, "few": ["a", "b"] * 350})
    statistics = gather(table, [0, 333, 700])
    assert [len(one.column.categories) for one in statistics.learnt()] == [400, 2]
    per_element = memory._MEMBERS * memory._BYTES_PER_ELEMENT / memory._ELEMENT_SHARE
    statistics.limit_categories(302 * per_element)
    word, few = statistics.learnt()
    assert set(word.column.categories) == {f"w{k}" for k in range(300)}
    assert (word.weight == 2).all()
    assert few.column.categories == ("a", "b")


def test_a_month_that_does_not_come_back_is_no_column():
    table = pa.table({"sold": pa.array(np.datetime64("2024-01-01") + np.arange(60))})
    columns, _ = Columns.learn(table)
    assert gather(table, [0, 30, 60]).learn_columns().names == columns.names


def test_columns_that_differ_are_not_merged():
    with pytest.raises(ValueError, match="columns differ"):
        Statistics(pa.table({"a": [1.0]})).merge(Statistics(pa.table({"b": [1.0]})))


def test_moments_of_the_target_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    y, weight = 1e6 + rng.normal(size=(500, 2)), rng.uniform(0.1, 3, 500)
    total = TargetStatistics()
    for part in np.array_split(np.arange(500), [3, 120, 121]):
        total.merge(TargetStatistics.of_numbers(y[part], weight[part]))
    mean = np.average(y, axis=0, weights=weight)
    np.testing.assert_allclose(total.mean, mean, rtol=1e-12)
    spread = np.average((y - mean) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(total.deviation, np.sqrt(spread), rtol=1e-9)
    assert total.n_rows == 500
    np.testing.assert_array_equal(total.low, y.min(axis=0))


@pytest.mark.parametrize("scale", [2.0**990, 2.0**-700, 2.0**-1000])
def test_moments_of_targets_of_any_size_are_those_of_usual_ones(scale):
    rng = np.random.default_rng(0)
    y, weight = rng.normal(size=(500, 2)), rng.uniform(0.1, 3, 500)
    y[:100] = 0.0  # a part without any size
    usual, scaled = TargetStatistics(), TargetStatistics()
    for part in np.array_split(np.arange(500), [100, 120, 121]):
        usual.merge(TargetStatistics.of_numbers(y[part], weight[part]))
        scaled.merge(TargetStatistics.of_numbers(scale * y[part], weight[part]))
    np.testing.assert_allclose(scaled.mean / scale, usual.mean, rtol=1e-12)
    np.testing.assert_allclose(scaled.deviation / scale, usual.deviation, rtol=1e-12)


def test_weights_of_classes_are_those_of_all_rows():
    total = TargetStatistics()
    for labels in (["a", "b"], ["b"]):
        total.merge(TargetStatistics.of_classes(labels, np.full(len(labels), 2.0)))
    assert total.classes.of == {"a": 2.0, "b": 4.0}
    assert total.effective_rows == 6.0
