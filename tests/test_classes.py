"""Laws of many classes: scores relative to their mean, labels as addresses, the predicted class."""

import needs
import numpy as np
import parts
import pytest
from explained import relative, squared_labels, three_classes
from many_classes import digits, iris, network, of_lightgbm, with_trees

from polyadic import explain, plots
from polyadic.explain.outputs import explained_cores, find_output

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


MODELS = [three_classes, with_trees, of_lightgbm, network, iris, digits]
models = pytest.mark.parametrize("case", MODELS, ids=lambda case: case.__name__)


def shifted(model):
    """Return a copy whose scores all have another function of the columns added to them."""
    tensor = model.tensor_
    matrix = np.eye(tensor.n_outputs)
    matrix[1] += 0.7  # 0.7 times the second score is added to all of them
    other = type(model)(**model.get_params())
    vars(other).update(vars(model))
    other.tensor_ = tensor.weigh_outputs(matrix)
    return other


# ---- scores relative to their mean ---------------------------------------------------------------


@models
def test_shapley_values_and_bases_sum_to_zero_over_the_classes(case):
    model, X = case()
    found = explain.shapley(model, X[:9])
    size = np.abs(found.values).max()
    np.testing.assert_allclose(found.values.sum(axis=2), 0.0, atol=1e-12 * (1.0 + size))
    np.testing.assert_allclose(found.base.sum(), 0.0, atol=1e-12 * (1.0 + size))
    pairs = explain.shapley_interactions(model, X[:3]).values
    np.testing.assert_allclose(pairs.sum(axis=-1), 0.0, atol=1e-12 * (1.0 + np.abs(pairs).max()))


@models
def test_effects_sum_to_zero_over_the_classes(case):
    model, _ = case()
    found = explain.effects(model)
    for values in [*found.values, *found.missing]:
        np.testing.assert_allclose(values.sum(axis=-1), 0.0, atol=1e-9)
    surface = explain.partial_dependence(model, [0, 1])
    np.testing.assert_allclose(surface.values.sum(axis=-1), 0.0, atol=1e-9)


@models
def test_differences_between_classes_are_those_of_the_raw_scores(case):
    model, X = case()
    found, raw = explain.shapley(model, X[:9]), model.raw(X[:9])
    reached = found.base + found.values.sum(axis=1)
    size = 1.0 + np.abs(raw).max()
    np.testing.assert_allclose(np.diff(reached), np.diff(raw), rtol=0, atol=1e-5 * size)


@models
def test_what_is_added_to_all_scores_changes_no_explanation(case):
    model, X = case()
    other = shifted(model)
    np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X), atol=1e-4)
    assert np.abs(other.raw(X) - model.raw(X)).max() > 1e-3
    one, two = explain.shapley(model, X[:5]), explain.shapley(other, X[:5])
    np.testing.assert_allclose(two.values, one.values, **CLOSE)
    np.testing.assert_allclose(two.base, one.base, **CLOSE)
    shares, again = explain.sobol(model), explain.sobol(other)
    np.testing.assert_allclose(again.variance, shares.variance, rtol=1e-9)
    np.testing.assert_allclose(again.total, shares.total, rtol=1e-7, atol=1e-9)
    for one, two in zip(explain.effects(model).values, explain.effects(other).values):
        np.testing.assert_allclose(two, one, **CLOSE)
    assert explain.in_words(other) == explain.in_words(model)


@pytest.mark.parametrize("case", [three_classes, with_trees, of_lightgbm])
def test_a_comparison_does_not_see_what_is_added_to_all_scores(case):
    model, X = case()
    found = explain.compare(model, shifted(model), X)
    assert found.variance == 0.0
    np.testing.assert_allclose(found.mean, 0.0, atol=1e-9)


def test_coefficients_sum_to_zero_over_the_classes():
    model, _ = three_classes()
    found = [explain.coefficient(model, {"c": "u"}, label) for label in model.classes_]
    assert sum(found) == pytest.approx(0.0, abs=1e-12)
    assert max(map(abs, found)) > 0


def test_raw_predictions_stay_as_they_are():
    model, X = three_classes()
    before = model.raw(X)
    explain.shapley(model, X)
    assert np.abs(before.mean(axis=1)).max() > 1e-3
    np.testing.assert_array_equal(model.raw(X), before)


def test_scores_that_have_no_free_constant_are_explained_as_they_are():
    model, X = squared_labels()
    assert explained_cores(model) is model.tensor_
    found = explain.shapley(model, X)
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), model.raw(X), atol=1e-5)


@pytest.mark.parametrize("case", parts.FORMATS, ids=str)
def test_weighed_outputs_of_cores_are_sums_of_multiples(case):
    rng, network = np.random.default_rng(0), parts.random_network(*case, [2, 3, 2], 3)
    network = network.rescale(rng.normal(size=3), rng.uniform(0.5, 2.0, 3))
    phis = [rng.normal(size=(5, d)) for d in network.dims]
    matrix = rng.normal(size=(3, 3))

    def raw(cores):
        parts = np.stack([p @ c for p, c in zip(phis, cores.factors)], axis=1)
        return cores.to_raw(cores.format.contract(parts, cores.extras))

    np.testing.assert_allclose(raw(network.weigh_outputs(matrix)), raw(network) @ matrix, **CLOSE)


# ---- labels --------------------------------------------------------------------------------------


def test_classes_are_addressed_by_their_label():
    model, X = three_classes()
    found = explain.shapley(model, X[:4])
    for k, label in enumerate(model.classes_):
        assert found.find_output(label) == k
        text = explain.describe(model, X[:1], output=label)
        assert text.startswith(f"The probability of {str(label)!r} is ")
    with pytest.raises(ValueError, match=r"no class 'lo'. The classes are 'high', 'low', 'middle'"):
        found.find_output("lo")
    with pytest.raises(ValueError, match=r"no class 0\. The classes are"):
        plots.beeswarm(found, output=0)


def test_a_label_that_is_a_number_is_a_label_and_no_position():
    assert find_output(3, ["1", "3", "5"], [1, 3, 5]) == 1
    assert find_output(np.int64(5), ["1", "3", "5"], [1, 3, 5]) == 2
    assert find_output("5", ["1", "3", "5"], [1, 3, 5]) == 2  # as a result names it
    with pytest.raises(ValueError, match=r"no class 0\. The classes are 1, 3, 5"):
        find_output(0, ["1", "3", "5"], [1, 3, 5])


def test_numbers_are_addressed_by_number_or_name():
    names = ["y0", "y1", "y2"]
    assert [find_output(k, names) for k in (None, 1, -1, "y1")] == [0, 1, 2, 1]
    for wrong in (3, -4, True, 0.5, "y3"):
        with pytest.raises(ValueError, match="there are 3, counted from 0"):
            find_output(wrong, names)


def test_two_classes_have_the_score_of_the_second():
    assert find_output("yes", ["yes"], ["no", "yes"]) == 0
    with pytest.raises(ValueError, match="that of 'no' is the same with the opposite sign"):
        find_output("no", ["yes"], ["no", "yes"])


# ---- the predicted class is the default ----------------------------------------------------------


@pytest.mark.parametrize("scale", ["raw", "probability"])
@models
def test_the_predicted_class_is_the_default_of_a_row(case, scale):
    model, X = case()
    found, predicted = explain.shapley(model, X, scale=scale), model.predict(X)
    assert len(set(predicted.tolist())) > 1
    for row in range(len(X)):
        assert model.classes_[found.find_output(row=row)] == predicted[row]
    names, counts = np.unique(predicted, return_counts=True)
    assert counts[names == model.classes_[found.find_output()]] == counts.max()


@models
def test_texts_of_one_row_are_of_the_predicted_class(case):
    model, X = case()
    for row in (0, 7, 20):
        one = X[row : row + 1]
        (best,) = model.predict(one).tolist()
        text = explain.describe(model, one)
        assert text.startswith(f"The probability of {best!r} is ")
        assert "relative to the mean over the classes" in text
        assert f"Class {best}: base" in str(explain.shapley(model, one))


def test_plots_draw_the_predicted_class_and_say_which():
    needs.package("matplotlib")
    import matplotlib.pyplot as plt

    model, X = digits()
    found, raw = explain.shapley(model, X), relative(model, model.raw(X))
    for row in (0, 5, 33):
        ax = plots.waterfall(found, row=row)
        best = model.predict(X[row : row + 1])[0]
        assert ax.get_title(loc="left") == f"Class {best}"
        assert ax.get_xlabel() == f"score of {best}"
        last = ax.patches[-1]
        assert last.get_x() + last.get_width() == pytest.approx(raw[row].max(), rel=1e-4)
    assert plots.waterfall(found, output="two").get_title(loc="left") == "Class two"
    assert plots.beeswarm(found, output="two").get_xlabel() == "adds to the score of two"
    curves = explain.effects(model)
    axes = plots.effects(curves, output="two", top=2)
    assert axes.flat[0].figure.get_suptitle() == "Class two"
    n, k = int(np.argmax(curves.variance)), curves.outputs.index("two")
    line = next(own for own in axes.flat[0].lines if len(own.get_xdata()) > 2)
    np.testing.assert_array_equal(line.get_ydata(), curves.values[n][:, k])
    pair = explain.partial_dependence(model, [0, 1], pure=True)
    assert plots.interaction(pair, output="two").get_title(loc="left").endswith("Class two")
    with pytest.raises(ValueError, match="The classes are 'five', 'four'"):
        plots.effects(curves, output="ten")
    plt.close("all")


# ---- words ---------------------------------------------------------------------------------------


def test_words_say_which_column_pushes_which_class_where():
    model, _ = iris()
    found, told = explain.effects(model), explain.in_words(model, top=4)
    assert any(sentence.startswith("petal") for sentence in told)
    for sentence in told:
        if "act together" in sentence:
            continue
        n = next(n for n, name in enumerate(found.columns) if sentence.startswith(name))
        inside = (found.grid[n] >= found.ends[n][0]) & (found.grid[n] <= found.ends[n][1])
        width = np.ptp(found.values[n][inside], axis=0)
        named = [k for k, name in enumerate(found.outputs) if f"the score of {name!r}" in sentence]
        first = min(named, key=lambda k: sentence.index(repr(found.outputs[k])))
        assert first == np.argmax(width)
        assert 1 <= len(named) <= 2
        assert sentence.count(" at ") >= 2 * len(named)
