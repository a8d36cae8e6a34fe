"""What a missing value means in a column that had none in training: nothing.

A missing number or an unseen category then predicts, on the raw scale, the mean of the predictions
over the values that the column had in training. A prediction is linear in the local features of one
column, so that this is the prediction for their mean. Where a column had missing values in
training, what was learnt for them stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polyadic.data.marginals import Marginal, bin_shares
from polyadic.maps.base import FeatureMap
from polyadic.networks.cores import Cores
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees

_ROUNDING = 1e-6  # shares of float32 elements may add up to one with this error
# Bins looked at per node of trees; 64 leaves and 255 bins take up to 3000, about 3 us.
_MOST_STEPS = 10_000


def average_missing(
    maps: Sequence[FeatureMap], cores: Cores, marginals: Sequence[Marginal]
) -> tuple[list[FeatureMap], Cores]:
    """Return maps and cores with which a missing value is neutral where training had none.

    The elements of local maps add up to one, so that a constant can be moved between them and the
    constant element: predictions for known values stay the same. Other maps encode a missing value
    as the mean of their elements. Formats without a constant element, fm and pn, have only that.
    """
    maps, factors = list(maps), list(cores.factors)
    additive = None if cores.additive is None else list(cores.additive)
    for n, (own, marginal) in enumerate(zip(maps, marginals)):
        if marginal.missing > 0:
            continue
        mean = marginal.mean[1 : 1 + own.dim]  # of the elements
        if own.all_slots:
            maps[n] = own.with_missing(mean[int(own.constant) :])
        elif _moves_constant(own, cores, mean):
            blocks = cores.blocks[n] if isinstance(cores, CPCores) and cores.blocks else None
            moved = _move_constant(factors[n], mean)
            # A model must be what its blocks say, to the last bit.
            factors[n] = moved if blocks is None else blocks.core(moved[0])
            if additive is not None:
                additive[n] = _move_constant(additive[n], mean)
    if not isinstance(cores, CPCores):
        return maps, replace(cores, factors=factors)
    trees = None if cores.trees is None else average_trees(maps, cores.trees, marginals)
    return maps, replace(cores, factors=factors, additive=additive, trees=trees)


def average_trees(maps: Sequence[FeatureMap], trees: Trees, marginals: Sequence[Marginal]) -> Trees:
    """Return trees in which missing values go both ways where training had none."""
    shares = [_shares_both_ways(*own) for own in zip(maps, marginals)]
    return trees.with_averages(shares)


def averages_are_cheap(
    maps: Sequence[FeatureMap], trees: Trees, marginals: Sequence[Marginal]
) -> bool:
    """Tell whether `average_trees` takes no more than a fixed time per node.

    For each node it looks at all bins of its column, and at all nodes above.
    """
    n_bins = np.array([len(_shares_both_ways(*own)) for own in zip(maps, marginals)])
    at, deep, steps = trees.roots, 1, 0
    while len(at := at[trees.nodes.column[at] >= 0]):
        steps += deep * int((1 + n_bins[trees.nodes.column[at]]).sum())
        if steps > _MOST_STEPS * len(trees.value):
            return False
        at, deep = np.concatenate([trees.nodes.left[at], trees.nodes.right[at]]), deep + 1
    return True


def _moves_constant(own: FeatureMap, cores: Cores, mean: np.ndarray) -> bool:
    """Tell whether constant and other elements can be exchanged, in this format and on all rows.

    Rare categories that share the constant element have been learnt: they keep it.
    """
    uses_constant = isinstance(cores, CPCores) or cores.format.constants
    return own.partition and uses_constant and bool(abs(mean[1:].sum() - 1.0) < _ROUNDING)


def _move_constant(core: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return a core, (d, K), of the same function, whose constant is its mean.

    >>> _move_constant(np.array([[5.0], [1.0], [3.0]]), np.array([0.0, 0.25, 0.75])).ravel()
    array([ 7.5, -1.5,  0.5])
    """
    shares = mean[1:] / mean[1:].sum()
    average = core[0] + shares @ core[1:]
    return np.vstack([average, core[1:] + (core[0] - average)])


def _shares_both_ways(own: FeatureMap, marginal: Marginal) -> np.ndarray:
    """Return the shares of the bins of a column, whose missing values go both ways; else none."""
    shares = bin_shares(marginal, own)
    return np.zeros(0) if marginal.missing > 0 or shares[0] > _ROUNDING else shares
