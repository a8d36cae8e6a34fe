"""Merge members into one model.

The mean of CP predictors is a CP predictor: terms are concatenated, output weights divided by the
number of members. Members with different knots are first carried over to the union of their knots,
which is exact for hats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.solvers.contract import Solution

_FAR_WORSE = 5.0  # times the best member's held-out loss: such a member never left its start


@dataclass(frozen=True)
class Member:
    """One trained model with the maps it was trained on."""

    maps: list[FeatureMap]
    solution: Solution
    strength: float = 1.0


def merge(members: Sequence[Member]) -> tuple[list[FeatureMap], CPCores]:
    """Return maps and cores of one model that predicts the mean of the members.

    Members that diverged are left out, unless all did, and so are those that never left the start:
    their held-out loss is a multiple of the best one's.
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
        merged, carry = own[0].merge(own[1:])
        maps.append(merged)
        factors.append(np.hstack([_carry(t, c.factors[n]) for t, c in zip(carry, cores)]))
        parts = [_carry(t, c.additive[n]) for t, c in zip(carry, cores) if c.additive is not None]
        additive.append(sum(parts) / n_members if parts else None)
    weights = np.vstack([c.weights for c in cores]) / n_members
    intercept = np.mean([c.intercept for c in cores], axis=0)
    has_additive = additive[0] is not None
    return maps, CPCores(factors, weights, intercept, additive if has_additive else None)  # type: ignore[arg-type]


def _carry(transfer: np.ndarray | None, core: np.ndarray) -> np.ndarray:
    return core if transfer is None else transfer @ core
