"""Models of other libraries as estimators of this one: their nodes, and explanations of them."""

import itertools
import math
import warnings

import grown
import hypothesis.strategies as st
import lightgbm as lgb
import needs
import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble as ensembles
import xgboost as xgb
from explained import relative
from hypothesis import HealthCheck, given, settings
from pages import data_of
from sklearn.tree import DecisionTreeRegressor
from turned import MODELS, assert_same, build

import polyadic
from polyadic import explain
from polyadic.data.columns import Column
from polyadic.io.trees import pack_trees, rebuild_trees
from polyadic.objective.losses import Softmax, SquaredError
from polyadic.trees import from_model
from polyadic.trees.assembly import assemble
from polyadic.trees.source import Source, SourceTree

# ---- assembly ------------------------------------------------------------------------------------


def grown_tree(column, threshold=None, missing_left=None, value=None, left=None, right=None):
    """Return a tree of one number per leaf; by default of three nodes."""
    size = len(column)
    return SourceTree(
        np.array(column, dtype=np.int32),
        np.zeros(size) if threshold is None else np.array(threshold),
        np.zeros(size, dtype=bool) if missing_left is None else np.array(missing_left),
        np.array([1, -1, -1] if left is None else left, dtype=np.int32),
        np.array([2, -1, -1] if right is None else right, dtype=np.int32),
        np.array(value, dtype=float).reshape(size, -1),
    )


def assembled(trees, n_outputs=1, n_columns=1):
    """Return trees over bins; they must be as a file may hold them."""
    source = Source(trees, np.zeros(n_outputs), n_columns, SquaredError())
    out = assemble(source, [Column(str(n), "numeric") for n in range(n_columns)])
    entries, arrays = pack_trees(out, with_shares=True)
    columns = polyadic.data.columns.Columns(
        [Column(str(n), "numeric") for n in range(n_columns)], True
    )
    rebuild_trees(
        entries, columns, n_outputs, arrays, lambda name, kind: getattr(polyadic.maps, name)
    )
    return out


def raw_of(trees, *columns, n_outputs=1):
    out = np.zeros((len(columns[0]), n_outputs))
    trees.add_to(out, [np.asarray(column, dtype=float) for column in columns])
    return out


@pytest.mark.parametrize("missing_left", [False, True])
def test_infinite_thresholds_divide_missing_numbers_from_all_others(missing_left):
    x = [-1.7976931348623157e308, 0.0, 1.7976931348623157e308, np.nan]
    for threshold, known in ((np.inf, 1.0), (-np.inf, 2.0)):
        tree = grown_tree([0, -1, -1], [threshold, 0, 0], [missing_left, 0, 0], [0, 1, 2])
        found = raw_of(assembled([tree]), x)[:, 0]
        np.testing.assert_array_equal(found, [known] * 3 + [1.0 if missing_left else 2.0])


def test_deep_trees_and_nodes_in_any_order_are_assembled():
    depth = 3000  # a chain: node k asks whether x <= k; its leaves are the last nodes, reversed
    size = 2 * depth + 1
    inner = np.arange(depth)
    column = np.r_[np.zeros(depth, int), np.full(depth + 1, -1)]
    left = np.r_[size - 1 - inner, np.full(depth + 1, -1)]
    right = np.r_[inner[1:], depth, np.full(depth + 1, -1)]
    value = np.zeros(size)
    value[size - 1 - inner], value[depth] = inner, depth
    threshold = np.r_[inner.astype(float), np.zeros(depth + 1)]
    tree = grown_tree(column, threshold, None, value, left, right)
    trees = assembled([tree, tree])
    x = np.array([-5.0, 0.0, 0.5, 17.0, 2999.0, 1e9])
    np.testing.assert_array_equal(raw_of(trees, x)[:, 0], [0, 0, 2, 34, 5998, 6000])
    np.testing.assert_array_equal(trees.nodes.left[:4], [1, -1, 3, -1])  # preorder
    assert len(trees.leaves) == 2 * (depth + 1)


def test_leaves_of_several_outputs_stand_beside_leaves_of_one():
    one = grown_tree([0, -1, -1], value=[0, 1, 2])
    one = SourceTree(**{**vars(one), "output": 1})
    both = grown_tree([0, -1, -1], value=[[0, 0], [10, 20], [30, 40]])
    found = raw_of(assembled([one, both], n_outputs=2), [-1.0, 1.0], n_outputs=2)
    np.testing.assert_array_equal(found, [[10, 21], [30, 42]])


def test_a_source_without_trees_is_a_constant():
    np.testing.assert_array_equal(raw_of(assembled([]), [1.0, np.nan]), [[0.0], [0.0]])


def test_outputs_of_single_trees_follow_their_classes():
    tree = grown_tree([0, -1, -1], value=[0.0, 1.0, 2.0])
    trees = [SourceTree(**{**vars(tree), "output": k}) for k in range(3)]
    source = Source(trees, np.array([0.1, 0.2, 0.3]), 1, Softmax(3), np.array(["c", "a", "b"]))
    found = polyadic.trees.model._with_sorted_classes(source)
    assert list(found.classes) == ["a", "b", "c"]
    assert [t.output for t in found.trees] == [2, 0, 1]
    np.testing.assert_array_equal(found.base, [0.2, 0.3, 0.1])


# ---- explanations --------------------------------------------------------------------------------


def picked(X, rows_of_columns):
    """Return a table whose column j has the rows rows_of_columns[j] of X."""
    if isinstance(X, pd.DataFrame):
        parts = [X.iloc[rows, j].reset_index(drop=True) for j, rows in enumerate(rows_of_columns)]
        return pd.concat(parts, axis=1)
    return np.column_stack([X[rows, j] for j, rows in enumerate(rows_of_columns)])


def brute_force(raw, X, row, background):
    """Return the Shapley values of a row by their definition, (N, L), over rows of a table."""
    n = X.shape[1]
    value = {}
    for kept in itertools.chain(*(itertools.combinations(range(n), k) for k in range(n + 1))):
        rows = [np.full(len(background), row) if j in kept else background for j in range(n)]
        found = np.asarray(raw(picked(X, rows)), dtype=float).reshape(len(background), -1)
        value[kept] = found.mean(axis=0)
    out = []
    for j in range(n):
        share = [
            (value[tuple(sorted((*kept, j)))] - value[kept]) / (n * math.comb(n - 1, len(kept)))
            for kept in value
            if j not in kept
        ]
        out.append(np.sum(share, axis=0))
    return np.array(out)


EXPLAINED = [
    "lightgbm frame",
    "lightgbm three classes",
    "xgboost partitions",
    "xgboost multi_output_tree",
    "catboost one-hot Lossguide",
    "catboost two classes",
    "sklearn hist frame",
    "sklearn forest three",
]


@pytest.mark.parametrize("name", EXPLAINED)
@grown.quiet()
def test_shapley_values_are_those_of_the_definition(name):
    _, _, X, of_library, ours = build(name)

    def raw(rows):
        return relative(ours, np.asarray(of_library(rows), dtype=float).reshape(len(rows), -1))

    background = np.arange(10, 22)
    rows = X[:3]
    found = explain.shapley(ours, rows, background=X[10:22])
    for row in range(3):
        expected = brute_force(raw, X, row, background)
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(found.values[row], expected, rtol=0, atol=1e-6 * scale)
    mean = np.asarray(raw(X[10:22]), dtype=float).reshape(12, -1).mean(axis=0)
    np.testing.assert_allclose(found.base, mean, rtol=0, atol=1e-6 * max(1, np.abs(mean).max()))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "sklearn"])
def test_shapley_values_are_those_of_shap(library):
    shap = needs.package("shap")
    X = grown.numeric(np.random.default_rng(0), missing=False)
    model = MODELS[library]().fit(X, grown.score(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = shap.TreeExplainer(model, X[:50], feature_perturbation="interventional")
        expected = explainer.shap_values(X[50:80])
    found = explain.shapley(from_model(model, X), X[50:80], background=X[:50])
    np.testing.assert_allclose(found.values[:, :, 0], expected, rtol=0, atol=1e-6)


def explain_all(model, X):
    """Call every explanation and every plot."""
    plots = pytest.importorskip("polyadic.plots")
    needs.package("matplotlib")
    import matplotlib.pyplot as plt

    shares, values = explain.sobol(model), explain.shapley(model, X[:9])
    np.testing.assert_allclose(
        values.values.sum(axis=1) + values.base,
        relative(model, model.raw(X[:9])),
        rtol=1e-9,
        atol=1e-9,
    )
    names = model.columns_.names
    surface = explain.partial_dependence(model, names[:2], pure=True)
    for draw, what in (
        (plots.effects, explain.effects(model)),
        (plots.importance, shares),
        (plots.orders, shares),
        (plots.beeswarm, values),
        (plots.interaction, surface),
    ):
        draw(what)
    plots.waterfall(values, 0)
    plt.close("all")
    pairs = explain.shapley_interactions(model, X[:3])
    assert pairs.values.shape[:3] == (3, len(names), len(names))
    assert len(explain.interactions(model, max_order=3).rows) > 0
    assert all("variance" in sentence for sentence in explain.in_words(model))
    assert "average" in explain.describe(model, X[:1])
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no learning curves: it was made from a model of another"):
        plots.learning_curve(model)


@pytest.mark.parametrize("name", ["lightgbm frame", "xgboost three classes", "catboost outputs"])
def test_all_explanations_and_plots_work(name):
    _, _, X, _, ours = build(name)
    explain_all(ours, X)


@pytest.mark.parametrize("name", ["xgboost one-hot", "sklearn hist three"])
def test_a_page_holds_the_leaves(name, tmp_path):
    _, _, X, _, ours = build(name)
    y = ours.predict(X)
    page = polyadic.report(ours, X, y, tmp_path / "page.html", target="something")
    data = data_of(page)
    n_leaves = len(ours.tensor_.trees.leaves)
    assert f"a sum of {n_leaves} leaves of {len(ours.tensor_.trees)} trees" in data["summary"]
    assert data["facts"][4] == ["Training rows", str(len(X))]
    assert data["model"]["trees"] is not None
    assert data["quality"] is not None


# ---- random tables -------------------------------------------------------------------------------

ENTRIES = st.sampled_from([0.0, -0.0, 1e-36, 0.1, 1 / 3, -2.0, 3.0, 16777217.0, float("nan")])


@st.composite
def tables(draw):
    n, n_columns = draw(st.integers(2, 30)), draw(st.integers(1, 4))
    X = draw(st.lists(ENTRIES, min_size=n * n_columns, max_size=n * n_columns))
    y = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    return np.array(X).reshape(n, n_columns), np.array(y, dtype=float)


SMALL = {
    "lightgbm": lambda: lgb.LGBMRegressor(
        **{**grown.LGB, "min_child_samples": 1, "min_data_in_bin": 1}
    ),
    "xgboost": lambda: xgb.XGBRegressor(**grown.XGB, min_child_weight=0),
    "sklearn": lambda: DecisionTreeRegressor(max_depth=4, random_state=0),
    "hist": lambda: ensembles.HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=1),
}


@pytest.mark.parametrize("library", SMALL)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_random_models_on_random_tables(library, table):
    X, y = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SMALL[library]().fit(X, y)
        ours = from_model(model, X)
        assert_same(ours, X, model.predict, 1e-6)
        found = explain.shapley(ours, X[:2], background=X)
        for row in range(2):
            expected = brute_force(model.predict, X, row, np.arange(len(X)))
            np.testing.assert_allclose(found.values[row], expected, rtol=0, atol=1e-5)
