"""The prior on the weight tensor: its norm, and spreads learnt by empirical Bayes."""

from dataclasses import replace

import numpy as np
import parts
import pytest
from test_als import banded, local_table, make_problem, tensor_norm

from polyadic import CPClassifier, ensemble, local, losses, maps, penalties, priors
from polyadic.kernels import additive as kernel
from polyadic.solvers.base import Problem, Rows


def dense_tensor(cores):
    """Write W out, (d_1, ..., d_N, L)."""
    out = cores.weights
    for factor in reversed(cores.factors):
        out = factor.reshape(len(factor), *[1] * (out.ndim - 2), *factor.shape[1:], 1) * out[None]
    return out.sum(axis=-2)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_the_norm_is_that_of_the_whole_tensor(n_outputs):
    family, _ = local_table()
    family = family[:3]
    cores = parts.random_cores([m.dim for m in family], 4, n_outputs)
    norm = tensor_norm(family)
    tensor = moved = dense_tensor(cores)
    for n, band in enumerate(norm.metric):
        moved = np.moveaxis(np.tensordot(banded(band), moved, (1, n)), 0, n)
    assert norm.value(cores) == pytest.approx(norm.strength * np.sum(tensor * moved), rel=1e-9)


def test_the_order_penalty_is_such_a_norm():
    family, _ = local_table()
    cores = parts.random_cores([m.dim for m in family], 4, 2)
    order = penalties.Order(0.3, penalties.emphasis(family, 2.0))
    assert order.as_norm().value(cores) == pytest.approx(order.value(cores), rel=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test_band_kernels_agree_with_matrices(dim):
    rng = np.random.default_rng(dim)
    band = np.zeros((dim, 4))
    for b in range(min(4, dim)):
        band[: dim - b, b] = rng.normal(size=dim - b)
    band[:, 0] += 8.0
    other = np.where(band != 0, rng.normal(size=band.shape), 0.0)
    dense, second = (np.zeros((dim, dim)) for _ in range(2))
    for k in range(dim):
        for b in range(min(4, dim - k)):
            dense[k, k + b] = dense[k + b, k] = band[k, b]
            second[k, k + b] = second[k + b, k] = other[k, b]
    x, out = rng.normal(size=dim), np.empty(dim)
    kernel.times(band, x, out)
    np.testing.assert_allclose(out, dense @ x, rtol=1e-12)
    factor, inverse, solution = band.copy(), np.empty_like(band), x.copy()
    kernel.factorise(factor)
    kernel.solve(factor, solution)
    np.testing.assert_allclose(solution, np.linalg.solve(dense, x), rtol=1e-10)
    kernel.invert(factor, inverse)
    trace = np.sum(np.linalg.inv(dense) * second)
    assert kernel.band_dot(inverse, other) == pytest.approx(trace, rel=1e-10)


def problem_of(family, columns, y, loss, weight=None):
    rows = Rows(local.encode(family, columns), y, np.ones(len(y)) if weight is None else weight)
    zero = penalties.ridge(family, 0.0)
    degrees = [m.degrees for m in family]
    return Problem(rows, None, loss, loss.baseline(y, rows.weight), degrees, zero, zero)


def spreads_of(family, problem):
    return priors.learn_spreads(problem, [priors.precision(m) for m in family])


@pytest.mark.parametrize("loss", [losses.SquaredError(), losses.Logistic()], ids=repr)
def test_the_spread_of_categories_is_the_variance_of_their_effects(loss):
    rng = np.random.default_rng(0)
    true = [1.0, 0.2]
    columns = [rng.integers(0, 300, 60_000) for _ in range(3)]
    effects = [np.sqrt(v) * rng.normal(size=300) for v in true]
    raw = sum(e[c] for e, c in zip(effects, columns))
    y = raw + rng.normal(size=len(raw))
    if loss.code == losses.Logistic.code:
        y = rng.random(len(raw)) < 1 / (1 + np.exp(-raw))
    family = [maps.OneHot().fit(c) for c in columns]
    found = spreads_of(family, problem_of(family, columns, y[:, None].astype(float), loss))
    np.testing.assert_allclose(found[:2], true, rtol=0.3)
    assert found[2] < 0.01


def test_a_column_without_effect_has_no_spread_and_a_rough_one_has_more_than_a_smooth_one():
    rng = np.random.default_rng(0)
    columns = [rng.uniform(-1, 1, 4000) for _ in range(3)]
    y = 0.3 * columns[0] + np.sign(np.sin(20 * columns[1])) + 0.3 * rng.normal(size=4000)
    family = [maps.Hat().fit(c) for c in columns]
    found = spreads_of(family, problem_of(family, columns, y[:, None], losses.SquaredError()))
    assert found[1] > 5 * found[0] > 0
    assert found[2] < 0.1 * found[0]


@pytest.mark.parametrize("loss", parts.LOSSES, ids=repr)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_every_loss_and_map_has_finite_spreads(loss, n_outputs):
    if loss.code == losses.Softmax.code and n_outputs == 1:
        loss, n_outputs = losses.Softmax(2), 2
    family, _, problem = make_problem(loss, n_outputs)
    found = spreads_of(family, problem)
    assert np.all(np.isfinite(found))
    assert np.all(found > 0)


def test_a_weight_of_two_is_the_row_twice():
    family, columns, problem = make_problem(losses.Logistic(), 1)
    twice = np.r_[: len(columns[0]), :20]
    weight = np.ones(len(columns[0]))
    weight[:20] = 2.0
    weighted = problem_of(family, columns, problem.y, problem.loss, weight)
    weighted = replace(weighted, weight_unit=1.0)
    repeated = problem_of(
        family, [c[twice] for c in columns], problem.y[twice], problem.loss, np.ones(len(twice))
    )
    np.testing.assert_allclose(
        spreads_of(family, weighted), spreads_of(family, repeated), rtol=1e-6
    )


def noisy_table(n=600, n_noise=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2 + n_noise))
    raw = 2.0 * X[:, 0] + 2.0 * X[:, 1] + 1.5 * X[:, 0] * X[:, 1]
    return X, (rng.random(n) < 1 / (1 + np.exp(-raw))).astype(int), raw


def test_two_classes_withstand_columns_of_noise():
    X, y, _ = noisy_table()
    T, _, raw = noisy_table(seed=1)
    model = CPClassifier(random_state=0).fit(X, y)
    assert np.corrcoef(model.decision_function(T), raw)[0, 1] > 0.85


def test_pilots_find_the_interaction_and_members_learn_from_all_rows(monkeypatch):
    X, y, _ = noisy_table(n_noise=1)
    seen = []
    build = ensemble.build_problem

    def watched(recipe, own, rows, held_out, *args):
        seen.append((recipe.strength, recipe.rank, len(rows), held_out is None))
        return build(recipe, own, rows, held_out, *args)

    monkeypatch.setattr(ensemble, "build_problem", watched)
    model = CPClassifier(random_state=0, n_jobs=1).fit(X, y)
    members, pilots = [s for s in seen if s[3]], [s for s in seen if not s[3]]
    assert [s[2] for s in members] == [len(X)] * 2
    assert {s[0] for s in pilots} >= set(ensemble.INTERACTIONS)
    assert members[0][0] in {s[0] for s in pilots}
    assert members[0][1] == ensemble.rank_for(members[0][0])
    assert model.tensor_.rank == 2 * members[0][1]
    assert len(seen) == ensemble.count_fits(*recipe_of(model, X, y))


def recipe_of(model, X, y):
    table = model._read(X, y, None, fresh=True)
    recipe = model._recipe(table, model._solver(table, model._fit_maps(table)))
    return recipe, table, model._n_members(recipe.prior)


def test_without_held_out_rows_the_usual_interaction_is_taken():
    X, y, _ = noisy_table(n=200, n_noise=1)
    model = CPClassifier(random_state=0, early_stopping=False, n_members=1).fit(X, y)
    assert model.tensor_.rank == min(ensemble.RANKS)


def test_penalties_that_are_asked_for_stand_in_the_place_of_the_prior():
    X, y, _ = noisy_table(n=100, n_noise=1)
    for changes in ({"l2": 1e-3}, {"smoothness": 1e-3}, {"order_alpha": 1e-3}):
        model = CPClassifier(random_state=0, **changes)
        assert not recipe_of(model, X, y)[0].prior
