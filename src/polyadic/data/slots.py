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
    index = local.index[:, own].astype(np.int64) - layout.first[n] - constant
    value = local.value[:, own].astype(np.float64)
    m = int(local.dims[n]) - constant
    count = max(1, min(index.shape[1], m))
    start = np.where(value != 0, index, m).min(axis=1, initial=m)
    none = start == m
    start = np.clip(start, 0, m - count)
    place = np.where(value != 0, index - start[:, None], 0)
    if np.any(place < 0) or np.any(place >= count):
        raise ValueError(
            "solver='als' needs maps whose non-zero elements are neighbours in every row; those of "
            f"column {n} are not: use another map, or solver='adam'."
        )
    neat = np.zeros((len(index), count))
    np.add.at(neat, (np.arange(len(index))[:, None], place), value)
    total = neat.sum(axis=1)
    unity = bool(np.all(none | (np.abs(total - 1.0) < 1e-5)))
    if unity:  # removes the rounding of float32, which would spoil the Schur complement
        neat[~none] /= total[~none, None]
    cell = np.where(none, m, start)
    order = np.argsort(cell, kind="stable")
    bounds = np.searchsorted(cell[order], np.arange(m + 2))
    return Slots(start, neat, order, bounds, constant, unity)
