"""CP as a Tensor Train and back: the same function, how many terms it has, what is refused."""

import numpy as np
import parts
import pytest
from formulas import (
    DIMS,
    columns_of_interest,
    dense_cp,
    dense_tt,
    matrices,
    outputs_of_interest,
    predict,
    random_phis,
    replaced,
)

from polyadic import networks
from polyadic.networks.cores import make_cores

# ---- CP as a train ------------------------------------------------------------------------------


@columns_of_interest
@outputs_of_interest
def test_cp_as_a_train_is_the_same_function(n_columns, n_outputs):
    cp = parts.random_network("cp", {"rank": 3}, DIMS[:n_columns], n_outputs)
    cores, extras = networks.cp_to_tt(cp.factors, cp.extras[0])
    form = networks.resolve("tt")(cp.dims.tolist(), 3, n_outputs)
    train = make_cores(form, cores, extras, cp.intercept)
    phis = random_phis(cp.dims)
    np.testing.assert_allclose(predict(train, phis), predict(cp, phis), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(dense_tt(train), dense_cp(cp), rtol=1e-12, atol=1e-13)
    for core in matrices(train):  # appendix A: diagonal
        np.testing.assert_array_equal(core * ~np.eye(3, dtype=bool), 0.0)


# ---- a train as CP ------------------------------------------------------------------------------


def as_cp(train):
    factors, weights = networks.tt_to_cp(train.factors, train.extras)
    form = networks.resolve("cp")(train.dims.tolist(), len(weights), train.n_outputs)
    return make_cores(form, factors, [weights], train.intercept)


@columns_of_interest
@outputs_of_interest
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("zeros", [0.0, 0.6])
def test_a_train_as_cp_is_the_same_function(n_columns, n_outputs, rank, zeros):
    case = ("tt", {"rank": rank})
    train = parts.random_network(*case, DIMS[:n_columns], n_outputs, zeros=zeros)
    cp, phis = as_cp(train), random_phis(train.dims)
    np.testing.assert_allclose(dense_cp(cp), dense_tt(train), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(predict(cp, phis), predict(train, phis), rtol=1e-9, atol=1e-11)
    again, extras = networks.cp_to_tt(cp.factors, cp.extras[0])
    form = networks.resolve("tt")(cp.dims.tolist(), cp.rank, n_outputs)
    back = make_cores(form, again, extras, cp.intercept)
    np.testing.assert_allclose(predict(back, phis), predict(train, phis), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("n_outputs", "n_terms"), [(1, 27), (2, 54), (5, 81)])
def test_a_train_as_cp_has_the_product_of_all_ranks_as_terms(n_outputs, n_terms):
    # Appendix A: R_1 R_2 R_3; outputs are one more mode, whose bond is their number, or the rank.
    train = parts.random_network("tt", {"rank": 3}, [4] * 4, n_outputs, zeros=0.0)
    assert as_cp(train).rank == n_terms


def test_a_train_as_cp_has_no_more_terms_than_the_elements_allow():
    # Bonds of a train over (2, 2, 2, 2, 1) need not be larger than 2, 4, 2 and 1.
    train = parts.random_network("tt", {"rank": 9}, [2] * 4, 1, zeros=0.0)
    cp = as_cp(train)
    assert cp.rank == 8  # all of the elements but those of one column
    np.testing.assert_allclose(dense_cp(cp), dense_tt(train), rtol=1e-9)


@pytest.mark.parametrize("n_columns", [3, 5])  # of two, six terms would be more than needed
@outputs_of_interest
def test_cp_as_a_train_is_the_same_cp_again(n_columns, n_outputs):
    cp = parts.random_network("cp", {"rank": 6}, DIMS[:n_columns], n_outputs, zeros=0.0)
    factors, weights = networks.tt_to_cp(*networks.cp_to_tt(cp.factors, cp.extras[0]))
    for found, factor in zip(factors, cp.factors):
        np.testing.assert_array_equal(found, factor)
    np.testing.assert_array_equal(weights, cp.extras[0])


def test_a_train_of_zeros_is_one_term_of_zero():
    train = parts.random_network("tt", {"rank": 2}, DIMS, 3)
    cp = as_cp(replaced(train, 1, 0 * train.factors[1]))
    assert cp.rank == 1
    np.testing.assert_array_equal(predict(cp, random_phis(DIMS)), 0.0)


def test_a_train_of_too_many_terms_is_refused_with_their_number():
    train = parts.random_network("tt", {"rank": 5}, [6] * 30, 1, zeros=0.0)
    with pytest.raises(ValueError, match=f"rank 5 over 30 columns is a CP of {5**29:,} terms"):
        networks.tt_to_cp(train.factors, train.extras)


def test_a_core_that_is_not_of_the_rank_is_refused():
    train = parts.random_network("tt", {"rank": 2}, DIMS, 1)
    with pytest.raises(ValueError, match=r"Core 1 of a Tensor Train of rank 2 must be \(d, 4\)"):
        networks.tt_to_cp([train.factors[0], np.ones((3, 9))], train.extras)


def test_only_a_train_is_written_as_cp():
    ring = parts.random_network("tr", {"rank": 2}, DIMS, 1)
    with pytest.raises(ValueError, match="format='tt' can be written as CP, got 'tr'"):
        ring.to_cp()
