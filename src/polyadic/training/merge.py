"""Merge members into one model.

A weighted mean of CP predictors is a CP predictor: terms are concatenated, and the output weights
of each member multiplied by its share. Members with different knots are first rewritten on the
union of their knots, which is exact for hats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyadic.maps.base import FeatureMap
from polyadic.networks import trees as forests
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

    Terms of members without any weight, as those of additive models, are left out.
    """
    total = sum(member.share for member in members)
    shares = [member.share / total for member in members]
    cores = [member.solution.cores for member in members]
    if len(members) == 1:
        return members[0].maps, cores[0]
    maps, factors, additive = [], [], []
    for n in range(len(members[0].maps)):
        own = [member.maps[n] for member in members]
        merged, transfers = own[0].merge(own[1:])
        maps.append(merged)
        factors.append(np.hstack([_transfer(t, c.factors[n]) for t, c in zip(transfers, cores)]))
        parts = [
            share * _transfer(t, c.additive[n])
            for share, t, c in zip(shares, transfers, cores)
            if c.additive is not None
        ]
        additive.append(sum(parts) if parts else None)
    weights = np.vstack([share * c.weights for share, c in zip(shares, cores)])
    intercept = sum(share * c.intercept for share, c in zip(shares, cores))
    used = np.any(weights != 0, axis=1)
    used[0] |= not used.any()  # a model has at least one term
    weights, factors = weights[used], [factor[:, used] for factor in factors]
    has_additive = additive[0] is not None
    return maps, CPCores(
        factors,
        weights,
        intercept,
        additive if has_additive else None,  # type: ignore[arg-type]
        _join_trees([c.trees for c in cores], shares),
    )


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
