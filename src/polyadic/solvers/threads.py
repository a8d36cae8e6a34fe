"""Train one model on several threads; the result is the same, bit by bit, on any number of them."""

from __future__ import annotations

from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

from polyadic.kernels import adam
from polyadic.kernels.cp import Layout
from polyadic.kernels.jit import VECTORS
from polyadic.kernels.simd import aligned

if VECTORS or TYPE_CHECKING:
    from polyadic.kernels import threads as kernel
    from polyadic.kernels.sharing import new_board

# Slots per row from which the columns are split; with fewer, splitting makes one thread slower.
MANY_SLOTS = 48
MIN_BATCH_SLOTS = 6144  # slots in a batch: 128 rows of MANY_SLOTS; smaller batches were not tried
_MAX_FACTORS = 65536  # factors that a part keeps at once, so that they stay in the cache


def should_split(layout: Layout, batch: int) -> bool:
    """Return whether to split the columns into parts.

    This depends on the problem alone, not on the number of threads, because the last bits of the
    result depend on it. Never with POLYADIC_SIMD=0: threads that share an epoch need instructions
    that plain Numba does not have.
    """
    if not VECTORS:
        return False
    n_slots = int(layout.slots[-1])
    return len(layout.first) > 1 and n_slots >= MANY_SLOTS and n_slots * batch >= MIN_BATCH_SLOTS


class SplitEpochs:
    """Epochs of `kernels.threads`, with the work arrays that they need."""

    def __init__(self, job: adam.Job, always: np.ndarray, batch: int, n_threads: int):
        self.job, self.always = job, always
        self.n_threads = min(n_threads, kernel.PARTS)
        layout, self.n_outputs = job.layout, len(job.intercept)
        self.width, n_columns = len(job.mask) // self.n_outputs, len(layout.first)
        self.height = len(job.parameters.table) // self.width
        half = np.searchsorted(layout.slots, layout.slots[-1] / 2)
        cuts = [0, int(np.clip(half, 1, n_columns - 1)), n_columns]
        widest = max(np.diff(cuts))
        self.n_rows = int(np.clip(_MAX_FACTORS // (widest * self.width), 16, batch))
        self.shared = kernel.Shared(
            mark=np.zeros(self.height, np.uint8),
            product=self._work_array(1),
            behind=self._work_array(1),
            raw=np.zeros((self.n_rows, self.n_outputs), np.float32),
            slope=np.zeros((self.n_rows, self.n_outputs), np.float32),
        )
        self.shared.mark[always] = 1
        self.parts = tuple(self._part(a, b) for a, b in pairwise(cuts))

    def _work_array(self, n: int) -> np.ndarray:
        return aligned(self.n_rows * n * self.width, np.float32)

    def _part(self, begin: int, end: int) -> kernel.Part:
        """Return the part of the columns begin:end."""
        slots, first, constant, dense = self.job.layout
        own = Layout(
            np.append(slots[begin : end + 1], slots[-1]),
            first[begin:end].copy(),
            constant[begin:end].copy(),
            None if dense is None else dense[begin:end].copy(),
        )
        stop = first[end] if end < len(first) else self.height
        always = self.always[(self.always >= first[begin]) & (self.always < stop)]
        touched = np.empty(self.height, np.intp)
        touched[: len(always)] = always
        n = end - begin
        return kernel.Part(
            layout=own,
            n_always=len(always),
            touched=touched,
            n_met=np.array([len(always)]),
            factors=self._work_array(n),
            prefix=self._work_array(n + 1),
            suffix=self._work_array(1),
            loss=np.zeros(1),
            weights=aligned(self.n_outputs * self.width, np.float32),
        )

    def run(self, order: np.ndarray, batch: int, rates: np.ndarray, keep: np.float32) -> float:
        """Run one epoch on `n_threads` threads; return the mean training loss during the epoch."""
        for part in self.parts:
            part.loss[0] = 0.0
        board, step = new_board(kernel.PARTS), int(self.job.clock.step[0])
        epoch = (board, self.job, self.shared, self.parts, order, batch, rates, keep, step)
        helpers = [
            Thread(target=kernel.split_epoch, args=(me, *epoch), daemon=True)
            for me in range(1, self.n_threads)
        ]
        for helper in helpers:
            helper.start()
        kernel.split_epoch(0, *epoch)
        for helper in helpers:
            helper.join()
        return sum(float(part.loss[0]) for part in self.parts) / len(order)
