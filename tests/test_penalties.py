"""Penalties against the dense tensor and finite differences."""

from dataclasses import replace

import numpy as np
import parts
import pytest

from polyadic import maps
from polyadic.networks.cp import CPCores
from polyadic.objective import penalties

MAPS, PENALTIES = parts.PENALISED, parts.PENALTIES
DIMS = [m.dim for m in MAPS]
every_penalty = pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)


def dense_order_norm(cores, emphasis):
    """Return <B*W, B*W> from the whole tensor."""
    weight = cores.to_dense()
    for n, b in enumerate(emphasis):
        weight = weight * b.reshape([-1 if k == n else 1 for k in range(weight.ndim)])
    return np.sum(weight**2)


@every_penalty
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_gradient_matches_finite_differences(penalty, n_outputs, zeros):
    cores = parts.random_cores(DIMS, 3, n_outputs, zeros=zeros)
    out = [np.zeros_like(a) for a in cores.factors]
    penalty.add_gradient(cores, out)
    step = 1e-5
    for n, factor in enumerate(cores.factors):
        for place in np.ndindex(*factor.shape):
            values = []
            for sign in (1, -1):
                moved = [a.copy() for a in cores.factors]
                moved[n][place] += sign * step
                values.append(penalty.value(replace(cores, factors=moved)))
            slope = (values[0] - values[1]) / (2 * step)
            assert slope == pytest.approx(out[n][place], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_order_norm_matches_the_dense_tensor(n_outputs, zeros):
    cores = parts.random_cores([3, 2, 4, 1], 5, n_outputs, zeros=zeros)
    emphasis = [1.5 ** np.arange(d) for d in cores.dims]
    expected = dense_order_norm(cores, emphasis)
    assert cores.order_norm(emphasis) == pytest.approx(expected, rel=1e-10)


def test_order_gradient_with_respect_to_the_weights_matches_finite_differences():
    cores = parts.random_cores([3, 2, 4], 3, 2)
    emphasis = [1.5 ** np.arange(d) for d in cores.dims]
    _, slope = cores.order_gradient(emphasis)
    for place in np.ndindex(*cores.weights.shape):
        values = []
        for sign in (1, -1):
            weights = cores.weights.copy()
            weights[place] += sign * 1e-5
            values.append(replace(cores, weights=weights).order_norm(emphasis))
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope.weights[place], abs=1e-4)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_order_norm_of_a_thousand_columns_stays_in_range(size):
    # Each column's Gram matrix leaves the float range within a hundred columns; their scales
    # cancel only over all of them.
    rng = np.random.default_rng(0)
    scale = np.where(np.arange(1000) < 500, size, 1 / size)
    factors = [s * (1 + 0.001 * rng.normal(size=(2, 3))) for s in scale]
    cores = CPCores(factors, np.ones((3, 1)), np.zeros(1))
    emphasis = [np.array([1.0, 0.01])] * 1000
    logs = sum(np.log((f * emphasis[0][:, None]).T @ (f * emphasis[0][:, None])) for f in factors)
    value, slope = cores.order_gradient(emphasis)
    assert value == pytest.approx(np.exp(logs).sum(), rel=1e-6)
    assert all(np.all(np.isfinite(g)) for g in slope.factors)


def test_smoothness_does_not_penalise_straight_lines():
    hat = MAPS[0]
    line = np.concatenate(([2.0], 3.0 * np.arange(5) + 1.0))[:, None]
    cores = CPCores([line], np.ones((1, 1)), np.zeros(1))
    penalty = penalties.smoothness([hat], 1.0)
    assert penalty.value(cores) == pytest.approx(0.0, abs=1e-9)


def test_ridge_does_not_penalise_implied_constants():
    core = np.zeros((6, 1))
    core[0] = 5.0
    cores = CPCores([core], np.ones((1, 1)), np.zeros(1))
    assert penalties.ridge([MAPS[0]], 1.0).value(cores) == 0.0


def test_emphasis_follows_the_degrees():
    np.testing.assert_allclose(penalties.emphasis(MAPS[1:2], 3.0)[0], [1, 3, 9])
    np.testing.assert_allclose(penalties.emphasis(MAPS[:1], 3.0)[0], [1, 3, 3, 3, 3, 3])
    high = penalties.emphasis([maps.Polynomial(200)], 3.0)[0]
    assert np.all(np.isfinite(high.astype(np.float32) ** 2))


def test_banded_penalty_includes_the_additive_part():
    cores = parts.random_cores(DIMS, 3, 2, additive=True)
    penalty = penalties.ridge(MAPS, 1.0)
    rows = [slice(int(m.constant), None) for m in MAPS]
    expected = sum(np.sum(a[r] ** 2) for a, r in zip(cores.factors, rows))
    expected += sum(np.sum(v[r] ** 2) for v, r in zip(cores.additive, rows))
    assert penalty.value(cores) == pytest.approx(expected)
