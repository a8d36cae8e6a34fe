"""Laws that every picture keeps: given axes, models for results, legends, labels, and refusals."""

import itertools
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from drawings import FAST, KINDS, bars, draw, fitted, panel, table

from polyadic import CPRegressor, explain, plots

mpl.use("Agg")
import matplotlib.pyplot as plt

# ---- all ----------------------------------------------------------------------------------------


def results():
    """Return every function that takes one ax, with a result that it draws."""
    model, X = fitted("number")
    found = explain.shapley(model, X[:5])
    return {
        plots.learning_curve: model,
        plots.interaction: explain.partial_dependence(model, ["c", "b$1$"]),
        plots.importance: explain.sobol(model),
        plots.orders: explain.sobol(model),
        plots.waterfall: found,
        plots.beeswarm: found,
    }


def test_given_axes_are_drawn_on():
    for function, result in results().items():
        ax = plt.figure().subplots()
        assert function(result, ax=ax) is ax
        draw(ax)


def test_what_cannot_be_drawn_is_refused_by_name():
    wrong = explain.in_words(fitted("number")[0])
    for function in (*list(results())[1:], plots.effects, plots.compare):
        with pytest.raises(TypeError, match=rf"{function.__name__} draws .*explain\..*, got list"):
            function(wrong)


def test_rows_and_outputs_that_do_not_exist_are_refused():
    model, X = fitted("number")
    found = explain.shapley(model, X[:5])
    with pytest.raises(ValueError, match="no row 5; there are 5"):
        plots.waterfall(found, row=5)
    for draw_one in (plots.waterfall, plots.beeswarm):
        with pytest.raises(ValueError, match="no output 1; there are 1"):
            draw_one(found, output=1)
    with pytest.raises(ValueError, match="no output 3"):
        plots.interaction(explain.partial_dependence(model, "c"), output=3)


def test_a_table_of_one_column_is_drawn():
    x = np.linspace(-1, 1, 60)[:, None]
    model = CPRegressor(n_members=1, **FAST).fit(x, x[:, 0] ** 2)
    found = explain.shapley(model, x[:1])
    draw(plots.effects(explain.effects(model)))
    for function in (plots.importance, plots.orders):
        draw(function(explain.sobol(model)))
    for function in (plots.importance, plots.waterfall, plots.beeswarm):
        draw(function(found))


def test_a_constant_model_is_drawn():
    X = np.ones((40, 2))
    model = CPRegressor(n_members=1, **FAST).fit(X, np.zeros(40))
    found = explain.shapley(model, X)
    draw(plots.effects(explain.effects(model)))
    draw(plots.interaction(explain.partial_dependence(model, [0, 1], pure=True)))
    for function in (plots.importance, plots.orders):
        draw(function(explain.sobol(model)))
    for function in (plots.importance, plots.waterfall, plots.beeswarm):
        draw(function(found))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'polyadic\[plot\]'"):
        plots.learning_curve(None)


# ---- models, legends and labels -----------------------------------------------------------------


def drawn(ax):
    """Return the numbers that a plot shows."""
    every = [ax] if not isinstance(ax, np.ndarray) else ax.ravel()
    out = []
    for one in every:
        out += [line.get_xydata() for line in one.lines]
        out += [[b.get_x(), b.get_width(), b.get_y(), b.get_height()] for b in bars(one)]
        out += [np.asarray(c.get_offsets()) for c in one.collections]
        out += [[t.get_text() for t in one.get_yticklabels()]]
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_a_plot_of_a_model_is_that_of_its_result(kind):
    model, X = fitted(kind)
    strongest = explain.interactions(model, 2, 1).rows[0].columns
    pairs = {
        plots.effects: ((model,), explain.effects(model)),
        plots.importance: ((model,), explain.sobol(model)),
        plots.orders: ((model,), explain.sobol(model)),
        plots.waterfall: ((model, X[3:4]), explain.shapley(model, X[3:4])),
        plots.beeswarm: ((model, X), explain.shapley(model, X)),
        plots.interaction: (
            (model,),
            explain.partial_dependence(model, strongest, pure=True),
        ),
    }
    for function, (given, result) in pairs.items():
        one, other = drawn(function(*given)), drawn(function(result))
        assert len(one) == len(other) > 0
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b)


def test_a_waterfall_takes_one_row_of_a_model_in_any_form():
    model, X = fitted("number")
    row = X.iloc[3]
    for given in (row, row.to_dict(), X[3:4]):
        drawn_row = drawn(plots.waterfall(model, given))
        for a, b in zip(drawn_row, drawn(plots.waterfall(explain.shapley(model, X), 3))):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(TypeError, match=r"needs the row itself, got 0\. .*waterfall\(model, X"):
        plots.waterfall(model)
    with pytest.raises(TypeError, match=r"needs rows: plots.beeswarm\(model, X\)"):
        plots.beeswarm(model)


@pytest.mark.parametrize("kind", KINDS)
def test_legends_cover_nothing(kind):
    model, X = fitted(kind)
    values = explain.shapley(model, X)
    for ax in (
        plots.effects(model),
        plots.effects(explain.effects(model, scale="response"), top=3),
        plots.importance(model, top=4),
        plots.importance(values, top=4),
        plots.beeswarm(values, top=4),
        plots.learning_curve(model),
        plots.compare(explain.compare(model, model, X)),
    ):
        draw(ax)
        figure = (ax.ravel()[0] if isinstance(ax, np.ndarray) else ax).figure
        shown = [one for one in figure.axes if one.get_visible()]
        legends = [*figure.legends, *(one.get_legend() for one in shown if one.get_legend())]
        boxes = [legend.get_window_extent() for legend in legends]
        covered = [one.get_window_extent() for one in shown]
        covered += [one.get_tightbbox() for one in shown if not one.get_legend()]
        for box in boxes:
            assert not any(box.overlaps(other) for other in covered)
            assert figure.bbox.padded(1).containsx(box.x0)
            assert figure.bbox.padded(1).containsy(box.y1)
        titles = [one.title for one in shown] + [one._left_title for one in shown]
        boxes += [title.get_window_extent() for title in titles if title.get_text()]
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other)


LINKED = {"poisson": "effect on the prediction (raw scale)", "squared_error": "effect on cost"}


@pytest.mark.parametrize("loss", LINKED)
def test_labels_are_in_the_unit_of_the_target(loss):
    X, y = table()
    name = None if loss == "poisson" else "cost"
    model = CPRegressor(loss=loss, n_members=1, **FAST).fit(X, pd.Series(abs(y), name=name))
    assert plots.effects(model)[0, 0].figure.get_supylabel() == LINKED[loss]
    given = plt.figure().subplots(1, 2)
    label = plots.effects(model, axes=given)[0].get_ylabel()
    assert " ".join(label.split()) == LINKED[loss]
    of = "raw prediction" if name is None else "prediction of cost"
    assert plots.waterfall(model, X[:1]).get_xlabel() == of
    assert plots.beeswarm(model, X).get_xlabel() == f"adds to the {of}"
    ax = plots.interaction(explain.partial_dependence(model, "a"))
    assert ax.get_ylabel() == f"mean {of}"
    heat = plots.interaction(model, ["a", "c"])
    assert heat.figure.axes[1].get_ylabel() == f"interaction {LINKED[loss]}"
    shown = plots.importance(explain.shapley(model, X)).get_xlabel()
    assert shown.endswith("(raw scale)") == (name is None)


def test_ticks_of_a_column_of_years_are_years():
    years = np.arange(1990, 2000).repeat(5)
    X = pd.DataFrame({"year": years, "b": np.arange(50.0) % 7})
    model = CPRegressor(n_members=1, **FAST).fit(X, X["year"] - 1990.0)
    ax = panel(explain.effects(model), plots.effects(model), "year")
    ax.figure.canvas.draw()
    ticks = [t.get_text() for t in ax.get_xticklabels()]
    assert len(ticks) > 1
    assert {len(t) for t in ticks} == {4}
    assert all(t.isdigit() for t in ticks)
