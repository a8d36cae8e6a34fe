"""A missing or unseen value says nothing in a column that had none in training.

On the raw scale it predicts the mean of the predictions over the column's training values.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import parts
import pytest

from polyadic import CPClassifier, CPRegressor, TNRegressor, explain, load, maps

# Without maps in which rare categories share the constant element, which was learnt.
NEUTRAL = [
    m
    for m in parts.MAPS
    if (m.partition or m.all_slots) and getattr(m, "min_count", 1) in ("auto", 1)
]
SMALL = {"rank": 4, "n_members": 2, "random_state": 0}  # still a mixture of all strategies


def table(n=120, seed=0):
    """Return a table of two numbers and a category, none missing, and a target."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": rng.integers(0, 5, n).astype(float),
            "c": rng.choice(["x", "y", "z"], n, p=[0.6, 0.3, 0.1]),
        }
    )
    y = X["a"] * (X["b"] > 2) + X["c"].map({"x": 0.0, "y": 1.0, "z": -2.0}) * X["a"]
    return X, (y + 0.1 * rng.normal(size=n)).to_numpy()


def missing(X, column):
    """Return the rows with no known value of a column: missing numbers, unseen categories."""
    return X.assign(**{column: "new" if column == "c" else np.nan})


def mean_over(model, X, rows, columns, weight=None):
    """Return the mean raw prediction of rows over the training values of some columns."""
    every = rows
    for column in columns:
        every = pd.concat([every.assign(**{column: value}) for value in X[column]])
    raw = model.raw(every)
    return np.average(raw.reshape(-1, len(rows), raw.shape[1]), axis=0, weights=weight)


def check(model, X, columns=("a", "b", "c"), weight=None):
    rows = X.iloc[:7]
    scale = np.ptp(model.raw(X), axis=0).max() + 1e-9
    for column in columns:
        expected = mean_over(model, X, rows, [column], weight)
        found = model.raw(missing(rows, column))
        np.testing.assert_allclose(found, expected, atol=1e-5 * scale, err_msg=column)


@pytest.mark.parametrize("family", NEUTRAL, ids=repr)
def test_a_missing_value_predicts_the_mean_over_its_column(family):
    X, y = table()
    chosen = {"c" if family.kind == "categorical" else "a": family.clone()}
    check(CPRegressor(maps=chosen, n_members=1, max_iter=5, random_state=0).fit(X, y), X)


@pytest.mark.parametrize("kind", ["numbers", "two classes", "three classes", "two outputs"])
@pytest.mark.parametrize("trees", [False, True])
def test_it_does_so_in_every_mixture_of_strategies(kind, trees):
    X, y = table()
    if kind == "two outputs":
        y = np.column_stack([y, -y])
    limits = {"two classes": [0.0], "three classes": [-0.5, 0.5]}.get(kind)
    with parts.shared_trees():
        if limits is None:
            model = CPRegressor(**SMALL, trees=trees).fit(X, y)
        else:
            model = CPClassifier(**SMALL, trees=trees).fit(X, np.digitize(y, limits))
    assert "tensor prior" in model.plan_["strategy"]
    assert (model.tensor_.trees is not None) == trees
    check(model, X)


def fit_joined(n=120, **extra):
    """Return a table, and a model in which trees have a share of 0.4."""
    X, y = table(n)
    with parts.shared_trees():
        model = CPRegressor(**SMALL, trees=True, **extra).fit(X, y)
    assert model.tensor_.trees is not None
    return X, model


joined = cache(fit_joined)  # for tests that do not change the model


def test_two_missing_values_predict_the_mean_over_both_columns():
    X, model = joined(60)
    rows = X.iloc[:3]
    expected = mean_over(model, X, rows, ["a", "c"])
    found = model.raw(missing(missing(rows, "a"), "c"))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.ptp(model.raw(X)))


def test_means_are_by_sample_weight():
    X, y = table()
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(X))
    with parts.shared_trees():
        model = CPRegressor(**SMALL, trees=True).fit(X, y, sample_weight=weight)
    check(model, X, weight=weight)


@pytest.mark.parametrize("name", ["cp", "tt", "tr", "ht", "tucker"])
def test_it_does_so_in_every_network(name):
    X, y = table()
    check(TNRegressor(format=name, rank=2, max_iter=3, random_state=0).fit(X, y), X)


def test_factorization_machines_do_so_for_numbers():
    X, y = table()
    model = TNRegressor(format="fm", rank=2, max_iter=3, random_state=0).fit(X, y)
    check(model, X, ["a", "b"])


@pytest.mark.parametrize("trees", [False, True])
def test_what_was_learnt_for_missing_values_stays(trees):
    X, y = table(200)
    lost = np.arange(200) % 4 == 0
    X.loc[lost, "a"], X.loc[lost, "c"] = np.nan, None
    y = np.where(lost, 9.0, y)
    with parts.shared_trees():
        model = CPRegressor(**SMALL, trees=trees).fit(X, y)
    found = model.predict(missing(X.iloc[:20], "a").assign(c=None))
    assert np.all(found > 6.0)


@pytest.mark.parametrize("background", [False, True])
def test_a_missing_value_has_no_shapley_value(background):
    X, model = joined()
    rows = missing(X.iloc[:10], "a")
    found = explain.shapley(model, rows, background=X.iloc[:50] if background else None)
    total = found.values.sum(axis=1) + found.base
    scale = np.ptp(model.raw(X))
    np.testing.assert_allclose(total, model.raw(rows), atol=1e-5 * scale)
    if not background:
        np.testing.assert_allclose(found.values[:, 0], 0.0, atol=1e-6 * scale)
        pairs = explain.shapley_interactions(model, rows).values
        np.testing.assert_allclose(pairs[:, 0], 0.0, atol=1e-6 * scale)


def test_background_rows_may_have_missing_values():
    X, model = joined()
    background = pd.concat([X.iloc[:3], missing(X.iloc[3:6], "a"), missing(X.iloc[6:9], "c")])
    rows = X.iloc[20:25]
    found = explain.shapley(model, rows, background=background)
    total = found.values.sum(axis=1) + found.base
    scale = np.ptp(model.raw(X))
    np.testing.assert_allclose(total, model.raw(rows), atol=1e-5 * scale)
    np.testing.assert_allclose(found.base, model.raw(background).mean(axis=0), atol=1e-5 * scale)


def test_predictions_of_known_values_do_not_change(monkeypatch):
    X, model = joined()
    monkeypatch.setattr(CPRegressor, "_average_missing", lambda self: None)
    before = fit_joined()[1].raw(X)
    np.testing.assert_allclose(model.raw(X), before, atol=1e-5 * np.ptp(before))


def test_a_saved_model_predicts_the_same_for_missing_values(tmp_path):
    X, model = fit_joined(maps={"a": maps.Polynomial(4)})
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for column in X:
        rows = missing(X.iloc[:9], column)
        np.testing.assert_array_equal(again.raw(rows), model.raw(rows))


def test_further_training_goes_on_from_the_same_model():
    X, y = table()
    model = CPRegressor(**SMALL)
    for _ in range(3):
        model.partial_fit(X, y)
    check(model, X)
    model = CPRegressor(**SMALL, warm_start=True, trees=False).fit(X, y)
    check(model.fit(X, y), X)


def test_most_values_unseen_is_worth_a_warning():
    X, y = table()
    X["d"] = pd.Categorical(np.arange(len(X)) % 3)
    model = CPRegressor(n_members=1, max_iter=2, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="'d' were not seen in training, such as '0'; training"):
        model.predict(X.assign(d=X["d"].astype(str)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(missing(X.iloc[:5], "c"))  # too few to tell
        model.predict(X.assign(c=np.where(np.arange(len(X)) % 3 == 0, "new", X["c"])))
        model.predict(X.assign(c=None))
