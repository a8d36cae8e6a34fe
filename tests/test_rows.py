"""Distinct rows, column seeds and folds."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from polyadic import CPClassifier
from polyadic.data.rows import CodedRows, column_seed, distinct_rows, folds

small_tables = st.lists(
    st.tuples(
        st.sampled_from([0.0, -0.0, 1.5, np.nan]),
        st.integers(-1, 2),
        st.integers(-1, 2),
        st.integers(0, 1),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=30,
)


def as_table(rows):
    a, b, c, y, w = zip(*rows)
    columns = [np.array(a), np.array(b), np.array(c)]
    return columns, np.array(y, dtype=float)[:, None], np.array(w, dtype=float)


def contents(columns, y, weight):
    rows, total = distinct_rows(columns, y, weight)
    both = [*columns, *y.T]
    return [tuple(str(c[r] + 0) for c in both) for r in rows], total.tolist()


@given(small_tables, st.integers(0, 100))
def test_distinct_rows_are_distinct_and_keep_the_weight(rows, seed):
    columns, y, weight = as_table(rows)
    assume(weight.sum() > 0)
    found, total = contents(columns, y, weight)
    assert len(set(found)) == len(found)
    assert sum(total) == weight.sum()
    # Shuffled rows, and rows repeated instead of weighted, give the same rows in the same order.
    shuffle = np.random.default_rng(seed).permutation(len(rows))
    moved = [c[shuffle] for c in columns]
    assert contents(moved, y[shuffle], weight[shuffle]) == (found, total)
    repeated = np.repeat(np.arange(len(rows)), weight.astype(int))
    ones = np.ones(len(repeated))
    assert contents([c[repeated] for c in columns], y[repeated], ones) == (found, total)


def test_columns_of_the_same_values_do_not_hide_equal_rows():
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 2, 600) for _ in range(6)]
    y = (columns[0] ^ columns[3])[:, None].astype(float)
    rows, weight = distinct_rows(columns, y, np.ones(600))
    assert len(rows) == len({tuple(c[i] for c in columns) for i in range(600)})
    assert weight.sum() == 600


def test_swapped_columns_give_the_same_rows_in_the_same_order():
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 5, 100) for _ in range(6)]
    y = rng.integers(0, 2, (100, 1)).astype(float)
    rows, _ = distinct_rows(columns, y, np.ones(100))
    swapped, _ = distinct_rows([columns[k] for k in (3, 1, 5, 0, 2, 4)], y, np.ones(100))
    np.testing.assert_array_equal(rows, swapped)


@given(st.integers(0, 10**6), st.booleans())
def test_swapped_columns_of_few_values_give_the_same_rows_in_the_same_order(seed, symmetric):
    """The rows are all pairs of values: the columns differ in weights, or in their names alone."""
    rng = np.random.default_rng(seed)
    first, second = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    y, names = np.zeros((9, 1)), ["a", "b"]
    weight = np.ones(9) if symmetric else rng.permutation(np.arange(1.0, 10.0))
    rows, total = distinct_rows([first, second], y, weight, names)
    swapped, again = distinct_rows([second, first], y, weight, names[::-1])
    np.testing.assert_array_equal(rows, swapped)
    np.testing.assert_array_equal(total, again)


def test_rows_with_other_targets_stay_apart():
    rows, weight = distinct_rows([np.zeros(3)], np.array([[0.0], [1.0], [0.0]]), np.ones(3))
    assert len(rows) == 2
    assert sorted(weight) == [1, 2]


def test_column_seed_depends_on_content_only():
    x = np.random.default_rng(0).normal(size=50)
    assert column_seed(x) == column_seed(x.copy())
    assert column_seed(x) != column_seed(x[::-1])
    assert column_seed(x) != column_seed(x + 1e-9)


def test_folds_are_even_in_size_and_in_target():
    y = np.random.default_rng(0).exponential(size=(1003, 1))
    fold = folds(y, 10, np.random.default_rng(1))
    assert np.bincount(fold).min() >= 99
    means = [y[fold == k].mean() for k in range(10)]
    assert np.ptp(means) < 0.25 * y.std()


def test_copies_are_made_only_where_most_rows_are_repeated():
    x, y = [np.array([0.0, 0.0, 1.0, 2.0])], np.arange(4.0)[:, None]
    often = CodedRows(x, y, np.array([4.0, 3.0, 1.0, 1.0]))
    seldom = CodedRows(x, y, np.array([2.0, 1.0, 1.0, 1.0]))
    all_twice = CodedRows(x, y, np.full(4, 2.0))
    on_purpose = CodedRows([np.arange(4.0)], y, often.weight)  # no columns with two targets
    assert len(often.in_copies(10)) == 9
    assert len(often.in_copies(2)) == 6
    for rows in (seldom, all_twice, on_purpose):
        assert rows.in_copies(10) is rows


@given(hnp.arrays(np.int64, st.integers(1, 20), elements=st.integers(1, 30)), st.floats(1e-3, 1e3))
def test_copies_keep_the_weight_of_every_row_whatever_the_unit(counts, unit):
    n = len(counts)
    each = np.random.default_rng(0).uniform(0.5, 2.0, n)  # such as class weights
    y = np.arange(float(n))[:, None]
    rows = CodedRows([np.zeros(n)], y, unit * counts * each, unit * counts)
    copies = rows.in_copies(10)
    assert np.allclose(np.bincount(copies.y[:, 0].astype(int), copies.weight), rows.weight)
    assert len(copies) == len(replace(rows, counts=1.0 * counts).in_copies(10))


def test_a_table_of_repeated_rows_is_learnt_cell_by_cell():
    # The probability of each pair of categories is drawn alone, so only its own rows tell of it.
    rng = np.random.default_rng(0)
    chance = np.where(rng.random((10, 10)) < 0.5, 0.1, 0.9)
    X = rng.integers(0, 10, (2000, 2))
    y = (rng.random(2000) < chance[X[:, 0], X[:, 1]]).astype(int)
    model = CPClassifier(categorical_features=[0, 1], random_state=0, n_jobs=1).fit(X, y)
    cells = np.array([(a, b) for a in range(10) for b in range(10)])
    found = model.predict_proba(cells)[:, 1]
    assert np.mean((found > 0.5) == (chance.ravel() > 0.5)) > 0.95
    assert np.mean((found - chance.ravel()) ** 2) < 0.02
