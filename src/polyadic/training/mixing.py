"""Mix strategies: the share of each in the model, chosen on held-out rows.

No strategy is the best on every table, and a mean of several is often better than each; a mean of
CP predictors is a CP predictor. Every member predicts the rows that it held out. The shares
minimise the loss of the mixed predictions of these rows, none of which the member has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from polyadic.data.rows import CodedRows
from polyadic.objective.losses import Loss
from polyadic.training.merge import Member

# Shares are pulled towards equal ones by this times the uncertainty of the differences of the
# strategies' losses. On inner splits, factors from 0 to 4 make little difference.
_PULL = 1.0
_BLOCKS = 20  # of held-out rows, by which that uncertainty is estimated; chosen by hand
_LEAST_SHARE = 0.02  # a strategy of less is left out: its terms would cost more than they help


def find_shares(loss: Loss, y: np.ndarray, weight: np.ndarray, raws: np.ndarray) -> np.ndarray:
    """Return the share of each strategy, (S,), non-negative and with a sum of one.

    y : (m, L) or (m, 1); weight : (m,); raws : (S, m, L) are predictions of held-out rows.

    >>> from polyadic.losses import SquaredError
    >>> y = np.linspace(-1, 1, 10_000)[:, None]
    >>> find_shares(SquaredError(), y, np.ones(10_000), np.array([y + 0.5, y - 0.5])).round(2)
    array([0.5, 0.5])
    """
    n_strategies = len(raws)
    alone = np.array([loss.value(y, raw, weight) for raw in raws])
    if n_strategies == 1 or not np.any(np.isfinite(alone)):
        return np.full(n_strategies, 1.0 / n_strategies)
    finite = np.flatnonzero(np.isfinite(alone))
    if len(finite) < n_strategies:
        shares = np.zeros(n_strategies)
        shares[finite] = find_shares(loss, y, weight, raws[finite])
        return shares
    equal = np.full(n_strategies, 1.0 / n_strategies)
    pull = _PULL * _uncertainty(loss, y, weight, raws)

    def objective(shares: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = np.tensordot(shares, raws, 1)
        slope = loss.gradient(y, mixed, weight)
        away = shares - equal
        value = loss.value(y, mixed, weight) + pull * float(away @ away)
        return value, np.tensordot(raws, slope, 2) + 2.0 * pull * away

    found = minimize(
        objective,
        equal,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * n_strategies,
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1.0, "jac": np.ones_like},
    )
    shares = found.x if np.all(np.isfinite(found.x)) else (alone == alone.min()).astype(float)
    shares = np.where(shares >= _LEAST_SHARE, shares, 0.0)
    return shares / shares.sum()


def _uncertainty(loss: Loss, y: np.ndarray, weight: np.ndarray, raws: np.ndarray) -> float:
    """Return the mean standard error of the strategies' losses, each less the mean of all.

    It is estimated from the losses of blocks of rows.
    """
    blocks = [np.arange(k, len(y), _BLOCKS) for k in range(min(_BLOCKS, len(y)))]
    blocks = [block for block in blocks if weight[block].any()]
    if len(blocks) < 2:
        return 0.0
    losses = np.array([[loss.value(y[b], raw[b], weight[b]) for b in blocks] for raw in raws])
    differences = losses - losses.mean(axis=0)
    return float(np.mean(differences.std(axis=1, ddof=1)) / np.sqrt(len(blocks)))


def held_out_targets(
    rows: CodedRows, held_out: CodedRows | None, fold_of: np.ndarray | None, numbers: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return target and weight of the held-out rows of these members, member by member."""
    if fold_of is None:
        assert held_out is not None
        return np.concatenate([held_out.y] * len(numbers)), np.tile(held_out.weight, len(numbers))
    own = [np.flatnonzero(fold_of == number % (fold_of.max() + 1)) for number in numbers]
    chosen = np.concatenate(own)
    return rows.y[chosen], rows.weight[chosen]


def common_numbers(groups: Sequence[Sequence[Member]]) -> list[int]:
    """Return the numbers of members that every strategy has a member of, in ascending order."""
    return sorted(set.intersection(*({member.number for member in group} for group in groups)))


def held_out_raw(members: Sequence[Member], numbers: Sequence[int]) -> np.ndarray:
    """Return what members of these numbers predict for their held-out rows, one below another."""
    by_number = {member.number: member.solution.held_out for member in members}
    return np.concatenate([by_number[number] for number in numbers])


def with_share(members: Sequence[Member], share: float) -> list[Member]:
    """Return the members of a strategy, each with an equal part of its share."""
    return [replace(member, share=share / len(members)) for member in members]
