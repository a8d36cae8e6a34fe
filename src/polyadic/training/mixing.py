"""Mix strategies: the share of each in the model, chosen on held-out rows.

No strategy is the best on every table, and a mean of several is often better than each; a mean of
CP predictors is a CP predictor. Every member predicts the rows that it held out. The shares
minimise the loss of the mixed predictions of these rows, none of which the member has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from polyadic.data.features import encode
from polyadic.data.rows import CodedRows
from polyadic.objective.losses import Loss
from polyadic.training.merge import Member

# Shares are pulled towards those of `_plausible` by this times the uncertainty of the differences
# of the strategies' losses. On inner splits, factors from 0.3 to 3 make little difference.
_PULL = 2.0
_BLOCKS = 20  # of held-out rows, by which that uncertainty is estimated; chosen by hand
# Standard errors by which trees must lower the loss, to be worth thousands of terms. Chosen on
# inner splits: 0.25 makes no difference, and from 0.75 on errors are larger.
_CLEAR = 0.5
# What averaging can gain, as a share of a loss of classes: 0 to 15 per cent on the tables of the
# suite. More is estimated where members are far from each other, and the loss is no parabola there.
_MOST_GAIN = 0.2
_ENOUGH_ROWS = 5000  # for the share of trees; chosen by hand
_TINY = np.finfo(float).tiny
_SMALL_LOSS = 1e-12  # in variances of the target: the rounding of float32 squared
_TOLERANCE = 1e-8  # of the loss of the mixture, relative to the lowest of the strategies
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
    # With errors that are independent of each other, shares are in inverse proportion to the loss.
    useful = np.flatnonzero(alone <= max(np.nanmin(alone), _SMALL_LOSS) / _LEAST_SHARE)
    if 0 < len(useful) < n_strategies:
        shares = np.zeros(n_strategies)
        shares[useful] = find_shares(loss, y, weight, raws[useful])
        return shares
    goal, uncertainty = _plausible(loss, y, weight, raws, alone)
    pull = _PULL * uncertainty

    def objective(shares: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss.value_and_gradient(y, np.tensordot(shares, raws, 1), weight)
        away = shares - goal
        gradient = np.tensordot(raws, slope, 2) + 2.0 * pull * away
        # In units of the lowest loss: the solver stops at an absolute tolerance.
        return (value + pull * float(away @ away)) / unit, gradient / unit

    unit = max(abs(float(alone.min())), _SMALL_LOSS)
    found = minimize(
        objective,
        goal,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * n_strategies,
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1.0, "jac": np.ones_like},
        options={"ftol": _TOLERANCE, "maxiter": 200},
    )
    shares = found.x if np.all(np.isfinite(found.x)) else (alone == alone.min()).astype(float)
    shares = np.where(shares >= _LEAST_SHARE, shares, 0.0)
    return shares / shares.sum()


def share_of_trees(
    loss: Loss,
    y: np.ndarray,
    weight: np.ndarray,
    smooth: np.ndarray,
    trees: np.ndarray,
    deviations: np.ndarray,
    asked: bool,
) -> float:
    """Return the share of trees beside a mixture of the other strategies.

    Held-out rows are predicted by one member each. The model will be the mean of all members of the
    smooth strategies, which is better than one, while the trees are grown once more, not averaged.
    So the loss is taken less what averaging will gain.

    Parameters
    ----------
    smooth, trees : (m, L)
        Predictions of held-out rows, each by the member that held it out.
    deviations : (K, m, L)
        Of the predictions of the K smooth members from their mean.
    asked : bool
        Whether the trees were asked for: they have at least the least share then. If not, they have
        none unless they lower the loss by more than half a standard error.

    >>> from polyadic.losses import SquaredError
    >>> rng = np.random.default_rng(0)
    >>> y, noise = np.zeros((10_000, 1)), rng.normal(size=(5, 10_000, 1))
    >>> trees = rng.normal(size=(10_000, 1))
    >>> share_of_trees(SquaredError(), y, np.ones(10_000), noise[0], trees, 0 * noise, True)
    0.50...
    >>> deviations = noise - noise.mean(axis=0)
    >>> share_of_trees(SquaredError(), y, np.ones(10_000), noise[0], trees, deviations, True)
    0.16...
    """
    n_members = len(deviations)
    scale = np.sqrt(n_members / max(n_members - 1, 1))  # their mean is not the expected value
    most = np.inf if loss.quadratic else _MOST_GAIN

    def value(share: float, rows: np.ndarray) -> float:
        mixed = (1.0 - share) * smooth[rows] + share * trees[rows]
        single = loss.value(y[rows], mixed, weight[rows])
        moved = [
            loss.value(y[rows], mixed + sign * (1.0 - share) * scale * own[rows], weight[rows])
            for own in deviations
            for sign in (-1.0, 1.0)
        ]
        # By the curvature of the loss, found from its differences: K members have 1/K of the
        # variance of one.
        gain = (1.0 - 1.0 / n_members) * (np.mean(moved) - single) if n_members > 1 else 0.0
        return float(single - min(gain, most * abs(single)))

    every = np.arange(len(y))
    start = value(0.0, every)
    unit = max(abs(start), _SMALL_LOSS)
    found = minimize_scalar(lambda a: value(a, every) / unit, bounds=(0.0, 1.0), method="bounded")
    share = float(found.x)
    if not np.isfinite(found.fun):
        return 0.0
    if asked:
        share = max(share, _LEAST_SHARE)
    elif found.fun * unit >= start or share < _LEAST_SHARE:
        return 0.0
    else:
        gains = np.array([value(0.0, rows) - value(share, rows) for rows in _blocks(weight)])
        if not gains.mean() > _CLEAR * gains.std(ddof=1) / np.sqrt(len(gains)):
            return 0.0
    return share if share < 1.0 - _LEAST_SHARE else 1.0


def _blocks(weight: np.ndarray) -> list[np.ndarray]:
    """Return blocks of held-out rows that have any weight."""
    blocks = [np.arange(k, len(weight), _BLOCKS) for k in range(min(_BLOCKS, len(weight)))]
    return [block for block in blocks if weight[block].any()]


def _plausible(
    loss: Loss, y: np.ndarray, weight: np.ndarray, raws: np.ndarray, alone: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return how plausible it is that each strategy is the best, (S,), and how uncertain.

    That is exp(-z), scaled to a sum of one, where z is the difference of a strategy's loss to the
    lowest, in standard errors: these are estimated from the losses of blocks of rows. The second
    result is the mean standard error of the strategies that are plausible.
    """
    best = int(np.argmin(alone))
    blocks = _blocks(weight)
    others = np.arange(len(raws)) != best
    if len(blocks) < 2:
        return (~others).astype(float), 0.0
    losses = np.array([[loss.value(y[b], raw[b], weight[b]) for b in blocks] for raw in raws])
    errors = (losses - losses[best]).std(axis=1, ddof=1) / np.sqrt(len(blocks))
    z = (alone - alone[best]) / np.maximum(errors, _TINY)
    plausible = np.exp(-np.where(others, z, 0.0))
    uncertainty = np.sum((plausible * errors)[others]) / max(np.sum(plausible[others]), _TINY)
    return plausible / plausible.sum(), float(uncertainty)


def held_out_targets(
    rows: CodedRows, held_out: CodedRows | None, fold_of: np.ndarray | None, numbers: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return target and weight of the held-out rows of these members, member by member.

    Held-out rows that the user gave are those of every member, and are returned once.
    """
    if fold_of is None:
        assert held_out is not None
        return held_out.y, held_out.weight
    chosen = held_out_places(fold_of, numbers)
    return rows.y[chosen], rows.weight[chosen]


def held_out_places(fold_of: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
    """Return the places of the held-out rows of these members, member by member."""
    n_folds = fold_of.max() + 1
    return np.concatenate([np.flatnonzero(fold_of == number % n_folds) for number in numbers])


def some_rows(n_rows: int, seed: int) -> np.ndarray:
    """Return the places of all rows, or of as many as are enough to find one share."""
    if n_rows <= _ENOUGH_ROWS:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, _ENOUGH_ROWS, replace=False))


def common_numbers(groups: Sequence[Sequence[Member]]) -> list[int]:
    """Return the numbers of members that every strategy has a member of, in ascending order."""
    return sorted(set.intersection(*({member.number for member in group} for group in groups)))


def held_out_raw(
    members: Sequence[Member], fold_of: np.ndarray | None, numbers: Sequence[int]
) -> np.ndarray:
    """Return what members of these numbers predict for their held-out rows, one below another.

    For held-out rows that the user gave, the mean of the members.
    """
    by_number = {member.number: member.solution.held_out for member in members}
    own = [np.asarray(by_number[number]) for number in numbers]
    return np.mean(own, axis=0) if fold_of is None else np.concatenate(own)


def deviations(
    groups: Sequence[Sequence[Member]],
    shares: np.ndarray,
    numbers: Sequence[int],
    columns: Sequence[np.ndarray],
) -> np.ndarray:
    """Return how far the predictions of members are from their mean, (K, m, L).

    Of the K members of these numbers, each mixed of the strategies by their shares. One of them has
    not seen a row in training, the others have: on inner splits their variance was that of new rows
    within a third, while that of members that have all seen a row was down to a tenth of it.
    """
    out = []
    for number in numbers:
        own = [next(one for one in group if one.number == number) for group in groups]
        used = [(one, share) for one, share in zip(own, shares) if share > 0]
        out.append(
            sum(share * m.solution.cores.contract(encode(m.maps, columns)) for m, share in used)
        )
    return np.asarray(out) - np.mean(out, axis=0)


def with_share(members: Sequence[Member], share: float) -> list[Member]:
    """Return the members of a strategy, each with an equal part of its share."""
    return [replace(member, share=share / len(members)) for member in members]
