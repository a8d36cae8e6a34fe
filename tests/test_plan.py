"""The plan of a fit: what was chosen, and why; and the parameters that it is made from."""

import dataclasses
import inspect
import pickle

import needs
import numpy as np
import parts
import pytest
from sklearn.feature_selection import SelectFromModel

from polyadic import CPClassifier, CPRegressor, TNClassifier, TNRegressor, inits, losses, maps
from polyadic.solvers.adam import Adam
from polyadic.solvers.contract import Solution
from polyadic.solvers.registry import FUSED
from polyadic.solvers.riemannian import PEAK_RATE
from polyadic.training.strategies import FactorPenalties, MixedPrior, TensorPrior

ESTIMATORS = [CPRegressor, CPClassifier, TNRegressor, TNClassifier]


def toy(n=80):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X[:, 0] * X[:, 1] + X[:, 2]


# ---- the plan -----------------------------------------------------------------------------------


def test_a_fitted_model_says_what_was_chosen_and_why():
    X, y = toy()
    plan = CPRegressor(rank=3, max_iter=2, n_members=2, random_state=0).fit(X, y).plan_
    choices = {choice.name: choice for choice in plan.choices}
    assert plan["maps"] == "3 Hat of 25"
    with pytest.raises(KeyError, match="'depth' is not in the plan; it has maps, "):
        plan["depth"]
    assert choices["rank"] == ("rank", "3", "as given")
    assert choices["max_iter"].why == "as given"
    assert choices["learning_rate"].why != "as given"
    text = str(plan)
    for name in ("solver", "strategy", "rank", "n_members", "n_folds", "strengths", "seconds"):
        assert name in text
    tried = [strength for strength, _ in plan.trials]
    assert set(FactorPenalties.strengths) <= set(tried)
    best = min(plan.trials, key=lambda trial: trial[1])
    assert f"{best[0]:.3g}" in text
    assert set(plan.seconds) == {"pilots", "members"}


def test_a_plan_cannot_be_changed():
    plan = parts.plan_of(CPRegressor(), *toy())
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.n_members = 3


@pytest.mark.parametrize("kind", [CPRegressor, CPClassifier])
def test_the_same_table_and_parameters_give_the_same_plan(kind):
    X, y = toy()
    target = y if kind is CPRegressor else np.where(y > 0, "a", "b")
    one, other = (parts.plan_of(kind(random_state=0), X, target) for _ in range(2))
    assert one.choices == other.choices
    assert repr(one) == repr(other)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_both_strategies_are_mixed_whatever_the_target(classes):
    X, y = toy()
    if classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    plan = parts.plan_of(CPClassifier() if classes else CPRegressor(), X, y)
    assert isinstance(plan.strategy, FactorPenalties)
    assert [type(other.strategy) for other in plan.others] == [MixedPrior]


def test_one_member_has_one_strategy():
    X, y = toy()
    regression = parts.plan_of(CPRegressor(n_members=1), X, y)
    two_classes = parts.plan_of(CPClassifier(n_members=1), X, y > 0)
    assert isinstance(regression.strategy, FactorPenalties)
    assert isinstance(two_classes.strategy, TensorPrior)
    assert not regression.others
    assert not two_classes.others


def test_a_plan_survives_pickling_with_its_model():
    X, y = toy()
    model = CPRegressor(rank=2, max_iter=1, n_members=1, random_state=0).fit(X, y)
    assert str(pickle.loads(pickle.dumps(model)).plan_) == str(model.plan_)


def test_partial_fit_keeps_the_interaction_of_a_fit():
    X, y = toy()
    model = CPClassifier(random_state=0, n_members=1).fit(X, y > 0)
    found = model.interaction_
    assert model.partial_fit(X, y > 0).interaction_ == found


def test_the_solver_of_a_plan_is_the_registered_one():
    X, y = toy(200)
    for name, kind in FUSED.items():
        plan = parts.plan_of(CPRegressor(solver=name, maps=maps.Polynomial(2)), X, y)
        assert type(plan.solver) is kind


def test_a_solver_that_is_added_to_the_registry_is_called(monkeypatch):
    class Nothing(Adam):
        """Leave the start as it is."""

        def solve(self, problem, cores, free, rng, report=None, state=None, resumed=False):
            called.append(type(self).__name__)
            return Solution(cores)

    called = []
    monkeypatch.setitem(FUSED, "nothing", Nothing)
    X, y = toy()
    model = CPRegressor(solver="nothing", n_members=1, random_state=0).fit(X, y)
    assert called == ["Nothing"]
    assert model.plan_["solver"] == "nothing"


def test_an_init_by_name_and_the_same_instance_give_the_same_plan():
    X, y = toy()
    named, given = (
        parts.plan_of(CPClassifier(init=init, random_state=0), X, y > 0)
        for init in ("near_one", inits.NearOne())
    )
    assert named.choices == given.choices


def test_the_plan_of_a_warm_start_tells_what_goes_on():
    X, y = toy()
    model = CPRegressor(rank=2, max_iter=1, n_members=2, random_state=0, warm_start=True)
    rank = model.fit(X, y).tensor_.rank
    plan = model.set_params(rank=9).fit(X, y).plan_
    assert plan["start"] == "the fitted model"
    assert plan["rank"] == str(rank) == str(model.tensor_.rank)
    assert plan["strength"] == "1"
    assert not plan.trials
    for name in ("strengths", "n_members", "maps"):
        assert name not in [choice.name for choice in plan.choices]


def test_the_plan_of_a_pass_tells_of_one_pass():
    X, y = toy()
    plan = CPRegressor(rank=2, random_state=0).partial_fit(X, y).plan_
    assert plan["solver"] == "adam"
    for name in ("max_iter", "n_members", "n_folds", "strengths"):
        assert name not in [choice.name for choice in plan.choices]


def test_the_plan_tells_the_rank_that_pilots_have_led_to():
    X, y = toy(200)
    model = CPClassifier(random_state=0, n_members=1).fit(X, y > 0)
    assert model.plan_["member rank"] == str(model.tensor_.rank)


def test_a_riemannian_plan_tells_the_rate_that_is_used():
    needs.package("torch")
    X = np.random.default_rng(0).uniform(size=(60, 12))
    model = TNRegressor(solver="riemannian", max_iter=1, random_state=0)
    plan = parts.plan_of(model, X, X[:, 0])
    assert plan.solver.learning_rate == PEAK_RATE
    assert f"{PEAK_RATE:g}" in [c.value for c in plan.choices if c.name == "learning_rate"]


# ---- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_every_parameter_is_documented_in_the_class_itself(kind):
    text = inspect.getdoc(kind)
    for name, parameter in inspect.signature(kind).parameters.items():
        lines = [line for line in text.splitlines() if line.startswith(f"{name} : ")]
        assert len(lines) == 1, name
        default = f'"{parameter.default}"' if isinstance(parameter.default, str) else None
        if default is not None:
            assert f"default={default}" in lines[0], lines[0]


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_a_constructor_stores_its_arguments_unchanged(kind):
    marks = {name: object() for name in inspect.signature(kind).parameters}
    assert vars(kind(**marks)) == marks


def test_the_first_of_several_wrong_parameters_is_always_the_same():
    X, y = toy()
    wrong = CPRegressor(rank=0, l2=-1, tol=-1, max_iter=-1, n_members=0)
    messages = set()
    for _ in range(3):
        with pytest.raises(ValueError, match="rank must be") as error:
            wrong.fit(X, y)
        messages.add(str(error.value))
    assert len(messages) == 1


def test_a_large_tol_stops_earlier():
    X, y = toy(200)
    params = {"solver": "adam", "n_members": 1, "rank": 3, "random_state": 0, "max_iter": 60}
    patient = CPRegressor(n_iter_no_change=3, tol=0.0, **params).fit(X, y)
    hasty = CPRegressor(n_iter_no_change=3, tol=0.9, **params).fit(X, y)
    assert hasty.n_iter_ < patient.n_iter_


def test_quantile_is_a_loss_with_a_level():
    X, y = toy()
    params = {"rank": 2, "max_iter": 3, "n_members": 1, "random_state": 0}
    named = CPRegressor(loss="quantile", quantile=0.9, **params).fit(X, y)
    given = CPRegressor(loss=losses.Quantile(0.9), **params).fit(X, y)
    np.testing.assert_array_equal(named.predict(X), given.predict(X))
    with pytest.raises(ValueError, match="needs the level of the quantile"):
        CPRegressor(loss="quantile").fit(X, y)
    with pytest.raises(ValueError, match="quantile must be a number from 0 to 1"):
        CPRegressor(loss="quantile", quantile=90).fit(X, y)


def test_validation_rows_have_weights():
    X, y = toy(120)
    V, v = toy(60)
    wrong = np.where(np.arange(60) % 2, v, 5.0)  # every other row is misleading
    params = {"solver": "adam", "n_members": 1, "rank": 3, "random_state": 0, "max_iter": 8}
    model = CPRegressor(**params).fit(X, y, None, V, wrong, np.arange(60) % 2)
    right = CPRegressor(**params).fit(X, y, None, V[1::2], v[1::2])
    np.testing.assert_allclose(
        model.history_[0]["validation_loss"], right.history_[0]["validation_loss"], rtol=1e-6
    )
    with pytest.raises(ValueError, match="sample_weight_val was given without X_val"):
        CPRegressor().fit(X, y, sample_weight_val=np.ones(60))


@pytest.mark.parametrize("kind", [CPRegressor, TNRegressor])
def test_importances_are_shares_of_the_variance_and_find_the_columns_with_effect(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 4))
    own = {"rank": 3, "max_iter": 30, "random_state": 0}
    model = kind(maps="polynomial", learning_rate=0.03, **own).fit(X, X[:, 1] * X[:, 3])
    found = model.feature_importances_
    assert found.sum() == pytest.approx(1.0)
    assert set(np.argsort(found)[-2:]) == {1, 3}
    chosen = SelectFromModel(model, prefit=True, max_features=2, threshold=-np.inf)
    np.testing.assert_array_equal(chosen.get_support(), [False, True, False, True])


def test_a_constant_target_has_importances_of_zero():
    X, y = toy()
    model = CPRegressor(rank=2, max_iter=1, n_members=1, random_state=0).fit(X, np.ones(len(y)))
    np.testing.assert_array_equal(model.feature_importances_, 0.0)


def test_maps_of_a_plan_are_fitted():
    plan = parts.plan_of(CPRegressor(maps=maps.Hat(5)), *toy())
    assert [m.dim for m in plan.maps] == [6] * 3


@pytest.mark.parametrize("change", ["fit", "partial_fit"])
def test_training_does_not_go_on_under_another_loss(change):
    X, y = toy()
    counts = np.round(np.exp(1.0 + y))
    model = CPRegressor(rank=2, max_iter=1, n_members=1, random_state=0, warm_start=True)
    before = model.fit(X, counts).predict(X)
    model.set_params(loss="poisson")
    with pytest.raises(ValueError, match=r"has the loss SquaredError\(\).* ask for Poisson\(\)"):
        getattr(model, change)(X, counts)
    np.testing.assert_array_equal(model.predict(X), before)


def test_training_does_not_go_on_where_a_constant_target_starts_to_vary():
    X, y = toy()
    model = CPRegressor(rank=2, max_iter=1, n_members=1, random_state=0, warm_start=True)
    model.fit(X, np.ones(len(y))).fit(X, np.ones(len(y)))
    with pytest.raises(ValueError, match="Output 0 of y was constant"):
        model.fit(X, y)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"device": 3}, "device must be text"),
        ({"device": "cuda"}, "engine='fused' runs on device='cpu' only, got 'cuda'"),
        ({"l2": np.inf}, "l2 must be a number of at least 0"),
        ({"separate_outputs": "no"}, "separate_outputs must be True or False"),
        ({"n_jobs": True}, "n_jobs must be a whole number"),
    ],
)
def test_a_wrong_parameter_is_refused_before_training(wrong, message):
    with pytest.raises(ValueError, match=message):
        CPRegressor(**wrong).fit(*toy())


def test_importances_that_cannot_be_had_are_an_attribute_that_is_missing():
    X, y = toy()
    model = CPRegressor(rank=2, max_iter=1, n_members=1, random_state=0).fit(X, y)
    del model.marginals_
    assert not hasattr(model, "feature_importances_")


def test_a_plan_tells_the_held_out_loss_beside_that_of_a_constant():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = 3.0 * X[:, 0] + 7.0
    model = CPRegressor(n_members=1, rank=2, max_iter=20, random_state=0)
    model.fit(X[:150], y[:150], X_val=X[150:], y_val=y[150:])
    constant = np.mean((y[150:] - y[:150].mean()) ** 2) / y[:150].var()
    assert float(model.plan_["constant loss"]) == pytest.approx(constant, rel=1e-3)
    found = np.mean((y[150:] - model.predict(X[150:])) ** 2) / y[:150].var()
    # The loss takes each half of the rows at the epoch that was best for the other half.
    assert found <= float(model.plan_["held-out loss"]) < 0.5 * constant
    model.set_params(early_stopping=False).fit(X, y)
    with pytest.raises(KeyError, match="held-out loss"):
        model.plan_["held-out loss"]
