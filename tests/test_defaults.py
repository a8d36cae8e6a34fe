"""What the defaults choose: strengths, weights of columns, knots, steps, solvers."""

import numpy as np
import parts
import pytest

from polyadic import CPClassifier, CPRegressor, maps
from polyadic.solvers import loop
from polyadic.solvers.adam import Adam
from polyadic.solvers.als import MAX_SWEEPS
from polyadic.solvers.contract import Solution
from polyadic.solvers.sequences import AdamThenAls, AlsThenAdam
from polyadic.training.fits import Fits
from polyadic.training.merge import Member, merge, usable
from polyadic.training.strategies import FactorPenalties, TensorPrior

FAST = {"rank": 4, "max_iter": 8, "random_state": 0}


def noisy_table(n=400, n_columns=4, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, n_columns))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)


def strengths_used(monkeypatch, estimator, n=400):
    """Return the strength of every pilot and member of a fit by factor penalties."""
    used = []
    train_one = Fits.train_one

    def watched(self, fit, *args):
        if isinstance(self.plan.strategy, FactorPenalties):
            used.append(fit.strength)
        return train_one(self, fit, *args)

    monkeypatch.setattr(Fits, "train_one", watched)
    estimator.fit(*noisy_table(n))
    return used


@pytest.mark.parametrize(
    ("n", "given", "own", "of_the_prior"),
    [(499, "auto", 10, 10), (500, "auto", 5, 5), (3000, "auto", 5, 3), (499, 3, 3, 3)]
    + [(499, 20, 20, 10)],
)
def test_the_number_of_members_depends_on_the_rows(n, given, own, of_the_prior):
    plan = parts.plan_of(CPRegressor(n_members=given), *noisy_table(n))
    assert (plan.n_members, plan.others[0].n_members) == (own, of_the_prior)


def test_auto_takes_adam_where_a_row_has_more_slots_than_least_squares_supports():
    X = np.random.default_rng(0).random((60, 2))
    model = CPRegressor(maps=maps.BSpline(degree=4), n_members=1, max_iter=1)
    assert isinstance(solver_of(model, X, X[:, 0]), Adam)
    assert np.all(np.isfinite(model.fit(X, X[:, 0]).predict(X)))


def test_the_first_members_try_every_strength_and_the_others_take_the_best(monkeypatch):
    model = CPRegressor(n_members=4, n_jobs=1, **FAST)
    used = strengths_used(monkeypatch, model)
    tried = [
        s for s in FactorPenalties.strengths for _ in range(2)
    ]  # by two members, on a small table
    assert used[: len(tried)] == tried
    assert len(used) == len(tried) + 2
    assert len(set(used[len(tried) :])) == 1
    assert len(model.history_) == 4


@pytest.mark.parametrize("strategy", [FactorPenalties, TensorPrior])
def test_an_error_in_a_thread_is_the_one_that_is_raised(monkeypatch, strategy):
    """The threads that it stops have other errors, some of which are seen first."""
    train_one = Fits.train_one

    def failing(self, fit, *args):
        if isinstance(self.plan.strategy, strategy):
            raise MemoryError("no more")
        return train_one(self, fit, *args)

    monkeypatch.setattr(Fits, "train_one", failing)
    with pytest.raises(MemoryError, match="no more"):
        CPRegressor(random_state=0, n_jobs=2).fit(*noisy_table(300))


@pytest.mark.parametrize("n_rows", [400, 2500])
def test_the_sweeps_before_adam_are_made_once_for_each_member(monkeypatch, n_rows):
    made, sweep = [], Fits.sweep

    def watched(self, fit, solver):
        made.append(fit.number)
        return sweep(self, fit, solver)

    monkeypatch.setattr(Fits, "sweep", watched)
    CPRegressor(rank=4, n_members=3, random_state=0).fit(*noisy_table(n_rows))
    assert len(made) == len(set(made))
    assert set(made) <= {0, 1, 2}
    assert 0 in made


@pytest.mark.parametrize(
    "params", [{"n_members": 1}, {"n_members": 3, "l2": 0.1, "smoothness": 0.1}]
)
def test_no_strength_is_tried_where_there_is_nothing_to_choose(monkeypatch, params):
    used = strengths_used(monkeypatch, CPRegressor(**FAST, **params))
    assert used == [1.0] * params["n_members"]


def test_no_strength_is_tried_without_held_out_rows(monkeypatch):
    model = CPRegressor(n_members=3, early_stopping=False, **FAST)
    assert strengths_used(monkeypatch, model) == [1.0] * 3


def test_threads_do_not_change_what_is_chosen():
    X, y = noisy_table()
    one, two = (CPRegressor(n_members=3, n_jobs=n, **FAST).fit(X, y).predict(X) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_columns_without_effect_are_flatter_than_with_equal_weights(monkeypatch):
    X, y = noisy_table(600, 8, noise=0.5)
    params = {"n_members": 1, "rank": 8, "max_iter": 60, "solver": "adam", "random_state": 0}

    def flatness():
        model = CPRegressor(**params).fit(X, y)
        sizes = [np.mean(core[1:] ** 2) for core in model.cores_]
        return np.mean(sizes[2:]) / np.mean(sizes[:2])

    weighted = flatness()
    monkeypatch.setattr(loop, "_WEIGHT_PACE", 0.0)
    assert weighted < 0.7 * flatness()


def test_knots_grow_with_the_root_of_the_rows():
    rng = np.random.default_rng(0)
    sizes = [len(maps.Hat().fit(rng.normal(size=n)).knots_) for n in (30, 2500, 40_000)]
    assert sizes == [24, 50, 160]


def test_a_repeated_column_has_the_knots_of_its_weights():
    x = np.random.default_rng(0).normal(size=900)
    repeated, weighted = maps.Hat().fit(np.tile(x, 4)), maps.Hat().fit(x, None, np.full(900, 4.0))
    np.testing.assert_array_equal(repeated.knots_, weighted.knots_)
    assert len(repeated.knots_) == 60


@pytest.mark.parametrize(
    ("model", "sweeps"),
    [
        (CPRegressor(), True),
        (CPRegressor(maps="polynomial"), False),
        (CPRegressor(loss="huber"), False),
        (CPRegressor(init="linear"), False),
        (CPRegressor(max_iter=0), False),
        (CPRegressor(solver="adam"), False),
    ],
    ids=str,
)
def test_auto_starts_with_a_sweep_for_hats_and_the_squared_error(model, sweeps):
    X, y = noisy_table(60)
    model.set_params(n_members=1, rank=2, early_stopping=False, batch_size=60)
    assert isinstance(solver_of(model, X, y), AlsThenAdam) == sweeps


def solver_of(model, X, y):
    """Return the solver of a fit, without fitting."""
    return parts.plan_of(model, X, y).solver


@pytest.mark.parametrize(
    ("params", "sweeps"),
    [
        ({}, True),
        ({"maps": maps.Polynomial(5)}, True),
        ({"maps": maps.Chebyshev(4)}, True),
        ({"maps": {"x0": maps.Polynomial(2)}}, True),
        ({"maps": maps.Polynomial(6)}, False),
        ({"maps": maps.Polynomial(75, normalize=True)}, False),
        ({"max_iter": 50}, False),
        ({"loss": "huber"}, False),
        ({"init": "gaussian"}, False),
        ({"solver": "adam"}, False),
    ],
    ids=str,
)
def test_auto_ends_with_sweeps_where_maps_are_small_polynomials(params, sweeps):
    X, y = noisy_table(300)
    model = CPRegressor(**{"maps": "polynomial", "n_members": 1, "random_state": 0} | params)
    assert isinstance(solver_of(model, X, y), AdamThenAls if sweeps else Adam)


def test_long_tables_have_no_sweeps_after_adam():
    short, long = (noisy_table(n) for n in (300, 40_000))
    model = CPRegressor(maps="polynomial", n_members=1, random_state=0)
    assert solver_of(model, *short).second.max_iter == MAX_SWEEPS
    assert isinstance(solver_of(model, *long), Adam)


POLYNOMIALS = {
    "3 x0 + x1 x2": lambda x: 3 * x[0] + x[1] * x[2],
    "x0 x1 x2": lambda x: x[0] * x[1] * x[2],
    "x0^2 - 2 x0 x1 + x2^2 / 2 + x1": lambda x: x[0] ** 2 - 2 * x[0] * x[1] + x[2] ** 2 / 2 + x[1],
}


@pytest.mark.parametrize("name", POLYNOMIALS)
@pytest.mark.parametrize("n_members", [1, 2])
def test_polynomials_without_noise_are_found_exactly(name, n_members):
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1, 2, (300, 3)), rng.uniform(-1, 2, (500, 3))
    y, wanted = POLYNOMIALS[name](X.T), POLYNOMIALS[name](new.T)
    model = CPRegressor(maps=maps.Polynomial(3), n_members=n_members, random_state=0).fit(X, y)
    # 20 seeds, code for the host, for "generic" and for "haswell": at most 3.3e-14, and up to 3e-6
    # by Adam alone.
    assert np.mean((model.predict(new) - wanted) ** 2) < 1e-12 * np.var(wanted)


def test_a_fit_that_only_gets_worse_is_stopped_early():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (300, 12)), rng.normal(size=300)
    params = {"n_members": 1, "l2": 0, "smoothness": 0, "max_iter": 200, "solver": "adam"}
    model = CPRegressor(random_state=0, **params).fit(X, y)
    assert model.n_iter_ < 150


def test_a_member_that_learnt_nothing_is_left_out():
    X, y = noisy_table()
    model = CPRegressor(n_members=1, **FAST).fit(X, y)
    maps_, cores = model.maps_, model.tensor_

    def member(loss, constant_loss=1.0):
        return Member(maps_, Solution(cores, loss=loss, constant_loss=constant_loss))

    def kept(*members):
        return [m.solution.loss for m in usable(members)]

    assert kept(member(0.1), member(0.4), member(0.95)) == [0.1, 0.4]
    assert kept(member(np.inf), member(np.inf)) == [np.inf, np.inf]
    assert kept(member(1e-9), member(0.3)) == [1e-9, 0.3]  # folds differ: both have learnt
    assert kept(member(-7.0, -1.0), member(-1.0, -1.0)) == [-7.0]  # a Poisson loss
    assert kept(member(0.9), member(0.99)) == [0.9, 0.99]  # a noisy table
    _, merged = merge([member(0.1), member(0.4)])
    assert merged.rank == 2 * cores.rank


def test_two_classes_are_learnt_by_default():
    X, y = noisy_table(800)
    model = CPClassifier(n_members=2, rank=8, random_state=0).fit(X, y > 0)
    assert model.score(X, y > 0) > 0.95
