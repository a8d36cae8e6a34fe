"""Laws of boosted trees: splits by brute force, predictions by their nodes, errors of a peer."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from polyadic import maps
from polyadic.data.rows import CodedRows
from polyadic.kernels import boosting
from polyadic.losses import Logistic, Poisson, Softmax, SquaredError
from polyadic.networks import trees as forests
from polyadic.training import forest as module
from polyadic.training.forest import Forest, bin_maps

LOSSES = {
    "squared error": (SquaredError(), lambda y: y),
    "two outputs": (SquaredError(), lambda y: np.column_stack([y, -y])),
    "two classes": (Logistic(), lambda y: y > 2),
    "three classes": (Softmax(3), lambda y: np.digitize(y, [1, 3])),
    "poisson": (Poisson(), lambda y: np.round(np.maximum(y, 0))),
}


def make(case, n=600, seed=0):
    """Return a forest without trees, its rows and its loss."""
    loss, target = LOSSES[case]
    rng = np.random.default_rng(seed)
    columns = [rng.normal(size=n), rng.integers(-1, 40, n), rng.integers(-1, 6, n), np.zeros(n)]
    columns[0][::7] = np.nan
    y = target(np.nan_to_num(columns[0]) + columns[1] % 3 + columns[2]).astype(float)
    rows = CodedRows(columns, y.reshape(n, -1), rng.uniform(0.5, 2.0, n))
    smooth = [maps.Hat(), maps.OneHot(), maps.OneHot(), maps.Hat()]
    bins = bin_maps([m.fit(x) for m, x in zip(smooth, columns)], rows)
    n_outputs = 3 if isinstance(loss, Softmax) else rows.y.shape[1]
    base = np.broadcast_to(loss.baseline(rows.y, rows.weight), (n_outputs,)).astype(float)
    return Forest(loss, bins, rows, base, 1), rows, loss


@pytest.mark.parametrize("case", LOSSES)
def test_the_nodes_predict_what_training_has_reached(case):
    forest, rows, loss = make(case)
    forest.grow(6)
    forest.grow(4)
    raw = np.tile(forest.base, (len(rows), 1))
    forest.first(10).add_to(raw, rows.columns)
    np.testing.assert_allclose(raw, forest.raw, rtol=1e-12, atol=1e-12)
    before = loss.value(rows.y, np.tile(forest.base, (len(rows), 1)), rows.weight)
    assert loss.value(rows.y, raw, rows.weight) < 0.9 * before


@pytest.mark.parametrize("case", LOSSES)
def test_the_first_trees_are_those_of_a_shorter_training(case):
    long, rows, _ = make(case)
    long.grow(10)
    short, _, _ = make(case)
    short.grow(4)
    raws = np.zeros((2, len(rows), len(long.base)))
    long.first(4).add_to(raws[0], rows.columns)
    short.first(4).add_to(raws[1], rows.columns)
    assert np.array_equal(*raws)


@pytest.mark.parametrize(("case", "share"), [("three classes", 0.6), ("two classes", 1.0)])
def test_a_tree_of_many_classes_sees_a_share_of_the_rows(case, share, monkeypatch):
    works, make_work = [], boosting.Workspace.make
    monkeypatch.setattr(
        boosting.Workspace, "make", lambda *sizes: works.append(make_work(*sizes)) or works[-1]
    )
    forest, rows, _ = make(case)
    forest.grow(1)
    trees, [work] = forest.first(1), works
    n_leaves = (len(trees.nodes.column) - trees.roots[-1] + 1) // 2  # of the last tree
    n_seen = (work.end - work.begin)[:n_leaves].sum()
    assert sorted(work.order) == list(range(len(rows)))  # the others follow
    # The standard error of the share is 0.02.
    assert abs(n_seen / len(rows) - share) < (0.1 if share < 1 else 1e-9)


@pytest.mark.parametrize("many_rows", [1, 10**9])  # by masks, or node by node
@pytest.mark.parametrize("case", LOSSES)
def test_the_held_out_loss_is_that_of_all_trees_so_far(case, many_rows, monkeypatch):
    monkeypatch.setattr(forests, "_MANY_ROWS", many_rows)
    forest, rows, loss = make(case)
    watched = module.HeldOutLoss(loss, forest, rows)
    watched.grow(10)
    watched.grow(10)
    raws = np.tile(forest.base, (4, len(rows), 1))
    for k, raw in enumerate(raws):
        forest.first(5 * (k + 1)).add_to(raw, rows.columns)
    expected = [loss.value(rows.y, raw, rows.weight) for raw in raws]
    np.testing.assert_allclose(watched.losses, expected, rtol=1e-9)


def best_split_by_hand(bins, y, weight, least):
    """Return the largest gain of any split of numeric bins, with missing values on either side."""
    best = 0.0
    for own in bins:
        for last in range(1, own.max() + 1):
            for missing in (False, True):
                left = np.where(own == 0, missing, own <= last)
                if least <= left.sum() <= len(y) - least:
                    sums = [
                        np.sum((weight * y)[side]) ** 2 / weight[side].sum()
                        for side in (left, ~left)
                    ]
                    best = max(best, sum(sums) - np.sum(weight * y) ** 2 / weight.sum())
    return best


@pytest.mark.parametrize("seed", range(5))
def test_a_stump_is_the_best_of_all_splits(seed, monkeypatch):
    monkeypatch.setattr(module, "_LEAVES", 2)
    monkeypatch.setattr(module, "_COLUMN_SHARE", 1.0)
    monkeypatch.setattr(module, "_RATE", 1.0)
    rng = np.random.default_rng(seed)
    columns = [np.round(rng.normal(size=90), 1), rng.normal(size=90)]
    columns[0][rng.random(90) < 0.3] = np.nan
    y = np.where(np.isnan(columns[0]), 1.0, columns[0] > 0.2) + rng.normal(size=90)
    rows = CodedRows(columns, y[:, None], rng.uniform(0.5, 2.0, 90))
    bins = bin_maps([maps.Hat().fit(x) for x in columns], rows)
    forest = Forest(SquaredError(), bins, rows, np.zeros(1), 1)
    forest.grow(1)
    error = rows.weight @ y**2 - rows.weight @ (y - forest.raw[:, 0]) ** 2
    whole = np.sum(rows.weight * y) ** 2 / rows.weight.sum()
    table = [m.encode(x)[0][:, 0] for m, x in zip(bins, columns)]
    wanted = best_split_by_hand(table, y, rows.weight, module._LEAST_ROWS)
    np.testing.assert_allclose(error - whole, wanted, rtol=1e-9)


def test_categories_are_divided_into_sets():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 8, 800)
    y = np.isin(codes, [1, 4, 6]).astype(float)
    rows = CodedRows([codes], y[:, None], np.ones(800))
    forest = Forest(
        SquaredError(), bin_maps([maps.OneHot().fit(codes)], rows), rows, np.zeros(1), 1
    )
    forest.grow(1)
    root = forest.first(1).nodes
    inside = set(np.flatnonzero(root.sets[0]) - 1)
    assert inside in ({1, 4, 6}, {0, 2, 3, 5, 7})


def test_leaves_have_enough_rows(monkeypatch):
    monkeypatch.setattr(module, "_LEAST_ROWS", 50.0)
    forest, rows, _ = make("squared error")
    forest.grow(3)
    trees = forest.first(3)
    for leaf in range(len(trees.leaves)):
        inside = np.ones(len(rows), dtype=bool)
        for n, own in enumerate(trees.bins(rows.columns)):
            inside &= trees.leaves.indicators(n, own, slice(leaf, leaf + 1))[:, 0] > 0
        assert inside.sum() >= 50


@pytest.mark.parametrize("case", ["squared error", "two classes", "three classes"])
def test_the_error_on_new_rows_is_that_of_a_peer(case, monkeypatch):
    monkeypatch.setattr(module, "_ROW_SHARE_OF_CLASSES", 1.0)  # as the peer
    forest, rows, loss = make(case, n=3000)
    _, new, _ = make(case, n=3000, seed=1)
    forest.grow(60)
    raw = np.tile(forest.base, (len(new), 1))
    forest.first(60).add_to(raw, new.columns)
    kind = (
        HistGradientBoostingRegressor if case == "squared error" else HistGradientBoostingClassifier
    )
    peer = kind(max_iter=60, early_stopping=False, categorical_features=[1, 2], random_state=0)
    tables = [
        np.column_stack(
            [np.where(c < 0, np.nan, c) if k in (1, 2) else c for k, c in enumerate(r.columns)]
        )[:, :3]
        for r in (rows, new)
    ]
    peer.fit(tables[0], rows.y[:, 0], rows.weight)
    other = peer.predict(tables[1])[:, None] if case == "squared error" else None
    if other is None:
        other = np.log(peer.predict_proba(tables[1]))
        other = other[:, 1:] - other[:, :1] if case == "two classes" else other
    errors = [loss.value(new.y, f, new.weight) for f in (raw, other)]
    assert errors[0] < 1.3 * errors[1] + 0.01


def test_a_column_that_does_not_vary_is_never_asked():
    forest, _, _ = make("squared error")
    forest.grow(5)
    assert 3 not in forest.first(5).nodes.column


def test_a_table_without_a_column_that_varies_has_trees_of_one_leaf():
    rows = CodedRows([np.zeros(30)], np.arange(30.0)[:, None], np.ones(30))
    own = [maps.Hat().fit(rows.columns[0])]
    forest = Forest(SquaredError(), bin_maps(own, rows), rows, np.full(1, 14.5), 1)
    forest.grow(2)
    assert len(forest.first(2).leaves.column) == 0
    np.testing.assert_allclose(forest.raw, 14.5)
