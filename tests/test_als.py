"""Alternating least squares: every block against the explicit problem, and the laws of a fit."""

from dataclasses import replace

import numpy as np
import parts
import pytest
from problems import FAMILY, banded, local_problem, local_table

from polyadic import CPClassifier, CPRegressor, inits, losses, maps
from polyadic.data.features import encode
from polyadic.networks.cp import CPCores
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.als import ALS, AlsLoop
from polyadic.solvers.sequences import balanced

n_outputs_of_interest = pytest.mark.parametrize("n_outputs", [1, 3])


def norms_of(problem):
    """Return the norms that the sweeps use: a prior's is multiplied by the first noise."""
    noise, norms = 0.3 if problem.loss.location_scale else 0.5, []
    if problem.norm is not None:
        norms.append(replace(problem.norm, strength=noise * problem.norm.strength))
    if problem.order is not None:
        norms.append(problem.order.as_norm())
    return norms


def objective(problem, cores):
    """Return the mean loss plus penalties, in double precision and from dense features."""
    raw = cores.intercept + dense_product(problem, cores) @ cores.weights
    for phi, v in zip(dense_features(problem), cores.additive or []):
        raw = raw + phi @ v
    value = problem.loss.value(problem.y, raw, problem.weight) + problem.fixed.value(cores)
    return value + sum(norm.value(cores) for norm in norms_of(problem))


def dense_features(problem):
    features = problem.local
    out = []
    for n, dim in enumerate(features.dims):
        phi = np.zeros((len(features), dim))
        phi[:, 0] = features.layout.constant[n]
        for s in range(features.layout.slots[n], features.layout.slots[n + 1]):
            element = features.index[:, s] - features.layout.first[n]
            np.add.at(phi, (np.arange(len(phi)), element), features.value[:, s])
        out.append(phi)
    return out


def dense_product(problem, cores, skip=None):
    out = np.ones((len(problem.local), cores.rank))
    for n, phi in enumerate(dense_features(problem)):
        if n != skip:
            out *= phi @ cores.factors[n]
    return out


def make_loop(problem, cores, free=None, **changes):
    run = AlsLoop(ALS(**{"damping": 0.0} | changes), problem, cores, free)
    run.bands = problem.fixed.bands
    return run


@n_outputs_of_interest
@pytest.mark.parametrize("extra", ["", "order", "norm", "order and norm"])
@pytest.mark.parametrize("n", range(len(FAMILY)), ids=[type(m).__name__ for m in FAMILY])
def test_a_core_moves_to_the_solution_of_its_least_squares_problem(n, n_outputs, extra):
    _, _, problem = local_problem(losses.SquaredError(), n_outputs, extra)
    cores = parts.random_cores(problem.local.dims, 3, n_outputs, zeros=0.1)
    cores = replace(cores, intercept=np.zeros(n_outputs))
    run = make_loop(problem, cores)
    product = dense_product(problem, cores, skip=n)
    padded = np.zeros((len(product), run.width))
    padded[:, :3] = product
    others = [m for m in range(len(FAMILY)) if m != n]
    grams = [norm.gram_product(others, np.ones((run.width, run.width))) for norm in run.norms]
    run.update_core(n, padded.ravel(), grams)
    phi = dense_features(problem)[n]
    weight = np.sqrt(problem.weight / problem.weight.sum())[:, None]
    design = np.concatenate(
        [
            weight * (phi[:, :, None] * (product * c)[:, None, :]).reshape(len(phi), -1)
            for c in cores.weights.T
        ]
    )
    hessian = design.T @ design + np.kron(banded(problem.fixed.bands[n]), np.eye(3))
    for norm in norms_of(problem):
        z = cores.weights @ cores.weights.T
        for m in others:
            z = z * (cores.factors[m].T @ banded(norm.metric[m]) @ cores.factors[m])
        hessian += norm.strength * np.kron(banded(norm.metric[n]), z)
    target = (weight * problem.y).T.ravel()
    expected = np.linalg.lstsq(hessian, design.T @ target, rcond=None)[0].reshape(-1, 3)
    found = run.averaged(None).factors[n]
    moved = replace(cores, factors=[*cores.factors[:n], expected, *cores.factors[n + 1 :]])
    assert objective(problem, run.averaged(None)) == pytest.approx(
        objective(problem, moved), rel=1e-7
    )
    np.testing.assert_allclose(phi @ found * product, phi @ expected * product, atol=1e-4)


@n_outputs_of_interest
def test_output_weights_move_to_their_least_squares_solution_where_they_are_free(n_outputs):
    _, _, problem = local_problem(losses.SquaredError(), n_outputs)
    cores = parts.random_cores(problem.local.dims, 4, n_outputs, zeros=0.0)
    cores = replace(cores, intercept=np.zeros(n_outputs))
    free = np.ones((4, n_outputs))
    free[1, 0] = 0.0
    run = make_loop(problem, cores, free)
    run.update_weights()
    found, product = run.averaged(None).weights, dense_product(problem, cores)
    assert found[1, 0] == cores.weights[1, 0]
    root = np.sqrt(problem.weight)[:, None]
    for k in range(n_outputs):
        own = free[:, k] > 0
        rest = problem.y[:, k] - product[:, ~own] @ cores.weights[~own, k]
        expected = np.linalg.lstsq(root * product[:, own], root[:, 0] * rest, rcond=None)[0]
        # The floor under the diagonal moves the weight of a small term by 1.2e-5 of itself.
        np.testing.assert_allclose(found[own, k], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("extra", ["", "order", "norm", "order and norm"])
@pytest.mark.parametrize("additive", [False, True], ids=["", "additive part"])
@pytest.mark.parametrize("loss", parts.LOSSES, ids=repr)
@n_outputs_of_interest
def test_the_objective_never_rises(loss, n_outputs, additive, extra):
    if loss.code == losses.Softmax.code and n_outputs == 1:
        loss, n_outputs = losses.Softmax(2), 2
    _, _, problem = local_problem(loss, n_outputs, extra)
    cores = parts.random_cores(problem.local.dims, 4, n_outputs, additive=additive)
    cores = replace(cores, intercept=problem.intercept)
    run = make_loop(problem, cores, damping=1e-3)
    values = [objective(problem, cores)]
    for _ in range(4):
        run.train(np.zeros(1), np.random.default_rng(0))
        values.append(objective(problem, run.averaged(None)))
    assert np.all(np.diff(values) <= 1e-9 * np.abs(values[:-1]))
    assert values[-1] < values[0]


def test_no_step_raises_the_objective():
    _, _, problem = local_problem(losses.Poisson(), 3)
    cores = parts.random_cores(problem.local.dims, 4, 3)
    run = make_loop(problem, replace(cores, intercept=problem.intercept))
    values = [objective(problem, run.averaged(None))]

    def watched(update):
        def work(*args):
            update(*args)
            values.append(objective(problem, run.averaged(None)))

        return work

    run.update_core, run.update_weights = watched(run.update_core), watched(run.update_weights)
    run.train(np.zeros(1), np.random.default_rng(0))
    assert len(values) == len(FAMILY) + 2
    assert np.all(np.diff(values) <= 1e-12)


@pytest.mark.parametrize("empty", [False, True], ids=["collinear", "nothing to learn"])
def test_singular_equations_are_solved(empty):
    x = np.repeat(np.arange(4.0), 5)
    family = [maps.Hat(4).fit(x), maps.OneHot().fit(x.astype(int))]
    y = np.zeros((20, 1)) if empty else np.sin(x)[:, None]
    rows = Rows(encode(family, [x, x.astype(int)]), y, np.ones(20))
    degrees = [m.degrees for m in family]
    problem = Problem(rows, None, losses.SquaredError(), np.zeros(1), degrees)
    factors = [np.ones((m.dim, 6)) for m in family]
    start = CPCores(factors, np.zeros((6, 1)) if empty else np.ones((6, 1)), np.zeros(1))
    solution = ALS(max_iter=3).solve(problem, start, None, np.random.default_rng(0))
    np.testing.assert_allclose(solution.cores.contract(problem.local), y, atol=1e-3)


def table(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + 0.05 * rng.normal(size=n)
    X[rng.random(X.shape) < 0.01] = np.nan
    return X, y


def small(solver="als", **changes):
    settings = {"rank": 8, "n_members": 2, "random_state": 0} | changes
    return CPRegressor(solver=solver, **settings)


@pytest.mark.parametrize("solver", ["als", "als+adam"])
def test_a_smooth_function_with_a_product_is_learnt(solver):
    X, y = table()
    new_X, new_y = table(seed=1)
    model = small(solver).fit(X, y)
    assert model.score(new_X, new_y) > 0.95
    assert all(np.isfinite(h["validation_loss"]).all() for h in model.history_)
    assert model.n_iter_ == max(len(h["train_loss"]) for h in model.history_)


def test_a_product_of_two_categorical_columns_is_learnt():
    # Neither column has an effect by itself: the start is a saddle point.
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 60, 4000), rng.integers(0, 50, 4000)])
    y = rng.normal(size=60)[X[:, 0]] * rng.normal(size=50)[X[:, 1]]
    model = small(n_members=1, categorical_features=[0, 1]).fit(X[:3000], y[:3000])
    assert model.score(X[3000:], y[3000:]) > 0.95


def test_several_outputs_and_classes_are_fitted():
    X, y = table()
    both = np.stack([y, X[:, 2]], axis=1)
    both = np.nan_to_num(both)
    for separate in (False, True):
        model = small(n_members=1, separate_outputs=separate).fit(X, both)
        assert model.score(X, both) > 0.9
        if separate:
            assert np.count_nonzero(model.weights_) <= 16
    kinds = np.digitize(y, [-0.2, 0.6])
    params = {"maps": maps.Hat(24), "rank": 8, "n_members": 1, "random_state": 0}
    model = CPClassifier(solver="als", **params).fit(X, kinds)
    assert model.score(X, kinds) > 0.9


def test_a_weight_of_two_is_the_row_twice():
    X, y = table(300)
    weight = np.random.default_rng(1).integers(1, 4, 300)
    once = small(n_members=1).fit(X, y, sample_weight=weight)
    twice = small(n_members=1).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_array_equal(once.predict(X), twice.predict(X))


def test_order_of_rows_and_columns_does_not_matter():
    X, y = table(400)
    rng = np.random.default_rng(2)
    rows, columns = rng.permutation(len(X)), rng.permutation(4)
    expected = small(max_iter=3).fit(X, y).predict(X)
    shuffled = small(max_iter=3).fit(X[rows], y[rows])
    np.testing.assert_array_equal(shuffled.predict(X), expected)
    permuted = small(max_iter=3).fit(X[:, columns], y)
    np.testing.assert_allclose(permuted.predict(X[:, columns]), expected, atol=1e-3)


def test_threads_do_not_change_the_result():
    X, y = table(400)
    one, two = (small(n_jobs=n, max_iter=3).fit(X, y).predict(X) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_a_fit_stops_after_three_sweeps_without_improvement():
    X, y = table(200)
    model = small(n_members=1, rank=16).fit(X, y)
    losses_ = model.history_[0]["validation_loss"]
    assert len(losses_) == 20 or int(np.argmin(losses_)) == len(losses_) - 4


def test_the_additive_part_of_a_linear_start_is_trained_too():
    X, y = table(600)
    model = small(n_members=1, rank=3, init=inits.Linear(), early_stopping=False).fit(X, y)
    start = small(n_members=1, rank=3, init=inits.Linear(), max_iter=0).fit(X, y)
    assert np.abs(model.tensor_.additive[2] - start.tensor_.additive[2]).max() > 1e-3
    curve = model.history_[0]["train_loss"]
    assert curve[-1] < 0.5 * curve[0]


def test_warm_start_never_ends_worse_on_the_validation_rows():
    X, y = table(600)
    model = small(n_members=1, max_iter=2, warm_start=True)
    held_out = {"X_val": X[:200], "y_val": y[:200]}
    before = model.fit(X[200:], y[200:], **held_out).score(X[:200], y[:200])
    assert model.fit(X[200:], y[200:], **held_out).score(X[:200], y[:200]) >= before - 1e-6


def test_partial_fit_trains_by_adam_whatever_the_solver():
    X, y = table(300)
    ours, adams = (small(s).partial_fit(X, y).predict(X) for s in ("als", "adam"))
    np.testing.assert_array_equal(ours, adams)


def noisy_polynomial(noise, n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 2, (n, 3))
    y = X[:, 0] ** 2 - 2 * X[:, 0] * X[:, 1] + 0.5 * X[:, 2]
    return X, y + noise * rng.normal(size=n)


@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("map_", [maps.Polynomial(3), maps.Chebyshev(4), maps.Hat(6)], ids=repr)
def test_sweeps_after_adam_never_end_worse_on_the_validation_rows(map_, noise):
    X, y = noisy_polynomial(noise)
    params = {"maps": map_, "n_members": 1, "rank": 8, "max_iter": 60}
    held_out = {"X_val": X[:80], "y_val": y[:80]}
    adam, both = (small(s, **params).fit(X[80:], y[80:], **held_out) for s in ("adam", "adam+als"))
    error = [np.mean((m.predict(X[:80]) - y[:80]) ** 2) for m in (adam, both)]
    assert error[1] <= error[0] * (1 + 1e-5)
    for name, values in adam.history_[0].items():
        assert both.history_[0][name][: len(values)] == values
    assert both.n_iter_ > adam.n_iter_


def test_without_held_out_rows_there_are_no_sweeps_after_adam():
    X, y = noisy_polynomial(0.3, 60)
    params = {"maps": maps.Polynomial(3), "max_iter": 20, "early_stopping": False}
    adam, both = (small(s, **params).fit(X, y) for s in ("adam", "adam+als"))
    np.testing.assert_array_equal(adam.predict(X), both.predict(X))


def test_unsupported_maps_and_engines_are_refused_with_advice():
    X, y = table(50)
    with pytest.raises(ValueError, match=r"Polynomial of d=5 or less.*Column 0 .* with 5 elements"):
        small(maps=maps.Polynomial(6)).fit(X, y)
    with pytest.raises(ValueError, match="at most 4 neighbouring"):
        small(maps=maps.BSpline(degree=4)).fit(X, y)
    with pytest.raises(ValueError, match="solver='als' runs on engine='fused' only"):
        small(engine="torch").fit(X, y)


def test_a_map_whose_elements_are_not_neighbours_is_refused():
    class Ends(maps.Hat):
        def encode(self, x):
            index, value = super().encode(x)
            return np.where(index > 0, [1, self.dim - 1], index).astype(np.int32), value

    X, y = table(50)
    with pytest.raises(ValueError, match="neighbours in every row; those of column 0 are not"):
        small(maps=Ends(5)).fit(X, y)


def test_balancing_terms_does_not_change_predictions():
    family, columns = local_table()
    rng = np.random.default_rng(0)
    features = encode(family, columns)
    scale = [np.ones(3) for _ in family]
    scale[0][1], scale[2][1] = 30.0, 1e-3
    factors = [s * rng.normal(1.0, 0.3, (m.dim, 3)) for s, m in zip(scale, family)]
    cores = CPCores(factors, rng.normal(size=(3, 2)), np.zeros(2))
    even = balanced(cores, features)
    np.testing.assert_allclose(even.contract(features), cores.contract(features), rtol=1e-4)
    assert all(0.2 < np.abs(a[:, 1]).mean() < 5 for a in even.factors)
    np.testing.assert_array_equal(even.factors[0][:, 0], factors[0][:, 0])
