"""Laws of the pictures: what is drawn is what was recorded, and nothing needs a display."""

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from polyadic import CPClassifier, CPRegressor, explain, plots

mpl.use("Agg")
import matplotlib.pyplot as plt

FEW = {"rank": 4, "max_epochs": 4, "random_state": 0}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def table(n=80):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    X["c"] = pd.Categorical(np.array(["u", "v", "w"])[np.arange(n) % 3])
    return X, X["a"] + X["b"] ** 2 + 0.1 * rng.normal(size=n)


def lines(ax):
    return [line for line in ax.lines if line.get_marker() == "None"]


@pytest.mark.parametrize("n_members", [1, 3])
def test_each_member_is_a_line_of_its_validation_losses(n_members):
    model = CPRegressor(n_members=n_members, **FEW).fit(*table())
    ax = plots.learning_curve(model)
    drawn = [list(line.get_ydata()) for line in lines(ax)]
    for history in model.history_:
        assert history["validation_loss"] in drawn
    dots = next(line for line in ax.lines if line.get_marker() == "o")
    best = [min(history["validation_loss"]) for history in model.history_]
    assert list(dots.get_ydata()) == best
    ax.figure.canvas.draw()


def test_without_held_out_rows_the_training_loss_is_drawn():
    model = CPRegressor(early_stopping=False, n_members=1, **FEW).fit(*table())
    ax = plots.learning_curve(model)
    assert [list(line.get_ydata()) for line in ax.lines] == [model.history_[0]["train_loss"]]


def test_given_axes_are_drawn_on():
    model = CPRegressor(n_members=1, **FEW).fit(*table())
    ax = plt.figure().subplots()
    assert plots.learning_curve(model, ax) is ax


def test_no_epochs_are_no_error():
    model = CPRegressor(n_members=2, **FEW | {"max_epochs": 0}).fit(*table())
    plots.learning_curve(model).figure.canvas.draw()


@pytest.mark.parametrize("classes", [0, 3])
def test_effects_are_drawn_strongest_first(classes):
    X, y = table()
    if classes:
        model = CPClassifier(n_members=1, **FEW).fit(X, np.arange(len(X)) % classes)
    else:
        model = CPRegressor(n_members=1, **FEW).fit(X, y)
    found = explain.effects(model, X)
    axes = plots.effects(found, top=3)
    titles = [ax.get_title(loc="left").split(",")[0] for ax in axes.ravel()]
    assert titles == [found.columns[n] for n in np.argsort(-found.variance)]
    axes.ravel()[0].figure.canvas.draw()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'polyadic\[plot\]'"):
        plots.learning_curve(None)
