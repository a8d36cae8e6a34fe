"""Blocks of a CP model in which f is linear: their normal equations, memory and time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from polyadic.data.slots import dense_slots
from polyadic.kernels import als as kernel
from polyadic.kernels import banded
from polyadic.kernels.simd import LANES, padded
from polyadic.maps.base import FeatureMap
from polyadic.objective.penalties import band_product

# Least diagonal entry of normal equations, as a share of the largest; chosen by hand.
FLOOR = 1e-10


@dataclass
class Block:
    """A core, and what it is multiplied by to give f: product and output weights."""

    core: np.ndarray  # (d * W,), changed in place
    slots: kernel.Slots
    penalty: np.ndarray  # (d, 5)
    product: np.ndarray  # (n * W,)
    weights: np.ndarray  # (L * W,)
    width: int
    reach: int  # of the normal equations, from their diagonal: see `band_reach`
    # For every norm of the tensor, M : (d, 5) times its strength, and Z : (W * W,).
    norms: Sequence[tuple[np.ndarray, np.ndarray]] = ()

    def slope(self, core: np.ndarray) -> np.ndarray:
        """Return half the gradient of the penalties at a core : (d * W,)."""
        a = core.reshape(-1, self.width)
        out = band_product(self.penalty, a)
        for metric, gram in self.norms:
            out = out + band_product(metric, a) @ gram.reshape(self.width, self.width)
        return out.ravel()


def pad(core: np.ndarray, width: int) -> np.ndarray:
    """Return a core (d, R) with zeros up to a width of W, flat : (d * W,)."""
    out = np.zeros((len(core), width))
    out[:, : core.shape[1]] = core
    return out.ravel()


def depth(n_columns: int) -> int:
    """Return how many products of factors a sweep keeps at once."""
    return 3 + int(np.ceil(np.log2(max(2, n_columns))))


def working_memory(maps: Sequence[FeatureMap], rank: int, n_rows: int) -> int:
    """Return the memory of the work arrays of a run, in units of six float32, as of a parameter."""
    width = padded(rank)
    block = 6 * max(m.dim for m in maps) * width * width  # at most: four slots and a constant
    return (n_rows * width * (depth(len(maps)) + 1) + block) // 3


def sweep_cost(maps: Sequence[FeatureMap], rank: int) -> float:
    """Return about how many epochs of Adam take as long as a sweep, if a map is dense.

    A sweep computes W^2 moments per pair of slots, an epoch handles W numbers per slot. At rank 32,
    9, 15, 26 and 52 epochs were measured for 1, 2, 4 and 8 slots.

    >>> from polyadic.maps import Polynomial
    >>> sweep_cost([Polynomial(2)], 32), sweep_cost([Polynomial(5)], 32)
    (12.8, 32.0)
    """
    return padded(rank) * (1 + dense_slots(maps)) / 5.0


def band_reach(
    n_slots: int, penalties: Iterable[np.ndarray], metrics: Iterable[np.ndarray], width: int
) -> int:
    """Return how far from the diagonal the normal equations of a block reach.

    penalties, metrics : (d, 5) are bands of penalties and of norms of the tensor.
    """
    reach = n_slots * width - 1
    for band in penalties:
        reach = max(reach, _reach(band) * width)
    for metric in metrics:
        reach = max(reach, (_reach(metric) + 1) * width - 1)
    return reach


def _reach(band: np.ndarray) -> int:
    """Return how far from the diagonal a band : (d, 5) reaches."""
    used = np.flatnonzero(band.any(axis=0))
    return int(np.abs(used - 2).max(initial=0))


def solve_block(block: Block, model: kernel.Quadratic, damping: float) -> tuple[np.ndarray, bool]:
    """Return the step of a block : (d * W,), and whether its equations could be solved."""
    width, slots, reach = block.width, block.slots, block.reach
    n = len(block.core) - (width if slots.constant else 0)
    system = banded.System.zeros(n, width, reach, len(block.core))
    workspace = kernel.Workspace.make(width, slots.value.shape[1])
    kernel.normal_equations(block.product, width, block.weights, slots, model, workspace, system)
    (metric, gram), *others = block.norms or [(None, None)]  # type: ignore[list-item]
    core = (block.core, width, slots.constant)
    banded.add_penalties(*core, block.penalty, metric, gram, system)
    for metric, gram in others:
        banded.add_penalties(*core, np.zeros_like(block.penalty), metric, gram, system)
    step, x = np.zeros(len(block.core)), np.empty(n + reach + LANES)
    dense_workspace = banded.DenseWorkspace.make(width)
    args = (width, reach, slots.constant, damping, FLOOR, dense_workspace)
    return step, banded.solve(system, *args, x, step)
