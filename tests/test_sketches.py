"""Summaries of columns: never further from the truth than they say, however rows are divided."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyadic.scale import sketches
from polyadic.scale.sketches import CategoryCounts, NumberSketch, TextCounts


def gathered(parts, kind):
    """Return one summary of all parts, merged from one per part in pairs and one by one."""
    summaries = []
    for part in parts:
        one = kind()
        one.add(*part)
        summaries.append(one)
    while len(summaries) > 1:
        first, second, *rest = summaries
        first.merge(second)
        summaries = [*rest, first]
    return summaries[0]


def worst_rank(sketch, x, weight):
    """Return the largest difference of the share of rows up to a value, over all values."""
    points, own = sketch.points()
    values = np.unique(x)
    truth = [weight[x <= value].sum() for value in values]
    below = np.concatenate(([0.0], np.cumsum(own)))
    found = below[np.searchsorted(points, values, side="right")]
    return np.max(np.abs(found - truth)) / weight.sum()


@given(
    st.integers(1, 2000), st.integers(1, 9), st.integers(0, 2**32), st.sampled_from([1, 20, 10**6])
)
def test_ranks_are_within_the_stated_error(n_rows, n_parts, seed, n_values):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, n_values, n_rows).astype(float)
    weight = rng.integers(1, 4, n_rows).astype(float)
    cuts = np.array_split(rng.permutation(n_rows), n_parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "POINTS", 64)
        sketch = gathered([(x[c], weight[c]) for c in cuts if len(c)], NumberSketch)
    points, own = sketch.points()
    assert points[0] == x.min()
    assert points[-1] == x.max()
    np.testing.assert_allclose(own.sum(), weight.sum(), rtol=1e-9)
    # Between two points, a value may have the rank of either: one point's weight beside the error.
    assert worst_rank(sketch, x, weight) <= sketch.error + own.max() / weight.sum() + 1e-9
    if len(np.unique(x)) <= 64:
        assert sketch.error == 0
        assert worst_rank(sketch, x, weight) == 0


def test_the_error_grows_with_the_logarithm_of_the_rows():
    sketch = NumberSketch()
    for part in range(64):
        sketch.add(np.arange(part, 640_000, 64, dtype=float), np.ones(10_000))
    assert 0 < sketch.error <= (1 + np.log2(64)) / (2 * sketches.POINTS) + 1e-12


def test_missing_numbers_do_not_count():
    sketch = NumberSketch()
    sketch.add(np.array([np.nan, 2.0]), np.ones(2))
    sketch.add(np.array([np.nan]), np.ones(1))
    assert sketch.total == 1
    empty = NumberSketch()
    assert len(empty.points()[0]) == 0
    assert empty.error == 0


@given(st.lists(st.lists(st.integers(0, 60), max_size=80), min_size=1, max_size=8))
def test_counts_are_too_low_by_at_most_the_stated_error(parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "COUNTED", 16)
        each = [({v: float(part.count(v)) for v in set(part)},) for part in parts]
        counts = gathered(each, CategoryCounts)
    rows = [value for part in parts for value in part]
    assert len(counts.of) <= 16
    assert counts.error <= 2 * len(rows) / 16
    for value in set(rows):
        found = counts.of.get(value, 0.0)
        assert rows.count(value) - counts.error - 1e-9 <= found <= rows.count(value)


def test_the_most_frequent_values_do_not_depend_on_the_order():
    first, second = CategoryCounts(), CategoryCounts()
    first.add({"b": 2.0, "a": 2.0, "c": 9.0})
    second.add({"c": 9.0, "a": 2.0, "b": 2.0})
    assert first.most(2) == second.most(2) == {"c": 9.0, "a": 2.0}


@given(st.lists(st.lists(st.text("ab\u00fc\U0001f600", max_size=3), max_size=80), max_size=8))
def test_counts_of_texts_in_arrow_are_those_of_python(parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "COUNTED", 16)
        every, texts = CategoryCounts(), TextCounts()
        for part in parts:
            one, own = CategoryCounts(), TextCounts()
            one.add({value: float(part.count(value)) for value in part})
            own.add(pa.array(part, pa.string()), np.ones(len(part)))
            every.merge(one)
            texts.merge(own)
        assert (texts.of, texts.error) == (every.of, every.error)
        for number in (1, 3, 100):
            assert texts.most(number) == every.most(number)
