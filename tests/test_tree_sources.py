"""Readers of other libraries' trees: their raw predictions, for every number and category."""

import subprocess
import sys
import warnings

import catboost as cb
import grown
import hypothesis.strategies as st
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble as ensembles
import xgboost as xgb
from hypothesis import HealthCheck, given, settings
from sklearn import tree as single
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from polyadic.objective.losses import SquaredError
from polyadic.trees import scikit
from polyadic.trees.cityhash import category_hash
from polyadic.trees.registry import READABLE, library_of, read_source
from polyadic.trees.source import UnreadableModel, at_most_float32, below_float32

# ---- the library's own predictions ---------------------------------------------------------------


def categories_of(X):
    """Return the categories of a frame by column, which CatBoost does not keep."""
    if not isinstance(X, pd.DataFrame):
        return None
    return {j: list(X.iloc[:, j].cat.categories) for j in (1, 3)}


def assert_same(source, X, raw, tolerance):
    expected = np.asarray(raw(X), dtype=float).reshape(len(X), -1)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(grown.evaluate(source, X), expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", grown.CASES)
@grown.quiet()
def test_a_source_has_the_raw_predictions_of_the_library(name):
    rng, case = np.random.default_rng(0), grown.CASES[name]
    model, X, raw = case.build(rng)
    source = read_source(model, categories_of(X))
    assert sum(len(tree.column) > 1 for tree in source.trees) >= min(2, len(source.trees))
    assert source.loss == case.expected["loss"]
    if case.expected.get("classes") is None:
        assert source.classes is None
    else:
        assert list(source.classes) == case.expected["classes"]
    assert source.names == (list(X.columns) if isinstance(X, pd.DataFrame) else None)
    assert_same(source, X, raw, case.tolerance)
    assert_same(source, grown.edges(source, X, rng), raw, case.tolerance)
    if case.nan:
        assert_same(source, grown.without(X), raw, case.tolerance)
    if case.inf:
        far = np.array([np.inf, -np.inf, 1e300, -1e300, 1e39, 3.4028235e38, -3.4028236e38])
        assert_same(source, grown.replaced(source, X, lambda j: far, rng), raw, case.tolerance)


FITTED = [name for name in grown.CASES if "stopped" not in name and name != "xgboost codes"]


@pytest.mark.parametrize("name", FITTED)
@grown.quiet()
def test_after_the_link_a_source_predicts_what_the_library_predicts(name):
    case = grown.CASES[name]
    model, X, _ = case.build(np.random.default_rng(0))
    source = read_source(model, categories_of(X))
    raw = grown.evaluate(source, X)
    if source.classes is None:
        found, expected = source.loss.inverse_link(raw), model.predict(X)
        if name == "catboost poisson":
            expected = model.predict(X, prediction_type="Exponent")
    else:
        averaged = isinstance(source.loss, SquaredError)
        found = (raw + 1.0) / 2.0 if averaged else source.loss.inverse_link(raw)
        if name == "xgboost raw classes":
            return  # its probabilities are raw predictions
        expected = model.predict_proba(X)[:, -found.shape[1] :]
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-5, atol=1e-6)


UNSEEN = ["lightgbm frame", "sklearn hist frame", "catboost one-hot SymmetricTree"]


@pytest.mark.parametrize("name", [*UNSEEN, "lightgbm codes", "sklearn hist codes"])
def test_an_unseen_category_goes_where_the_library_sends_it(name):
    case = grown.CASES[name]
    model, X, raw = case.build(np.random.default_rng(0))
    source = read_source(model, categories_of(X))
    new = X[:20].copy()
    if isinstance(X, pd.DataFrame):
        new["b"] = pd.Categorical(["violet"] * 20)
        new["d"] = pd.Categorical([20, 77] * 10)
    else:
        new[:, 1] = [3.0, 77.0, 5.0, 1001.0] * 5
    assert_same(source, new, raw, case.tolerance)


def test_a_code_of_xgboost_goes_where_the_library_sends_it():
    model, X, raw = grown.CASES["xgboost codes"].build(np.random.default_rng(0))
    source = read_source(model)
    known = source.categories[1]
    assert known == list(range(len(known)))
    new = np.tile(X[:3], (len(known), 1))
    new[:, 1] = np.repeat(known, 3)
    assert_same(source, new, raw, 1e-6)


# ---- random tables -------------------------------------------------------------------------------

NUMBERS = [0.0, -0.0, 1e-36, -1e-35, 2e-35, 0.1, 1 / 3, 0.3333333432674408, -2.0, 16777217.0, 1e30]
ENTRIES = st.sampled_from([*NUMBERS, float("nan")])


def fit_lightgbm(X, y):
    options = {**grown.LGB, "min_child_samples": 1, "min_data_in_bin": 1}
    model = lgb.LGBMRegressor(**options).fit(X, y)
    return model, lambda X: grown.lgb_raw(model, X), 1e-12


def fit_xgboost(X, y):
    model = xgb.XGBRegressor(**grown.XGB).fit(X, y)
    return model, model.predict, 1e-6


def fit_catboost(X, y):
    model = cb.CatBoostRegressor(**grown.CAT).fit(X, y)
    return model, model.predict, 1e-12


def fit_histograms(X, y):
    model = ensembles.HistGradientBoostingRegressor(**{**grown.HGB, "min_samples_leaf": 1})
    model.fit(X, y)
    return model, model.predict, 1e-12


def fit_tree(X, y):
    model = single.DecisionTreeRegressor(random_state=0).fit(X, y)
    return model, model.predict, 1e-12


FITS = (fit_lightgbm, fit_xgboost, fit_catboost, fit_histograms, fit_tree)


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.__name__)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_random_table(fit, data):
    n = data.draw(st.integers(8, 25))
    rows = data.draw(st.lists(st.tuples(ENTRIES, ENTRIES), min_size=n, max_size=n))
    y = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)), dtype=float)
    y[0] = 20.0  # CatBoost refuses constant targets, and constant columns
    X = np.column_stack((np.array(rows), np.arange(n)))
    model, raw, tolerance = fit(X, y)
    source = read_source(model)
    rng = np.random.default_rng(0)
    for table in (X, grown.edges(source, X, rng), grown.without(X)):
        assert_same(source, table, raw, tolerance)


def test_thresholds_of_single_precision_are_exact_for_every_double():
    rng = np.random.default_rng(0)
    largest = float(np.finfo(np.float32).max)
    t = np.concatenate((rng.normal(size=200), 10.0 ** rng.uniform(-46, 38, 200)))
    t = np.concatenate((t, -t, t.astype(np.float32), [0.0, -0.0, 1e-45, largest, -largest, 1e39]))
    t = np.concatenate((t, [-1e39, np.inf, 1e-60, -1e-60]))
    with np.errstate(over="ignore"):
        narrow = t.astype(np.float32)
        up, down = (np.nextafter(narrow, np.float32(end)) for end in (np.inf, -np.inf))
        around = np.concatenate((t, narrow, up, down, [np.inf, -np.inf, 1e300, -1e300]))
        for cut in (at_most_float32(t), below_float32(narrow)):
            ends = (cut, np.nextafter(cut, np.inf), np.nextafter(cut, -np.inf))
            around = np.concatenate((around, *ends))
        x = np.unique(around)[:, None]
        rounded = x.astype(np.float32)
    np.testing.assert_array_equal(x <= at_most_float32(t), rounded <= t)
    finite = narrow[np.isfinite(narrow)]
    np.testing.assert_array_equal(x <= below_float32(finite), rounded < finite)


def test_a_deep_tree_is_read():
    y = 1.5 ** np.arange(300)
    X = np.arange(300.0)[:, None]
    model = single.DecisionTreeRegressor(random_state=0).fit(X, y)
    assert model.get_depth() > 100
    assert_same(read_source(model), X, model.predict, 1e-12)


# ---- refusals ------------------------------------------------------------------------------------


def table(missing=False):
    X = grown.numeric(np.random.default_rng(0), missing=missing)
    return X, grown.score(X)


def fitted(kind, change=lambda y: y, **options):
    X, y = table()
    return kind(**options).fit(X, change(y))


def with_statistics():
    X, y = grown.mixed(np.random.default_rng(0), missing=False)
    return cb.CatBoostRegressor(**grown.CAT, cat_features=["b", "d"]).fit(X, y)


def with_text():
    X = pd.DataFrame({"a": np.arange(40.0), "t": ["one two", "two three"] * 20})
    options = {**grown.CAT, "text_features": ["t"]}
    return cb.CatBoostClassifier(**options).fit(X, [0, 1] * 20)


def with_zeros():
    X = np.tile([[0.0], [1.0], [2.0], [3.0]], (50, 1))
    y = (X[:, 0] == 0) + 2.0 * (X[:, 0] == 3)  # zeros belong to neither end
    options = {**grown.LGB, "zero_as_missing": True}
    return lgb.LGBMRegressor(**options).fit(X, y)


def with_ordered_categories():
    X, y = grown.mixed(np.random.default_rng(0))
    X["d"] = X["d"].cat.as_ordered()
    return lgb.LGBMRegressor(**grown.LGB).fit(X, y)


def with_letters():
    X, y = grown.mixed(np.random.default_rng(0))
    X["b"] = X["b"].cat.rename_categories({"white": "weiß"})
    return xgb.XGBRegressor(**grown.XGB, enable_categorical=True).fit(X, y)


def with_none():
    X = np.array([["a", 1.0], [None, 2.0], ["b", 3.0]] * 20, dtype=object)
    options = {**grown.HGB, "categorical_features": [0]}
    return ensembles.HistGradientBoostingRegressor(**options).fit(X, np.arange(60.0))


def own_lightgbm():
    return fitted(lgb.LGBMRegressor, objective=lambda y, p: (p - y, np.ones_like(y)), **grown.LGB)


def own_xgboost():
    return fitted(xgb.XGBRegressor, objective=lambda y, p: (p - y, np.ones_like(y)), **grown.XGB)


def share(y):
    return grown.two(y).astype(float)


def targets(y):
    return np.column_stack((grown.two(y), grown.three(y)))


FOREST = {**grown.SMALL, **grown.TREES}
REFUSED = {
    "linear leaves": (lambda: fitted(lgb.LGBMRegressor, **grown.LGB, linear_tree=True), "linear"),
    "lightgbm zeros": (with_zeros, "zeros another way"),
    "lightgbm sqrt": (
        lambda: fitted(lgb.LGBMRegressor, np.abs, **grown.LGB, reg_sqrt=True),
        "regression sqrt, which cannot be read. Known are: regression,",
    ),
    "lightgbm ova": (
        lambda: fitted(lgb.LGBMClassifier, grown.three, **grown.LGB, objective="multiclassova"),
        "multiclassova",
    ),
    "lightgbm shares": (
        lambda: fitted(lgb.LGBMRegressor, share, **grown.LGB, objective="cross_entropy"),
        "cross_entropy",
    ),
    "lightgbm own": (own_lightgbm, "objective of the LightGBM model is"),
    "lightgbm ordered": (with_ordered_categories, "does not say which are which"),
    "xgboost linear": (lambda: fitted(xgb.XGBRegressor, booster="gblinear"), "gblinear"),
    "xgboost own": (own_xgboost, "objective of your own"),
    "xgboost letters": (with_letters, "beyond ASCII"),
    "xgboost missing": (
        lambda: fitted(xgb.XGBRegressor, **grown.XGB, missing=-999.0),
        "-999.0 for missing",
    ),
    "xgboost shares": (
        lambda: fitted(xgb.XGBRegressor, share, **grown.XGB, objective="reg:logistic"),
        "reg:logistic",
    ),
    "xgboost labels": (
        lambda: fitted(xgb.XGBClassifier, lambda y: np.eye(3, dtype=int)[grown.three(y)]),
        "3 targets",
    ),
    "catboost statistics": (with_statistics, "target statistics"),
    "catboost text": (with_text, "text or embedding"),
    "catboost ova": (
        lambda: fitted(
            cb.CatBoostClassifier, grown.three, **grown.CAT, loss_function="MultiClassOneVsAll"
        ),
        "MultiClassOneVsAll",
    ),
    "catboost uncertainty": (
        lambda: fitted(cb.CatBoostRegressor, **grown.CAT, loss_function="RMSEWithUncertainty"),
        "RMSEWithUncertainty",
    ),
    "boosted init": (
        lambda: fitted(ensembles.GradientBoostingRegressor, init=LinearRegression()),
        "LinearRegression.*init=None and init='zero'",
    ),
    "hist none": (with_none, "None as a category"),
    "forest targets": (
        lambda: fitted(ensembles.RandomForestClassifier, targets, **FOREST),
        "2 targets that are classes",
    ),
    "one class": (
        lambda: fitted(single.DecisionTreeClassifier, lambda y: np.zeros(len(y))),
        "has one class",
    ),
    "isolation": (lambda: fitted(ensembles.IsolationForest, n_estimators=2), "IsolationForest"),
    "bagging": (lambda: fitted(ensembles.BaggingRegressor, n_estimators=2), "BaggingRegressor"),
    "linear": (lambda: fitted(LinearRegression), "LinearRegression cannot be read. Known are"),
    "pipeline": (lambda: make_pipeline(single.DecisionTreeRegressor()), "Pipeline"),
    "no model": (lambda: 3, "builtins.int cannot be read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(name):
    build, match = REFUSED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries warn of such models
        model = build()
    with pytest.raises(UnreadableModel, match=match), grown.quiet():
        read_source(model)


def test_a_dummy_as_start_is_a_constant():
    model = fitted(ensembles.GradientBoostingRegressor, init=DummyRegressor(), n_estimators=3)
    X, _ = table()
    assert_same(read_source(model), X, model.predict, 1e-12)


UNFITTED = [
    lgb.LGBMRegressor,
    xgb.XGBClassifier,
    cb.CatBoostRegressor,
    *(getattr(ensembles, name) for name in READABLE["sklearn"] if "DecisionTree" not in name),
    single.ExtraTreeClassifier,
]


@pytest.mark.parametrize("kind", UNFITTED)
def test_a_model_that_is_not_fitted_is_said_to_be(kind):
    with pytest.raises(NotFittedError, match=r"(?i)fit"):
        read_source(kind())


def test_every_class_of_scikit_that_is_known_has_a_reader():
    assert tuple(scikit.READERS) == READABLE["sklearn"]


def test_a_subclass_is_read_as_its_parent():
    class Mine(ensembles.ExtraTreesRegressor):
        pass

    assert library_of(Mine()) == "sklearn"
    assert len(read_source(fitted(Mine, **FOREST)).trees) == 7


def test_the_registry_imports_no_library():
    code = (
        "import sys\nfrom polyadic.trees.registry import read_source\n"
        "try:\n    read_source(object())\nexcept ValueError:\n    pass\n"
        "print([m for m in ('lightgbm', 'xgboost', 'catboost', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_catboost_needs_the_categories_since_it_has_only_their_hashes():
    model, X, _ = grown.CASES["catboost one-hot SymmetricTree"].build(np.random.default_rng(0))
    with pytest.raises(UnreadableModel, match=r"only hashes.*Pass categories="):
        read_source(model)
    lacking = {**categories_of(X), 1: ["red", "green"]}
    with pytest.raises(UnreadableModel, match="not among the categories given"):
        read_source(model, lacking)


def test_a_categorical_column_that_no_tree_asks_is_known_to_be_one():
    X, y = grown.mixed(np.random.default_rng(0), missing=False)
    model = cb.CatBoostRegressor(
        **grown.CAT, one_hot_max_size=20, cat_features=["b", "d"], ignored_features=["b"]
    ).fit(X, y)
    source = read_source(model, {3: [10, 20, 30]})
    assert source.categories == {1: [], 3: [10, 20, 30]}
    assert_same(source, X, model.predict, 1e-12)


def test_hashes_of_categories_of_every_length():
    texts = ["ß" * (n // 2) + "x" * (n % 2) for n in (1, 3, 5, 9, 17, 33, 65, 130, 300)]
    X = [[text, float(i)] for i, text in enumerate(texts) for _ in range(4)]
    y = [i % 3 + 0.5 * i for i in range(len(X))]
    options = {**grown.CAT, "one_hot_max_size": 99, "iterations": 200, "depth": 1}
    model = cb.CatBoostRegressor(**options, cat_features=[0], random_strength=9).fit(X, y)
    source = read_source(model, {0: texts})
    assert len({int(s.sum()) for tree in source.trees for s in tree.sets.values()}) > 5
    assert_same(source, np.array(X, dtype=object), model.predict, 1e-12)
    assert category_hash("7") == -17943309


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("b"), IndexError("c"), MemoryError()])
def test_a_dump_that_a_reader_stumbles_over_is_called_unreadable(error, monkeypatch):
    model = single.DecisionTreeRegressor(max_depth=2).fit(np.eye(4), np.arange(4))

    def stumble(model):
        raise error

    monkeypatch.setattr("polyadic.trees.scikit.read", stumble)
    with pytest.raises(UnreadableModel, match="DecisionTreeRegressor cannot be read: its trees"):
        read_source(model)
