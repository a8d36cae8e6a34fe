"""A model as an ONNX graph predicts what `predict` does, in ONNX Runtime."""

import copy
import importlib.util

import exported
import needs
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import parts
import pytest
import skl2onnx
from exported import LABELS, close, joined, made, odd_rows, some_trees, table
from skl2onnx.common.data_types import DoubleTensorType, StringTensorType
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyadic import CPClassifier, CPRegressor, TNRegressor, explain, losses, maps, networks
from polyadic.export import onnx_inputs, register_converters, to_onnx
from polyadic.trees import from_model


def run(model, X, **options):
    """Return the outputs of the exported model by name."""
    graph = to_onnx(model, **options)
    assert {domain.domain for domain in graph.opset_import} <= {"", "ai.onnx.ml"}
    return evaluate(graph, onnx_inputs(model, X))


def evaluate(graph, inputs):
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs)))


def check_numbers(model, X):
    wanted = model.predict(X)
    close(run(model, X)["prediction"], wanted.reshape(len(X), -1))


def check_classes(model, X):
    found = run(model, X)
    close(found["probabilities"], model.predict_proba(X))
    assert found["label"].tolist() == model.predict(X).tolist()


NUMERIC = [m for m in parts.PACKAGE_MAPS if m.kind == "numeric"]
CATEGORICAL = [m for m in parts.PACKAGE_MAPS if m.kind == "categorical"]


@pytest.mark.parametrize("own", NUMERIC, ids=repr)
def test_every_map_of_numbers(own):
    check_numbers(made((own, maps.OneHot()), n_outputs=2), odd_rows(table()))


@pytest.mark.parametrize("own", [*CATEGORICAL, maps.OneHot(along="circle")], ids=repr)
def test_every_map_of_categories(own):
    check_numbers(made((maps.Hat(), own)), odd_rows(table()))


def test_missing_values_with_elements_of_their_own():
    check_numbers(made((exported.averaged_polynomial(), maps.OneHot())), odd_rows(table()))


@pytest.mark.parametrize("loss", exported.LOSSES_OF_NUMBERS, ids=repr)
def test_every_link_of_numbers(loss):
    check_numbers(made(loss=loss), odd_rows(table()))


@pytest.mark.parametrize("case", exported.BEYOND)
def test_rows_that_predict_refuses_have_no_numbers(case):
    model, X = exported.beyond(case)
    for row in (X[:1], X[1:2]):
        with pytest.raises(ValueError, match="beyond the range of numbers"):
            model.predict(row)
    found = run(model, X)
    numbers = found["probabilities" if "label" in found else "prediction"]
    assert np.isnan(numbers[:2]).all()
    assert np.isfinite(numbers[2:]).all()


@pytest.mark.parametrize("kind", LABELS)
def test_classes_of_every_type(kind):
    n_classes = len(LABELS[kind])
    check_classes(made(n_outputs=1 if n_classes == 2 else n_classes, kind=kind), odd_rows(table()))


@pytest.mark.parametrize("kind", ["two truths", "two numbers", "four numbers"])
def test_classes_that_are_objects(kind):
    """Such classes come from `partial_fit(..., classes=...)` with an array of objects."""
    n_classes = len(LABELS[kind])
    model = made(n_outputs=1 if n_classes == 2 else n_classes, kind=kind)
    model.classes_ = model.classes_.astype(object)
    check_classes(model, odd_rows(table()))
    assert run(model, table())["label"].dtype == LABELS[kind].dtype


@pytest.mark.parametrize("kind", ["two texts", "three texts"])
def test_classes_fitted_by_the_squared_error(kind):
    n_outputs = 1 if kind.startswith("two") else 3
    model = made(n_outputs=n_outputs, kind=kind, loss=losses.SquaredError())
    check_classes(model, odd_rows(table()))


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("width", [1, 2])
def test_trees(width, both_ways):
    trees = some_trees(n_outputs=3, width=width, both_ways=both_ways)
    check_numbers(made(n_outputs=3, trees=trees), odd_rows(table()))
    check_numbers(made(n_outputs=3, trees=trees), table())  # no row goes both ways


@pytest.mark.parametrize("classes", [False, True])
def test_a_model_of_trees_that_was_read(classes):
    X, y = exported.numbers()
    if classes:
        grown = HistGradientBoostingClassifier(max_iter=3).fit(X, np.digitize(y, [-1.0, 1.0]))
        check_classes(from_model(grown, X), odd_rows(X))
    else:
        grown = HistGradientBoostingRegressor(max_iter=3).fit(X, y)
        check_numbers(from_model(grown, X), odd_rows(X))


@pytest.mark.parametrize("classes", [False, True])
def test_a_fit_with_members_and_boosted_trees(classes):
    model, X = joined(classes)
    (check_classes if classes else check_numbers)(model, odd_rows(X))


def test_a_model_that_is_constant():
    model = made(additive=False)
    model.tensor_ = copy.copy(model.tensor_)
    model.tensor_.factors[:] = [0.0 * factor for factor in model.tensor_.factors]
    wanted = model.predict(table())
    assert np.ptp(wanted) == 0.0
    assert np.allclose(run(model, table())["prediction"][:, 0], wanted)


@pytest.mark.parametrize("size", [1e-30, 1e35])
def test_targets_of_any_size(size):
    model = made(trees=some_trees())
    model.tensor_ = model.tensor_.rescale(np.zeros(1), np.full(1, size))
    check_numbers(model, odd_rows(table()))


def test_close_knots_at_large_values_are_told_apart():
    """In single precision all values of this column would be equal."""
    model = made((maps.Hat(n_knots=40), maps.OneHot()))
    X = table()
    assert len(np.unique(X["far"].to_numpy().astype(np.float32))) == 2
    check_numbers(model, X)


@pytest.mark.parametrize(
    ("name", "settings"), [own for own in parts.FORMATS if own[0] != "cp"], ids=str
)
def test_every_format(name, settings):
    needs.package("torch")
    model = copy.copy(exported.template())
    other = TNRegressor(format=name, **settings)
    vars(other).update({k: v for k, v in vars(model).items() if k.endswith("_")})
    other._flat_target = False
    numeric = maps.Hat(n_knots=4) if networks.FORMATS[name].constants else maps.Polynomial(2)
    families = [numeric, numeric, maps.OneHot(), maps.OneHot()]
    other.maps_ = [m.clone().fit(x) for m, x in zip(families, exported.coded())]
    other.tensor_ = parts.random_network(name, settings, [m.dim for m in other.maps_], 1)
    check_numbers(other, odd_rows(table()))


# ---- Shapley values ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "two texts", "three texts"])
def test_shapley_values_are_those_of_explain(kind):
    model, X = exported.template(kind), odd_rows(table())
    found, wanted = run(model, X, shapley=True), explain.shapley(model, X)
    close(found["shapley"], wanted.values)
    assert np.allclose(found["shapley_base"], wanted.base, rtol=1e-9)


def test_shapley_values_of_polynomials_and_an_additive_part():
    X = table()
    own = {"size": maps.Polynomial(3), "far": maps.Fourier(2)}
    model = CPRegressor(**exported.FAST | {"maps": own, "init": "linear"}).fit(X, X["size"] ** 2)
    assert model.tensor_.additive is not None
    found = run(model, X, shapley=True)
    close(found["shapley"], explain.shapley(model, X).values)


def test_shapley_values_of_trees_are_refused():
    with pytest.raises(ValueError, match="models without trees, and this one has trees"):
        to_onnx(made(trees=some_trees()), shapley=True)


# ---- names and files -----------------------------------------------------------------------------


def test_columns_may_have_any_name(tmp_path):
    X = table()
    X.columns = ["prediction", 'a "b"/c', "", "polyadic/add_1"]
    model = CPRegressor(**exported.FAST).fit(X, X["prediction"])
    found = run(model, X)
    close(found["prediction_"][:, 0], model.predict(X))


def test_the_file_holds_the_graph(tmp_path):
    model, path = made(), tmp_path / "model.onnx"
    graph = to_onnx(model, path)
    assert onnx.load(path) == graph
    close(
        evaluate(onnx.load(path), onnx_inputs(model, table()))["prediction"][:, 0],
        model.predict(table()),
    )


def test_the_empty_text_stands_for_missing_unless_it_is_a_category():
    X = table()
    X["town"] = X["town"].replace("Bath", "")
    model = CPRegressor(**exported.FAST).fit(X, X["size"])
    assert "" in model.columns_.columns[2].categories
    check_numbers(model, odd_rows(X))


def test_one_row():
    model, X = made(trees=some_trees()), table().iloc[:1]
    assert np.allclose(run(model, X)["prediction"][:, 0], model.predict(X), rtol=1e-5)


# ---- what is refused -----------------------------------------------------------------------------


def test_a_map_of_your_own_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'size', Steps\(n_steps=3\), has no form in ONNX"):
        to_onnx(made((parts.Steps(), maps.OneHot())))


def test_a_link_of_your_own_is_refused_by_name():
    class Odd(parts.Expectile):
        def inverse_link(self, raw):
            return raw**3

    with pytest.raises(ValueError, match="an inverse_link of its own, which has no form in ONNX"):
        to_onnx(made(loss=Odd()))


def test_dates_are_refused_by_name():
    X = pd.DataFrame({"sold": pd.date_range("2020-01-01", periods=50), "a": np.arange(50.0)})
    model = CPRegressor(**exported.FAST).fit(X, X["a"])
    with pytest.raises(ValueError, match="no form for columns of dates, and the model has 'sold'"):
        to_onnx(model)


def test_categories_of_numbers_and_text_are_refused_by_name():
    X = pd.DataFrame({"mixed": pd.Series([1, "a"] * 20, dtype=object)})
    model = CPRegressor(**exported.FAST).fit(X, np.arange(40.0))
    with pytest.raises(ValueError, match="'mixed' are both numbers and text: 1, 'a'"):
        to_onnx(model)


def test_labels_of_several_types_are_refused():
    model = made(kind="two numbers")
    model.classes_ = np.array([1, "a"], dtype=object)
    with pytest.raises(ValueError, match=r"labels of one type, .* \[1, 'a'\]"):
        to_onnx(model)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [("1.5", "'size' .* '1.5', which is text"), (np.inf, "'size' holds infinity in 1 of 60 rows")],
)
def test_inputs_that_predict_refuses_are_refused(value, wrong):
    X = table().astype({"size": object})
    X.loc[3, "size"] = value
    for use in (made().predict, lambda rows: onnx_inputs(made(), rows)):
        with pytest.raises(ValueError, match=wrong):
            use(X)


def test_pipelines_and_other_models_are_told_what_to_do():
    pipeline = make_pipeline(StandardScaler(), CPRegressor())
    with pytest.raises(TypeError, match="register_converters"):
        to_onnx(pipeline)
    with pytest.raises(TypeError, match="Got a StandardScaler"):
        to_onnx(StandardScaler())


def test_without_onnx_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'polyadic\[onnx\]'"):
        to_onnx(made())


# ---- pipelines -----------------------------------------------------------------------------------


def convert(model, X=None, **options):
    register_converters()
    return skl2onnx.to_onnx(model, X, **options)


def test_a_pipeline_of_a_regressor():
    X = table()[["size", "far"]].to_numpy()
    model = make_pipeline(StandardScaler(), CPRegressor(**exported.FAST)).fit(X, X[:, 0])
    [found] = evaluate(convert(model, X), {"X": X}).values()
    close(found[:, 0], model.predict(X))


@pytest.mark.parametrize("zipmap", [False, True])
def test_a_pipeline_of_a_classifier(zipmap):
    X = table()[["size", "far"]].to_numpy()
    y = np.where(X[:, 0] > 0, "up", "down")
    model = make_pipeline(StandardScaler(), CPClassifier(**exported.FAST)).fit(X, y)
    label, share = evaluate(convert(model, X, options={"zipmap": zipmap}), {"X": X}).values()
    assert label.tolist() == model.predict(X).tolist()
    share = np.array([[row["down"], row["up"]] for row in share]) if zipmap else share
    close(share, model.predict_proba(X))


@pytest.mark.parametrize("zipmap", [False, True])
@pytest.mark.parametrize("kind", [np.float64, np.int32, bool])
def test_a_pipeline_of_a_classifier_of_numbers(kind, zipmap):
    X = table()[["size", "far"]].to_numpy()
    y = (X[:, 0] > 0).astype(kind)
    model = make_pipeline(StandardScaler(), CPClassifier(**exported.FAST)).fit(X, y)
    assert model.classes_.dtype == kind
    label, share = evaluate(convert(model, X, options={"zipmap": zipmap}), {"X": X}).values()
    assert label.dtype == np.int64
    assert label.tolist() == model.predict(X).tolist()
    close([[row[0], row[1]] for row in share] if zipmap else share, model.predict_proba(X))


def test_a_pipeline_of_a_classifier_of_fractions_is_refused():
    X = table()[["size", "far"]].to_numpy()
    model = CPClassifier(**exported.FAST).fit(X, X[:, 0] > 0)
    model.classes_ = np.array([0.5, 1.5])
    with pytest.raises(ValueError, match=r"text or whole numbers, and the model has \[0.5, 1.5\]"):
        convert(model, X, options={"zipmap": False})  # else skl2onnx refuses them itself


def test_a_model_of_numbers_and_text_converts_alone():
    model, X = joined()
    types = [
        (name, StringTensorType([None, 1]) if name == "town" else DoubleTensorType([None, 1]))
        for name in X.columns
    ]
    [found] = evaluate(convert(model, initial_types=types), onnx_inputs(model, X)).values()
    close(found[:, 0], model.predict(X))
    with pytest.raises(ValueError, match="fitted on 4 columns, and its inputs have 3"):
        convert(model, initial_types=types[:3])
    wrong = [(name, DoubleTensorType([None, 1])) for name in X.columns]
    with pytest.raises(ValueError, match="'town' was fitted on text"):
        convert(model, initial_types=wrong)
