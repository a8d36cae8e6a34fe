"""Laws of wrapped models: a pipeline is explained as the model in it, on the rows it gets."""

import json
import re

import needs
import numpy as np
import pandas as pd
import pytest
from explained import FAST
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder, StandardScaler

from polyadic import CPClassifier, CPRegressor, explain, plots, report
from polyadic.datasets import fetch_california_housing
from polyadic.explain.wrapped import unwrap

NAMES = ["numbers__area", "numbers__age", "city__city"]


def table(n=80):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"area": rng.uniform(20, 200, n), "age": rng.integers(0, 90, n)})
    X["city"] = np.array(["Bonn", "Kiel", "Ulm"])[np.arange(n) % 3]
    price = 2.0 * X["area"] - X["age"] * (X["city"] == "Ulm") + 200 + rng.normal(size=n)
    return X, price.rename("price")


def steps(model):
    """Return a pipeline that scales, encodes and names the columns."""
    parts = [("numbers", StandardScaler(), ["area", "age"]), ("city", OrdinalEncoder(), ["city"])]
    return make_pipeline(ColumnTransformer(parts), model)


def on_log(model):
    return TransformedTargetRegressor(model, func=np.log1p, inverse_func=np.expm1)


WRAPPED = {
    "pipeline": lambda: steps(CPRegressor(**FAST)),
    "two pipelines": lambda: steps(make_pipeline(StandardScaler(), CPRegressor(**FAST))),
    "target around pipeline": lambda: on_log(steps(CPRegressor(**FAST))),
    "pipeline around target": lambda: steps(on_log(CPRegressor(**FAST))),
    "scaled target": lambda: TransformedTargetRegressor(
        steps(CPRegressor(**FAST)), transformer=StandardScaler()
    ),
}
wrapped = pytest.mark.parametrize("make", WRAPPED.values(), ids=WRAPPED)


def open_by_hand(whole, X):
    """Return the model in the middle, and the rows that reach it."""
    while not hasattr(whole, "tensor_"):
        if isinstance(whole, Pipeline):
            X, whole = whole[:-1].transform(X), whole[-1]
        else:
            whole = whole.regressor_
    return whole, X


@wrapped
def test_a_wrapped_model_is_explained_as_the_model_in_it(make):
    X, y = table()
    whole = make().fit(X, y)
    model, rows = open_by_hand(whole, X)
    for result in (explain.effects, explain.sobol):
        for part in ("share", "first", "base"):
            one, other = (getattr(result(m), part, 0) for m in (whole, model))
            np.testing.assert_array_equal(one, other)
    for one, other in zip(explain.effects(whole, X), explain.effects(model, rows), strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    one, other = explain.shapley(whole, X[:9], X), explain.shapley(model, rows[:9], rows)
    np.testing.assert_array_equal(one.values, other.values)
    pairs = explain.shapley_interactions(whole, X[:3])
    np.testing.assert_array_equal(
        pairs.values, explain.shapley_interactions(model, rows[:3]).values
    )
    for function in (explain.terms, explain.interactions):
        sizes = [[row.variance for row in function(m).rows] for m in (whole, model)]
        assert sizes[0] == sizes[1]
    surfaces = (explain.partial_dependence(m, [0, 2], pure=True) for m in (whole, model))
    np.testing.assert_array_equal(*(surface.values for surface in surfaces))
    assert explain.compare(whole, whole, X).variance == 0.0
    assert unwrap(model) is model


@wrapped
def test_columns_are_named_by_the_steps_before(make):
    X, y = table()
    assert explain.effects(make().fit(X, y)).columns == NAMES


def test_steps_without_names_leave_the_usual_ones():
    X, y = table()
    whole = make_pipeline(FunctionTransformer(lambda X: X[["age", "area"]].to_numpy()))
    whole = make_pipeline(whole, CPRegressor(**FAST)).fit(X, y)
    assert explain.effects(whole).columns == ["x0", "x1"]
    alone = Pipeline([("model", CPRegressor(**FAST))]).fit(X, y)
    assert explain.effects(alone).columns == ["area", "age", "city"]


def test_steps_that_return_frames_are_passed_too():
    X, y = table()
    whole = steps(CPRegressor(**FAST)).set_output(transform="pandas").fit(X, y)
    found = explain.shapley(whole, X[:4])
    assert found.columns == NAMES
    total = found.base + found.values.sum(axis=1)[:, 0]
    np.testing.assert_allclose(total, whole.predict(X[:4]), rtol=1e-4)


@wrapped
def test_shapley_values_add_up_to_the_prediction_before_the_target_is_undone(make):
    X, y = table()
    whole = make().fit(X, y)
    found = explain.shapley(whole, X)
    total = found.base + found.values.sum(axis=1)
    outer = whole[-1] if isinstance(whole, Pipeline) else whole
    if hasattr(outer, "transformer_"):
        total = outer.transformer_.inverse_transform(total)
    np.testing.assert_allclose(total[:, 0], whole.predict(X), rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"func": np.log1p, "inverse_func": np.expm1}, "log1p(target)"),
        ({"transformer": StandardScaler()}, "StandardScaler(target)"),
        ({"func": lambda y: 2 * y, "inverse_func": lambda y: y / 2}, "transformed target"),
    ],
)
def test_a_transformed_target_is_named_in_results_and_labels(settings, name):
    X, y = table()
    whole = TransformedTargetRegressor(steps(CPRegressor(**FAST)), **settings).fit(X, y)
    assert str(explain.effects(whole)).endswith(f"In the unit of {name}.")
    assert explain.describe(whole, X[:1]).startswith(f"The prediction of {name} is ")
    assert f" the prediction of {name}" in explain.in_words(whole)[0]
    assert plots.effects(whole)[0, 0].figure.get_supylabel() == f"effect on {name}"
    assert plots.waterfall(whole, X[:1]).get_xlabel() == f"prediction of {name}"


@wrapped
def test_one_row_is_given_in_any_form(make):
    X, y = table()
    whole = make().fit(X, y)
    texts = {explain.describe(whole, row) for row in (X[:1], X.iloc[0], X.iloc[0].to_dict())}
    assert len(texts) == 1


@wrapped
def test_a_page_of_a_wrapped_model_is_that_of_the_model_in_it(make, tmp_path):
    X, y = table()
    whole = make().fit(X, y)
    model, rows = open_by_hand(whole, X)
    pages = {}
    transformed = y if unwrap(whole).target_names_ == ["price"] else None
    for name, parts in {"whole": (whole, X, y), "model": (model, rows, transformed)}.items():
        text = report(*parts, tmp_path / f"{name}.html").read_text(encoding="utf-8")
        pages[name] = json.loads(re.search(r'type="application/json"[^>]*>(.*?)</', text, re.S)[1])
    assert [c["name"] for c in pages["whole"]["columns"]] == explain.effects(whole).columns
    assert pages["whole"]["model"] == pages["model"]["model"]
    assert pages["whole"]["rows"]["values"] == pages["model"]["rows"]["values"]
    (measured,) = pages["whole"]["quality"]["regression"]
    known, predicted = np.array(measured["points"]).T[::-1]
    outer = whole[-1] if isinstance(whole, Pipeline) else whole
    undo = getattr(outer, "transformer_", FunctionTransformer()).inverse_transform
    np.testing.assert_allclose(np.sort(undo(known[:, None])[:, 0]), np.sort(y), rtol=1e-9)
    assert np.corrcoef(known, predicted)[0, 1] > 0.5
    target = pages["whole"]["target"]
    assert target == ("price" if transformed is not None else target)
    assert "price" in target


def test_a_classifier_at_the_end_keeps_its_classes():
    X, y = table()
    whole = steps(CPClassifier(**FAST)).fit(X, np.where(y > y.median(), "high", "low"))
    found = explain.shapley(whole, X[:5])
    assert found.outputs == ["low"]
    raw = whole.decision_function(X[:5])
    np.testing.assert_allclose((found.base + found.values.sum(axis=1))[:, 0], raw, rtol=1e-4)


def test_every_plot_takes_a_wrapped_model():
    needs.package("matplotlib")
    X, y = table()
    whole = on_log(steps(CPRegressor(**FAST))).fit(X, y)
    for ax in (
        plots.effects(whole)[0, 0],
        plots.importance(whole),
        plots.orders(whole),
        plots.interaction(whole),
        plots.waterfall(whole, X[:1]),
        plots.beeswarm(whole, X),
        plots.learning_curve(whole),
        plots.compare(explain.compare(whole, whole, X))[0, 0],
    ):
        ax.figure.canvas.draw()


def test_california_in_a_pipeline_is_explained_by_the_names_of_its_columns():
    with needs.data():
        houses = fetch_california_housing()
    X, y = houses.data[:1500], houses.target[:1500]
    whole = on_log(make_pipeline(StandardScaler(), CPRegressor(n_members=1, random_state=0)))
    whole.fit(X, y)
    assert explain.effects(whole).columns == list(X.columns)
    assert len(explain.interactions(whole, top=8).rows) == 8
    found = explain.shapley(whole, X[:50])
    assert found.to_pandas().columns.tolist() == list(X.columns)
    total = np.expm1(found.base + found.values.sum(axis=1))[:, 0]
    np.testing.assert_allclose(total, whole.predict(X[:50]), rtol=1e-4)


# ---- what cannot be explained --------------------------------------------------------------------

EVERY = [
    explain.effects,
    explain.sobol,
    explain.terms,
    explain.interactions,
    explain.in_words,
    explain.coefficients,
    lambda m: explain.shapley(m, table()[0]),
    lambda m: explain.shapley_interactions(m, table()[0]),
    lambda m: explain.partial_dependence(m, 0),
    lambda m: explain.coefficient(m, {}),
    lambda m: explain.describe(m, table()[0][:1]),
    lambda m: explain.compare(m, m),
    lambda m: report(m, *table(), "page.html"),
    plots.effects,
    plots.importance,
    plots.orders,
    plots.learning_curve,
    plots.interaction,
    lambda m: plots.waterfall(m, table()[0][:1]),
    lambda m: plots.beeswarm(m, table()[0]),
]


@pytest.mark.parametrize("function", EVERY)
def test_models_of_other_libraries_are_refused_by_name_with_what_would_work(function):
    X, y = table()
    lightgbm = pytest.importorskip("lightgbm")
    other = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(X[["area", "age"]], y)
    for model in (other, steps(other), BaggingRegressor(CPRegressor())):
        name = type(model[-1] if isinstance(model, Pipeline) else model).__name__
        with pytest.raises(TypeError, match=rf"Got a .*{name}, .*trees\.from_model\(model, X\)"):
            function(model)


@pytest.mark.parametrize("function", EVERY)
def test_a_model_that_is_not_fitted_is_refused(function):
    for model in (CPRegressor(), steps(CPRegressor()), on_log(CPRegressor())):
        with pytest.raises(NotFittedError):
            function(model)


def test_a_search_is_refused_with_what_to_pass():
    X, y = table()
    search = GridSearchCV(CPRegressor(**FAST), {"rank": [2]}, cv=2).fit(X[["area"]], y)
    with pytest.raises(TypeError, match=r"GridSearchCV, .* Pass its best_estimator_"):
        explain.effects(search)
    assert explain.effects(search.best_estimator_).columns == ["area"]
