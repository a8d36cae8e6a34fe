"""Merge members into one model.

A weighted mean of CP predictors is a CP predictor: terms are concatenated, and the output weights
of each member multiplied by its share. Members with different knots are first rewritten on the
union of their knots, which is exact for hats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyadic.maps import Hat
from polyadic.maps.base import FeatureMap
from polyadic.networks import trees as forests
from polyadic.networks.blocks import Blocks, make_blocks, to_single
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees
from polyadic.solvers.contract import Solution

# A member never left its start if it lowered the loss by less than this share of what the best one
# did, and that by at least the second share of the loss of a constant. Both chosen by hand.
_HARDLY_ANY, _MUCH = 0.1, 0.5


@dataclass(frozen=True)
class Member:
    """One trained model, with its maps and what it was trained with.

    Attributes
    ----------
    maps : list of fitted FeatureMap
    solution : Solution
    strength : float
        Of its penalties.
    number : int
        It holds out the fold of this number.
    kind : str
        The strategy that it was trained by, "additive", "linear" or "trees".
    share : float
        Its weight in the mean of all members, relative to the others.
    """

    maps: list[FeatureMap]
    solution: Solution
    strength: float = 1.0
    number: int = 0
    kind: str = ""
    share: float = 1.0


def usable(members: Sequence[Member]) -> list[Member]:
    """Return the members of one strategy that are worth averaging.

    Members that diverged are left out, unless all did, and so are members that never left their
    start while others did. Losses are compared with that of a constant on the same rows: some folds
    are easier than others.
    """
    members = [m for m in members if m.solution.converged] or list(members)
    solutions = [m.solution for m in members]
    gains = [found.constant_loss - found.loss for found in solutions]
    best = int(np.nanargmax([*gains, -np.inf]))
    if best == len(members) or not gains[best] > _MUCH * abs(solutions[best].constant_loss):
        return members
    return [m for m, gain in zip(members, gains) if not gain < _HARDLY_ANY * gains[best]]


def merge(members: Sequence[Member]) -> tuple[list[FeatureMap], CPCores]:
    """Return maps and cores of one model that predicts the mean of the members, by their shares.

    Terms of members without any weight, as those of additive models, are left out. The factors are
    rounded to single precision, in which predictions are computed.
    """
    total = sum(member.share for member in members)
    shares = [member.share / total for member in members]
    cores = [member.solution.cores for member in members]
    if len(members) == 1:
        return members[0].maps, cores[0]
    terms = _used_terms(cores)
    maps, factors, blocks, additive = [], [], [], []
    for n in range(len(members[0].maps)):
        own = [member.maps[n] for member in members]
        merged, transfers = own[0].merge(own[1:])
        maps.append(merged)
        used = [k for k, some in enumerate(terms) if some.any()]
        merged_factor, block = _merge_factors(
            merged,
            [own[k] for k in used],
            [transfers[k] for k in used],
            [cores[k].factors[n][:, terms[k]] for k in used],
        )
        factors.append(merged_factor)
        blocks.append(block)
        parts = [
            share * _transfer(t, c.additive[n])
            for share, t, c in zip(shares, transfers, cores)
            if c.additive is not None
        ]
        additive.append(sum(parts) if parts else None)
    weights = [share * c.weights[some] for share, c, some in zip(shares, cores, terms)]
    intercept = sum(share * c.intercept for share, c in zip(shares, cores))
    has_additive = additive[0] is not None
    return maps, CPCores(
        factors,
        np.vstack(weights),
        intercept,
        additive if has_additive else None,  # type: ignore[arg-type]
        _join_trees([c.trees for c in cores], shares),
        blocks,
    )


def _used_terms(cores: Sequence[CPCores]) -> list[np.ndarray]:
    """Return which terms of each member have a weight; if none has, the first of all."""
    used = [np.any(c.weights != 0, axis=1) for c in cores]
    used[0][0] |= not any(some.any() for some in used)  # a model has at least one term
    return used


def _merge_factors(
    merged: FeatureMap,
    own: Sequence[FeatureMap],
    transfers: Sequence[np.ndarray | None],
    factors: Sequence[np.ndarray],
) -> tuple[np.ndarray, Blocks | None]:
    """Return the factor of all terms of one column, and the blocks that it is computed from."""
    if type(merged) is Hat:
        knots = [m.knots_ for m in own]  # type: ignore[attr-defined]
        blocks, constant = make_blocks(factors, merged.knots_, knots)
        return blocks.core(constant), blocks
    moved = [_transfer(*pair) for pair in zip(transfers, factors)]
    if not (merged.partition and merged.constant):
        return to_single(np.hstack(moved)), None
    blocks, constant = make_blocks(moved, None, [])
    return blocks.core(constant), blocks


def _join_trees(parts: Sequence[Trees | None], shares: Sequence[float]) -> Trees | None:
    """Return the trees of all members, by their shares; members may have the same trees."""
    total: dict[int, float] = {}
    by_id = {id(trees): trees for trees in parts if trees is not None}
    for trees, share in zip(parts, shares):
        total[id(trees)] = total.get(id(trees), 0.0) + share
    if not by_id:
        return None
    return forests.join(list(by_id.values()), [total[key] for key in by_id])


def _transfer(matrix: np.ndarray | None, core: np.ndarray) -> np.ndarray:
    return core if matrix is None else matrix @ core
