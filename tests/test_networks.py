"""Laws of the tensor-network estimators, for every format."""

import pickle
import subprocess
import sys
import textwrap

import needs
import numpy as np
import pandas as pd
import pytest
from mixed import labels, table
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from polyadic import CPClassifier, CPRegressor, TNClassifier, TNRegressor, inits, maps, networks
from polyadic.data.features import encode
from polyadic.estimators import validation

torch = needs.package("torch")

NAMES = sorted(networks.FORMATS)
RAW = ["fm", "pn"]  # on raw columns
# Few epochs without early stopping: the few held-out rows could stop a run too early.
SMALL = {
    "rank": 4,
    "max_iter": 20,
    "batch_size": 32,
    "learning_rate": 0.05,
    "ema_decay": 0.9,
    "early_stopping": False,
    "random_state": 0,
}
FAST = {**SMALL, "max_iter": 3, "early_stopping": True}
every_format = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def same_model(a, b):
    pairs = zip([*a.cores_, *a.extras_, a.intercept_], [*b.cores_, *b.extras_, b.intercept_])
    return all(np.array_equal(x, y) for x, y in pairs)


def product_table(n=300):
    """Return a target with a product of columns, which no sum of functions of one column equals."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X[:, 0] * X[:, 1] + X[:, 2]


# ---- learning -----------------------------------------------------------------------------------


@every_format
def test_every_format_learns_a_product(name):
    X, y = product_table()
    family = "auto" if name in RAW else "polynomial"
    model = TNRegressor(name, maps=family, **SMALL).fit(X, y)
    assert model.score(X, y) > 0.9  # seen over 12 seeds: 0.999 or more
    assert model.tensor_.name == name
    assert np.shape(model.predict(X)) == (300,)


@every_format
def test_every_format_learns_from_numbers_categories_and_missing_values(name):
    X, y = table()
    model = TNRegressor(name, **SMALL).fit(X, y)
    assert model.score(X, y) > 0.6  # seen over 10 seeds, in 15 epochs: 0.70 (cp) or more
    blank = pd.DataFrame({"size": [np.nan], "age": [np.nan], "town": [None], "old": [None]})
    unseen = blank.assign(town="Zug")
    assert np.isfinite(model.predict(blank)[0])
    np.testing.assert_array_equal(model.predict(unseen), model.predict(blank))


@every_format
def test_every_format_learns_three_classes(name):
    X, y = table()
    target = labels(y, 3)
    model = TNClassifier(name, **SMALL).fit(X, target)
    share = model.predict_proba(X)
    assert share.shape == (300, 3)
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    assert model.score(X, target) > 0.6  # seen over 10 seeds, in 15 epochs: 0.83 (cp) or more


# Losses do not depend on the format: one format with maps and one on raw columns are enough.
@pytest.mark.parametrize(
    ("name", "loss"),
    [*((name, "log_loss") for name in NAMES), ("tt", "squared_error"), ("fm", "squared_error")],
)
def test_every_format_learns_two_classes(name, loss):
    X, y = table()
    target = labels(y, 2)
    model = TNClassifier(name, loss=loss, **SMALL).fit(X, target)
    assert model.decision_function(X).shape == (300,)
    assert model.score(X, target) > 0.75  # seen over 10 seeds, in 15 epochs: 0.847 (cp) or more


@every_format
def test_every_format_learns_several_targets(name):
    X, y = table()
    Y = np.column_stack([y, 100 - 50 * y, X["age"] * 0.1])
    model = TNRegressor(name, **SMALL).fit(X, Y)
    assert model.predict(X).shape == (300, 3)
    assert model.score(X, Y) > 0.5  # seen over 10 seeds: 0.77 (cp) or more


@pytest.mark.parametrize("loss", ["absolute_error", "huber", "poisson"])
def test_other_losses_are_learnt(loss):
    X, y = table()
    target = np.round(np.exp(y)) if loss == "poisson" else y
    model = TNRegressor("tt", loss=loss, **SMALL).fit(X, target)
    assert np.corrcoef(model.predict(X), target)[0, 1] > 0.6


@every_format
def test_a_weight_of_two_is_the_row_twice_and_of_zero_no_row(name):
    X, y = table()
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    a = TNRegressor(name, **FAST).fit(X, y, sample_weight=weight)
    b = TNRegressor(name, **FAST).fit(X.iloc[rows], y[rows])
    assert same_model(a, b)


@pytest.mark.parametrize("name", ["tr", "pn"])
def test_class_weight_is_sample_weight_by_class(name):
    X, y = table()
    target = labels(y, 3)
    each = {"low": 3.0, "mid": 1.0, "top": 2.0}
    a = TNClassifier(name, class_weight=each, **FAST).fit(X, target)
    weight = np.array([each[t] for t in target])
    b = TNClassifier(name, **FAST).fit(X, target, sample_weight=weight)
    # Class weights do not weigh the marginals, and so not the constants, for missing values.
    raw = a.raw(X)
    np.testing.assert_allclose(raw, b.raw(X), atol=1e-4 * np.abs(raw).max())
    c = TNClassifier(name, class_weight="balanced", **FAST).fit(X, target)
    assert np.abs(raw - c.raw(X)).max() > 1e-3 * np.abs(raw).max()


@pytest.mark.parametrize("name", ["tt", "tr", "ht", "tucker"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_linear_start_is_the_linear_model(name, n_outputs):
    X, y = product_table()
    Y = np.column_stack([X[:, 2] + 0.3 * X[:, 0], -y, X[:, 1]])[:, :n_outputs]
    params = {**SMALL, "rank": 5, "max_iter": 0}
    model = TNRegressor(name, maps=maps.Polynomial(2), init="linear", **params).fit(X, Y)
    design = np.column_stack([np.ones(300), X])
    expected = design @ np.linalg.lstsq(design, Y, rcond=None)[0]
    np.testing.assert_allclose(model.raw(X), expected, atol=1e-5)


@every_format
def test_linear_start_is_trained_or_refused(name):
    X, y = product_table()
    family = "auto" if name in RAW else "polynomial"
    model = TNRegressor(name, maps=family, init="linear", **SMALL)
    if name not in RAW:
        assert model.fit(X, y).score(X, y) > 0.9
    else:
        with pytest.raises(ValueError, match=f"init='linear' works with .* not '{name}'"):
            model.fit(X, y)


@pytest.mark.parametrize("name", ["tt", "tr", "ht", "tucker"])
def test_linear_start_of_two_classes_is_logistic_regression_under_the_squared_error(name):
    X, y = product_table()
    two = y + X[:, 2] > 0.4
    params = {**SMALL, "rank": 5, "max_iter": 0, "maps": maps.Polynomial(2), "init": "linear"}
    raw = TNClassifier(name, loss="squared_error", **params).fit(X, two).decision_function(X)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    linear = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(Z, two)
    log_odds = linear.decision_function(Z)
    expected = np.polyval(np.polyfit(log_odds, 2.0 * two - 1.0, 1), log_odds)
    np.testing.assert_allclose(raw, expected, atol=1e-4)


@every_format
def test_linear_start_of_maps_without_a_constant_is_refused(name):
    if name in RAW:
        return
    X, y = product_table()
    model = TNRegressor(name, maps=maps.Trigonometric(), init="linear", **SMALL)
    with pytest.raises(ValueError, match=r"constant element in .*, unless .* additive part"):
        model.fit(X, y)


@pytest.mark.parametrize("solver", ["Adam", "AdamW", "als"])
@pytest.mark.parametrize("name", ["cp", "fm", "pn"])
def test_gaussian_start_keeps_output_weights_of_one(name, solver):
    X, y = product_table()
    params = {**SMALL, "max_iter": 2, "init": inits.Gaussian(0.3), "solver": solver}
    model = TNRegressor(name, **params).fit(X, y)
    start = TNRegressor(name, **{**params, "max_iter": 0}).fit(X, y)
    assert np.ptp(start.extras_[-1]) == 0  # of one, times the scale of the target in CP
    np.testing.assert_array_equal(model.extras_[-1], start.extras_[-1])
    assert all(np.any(a != b) for a, b in zip(model.cores_, start.cores_))
    assert all(np.any(a != b) for a, b in zip(model.extras_[:-1], start.extras_))
    classes = TNClassifier(name, **params).fit(X, labels(y, 3))
    start = TNClassifier(name, **{**params, "max_iter": 0}).fit(X, labels(y, 3))
    assert np.all(classes.extras_[-1] != start.extras_[-1])


def test_gaussian_start_draws_the_constants_of_a_polynomial_network_like_its_slopes():
    X, y = product_table()
    params = {**SMALL, "max_iter": 0, "rank": 200, "init": inits.Gaussian(0.01)}
    constants, _ = TNRegressor("pn", **params).fit(X, y).extras_
    assert constants.std() == pytest.approx(0.01, rel=0.2)


def test_gaussian_start_is_trained():
    X, y = product_table()
    init = inits.Gaussian(0.4)
    model = TNRegressor("tt", maps="polynomial", init=init, **{**SMALL, "max_iter": 40})
    assert model.fit(X, y).score(X, y) > 0.9


# ---- solvers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "rate"),
    [("Adam", 0.03), ("AdamW", 0.03), ("SGD", 0.1), ("RMSprop", 0.01), ("LBFGS", 0.3)],
)
def test_every_named_solver_learns(solver, rate):
    X, y = product_table()
    params = {**SMALL, "learning_rate": rate}
    if solver == "LBFGS":
        params |= {"batch_size": 300, "max_iter": 12, "ema_decay": 0.0}
    model = TNRegressor("tt", maps="polynomial", solver=solver, **params).fit(X, y)
    assert model.score(X, y) > 0.85


def test_unknown_solver_lists_the_right_ones():
    X, y = product_table()
    with pytest.raises(ValueError, match=r"Unknown solver 'Adamm'.*Adam, AdamW.*LBFGS.*SGD"):
        TNRegressor("tt", solver="Adamm").fit(X, y)
    with pytest.raises(ValueError, match="Unknown solver 'SparseAdam'"):
        TNRegressor("tt", solver="SparseAdam").fit(X, y)


def test_unknown_format_lists_the_right_ones():
    X, y = product_table()
    with pytest.raises(ValueError, match=r"Unknown format 'mps'. Choose from: cp, fm, ht, pn, tr"):
        TNRegressor("mps").fit(X, y)


def test_an_absent_device_is_refused():
    X, y = product_table()
    with pytest.raises(ValueError, match=r"device='xpu' cannot be used here.*: cpu"):
        TNRegressor("tt", device="xpu").fit(X, y)


def test_divergence_warns_and_names_the_parameter():
    X, y = table()
    model = TNRegressor("tt", **{**SMALL, "learning_rate": 1e25})
    with pytest.warns(ConvergenceWarning, match="Lower learning_rate"):
        model.fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))


def test_early_stopping_stops_early():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)  # nothing to learn
    params = {**SMALL, "max_iter": 200, "early_stopping": True}
    model = TNRegressor("tt", n_iter_no_change=3, schedule="constant", **params)
    assert model.fit(X, y).n_iter_ < 200


# ---- state --------------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize("estimator", [TNRegressor, TNClassifier])
def test_same_seed_gives_the_same_bits(name, estimator):
    X, y = table()
    target = y if estimator is TNRegressor else labels(y, 3)
    a, b = (estimator(name, **FAST).fit(X, target) for _ in range(2))
    assert same_model(a, b)
    np.testing.assert_array_equal(a.raw(X), b.raw(X))
    c = estimator(name, **{**FAST, "random_state": 1}).fit(X, target)
    assert not same_model(a, c)


@every_format
def test_pickling_keeps_the_model(name):
    X, y = table()
    model = TNRegressor(name, **FAST).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


@every_format
def test_a_row_is_predicted_alone_as_among_others(name):
    X, y = table()
    model = TNRegressor(name, **FAST).fit(X, y)
    alone = np.concatenate([model.predict(X.iloc[[i]]) for i in range(5)])
    np.testing.assert_allclose(alone, model.predict(X)[:5], rtol=1e-7, atol=1e-9)


@every_format
def test_warm_start_continues_where_it_stopped(name):
    X, y = table()
    params = {**SMALL, "max_iter": 5, "learning_rate": 0.005}
    model = TNRegressor(name, warm_start=True, **params)
    scores = [model.fit(X, y).score(X, y) for _ in range(4)]
    assert scores[-1] > scores[0]
    model.max_iter = 0
    before = model.predict(X)
    np.testing.assert_allclose(model.fit(X, y).predict(X), before, rtol=1e-5, atol=1e-5)


def test_fit_changes_no_parameter():
    X, y = table()
    model = TNRegressor("tr", maps={"size": maps.Hat(5)}, **FAST)
    before = repr(model.get_params())
    model.fit(X, y)
    assert repr(model.get_params()) == before
    assert repr(clone(model).get_params()) == before


def test_grid_search_chooses_the_rank_over_formats():
    X, y = product_table(150)
    grid = {"format": ["tt", "tucker"], "rank": [1, 3]}
    model = TNRegressor(maps="polynomial", **{**SMALL, "max_iter": 15})
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert search.best_params_["rank"] == 3


def test_fitted_arrays_have_the_shapes_of_the_format():
    X, y = product_table()
    model = TNRegressor("tt", maps=maps.Polynomial(3), **FAST).fit(X, y)
    assert [core.shape for core in model.cores_] == [(3, 16)] * 3
    assert [e.shape for e in model.extras_] == [(4,), (4, 1)]
    assert model.intercept_.shape == (1,)
    assert len(model.history_[0]["train_loss"]) == 3


def test_cp_as_a_network_is_the_same_model_as_cp():
    X, y = product_table()
    params = {"maps": maps.Polynomial(3), "rank": 4, "max_iter": 2, "batch_size": 16}
    params |= {"learning_rate": 0.01, "random_state": 0}
    network = TNRegressor("cp", **params).fit(X, y)
    model = CPRegressor(n_members=1, **params).fit(X, y)
    np.testing.assert_allclose(network.predict(X), model.predict(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_fitted_train_as_cp_predicts_the_same(n_outputs):
    X, y = product_table()
    Y = 50 + 20 * np.column_stack([y, -y, X[:, 1]])[:, :n_outputs]  # units with a scale
    model = TNRegressor("tt", maps=maps.Polynomial(4), **{**SMALL, "rank": 3}).fit(X, Y)
    cp = model.tensor_.to_cp()
    assert cp.rank <= 27
    found = cp.contract(encode(model.maps_, list(X.T)))
    # The fused engine is in single precision; seen over 6 seeds: 8e-8 of the largest target.
    np.testing.assert_allclose(found, model.raw(X), atol=1e-5 * np.abs(Y).max())


@pytest.mark.parametrize("name", ["cp", "tucker"])
def test_cp_and_tucker_do_not_depend_on_the_order_of_columns(name):
    X, y = table()
    order = ["town", "size", "old", "age"]
    a = TNRegressor(name, **FAST).fit(X, y).predict(X)
    b = TNRegressor(name, **FAST).fit(X[order], y).predict(X[order])
    np.testing.assert_allclose(b, a, atol=1e-3 * y.std())


# ---- penalties ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cp", "tt", "tr", "ht", "tucker"])
def test_order_penalty_shrinks_high_orders(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = X.sum(axis=1) + X.prod(axis=1)
    params = {**SMALL, "maps": maps.Polynomial(2), "max_iter": 25}

    def highest(model):
        """Return the coefficients of x_1 x_2 x_3 and of x_1, from predictions at the corners."""
        corners = np.array(np.meshgrid(*[[-1, 1]] * 3, indexing="ij")).reshape(3, -1).T
        mean, std = X.mean(axis=0), X.std(axis=0)
        found = model.predict(mean + std * corners)
        return np.mean(found * corners.prod(axis=1)), np.mean(found * corners[:, 0])

    plain = highest(TNRegressor(name, **params).fit(X, y))
    penalised = highest(TNRegressor(name, order_alpha=0.01, order_beta=3.0, **params).fit(X, y))
    # Seen over 3 seeds and all formats: 0.92 or more; 0.11 or less; 0.83 or more.
    assert plain[0] > 0.7
    assert penalised[0] < 0.5 * plain[0]
    assert penalised[1] > 0.6 * plain[1]


@pytest.mark.parametrize("name", sorted(networks.FORMATS))
def test_l2_shrinks_predictions_and_every_array(name):
    X, y = product_table()
    family = "auto" if name in RAW else "polynomial"
    params = {**SMALL, "maps": family, "max_iter": 40, "learning_rate": 0.03}
    plain, penalised = (TNRegressor(name, l2=l2, **params).fit(X, y) for l2 in (0.0, 1.0))
    # Seen: at most 0.855 (tr, 20 seeds, from 0.82), and 0.52 for the arrays (tt, 6 seeds).
    assert np.std(penalised.predict(X)) < 0.95 * np.std(plain.predict(X))
    for extra, shrunk in zip(plain.extras_, penalised.extras_):
        assert np.linalg.norm(shrunk) < 0.9 * np.linalg.norm(extra)


def test_a_core_tensor_too_large_to_train_is_refused(monkeypatch):
    X, y = product_table()
    monkeypatch.setattr(validation, "physical_memory", lambda: 1e5)
    with pytest.raises(MemoryError, match="GB to train"):
        TNRegressor("tucker", maps="polynomial", rank=30).fit(X, y)


@pytest.mark.parametrize("name", RAW)
def test_raw_formats_refuse_maps_and_order_penalties(name):
    X, y = product_table()
    with pytest.raises(ValueError, match=f"format='{name}' works on raw columns: .*got 'hat'"):
        TNRegressor(name, maps="hat").fit(X, y)
    with pytest.raises(ValueError, match=f"format='{name}' has no weight tensor.*got 0.1"):
        TNRegressor(name, order_alpha=0.1).fit(X, y)


@pytest.mark.parametrize("name", RAW)
def test_order_limits_how_many_columns_interact(name):
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (400, 3)) + 1e-6 * rng.normal(size=(400, 3))
    y = X.prod(axis=1)  # of order three, and of no lower one
    params = {**SMALL, "rank": 6, "max_iter": 30}
    low, high = (TNRegressor(name, order=m, **params).fit(X, y).score(X, y) for m in (2, 3))
    assert low < 0.3  # seen over 4 seeds: 0.03 or less
    assert high > 0.8  # and 0.99 or more


def test_tucker_over_many_columns_is_refused_with_its_size():
    X = np.random.default_rng(0).normal(size=(30, 26))
    with pytest.raises(MemoryError, match=r"over 26 columns would need 5\.96e\+09 GB"):
        TNRegressor("tucker").fit(X, X[:, 0])


def test_a_rank_too_small_for_the_linear_start_is_refused():
    X, y = product_table()
    with pytest.raises(ValueError, match=r"a rank of at least 2 .*got 1"):
        TNRegressor("tr", maps="polynomial", init="linear", rank=1).fit(X, y)
    with pytest.raises(ValueError, match=r"a rank of at least 3.*got 2"):
        TNRegressor("cp", maps="polynomial", init="linear", rank=2).fit(X, y)


# ---- CP on torch --------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["near_one", "linear"])
def test_cp_members_train_on_torch_and_merge(init):
    X, y = table()
    params = {"engine": "torch", "n_members": 3, "rank": 6, "max_iter": 20, "random_state": 0}
    # Held-out rows would be few here: a member that seems useless on them would be left out.
    params |= {"batch_size": 32, "learning_rate": 0.03, "ema_decay": 0.9, "early_stopping": False}
    models = [CPRegressor(**params, init=init, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2)]
    assert models[0].score(X, y) > 0.6  # seen over 20 seeds: 0.68 or more, deviation 0.01
    assert models[0].weights_.shape == (18, 1)
    for a, b in zip(models[0].cores_, models[1].cores_):
        np.testing.assert_array_equal(a, b)


def test_separate_outputs_of_a_cp_classifier_train_on_torch():
    X, y = table()
    params = {"engine": "torch", "n_members": 1, "rank": 4, "max_iter": 20, "random_state": 0}
    model = CPClassifier(**params, separate_outputs=True).fit(X, labels(y, 3))
    assert model.score(X, labels(y, 3)) > 0.7
    blocks = np.kron(np.eye(3), np.ones((4, 1)))
    np.testing.assert_array_equal(model.weights_ != 0, blocks != 0)


# ---- without torch ------------------------------------------------------------------------------

WITHOUT_TORCH = """
    import sys
    from importlib.machinery import PathFinder

    class WithoutTorch:
        @staticmethod
        def find_spec(name, path=None, target=None):
            hidden = name.split(".")[0] == "torch"
            return None if hidden else PathFinder.find_spec(name, path, target)

    sys.meta_path = [WithoutTorch if f is PathFinder else f for f in sys.meta_path]
    import numpy as np
    import polyadic

    def message_of(work):
        try:
            work()
        except ModuleNotFoundError as error:
            return str(error)

    X = np.random.default_rng(0).normal(size=(60, 2))
    small = {"n_members": 1, "rank": 2, "max_iter": 2}
    print(message_of(lambda: polyadic.TNRegressor().fit(X, X[:, 0])))
    print(message_of(lambda: polyadic.TNClassifier("cp").fit(X, X[:, 0] > 0)))
    print(message_of(lambda: polyadic.CPRegressor(engine="torch", **small).fit(X, X[:, 0])))
    print(message_of(lambda: __import__("polyadic.nn")))
    print(polyadic.CPRegressor(**small).fit(X, X[:, 0]).predict(X).shape)
    print(polyadic.networks.resolve("tt").__name__)
"""


def test_without_torch_the_extra_is_named_and_nothing_else_breaks():
    code = textwrap.dedent(WITHOUT_TORCH)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *messages, shape, name = run.stdout.splitlines()
    assert len(messages) == 4
    for message in messages:
        assert "pip install 'polyadic[torch]'" in message
    assert shape == "(60,)"
    assert name == "TensorTrain"


# ---- more refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"format": "tr"}, {"rank": 6}, {"order": 3}])
def test_warm_start_refuses_another_network(change):
    X, y = product_table(60)
    model = TNRegressor("tt", maps="polynomial", warm_start=True, **SMALL | {"max_iter": 1})
    before = model.fit(X, y).predict(X)
    with pytest.raises(ValueError, match="warm_start=True goes on from a fitted model"):
        model.set_params(**change).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_an_init_without_a_method_for_networks_is_refused():
    class ForCPOnly:
        def start(self, problem, rank, rngs):
            raise AssertionError

    X, y = product_table(60)
    with pytest.raises(ValueError, match="has no method `network`"):
        TNRegressor("tt", init=ForCPOnly()).fit(X, y)


def test_memory_of_the_order_penalty_is_counted(monkeypatch):
    X, y = product_table(60)
    monkeypatch.setattr(validation, "physical_memory", lambda: 3e6)
    params = {"maps": "polynomial", "rank": 12, "max_iter": 0}
    TNRegressor("tr", **params).fit(X, y)
    with pytest.raises(MemoryError, match="GB to train"):
        TNRegressor("tr", order_alpha=0.1, **params).fit(X, y)
