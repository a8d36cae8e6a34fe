"""Knots placed by the target."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import polyadic
from polyadic import CPRegressor, maps
from polyadic.kernels.tree import best_splits
from polyadic.maps import profile
from polyadic.maps.profile import Profile

HALF = maps.Hat(n_knots=12, by_target=0.5)


@pytest.fixture(name="column")
def column_and_target():
    """Return a column with ties and missing values, and a target with two jumps and noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400).round(2)
    y = (x > 0.5) - 2.0 * (x > -1.0) + 0.01 * rng.normal(size=400)
    x[rng.random(400) < 0.1] = np.nan
    return x, y


def around(x, jump):
    """Return the values of a column on both sides of a jump."""
    return x[x <= jump].max(), x[x > jump].min()


def n_by_target(hat, x, y):
    """Return how many knots differ from those by quantiles alone."""
    without = maps.Hat(hat.n_knots).fit(x).knots_
    return len(np.setdiff1d(hat.clone().fit(x, y).knots_, without))


# ---- positions -----------------------------------------------------------------------------------


def test_both_sides_of_a_jump_get_a_knot(column):
    x, y = column
    knots = HALF.clone().fit(x, y).knots_
    for jump in (0.5, -1.0):
        assert set(around(x, jump)) <= set(knots)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("n_knots", [2, 3, 4, 5, 30, "auto"])
def test_knots_are_values_of_the_column_and_as_few_as_asked(column, share, n_knots):
    x, y = column
    fit = maps.Hat(n_knots, by_target=share).fit(x, y)
    for hat in (fit, fit.jitter(np.random.default_rng(0))):
        assert 2 <= len(hat.knots_) <= fit._wanted
        assert np.all(np.diff(hat.knots_) > 0)
        assert np.all(np.isin(hat.knots_, x))
        np.testing.assert_array_equal(hat.knots_[[0, -1]], [np.nanmin(x), np.nanmax(x)])


def test_knots_at_a_jump_fit_a_step_that_quantiles_miss():
    x = np.random.default_rng(0).random(2000)
    y = np.where(x > 0.7, 1.0, -1.0)
    error = {}
    for share in (0.0, 0.5):
        hat = maps.Hat(n_knots=8, by_target=share).fit(x, y)
        design = hat.dense(x)
        error[share] = np.mean((design @ np.linalg.lstsq(design, y)[0] - y) ** 2)
    assert error[0.5] < 1e-9 < 0.01 < error[0.0]


def test_without_a_target_knots_lie_on_quantiles(column):
    x, _ = column
    np.testing.assert_array_equal(HALF.clone().fit(x).knots_, maps.Hat(n_knots=12).fit(x).knots_)


@pytest.mark.parametrize("y", [np.zeros(400), np.full(400, 0.1), np.full(400, -1e300)])
def test_a_constant_target_places_no_knots(column, y):
    assert n_by_target(HALF, column[0], y) == 0


def test_a_target_at_both_ends_of_the_float_range_is_followed(column):
    x, _ = column
    y = np.where(x > 0.5, 1.7e308, -1.7e308)
    with np.errstate(all="raise"):
        assert set(around(x, 0.5)) <= set(HALF.clone().fit(x, y).knots_)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_zero_to_three_rows_are_fitted(n):
    x, y = np.arange(float(n)), np.arange(n)
    fit = maps.Hat(n_knots=2, by_target=1.0).fit(x, y)
    assert len(fit.knots_) == max(min(n, 2), 1)
    assert np.isfinite(fit.jitter(np.random.default_rng(0)).knots_).all()


def test_missing_numbers_place_no_knots(column):
    x, y = column
    known = ~np.isnan(x)
    assert HALF.clone().fit(x, y).same_as(HALF.clone().fit(x[known], y[known]))
    nothing = HALF.clone().fit(np.full(5, np.nan), np.arange(5))
    assert nothing.knots_.tolist() == [0.0]


# ---- rows, weights, seeds ------------------------------------------------------------------------


def test_weights_count_as_repeated_rows(column):
    x, y = column
    weight = np.random.default_rng(1).integers(0, 4, size=len(x))
    weighted = HALF.clone().fit(x, y, weight)
    repeated = HALF.clone().fit(np.repeat(x, weight), np.repeat(y, weight))
    assert weighted.same_as(repeated)
    one, other = (m.jitter(np.random.default_rng(1)) for m in (weighted, repeated))
    assert one.same_as(other)


def test_weights_decide_which_jump_counts():
    x = np.arange(100.0)
    y = (x > 30).astype(float) - (x > 70)
    for heavy, jump in ((x < 50, 30.0), (x > 50, 70.0)):
        fit = maps.Hat(n_knots=6, by_target=0.5).fit(x, y, np.where(heavy, 1.0, 1e-3))
        assert {jump, jump + 1} <= set(fit.knots_)


def test_permuting_rows_changes_no_bit(column):
    x, y = column
    weight = np.random.default_rng(2).random(len(x))
    order = np.random.default_rng(3).permutation(len(x))
    one = HALF.clone().fit(x, y, weight)
    assert one.same_as(HALF.clone().fit(x[order], y[order], weight[order]))


def test_a_seed_decides_the_knots_of_a_member(column):
    fit = HALF.clone().fit(*column)
    one, again, other = (fit.jitter(np.random.default_rng(s)) for s in (0, 0, 1))
    assert one.same_as(again)
    assert not one.same_as(other)


def test_members_keep_the_knots_at_a_sharp_jump(column):
    x, y = column
    fit = HALF.clone().fit(x, y)
    for seed in range(5):
        assert set(around(x, 0.5)) <= set(fit.jitter(np.random.default_rng(seed)).knots_)


def test_long_columns_are_read_in_part_and_held_in_groups():
    x = np.random.default_rng(0).permutation(3 * profile.ROWS) / 7.0
    whole = Profile.read(x, x > 5000, None)
    assert len(whole.weight) <= profile.GROUPS
    assert whole.weight.sum() == profile.ROWS
    assert np.all(whole.first <= whole.last)
    assert np.all(whole.last[:-1] < whole.first[1:])
    below, above = whole.jumps(1)
    assert above - below < 2
    assert abs(below - 5000) < (x.max() - x.min()) / profile.GROUPS


# ---- the tree ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_splits", [1, 2, 5, 20])
def test_splits_are_those_of_a_regression_tree(n_splits):
    rng = np.random.default_rng(n_splits)
    x, weight = np.sort(rng.normal(size=300)), rng.random(300) + 0.5
    y = np.sin(3 * x) + 0.3 * rng.normal(size=300)
    y /= np.abs(y).max()
    tree = DecisionTreeRegressor(max_leaf_nodes=n_splits + 1).fit(x[:, None], y, weight).tree_
    expected = np.searchsorted(x, tree.threshold[tree.feature == 0])
    found = best_splits(weight, weight * y, n_splits, 0.0)
    assert sorted(found) == sorted(expected)


def test_leaves_keep_the_least_weight():
    y = np.zeros(100)
    y[0] = 1.0
    assert best_splits(np.ones(100), y, 1, 0.0).tolist() == [1]
    assert best_splits(np.ones(100), y, 1, 20.0).tolist() == [20]
    assert len(best_splits(np.ones(100), y, 1, 51.0)) == 0


# ---- models --------------------------------------------------------------------------------------


def test_members_merge_exactly_and_models_are_saved(column, tmp_path):
    x, y = column
    X = np.column_stack([x, np.random.default_rng(4).normal(size=len(x))])
    hat = maps.Hat(n_knots=10, by_target=0.5)
    model = CPRegressor(maps=hat, rank=4, n_members=3, max_iter=5, random_state=0).fit(X, y)
    assert set(around(x, 0.5)) <= set(model.maps_[0].knots_)
    model.save(tmp_path / "model.polyadic")
    again = polyadic.load(tmp_path / "model.polyadic")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.maps.params() == hat.params()
    assert all(a.same_as(b) for a, b in zip(again.maps_, model.maps_))
    same = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(same.predict(X), model.predict(X))


def test_merged_maps_represent_every_member_exactly(column):
    fit, rng = HALF.clone().fit(*column), np.random.default_rng(0)
    members = [fit, fit.jitter(rng), fit.jitter(rng)]
    merged, transfers = fit.merge(members[1:])
    for member, transfer in zip(members, transfers):
        core = rng.normal(size=(member.dim, 2))
        curve = np.interp(merged.knots_, member.knots_, core[1:, 0])
        np.testing.assert_allclose((transfer @ core)[1:, 0], curve, rtol=0, atol=1e-13)
