"""The fused engine against dense tensors, finite differences and a textbook Adam."""

from dataclasses import replace

import numpy as np
import parts
import pytest
from problems import batch_gradient, make_problem

from polyadic import losses, maps
from polyadic.data.features import encode
from polyadic.kernels import adam as kernel
from polyadic.kernels.cp import TILE
from polyadic.networks.cp import CPCores
from polyadic.objective import penalties
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.adam import Adam, AdamLoop

n_outputs_of_interest = pytest.mark.parametrize("n_outputs", [1, 3])


def dense_prediction(cores, family, columns):
    """Return raw from the whole weight tensor and the outer product of the feature vectors."""
    weight = cores.to_dense()  # (d_1, ..., d_N, L)
    phis = [m.dense(x) for m, x in zip(family, columns)]
    out = np.tile(weight, (len(columns[0]), *[1] * weight.ndim))
    for phi in phis:
        out = np.einsum("nd,nd...->n...", phi, out)
    if cores.additive is not None:
        out = out + sum(phi @ v for phi, v in zip(phis, cores.additive))
    return out + cores.intercept


@n_outputs_of_interest
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_contraction_matches_the_dense_tensor(n_outputs, additive, zeros):
    family, columns = parts.mixed_table()
    features = encode(family, columns)
    cores = parts.random_cores(features.dims, 3, n_outputs, zeros=zeros, additive=additive)
    expected = dense_prediction(cores, family, columns)
    np.testing.assert_allclose(cores.contract(features), expected, rtol=2e-4, atol=2e-4)


def hat_table(n_columns, n=75, seed=0):
    """Return hats on columns with ties, missing values, outliers and one constant column."""
    rng = np.random.default_rng(seed)
    columns = [np.round(rng.normal(size=n), 1 + k % 3) for k in range(n_columns)]
    columns[-1][:] = 2.0
    family = [maps.Hat(5 + 4 * k).fit(x) for k, x in enumerate(columns)]
    columns = [np.where(rng.random(n) < 0.1, np.nan, 1.5 * x) for x in columns]
    return family, columns


@n_outputs_of_interest
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("n_columns", [1, 2, 5])
def test_contraction_of_hats_is_the_contraction_of_their_features(n_outputs, additive, n_columns):
    family, columns = hat_table(n_columns)
    features = encode(family, columns)
    cores = parts.random_cores(features.dims, 11, n_outputs, additive=additive)
    expected = cores.contract(features)
    knots = [m.knots_ for m in family]
    found = cores.contract_hats(features.layout, knots, columns)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    for i in (0, 40, 74):
        alone = cores.contract_hats(features.layout, knots, [x[i : i + 1] for x in columns])
        np.testing.assert_array_equal(alone, found[i : i + 1])


def test_contraction_does_not_depend_on_other_rows():
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=9001), rng.normal(size=9001)]
    family = [maps.Hat(8).fit(x) for x in columns]
    features = encode(family, columns)
    cores = parts.random_cores(features.dims, 5, 2)
    few = features.take(np.arange(100, 107))
    np.testing.assert_array_equal(cores.contract(few), cores.contract(features)[100:107])


@pytest.mark.parametrize("loss", parts.LOSSES, ids=repr)
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_gradient_matches_finite_differences(loss, zeros):
    family, columns = parts.mixed_table(n=9)
    problem = make_problem(loss, 3, family, columns)
    cores = parts.random_cores(problem.local.dims, 3, 3, zeros=zeros, additive=True)
    rows = np.array([4, 0, 7, 2, 8])
    _, gradient, _ = batch_gradient(problem, cores, rows)

    def value(moved):
        return batch_gradient(problem, moved, rows)[0]

    step = 1e-6
    rng = np.random.default_rng(1)
    for name in ("factors", "additive", "weights"):
        arrays = getattr(cores, name)
        listed = arrays if isinstance(arrays, list) else [arrays]
        slopes = getattr(gradient, name)
        slopes = slopes if isinstance(slopes, list) else [slopes]
        for n, array in enumerate(listed):
            for _ in range(6):
                place = tuple(rng.integers(0, size) for size in array.shape)
                values = []
                for sign in (1, -1):
                    moved = [a.copy() for a in listed]
                    moved[n][place] += sign * step
                    new = moved if isinstance(arrays, list) else moved[0]
                    values.append(value(replace(cores, **{name: new})))
                slope = (values[0] - values[1]) / (2 * step)
                assert slope == pytest.approx(slopes[n][place], rel=2e-4, abs=1e-7)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_terms_without_weight_change_nothing_at_any_width(n_outputs):
    # A width of one tile has kernels of its own: products stay in registers.
    family, columns = hat_table(4)
    family = [*family, maps.OneHot(min_count=1).fit(np.arange(75) % 7)]
    columns = [*columns, np.arange(75) % 7]
    problem = make_problem(losses.SquaredError(), n_outputs, family, columns)
    problem = problem.penalised(penalties.ridge(family, 1e-3))
    rank = TILE if TILE > 4 else 32
    cores = parts.random_cores(problem.local.dims, rank, n_outputs)
    more = parts.random_cores(problem.local.dims, 8, n_outputs, seed=1)
    wide = replace(
        cores,
        factors=[np.hstack([a, b]) for a, b in zip(cores.factors, more.factors)],
        weights=np.vstack([cores.weights, 0.0 * more.weights]),
    )
    free = np.vstack([np.ones_like(cores.weights), np.zeros_like(more.weights)])
    solver, rates = Adam(batch_size=16, max_iter=4), np.full(20, 0.01, np.float32)
    found = []
    for start, own in ((cores, None), (wide, free)):
        loop = AdamLoop(solver, problem, start, own)
        loop.train(rates, np.random.default_rng(0))
        found.append(loop.unpack(loop.state.parameters))
    for a, b in zip(found[0].factors, found[1].factors):
        np.testing.assert_allclose(a, b[:, :rank], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0].weights, found[1].weights[:rank], rtol=1e-4, atol=1e-5)


def test_a_batch_touches_only_the_core_rows_of_its_slots():
    column = np.arange(10)
    family = [maps.OneHot(min_count=1).fit(column)]
    problem = make_problem(losses.SquaredError(), 1, family, [column])
    cores = parts.random_cores(problem.local.dims, 2, 1)
    _, gradient, touched = batch_gradient(problem, cores, np.array([3, 5]))
    first = problem.local.layout.first[0]
    assert touched == {first, first + 1 + 3, first + 1 + 5}
    moved = np.flatnonzero(np.any(gradient.factors[0] != 0, axis=1))
    assert set(moved.tolist()) <= {0, 4, 6}


def textbook_adam(cores, gradient_of, rates, keep):
    """Run Adam and a running average on lists of arrays, in double precision."""
    values = [a.copy() for a in [*cores.factors, cores.weights]]
    first = [np.zeros_like(a) for a in values]
    second = [np.zeros_like(a) for a in values]
    mean = [a.copy() for a in values]
    for t, rate in enumerate(rates, start=1):
        gradients = gradient_of(t - 1, replace(cores, factors=values[:-1], weights=values[-1]))
        for k, g in enumerate(gradients):
            first[k] = 0.9 * first[k] + 0.1 * g
            second[k] = 0.999 * second[k] + 0.001 * g**2
            step = (first[k] / (1 - 0.9**t)) / (np.sqrt(second[k] / (1 - 0.999**t)) + 1e-8)
            values[k] = values[k] - rate * step
            mean[k] = keep * mean[k] + (1 - keep) * values[k]
    return values, mean


@pytest.mark.parametrize("order", [False, True], ids=["", "order penalty"])
def test_dense_columns_follow_textbook_adam(order):
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=50), rng.normal(size=50)]
    family = [maps.Polynomial(3).fit(x) for x in columns]
    penalty = penalties.Order(0.01, penalties.emphasis(family, 1.5)) if order else None
    problem = make_problem(losses.SquaredError(), 1, family, columns, penalty)
    problem = problem.penalised(penalties.ridge(family, 0.01))
    cores = parts.random_cores(problem.local.dims, 4, 1, zeros=0.0)
    cores = replace(cores, intercept=np.zeros(1))
    solver = Adam(learning_rate=0.01, batch_size=16, max_iter=3, schedule="constant", ema_decay=0.9)
    weight = problem.weight / problem.weight.mean()
    scaled = replace(problem, rows=replace(problem.rows, weight=weight))
    shuffles = np.random.default_rng(7)
    batches = []
    for _ in range(3):
        rows = shuffles.permutation(50)
        batches += [rows[k : k + 16] for k in range(0, 50, 16)]

    def gradient_of(step, now):
        _, g, _ = batch_gradient(scaled, now, batches[step])
        out = [*g.factors, g.weights]
        problem.fixed.add_gradient(now, out[:-1])
        if penalty is not None:
            slope = now.order_gradient(penalty.emphasis)[1]
            for target, extra in zip(out, [*slope.factors, slope.weights]):
                target += penalty.alpha * extra
        return out

    _, mean = textbook_adam(cores, gradient_of, [0.01] * len(batches), 0.9)
    solution = solver.solve(problem, cores, np.ones((4, 1)), np.random.default_rng(7))
    for ours, expected in zip([*solution.cores.factors, solution.cores.weights], mean):
        np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=2e-5)


def test_lazy_average_equals_the_average_over_every_step():
    rng = np.random.default_rng(0)
    column = rng.integers(0, 30, 200)  # batches of four touch few rows of the core
    family = [maps.OneHot().fit(column)]
    problem = make_problem(losses.SquaredError(), 1, family, [column])
    cores = parts.random_cores(problem.local.dims, 2, 1, zeros=0.0)
    solver = Adam(learning_rate=0.05, batch_size=4, max_iter=1, schedule="constant", ema_decay=0.8)
    run = AdamLoop(solver, problem, cores, np.ones((2, 1)))
    order = rng.permutation(200)
    mean = run.state.parameters.table.astype(float)
    for begin in range(0, 200, 4):
        args = (4, np.float32([0.05]), np.float32(0.8))
        run.job.band[:] = run.fixed_band
        rows = order[begin : begin + 4]
        kernel.train_epoch(run.job, run.workspace, len(run.always), rows, *args)
        mean = 0.8 * mean + 0.2 * run.state.parameters.table
    np.testing.assert_allclose(run.averaged(None).table, mean, rtol=1e-4, atol=1e-6)


def test_rarely_touched_core_rows_get_their_full_penalty():
    # A category in one batch of twenty is shrunk as if its penalty acted at every step: its
    # optimum is that of ridge regression.
    column = np.repeat(np.arange(40), 10)
    y = np.where(column < 20, 1.0, -1.0)[:, None]
    family = [maps.OneHot().fit(column)]
    rows = Rows(encode(family, [column]), y, np.ones(400))
    strength = 0.01
    problem = Problem(
        rows,
        None,
        losses.SquaredError(),
        np.zeros(1),
        [family[0].degrees],
        (penalties.ridge(family, strength),),
    )
    factor = np.zeros((41, 1))
    cores = CPCores([factor], np.ones((1, 1)), np.zeros(1))
    solver = Adam(learning_rate=0.02, batch_size=8, max_iter=150, ema_decay=0.99)
    solution = solver.solve(problem, cores, np.zeros((1, 1)), np.random.default_rng(0))
    found = solution.cores.factors[0][1:, 0]
    # Ridge: minimise (a - 1)^2 / 40 + strength a^2, over a category's share of 1 / 40 of the rows.
    expected = (1 / 40) / (1 / 40 + strength)
    np.testing.assert_allclose(np.abs(found), expected, rtol=0.05)


def test_divergence_is_reported_with_the_parameter_to_change():
    rng = np.random.default_rng(0)
    columns = [10 * rng.normal(size=100)]
    family = [maps.Polynomial(4).fit(x) for x in columns]
    problem = make_problem(losses.SquaredError(), 1, family, columns)
    cores = parts.random_cores(problem.local.dims, 4, 1)
    solver = Adam(learning_rate=1e30, max_iter=5, schedule="constant")
    solution = solver.solve(problem, cores, np.ones((4, 1)), np.random.default_rng(0))
    assert not solution.converged
    assert "learning_rate" in solution.message
    assert all(np.all(np.isfinite(a)) for a in solution.cores.factors)


def test_denormal_setting_of_the_thread_is_restored():
    test_contraction_does_not_depend_on_other_rows()
    test_contraction_of_hats_is_the_contraction_of_their_features(1, False, 2)
    assert np.float32(1e-38) * np.float32(0.1) > 0
