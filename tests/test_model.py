"""The protocol of a fitted model; later changes of parameters do not change the model."""

import ast
import pickle

import numpy as np
import pytest
import rooms
from stored import ROWS, build_labels, build_network, build_numbers, built, round_trip

import polyadic
from polyadic import explain, losses
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel, classes_of, output_names

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KINDS = ["several outputs", "two text classes", "tt, one output", "tt, three classes"]


@pytest.mark.parametrize("name", KINDS)
def test_every_fitted_estimator_has_what_the_protocol_names(name):
    model, X = built(name)
    for member in vars(FittedModel):
        if not member.startswith("_"):
            assert getattr(model, member) is not None
    raw = model.raw(X)
    assert raw.shape == model.response(raw).shape == (ROWS, len(output_names(model)))
    y = model.predict(X)
    coded = model.code_target(y, ROWS)
    assert coded.shape == ((ROWS, 1) if hasattr(model, "classes_") else raw.shape)
    known = classes_of(model)
    read = coded if known is None else known[coded[:, 0]]
    np.testing.assert_array_equal(read.reshape(y.shape), y)


def test_a_network_of_format_cp_has_the_cores_of_cp():
    model, X = built("cp, three outputs")
    assert type(model.tensor_) is CPCores
    (weights,) = model.extras_
    parts = np.stack([m.dense(x) @ a for m, x, a in zip(model.maps_, X.T, model.cores_)])
    raw = model.intercept_ + np.prod(parts, axis=0) @ weights  # in units of the target
    np.testing.assert_allclose(model.raw(X), raw, rtol=1e-5, atol=1e-5)


COUNTS = np.arange(ROWS) % 4
CHANGED = {
    "poisson": (lambda: build_numbers(COUNTS, loss="poisson"), "squared_error"),
    "squared error": (lambda: build_numbers(COUNTS), losses.Poisson()),
    "two classes": (lambda: build_labels(["no", "yes"]), "squared_error"),
    "three classes": (lambda: build_labels([1, 2, 5], loss="squared_error"), "log_loss"),
    "network": (lambda: build_network("tt", 3), "poisson"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_model_keeps_the_loss_it_was_fitted_with(name, tmp_path):
    build, loss = CHANGED[name]
    model, X = build()
    other = pickle.loads(pickle.dumps(model)).set_params(loss=loss)
    for changed in (other, round_trip(other, tmp_path)):
        assert changed.loss_ == model.loss_
        assert changed.predict(X).tobytes() == model.predict(X).tobytes()
        if hasattr(model, "predict_proba"):
            assert changed.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
        found = [explain.effects(m, scale="response") for m in (model, changed)]
        np.testing.assert_array_equal(found[0].base, found[1].base)
        assert explain.in_words(model) == explain.in_words(changed)


def test_the_page_shows_the_loss_of_the_fit(tmp_path):
    model, X = build_numbers(COUNTS, loss="poisson")
    pages = []
    for loss in ("poisson", "squared_error"):
        path = polyadic.report(model.set_params(loss=loss), X, COUNTS, tmp_path / "page.html")
        pages.append(path.read_text(encoding="utf-8"))
    assert '"link":"exp"' in pages[0]
    assert '"link":"exp"' in pages[1]
    assert "poisson loss" in pages[1]


def test_a_fit_with_another_loss_is_a_model_of_that_loss():
    model, X = build_numbers(COUNTS, loss="poisson")
    model.set_params(loss="huber").fit(X, COUNTS)
    assert model.loss_ == losses.Huber()
    assert np.array_equal(model.predict(X), model.raw(X)[:, 0])


def test_a_loaded_model_continues_with_the_interaction_of_the_fit(tmp_path):
    model, X = built("prior of the tensor")
    y = model.classes_[np.arange(ROWS) % 2]
    again = round_trip(model, tmp_path)
    assert again.interaction_ == model.interaction_
    fits = [
        pickle.loads(pickle.dumps(m)).set_params(warm_start=True).fit(X, y) for m in (model, again)
    ]
    assert fits[0].predict_proba(X).tobytes() == fits[1].predict_proba(X).tobytes()


def private_names(tree):
    """Yield the private names of a model that a module uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = ast.unparse(node.value)
            if owner in ("model", "estimator", "fitted") and not node.attr.startswith("__"):
                yield f"{owner}.{node.attr}"


@pytest.mark.parametrize("room", ["io", "explain", "plots", "page", "cli"])
def test_no_private_name_of_a_model_is_used(room):
    for path in sorted((rooms.ROOT / "src" / "polyadic" / room).glob("*.py")):
        assert list(private_names(ast.parse(path.read_text(encoding="utf-8")))) == [], path.name
