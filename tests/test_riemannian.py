"""The manifold of Tensor Trains: projection, retraction, rounding, and descent on it."""

import needs
import numpy as np
import parts
import pytest

from polyadic import losses, maps
from polyadic.data.features import encode
from polyadic.networks import trains
from polyadic.networks.cores import NetworkCores
from polyadic.networks.trains import Point
from polyadic.networks.tt import TensorTrain
from polyadic.objective import penalties
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers import batches, riemannian
from polyadic.solvers.riemannian import Riemannian, RiemannianLoop

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
def test_projection_is_self_adjoint(dims, rank, n_outputs):
    point = random_point(dims, rank, n_outputs)
    one, two = (random_train([*dims, n_outputs], rank + k, seed=k) for k in (1, 2))
    left = np.vdot(dense(point, point.project(one)), trains.to_dense(two))
    right = np.vdot(trains.to_dense(one), dense(point, point.project(two)))
    assert left == pytest.approx(right, rel=1e-9)


@every_shape
def test_a_point_lies_in_its_own_tangent_space(dims, rank, n_outputs):
    point = random_point(dims, rank, n_outputs)
    whole = trains.to_dense(point.right)
    np.testing.assert_allclose(trains.to_dense(point.left), whole, atol=1e-9)
    np.testing.assert_allclose(dense(point, point.project(point.right)), whole, atol=1e-9)


def test_a_train_of_deficient_rank_has_a_tangent_space():
    nothing = [0 * core for core in random_train((3, 2, 4, 1), 2)]
    point = Point(trains.rounded(nothing, [1, 2, 2, 1, 1]))
    other = random_train((3, 2, 4, 1), 3, seed=1)
    once = point.project(other)
    again = point.project(point.tangent(once))
    for a, b in zip(once, again):
        np.testing.assert_allclose(a, b, atol=1e-9)
    assert np.all(np.isfinite(trains.to_dense(point.retract(once).right)))


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


# ---- steps ---------------------------------------------------------------------------------------


def near_one(features, rank, n_outputs, seed=0, sigma=0.3):
    rngs = [np.random.default_rng((seed, n)) for n in range(len(features.dims) + 1)]
    factors, extras = TensorTrain(features.dims, rank, n_outputs).near_one(rngs, sigma)
    return NetworkCores("tt", rank, 2, factors, extras, np.zeros(n_outputs), np.ones(n_outputs))


def make_problem(loss, n_outputs, family, columns, order=None, seed=0):
    rng = np.random.default_rng(seed)
    n = len(columns[0])
    signal = np.tanh(sum(np.nan_to_num(x[:, None]) for x in columns) * np.ones(n_outputs))
    y = signal + 0.1 * rng.normal(size=(n, n_outputs))
    if loss.code in (losses.Logistic.code, losses.Poisson.code):
        y = (y > 0).astype(float)
    if loss.code == losses.Softmax.code:
        y = (signal[:, :1] > 0) * (n_outputs - 1.0)
    rows = Rows(encode(family, columns), y, rng.random(n) + 0.5)
    degrees = [m.degrees for m in family]
    own = () if order is None else (order,)
    return Problem(rows, None, loss, np.zeros(n_outputs), degrees, own)


@pytest.mark.parametrize("tall", [128, 0], ids=["dense", "by slots"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_gradient_of_a_batch_is_the_projection_of_the_dense_one(n_outputs, tall, monkeypatch):
    monkeypatch.setattr(batches, "_TALL", tall)
    family, columns = parts.mixed_table(n=12)
    family, columns = family[1:4], columns[1:4]
    features = encode(family, columns)
    point = Point(trains.from_cores(near_one(features, 3, n_outputs)))
    rows = np.array([3, 0, 7, 11, 2])
    slope = np.random.default_rng(0).normal(size=(len(rows), n_outputs))
    batch = batches.Batches(features).columns(rows)
    ahead = riemannian.sweep(batch, point.left)
    phis = [m.dense(x)[rows] for m, x in zip(family, columns)]
    whole = np.einsum("ia,ib,ic,il->abcl", *phis, slope)
    moves = riemannian.gradient(point, batch, ahead, slope)
    basis = tangent_basis(point)
    expected = basis @ (basis.T @ whole.ravel())
    np.testing.assert_allclose(dense(point, moves).ravel(), expected, atol=1e-5)
    change = riemannian.change_of_raw(point, batch, ahead, moves)
    tensor = expected.reshape(whole.shape)
    np.testing.assert_allclose(
        change, np.einsum("abcl,ia,ib,ic->il", tensor, *phis), rtol=1e-4, atol=1e-4
    )


def test_metric_is_the_second_moment_and_its_basis_a_root():
    family, columns = parts.mixed_table(n=50)
    problem = make_problem(losses.SquaredError(), 1, family, columns)
    for k, m, x in zip(riemannian.metric(problem), family, columns):
        phi, weight = m.dense(x), problem.weight / problem.weight.sum()
        moment = phi.T @ (weight[:, None] * phi)
        beside = ~np.eye(len(k), dtype=bool)
        np.testing.assert_allclose(k[beside], moment[beside], atol=1e-5)
        assert np.all(np.diag(k) > np.diag(moment))
        root = riemannian.basis(k)
        np.testing.assert_allclose(root.T @ root, k, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_cores_returned_predict_what_the_point_does(n_outputs):
    family, columns = parts.mixed_table()
    problem = make_problem(losses.SquaredError(), n_outputs, family, columns)
    cores = near_one(problem.local, 3, n_outputs)
    run = RiemannianLoop(Riemannian(max_iter=2, batch_size=8), problem, cores)
    start = run.predict(run.point, problem.local)
    np.testing.assert_allclose(start, contract(cores, family, columns), rtol=1e-4, atol=1e-4)
    solution = run.run(np.random.default_rng(0))
    raw = run.predict(run.point, problem.local)
    found = contract(solution.cores, family, columns)
    np.testing.assert_allclose(found, raw, rtol=1e-4, atol=1e-4)
    assert np.max(np.abs(raw - start)) > 0.01


def contract(cores, family, columns):
    each = [m.dense(x) @ a for m, x, a in zip(family, columns, cores.factors)]
    return cores.format.contract(np.stack(each, axis=1), cores.extras)


@pytest.mark.parametrize("loss", parts.LOSSES, ids=repr)
def test_every_loss_decreases(loss):
    family, columns = parts.mixed_table(n=120)
    n_outputs = 3 if loss.code == losses.Softmax.code else 1
    problem = make_problem(loss, n_outputs, family, columns)
    solver = Riemannian(max_iter=30, batch_size=32)
    cores = near_one(problem.local, 3, n_outputs, sigma=0.1)
    solution = solver.solve(problem, cores, None, np.random.default_rng(0))
    curve = solution.history["train_loss"]
    assert curve[-1] < curve[0] - 0.1 * abs(curve[0])
    assert solution.converged
    again = solver.solve(problem, cores, None, np.random.default_rng(0))
    for a, b in zip(solution.cores.factors, again.cores.factors):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_columns", [1, 2, 5])
@pytest.mark.parametrize("rank", [1, 9])
@pytest.mark.parametrize("batch_size", [1, 1000])
def test_any_number_of_columns_any_rank_and_any_batch_converge(n_columns, rank, batch_size):
    family, columns = parts.mixed_table(n=20)
    family, columns = family[:n_columns], columns[:n_columns]
    problem = make_problem(losses.SquaredError(), 2, family, columns)
    cores = near_one(problem.local, rank, 2, sigma=0.1)
    solver = Riemannian(max_iter=3, batch_size=batch_size)
    solution = solver.solve(problem, cores, None, np.random.default_rng(0))
    assert solution.converged
    for ours, given in zip(solution.cores.factors, cores.factors):
        assert ours.shape == given.shape


def test_order_penalty_lowers_the_order_norm():
    family, columns = parts.mixed_table(n=60)
    emphasis = penalties.emphasis(family, 2.0)
    norms = []
    for alpha in (0.0, 1e-3, 1e-1):
        order = penalties.Order(alpha, emphasis) if alpha else None
        problem = make_problem(losses.SquaredError(), 1, family, columns, order)
        cores = near_one(problem.local, 3, 1, sigma=0.1)
        solution = Riemannian(max_iter=40, batch_size=20).solve(
            problem, cores, None, np.random.default_rng(0)
        )
        norms.append(solution.cores.order_norm(emphasis))
    assert norms[0] > norms[1] > norms[2]


def test_divergence_is_reported():
    family, columns = parts.mixed_table()
    problem = make_problem(losses.SquaredError(), 1, family, columns)
    solver = Riemannian(learning_rate=1e30, max_iter=5, schedule="constant", batch_size=8)
    solution = solver.solve(problem, near_one(problem.local, 2, 1), None, np.random.default_rng(0))
    assert not solution.converged
    assert "learning_rate" in solution.message


def test_the_solver_refuses_other_devices_formats_and_penalties():
    family, columns = parts.mixed_table()
    problem = make_problem(losses.SquaredError(), 1, family, columns)
    cores, rng = near_one(problem.local, 2, 1), np.random.default_rng(0)
    with pytest.raises(ValueError, match="device='cpu' only, got 'cuda'"):
        Riemannian(device="cuda").solve(problem, cores, None, rng)
    with pytest.raises(ValueError, match="got format='cp'"):
        Riemannian().solve(problem, parts.random_cores(problem.local.dims, 2, 1), None, rng)
    fixed = problem.penalised(penalties.ridge(family, 0.1))
    with pytest.raises(
        ValueError, match="solver='riemannian' cannot minimise the penalty 'factors'"
    ):
        Riemannian().solve(fixed, cores, None, rng)


# ---- through the estimators ---------------------------------------------------------------------


def learn(estimator, X, y, **params):
    needs.package("torch")
    model = estimator(format="tt", solver="riemannian", random_state=0, **params)
    return model.fit(X, y)


def problem(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    return X, X[:, 0] * X[:, 1] + X[:, 2]


@pytest.mark.parametrize("order_alpha", [0.0, 1e-4])
def test_descent_learns_products_of_columns(order_alpha):
    from polyadic import TNRegressor

    X, y = problem()
    params = {"rank": 3, "maps": maps.Polynomial(2), "max_iter": 40, "order_alpha": order_alpha}
    model = learn(TNRegressor, X, y, **params)
    curve = model.history_[0]["train_loss"]
    assert curve[-1] < 0.2 * curve[0]
    assert model.score(X, y) > 0.95
    other = learn(TNRegressor, X, y, **params)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_descent_learns_classes_from_categories(n_classes):
    from polyadic import TNClassifier

    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (600, 3))
    y = (X[:, 0] + X[:, 1]) % n_classes
    model = learn(TNClassifier, X, y, rank=4, categorical_features=[0, 1, 2], max_iter=60)
    assert model.score(X, y) > 0.8


def test_estimators_refuse_what_the_solver_cannot_do():
    from polyadic import TNRegressor

    needs.package("torch")
    X, y = problem(60)
    with pytest.raises(ValueError, match="works on format='tt' only, got format='tr'"):
        TNRegressor(format="tr", solver="riemannian").fit(X, y)
    with pytest.raises(
        ValueError, match=r"cannot minimise the penalty 'factors' \(set by l2 or smooth"
    ):
        learn(TNRegressor, X, y, l2=0.1)
