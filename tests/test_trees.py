"""Laws of trees in a CP model: a leaf is a term, and all closed forms hold for it."""

from types import SimpleNamespace

import numpy as np
import pytest
from parts import fitted_table, random_cores, random_trees

from polyadic import maps
from polyadic.data import marginals
from polyadic.explain import leaves as reading_leaves
from polyadic.explain.cp import CPReading
from polyadic.explain.joined import JoinedReading
from polyadic.kernels.trees import Nodes, one_way
from polyadic.networks import trees as forests
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import category_map
from polyadic.training.model import explained_maps

SMOOTH = [maps.Hat(n_knots=4), maps.OneHot(), maps.Hat(n_knots=3), maps.Polynomial(d=3)]
CASES = {
    "one output": {},
    "three outputs": {"n_outputs": 3},
    "leaves of all outputs": {"n_outputs": 3, "width": 3},
    "additive part": {"additive": True, "n_outputs": 2},
    "deep": {"depth": 9, "n_trees": 2},
    "stumps": {"depth": 1},
    "single leaves": {"depth": 0},
    "no smooth part": {"smooth": False},
}


def make(seed=0, n_trees=5, n_outputs=1, width=1, depth=3, additive=False, smooth=True):
    """Return a model of smooth terms and trees, its cores, and coded rows."""
    rng = np.random.default_rng(seed)
    own, columns = fitted_table(SMOOTH, 50, rng)
    steps = [
        category_map(4) if m.kind == "categorical" else maps.Step(n_bins=6).fit(x)
        for m, x in zip(own, columns)
    ]
    cores = random_cores([m.dim for m in own], 3, n_outputs, seed, additive=additive)
    if not smooth:
        cores = CPCores(cores.factors, 0.0 * cores.weights, cores.intercept)
    trees = random_trees(steps, n_trees, n_outputs, rng, depth, width)
    cores = CPCores(cores.factors, cores.weights, cores.intercept, cores.additive, trees)
    return model_of(own, cores), columns


def model_of(own, cores):
    kinds = [SimpleNamespace(name=str(n), categories=None) for n in range(len(own))]
    columns = SimpleNamespace(columns=kinds)
    return SimpleNamespace(columns_=columns, maps_=own, tensor_=cores, n_jobs=1)


def dense_leaves(trees, n_outputs):
    """Return factors (d_n, R) and weights (R, L) of the leaves, with every element written out."""
    leaves, factors = trees.leaves, []
    for n, own in enumerate(trees.maps):
        inside = leaves.indicators(n, np.arange(own.dim))
        factors.append(np.vstack([inside[:1], inside[1:] - inside[:1]]))
    return factors, leaves.weights(n_outputs)


def dense_model(model):
    """Return the same model without trees: the leaves are terms like all others."""
    cores, trees = model.tensor_, model.tensor_.trees
    factors, weights = dense_leaves(trees, cores.n_outputs)
    both = explained_maps(model.maps_, cores)
    out, additive = [], []
    for n, m in enumerate(both):
        core = np.zeros((m.dim, cores.rank + len(weights)))
        width = model.maps_[n].dim
        core[:width, : cores.rank] = cores.factors[n]
        core[width:, cores.rank :] = factors[n][1:]
        core[0, cores.rank :] = factors[n][0]
        out.append(core)
        if cores.additive is not None:
            own = np.zeros((m.dim, cores.n_outputs))
            own[:width] = cores.additive[n]
            additive.append(own)
    joined = CPCores(out, np.vstack([cores.weights, weights]), cores.intercept, additive or None)
    return model_of(both, joined)


def readings(**settings):
    """Return the reading of a joined model, that of its dense form, and coded rows."""
    model, columns = make(**settings)
    both = explained_maps(model.maps_, model.tensor_)
    found = marginals.learn(model.columns_.columns, both, columns)
    dense = dense_model(model)
    return (
        JoinedReading(model, model.tensor_, found),
        CPReading(dense, dense.tensor_, found),
        columns,
    )


@pytest.fixture(params=list(CASES))
def pair(request):
    return readings(**CASES[request.param])


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def evaluate(dense, columns):
    """Return the raw prediction of a dense model in double precision."""
    cores, product, extra = dense.tensor_, 1.0, dense.tensor_.intercept
    for n, x in enumerate(columns):
        phi = dense.maps_[n].dense(x)
        product = product * (phi @ cores.factors[n])
        if cores.additive is not None:
            extra = extra + phi @ cores.additive[n]
    return extra + product @ cores.weights


@pytest.mark.parametrize("case", CASES)
def test_leaves_predict_what_the_trees_predict(case):
    model, columns = make(**CASES[case])
    trees, n_outputs = model.tensor_.trees, model.tensor_.n_outputs
    raw = np.zeros((len(columns[0]), n_outputs))
    trees.add_to(raw, columns)
    factors, weights = dense_leaves(trees, n_outputs)
    phi = [m.dense(x) for m, x in zip(trees.maps, columns)]
    product = np.prod([p @ f for p, f in zip(phi, factors)], axis=0)
    close(raw, product @ weights)


def test_base(pair):
    joined, dense, _ = pair
    close(joined.base(), dense.base())


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("term", [(0,), (1,), (0, 1), (1, 2, 3)])
def test_partial_dependence(pair, term, pure):
    joined, dense, columns = pair
    designs = [marginals.design(joined.maps[n], columns[n][:7]) for n in term]
    close(joined.partial(term, designs, pure), dense.partial(term, designs, pure))
    if not pure:
        close(
            joined.partial(term, designs, False, columns),
            dense.partial(term, designs, False, columns),
        )


@pytest.mark.parametrize("max_order", [1, 2, 4])
def test_variances_of_sets(pair, max_order):
    joined, dense, _ = pair
    found, wanted = dict(joined.variances(max_order)), dict(dense.variances(max_order))
    assert list(found) == list(wanted)
    close(list(found.values()), list(wanted.values()))


def test_variances_of_orders_and_columns(pair):
    joined, dense, _ = pair
    close(joined.order_variances(), dense.order_variances())
    close(joined.column_variances(), dense.column_variances())
    close(joined.total_variance(), dense.total_variance())


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("longest", [0, 2, 10])
def test_shapley_values(pair, background, longest, monkeypatch):
    monkeypatch.setattr(reading_leaves, "_LONGEST", longest)
    joined, dense, columns = pair
    others = [x[::3] for x in columns] if background else None
    values, base = joined.shapley(columns, others, 1)
    wanted, wanted_base = dense.shapley(columns, others, 1)
    close(values, wanted)
    close(base, wanted_base)
    close(joined.shapley_pairs(columns, others, 1), dense.shapley_pairs(columns, others, 1))


def test_shapley_values_and_variances_are_the_same_for_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(reading_leaves, "_CHUNK", 7)
    monkeypatch.setattr(reading_leaves, "_TABLE", 64)
    joined, _, columns = readings(n_trees=20, n_outputs=2)
    one, two = (joined.shapley(columns, None, n)[0] for n in (1, 2))
    assert np.array_equal(one, two)
    numbers = reading_leaves.SetNumbers(4, 2)
    for a, b in zip(*(joined.trees.variances(numbers, n) for n in (1, 2))):
        assert np.array_equal(a, b)


def test_joined_forests_predict_the_weighted_sum():
    one, columns = make(seed=1)
    first = one.tensor_.trees
    rng = np.random.default_rng(5)
    steps = [
        m if m.kind == "categorical" else maps.Step(n_bins=4).fit(x[:20])
        for m, x in zip(first.maps, columns)
    ]
    second = random_trees(steps, 4, 1, rng)
    both = forests.join([first, second], [0.25, 2.0])
    raws = np.zeros((3, len(columns[0]), 1))
    for raw, own in zip(raws, (first, second, both)):
        own.add_to(raw, columns)
    close(raws[2], 0.25 * raws[0] + 2.0 * raws[1])


def test_order_of_columns_and_scale():
    model, columns = make(n_outputs=2)
    trees, order, scale = model.tensor_.trees, [2, 0, 3, 1], np.array([2.0, -3.0])
    raws = np.zeros((3, len(columns[0]), 2))
    trees.add_to(raws[0], columns)
    trees.reordered(order).add_to(raws[1], [columns[n] for n in order])
    trees.rescale(scale).add_to(raws[2], columns)
    assert np.array_equal(raws[0], raws[1])
    close(raws[2], raws[0] * scale)


def test_too_many_pairs_of_leaves_are_refused(monkeypatch):
    monkeypatch.setattr(reading_leaves, "_MOST_PAIRS", 10)
    joined, _, _ = readings()
    with pytest.raises(ValueError, match="pairs of them"):
        joined.total_variance()


@pytest.mark.parametrize("case", CASES)
def test_masks_predict_what_the_nodes_predict(case, monkeypatch):
    model, columns = make(**CASES[case])
    trees = model.tensor_.trees
    raws = np.zeros((2, len(columns[0]), model.tensor_.n_outputs))
    trees.add_to(raws[0], columns)
    monkeypatch.setattr(forests, "_MANY_ROWS", 1)
    trees.add_to(raws[1], columns)
    assert trees.masks is not None or CASES[case].get("depth", 3) > 6
    assert np.array_equal(*raws)


def test_trees_of_many_leaves_have_no_masks(monkeypatch):
    model, _ = make(depth=9, n_trees=2)
    monkeypatch.setattr(forests, "_MOST_LEAVES", 4)
    assert model.tensor_.trees.masks is None


def test_a_leaf_may_have_more_conditions_than_a_word_has_bits():
    n_columns = 40
    columns = [np.tile([0.0, 1.0], 20) for _ in range(n_columns)]
    columns[35] = np.zeros(40)  # no row meets the last conditions
    steps = [maps.Step(n_bins=2).fit(np.array([0.0, 1.0])) for _ in columns]
    inner = np.arange(n_columns, dtype=np.int32)
    nodes = Nodes(
        column=np.column_stack([inner, np.full(n_columns, -1)]).ravel().tolist() + [-1],
        place=np.ones(2 * n_columns + 1),
        missing=np.zeros(2 * n_columns + 1),
        left=np.column_stack([2 * inner + 1, np.full(n_columns, -1)]).ravel().tolist() + [-1],
        right=np.column_stack([2 * inner + 2, np.full(n_columns, -1)]).ravel().tolist() + [-1],
        sets=np.zeros((0, 1), np.uint8),
        share=one_way(2 * n_columns + 1),
    )
    types = (np.int32, np.int32, np.uint8, np.int32, np.int32, np.uint8, np.float64)
    nodes = Nodes(*(np.asarray(a).astype(t) for a, t in zip(nodes, types)))
    value = np.zeros((2 * n_columns + 1, 1))
    value[-1] = 1.0  # the leaf that is above all edges
    zero = np.zeros(1, np.int32)
    trees = forests.Trees(steps, nodes, zero, zero, value)
    reading = reading_leaves.LeafReading(trees, 1, [np.array([0.0, 0.5, 0.5])] * n_columns)
    raw = np.zeros((40, 1))
    trees.add_to(raw, columns)
    rest = reading._rest((), trees.bins(columns))
    np.testing.assert_allclose(rest @ reading.weights, raw.mean(axis=0), atol=1e-15)
