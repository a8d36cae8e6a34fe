"""Bounds that the paper proves for feature vectors of unit norm (section on normalised maps).

For phi(x_n) of norm one and output weights of one, the derivative of the prediction by a core is
bounded by numbers that do not depend on the row:

    ||df / dA^(n)|| <= ||*_{k != n} phi_k' A^(k)|| <= prod_{k != n} ||phi_k' A^(k)||
                    <= prod_{k != n} ||A^(k)||

The prediction, and so the step of gradient descent on the squared error, are bounded in the same
way. Derivatives are those of `polyadic.nn.TensorNetwork`, by automatic differentiation.
"""

import needs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyadic import CPRegressor, inits, maps

torch = needs.package("torch")

from polyadic.nn import TensorNetwork  # noqa: E402  (needs torch)

RANK = 4
# Elements are float32, so that their vector has a norm of one to about 1e-7; up to six columns.
ROUNDING = 1 + 1e-5

# What may stand in a table, near and far: any float, missing values too.
numbers = st.one_of(
    st.floats(-4, 4), st.floats(allow_infinity=False), st.sampled_from([1e6, -1e30, 1e300])
)
rows = st.lists(numbers, min_size=2, max_size=6)
dimensions = st.sampled_from([1, 2, 3, 10, 25, 75, 150])


def feature_vectors(family, row):
    """Return phi : (N, d), by maps that were fitted on columns of mean 0 and deviation 1."""
    training = np.random.default_rng(0).normal(size=200)
    fitted = family.clone().fit(training)
    return fitted.dense(np.array(row, dtype=float)).astype(float)


def network_of(n_columns, d, seed, size):
    """Return a CP network with random cores and output weights of one, in double precision."""
    network = TensorNetwork("cp", dims=[d] * n_columns, rank=RANK).double()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        network.cores.copy_(torch.tensor(size * rng.normal(size=network.cores.shape)))
        network.extras[0].fill_(1.0)
    return network


def derivatives(network, phi, loss=lambda raw: raw):
    """Return the prediction and the norm of the derivative of a loss by every core, (N,)."""
    network.zero_grad()
    raw = network(phi[None])[0, 0]
    loss(raw).backward()
    return float(raw.detach()), torch.linalg.matrix_norm(network.cores.grad).numpy()


def without(values, n):
    return [value for k, value in enumerate(values) if k != n]


def check_gradient_norm_bound(network, phi):
    """Assert the three inequalities of the paper for every core."""
    cores = network.cores.detach().numpy()
    factors = [own @ core for own, core in zip(phi, cores)]
    norms = [np.linalg.norm(core) for core in cores]
    _, found = derivatives(network, phi)
    for n, slope in enumerate(found):
        product = np.linalg.norm(np.prod(without(factors, n), axis=0))
        by_factors = np.prod([np.linalg.norm(f) for f in without(factors, n)])
        assert slope <= product * ROUNDING
        assert product <= by_factors * ROUNDING
        assert by_factors <= np.prod(without(norms, n)) * ROUNDING


networks = st.tuples(st.integers(0, 1000), st.sampled_from([0.05, 1.0, 20.0]))


@given(rows, dimensions, networks)
@settings(deadline=None, max_examples=150)
def test_gradient_norm_bound_holds_for_the_normalised_map(row, d, drawn):
    phi = feature_vectors(maps.Polynomial(d, normalize=True), row)
    assert np.all(np.linalg.norm(phi, axis=1) <= ROUNDING)
    check_gradient_norm_bound(network_of(len(row), d, *drawn), phi)


@given(rows, dimensions, networks, st.floats(-10, 10))
@settings(deadline=None, max_examples=80)
def test_prediction_and_step_are_bounded_for_the_normalised_map(row, d, drawn, y):
    network = network_of(len(row), d, *drawn)
    phi = feature_vectors(maps.Polynomial(d, normalize=True), row)
    norms = np.linalg.norm(network.cores.detach().numpy(), axis=(1, 2))
    raw, steps = derivatives(network, phi, lambda raw: (raw - y) ** 2)
    largest = np.prod(norms) * ROUNDING
    assert abs(raw) <= largest
    for n, step in enumerate(steps):
        assert step <= 2 * (largest + abs(y)) * np.prod(without(norms, n)) * ROUNDING


@pytest.mark.parametrize("d", [2, 5, 25])
def test_gradient_norm_bound_fails_for_the_plain_map_far_out(d):
    network, row = network_of(4, d, 0, 1.0), [50.0] * 4
    phi = feature_vectors(maps.Polynomial(d), row)
    with pytest.raises(AssertionError):
        check_gradient_norm_bound(network, phi)
    norms = np.linalg.norm(network.cores.detach().numpy(), axis=(1, 2))
    _, slopes = derivatives(network, phi)
    assert slopes.max() > 100 * np.prod(norms) / norms.min()
    check_gradient_norm_bound(network, feature_vectors(maps.Polynomial(d, normalize=True), row))


@pytest.mark.parametrize(("d", "normalize"), [(75, True), (3, True), (3, False)])
def test_a_fitted_model_is_bounded_far_out_if_its_map_is_normalised(d, normalize):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    model = CPRegressor(
        maps=maps.Polynomial(d, normalize=normalize),
        rank=RANK,
        init=inits.Gaussian(0.2),
        solver="adam",
        n_members=1,
        max_iter=10,
        random_state=0,
    )
    model.fit(X, X[:, 0] * X[:, 1])
    norms = [np.linalg.norm(core) for core in model.cores_]
    largest = np.abs(model.weights_).max() * np.prod(norms) * ROUNDING
    far = np.vstack([X, np.exp(rng.uniform(0, 20, (300, 3))) * rng.choice([-1, 1], (300, 3))])
    if normalize:
        assert np.abs(model.predict(far) - model.intercept_).max() <= largest
    else:
        with pytest.raises(ValueError, match="beyond the range of numbers"):
            model.predict(far)
