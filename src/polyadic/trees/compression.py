"""Fewer terms for a fitted model, with the exact error of that.

The leaves of trees are terms too, but each is the indicator of one box, and a forest has thousands
of them. So trees become dense products, whose functions have steps at the edges of the trees: eight
such products come closer to boosted trees of 3,100 leaves than the best 128 of these leaves.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from polyadic.data.columns import Column
from polyadic.data.marginals import design
from polyadic.explain.compare import cp_cores, distance
from polyadic.explain.known import marginals_with
from polyadic.explain.models import read_cores
from polyadic.explain.moments import joined_cores
from polyadic.explain.reading import Reading
from polyadic.maps import Hat, OneHot, Step
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees, category_map
from polyadic.training.missing import average_missing
from polyadic.training.model import FittedModel, explained_maps
from polyadic.training.plan import Choice, PlanSummary
from polyadic.trees.reduce import Products, normalised, reduce_terms

Model = TypeVar("Model", bound=FittedModel)
_TINY = 1e-300
_MOST_NUMBERS = 400_000_000  # of the functions of all terms and leaves: 3 GB; chosen by hand


def compress(model: Model, rank: int, X: Any = None) -> Model:
    """Return a copy of a fitted model with at most `rank` terms, and say how far it is from it.

    Mean and main effects of the model are kept exactly, in the additive part. The terms are then
    the least-squares approximation of its interactions, found without any rows: over the product
    of the columns' marginals, squared errors are closed forms. Trees become terms as well.

    Parameters
    ----------
    model : fitted CPRegressor or CPClassifier
    rank : int
        Most terms of the result, at least 1. A model that does not have more terms and leaves is
        returned as it is, as a copy.
    X : table, optional
        The error is over the marginals of its columns, taken as independent; by default over those
        of the training table, which the model keeps. A model with both smooth terms and trees needs
        it, unless each numeric column has a knot on every value: its moments do not tell those of
        the result.

    Returns
    -------
    estimator of the same class
        Its `plan_` tells the number of terms and the relative L2 error, which is the root of
        E (f(x) - f'(x))^2 over the variance of f, before the link and summed over the outputs.
        `explain.compare(model, result)` tells where they differ.

    Examples
    --------
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
    >>> y = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 0] * X[:, 1]
    >>> model = CPRegressor(maps="polynomial", rank=8, n_members=2, random_state=0).fit(X, y)
    >>> small = compress(model, rank=1)
    >>> print(small.plan_["terms"])
    compressed from 1... terms to 1, relative L2 error 0.0...
    """
    cores = _check(model, rank)
    n_terms = _count(cores)
    out, error = copy.copy(model), 0.0
    if rank < n_terms:
        maps = _result_maps(model, cores)
        known = marginals_with(model, model.columns_, maps, X)
        reading = read_cores(model, cores, X)
        tensor = _as_cores(_reduce(model, cores, int(rank), reading), model, maps)
        maps, neutral = average_missing(maps, tensor, known)  # no row told of such values
        vars(out).update(maps_=maps, tensor_=neutral, marginals_=known, _passes=None)
        size = reading.total_variance()
        error = distance(model, out, X) / np.sqrt(size) if size > 0 else 0.0
    plan = getattr(model, "plan_", PlanSummary(()))
    others = [choice for choice in plan.choices if choice.name != "terms"]  # of a compressed model
    text = (
        f"compressed from {n_terms} terms to {_count(out.tensor_)}, relative L2 error {error:.4g}"
    )
    note = Choice("terms", text, "over the product of the columns' marginals")
    vars(out)["plan_"] = replace(plan, choices=(note, *others))
    return out


def _count(cores: Any) -> int:
    """Return the number of terms with a weight, and of leaves."""
    n_leaves = 0 if cores.trees is None else len(cores.trees.leaves)
    return int(np.count_nonzero(np.any(cores.weights != 0, axis=1))) + n_leaves


def _check(model: FittedModel, rank: int) -> CPCores:
    """Return the cores of a model; refuse what cannot be compressed."""
    cores = cp_cores(model, "compressed")
    if isinstance(rank, bool) or not isinstance(rank, Integral) or rank < 1:
        raise ValueError(f"rank must be a whole number of at least 1, got {rank!r:.40}.")
    return cores


# ---- the model as a sum of products --------------------------------------------------------------


def _reduce(model: FittedModel, cores: CPCores, rank: int, reading: Reading) -> Products:
    """Return the products of the result, over the features of the model's own designs."""
    marginals = reading.marginals
    widths = [len(marginal.mean) for marginal in marginals]
    n_leaves = 0 if cores.trees is None else len(cores.trees.leaves)
    if sum(widths) * (cores.rank + n_leaves) > _MOST_NUMBERS:
        raise ValueError(
            f"The model has {cores.rank + n_leaves:,} terms and leaves over {sum(widths):,} knots, "
            f"bins and categories; their product may be at most {_MOST_NUMBERS:,}. Use fewer or "
            "smaller trees."
        )
    target = normalised(_products(model, cores, widths), marginals)
    whole = reading.total_variance() - sum(variance for _, variance in reading.variances(1))
    constant = all(own.constant for own in model.maps_)
    return reduce_terms(target, marginals, rank, max(whole, 0.0), sweep=constant)


def _products(model: FittedModel, cores: CPCores, widths: Sequence[int]) -> Products:
    """Return the terms and leaves of a model with weights, over the features of its designs."""
    used = np.any(cores.weights != 0, axis=1)
    weights = [np.asarray(cores.weights, dtype=float)[used]]
    if cores.trees is not None:
        weights.append(cores.trees.leaves.weights(cores.n_outputs))
    functions, additive = [], []
    for n, (own, width) in enumerate(zip(joined_cores(cores, model.maps_), widths)):
        full = np.zeros((width, own.shape[1]))
        full[: len(own)] = own
        parts = [full[:, : cores.rank][:, used]]
        if cores.trees is not None:
            parts.append(_leaf_functions(cores.trees, n, len(own), width))
        functions.append(np.hstack(parts))
        alone = full[:, cores.rank :]
        additive.append(alone if cores.additive is not None else np.zeros((width, cores.n_outputs)))
    intercept = np.asarray(cores.intercept, dtype=float)
    return Products(functions, np.vstack(weights), additive, intercept)


def _leaf_functions(trees: Trees, n: int, first: int, width: int) -> np.ndarray:
    """Return the indicators of all leaves in column n, (F, number of leaves).

    The bins are the features from `first` on; a missing value has none of them.
    """
    inside = trees.leaves.indicators(n, np.arange(width - first + 1))
    out = np.zeros((width, inside.shape[1]))
    out[0] = inside[0]
    out[first:] = inside[1:] - inside[0]
    return out


# ---- the result ----------------------------------------------------------------------------------


def _result_maps(model: FittedModel, cores: CPCores) -> list[FeatureMap]:
    """Return maps that can express both the smooth functions and the steps of trees."""
    if cores.trees is None:
        return model.maps_
    idle = cores.additive is None and not np.any(cores.weights)
    pairs = zip(model.columns_.columns, model.maps_, cores.trees.maps)
    return [
        bins if idle and column.categories is None else _joint_map(column, own, bins)
        for column, own, bins in pairs
    ]


def _joint_map(column: Column, own: FeatureMap, bins: FeatureMap) -> FeatureMap:
    """Return one map for a smooth function and a step function of the same column.

    Hats on an edge and on the next number above it can jump between the two: exact, since there is
    no number in between.
    """
    if column.categories is not None:
        return category_map(max(len(column.categories), 1))
    assert isinstance(bins, Step)
    if isinstance(own, Step):
        return own.merge([bins])[0]
    if not isinstance(own, Hat):
        raise ValueError(
            f"Column {column.name!r} has the map {own!r} beside trees. Only hats and steps can "
            "express the steps of trees as well: fit with maps='hat', or with trees=False."
        )
    out = Hat(own.n_knots, own.by_target)
    out.knots_ = np.unique(np.concatenate([own.knots_, bins.edges_, _above(bins.edges_)]))
    return out


def _above(edges: np.ndarray) -> np.ndarray:
    """Return the next number above each edge; above zero, one that is not lost in a difference."""
    return np.where(np.abs(edges) < _TINY, _TINY, np.nextafter(edges, np.inf))


def _as_cores(found: Products, model: FittedModel, maps: Sequence[FeatureMap]) -> CPCores:
    """Return the cores of the result over its maps."""
    explained = explained_maps(model.maps_, model.tensor_)
    rank = len(found.weights)
    factors, additive, intercept = [], [], found.intercept
    for n, (own, new) in enumerate(zip(explained, maps)):
        both = np.hstack([found.cores[n], found.additive[n]])
        if own is new:
            if not new.constant:  # the constant of an additive part is one of the model
                intercept = intercept + both[0, rank:]
            core = both[1:].copy()
            if new.constant:
                core[0] = both[0]
        else:
            core = _at_points(own, new, both)
        factors.append(core[:, :rank])
        additive.append(core[:, rank:])
    weights = found.weights
    if rank == 0:  # there are no interactions, and a model has at least one term
        factors = [np.zeros((len(core), 1)) for core in additive]
        weights = np.zeros((1, len(intercept)))
    return CPCores(factors, weights, intercept, additive)


def _at_points(own: FeatureMap, new: FeatureMap, core: np.ndarray) -> np.ndarray:
    """Return the core of the same functions over a map whose elements are knots, bins or codes."""
    if isinstance(new, Hat):
        points = np.append(np.nan, new.knots_)
    elif isinstance(new, Step):
        last = _above(new.edges_[-1:]) if len(new.edges_) else np.zeros(1)
        points = np.concatenate([[np.nan], new.edges_, last])
    else:
        assert isinstance(new, OneHot)
        points = np.arange(-1, new.dim - 1)
    values = design(own, points) @ core
    return np.vstack([values[:1], values[1:] - values[:1]])
