"""The shares of the members of all strategies in the model, by the rows that they held out."""

from __future__ import annotations

import numpy as np

from polyadic.training import mixing
from polyadic.training.fits import Fits
from polyadic.training.forest import NAME
from polyadic.training.merge import Member
from polyadic.training.plan import Choice, Plan


def find_shares(
    groups: list[list[Member]], fits: Fits
) -> tuple[list[list[Member]], np.ndarray, list[Choice]]:
    """Return the groups of members, their shares, and what is to be told of them."""
    told = [group for group in groups if all(m.solution.held_out is not None for m in group)]
    numbers = mixing.common_numbers(told) if told else []
    loss, alone_will_do = fits.plan.loss, np.ones(1)
    if not told:
        return groups[:1], alone_will_do, []
    if len(told) < 2 or not numbers:
        own = [member.number for member in told[0]]
        y, weight = mixing.held_out_targets(fits.rows, fits.held_out, fits.fold_of, own)
        raw = mixing.held_out_raw(told[0], fits.fold_of, own)
        only = Choice("shares", f"{told[0][0].kind} 1.00", "nothing else can be compared")
        found = _held_out_losses(fits.plan, y, raw, weight)
        return told[:1], alone_will_do, [only, *found] if fits.plan.mixed else found
    groups = told
    y, weight = mixing.held_out_targets(fits.rows, fits.held_out, fits.fold_of, numbers)
    raws = np.array([mixing.held_out_raw(group, fits.fold_of, numbers) for group in groups])
    shares = _shares(groups, numbers, fits, y, weight, raws)
    mixed = loss.value(y, np.tensordot(shares, raws, 1), weight)
    alone = [loss.value(y, raw, weight) for raw in raws]
    text = ", ".join(f"{group[0].kind} {share:.2f}" for group, share in zip(groups, shares))
    losses = ", ".join(f"{group[0].kind} {value:.4g}" for group, value in zip(groups, alone))
    why = f"held-out loss {mixed:.4g}; alone: {losses}"
    measured = _held_out_losses(fits.plan, y, np.tensordot(shares, raws, 1), weight)
    return groups, shares, [Choice("shares", text, why), *measured]


def _held_out_losses(
    plan: Plan, y: np.ndarray, raw: np.ndarray, weight: np.ndarray
) -> list[Choice]:
    """Return the loss of held-out rows, and that of the constant that training starts from.

    Not a choice, but what all of them came to: on the scale of the target in training.
    """
    found = plan.loss.value(y, raw, weight)
    constant = plan.loss.value(y, np.broadcast_to(plan.intercept, raw.shape), weight)
    return [
        Choice("held-out loss", f"{found:.4g}", "of the model, on the scale of training"),
        Choice("constant loss", f"{constant:.4g}", "of a constant prediction, on the same rows"),
    ]


def _shares(
    groups: list[list[Member]],
    numbers: list[int],
    fits: Fits,
    y: np.ndarray,
    weight: np.ndarray,
    raws: np.ndarray,
) -> np.ndarray:
    """Return the share of each group: first of the smooth ones, then of trees beside them."""
    loss, kinds = fits.plan.loss, [group[0].kind for group in groups]
    smooth = np.array([kind != NAME for kind in kinds])
    shares = np.zeros(len(groups))
    shares[smooth] = mixing.find_shares(loss, y, weight, raws[smooth])
    if np.all(smooth):
        return shares
    some = mixing.some_rows(len(y), fits.plan.seed)
    spread = np.zeros((0, len(some), raws.shape[2]))
    if fits.fold_of is not None:  # otherwise the mean of all members predicts held-out rows
        own = mixing.held_out_places(fits.fold_of, numbers)[some]
        columns = [column[own] for column in fits.rows.columns]
        used = [group for group, kind in zip(groups, kinds) if kind != NAME]
        spread = mixing.deviations(used, shares[smooth], numbers, columns)
    mixed, trees = np.tensordot(shares, raws, 1)[some], raws[kinds.index(NAME)][some]
    asked = fits.plan.trees != "auto"
    share = mixing.share_of_trees(loss, y[some], weight[some], mixed, trees, spread, asked)
    return np.where(smooth, (1.0 - share) * shares, share)
