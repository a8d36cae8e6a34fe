"""The live page in a browser: it computes what the model computes."""

import json

import needs
import numpy as np
import parts
import pytest
from browsing import SET_ROW, SHOWN, agree, open_browser, open_pages, plain, show, unfold
from pages import (
    HOSTILE,
    mixed_table,
    numeric_table,
    three_classes,
    tiny_classifier,
    tiny_regressor,
)
from sklearn.ensemble import HistGradientBoostingClassifier

import polyadic
from polyadic import explain, maps

needs.package("playwright")


@pytest.fixture(scope="module")
def browser():
    yield from open_browser()


@pytest.fixture
def visit(browser, tmp_path):
    yield from open_pages(browser, tmp_path)


@pytest.fixture(scope="module")
def mixed():
    X, score = mixed_table()
    return X, score


# ---- the page computes what the model computes ---------------------------------------------------


NUMERIC = [own for own in parts.PACKAGE_MAPS if own.kind == "numeric"]


@pytest.mark.parametrize("first", range(0, len(NUMERIC), 4))
def test_every_map_is_computed_as_in_python(first, visit):
    X, y = numeric_table()
    own = {n: m.clone() for n, m in enumerate(NUMERIC[first : first + 4])}
    check_rows(visit, tiny_regressor(maps=own).fit(X, y), X, y)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_members": 3},
        {"init": "linear", "rank": 2},
        {"init": "linear", "rank": 2, "n_members": 2},
        {"trees": True},
        {"init": "linear", "rank": 2, "n_members": 2, "trees": True},
    ],
    ids=str,
)
def test_members_and_additive_parts_are_computed_as_in_python(changes, visit):
    X, y = numeric_table()
    with parts.shared_trees():
        model = tiny_regressor(maps=maps.Hat(8), **changes).fit(X, y)
    assert (model.tensor_.additive is not None) == ("init" in changes)
    check_rows(visit, model, X, y)


@pytest.mark.parametrize("trees", [False, True])
def test_neutral_missing_values_are_computed_as_in_python(trees, visit):
    X, y = numeric_table(missing=0.0)
    own = {0: maps.Polynomial(3), 1: maps.Hat(8), 2: maps.Chebyshev(4), 3: maps.BSpline(5)}
    with parts.shared_trees():
        model = tiny_regressor(maps=own, trees=trees).fit(X, y)
    assert (model.tensor_.trees is not None) == trees
    tab = visit(model, X, y)
    for lost in ([0], [1], [2], [3], [0, 1, 2, 3]):
        row = X[:1].copy()
        row[0, lost] = np.nan
        agree(show(tab, plain(row[0])), model, row)


def check_rows(visit, model, X, y):
    """Compare rows of the table, and others within and beyond its range, with the model."""
    tab = visit(model, X, y)
    spread = np.random.default_rng(1).normal(size=(4, 4))
    for row in np.vstack([X[:2], spread, 3 * spread[:2]]):
        agree(show(tab, plain(row)), model, row[None])
    row = X[:1].copy()
    row[0, 1] = np.nan
    agree(show(tab, plain(row[0])), model, row)


EXPLAINED = [own for own in parts.FORMATS if own[0] not in ("cp", "pn")]


@pytest.mark.parametrize(("name", "settings"), EXPLAINED, ids=str)
def test_every_format_is_computed_as_in_python(name, settings, visit):
    needs.package("torch")
    X, y = numeric_table()
    model = polyadic.TNRegressor(name, **settings, max_iter=2, random_state=0).fit(X, y)
    check_rows(visit, model, X, y)


@pytest.mark.parametrize(("name", "settings"), [("tr", {"rank": 2}), ("fm", {"rank": 2})])
def test_classes_of_every_format_are_computed_as_in_python(name, settings, visit, mixed):
    needs.package("torch")
    X, score = mixed
    y = three_classes(score)
    model = polyadic.TNClassifier(name, **settings, max_iter=2, random_state=0).fit(X, y)
    tab = visit(model, X, y)
    for k in (0, 7):
        agree(show(tab, plain(X.iloc[k])), model, X.iloc[[k]])


def test_a_polynomial_network_predicts_and_says_what_is_left_out(visit):
    needs.package("torch")
    X, y = numeric_table(missing=0.0)
    model = polyadic.TNRegressor("pn", rank=2, order=2, max_iter=2, random_state=0).fit(X, y)
    tab = visit(model, X, y)
    for row in X[:3]:
        tab.evaluate(SET_ROW, plain(row))
        shown = json.loads(tab.get_attribute("#prediction", "data-raw"))
        assert np.allclose(shown, model.raw(row[None])[0], rtol=0, atol=1e-5 * np.abs(y).max())
    assert tab.locator("#shapley, #importance, #effects, #interactions").count() == 0
    left_out = "Importance, effects, interactions and Shapley values: format='pn' multiplies"
    assert left_out in tab.text_content("#about")
    assert "is left out" in tab.text_content("#summary")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("number", {}),
        ("number", {"loss": "poisson"}),
        ("number", {"maps": {HOSTILE: maps.OneHot(min_count=60), "rooms": "polynomial"}}),
        ("numbers", {}),
        ("two classes", {}),
        ("two classes", {"loss": "squared_error"}),
        ("two classes", {"trees": True}),
        ("three classes", {}),
        ("three classes", {"trees": True}),
        ("three classes", {"loss": "squared_error"}),
    ],
)
def test_every_target_is_computed_as_in_python(kind, changes, visit, mixed):
    X, score = mixed
    y = {
        "number": np.exp(score / 3),
        "numbers": np.column_stack([score, -2 * score]),
        "two classes": np.where(score > 1, HOSTILE, "no"),
        "three classes": three_classes(score),
    }[kind]
    make = tiny_classifier if "classes" in kind else tiny_regressor
    model = make(**changes).fit(X, y)
    tab = visit(model, X, y, target="a target")
    for k in (0, 7, 11):
        agree(show(tab, plain(X.iloc[k])), model, X.iloc[[k]])
    agree(show(tab, [None] * 4), model, X.iloc[[0]].assign(**{c: [None] for c in X}).astype(object))


def test_a_model_of_another_library_is_computed_as_in_python(visit, mixed):
    X, score = mixed
    X = X.astype({HOSTILE: "category", "grade": "category"})
    grown = HistGradientBoostingClassifier(max_iter=4, random_state=0)
    model = polyadic.trees.from_model(grown.fit(X, three_classes(score)), X)
    tab = visit(model, X, three_classes(score))
    for k in (0, 7, 11):
        agree(show(tab, plain(X.astype(object).iloc[k])), model, X.iloc[[k]])


def test_the_explained_class_can_be_chosen(visit, mixed):
    X, score = mixed
    model = tiny_classifier().fit(X, three_classes(score))
    tab = visit(model, X, None)
    first = tab.evaluate(SHOWN)
    assert first["output"] == np.argmax(first["predicted"])
    tab.select_option("#output", label="zz high")
    shown = show(tab, plain(X.iloc[3]))
    exact = explain.shapley(model, X.iloc[[3]])
    assert exact.outputs[2] == "zz high"
    assert np.allclose(shown["shapley"], exact.values[0, :, 2], rtol=0, atol=1e-5)
    assert shown["base"] == pytest.approx(exact.base[2], abs=1e-5)
    assert "the score of zz high, relative to the mean" in tab.text_content(".why h3")


def test_the_predicted_class_is_explained_until_another_is_chosen(visit, mixed):
    X, score = mixed
    model = tiny_classifier(max_iter=40).fit(X, three_classes(score))
    tab = visit(model, X, None)
    seen = set()
    unfold(tab)
    buttons = tab.locator("tr[data-row] button")
    for row in range(0, buttons.count(), 7):
        buttons.nth(row).click()
        shown = tab.evaluate(SHOWN)
        assert shown["output"] == np.argmax(shown["predicted"])
        assert int(tab.input_value("#output")) == shown["output"]
        name = model.classes_[shown["output"]]
        assert tab.text_content("#effects .note >> nth=0") == f"Class: {name}"
        seen.add(shown["output"])
    assert len(seen) > 1
    tab.select_option("#output", label="low")
    for row in (0, buttons.count() - 1):
        buttons.nth(row).click()
        assert model.classes_[tab.evaluate(SHOWN)["output"]] == "low"


@pytest.mark.parametrize("kind", ["two classes", "three classes", "three classes, trees"])
def test_the_waterfall_of_a_probability_is_that_of_python(kind, visit, mixed):
    X, score = mixed
    y = np.where(score > 1, "yes", "no") if kind == "two classes" else three_classes(score)
    changes = {"trees": True} if "trees" in kind else {}
    model = tiny_classifier(max_iter=20, **changes).fit(X, y)
    tab = visit(model, X, y)
    tab.check("#probabilities")
    for row in (3, 11):
        shown = show(tab, plain(X.iloc[row]))
        exact, k = explain.shapley(model, X.iloc[[row]], scale="probability"), shown["output"]
        assert shown["base"] == pytest.approx(exact.base[k], abs=1e-5)
        assert np.allclose(shown["shapley"], exact.values[0, :, k], rtol=0, atol=1e-5)
        place = k if len(exact.outputs) > 1 else 1
        reached = shown["predicted"][place] - shown["base"]
        assert sum(shown["shapley"]) == pytest.approx(reached, abs=1e-9)
    assert "the probability of" in tab.text_content(".why h3")


def test_bars_show_the_shapley_values_largest_first(visit):
    X, y = numeric_table(n_columns=16)
    model = tiny_regressor().fit(X, y)
    tab = visit(model, X, y)
    values = np.array(tab.evaluate(SHOWN)["shapley"])
    rows = tab.locator("#shapley li[data-column]")
    order = [int(rows.nth(k).get_attribute("data-column")) for k in range(rows.count())]
    assert order == np.argsort(-np.abs(values), kind="stable")[:12].tolist()
    assert "other 4 columns" in tab.text_content("#shapley")
