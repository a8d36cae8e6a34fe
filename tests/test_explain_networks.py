"""Closed forms of every format equal averages over the whole product grid."""

from dataclasses import replace
from itertools import combinations
from math import comb

import needs
import numpy as np
import pandas as pd
import parts
import pytest
from explained import average, pure_terms, relative, variance

from polyadic import CPRegressor, TNClassifier, TNRegressor, explain, maps, networks
from polyadic.data.marginals import design
from polyadic.explain import networks as closed_forms
from polyadic.explain.cp import CPReading
from polyadic.explain.models import code, read
from polyadic.networks.cores import make_cores

torch = needs.package("torch")

ROWS = 40
CASES = [case for case in parts.FORMATS if case[0] != "pn"]
SHAPES = [(1, 1), (3, 3), (4, 1), (5, 2)]  # columns and outputs


def name_of(case):
    name, kwargs = case
    return "-".join([name, *(f"{k}{v}" for k, v in kwargs.items())])


every_format = pytest.mark.parametrize("case", CASES, ids=name_of)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def table(n_columns):
    """Return a table of few distinct values: numbers and categories, some of them missing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame()
    for n in range(n_columns):
        if n % 3 == 2:
            values = pd.Categorical(rng.choice(["u", "v", "w"], ROWS, p=[0.5, 0.3, 0.2]))
        else:
            values = rng.choice([-1.0, 0.2, 0.9, 2.0], ROWS, p=[0.4, 0.3, 0.2, 0.1])
        frame[f"c{n}"] = values
    frame.iloc[::7, -1] = None
    frame.iloc[3::9, 0] = None
    return frame


def model_of(case, shape, seed=0):
    """Return a fitted model with a random network of a format as its tensor, and its table."""
    n_columns, n_outputs = shape
    X = table(n_columns)
    y = np.random.default_rng(1).normal(size=(ROWS, n_outputs))
    families = [maps.Polynomial(3), maps.Hat(n_knots=3), maps.OneHot()]
    own = {f"c{n}": families[n % 3] for n in range(n_columns)}
    model = CPRegressor(maps=own, rank=2, n_members=1, max_iter=1, random_state=0).fit(X, y)
    rng = np.random.default_rng(seed + 5)
    network = parts.random_network(*case, [m.dim for m in model.maps_], n_outputs, seed)
    center, scale = rng.normal(size=n_outputs), rng.uniform(0.3, 3.0, n_outputs)
    model.tensor_ = network.rescale(center, scale)
    return model, X


def parts_of(model, coded):
    """Return phi' core of every column, (n, N, K), by the formula."""
    out = []
    for m, x, core in zip(model.maps_, coded, model.tensor_.factors):
        phi = m.dense(x)
        if not model.tensor_.format.constants:
            phi[:, 0] = 0.0
        out.append(phi @ core)
    return np.stack(out, axis=1)


def raw(model, coded):
    tensor = model.tensor_
    contracted = tensor.format.contract(parts_of(model, coded), tensor.extras)
    return tensor.to_raw(contracted)


def whole_grid(model, X):
    """Return f : (k_1, ..., k_N, L) on all combinations of values, the values and their shares."""
    values, shares = [], []
    for column in model.columns_.code(X):
        _, first, counts = np.unique(
            np.nan_to_num(column.astype(float), nan=99.0), return_index=True, return_counts=True
        )
        values.append(column[first])
        shares.append(counts / len(column))
    grid = np.meshgrid(*values, indexing="ij")
    f = raw(model, [g.ravel() for g in grid])
    return f.reshape(*grid[0].shape, -1), values, shares


def subsets(n_columns):
    return [t for k in range(n_columns + 1) for t in combinations(range(n_columns), k)]


def subset_values(model, row, background):
    """Return the value of every set of columns for one coded row: the mean with them fixed."""
    out = {}
    for chosen in subsets(len(row)):
        mixed = [np.full(len(b), row[n]) if n in chosen else b for n, b in enumerate(background)]
        out[chosen] = raw(model, mixed).mean(axis=0)
    return out


def subset_values_on_grid(f, at, shares):
    """The same over the product of the marginals; `at` is the row's position on the grid."""
    out = {}
    for chosen in subsets(len(shares)):
        mean = average(f, shares, chosen)
        out[chosen] = mean[tuple(i if n in chosen else 0 for n, i in enumerate(at))]
    return out


def joined(chosen, *more):
    return tuple(sorted((*chosen, *more)))


def shapley_by_definition(value, n_columns):
    """Return Shapley values and interaction indices of a game, from all sets of columns."""
    n_outputs = len(value[()])
    single, pairs = np.zeros((n_columns, n_outputs)), np.zeros((n_columns, n_columns, n_outputs))
    for i in range(n_columns):
        for s in subsets(n_columns):
            if i not in s:
                weight = 1 / (n_columns * comb(n_columns - 1, len(s)))
                single[i] += weight * (value[joined(s, i)] - value[s])
        for j in range(i + 1, n_columns):
            for s in subsets(n_columns):
                if i not in s and j not in s:
                    weight = 1 / ((n_columns - 1) * comb(n_columns - 2, len(s)))
                    both = value[joined(s, i, j)] + value[s]
                    pairs[i, j] += weight * (both - value[joined(s, i)] - value[joined(s, j)])
    return single, pairs


# ---- formats ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", parts.FORMATS, ids=name_of)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_weighed_outputs_are_sums_of_multiples_of_the_outputs(case, n_outputs):
    network = parts.random_network(*case, [2, 3, 2], n_outputs)
    form, matrix = network.format, np.random.default_rng(9).normal(size=(n_outputs, n_outputs))
    phis = [np.random.default_rng(n).normal(size=(5, d)) for n, d in enumerate(network.dims)]
    cores, extras = form.weigh_outputs(network.factors, network.extras, matrix)
    before, after = (
        form.contract(np.stack([p @ c for p, c in zip(phis, some)], axis=1), more)
        for some, more in ((network.factors, network.extras), (cores, extras))
    )
    np.testing.assert_allclose(after, before @ matrix, rtol=1e-9, atol=1e-12)


@every_format
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_format_written_as_a_network_is_the_same_function(case, n_outputs):
    form = networks.resolve(case[0])([1] * 5, n_outputs=n_outputs, **case[1])
    rng = np.random.default_rng(0)
    extras = [rng.normal(size=s) for s in form.extra_shapes()]
    projected = rng.normal(size=(6, 5, form.width))
    network, ends, lift = form.as_network(extras)
    np.testing.assert_allclose(
        network.contract(lift(projected), ends),
        form.contract(projected, extras),
        rtol=1e-10,
        atol=1e-12,
    )


# ---- averages and variances ---------------------------------------------------------------------


@every_format
def test_the_grid_of_these_tests_agrees_with_the_model(case):
    model, X = model_of(case, (4, 1))
    network = TNRegressor()
    vars(network).update({k: v for k, v in vars(model).items() if k.endswith("_")})
    np.testing.assert_allclose(
        network.raw(X), raw(model, model.columns_.code(X)), rtol=1e-4, atol=1e-4
    )


@every_format
@every_shape
def test_base_and_every_partial_dependence_are_averages_over_the_grid(case, shape):
    model, X = model_of(case, shape)
    f, values, shares = whole_grid(model, X)
    reading, terms = read(model), pure_terms(f, shares)
    np.testing.assert_allclose(reading.base(), terms[()].ravel(), rtol=1e-9, atol=1e-10)
    size = np.abs(f).max()
    for term in subsets(shape[0]):
        if not 1 <= len(term) <= 3:
            continue
        designs = [design(model.maps_[n], values[n]) for n in term]
        for pure, wanted in ((False, average(f, shares, term)), (True, terms[term])):
            found = reading.partial(term, designs, pure)
            expected = wanted.reshape(*(len(values[n]) for n in term), -1)
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-11 * size)


@every_format
@every_shape
def test_every_variance_is_that_of_the_whole_grid(case, shape):
    model, X = model_of(case, shape)
    f, _, shares = whole_grid(model, X)
    terms = pure_terms(f, shares)
    terms.pop(())
    wanted = {term: variance(value, shares) for term, value in terms.items()}
    total, reading = sum(wanted.values()), read(model)
    close = {"rtol": 1e-8, "atol": 1e-10 * total}
    found = dict(reading.variances(shape[0]))
    assert set(found) == set(wanted)
    np.testing.assert_allclose([found[t] for t in wanted], list(wanted.values()), **close)
    assert reading.total_variance() == pytest.approx(total, rel=1e-9)
    of_columns = [sum(v for t, v in wanted.items() if n in t) for n in range(shape[0])]
    np.testing.assert_allclose(reading.column_variances(), of_columns, **close)
    orders = [sum(v for t, v in wanted.items() if len(t) == k + 1) for k in range(shape[0])]
    np.testing.assert_allclose(reading.order_variances(), orders, **close)


@every_format
def test_a_partial_dependence_over_rows_is_their_mean(case, monkeypatch):
    monkeypatch.setattr(closed_forms, "_MOST_NUMBERS", 200)  # several chunks
    model, X = model_of(case, (4, 1))
    grid = [[-1.0, 0.5, np.nan], ["u", "w"]]
    found = explain.partial_dependence(model, ["c1", "c2"], grid, background=X.iloc[:11])
    for i, a in enumerate(grid[0]):
        for j, b in enumerate(grid[1]):
            rows = X.iloc[:11].assign(c1=a, c2=b)
            wanted = raw(model, code(model, rows)).mean(axis=0)
            np.testing.assert_allclose(found.values[i, j], wanted, rtol=1e-9, atol=1e-10)


@every_format
def test_a_fine_grid_is_a_coarse_one_with_more_points(case):
    model, _ = model_of(case, (3, 3))
    reading = read(model)
    fine = np.linspace(-1, 2, 30)  # more points than a part has numbers, in most formats
    all_of_them = reading.partial((0, 1), [design(model.maps_[n], fine) for n in (0, 1)])
    some = reading.partial((0, 1), [design(model.maps_[n], fine[::15]) for n in (0, 1)])
    np.testing.assert_allclose(all_of_them[::15, ::15], some, rtol=1e-9, atol=1e-10)


@every_format
def test_public_functions_take_every_format(case):
    model, X = model_of(case, (3, 1))
    effects = explain.effects(model)
    found = explain.interactions(model, top=None)
    assert effects.share.sum() == pytest.approx(found.orders[0])
    assert sum(found.orders) == pytest.approx(1.0)
    assert explain.sobol(model).orders.sum() == pytest.approx(1.0)
    assert explain.in_words(model)
    assert "prediction" in explain.describe(model, X[:1])


@pytest.mark.parametrize(
    "function", [explain.effects, explain.interactions, explain.sobol, explain.in_words]
)
def test_a_polynomial_network_is_refused_with_the_formats_that_work(function):
    model, _ = model_of(("pn", {"rank": 2, "order": 2}), (3, 1))
    with pytest.raises(ValueError, match=r"'pn' multiplies a column with itself.* tt, tr, ht"):
        function(model)


def test_a_format_without_a_tensor_is_refused():
    class Other(networks.FORMATS["fm"]):
        name = "other"
        as_network = networks.Format.as_network

    with pytest.raises(ValueError, match="format='other' has no weight tensor"):
        Other([2, 2], 1).as_network([])


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_cp_written_as_a_tensor_train_is_explained_like_cp(n_outputs):
    model, X = model_of(("cp", {"rank": 3}), (4, n_outputs))
    tensor, n_columns = model.tensor_, 4
    wanted, rows = read(model), code(model, X.iloc[:6])
    form = networks.resolve("tt")(tensor.dims.tolist(), 3, n_outputs)
    train = networks.cp_to_tt(tensor.factors, tensor.weights)
    model.tensor_ = make_cores(form, *train, tensor.intercept)
    found = read(model)
    assert isinstance(wanted, CPReading)
    assert isinstance(found, closed_forms.NetworkReading)
    np.testing.assert_allclose(found.base(), wanted.base(), rtol=1e-9)
    ours, theirs = (dict(r.variances(n_columns)) for r in (found, wanted))
    for term, size in theirs.items():
        assert ours[term] == pytest.approx(size, rel=1e-8, abs=1e-12)
    for method in ("order_variances", "column_variances", "total_variance"):
        np.testing.assert_allclose(getattr(found, method)(), getattr(wanted, method)(), rtol=1e-8)
    for background in (None, code(model, X)):
        pairs = [r.shapley(rows, background, 1) for r in (found, wanted)]
        for a, b in zip(*pairs):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_a_hundred_columns_stay_in_range():
    n_columns = 100
    X = np.random.default_rng(0).choice([-1.0, 1.0], size=(30, n_columns))
    model = CPRegressor(
        maps=maps.Polynomial(2), rank=2, n_members=1, max_iter=1, random_state=0
    ).fit(X, X[:, 0])
    cores = [np.array([[1e-6] * 4, [0.0] * 4]) for _ in range(n_columns)]
    cores[7][1] = 1e-6
    network = parts.random_network("tt", {"rank": 2}, [2] * n_columns, 1)
    model.tensor_ = replace(network, factors=cores, extras=[np.ones(2), np.ones((2, 1))])
    reading = read(model)
    assert reading.total_variance() == pytest.approx(0.0, abs=1e-300)  # about 1e-1100
    model.tensor_ = replace(model.tensor_, factors=[5e5 * c for c in cores])
    reading = read(model)
    found = np.array([v for _, v in reading.variances(1)])
    assert found.argmax() == 7
    assert found[7] == pytest.approx(reading.total_variance(), rel=1e-9)


# ---- Shapley values -----------------------------------------------------------------------------


@every_format
@every_shape
def test_shapley_values_are_those_of_all_sets_of_columns(case, shape):
    model, X = model_of(case, shape)
    f, values, shares = whole_grid(model, X)
    coded, n_columns = code(model, X.iloc[:4]), shape[0]
    found, base = read(model).shapley(coded, None, 1)
    pairs = read(model).shapley_pairs(coded, None, 1)
    assert base == pytest.approx(average(f, shares, ()).ravel(), rel=1e-9)
    size = np.abs(f).max()
    for i in range(4):
        at = [
            int(np.flatnonzero(np.isclose(v.astype(float), x[i], equal_nan=True))[0])
            for v, x in zip(values, coded)
        ]
        game = subset_values_on_grid(f, at, shares)
        single, both = shapley_by_definition(game, n_columns)
        np.testing.assert_allclose(found[i], single, rtol=1e-8, atol=1e-11 * size)
        np.testing.assert_allclose(pairs[i], both, rtol=1e-8, atol=1e-11 * size)


@every_format
def test_shapley_values_against_rows_are_their_mean(case, monkeypatch):
    monkeypatch.setattr(
        closed_forms, "_MOST_NUMBERS", 500
    )  # several chunks of rows and of backgrounds
    model, X = model_of(case, (3, 3))
    rows, background = code(model, X.iloc[:5]), code(model, X.iloc[10:23])
    reading = read(model, X.iloc[10:23])
    found, base = reading.shapley(rows, background, 1)
    pairs = reading.shapley_pairs(rows, background, 1)
    np.testing.assert_allclose(base, raw(model, background).mean(axis=0), rtol=1e-9)
    for i in range(5):
        single, both = shapley_by_definition(
            subset_values(model, [x[i] for x in rows], background), 3
        )
        np.testing.assert_allclose(found[i], single, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(pairs[i], both, rtol=1e-8, atol=1e-10)


@every_format
def test_shapley_values_and_base_add_up_to_the_prediction(case):
    model, X = model_of(case, (5, 2))
    found = explain.shapley(model, X)
    np.testing.assert_allclose(
        found.base + found.values.sum(axis=1), raw(model, code(model, X)), rtol=1e-8, atol=1e-9
    )
    halves = explain.shapley_interactions(model, X[:3]).values
    np.testing.assert_allclose(halves.sum(axis=2), found.values[:3], rtol=1e-8, atol=1e-9)


# ---- fitted models ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(networks.FORMATS) - {"pn"}))
def test_a_fitted_classifier_is_explained_as_it_predicts(name):
    X = table(4)
    y = np.array(["a", "b", "c"])[np.arange(ROWS) % 3]
    model = TNClassifier(name, rank=2, max_iter=2, random_state=0).fit(X, y)
    found = explain.shapley(model, X)
    assert found.outputs == ["a", "b", "c"]
    np.testing.assert_allclose(
        found.base + found.values.sum(axis=1), relative(model, model.raw(X)), rtol=1e-5, atol=1e-5
    )
    assert explain.sobol(model).orders.sum() == pytest.approx(1.0)
    assert explain.coefficients(model, output="c").rows
