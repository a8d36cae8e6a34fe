"""Laws of the pictures: what each of them draws is what was found, and nothing needs a display."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from drawings import FAST, KINDS, bars, draw, fitted, panel, table
from explained import relative

from polyadic import CPRegressor, explain, plots
from polyadic.plots import rows

mpl.use("Agg")
import matplotlib.pyplot as plt


def lines(ax):
    return [line for line in ax.lines if line.get_marker() == "None"]


# ---- learning curves ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_members", [1, 3])
def test_each_member_is_a_line_of_its_validation_losses(n_members):
    model = CPRegressor(n_members=n_members, **FAST).fit(*table())
    ax = plots.learning_curve(model)
    drawn = [list(line.get_ydata()) for line in lines(ax)]
    for history in model.history_:
        assert history["validation_loss"] in drawn
    dots = next(line for line in ax.lines if line.get_marker() == "o")
    best = [min(history["validation_loss"]) for history in model.history_]
    assert list(dots.get_ydata()) == best
    ax.figure.canvas.draw()


def test_without_held_out_rows_the_training_loss_is_drawn():
    model = CPRegressor(early_stopping=False, n_members=1, **FAST).fit(*table())
    ax = plots.learning_curve(model)
    assert [list(line.get_ydata()) for line in ax.lines] == [model.history_[0]["train_loss"]]


def test_a_model_without_epochs_is_drawn():
    model = CPRegressor(n_members=2, **FAST | {"max_iter": 0}).fit(*table())
    plots.learning_curve(model).figure.canvas.draw()


# ---- effects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", ["raw", "response"])
def test_effects_are_drawn_strongest_first(kind, scale):
    model, _ = fitted(kind)
    found = explain.effects(model, scale=scale)
    axes = plots.effects(found, top=6)
    titles = [ax.get_title(loc="left").split(",")[0] for ax in axes.ravel() if ax.get_visible()]
    expected = [found.columns[n] for n in np.argsort(-found.variance, kind="stable")]
    for title, name in zip(titles, expected):
        assert name.startswith(title.rstrip("…").replace(r"\$", "$"))
    assert len(titles) == 6
    draw(axes)


@pytest.mark.parametrize("kind", KINDS)
def test_curves_and_bars_are_the_effects(kind):
    found = explain.effects(fitted(kind)[0])
    axes = plots.effects(found)
    n_outputs = len(found.outputs)
    for name in ("a column with a name beyond all measure", "c", "many"):
        n, ax = found.columns.index(name), panel(found, axes, name)
        if found.ends[n] is not None:
            curves = [line for line in ax.lines if len(line.get_xdata()) == len(found.grid[n])]
            drawn = np.column_stack([line.get_ydata() for line in curves])
            np.testing.assert_array_equal(drawn, found.values[n])
            np.testing.assert_array_equal(curves[0].get_xdata(), found.grid[n])
        else:
            heights = np.array([b.get_height() for b in bars(ax)]).reshape(n_outputs, -1)
            values = found.values[n]
            if len(values) > 16:
                values = values[np.argsort(values[:, 0], kind="stable")]
            np.testing.assert_allclose(heights.T, values)


def test_response_bars_go_from_the_mean_to_the_probability():
    found = explain.effects(fitted("two classes")[0], scale="probability")
    axes = plots.effects(found)
    drawn = bars(panel(found, axes, "c"))
    assert [b.get_y() for b in drawn] == [found.base[0]] * 3
    tops = [b.get_y() + b.get_height() for b in drawn]
    np.testing.assert_allclose(tops, found.values[2][:, 0])
    assert axes[0, 0].figure.get_supylabel() == "mean probability of low"


def test_missing_values_are_marked_where_rows_have_them():
    found = explain.effects(fitted("number")[0])
    axes = plots.effects(found)
    diamonds = [line for line in panel(found, axes, "b$1$").lines if line.get_marker() == "D"]
    assert [d.get_ydata()[0] for d in diamonds] == found.missing[1].tolist()
    hollow = [
        b for b in panel(found, axes, "c").patches if b.get_facecolor()[:3] == (1.0, 1.0, 1.0)
    ]
    np.testing.assert_allclose([b.get_height() for b in hollow], found.missing[2])
    assert panel(found, axes, "c").get_xlabel() == "▯ missing, 20 %"
    assert panel(found, axes, "b$1$").get_xlabel().startswith("◇ missing, ")
    assert "missing" not in panel(found, axes, "many").get_xlabel()


def test_strips_show_the_density():
    found = explain.effects(fitted("number")[0])
    axes = plots.effects(found)
    (strip,) = [p for p in panel(found, axes, found.columns[0]).patches if hasattr(p, "get_data")]
    edges, density = found.edges[0], found.density[0]
    np.testing.assert_array_equal(strip.get_data().edges, edges)
    per_width = density / np.diff(edges)
    np.testing.assert_allclose(
        strip.get_data().values / strip.get_data().values.max(), per_width / per_width.max()
    )


def test_effects_take_given_axes():
    found = explain.effects(fitted("number")[0])
    given = plt.figure().subplots(1, 3)
    assert plots.effects(found, axes=given) is given
    one = plt.figure().subplots()
    assert plots.effects(found, top=1, axes=one).ravel()[0] is one
    draw(given)


# ---- comparisons --------------------------------------------------------------------------------


def test_a_comparison_draws_both_effects_where_they_differ_most():
    X, y = table()
    a, b = (CPRegressor(n_members=1, **FAST).fit(X, t) for t in (y, X["a"] - 2 * X["b"]))
    found = explain.compare(a, b, X)
    axes = plots.compare(found, top=2, names=("one", "other")).ravel()
    order = np.argsort(-found.main)
    assert [ax.get_title(loc="left").split(",")[0] for ax in axes] == [
        found.columns[n] for n in order[:2]
    ]
    for ax, n in zip(axes, order):
        drawn = [
            line for line in lines(ax) if len(line.get_xdata()) == len(found.effects[0].grid[n])
        ]
        for line, result in zip(drawn, found.effects, strict=True):
            assert np.array_equal(line.get_ydata(), result.values[n][:, 0])
    (legend,) = axes[0].figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["one", "other"]
    draw(axes[0])
    draw(plots.compare((a, a)).ravel()[0])
    with pytest.raises(ValueError, match="names must be two names"):
        plots.compare(found, names="ab")
    with pytest.raises(ValueError, match="no output 1; there are 1"):
        plots.compare(found, output=1)


# ---- interactions -------------------------------------------------------------------------------

PAIRS = [["b$1$", "c"], ["c", "many"], ["many", "b$1$"]]


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("columns", PAIRS)
def test_heat_maps_hold_the_values(columns, pure):
    found = explain.partial_dependence(fitted("targets")[0], columns, pure=pure)
    ax = plots.interaction(found, output=1)
    mesh = ax.collections[0]
    np.testing.assert_array_equal(mesh.get_array(), found.values[:, :, 1].T)
    low, high = mesh.get_clim()
    assert low == -high if pure else low == found.values[..., 1].min()
    assert ("interaction" in ax.figure.axes[1].get_ylabel()) == pure
    draw(ax)


def test_cells_of_an_uneven_grid_meet_halfway():
    grid = [[4.0, 0.0, 1.0], ["u", "w"]]
    found = explain.partial_dependence(fitted("number")[0], ["b$1$", "c"], grid=grid)
    mesh = plots.interaction(found).collections[0]
    np.testing.assert_array_equal(mesh.get_coordinates()[0, :, 0], [-0.5, 0.5, 2.5, 5.5])
    np.testing.assert_array_equal(mesh.get_array(), found.values[[1, 2, 0], :, 0].T)


def test_a_far_outlier_does_not_stretch_the_axis():
    grid = [[*np.linspace(0.0, 1.0, 20), 50.0], ["u", "w"]]
    found = explain.partial_dependence(fitted("number")[0], ["b$1$", "c"], grid=grid)
    assert plots.interaction(found).get_xlim()[1] < 30


@pytest.mark.parametrize("column", ["b$1$", "c", "many", "constant"])
def test_one_column_is_a_curve(column):
    found = explain.partial_dependence(fitted("number")[0], column)
    ax = plots.interaction(found)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), found.values[:, 0])
    draw(ax)


def test_a_third_column_needs_one_value():
    model, _ = fitted("number")
    columns = ["b$1$", "c", "many"]
    with pytest.raises(
        ValueError, match=r"single value: partial_dependence\(model, columns, grid="
    ):
        plots.interaction(explain.partial_dependence(model, columns))
    grid = [[0.1, 0.5, np.nan], ["u", "v"], ["category 03"]]
    ax = plots.interaction(explain.partial_dependence(model, columns, grid=grid))
    assert ax.get_title(loc="left").endswith("many = category 03")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0.1", "0.5", "missing"]


# ---- shares -------------------------------------------------------------------------------------


def test_importance_of_sobol_indices_is_first_over_total():
    found = explain.sobol(fitted("classes")[0])
    ax = plots.importance(found, top=3)
    order = np.argsort(-found.total, kind="stable")[:3]
    widths = [b.get_width() for b in ax.patches]
    np.testing.assert_array_equal(widths, [*found.total[order], *found.first[order]])
    assert ax.get_title(loc="left") == "3 more columns not shown"
    draw(ax)


@pytest.mark.parametrize("kind", KINDS)
def test_importance_of_shapley_values_is_their_mean_size(kind):
    model, X = fitted(kind)
    found = explain.shapley(model, X[:20])
    ax = plots.importance(found)
    widths = np.array([b.get_width() for b in ax.patches]).reshape(len(found.outputs), -1)
    order = np.argsort(-found.importance, kind="stable")
    np.testing.assert_allclose(widths.sum(axis=0), found.importance[order], atol=1e-12)
    np.testing.assert_allclose(widths.T, np.abs(found.values).mean(axis=0)[order], atol=1e-12)
    draw(ax)


def test_importance_of_effects_is_their_share():
    found = explain.effects(fitted("number")[0])
    widths = [b.get_width() for b in plots.importance(found).patches]
    assert widths == sorted(found.share.tolist(), reverse=True)


@pytest.mark.parametrize("max_order", [None, 1, 2])
def test_bars_of_orders_add_up_to_the_whole(max_order):
    model, _ = fitted("number")
    found = explain.terms(model, max_order) if max_order else explain.sobol(model)
    ax = plots.orders(found)
    widths = [b.get_width() for b in ax.patches]
    assert widths[0] == found.orders[0]
    assert sum(widths) == pytest.approx(1.0)
    draw(ax)


# ---- Shapley values -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("top", [2, 10])
def test_a_waterfall_goes_from_the_base_to_the_prediction(kind, top):
    model, X = fitted(kind)
    found = explain.shapley(model, X[:9])
    output = len(found.outputs) - 1
    ax = plots.waterfall(found, row=7, output=found.outputs[-1], top=top)
    steps = ax.patches
    assert len(steps) == min(top + 1, 6)
    assert steps[0].get_x() == found.base[output]
    raw = relative(model, model.raw(X[7:8]))[0, output]
    assert steps[-1].get_x() + steps[-1].get_width() == pytest.approx(raw)
    for before, after in itertools.pairwise(steps):
        assert after.get_x() == pytest.approx(before.get_x() + before.get_width())
    sizes = [abs(s.get_width()) for s in steps[:top]]
    # A width is the difference of two places: columns without effect are zero up to rounding.
    assert np.diff(sizes).max() <= 1e-12 * sizes[0]
    labels = [t.get_text() for t in ax.get_yticklabels()]
    if top == 10:
        assert r"b\$1\$ = missing" in labels
        assert "many = category 07" in labels
    else:
        assert labels[-2] == "other 4 columns"
    draw(ax)


@pytest.mark.parametrize("kind", KINDS)
def test_a_swarm_has_a_point_for_each_row(kind):
    model, X = fitted(kind)
    found = explain.shapley(model, X)
    output = len(found.outputs) - 1
    ax = plots.beeswarm(found, output=found.outputs[-1], top=4)
    places = [c.get_offsets() for c in ax.collections]
    drawn = np.concatenate([p[:, 0] for p in places])
    size = np.abs(found.values[:, :, output]).mean(axis=0)
    expected = found.values[:, np.argsort(-size, kind="stable")[:4], output]
    np.testing.assert_allclose(np.sort(drawn), np.sort(expected.ravel()))
    heights = np.concatenate([p[:, 1] for p in places])
    assert np.abs(heights - np.round(heights)).max() <= 0.42 + 1e-9
    draw(ax)
    again = plots.beeswarm(found, output=found.outputs[-1], top=4)
    for one, other in zip(ax.collections, again.collections):
        np.testing.assert_array_equal(one.get_offsets(), other.get_offsets())


def test_points_of_a_swarm_do_not_coincide():
    x = np.repeat([0.0, 0.3, 1.0], [3, 8, 1])
    y = rows.spread(x, 1.0)
    assert len(set(zip(x, y))) == len(x)
    assert np.ptp(rows.spread(np.zeros(1000), 1.0)) <= 0.84 + 1e-9


def test_colours_of_a_swarm_are_ranks():
    rank, missing = rows.ranks(np.array(["10", None, "9", "200"], dtype=object))
    np.testing.assert_array_equal(rank[~missing], [0.5, 0.0, 1.0])
    assert missing.tolist() == [False, True, False, False]
    assert rows.ranks(np.array(["red", "blue"], dtype=object))[0] is None
    assert rows.ranks(np.ones(3))[0].tolist() == [0.5] * 3
    assert rows.ranks(np.full(2, np.nan))[1].all()
