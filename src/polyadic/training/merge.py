"""Merge members into one model.

The mean of CP predictors is a CP predictor: terms are concatenated, output weights divided by the
number of members. Members with different knots are first rewritten on the union of their knots,
which is exact for hats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.solvers.contract import Solution

# A member whose held-out loss is this many times the best one's never left its start. Chosen by
# hand.
_FAR_WORSE = 5.0


@dataclass(frozen=True)
class Member:
    """One trained model with the maps and the strength that it was trained with."""

    maps: list[FeatureMap]
    solution: Solution
    strength: float = 1.0


def merge(members: Sequence[Member]) -> tuple[list[FeatureMap], CPCores]:
    """Return maps and cores of one model that predicts the mean of the members.

    Members that diverged are left out, unless all did, and so are members that never left the
    start: those whose held-out loss is more than five times the best one's.
    """
    members = [m for m in members if m.solution.converged] or members
    best = min(m.solution.loss for m in members)
    members = [m for m in members if not m.solution.loss > _FAR_WORSE * best > 0]
    n_members = len(members)
    cores = [member.solution.cores for member in members]
    if n_members == 1:
        return members[0].maps, cores[0]
    maps, factors, additive = [], [], []
    for n in range(len(members[0].maps)):
        own = [member.maps[n] for member in members]
        merged, transfers = own[0].merge(own[1:])
        maps.append(merged)
        factors.append(np.hstack([_transfer(t, c.factors[n]) for t, c in zip(transfers, cores)]))
        pairs = zip(transfers, cores)
        parts = [_transfer(t, c.additive[n]) for t, c in pairs if c.additive is not None]
        additive.append(sum(parts) / n_members if parts else None)
    weights = np.vstack([c.weights for c in cores]) / n_members
    intercept = np.mean([c.intercept for c in cores], axis=0)
    has_additive = additive[0] is not None
    return maps, CPCores(factors, weights, intercept, additive if has_additive else None)  # type: ignore[arg-type]


def _transfer(matrix: np.ndarray | None, core: np.ndarray) -> np.ndarray:
    return core if matrix is None else matrix @ core
