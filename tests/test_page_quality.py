"""How good a model is, as its live page tells: measures, baselines, decisions."""

import numpy as np
import pytest
from browsing import open_browser, open_pages
from pages import (
    data_of,
    mixed_model,
    mixed_table,
    numeric_table,
    three_classes,
    tiny_classifier,
    tiny_regressor,
)

import polyadic
from polyadic.page import quality


def write(model, X, y, folder):
    return polyadic.report(model, X, y, folder / "page.html")


@pytest.fixture(scope="module")
def fitted():
    X, y = numeric_table()
    return tiny_regressor().fit(X, y), X, y


@pytest.fixture(scope="module")
def mixed():
    return mixed_model()


@pytest.fixture(scope="module")
def quantile():
    """Return a model of the 90 % quantile that beats the constant, its table and its targets."""
    X, y = numeric_table(missing=0.0)
    settings = {"loss": "quantile", "quantile": 0.9, "max_iter": 30}
    return tiny_regressor(**settings).fit(X, y), X, y


@pytest.fixture(scope="module")
def browser():
    yield from open_browser()


@pytest.fixture
def visit(browser, tmp_path):
    yield from open_pages(browser, tmp_path)


def values_of(measured):
    """Return each measure and its baseline by name."""
    return {own["name"]: (own["value"], own["baseline"]) for own in measured["measures"]}


def test_measures_are_those_of_the_rows_passed(fitted, tmp_path):
    model, X, y = fitted
    shown = data_of(write(model, X[:50], y[:50], tmp_path))["quality"]["regression"][0]
    measures = values_of(shown)
    off = model.predict(X[:50]) - y[:50]
    spread = y[:50] - y[:50].mean()
    assert measures["R²"] == pytest.approx((model.score(X[:50], y[:50]), 0.0))
    for name, power in (("Mean absolute error", 1), ("Root mean squared error", 2)):
        wanted = [np.mean(np.abs(e) ** power) ** (1 / power) for e in (off, spread)]
        assert measures[name] == pytest.approx(tuple(wanted))
    for share, error in shown["within"]:
        assert np.mean(np.abs(off) <= error) == pytest.approx(share, abs=0.03)


def pinball(y, predicted, level):
    return np.mean(np.maximum(level * (y - predicted), (level - 1) * (y - predicted)))


def test_a_quantile_has_measures_of_its_own(quantile, tmp_path):
    model, X, y = quantile
    shown = data_of(write(model, X, y, tmp_path))["quality"]["regression"][0]
    predicted = model.predict(X)
    own, usual = (pinball(y, f, 0.9) for f in (predicted, np.quantile(y, 0.9)))
    wanted = {
        "Pinball loss avoided": (1.0 - own / usual, 0.0),
        "Pinball loss": (own, usual),
        "Rows at or below the prediction": (np.mean(y <= predicted), 0.9),
    }
    measures = values_of(shown)
    assert list(measures) == list(wanted)
    for name, pair in wanted.items():
        assert measures[name] == pytest.approx(pair, abs=1e-6)
    assert (shown["level"], shown["constant"]) == (0.9, "the 90 % quantile")
    lowest = np.argsort(predicted, kind="stable")[: len(y) // 10]
    assert shown["bins"][0][1] == pytest.approx(np.quantile(y[lowest], 0.9))


def test_the_page_tells_that_a_quantile_is_predicted(quantile, visit):
    model, X, y = quantile
    tab = visit(model, X, y)
    what, _, third = tab.locator("#summary p").all_inner_texts()
    share = 100 * np.mean(y <= model.predict(X))
    assert " ".join(what.split()) == (  # no-break spaces too
        f"This model predicts the 90 % quantile of the target: {share:.1f} % of the 200 rows "
        "passed are at or below their prediction, and 90.0 % are wanted."
    )
    assert "Caution" not in third
    assert "mean" not in tab.locator("#measures").inner_text()
    assert "Line: the 90 % quantile of each tenth" in tab.locator("#accuracy").inner_text()


def test_the_page_tells_how_well_several_quantiles_are_predicted(visit):
    X, y = numeric_table(missing=0.0)
    model = tiny_regressor(loss="quantile", quantile=0.5, max_iter=30).fit(X, np.c_[y, X[:, 2]])
    first = visit(model, X, np.c_[y, X[:, 2]]).locator("#summary p").first.inner_text()
    assert "of the pinball loss of always predicting the median" in first


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_accuracy_is_that_of_the_classifier(n_classes, loss, tmp_path):
    X, score = mixed_table()
    y = three_classes(score) if n_classes == 3 else score > 0
    model = tiny_classifier(loss=loss).fit(X, y)
    shown = data_of(write(model, X, y, tmp_path))["quality"]["classification"]
    shares = np.unique(y, return_counts=True)[1] / len(y)
    assert values_of(shown)["Accuracy"] == pytest.approx((model.score(X, y), shares.max()))
    assert values_of(shown)["Log loss"][1] == pytest.approx(-np.sum(shares * np.log(shares)))
    assert sum(count for *_, count in shown["bins"]) == len(X)
    assert ("Area under ROC" in values_of(shown)) == ("decisions" in shown) == (n_classes == 2)
    if n_classes == 3:
        wanted = [
            [np.sum((y == a) & (model.predict(X) == b)) for b in model.classes_]
            for a in model.classes_
        ]
        assert shown["matrix"] == np.array(wanted).tolist()


def test_decisions_are_counted_as_by_hand():
    rng = np.random.default_rng(0)
    share = np.round(rng.random(300), 1)  # many ties
    positive = rng.random(300) < share
    found = quality.decisions(positive, share)
    for k in range(101):
        above = share > np.linspace(0, 1, 101)[k]
        assert found["right"][k] == np.sum(above & positive)
        assert found["wrong"][k] == np.sum(above & ~positive)
    assert found["totals"] == [positive.sum(), (~positive).sum()]
    orders = [np.lexsort((rng.random(300), -share)) for _ in range(4000)]  # ties in random order
    tenth = np.mean([positive[order[:30]].sum() for order in orders]) / positive.sum()
    assert found["gain"][10] == pytest.approx(tenth, abs=0.005)
    assert found["gain"][0] == 0.0
    assert found["gain"][100] == 1.0


def test_undefined_measures_are_left_empty(mixed, fitted, tmp_path):
    model, X, _ = fitted
    constant = data_of(write(model, X, np.ones(len(X)), tmp_path))["quality"]["regression"][0]
    assert values_of(constant)["R²"][0] is None
    X, score = mixed_table()
    two = tiny_classifier().fit(X, score > 0)
    shown = data_of(write(two, X[score > 0], score[score > 0] > 0, tmp_path))["quality"]
    assert values_of(shown["classification"])["Area under ROC"][0] is None


def test_without_targets_there_is_no_accuracy(mixed, tmp_path):
    model, X, _ = mixed
    data = data_of(write(model, X, None, tmp_path))
    assert data["quality"] is None
    assert data["rows"]["target"] is None
