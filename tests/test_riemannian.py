"""The manifold of Tensor Trains: projection, retraction, rounding, and descent on it."""

import numpy as np
import pytest

from polyadic.formats import trains
from polyadic.formats.network import NetworkCores
from polyadic.formats.trains import Point
from polyadic.formats.tt import TensorTrain

SHAPES = [((3, 2, 4), 2, 1), ((2, 3, 2, 3), 3, 2), ((4,), 2, 3), ((5, 3), 2, 1)]
every_shape = pytest.mark.parametrize(("dims", "rank", "n_outputs"), SHAPES)


def random_train(dims, rank, seed=0):
    rng = np.random.default_rng(seed)
    ranks = trains.feasible_ranks(dims, rank)
    return [rng.normal(size=(ranks[n], d, ranks[n + 1])) for n, d in enumerate(dims)]


def random_point(dims, rank, n_outputs, seed=0):
    train = random_train([*dims, n_outputs], rank, seed)
    return Point(trains.rounded(train, trains.feasible_ranks([*dims, n_outputs], rank)))


def tangent_basis(point):
    """Return an orthonormal basis of the tangent space, as columns, from small changes of cores."""
    columns = []
    for n, core in enumerate(point.right):
        for place in np.ndindex(*core.shape):
            unit = np.zeros_like(core)
            unit[place] = 1.0
            changed = [unit if k == n else c for k, c in enumerate(point.right)]
            columns.append(trains.to_dense(changed).ravel())
    u, s, _ = np.linalg.svd(np.array(columns).T, full_matrices=False)
    return u[:, s > 1e-9 * s[0]]


def dense(point, moves):
    return trains.to_dense(point.tangent(moves))


@every_shape
def test_projection_is_the_orthogonal_one_and_idempotent(dims, rank, n_outputs):
    point = random_point(dims, rank, n_outputs)
    other = random_train([*dims, n_outputs], rank + 2, seed=1)
    projected = dense(point, point.project(other))
    basis = tangent_basis(point)
    expected = basis @ (basis.T @ trains.to_dense(other).ravel())
    np.testing.assert_allclose(projected.ravel(), expected, atol=1e-9)
    again = dense(point, point.project(point.tangent(point.project(other))))
    np.testing.assert_allclose(again, projected, atol=1e-9)
    norm = trains.squared_norm(point.project(other))
    assert norm == pytest.approx(np.sum(projected**2))


@every_shape
def test_retraction_is_exact_to_first_order(dims, rank, n_outputs):
    point = random_point(dims, rank, n_outputs)
    moves = point.project(random_train([*dims, n_outputs], rank + 1, seed=2))
    start, direction = trains.to_dense(point.right), dense(point, moves)
    errors = []
    for t in (1e-2, 5e-3):
        there = trains.to_dense(point.retract([t * move for move in moves]).right)
        errors.append(np.linalg.norm(there - start - t * direction))
    # Half the step leaves a quarter of the error, or none at all where the manifold is flat.
    assert errors[1] < 0.3 * errors[0] or errors[0] < 1e-10


@every_shape
def test_rounding_is_exact_where_the_ranks_suffice(dims, rank, n_outputs):
    train = random_train([*dims, n_outputs], rank)
    wide = Point(trains.left_orthogonal(train)).tangent(
        [np.zeros_like(c) for c in trains.left_orthogonal(train)], with_point=True
    )
    ranks = trains.feasible_ranks([*dims, n_outputs], rank)
    found = trains.to_dense(trains.rounded(wide, ranks))
    np.testing.assert_allclose(found, trains.to_dense(train), atol=1e-9)


def test_rounding_is_close_to_the_best():
    train = random_train((4, 4, 4), 4)
    whole = trains.to_dense(train)
    found = trains.to_dense(trains.rounded(train, [1, 2, 2, 1]))
    # No train of these ranks is nearer than the matrices it unfolds to.
    least = max(
        np.sqrt(np.sum(np.linalg.svd(whole.reshape(4**k, -1), compute_uv=False)[2:] ** 2))
        for k in (1, 2)
    )
    assert least <= np.linalg.norm(found - whole) + 1e-9 <= np.sqrt(2) * least * 1.01 + 1e-9


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("dims", [(3,), (2, 3), (3, 2, 4, 2, 3)])
def test_a_train_survives_both_conversions(dims, n_outputs):
    rngs = [np.random.default_rng(n) for n in range(len(dims) + 1)]
    form = TensorTrain(dims, 3, n_outputs)
    factors, extras = form.near_one(rngs, 0.5)
    ones, zeros = np.ones(n_outputs), np.zeros(n_outputs)
    cores = NetworkCores("tt", 3, 2, factors, extras, zeros, ones)
    back = trains.to_cores(trains.from_cores(cores), cores)
    rng = np.random.default_rng(0)
    phis = [rng.normal(size=(7, d)) for d in dims]

    def raw(own):
        parts = np.stack([phi @ a for phi, a in zip(phis, own.factors)], axis=1)
        return form.contract(parts, own.extras)

    np.testing.assert_allclose(raw(back), raw(cores), atol=1e-9)


# ---- through the estimators ---------------------------------------------------------------------


def learn(estimator, X, y, **params):
    pytest.importorskip("torch")
    model = estimator(format="tt", solver="riemannian", random_state=0, **params)
    return model.fit(X, y)


def problem(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    return X, X[:, 0] * X[:, 1] + X[:, 2]


@pytest.mark.parametrize("order_alpha", [0.0, 1e-4])
def test_descent_learns_products_of_columns(order_alpha):
    from polyadic import TNRegressor, maps

    X, y = problem()
    params = {"rank": 3, "maps": maps.Polynomial(2), "max_epochs": 40, "order_alpha": order_alpha}
    model = learn(TNRegressor, X, y, **params)
    curve = model.history_[0]["train_loss"]
    assert curve[-1] < 0.2 * curve[0]
    assert model.score(X, y) > 0.8
    other = learn(TNRegressor, X, y, **params)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_descent_learns_classes_from_categories(n_classes):
    from polyadic import TNClassifier

    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (600, 3))
    y = (X[:, 0] + X[:, 1]) % n_classes
    model = learn(TNClassifier, X, y, rank=4, categorical_features=[0, 1, 2], max_epochs=60)
    assert model.score(X, y) > 0.8


def test_what_it_cannot_do_is_told():
    from polyadic import TNRegressor

    pytest.importorskip("torch")
    X, y = problem(60)
    with pytest.raises(ValueError, match="works on format='tt' only, got format='tr'"):
        TNRegressor(format="tr", solver="riemannian").fit(X, y)
    with pytest.raises(ValueError, match="has no penalty on single cores"):
        learn(TNRegressor, X, y, l2=0.1)
