"""Laws of every feature map, and each family against its formula, written here independently."""

from __future__ import annotations

import json
import pickle
import re

import numpy as np
import parts
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.polynomial import chebyshev as numpy_chebyshev
from scipy.interpolate import BSpline as ScipyBSpline
from sklearn.exceptions import NotFittedError

from polyadic import maps
from polyadic.data.features import encode

FLOAT32 = 2e-6  # a few roundings of float32, relative to elements of size one
FAR = np.array([-1e300, -1e30, -1.7e308, 1.7e308, 1e30, 1e300, 5e-324, -0.0])

every_map = pytest.mark.parametrize("unfitted", parts.MAPS, ids=repr)
finite = st.floats(allow_nan=False, allow_infinity=False)


def column(feature_map, n=60, seed=0):
    """Return a column that the map accepts, with ties and missing values."""
    rng = np.random.default_rng(seed)
    if feature_map.kind == "categorical":
        return rng.integers(-1, 9, size=n)
    x = rng.normal(3.0, 2.0, size=n)
    x[rng.random(n) < 0.3] = 0.5
    x[rng.random(n) < 0.1] = np.nan
    return x


def missing(feature_map, n=3):
    return np.full(n, -1) if feature_map.kind == "categorical" else np.full(n, np.nan)


def fitted(feature_map, **kwargs):
    return feature_map.clone().fit(column(feature_map, **kwargs))


def matrix(band):
    """Return the symmetric matrix (d, d) of a band (d, 5)."""
    d = len(band)
    out = np.zeros((d, d))
    for k in range(d):
        for offset in range(-2, 3):
            if 0 <= k + offset < d:
                out[k, k + offset] = band[k, 2 + offset]
            else:
                assert band[k, 2 + offset] == 0
    return out


# ---- laws of every map ---------------------------------------------------------------------------


@every_map
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_slots_have_one_shape_and_stay_in_bounds(unfitted, seed):
    fit = fitted(unfitted, seed=seed)
    x = column(unfitted, n=17, seed=seed + 100)
    index, value = fit.encode(x)
    assert index.shape == value.shape == (17, index.shape[1])
    assert index.dtype == np.int32
    assert value.dtype == np.float32
    assert np.all((index >= 0) & (index < fit.dim))
    assert np.all(np.isfinite(value))
    assert fit.encode(x[:0])[0].shape == (0, index.shape[1])


@every_map
def test_a_map_that_always_returns_all_elements_says_so(unfitted):
    fit = fitted(unfitted)
    count = fit.encode(column(unfitted))[0].shape[1]
    everything = fit.dim - fit.constant
    if fit.all_slots:
        index, _ = fit.encode(column(unfitted))
        expected = np.arange(int(fit.constant), fit.dim)
        np.testing.assert_array_equal(index, np.tile(expected, (len(index), 1)))
    elif count > 2:  # the two slots of hats are all elements where there are two knots
        assert count < everything, "encode returns every element but the constant: set all_slots"


@every_map
def test_a_row_encodes_the_same_alone_and_among_others(unfitted):
    fit = fitted(unfitted)
    x = column(unfitted, seed=5)
    spread = np.repeat(x, 2)[::2]  # a strided view of the same numbers
    together = fit.dense(spread)
    for i in range(5):
        np.testing.assert_array_equal(fit.dense(x[i : i + 1])[0], together[i])


@every_map
def test_fit_and_encode_do_not_change_the_column(unfitted):
    x = column(unfitted)
    before = x.copy()
    x.flags.writeable = False
    unfitted.clone().fit(x).encode(x)
    np.testing.assert_array_equal(x, before)


@every_map
def test_constant_element_is_one_for_every_row(unfitted):
    fit = fitted(unfitted)
    if fit.constant:
        assert np.all(fit.dense(column(unfitted, seed=3))[:, 0] == 1.0)


@every_map
def test_the_elements_of_a_partition_add_up_to_one(unfitted):
    x = column(unfitted, n=50)
    fit = fitted(unfitted)
    sums = fit.dense(x)[:, int(fit.constant) :].sum(axis=1)
    known = (x >= 0) if fit.kind == "categorical" else ~np.isnan(x)
    kept = known & (fit.encode(x)[1].sum(axis=1) > 0)  # without categories that are too rare
    if fit.partition:
        np.testing.assert_allclose(sums[kept], 1.0, atol=1e-6)


@every_map
def test_a_missing_value_has_the_elements_it_is_given(unfitted):
    fit = fitted(unfitted)
    width = fit.dim - int(fit.constant)
    elements = np.linspace(0.25, 2.0, width)
    if not fit.all_slots:
        with pytest.raises(ValueError, match="cannot give missing values"):
            fit.with_missing(elements)
        return
    own = fit.with_missing(elements)
    x = np.array([0.5, np.nan])
    np.testing.assert_array_equal(own.dense(x)[0], fit.dense(x)[0])
    np.testing.assert_allclose(own.dense(x)[1, int(fit.constant) :], elements)
    again = type(own).restore(own.params(), own.arrays())
    assert again.same_as(own)
    np.testing.assert_array_equal(again.dense(x), own.dense(x))
    assert fit.same_as(own)  # of values that are known


@every_map
def test_missing_encodes_to_element_zero_alone(unfitted):
    fit = fitted(unfitted)
    neutral = np.zeros((3, fit.dim))
    neutral[:, 0] = 1.0
    np.testing.assert_array_equal(fit.dense(missing(unfitted)), neutral)
    if fit.constant:
        assert not fit.encode(missing(unfitted))[1].any()


@every_map
@pytest.mark.parametrize("data", ["many", "constant", "missing", "far"])
def test_any_finite_number_encodes_to_finite_values(unfitted, data):
    if unfitted.kind == "categorical":
        x, far = column(unfitted), np.array([-1, 0, 10**12, 2**62])
    else:
        x, far = column(unfitted), FAR
        x = {"many": x, "constant": x * 0 + 7, "missing": x * np.nan, "far": FAR}[data]
    with np.errstate(all="raise", under="ignore"):
        fit = unfitted.clone().fit(x)
        _, value = fit.encode(far)
        _, on_train = fit.encode(x)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(on_train))
    assert all(np.all(np.isfinite(a)) for a in fit.arrays().values())


@example(x=[0.0, 1.0, 1.79e308, -1.79e308], new=[0.0])  # knots with no finite inverse gap
@given(x=st.lists(finite, min_size=1, max_size=8), new=st.lists(finite, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_any_finite_column_fits_and_encodes(x, new):
    for unfitted in parts.MAPS:
        if unfitted.kind == "numeric":
            fit = unfitted.clone().fit(np.array(x))
            index, value = fit.encode(np.array(new))
            assert np.all(np.isfinite(value)), unfitted
            assert np.all((index >= 0) & (index < fit.dim)), unfitted


@every_map
def test_degrees_give_the_constant_order_zero(unfitted):
    fit = fitted(unfitted)
    assert fit.degrees.shape == (fit.dim,)
    assert np.issubdtype(fit.degrees.dtype, np.integer)
    assert fit.degrees[0] == 0
    assert np.all(fit.degrees[1:] >= 1)


@every_map
@pytest.mark.parametrize("seed", [0, 1])
def test_permuting_training_rows_changes_no_bit(unfitted, seed):
    rng = np.random.default_rng(seed)
    x = column(unfitted, seed=seed)
    weight = rng.random(len(x))
    order = rng.permutation(len(x))
    assert unfitted.clone().fit(x).same_as(unfitted.clone().fit(x[order]))
    one = unfitted.clone().fit(x, sample_weight=weight)
    assert one.same_as(unfitted.clone().fit(x[order], sample_weight=weight[order]))


@every_map
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weights_count_as_repeated_rows(unfitted, seed):
    x = column(unfitted, seed=seed)
    weight = np.random.default_rng(seed).integers(0, 4, size=len(x))
    weighted = unfitted.clone().fit(x, sample_weight=weight)
    repeated = unfitted.clone().fit(np.repeat(x, weight))
    assert weighted.same_as(repeated)
    one, other = (m.jitter(np.random.default_rng(1)) for m in (weighted, repeated))
    assert one.same_as(other)


@every_map
def test_restored_map_is_the_same_map(unfitted):
    fit = fitted(unfitted)
    params = json.loads(json.dumps(fit.params()))
    back = type(fit).restore(params, fit.arrays())
    assert back.same_as(fit)
    assert fit.same_as(back)
    x = column(unfitted, seed=9)
    for a, b in zip(fit.encode(x), back.encode(x)):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(fit.roughness, back.roughness)
    assert pickle.loads(pickle.dumps(fit)).same_as(fit)


@every_map
def test_clone_keeps_parameters_and_is_not_fitted(unfitted):
    copy = fitted(unfitted).clone()
    assert copy.params() == unfitted.params()
    assert not any(hasattr(copy, name) for name in copy.state)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        copy.encode(column(unfitted))
    assert eval(repr(copy), {**vars(maps), "Steps": parts.Steps}).params() == copy.params()


@every_map
def test_roughness_is_symmetric_and_positive_semidefinite(unfitted):
    fit = fitted(unfitted)
    assert fit.roughness.shape == (fit.dim, 5)
    full = matrix(fit.roughness)
    np.testing.assert_array_equal(full, full.T)
    assert np.linalg.eigvalsh(full).min() >= -1e-9 * max(1.0, np.abs(full).max())
    assert not full[0].any()  # the constant is never rough


@every_map
def test_one_row_one_value_and_no_value_are_fitted(unfitted):
    x = column(unfitted)
    known = x[x == x][:1]
    for training in (known, np.repeat(known, 5), missing(unfitted), x[:0]):
        fit = unfitted.clone().fit(training)
        dense = fit.dense(x)
        assert dense.shape == (len(x), fit.dim)
        assert np.all(np.isfinite(dense))
        assert fit.roughness.shape == (fit.dim, 5)
        assert fit.jitter(np.random.default_rng(0)) is fit


@every_map
def test_equal_maps_merge_into_themselves(unfitted):
    one, other = fitted(unfitted), fitted(unfitted)
    merged, transfers = one.merge([other])
    assert merged.same_as(one)
    assert transfers == [None, None]


def test_unequal_maps_without_knots_do_not_merge():
    with pytest.raises(ValueError, match="cannot be merged"):
        fitted(maps.Chebyshev(), seed=0).merge([fitted(maps.Chebyshev(), seed=1)])
    with pytest.raises(ValueError, match="with hats only"):
        fitted(maps.Hat()).merge([fitted(maps.Chebyshev())])


# ---- the formula of each family ------------------------------------------------------------------


def standardised(x, at):
    known = x[~np.isnan(x)]
    return (at - known.mean()) / known.std()


def scaled(x, at):
    low, high = np.nanmin(x), np.nanmax(x)
    return 2 * (np.clip(at, low, high) - low) / (high - low) - 1


@pytest.fixture(name="x")
def training_column():
    return column(maps.Hat(), n=200)


@pytest.fixture(name="at")
def new_column():
    return np.random.default_rng(7).uniform(-4, 10, size=50)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_polynomial_is_the_powers(x, at, d):
    expected = np.vander(standardised(x, at), d, increasing=True)
    np.testing.assert_allclose(maps.Polynomial(d).fit(x).dense(at), expected, rtol=1e-6)


@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_normalised_polynomial_is_the_powers_over_their_norm(x, at, d):
    powers = np.vander(standardised(x, at), d, increasing=True)
    expected = powers / np.linalg.norm(powers, axis=1, keepdims=True)
    fit = maps.Polynomial(d, normalize=True).fit(x)
    np.testing.assert_allclose(fit.dense(at), expected, atol=1e-6)


@pytest.mark.parametrize("d", [1, 2, 3, 200])
def test_normalised_polynomial_has_unit_norm_anywhere(x, d):
    at = np.concatenate([FAR, [1e30, -1e30, 1.0, -1.0, 0.999, 1.001, np.nan]])
    dense = maps.Polynomial(d, normalize=True).fit(x).dense(at)
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1.0, rtol=1e-6)


def test_standardised_polynomial_has_standard_elements(x):
    weight = np.random.default_rng(0).integers(1, 4, len(x)).astype(float)
    weight[np.isnan(x)] = 0.0
    dense = maps.Polynomial(5, standardize=True).fit(x, sample_weight=weight).dense(x)[:, 1:]
    mean = np.average(dense, axis=0, weights=weight)
    var = np.average((dense - mean) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(var, 1.0, rtol=1e-5)


def test_standardised_polynomial_does_not_magnify_rounding_error():
    x = np.array([0.1, 0.3] * 50)  # z = -1 and 1: every even power is constant
    dense = maps.Polynomial(5, standardize=True).fit(x).dense(np.array([0.1, 0.3]))
    np.testing.assert_allclose(dense, [[1, -1, 0, -1, 0], [1, 1, 0, 1, 0]], atol=1e-6)


def test_hats_interpolate_linearly_between_knots(x, at):
    fit = maps.Hat(n_knots=9).fit(x)
    identity = np.eye(len(fit.knots_))
    expected = np.column_stack([np.interp(at, fit.knots_, row) for row in identity])
    np.testing.assert_allclose(fit.dense(at)[:, 1:], expected, atol=FLOAT32)
    np.testing.assert_array_equal(fit.dense(fit.knots_)[:, 1:], identity)


@pytest.mark.parametrize("n_knots", [1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 290])
def test_hats_find_the_cell_of_every_number(n_knots):
    knots = np.cumsum(np.random.default_rng(n_knots).random(n_knots))
    between = (knots[1:] + knots[:-1]) / 2
    x = np.concatenate([knots, between, [knots[0] - 1, knots[-1] + 1, -1e308, 1e308]])
    index, value = maps.Hat.restore({}, {"knots_": knots}).encode(x)
    cell = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, max(n_knots - 2, 0))
    np.testing.assert_array_equal(index[:, 0], 1 + cell)
    np.testing.assert_array_equal(index[:, 1], np.minimum(2 + cell, n_knots))
    found = np.sum(value * knots[index - 1], axis=1)
    np.testing.assert_allclose(found, np.clip(x, knots[0], knots[-1]), rtol=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_bsplines_match_scipy(x, at, degree):
    fit = maps.BSpline(n_knots=6, degree=degree).fit(x)
    knots = np.concatenate([-np.ones(degree), fit.breaks_, np.ones(degree)])
    expected = ScipyBSpline.design_matrix(scaled(x, at), knots, degree).toarray()
    np.testing.assert_allclose(fit.dense(at)[:, 1:], expected, atol=FLOAT32)


def test_fourier_is_cosines_and_sines(x, at):
    u = scaled(x, at)
    expected = [np.ones_like(u)]
    for k in range(1, 13):
        expected += [np.cos(k * np.pi * u), np.sin(k * np.pi * u)]
    fit = maps.Fourier(n_frequencies=12).fit(x)
    np.testing.assert_allclose(fit.dense(at), np.column_stack(expected), atol=FLOAT32)
    assert fit.degrees[:5].tolist() == [0, 1, 1, 2, 2]
    np.testing.assert_array_equal(np.diag(matrix(fit.roughness)), fit.degrees**4)


def test_trigonometric_is_cosine_and_sine_over_a_quarter_circle(x, at):
    angle = np.pi / 4 * (scaled(x, at) + 1)
    expected = np.column_stack([np.cos(angle), np.sin(angle)])
    np.testing.assert_allclose(maps.Trigonometric().fit(x).dense(at), expected, atol=FLOAT32)


@pytest.mark.parametrize("d", [1, 2, 12])
def test_chebyshev_matches_numpy(x, at, d):
    expected = numpy_chebyshev.chebvander(scaled(x, at), d - 1)
    np.testing.assert_allclose(maps.Chebyshev(d).fit(x).dense(at), expected, atol=FLOAT32)


@given(
    x=st.lists(
        st.sampled_from([0.5, 0.6, 0.7, 0.7000000000000001, 0.1 * 7 + 2e-16, 0.9]), min_size=1
    )
)
def test_edges_of_steps_divide_neighbouring_floats(x):
    values = np.unique(x)
    step = maps.Step().fit(np.array(x))
    assert np.all(np.diff(step.edges_) > 0)
    np.testing.assert_array_equal(step.encode(values)[0][:, 0], 1 + np.arange(len(values)))


def test_onehot_is_the_indicator_of_kept_categories():
    x = np.array([4, 4, 0, 0, 0, 2, -1])
    fit = maps.OneHot(min_count=2).fit(x)
    at = np.array([-1, 0, 1, 2, 3, 4, 5, 10**9])
    expected = np.column_stack([np.ones(8), at == 0, at == 4])
    np.testing.assert_array_equal(fit.dense(at), expected)


def test_onehot_keeps_a_category_of_small_weight():
    fit = maps.OneHot().fit(np.array([0, 1, 2]), sample_weight=np.array([0.1, 0.0, 0.2]))
    assert fit.lookup_.tolist() == [1, 0, 2]


def test_a_million_categories_take_one_slot():
    codes = np.random.default_rng(0).permutation(1_000_000)
    fit = maps.OneHot(min_count=1).fit(codes)
    index, value = fit.encode(codes)
    assert fit.dim == 1_000_001
    np.testing.assert_array_equal(index[:, 0], codes + 1)
    assert value.min() == 1.0


# ---- parameters and names ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (maps.Polynomial(d=0), "Polynomial got d=0. It must be an integer >= 1."),
        (maps.Polynomial(d=2.5), "Polynomial got d=2.5."),
        (maps.Polynomial(d=True), "Polynomial got d=True."),
        (maps.Polynomial(normalize=True, standardize=True), "Choose one"),
        (maps.Hat(n_knots=1), "Hat got n_knots=1. It must be an integer >= 2."),
        (maps.Hat(n_knots="many"), "Hat got n_knots='many'."),
        (maps.Hat(by_target=1.5), "Hat got by_target=1.5. It must be a number from 0 to 1."),
        (maps.Hat(by_target=True), "Hat got by_target=True."),
        (maps.Hat(by_target="half"), "Hat got by_target='half'."),
        (maps.BSpline(n_knots=1), "BSpline got n_knots=1."),
        (maps.BSpline(degree=0), "BSpline got degree=0."),
        (maps.Fourier(n_frequencies=0), "Fourier got n_frequencies=0."),
        (maps.Chebyshev(d=-1), "Chebyshev got d=-1."),
        (maps.OneHot(min_count=0), "OneHot got min_count=0."),
        (maps.Polynomial(standardize=maps.Hat()), "Polynomial got standardize=Hat("),
        (maps.Polynomial(normalize="no"), "Polynomial got normalize='no'."),
    ],
)
def test_wrong_parameters_are_named_in_fit(bad, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        bad.fit(np.array([0, 1, 2]))


def test_numpy_parameters_become_json_scalars():
    fit = maps.Hat(n_knots=np.int64(5)).fit(np.arange(9.0))
    assert json.dumps(fit.params()) == '{"n_knots": 5, "by_target": 0.0}'


def test_resolve_takes_a_name_or_an_instance():
    hat = maps.Hat(n_knots=3)
    assert maps.resolve(hat) is hat
    for name, cls in maps.MAPS.items():
        assert type(maps.resolve(name)) is cls
        assert name == cls.__name__.lower()


def test_resolve_says_what_would_be_right():
    message = f"Unknown map 'spline'. Choose from: {', '.join(sorted(maps.MAPS))}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        maps.resolve("spline")
    with pytest.raises(TypeError, match=re.escape("got the class Hat. Write Hat().")):
        maps.resolve(maps.Hat)
    with pytest.raises(TypeError, match="got 3 of type int"):
        maps.resolve(3)


def test_all_slots_in_another_order_are_refused():
    class Backwards(parts.Steps):
        def encode(self, x):
            index, value = super().encode(x)
            return index[:, ::-1], value[:, ::-1]

    x = np.arange(9.0)
    with pytest.raises(ValueError, match=r"has all_slots, but encode returns .* another order"):
        encode([Backwards().fit(x)], [x])
