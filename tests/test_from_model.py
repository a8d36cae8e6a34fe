"""Models of other libraries as estimators of this one: they predict the same."""

import pickle
import subprocess
import sys
import warnings

import catboost as cb
import grown
import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.ensemble as ensembles
import xgboost as xgb
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted
from turned import MODELS, assert_same, build

import polyadic
from polyadic import CPClassifier, CPRegressor, explain
from polyadic.objective.losses import SquaredError
from polyadic.trees import UnreadableModel, from_model
from polyadic.trees.registry import read_source

# ---- predictions ---------------------------------------------------------------------------------


def as_source(model, X):
    frame = isinstance(X, pd.DataFrame)
    return read_source(
        model, {j: list(X.iloc[:, j].cat.categories) for j in (1, 3)} if frame else None
    )


@pytest.mark.parametrize("name", grown.CASES)
def test_raw_predictions_are_those_of_the_library(name, tmp_path):
    case, model, X, raw, ours = build(name)
    rng = np.random.default_rng(1)
    assert isinstance(ours, CPRegressor if case.expected.get("classes") is None else CPClassifier)
    assert ours.loss_ == case.expected["loss"] == ours._loss()
    assert_same(ours, X, raw, case.tolerance)
    assert_same(ours, grown.edges(as_source(model, X), X, rng), raw, case.tolerance)
    if case.nan:
        assert_same(ours, grown.without(X), raw, case.tolerance)
    ours.save(tmp_path / "model")
    again = polyadic.load(tmp_path / "model")
    np.testing.assert_array_equal(again.raw(X), ours.raw(X))
    assert again.plan_ == ours.plan_
    assert again.get_params() == ours.get_params()


# Boosters predict probabilities, and XGBoost compares raw scores with one half.
PREDICTED = [
    n
    for n in grown.CASES
    if "stopped" not in n and n not in ("xgboost codes", "xgboost raw classes")
]


@pytest.mark.parametrize("name", PREDICTED)
@grown.quiet()
def test_predictions_are_those_of_the_library(name):
    case, model, X, _, ours = build(name)
    if case.expected.get("classes") is None:
        exponent = {"prediction_type": "Exponent"} if name == "catboost poisson" else {}
        expected = model.predict(X, **exponent)
        np.testing.assert_allclose(ours.predict(X), expected, rtol=1e-6, atol=1e-6)
        return
    np.testing.assert_array_equal(ours.classes_, np.unique(model.classes_))
    np.testing.assert_array_equal(ours.predict(X), np.ravel(model.predict(X)))
    # The probabilities of averages are at least 1e-6 here, for each of up to three classes.
    atol = 3e-6 if isinstance(ours.loss_, SquaredError) else 1e-6
    np.testing.assert_allclose(ours.predict_proba(X), model.predict_proba(X), rtol=0, atol=atol)
    scaled = any(word in name for word in ("exponential", "sigmoid", "lightgbm forest"))
    if hasattr(model, "decision_function") and not scaled:
        expected = model.decision_function(X)
        np.testing.assert_allclose(ours.decision_function(X), expected, rtol=0, atol=1e-9)


LABELS = {
    "text": np.array(["no", "yes"]),
    "bool": np.array([False, True]),
    "whole": np.array([7, -3, 12]),
    "objects": np.array(["b", "a", "c"], dtype=object),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize(
    "kind", [DecisionTreeClassifier, lgb.LGBMClassifier, cb.CatBoostClassifier]
)
def test_labels_of_every_type_are_predicted(kind, labels, tmp_path):
    X = grown.numeric(np.random.default_rng(0), missing=False)
    known = LABELS[labels]
    y = known[(grown.two if len(known) == 2 else grown.three)(grown.score(X))]
    options = {DecisionTreeClassifier: {"max_depth": 3}, lgb.LGBMClassifier: grown.LGB}
    with grown.quiet():
        model = kind(**options.get(kind, grown.CAT)).fit(X, y)
        expected = np.ravel(model.predict(X))
    ours = from_model(model, X)
    ours.save(tmp_path / "model")
    for one in (ours, polyadic.load(tmp_path / "model")):
        np.testing.assert_array_equal(one.predict(X), expected)
        assert one.classes_.dtype.kind == np.asarray(model.classes_).dtype.kind


@pytest.mark.parametrize("classes", [["z", "b"], ["z", "b", "m", "a"]])
@pytest.mark.parametrize("policy", ["SymmetricTree", "Lossguide"])
def test_classes_are_sorted_and_outputs_follow_them(classes, policy):
    X = grown.numeric(np.random.default_rng(0))
    place = np.digitize(grown.score(X), np.quantile(grown.score(X), np.arange(1, len(classes)) / 4))
    options = {**grown.CAT, "class_names": classes, "grow_policy": policy}
    model = cb.CatBoostClassifier(**options).fit(X, np.array(classes)[place])
    assert list(model.classes_) == classes
    ours = from_model(model, X)
    assert list(ours.classes_) == sorted(classes)
    expected = model.predict_proba(X)[:, np.argsort(classes)]
    np.testing.assert_allclose(ours.predict_proba(X), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(ours.predict(X), np.ravel(model.predict(X)))


# ---- categories ----------------------------------------------------------------------------------

FRAMES = ["lightgbm frame", "sklearn hist frame", "catboost one-hot SymmetricTree"]


@pytest.mark.filterwarnings("ignore:20 of 20 values of the column .* were not seen")
@pytest.mark.parametrize("name", [*FRAMES, "lightgbm codes", "sklearn hist codes"])
def test_an_unseen_category_goes_where_the_library_sends_it(name):
    case, _, X, raw, ours = build(name)
    new = X[:20].copy()
    if isinstance(X, pd.DataFrame):
        new["b"] = pd.Categorical(["violet"] * 20)
        new["d"] = pd.Categorical([20, 77] * 10)
    else:
        new[:, 1] = [3.0, 77.0, 5.0, 1001.0] * 5
    assert_same(ours, new, raw, case.tolerance)


@pytest.mark.parametrize("name", ["lightgbm frame", "sklearn hist frame", "xgboost partitions"])
def test_categories_that_the_table_lacks_are_known(name):
    case, model, X, raw, _ = build(name)
    few = X[X["b"].isin(["red", "green"])]
    few = few.assign(b=few["b"].cat.remove_unused_categories())
    ours = from_model(model, few)
    assert set(ours.columns_.columns[1].categories) == set(X["b"].cat.categories)
    assert_same(ours, X, raw, case.tolerance)


def test_categories_of_catboost_are_those_of_the_table_and_those_given():
    case, model, X, raw, _ = build("catboost one-hot SymmetricTree")
    few = X[X["b"].isin(["red", "green"])]
    with pytest.raises(UnreadableModel, match="not among the categories given"):
        from_model(model, few)
    every = list(X["b"].cat.categories)
    for key in ("b", 1):
        assert_same(from_model(model, few, categories={key: every}), X, raw, case.tolerance)
    with pytest.raises(ValueError, match="categories names the column 'e', which X does not have"):
        from_model(model, few, categories={"e": every})


def test_codes_of_xgboost_beyond_the_known_ones_go_left():
    case, model, X, raw, _ = build("xgboost codes")
    far = np.tile(X[:30], (2, 1))
    far[:30, 1] = 200.0
    assert_same(from_model(model, np.vstack((X, far))), far, raw, case.tolerance)


def test_categories_of_every_type_are_found(tmp_path):
    rng = np.random.default_rng(0)
    values = {"t": ["u", "v", "w"], "i": [3, 1, 2], "f": [0.5, 2.5, -1.0], "b": [True, False]}
    X = pd.DataFrame(
        {name: pd.Categorical(rng.choice(v, 200), categories=v) for name, v in values.items()}
    )
    y = X["t"].cat.codes + 2.0 * X["i"].cat.codes - X["f"].cat.codes * X["b"].cat.codes
    options = {**grown.LGB, "min_data_per_group": 5, "cat_smooth": 1}
    for model in (
        lgb.LGBMRegressor(**options).fit(X, y),
        ensembles.HistGradientBoostingRegressor(**grown.HGB).fit(X, y),
    ):
        ours = from_model(model, X)
        assert [c.categories for c in ours.columns_.columns][:2] == [("u", "v", "w"), (1, 2, 3)]
        assert_same(ours, X, model.predict)
        ours.save(tmp_path / "model")
        assert_same(polyadic.load(tmp_path / "model"), X, model.predict)


def test_columns_of_other_types_are_numbers_where_the_model_takes_them_for_numbers():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "bool": rng.random(200) < 0.5,
            "small": rng.integers(0, 9, 200).astype(np.int8),
            "narrow": rng.normal(size=200).astype(np.float32),
            "codes": pd.Categorical(rng.integers(0, 5, 200)),
        }
    )
    y = X["bool"] * X["narrow"] + X["small"] + X["codes"].astype(int) ** 2
    options = {**grown.HGB, "categorical_features": None}
    model = ensembles.HistGradientBoostingRegressor(**options).fit(X, y)
    ours = from_model(model, X)
    assert {column.kind for column in ours.columns_.columns} == {"numeric"}
    assert_same(ours, X, model.predict)
    plain = X.drop(columns="codes")
    for model in (lgb.LGBMRegressor(**grown.LGB), xgb.XGBRegressor(**grown.XGB)):
        model.fit(plain, y)
        assert_same(from_model(model, plain), plain, model.predict, 1e-6)


# ---- tables --------------------------------------------------------------------------------------


def small_frame(n=120):
    X = grown.numeric(np.random.default_rng(0), n)
    return pd.DataFrame(X, columns=["a", "b c", "d", "e"]), grown.score(X)


@pytest.mark.parametrize("library", MODELS)
def test_columns_are_found_by_name(library):
    X, y = small_frame()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LightGBM warns of the space in a name
        model = MODELS[library]().fit(X, y)
    expected = from_model(model, X)
    moved = X[["e", "b c", "a", "d"]].assign(more="text")
    ours = from_model(model, moved)
    assert list(ours.feature_names_in_) == list(X.columns)
    np.testing.assert_array_equal(ours.raw(moved), expected.raw(X))
    np.testing.assert_array_equal(ours.feature_importances_, expected.feature_importances_)
    array = from_model(model, X.to_numpy())
    assert not hasattr(array, "feature_names_in_")
    np.testing.assert_array_equal(array.raw(X.to_numpy()), expected.raw(X))
    with pytest.raises(ValueError, match=r"X lacks 1 of the 4 columns .* 'd'.* 'other'"):
        from_model(model, X.rename(columns={"d": "other"}))
    with pytest.raises(ValueError, match="X has 3 columns, but the model was fitted on 4"):
        from_model(model, X.to_numpy()[:, :3])


def test_other_frames_hold_the_same_table():
    _, model, X, _, expected = build("sklearn hist frame")
    other = pl.from_pandas(X.astype({"b": object, "d": float})).with_columns(pl.col("d").cast(int))
    for table in (other, other.to_arrow(), X.convert_dtypes()):
        ours = from_model(model, table)
        np.testing.assert_array_equal(ours.raw(table), expected.raw(X))
        np.testing.assert_array_equal(ours.feature_importances_, expected.feature_importances_)
    rows = X.to_numpy(dtype=object).tolist()
    np.testing.assert_array_equal(from_model(model, rows).raw(rows), expected.raw(X))


def test_names_of_the_table_are_taken_where_the_model_has_none():
    X, y = small_frame()
    model = DecisionTreeRegressor(max_depth=3).fit(X.to_numpy(), y)
    ours = from_model(model, X)
    assert ours.columns_.names == list(X.columns)
    np.testing.assert_array_equal(ours.predict(X), model.predict(X.to_numpy()))


def test_weights_count_rows():
    X, y = small_frame()
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    model = DecisionTreeRegressor(max_depth=4).fit(X, y)
    one = explain.sobol(from_model(model, X, sample_weight=weight))
    other = explain.sobol(from_model(model, X.loc[X.index.repeat(weight)]))
    np.testing.assert_allclose(one.total, other.total, rtol=1e-9)
    with pytest.raises(ValueError, match="sample_weight has 3 entries"):
        from_model(model, X, sample_weight=[1.0, 2.0, 3.0])


@pytest.mark.parametrize("categories", [[], ["u", "v"]])
def test_columns_without_any_value_are_allowed(categories, tmp_path):
    X, y = grown.mixed(np.random.default_rng(0))
    X["b"] = pd.Categorical([None] * len(X), categories=categories)
    X["c"] = np.nan
    model = lgb.LGBMRegressor(**grown.LGB).fit(X, y)
    ours = from_model(model, X)
    assert_same(ours, X, model.predict)
    explain.effects(ours)
    polyadic.report(ours, X, y, tmp_path / "page.html")
    ours.save(tmp_path / "model")
    np.testing.assert_array_equal(polyadic.load(tmp_path / "model").raw(X), ours.raw(X))


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("library", MODELS)
def test_models_that_are_not_fitted_are_refused(library):
    with pytest.raises(NotFittedError):
        from_model(MODELS[library](), np.zeros((3, 2)))


def test_tables_that_do_not_fit_the_model_are_refused():
    X, y = small_frame()
    model = DecisionTreeRegressor(max_depth=3).fit(X, y)
    with pytest.raises(ValueError, match="0 sample"):
        from_model(model, X[:0])
    with pytest.raises(
        ValueError, match=r"'a' is numeric but holds 'x'.*takes this column for num"
    ):
        from_model(model, X.astype(object).assign(a="x"))
    with pytest.raises(ValueError, match="'a' holds infinity"):
        from_model(model, X.assign(a=np.inf))
    with pytest.raises(UnreadableModel, match="CPRegressor cannot be read"):
        from_model(from_model(model, X), X)


def test_categories_that_mean_something_else_are_refused():
    _, model, X, _, _ = build("lightgbm frame")
    codes = np.column_stack([X["a"], X["b"].cat.codes, X["c"], X["d"].cat.codes])
    with pytest.raises(
        ValueError, match=r"Column 1 holds the categories .* knows none. It knows 'r"
    ):
        from_model(model, codes)
    _, model, X, _, _ = build("lightgbm codes")
    X[0, 1] = 2.5
    with pytest.raises(ValueError, match=r"Column 1 holds the category 2.5, .* whole numbers"):
        from_model(model, X)


# ---- the estimator -------------------------------------------------------------------------------


def test_the_estimator_is_one_of_this_library():
    _, _, X, _, ours = build("lightgbm codes")
    check_is_fitted(ours)
    # A fit grows no trees for quantiles: a clone can be fitted.
    assert (ours.loss, ours.quantile, ours.trees) == ("quantile", 0.7, "auto")
    usual = {**CPRegressor().get_params(), "loss": "quantile", "quantile": 0.7}
    assert ours.get_params() == usual
    assert build("sklearn hist codes")[-1].trees is True
    assert not hasattr(clone(ours), "tensor_")
    assert (ours.history_, ours.n_iter_, ours.n_features_in_) == ([], 0, 4)
    assert ours.plan_["source"] == "LGBMRegressor"
    assert "of lightgbm: 6 trees, 48 leaves\n" in str(ours.plan_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours)).raw(X), ours.raw(X))
    with pytest.raises(ValueError, match="has trees, which cannot be trained further"):
        ours.partial_fit(X, X[:, 0])
    with pytest.raises(ValueError, match="has trees, which cannot be trained further"):
        ours.set_params(warm_start=True).fit(X, X[:, 0])


def test_no_library_is_imported_before_it_is_needed():
    code = (
        "import sys, polyadic\npolyadic.trees.from_model\n"
        "print([m for m in ('lightgbm', 'xgboost', 'catboost') if m in sys.modules])"
    )
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() == "[]"
