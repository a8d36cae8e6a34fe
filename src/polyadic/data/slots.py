"""Slots of one column, and its rows sorted by their slots, for alternating least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.data.features import LocalFeatures
from polyadic.kernels.als import Slots
from polyadic.maps.base import FeatureMap

# Slots per row that alternating least squares accepts: its normal equations need second moments of
# every pair of slots. Measured at rank 32 on eight columns, a sweep takes as long as 26 epochs of
# Adam with 4 slots, 52 with 8 and 170 with 32.
MOST_SLOTS = 4


def dense_slots(maps: Sequence[FeatureMap]) -> int:
    """Return the largest number of slots among maps with `all_slots`, 0 if there is no such map."""
    return max((m.dim - m.constant for m in maps if m.all_slots), default=0)


def n_slots(m: FeatureMap) -> int:
    """Return how many slots a fitted map has per row, the constant not counted."""
    kinds = {"numeric": np.float64, "categorical": np.int64}
    return m.encode(np.zeros(1, kinds[m.kind]))[0].shape[1]


def check_maps(local: LocalFeatures) -> None:
    """Refuse maps with more than `MOST_SLOTS` slots per row."""
    for n, count in enumerate(np.diff(local.layout.slots)):
        if count > MOST_SLOTS:
            raise ValueError(
                f"solver='als' needs maps with at most {MOST_SLOTS} neighbouring elements per "
                "row, the constant not counted: 'hat', 'onehot', BSpline of degree 3 or less, "
                f"Polynomial of d={MOST_SLOTS + 1} or less. Column {n} has a map with {count} "
                "elements per row: change it, or use solver='adam'."
            )


def column_slots(local: LocalFeatures, n: int) -> Slots:
    """Return the slots of column n as ascending neighbours, and its rows sorted by cell."""
    layout, own = local.layout, slice(local.layout.slots[n], local.layout.slots[n + 1])
    constant = bool(layout.constant[n])
    # One array per slot: NumPy is slow along an axis of two or three.
    index = [one - layout.first[n] - constant for one in local.index[:, own].T]
    value = [one.astype(np.float64) for one in local.value[:, own].T]
    m, every = int(local.dims[n]) - constant, np.arange(len(local))
    count = max(1, min(len(index), m))
    start = np.full(len(local), m)
    for at, v in zip(index, value):
        np.minimum(start, at, out=start, where=v != 0)
    none = start == m
    start = np.clip(start, 0, m - count)
    neat, total = np.zeros((len(local), count)), np.zeros(len(local))
    for at, v in zip(index, value):
        place = np.where(v != 0, at - start, 0)
        if place.min(initial=0) < 0 or place.max(initial=0) >= count:
            raise ValueError(
                "solver='als' needs maps whose non-zero elements are neighbours in every row; "
                f"those of column {n} are not: use another map, or solver='adam'."
            )
        neat[every, place] += v
        total += v
    unity = bool(np.all(none | (np.abs(total - 1.0) < 1e-5)))
    if unity:  # removes the rounding of float32, which would spoil the Schur complement
        neat /= np.where(none, 1.0, total)[:, None]
    cell = np.where(none, m, start)
    small = m <= np.iinfo(np.uint16).max  # which NumPy sorts several times as fast
    order = np.argsort(cell.astype(np.uint16) if small else cell, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(np.bincount(cell, minlength=m + 1))))
    return Slots(start, neat, order, bounds, constant, unity)
