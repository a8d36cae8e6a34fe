"""Constant elements that no row says anything about, put at the mean over the rows.

Hats add up to one in every row, and so do the indicators of a category. Where no row lacks a value
in a column, its constant element can take over any number from all the others, and no prediction
for these rows changes: the loss is flat in that direction. Only L2 acts along it, and L2 goes with
the noise: on a table without noise the constant stays wherever training happened to leave it. With
it would stay the coefficient of every product that leaves out this column, and what is predicted
where the column has no value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from polyadic.formats.network import NetworkCores
from polyadic.local import LocalFeatures
from polyadic.solvers.base import Problem, Solution

_ROUNDING = 1e-5  # of values in float32 that add up to one


def settled(problem: Problem, solution: Solution) -> Solution:
    """Return the solution with every undetermined constant at the mean of its column's factor.

    That is the mean over the training rows: a missing value then counts as the average one, and a
    product of other columns has its average coefficient. Predictions for the rows of the problem,
    and for all others that lack no value, stay the same up to rounding. A norm of the weight tensor
    has an optimum of its own in this direction, and is left to it.
    """
    cores = solution.cores
    if not solution.converged or solution.n_iter == 0:
        return solution
    if problem.order is not None or problem.norm is not None:
        return solution
    if isinstance(cores, NetworkCores) and not cores.format.constants:
        return solution  # these make no use of constant elements
    factors, additive = list(cores.factors), list(cores.additive or [])
    for n in undetermined(problem):
        mean = mean_elements(problem, n)
        for parts in (factors, additive):
            if parts:
                parts[n] = _moved(parts[n], mean)
    changes: dict[str, Any] = {"factors": factors}
    if additive:
        changes["additive"] = additive
    return replace(solution, cores=replace(cores, **changes))


def undetermined(problem: Problem) -> list[int]:
    """Return the columns whose constant the rows, held-out ones included, leave undetermined."""
    layout = problem.local.layout
    tables = [rows.local for rows in (problem.rows, problem.held_out) if rows is not None]
    candidates = np.flatnonzero(layout.constant & ~layout.dense)
    return [int(n) for n in candidates if all(_adds_up_to_one(t, n) for t in tables)]


def mean_elements(problem: Problem, n: int) -> np.ndarray:
    """Return the mean of the elements of column n over the training rows, (d,); no constant."""
    local, weight = problem.local, problem.weight / problem.weight.sum()
    own = slice(local.layout.slots[n], local.layout.slots[n + 1])
    index = local.index[:, own] - local.layout.first[n]
    value = weight[:, None] * local.value[:, own]
    return np.bincount(index.ravel(), weights=value.ravel(), minlength=int(local.dims[n]))


def _adds_up_to_one(local: LocalFeatures, n: int) -> bool:
    own = slice(local.layout.slots[n], local.layout.slots[n + 1])
    total = local.value[:, own].sum(axis=1)
    return bool(np.all(np.abs(total - 1.0) < _ROUNDING))


def _moved(core: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return a core (d, K) with the mean of its elements moved to the constant."""
    size = mean @ core
    out = core - size
    out[0] = core[0] + size
    return out.astype(core.dtype)
