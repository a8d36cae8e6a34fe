"""The smallest arguments of every kernel that Python calls, in the types in which it is called.

`polyadic.training.compiling` uses them to compile kernels in advance, and tests call every kernel
with them. A kernel is compiled once per combination of argument types: an argument that a model may
lack (dense columns, an additive part, an order penalty) is an array or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyadic.kernels import (
    adam,
    additive,
    als,
    banded,
    boosting,
    encode,
    leaves,
    losses,
    penalties,
    predict,
    shapley,
    tree,
    trees,
    variances,
)
from polyadic.kernels.cp import GUARD, Layout
from polyadic.kernels.jit import VECTORS
from polyadic.kernels.simd import PAD

if VECTORS or TYPE_CHECKING:
    from polyadic.kernels import sharing, threads

# One row, one column of three elements (the constant and two hats), rank one, one output.
_WIDTH, _HEIGHT = PAD, 3 + 2 * GUARD
_F4, _F8 = np.float32, np.float64


class Form(NamedTuple):
    """What a model has besides sparse local features and factors."""

    dense: bool = False  # a column with `all_slots`
    additive: bool = False
    order: bool = False  # the order penalty
    own_loss: bool = False  # a user's loss, which is called by its address


_PLAIN = Form()
Example = tuple[Callable[..., Any], tuple[Any, ...]]


def _layout(form: Form) -> Layout:
    slots, first = np.array([0, 2]), np.array([GUARD])
    yes = np.array([True])
    return Layout(slots, first, yes, yes if form.dense else None)  # type: ignore[arg-type]


def _parameters(form: Form) -> adam.Parameters:
    part = np.zeros(_HEIGHT, _F4) if form.additive else None
    return adam.Parameters(np.zeros(_HEIGHT * _WIDTH, _F4), np.zeros(_WIDTH, _F4), part)


def _job(form: Form) -> adam.Job:
    parameters, dims = _parameters(form), np.array([3])
    order = None
    if form.order:
        order = penalties.OrderPenalty.make(1.0, np.ones(_HEIGHT), dims, _WIDTH, _F4)
    return adam.Job(
        parameters=parameters,
        moments=tuple(None if p is None else adam.AdamMoments.start(p) for p in parameters),  # type: ignore[arg-type]
        clock=adam.Clock(
            np.ones(_HEIGHT, _F4),
            np.ones(_HEIGHT, _F4),
            np.zeros(_HEIGHT, np.int64),
            np.zeros(1, np.int64),
        ),
        gradients=parameters.zeros(),
        layout=_layout(form),
        rows=adam.FlatRows(_slot(), np.ones(2, _F4), np.zeros((1, 1), _F4), np.ones(1, _F4)),
        intercept=np.zeros(1, _F4),
        loss=_loss(form, _F4),
        band=np.zeros((_HEIGHT, 5), _F4),
        order=order,
        mask=np.ones(_WIDTH, _F4),
    )


def _loss(form: Form, dtype: type) -> losses.LossForm:
    """Return a loss of the right type; a user's loss has no function, and must not be called."""
    code, own = (losses.OWN, 0) if form.own_loss else (losses.SQUARED, None)
    return losses.LossForm(code, dtype(0.0), own)


def _slot() -> np.ndarray:
    return np.array([GUARD + 1, GUARD + 2], np.int32)


def adam_examples(form: Form) -> Iterator[Example]:
    """Yield an epoch of Adam, and its running averages."""
    job, always = _job(form), np.array([GUARD])
    workspace = adam.Workspace.make(job.parameters, 1, 1, always)
    rates, keep = np.full(1, 0.1, _F4), _F4(0.9)
    yield adam.train_epoch, (job, workspace, 1, np.arange(1), 1, rates, keep)
    yield adam.write_averages, (job, keep, job.parameters.zeros())


def joint_examples(form: Form = _PLAIN) -> Iterator[Example]:
    """Yield the two halves of a step that several workers take together."""
    job, always = _job(form), np.array([GUARD])
    workspace = adam.Workspace.make(job.parameters, 1, 1, always)
    yield adam.part_gradient, (job, workspace, 1, np.arange(1), 0, 1, _F4(1.0))
    rows = (_slot(), 2, np.arange(1), 0, 1, workspace.mark.copy(), workspace.touched.copy())
    yield adam.list_touched, rows
    yield adam.joint_step, (job, np.arange(GUARD, GUARD + 3), _F4(0.1), _F4(0.9))


def split_examples(form: Form) -> Iterator[Example]:
    """Yield an epoch that threads share."""
    if not VECTORS or form.order:
        return
    job, workspace = _job(form), np.zeros(2 * _WIDTH, _F4)
    shared = threads.Shared(
        mark=np.zeros(_HEIGHT, np.uint8),
        product=workspace,
        behind=workspace.copy(),
        raw=np.zeros((1, 1), _F4),
        slope=np.zeros((1, 1), _F4),
    )
    layout = job.layout._replace(slots=np.array([0, 2, 2]))
    part = threads.Part(
        layout=layout,
        n_always=0,
        touched=np.empty(_HEIGHT, np.intp),
        n_met=np.array([0]),
        factors=workspace.copy(),
        prefix=workspace.copy(),
        suffix=workspace.copy(),
        loss=np.zeros(1),
        weights=np.zeros(_WIDTH, _F4),
    )
    board, parts = sharing.new_board(threads.PARTS), (part, part)
    rates, keep = np.full(1, 0.1, _F4), _F4(0.9)
    yield threads.split_epoch, (0, board, job, shared, parts, np.arange(1), 1, rates, keep, 0)


def contract_examples(form: Form) -> Iterator[Example]:
    """Yield the prediction of encoded rows."""
    workspace = predict.Workspace(np.empty(_WIDTH, _F4), np.empty(_WIDTH, _F4))
    rows = (_slot(), np.ones(2, _F4), np.arange(1))
    args = (np.zeros(1), _layout(form), *rows, workspace, np.empty((1, 1)))
    yield predict.contract, (*_parameters(form), *args)


def hats_examples(form: Form) -> Iterator[Example]:
    """Yield the prediction of rows whose columns all have hats."""
    if form.dense or form.order:
        return
    workspace = predict.HatWorkspace(
        slot=np.empty((predict.HAT_ROWS, 2), np.int32),
        value=np.empty((predict.HAT_ROWS, 2), _F4),
        products=np.empty(predict.HAT_ROWS * _WIDTH, _F4),
    )
    knots, ends, x = np.array([0.0, 1.0]), np.array([0, 2]), np.zeros((1, 1))
    args = (np.zeros(1), np.array([GUARD]), knots, ends, x, workspace, np.empty((1, 1)))
    yield predict.contract_hats, (*_parameters(form), *args)


def _slots() -> als.Slots:
    value, bounds = np.array([[0.5, 0.5]]), np.array([0, 1, 1, 1])
    return als.Slots(np.array([0]), value, np.array([0]), bounds, True, True)


def _quadratic() -> als.Quadratic:
    return als.Quadratic(np.ones((1, 1)), np.ones((1, 1)))


def als_examples() -> Iterator[Example]:
    """Yield the kernels of least squares, those that take longest to compile first."""
    square, row = np.zeros(_WIDTH * _WIDTH), np.ones(_WIDTH)
    core, band, slots, model = np.ones(3 * _WIDTH), np.ones((3, 5)), _slots(), _quadratic()
    workspace, dense_workspace = als.Workspace.make(_WIDTH, 2), banded.DenseWorkspace.make(_WIDTH)
    n, reach = 2 * _WIDTH, 2 * _WIDTH - 1
    system = banded.System.zeros(n, _WIDTH, reach, 3 * _WIDTH)
    yield als.normal_equations, (row, _WIDTH, row, slots, model, workspace, system)
    x, step = np.empty(n + reach + PAD), np.zeros(3 * _WIDTH)
    yield banded.solve, (system, _WIDTH, reach, True, 0.1, 1.0, dense_workspace, x, step)
    yield banded.add_penalties, (core, _WIDTH, True, band, None, None, system)
    yield banded.band_times, (band, core, _WIDTH, np.empty_like(core))
    yield banded.solve_dense, (square, row, 0.1, 1.0, dense_workspace, np.zeros(_WIDTH))
    yield als.weight_moments, (row, _WIDTH, model, 0, workspace, square, np.zeros(_WIDTH))
    yield als.multiply, (core, _WIDTH, slots, row, np.empty(_WIDTH))
    yield als.read_out, (row, _WIDTH, row, np.zeros((1, 1)))


def prior_examples(form: Form = _PLAIN) -> Iterator[Example]:
    """Yield what least squares with a prior needs in addition: curvatures, an additive model."""
    core, y, weight = np.ones(3 * _WIDTH), np.zeros((1, 1)), np.ones(1)
    band, square = np.ones((3, 5)), np.zeros(_WIDTH * _WIDTH)
    system = banded.System.zeros(2 * _WIDTH, _WIDTH, 3 * _WIDTH, 3 * _WIDTH)
    yield banded.add_penalties, (core, _WIDTH, True, band, band, square, system)
    yield als.gram, (core, core, 3, _WIDTH, np.zeros(_WIDTH * _WIDTH))
    loss = _loss(form, float)
    yield losses.curvatures, (loss, y, weight, np.zeros((1, 1)), np.empty((1, 1)))
    written = (np.zeros((1, 1)), np.empty((1, 1)), np.empty((1, 1)))
    yield losses.class_derivatives, (losses.LOGISTIC, y, weight, *written)
    slots, values, model, band = _slots(), np.ones((1, 1)), _quadratic(), np.eye(2, 4)
    yield additive.moments, (slots, values, values, 0, band.copy(), np.empty(2))
    work, numbers = additive.Workspace.make(2, 4), (1.0, 1.0, 1e-12)
    effect, raw = np.zeros((1, 2)), np.zeros((1, 1))
    yield additive.update, (slots, band, 1.0, effect, model, *numbers, work, raw)


def loss_examples(form: Form = _PLAIN) -> Iterator[Example]:
    """Yield the losses in double precision."""
    y, raw = np.zeros((1, 1)), np.zeros((1, 1))
    args = (y, np.ones(1), np.arange(1), 0, raw, np.empty((1, 1)))
    yield losses.weighted_losses, (_loss(form, float), *args)


def order_examples() -> Iterator[Example]:
    """Yield the order penalty in double precision."""
    order = penalties.OrderPenalty.make(1.0, np.ones(_HEIGHT), np.array([3]), _WIDTH, _F8)
    table, weights = np.ones(_HEIGHT * _WIDTH), np.ones(_WIDTH)
    args = (1, np.array([GUARD]), np.zeros_like(table), np.zeros_like(weights))
    yield penalties.order_gradient, (order, table, weights, *args)


def hat_examples(dtype: type = _F4) -> Iterator[Example]:
    """Yield hats: as features, or in double precision to convert cores to other knots."""
    x, knots, index = np.zeros(1), np.array([0.0, 1.0]), np.empty((1, 2), np.int32)
    yield encode.hats, (x, knots, 1, 0.0, index, np.empty((1, 2), dtype))


def other_map_examples() -> Iterator[Example]:
    """Yield the other maps, and the splits of a tree that can place knots."""
    x, index, value = np.zeros(1), np.empty((1, 2), np.int32), np.empty((1, 2), _F4)
    yield encode.powers, (x, np.empty((1, 2)))
    yield encode.unit_powers, (x, value)
    yield encode.chebyshev, (x, value)
    yield encode.harmonics, (x, value)
    clamped = np.array([-1.0, -1.0, 1.0, 1.0])
    yield encode.bsplines, (x, clamped, 1, np.empty((3, 2)), index, value)
    places = np.empty((3, 2), np.int64)
    leaves = tree.Leaves(places[0], places[1], np.empty(2), places[2])
    cumulated = np.array([0.0, 1.0, 2.0])
    yield tree.grow, (cumulated, cumulated, 1.0, leaves, np.empty(1, np.int64))


def explain_examples() -> Iterator[Example]:
    """Yield the kernels of Shapley values."""
    table, first, slots = np.ones((4, 1)), np.array([0]), np.array([0, 2])
    rows = (table, first, slots, np.array([[1, 2]], np.int32), np.ones((1, 2), _F4))
    workspace, backgrounds = shapley.Workspace.make(1, 1, 2), np.ones((1, 1, 1))
    integral = (backgrounds, np.array([0.5]), np.ones(1), np.ones((1, 1)), workspace)
    yield shapley.values, (*rows, *integral, np.empty((1, 1, 1)))
    yield shapley.pairs, (*rows, *integral, np.empty((1, 1, 1, 1)))
    yield shapley.all_parts, (*rows, np.empty((1, 1, 1)))
    yield shapley.complements, (backgrounds, np.empty(2), np.empty((1, 2)))
    sets = (np.ones((1, 1, 2)), np.ones(2), workspace)
    yield shapley.values_by_sets, (*rows, *sets, np.empty((1, 1, 1)))


def _nodes() -> trees.Nodes:
    """Return a tree of one leaf."""
    one, sets = np.zeros(1, np.int32), np.zeros((0, 1), np.uint8)
    return trees.Nodes(one - 1, one, np.zeros(1, np.uint8), one, one, sets, np.zeros(1))


def tree_examples() -> Iterator[Example]:
    """Yield the prediction by trees that have just grown."""
    root, bins = np.zeros(1, np.int32), np.zeros((1, 1), np.int32)
    yield trees.add_trees, (_nodes(), root, root, np.zeros((1, 1)), bins, np.zeros((1, 1)))


def kept_tree_examples() -> Iterator[Example]:
    """Yield what a model needs in which trees have a share; whether they do, a fit finds out."""
    root, bins = np.zeros(1, np.int32), np.zeros((1, 1), np.int32)
    zero, word = np.zeros(1, np.int64), np.zeros(1, np.uint64)
    forest = (_nodes(), root, root, np.zeros((1, 1)))
    yield trees.add_both_ways, (*forest, bins, zero[:0], zero, np.zeros(1), np.zeros((1, 1)))
    flags = np.zeros(1, np.uint8)
    yield trees.set_shares, (_nodes(), zero - 1, np.zeros(1), np.zeros(2, np.int64), flags)
    masks = trees.Masks(np.zeros(2, np.int64), zero, zero, word, np.zeros((1, 64), np.int64))
    yield trees.write_masks, (_nodes(), root, masks, zero.copy(), word.copy())
    words = np.zeros(256, np.uint64)
    yield (
        trees.add_masks,
        (masks, root, np.zeros((1, 1)), trees.BIT_PLACES, bins, words, np.zeros((1, 1))),
    )


def boosting_examples() -> Iterator[Example]:
    """Yield the growing of trees."""
    settings = boosting.Settings(losses.SQUARED, 0.1, 1, 1.0, 1, 1.0)
    number, byte = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    grown = boosting.Grown(
        column=number,
        place=number,
        missing=byte,
        left=number,
        right=number,
        sets=np.zeros((0, 1), np.uint8),
        value=np.zeros(1),
        root=np.zeros(1, np.int64),
        counts=np.zeros(3, np.int64),
    )
    table = boosting.Table(
        bins=np.ones((1, 1), np.uint8),
        start=np.array([0, 2]),
        categorical=np.array([False]),
        y=np.zeros((1, 1)),
        weight=np.ones(1),
    )
    work, state = boosting.Workspace.make(1, 1, 2, 1), np.ones(1, np.uint64)
    yield boosting.boost, (settings, table, 1, np.zeros((1, 1)), grown, work, state)


def leaf_examples() -> Iterator[Example]:
    """Yield how leaves are read and explained."""
    one, zero, byte = np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    conditions = trees.Conditions(zero, one, one, one, np.zeros(1))
    yield trees.list_conditions, (_nodes(), zero - 1, zero, zero, conditions)
    ends, value = np.array([0, 1]), np.zeros((1, 1))
    sets = np.zeros((0, 1), np.uint8)
    terms = leaves.Terms(ends, one, one + 1, one + 1, np.zeros(1), sets, value, one, ends)
    none = np.zeros(0)
    mass = leaves.Mass(np.array([0.0, 1.0]), zero, np.zeros(1), none, none, zero, zero, zero)
    means, bins, none = np.ones(1), np.ones((1, 1), np.int32), np.ones((1, 0), np.int32)
    yield leaves.condition_means, (terms, mass, means)
    yield leaves.leaf_means, (terms, means, byte, np.empty(1))
    yield leaves.means_of_rows, (terms, byte, bins, np.empty(1), np.empty(1))
    yield leaves.add_along, (terms, 0, np.ones((1, 1)), byte, bins, np.zeros((1, 1, 1)))
    table, shares = np.zeros(2), np.ones((2, 2))
    tables = (terms, zero, means, none, shares, np.empty(0, np.int32), np.empty(2), zero, table)
    yield leaves.write_tables, tables
    yield leaves.write_pair_tables, tables
    single, pair = np.zeros((1, 1, 1)), np.zeros((1, 1, 1, 1))
    nodes = np.full((2, 1), 0.5)
    integral = leaves.Integral(nodes, nodes, np.empty(1), np.empty(1), np.empty(1))
    for values in (single, pair):
        pattern = np.empty(1, np.int32)  # written to: not an array of the leaves
        yield leaves.look_up, (terms, zero, zero, table, bins, pattern, values)
        yield leaves.integrate, (terms, zero, means, bins, none, integral, values)
    numbering = variances.Numbering(zero, np.zeros((1, 2), np.int64))
    out = (numbering, variances.Pairing.make(1), np.zeros(1), np.zeros(1), np.zeros(1))
    number = np.full(1, -1)
    by_place = variances.ByPlace(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1), number)
    yield variances.pair_variances, (terms, mass, by_place, 0, 1, *out)
    smooth = variances.Smooth(
        weights=np.zeros((1, 1)),
        means=np.ones((1, 1)),
        cumulated=np.zeros((2, 1)),
        missing=np.zeros((1, 1)),
        sets=np.zeros((0, 1)),
        rest=np.empty(1),
    )
    yield variances.cross_variances, (terms, mass, means, smooth, 0, 1, *out)


ALL_FORMS = [Form(*has) for has in product((False, True), repeat=3)]  # of polyadic's own losses


def all_examples(forms: Sequence[Form] = ALL_FORMS) -> Iterator[Example]:
    """Yield every kernel in these forms, those that take longest to compile first."""
    for form in forms:
        yield from adam_examples(form)
        yield from split_examples(form)
    yield from joint_examples()  # other forms are compiled when workers first need them
    yield from als_examples()
    for form in forms:
        if not form.order:  # predictions do not depend on penalties
            yield from contract_examples(form)
            yield from hats_examples(form)
    yield from explain_examples()
    yield from boosting_examples()
    yield from tree_examples()
    yield from kept_tree_examples()
    yield from leaf_examples()
    yield from order_examples()
    yield from hat_examples()
    yield from hat_examples(_F8)
    yield from other_map_examples()
    yield from loss_examples()
    yield from prior_examples()


class Needs(NamedTuple):
    """What a fit needs kernels for."""

    form: Form = Form()
    least_squares: bool = True
    adam: bool = True
    prior: bool = False
    members: bool = True  # whether there are several, to be merged
    additive: bool = False  # whether additive models are predicted too
    trees: bool = False  # whether trees are joined


MIXTURE = Needs(prior=True, additive=True)  # of a fit that mixes strategies


def fit_examples(needs: Needs) -> Iterator[Example]:
    """Yield what one fit needs, and its predictions on held-out rows."""
    form, least_squares, adam, prior, members, additive, trees_joined = needs
    if adam:
        yield from adam_examples(form)
    if least_squares:
        yield from als_examples()
    yield from contract_examples(form._replace(order=False))
    if additive:
        yield from contract_examples(form._replace(order=False, additive=True))
    yield from loss_examples(form)
    yield from hat_examples()
    if members:
        yield from hat_examples(_F8)
    if prior:
        yield from prior_examples(form)
    if trees_joined:
        yield from boosting_examples()
        yield from tree_examples()
