"""Where knots lie, how members draw their own, and how they merge."""

from __future__ import annotations

import numpy as np
import pytest

from polyadic import maps


@pytest.fixture(name="x")
def training_column():
    """Return a column with ties and missing values."""
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, size=200)
    x[rng.random(200) < 0.3] = 0.5
    x[rng.random(200) < 0.1] = np.nan
    return x


def test_few_distinct_values_get_a_knot_each():
    x = np.array([3.0, 1.0, 1.0, np.nan, 7.0])
    assert maps.Hat(n_knots=3).fit(x).knots_.tolist() == [1.0, 3.0, 7.0]


def test_column_without_ties_gets_all_its_knots():
    x = np.random.default_rng(0).normal(size=5000)
    knots = maps.Hat(n_knots=48).fit(x).knots_
    np.testing.assert_array_equal(knots[[0, -1]], [x.min(), x.max()])
    between = np.histogram(x, knots)[0]
    assert len(knots) == 48
    assert between.min() > 100  # 5000 rows over 47 gaps are 106 each
    assert between.max() < 113


def test_column_of_mostly_zeros_keeps_knots_where_it_is_not_zero():
    x = np.zeros(10_000)
    x[:200] = np.random.default_rng(0).gamma(2.0, size=200)
    assert (maps.Hat(n_knots=48).fit(x).knots_ > 0).sum() >= 20


def test_a_constant_column_has_one_knot_for_all_values():
    fit = maps.Hat().fit(np.full(4, 2.0))
    index, value = fit.encode(np.array([-9.0, 2.0, 9.0]))
    assert fit.dim == 2
    assert index.tolist() == [[1, 1]] * 3
    assert value.tolist() == [[1.0, 0.0]] * 3


def test_jitter_keeps_the_ends_and_moves_the_rest(x):
    fit = maps.Hat(n_knots=12).fit(x)
    before = fit.knots_.copy()
    one, other = (fit.jitter(np.random.default_rng(s)) for s in (0, 1))
    np.testing.assert_array_equal(one.knots_[[0, -1]], before[[0, -1]])
    np.testing.assert_array_equal(fit.knots_, before)
    assert 3 <= len(one.knots_) <= 12
    assert np.all(np.diff(one.knots_) > 0)
    assert not np.array_equal(one.knots_, before)
    assert not np.array_equal(one.knots_, other.knots_)
    assert one.same_as(fit.jitter(np.random.default_rng(0)))


def test_jittered_knots_spread_over_the_column():
    x = np.random.default_rng(0).normal(size=20_000)
    fit = maps.Hat(n_knots=40).fit(x)
    knots = fit.jitter(np.random.default_rng(3)).knots_
    assert len(knots) >= 36
    # One level in each of 19 strata, for rows and for distinct values: no gap of over two strata.
    assert np.histogram(x, knots)[0].max() <= 2 * len(x) / 19 + 2 * len(x) / 1025


def test_restored_hat_says_why_it_cannot_jitter(x):
    fit = maps.Hat(n_knots=5).fit(x)
    back = maps.Hat.restore(fit.params(), fit.arrays())
    with pytest.raises(ValueError, match="Fit it again"):
        back.jitter(np.random.default_rng(0))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_merged_hats_represent_every_member_exactly(x, seed):
    rng = np.random.default_rng(seed)
    fit = maps.Hat(n_knots=10).fit(x)
    elsewhere = maps.Hat(n_knots=4).fit(rng.uniform(-3, 5, size=30))
    constant = maps.Hat().fit(np.array([1.5]))
    members = [fit, fit.jitter(rng), fit.jitter(rng), elsewhere, constant]
    merged, transfers = members[0].merge(members[1:])
    at = np.concatenate([rng.uniform(-9, 15, size=200), merged.knots_, [-1e300, 1e300, np.nan]])
    for member, transfer in zip(members, transfers):
        assert transfer.shape == (merged.dim, member.dim)
        core = rng.normal(size=(member.dim, 3))
        there = merged.dense(at) @ (transfer @ core)
        np.testing.assert_allclose(member.dense(at) @ core, there, atol=1e-6)
        # exact where no float32 is involved: at the knots of the union
        curve = np.interp(merged.knots_, member.knots_, core[1:, 0])
        np.testing.assert_allclose((transfer @ core)[1:, 0], curve, rtol=0, atol=1e-13)


def test_merging_does_not_change_the_members(x):
    fit = maps.Hat(n_knots=6).fit(x)
    before = fit.knots_.copy()
    fit.merge([fit.jitter(np.random.default_rng(0))])
    np.testing.assert_array_equal(fit.knots_, before)
