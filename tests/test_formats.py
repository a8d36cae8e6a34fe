"""Every format against independent formulas: contraction, order norm, starts, column order."""

from itertools import combinations

import numpy as np
import parts
import pytest
from formulas import (
    DENSE,
    DIMS,
    REFERENCE,
    ROWS,
    columns_of_interest,
    from_dense,
    outputs_of_interest,
    predict,
    random_phis,
    replaced,
)

from polyadic import networks
from polyadic.networks.fm import anova_kernel
from polyadic.networks.ht import HierarchicalTucker


def name_of(case):
    name, kwargs = case
    return "-".join([name, *(f"{k}{v}" for k, v in kwargs.items())])


every_format = pytest.mark.parametrize("case", parts.FORMATS, ids=name_of)
every_network = pytest.mark.parametrize("case", parts.NETWORKS, ids=name_of)


# ---- contraction --------------------------------------------------------------------------------


def test_every_format_of_the_registry_is_under_test():
    assert {name for name, _ in parts.FORMATS} == set(networks.FORMATS) == set(REFERENCE)


@every_format
@columns_of_interest
@outputs_of_interest
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_contraction_matches_the_formula(case, n_columns, n_outputs, zeros):
    network = parts.random_network(*case, DIMS[:n_columns], n_outputs, zeros=zeros)
    phis = random_phis(network.dims)
    expected = REFERENCE[network.name](network, phis)
    found = predict(network, phis)
    assert found.shape == (ROWS, n_outputs)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_columns", [4, 6, 7, 9, 13])
def test_a_tree_over_any_number_of_columns_matches_the_formula(n_columns):
    network = parts.random_network("ht", {"rank": 2}, [2, 1] * (n_columns // 2) + [2], 2)
    phis = random_phis(network.dims)
    np.testing.assert_allclose(predict(network, phis), from_dense(network, phis), rtol=1e-9)


@every_format
@outputs_of_interest
def test_parameters_are_counted(case, n_outputs):
    network = parts.random_network(*case, DIMS, n_outputs)
    size = sum(a.size for a in [*network.factors, *network.extras])
    assert network.format.n_parameters() == size


@pytest.mark.parametrize("case", [c for c in parts.FORMATS if c[0] != "pn"], ids=name_of)
@outputs_of_interest
def test_a_format_is_affine_in_every_core_and_linear_where_it_is_a_tensor(case, n_outputs):
    network = parts.random_network(*case, DIMS, n_outputs)
    phis = random_phis(DIMS)
    rng = np.random.default_rng(2)
    for n, core in enumerate(network.factors):
        other = rng.normal(size=core.shape)
        first, second, both, none = (
            predict(replaced(network, n, c), phis)
            for c in (core, other, 2 * core - 3 * other, 0 * core)
        )
        np.testing.assert_allclose(both, 2 * first - 3 * second + 2 * none, atol=1e-10)
        if network.format.is_network:
            np.testing.assert_array_equal(none, 0.0)


@pytest.mark.parametrize("case", [c for c in parts.FORMATS if c[0] == "pn"], ids=name_of)
def test_polynomial_networks_are_affine_in_every_form(case):
    network = parts.random_network(*case, DIMS, 2)
    phis = random_phis(DIMS)
    own = slice(0, network.rank)  # the first form of every term
    values = []
    for factor in (0.0, 1.0, 3.0):
        scaled = [a.copy() for a in network.factors]
        for core in scaled:
            core[:, own] *= factor
        values.append(predict(network.__class__(**{**vars(network), "factors": scaled}), phis))
    np.testing.assert_allclose(values[2], 3 * values[1] - 2 * values[0], atol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_anova_kernel_is_the_sum_over_sets_of_columns(order):
    u = np.random.default_rng(0).normal(size=(4, 5, 3))
    chosen = [np.prod(u[:, c], axis=1) for c in combinations(range(5), order)]
    expected = sum(chosen, start=np.zeros((4, 3)))  # order six of five columns: zero
    np.testing.assert_allclose(anova_kernel(u, order), expected, atol=1e-12)


# ---- order penalty ------------------------------------------------------------------------------


@every_network
@columns_of_interest
@outputs_of_interest
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_order_norm_matches_the_dense_tensor(case, n_columns, n_outputs, zeros):
    network = parts.random_network(*case, DIMS[:n_columns], n_outputs, zeros=zeros)
    rng = np.random.default_rng(3)
    emphasis = [rng.uniform(0.5, 3.0, d) for d in network.dims]
    weight = DENSE[network.name](network)
    for n, b in enumerate(emphasis):
        weight = weight * b.reshape(-1, *[1] * (weight.ndim - 1 - n))
    expected = np.sum(weight**2)
    assert network.order_norm(emphasis) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@every_network
def test_order_norm_of_a_zero_tensor_is_zero(case):
    network = parts.random_network(*case, DIMS, 1)
    nothing = replaced(network, 2, 0 * network.factors[2])
    assert nothing.order_norm([np.ones(d) for d in DIMS]) == 0.0


def generators(n_columns, seed=0):
    return [np.random.default_rng((seed, n)) for n in range(n_columns + 1)]


@pytest.mark.parametrize("name", ["cp", "tt", "tr", "ht"])
@outputs_of_interest
def test_order_norm_over_300_columns_stays_in_range(name, n_outputs):
    form = networks.resolve(name)([3] * 300, 4, n_outputs)
    cores, extras = form.near_one(generators(300), 0.03)
    value, log_scale = form.order_norm(cores, extras)
    assert np.isfinite(value)
    assert abs(np.log(value) + log_scale) < 20
    # Every core times 1000: the norm is far beyond any float, but its logarithm is not.
    more, more_scale = form.order_norm([1e3 * core for core in cores], extras)
    grown = np.log(more) + more_scale - np.log(value) - log_scale
    assert grown == pytest.approx(2 * 300 * np.log(1e3), rel=1e-9)


@pytest.mark.parametrize("name", ["fm", "pn"])
def test_formats_without_a_tensor_have_no_order_norm(name):
    form = networks.resolve(name)([2, 2], 3)
    with pytest.raises(ValueError, match=f"format='{name}' has no weight tensor"):
        form.order_norm([], [])


# ---- starts -------------------------------------------------------------------------------------


def rows_with_a_constant(dims, n=50, seed=0):
    """Return feature vectors of a one and, below it, a random vector of length one."""
    rng = np.random.default_rng(seed)
    out = []
    for d in dims:
        phi = rng.normal(size=(n, d))
        phi[:, 1:] /= np.linalg.norm(phi[:, 1:], axis=1, keepdims=True)
        phi[:, 0] = 1.0
        out.append(phi)
    return out


@pytest.mark.parametrize("name", ["cp", "tt", "tr", "ht"])
@outputs_of_interest
@pytest.mark.parametrize("rank", [4, 20])
def test_near_one_over_784_columns_predicts_about_zero(name, n_outputs, rank):
    dims, dtype = [3] * 784, np.float32
    form = networks.resolve(name)(dims, rank, n_outputs)
    cores, extras = form.near_one(generators(784), 0.5 / 28)
    phis = rows_with_a_constant(dims)
    projected = np.stack([phi @ core for phi, core in zip(phis, cores)], axis=1).astype(dtype)
    raw = form.contract(projected, [e.astype(dtype) for e in extras])
    assert np.all(np.isfinite(raw))
    assert 1e-3 < np.sqrt(np.mean(raw**2)) < 1.5  # about zero, but not constant


@every_format
@outputs_of_interest
def test_near_one_and_gaussian_starts_have_the_right_shapes(case, n_outputs):
    name, kwargs = case
    form = networks.resolve(name)(DIMS, n_outputs=n_outputs, **kwargs)
    for start in (form.near_one, form.gaussian):
        cores, extras = start(generators(5), 0.1)
        assert [a.shape for a in cores] == [(d, form.width) for d in DIMS]
        assert [e.shape for e in extras] == form.extra_shapes()


@every_format
def test_the_noise_of_a_column_does_not_depend_on_its_position(case):
    name, kwargs = case
    form = networks.resolve(name)(DIMS, **kwargs)
    rngs = generators(5)
    cores, _ = form.gaussian(rngs, 0.1)
    order = [4, 2, 0, 1, 3]
    turned = networks.resolve(name)([DIMS[k] for k in order], **kwargs)
    again = generators(5)
    moved, _ = turned.gaussian([*(again[k] for k in order), again[-1]], 0.1)
    for k, core in zip(order, moved):
        np.testing.assert_array_equal(core, cores[k])


def needed_rank(name, n_columns, n_outputs):
    return n_columns * n_outputs if name == "cp" else 1 + n_outputs


@pytest.mark.parametrize("name", ["cp", "tt", "tr", "ht", "tucker"])
@columns_of_interest
@outputs_of_interest
@pytest.mark.parametrize("spare", [0, 2])
def test_linear_start_is_the_linear_model(name, n_columns, n_outputs, spare):
    dims = DIMS[:n_columns]
    rng = np.random.default_rng(0)
    bias, slopes = rng.normal(size=n_outputs), [rng.normal(size=(d, n_outputs)) for d in dims]
    for slope in slopes:
        slope[0] = 0.0  # the constant is in the bias
    rank = needed_rank(name, n_columns, n_outputs) + spare
    form = networks.resolve(name)(dims, rank, n_outputs)
    cores, extras = form.linear(bias, slopes, generators(n_columns), 0.1)
    phis = rows_with_a_constant([max(d, 2) for d in dims])
    phis = [phi[:, :d] for phi, d in zip(phis, dims)]
    projected = np.stack([phi @ core for phi, core in zip(phis, cores)], axis=1)
    expected = bias + sum(phi @ slope for phi, slope in zip(phis, slopes))
    np.testing.assert_allclose(form.contract(projected, extras), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["ht", "tucker"])
@pytest.mark.parametrize("n_columns", [2, 3])
@outputs_of_interest
def test_linear_start_of_large_rank_is_that_of_cp(name, n_columns, n_outputs):
    dims, rng = DIMS[:n_columns], np.random.default_rng(0)
    bias, slopes = rng.normal(size=n_outputs), [rng.normal(size=(d, n_outputs)) for d in dims]
    rank = n_columns * n_outputs
    form, cp = (networks.resolve(own)(dims, rank, n_outputs) for own in (name, "cp"))
    cores, extras = form.linear(bias, slopes, generators(n_columns), 0.1)
    cp_cores, weights = cp.linear(bias, slopes, generators(n_columns), 0.1)
    for own, other in zip(cores, cp_cores):
        np.testing.assert_array_equal(own, other)
    parts = rng.normal(size=(7, n_columns, rank))
    expected = cp.contract(parts, weights)
    np.testing.assert_allclose(form.contract(parts, extras), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["cp", "tt", "tr", "ht", "tucker"])
@outputs_of_interest
def test_linear_start_says_which_rank_it_needs(name, n_outputs):
    needed = needed_rank(name, 5, n_outputs)
    form = networks.resolve(name)(DIMS, needed - 1, n_outputs)
    slopes = [np.zeros((d, n_outputs)) for d in DIMS]
    with pytest.raises(ValueError, match=f"a rank of at least {needed}.*got {needed - 1}"):
        form.linear(np.zeros(n_outputs), slopes, generators(5), 0.1)


@pytest.mark.parametrize("name", ["fm", "pn"])
def test_linear_start_is_refused_for_formats_without_one(name):
    form = networks.resolve(name)(DIMS, 3)
    slopes = [np.zeros((d, 1)) for d in DIMS]
    with pytest.raises(ValueError, match=f"cp, tt, tr, ht and tucker, not '{name}'"):
        form.linear(np.zeros(1), slopes, generators(5), 0.1)


# ---- the order of the columns -------------------------------------------------------------------

ORDER = [3, 0, 4, 1, 2]


def with_columns(network, order, extras=None):
    """Return the network with its cores in another order."""
    cores = [network.factors[k] for k in order]
    new = network.extras if extras is None else extras
    return network.with_arrays(cores, new)


@outputs_of_interest
def test_cp_does_not_depend_on_the_order_of_columns(n_outputs):
    network = parts.random_network("cp", {"rank": 3}, DIMS, n_outputs)
    phis = random_phis(DIMS)
    found = predict(with_columns(network, ORDER), [phis[k] for k in ORDER])
    np.testing.assert_allclose(found, predict(network, phis), rtol=1e-12)


@outputs_of_interest
def test_tucker_with_a_transposed_core_does_not_depend_on_the_order_of_columns(n_outputs):
    network = parts.random_network("tucker", {"rank": 2}, DIMS, n_outputs)
    phis = random_phis(DIMS)
    core = network.extras[0]
    turned = core.reshape(*[2] * 5, n_outputs).transpose(*ORDER, 5).reshape(core.shape)
    found = predict(with_columns(network, ORDER, [turned]), [phis[k] for k in ORDER])
    np.testing.assert_allclose(found, predict(network, phis), rtol=1e-10)


@pytest.mark.parametrize("name", ["tt", "tr", "ht"])
def test_chains_and_trees_depend_on_the_order_of_columns(name):
    # A train, a ring or a tree joins neighbours: with other neighbours it is another model. This is
    # an advantage of CP on tables, whose columns have no order.
    network = parts.random_network(name, {"rank": 3}, DIMS, 1)
    phis = random_phis(DIMS)
    found = predict(with_columns(network, ORDER), [phis[k] for k in ORDER])
    assert np.abs(found - predict(network, phis)).max() > 0.1


@pytest.mark.parametrize("by", [1, 2, 4])
def test_rotating_the_columns_of_a_ring_with_one_output_changes_nothing(by):
    network = parts.random_network("tr", {"rank": 3}, DIMS, 1)
    phis = random_phis(DIMS)
    order = np.roll(np.arange(5), by)
    found = predict(with_columns(network, order), [phis[k] for k in order])
    np.testing.assert_allclose(found, predict(network, phis), rtol=1e-10, atol=1e-10)


def test_rotating_the_columns_of_a_ring_with_several_outputs_changes_predictions():
    network = parts.random_network("tr", {"rank": 3}, DIMS, 3)
    phis = random_phis(DIMS)
    order = np.roll(np.arange(5), 1)
    found = predict(with_columns(network, order), [phis[k] for k in order])
    assert np.abs(found - predict(network, phis)).max() > 0.1


# ---- refusals -----------------------------------------------------------------------------------


def test_tucker_over_26_columns_is_refused_before_anything_is_allocated():
    with pytest.raises(MemoryError, match=r"rank 5 over 26 columns would need 5\.96e\+09 GB"):
        networks.resolve("tucker")([3] * 26, 5)


@pytest.mark.parametrize(("n_columns", "size"), [(784, r"1e\+540 GB"), (20_000, r"1e\+13971 GB")])
def test_tucker_refuses_sizes_beyond_any_float(n_columns, size):
    with pytest.raises(MemoryError, match=size):
        networks.resolve("tucker")([3] * n_columns, 5)


@pytest.mark.parametrize("name", ["tensor_train", "", None, ["tt"]])
def test_unknown_format_lists_the_right_ones(name):
    with pytest.raises(ValueError, match=r"Choose from: cp, fm, ht, pn, tr, tt, tucker\."):
        networks.resolve(name)


def test_levels_of_a_tree_join_all_columns():
    for n in range(1, 40):
        assert sum(HierarchicalTucker([2] * n, 2).levels()) == n - 1
