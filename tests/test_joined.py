"""Laws of models that join trees with smooth terms: all promises of a CP model hold for them."""

import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import parts
import pytest
from explained import relative

import polyadic
from polyadic import CPClassifier, CPRegressor, explain, maps
from polyadic.data.rows import CodedRows
from polyadic.losses import Huber
from polyadic.training.forest import TreeTraining, affordable, bin_maps

FAST = {"rank": 3, "n_members": 2, "max_iter": 2, "solver": "adam", "random_state": 0}
JOINED = FAST | {"trees": True}


def table(n=400, seed=0):
    """Return numbers with missing values and a category, and a target with a sharp step."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.integers(0, 9, n) / 2.0})
    X["c"] = pd.Categorical(np.array(["u", "v", "w", "x"])[rng.integers(0, 4, n)])
    y = 3.0 * (X["a"] > 0.3) * (X["c"] == "v") + X["b"] + 0.1 * rng.normal(size=n)
    X.loc[rng.random(n) < 0.1, "a"] = np.nan
    X.loc[rng.random(n) < 0.1, "c"] = None
    return X, y.to_numpy()


def joined(**changes):
    X, y = table()
    model = CPRegressor(**JOINED | changes).fit(X, y)
    assert model.tensor_.trees is not None
    return model, X, y


TARGETS = {
    "number": (CPRegressor, lambda y: y, {}),
    "numbers": (CPRegressor, lambda y: np.column_stack([y, -y]), {}),
    "counts": (CPRegressor, lambda y: np.round(np.maximum(y, 0)), {"loss": "poisson"}),
    "two classes": (CPClassifier, lambda y: y > 2, {}),
    "three classes": (CPClassifier, lambda y: np.digitize(y, [1, 3]), {}),
    "three classes, squared": (
        CPClassifier,
        lambda y: np.digitize(y, [1, 3]),
        {"loss": "squared_error"},
    ),
}


@pytest.mark.parametrize("case", TARGETS)
def test_shapley_values_add_up_and_files_keep_the_model(case, tmp_path):
    kind, make, changes = TARGETS[case]
    X, y = table()
    with parts.shared_trees():
        model = kind(**JOINED | changes).fit(X, make(y))
    assert model.tensor_.trees is not None
    found = explain.shapley(model, X[:20])
    raw = relative(model, model.raw(X[:20]))
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), raw, atol=1e-5, rtol=1e-5)
    model.save(tmp_path / "model.polyadic")
    again = polyadic.load(tmp_path / "model.polyadic")
    assert np.array_equal(again.predict(X), model.predict(X))
    close = {"rtol": 1e-12, "atol": 1e-12}  # BLAS rounds by where an array lies in memory
    np.testing.assert_allclose(explain.shapley(again, X[:20]).values, found.values, **close)
    np.testing.assert_allclose(explain.sobol(again).total, explain.sobol(model).total, **close)


def test_the_order_of_rows_and_columns_and_n_jobs_do_not_matter():
    model, X, y = joined(n_jobs=2)
    order = np.random.default_rng(1).permutation(len(X))
    columns = ["c", "a", "b"]
    other = CPRegressor(**JOINED, n_jobs=1).fit(X.iloc[order][columns], y[order])
    assert np.array_equal(other.predict(X[columns]), model.predict(X))


def test_a_weight_of_two_is_the_row_twice():
    X, y = table()
    weight = np.where(np.arange(len(y)) % 5 == 0, 2, 1)
    rows = np.repeat(np.arange(len(y)), weight)
    weighted = CPRegressor(**JOINED).fit(X, y, sample_weight=weight)
    repeated = CPRegressor(**JOINED).fit(X.iloc[rows], y[rows])
    assert np.array_equal(weighted.predict(X), repeated.predict(X))


def test_trees_find_a_step_that_smooth_terms_cannot():
    model, X, y = joined()
    smooth = CPRegressor(**FAST, trees=False).fit(X, y)
    assert smooth.tensor_.trees is None
    new, target = table(seed=7)
    error = [np.mean((m.predict(new) - target) ** 2) for m in (model, smooth)]
    assert error[0] < 0.5 * error[1]


def test_trees_are_left_out_by_default_where_they_do_not_help():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1200, 2))
    y = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=len(X))
    model = CPRegressor(random_state=0).fit(X, y)
    assert model.tensor_.trees is None
    assert "trees 0.00" in model.plan_["shares"]


def test_trees_split_on_columns_that_the_search_leaves_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 12))
    y = X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.1 * rng.normal(size=len(X))
    model = CPRegressor(random_state=0, trees=True).fit(X, y)
    n_in_products = int(str(model.plan_["columns"]).split()[0])
    assert n_in_products < X.shape[1]
    assert len(np.unique(model.tensor_.trees.nodes.column)) - 1 > n_in_products  # -1: a leaf


def test_held_out_rows_of_the_user_choose_the_share():
    X, y = table()
    model = CPRegressor(**JOINED).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    assert len(model.tensor_.trees) == int(model.plan_["rounds of trees"])  # once for all members


def test_a_member_that_trains_no_epoch_leaves_the_trees():
    X, y = table()
    model = CPRegressor(**JOINED | {"max_iter": 0}).fit(X, y)
    assert model.tensor_.trees is not None


def test_the_unit_of_weights_does_not_matter():
    X, y = table()
    one, other = (
        CPRegressor(**JOINED).fit(X, y, sample_weight=np.full(len(y), unit)) for unit in (1.0, 2e-6)
    )
    assert other.plan_["rounds of trees"] == one.plan_["rounds of trees"]
    np.testing.assert_allclose(other.predict(X), one.predict(X), atol=1e-3 * np.ptp(y))


def test_a_grid_of_numpy_booleans_is_understood():
    X, y = table()
    found = [
        CPRegressor(**FAST, trees=one).fit(X, y).tensor_.trees for one in np.array([True, False])
    ]
    assert found[0] is not None
    assert found[1] is None


def test_many_columns_have_no_trees_by_default():
    assert affordable(1000, 1)
    assert not affordable(2000, 1)
    assert not affordable(10, 1000)  # classes


@pytest.mark.parametrize("n_columns", [10, 400, 3000])
def test_the_bins_of_all_columns_together_are_bounded(n_columns):
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=3000), rng.integers(0, 500, 3000)] * (n_columns // 2)
    own = [maps.Hat(), maps.OneHot()]
    own = [own[k].fit(columns[k]) for k in range(2)] * (n_columns // 2)
    rows = CodedRows(columns, np.zeros((3000, 1)), np.ones(3000))
    found = bin_maps(own, rows)
    assert sum(m.dim for m in found) <= 50_000
    assert min(m.dim for m in found) > 10


def test_more_classes_than_there_may_be_trees_are_refused():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(900, 3)), np.repeat(np.arange(450), 2)
    with pytest.raises(ValueError, match="450 outputs or classes: each needs trees"):
        CPClassifier(trees=True).fit(X, y)


def test_trees_leave_time_for_what_begins_after_them():
    X, y = table(600)
    how = {"random_state": 0, "trees": True, "n_jobs": 1}
    model = CPRegressor(**how, max_time=1e-9).fit(X, y)
    assert model.tensor_.trees is None
    assert model.plan_["trees"] == "no"
    trees = TreeTraining(SimpleNamespace(deadline=time.perf_counter() + 100, plan=None))
    trees.limit_time()
    assert 20 < trees.end - time.perf_counter() < 30


def test_only_frequent_categories_have_bins():
    codes = np.concatenate([np.arange(400), np.arange(300, 400)])
    rows = CodedRows([codes], np.zeros((len(codes), 1)), np.ones(len(codes)))
    (own,) = bin_maps([maps.OneHot().fit(codes)], rows)
    assert own.dim - 1 == 254
    assert np.all(own.encode(np.arange(300, 400))[0] > 0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"loss": Huber(1.0)}, "trees=True cannot be used with the loss"),
        ({"early_stopping": False}, r"trees=True needs held-out rows.*got early_stopping=False"),
        ({"warm_start": True}, "trees cannot be trained further"),
        ({"trees": "yes"}, "trees must be True, False or 'auto', got 'yes'"),
    ],
)
def test_what_cannot_have_trees_is_refused(changes, told):
    X, y = table(60)
    with pytest.raises(ValueError, match=told):
        CPRegressor(**JOINED | changes).fit(X, y)


@pytest.mark.parametrize("cls", [CPRegressor, CPClassifier])
def test_a_table_too_short_for_trees_is_fitted_without_them(cls):
    """The number of rows is no setting: the fit is that of trees=False, and says so."""
    X, y = table(49)
    y = y if cls is CPRegressor else y > np.median(y)
    small = JOINED | {"max_iter": 2}
    with pytest.warns(UserWarning, match="no effect on 49 distinct rows: .* which takes 50 with"):
        model = cls(**small).fit(X, y)
    assert model.tensor_.trees is None
    assert model.plan_["trees"] == "no"
    plain = cls(**small | {"trees": False}).fit(X, y)
    np.testing.assert_array_equal(model.raw(X), plain.raw(X))
    X, y = table(50)
    y = y if cls is CPRegressor else y > np.median(y)
    assert cls(**small).fit(X, y).tensor_.trees is not None


def test_held_out_rows_that_are_given_grow_trees_on_a_short_table():
    X, y = table(40)
    model = CPRegressor(**JOINED | {"max_iter": 2}).fit(X, y, X_val=X, y_val=y)
    assert model.tensor_.trees is not None


def test_a_model_with_trees_is_not_trained_further():
    model, X, y = joined()
    before = model.predict(X)
    with pytest.raises(ValueError, match="trees, which cannot be trained further"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="trees, which cannot be trained further"):
        model.set_params(warm_start=True, trees=False).fit(X, y)
    assert np.array_equal(model.predict(X), before)


def test_a_formula_of_trees_is_refused_by_name():
    model, _, _ = joined()
    with pytest.raises(ValueError, match="trees=False"):
        explain.coefficients(model)


def test_trees_join_a_single_smooth_member_of_two_classes():
    """Members of the prior learn from all rows, so that trees alone would predict held-out ones."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    y = X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=400) > 0
    model = CPClassifier(trees=True, n_members=1, random_state=0).fit(X, y)
    assert model.plan_["strategy"] == "factor penalties"
    assert "factor penalties" in model.plan_["shares"]
    assert "trees" in model.plan_["shares"]
