"""Train one model on several threads: its columns in parts, with the same bits on any number."""

from __future__ import annotations

from itertools import pairwise
from threading import Thread

import numpy as np

from polyadic.kernels import adam, split
from polyadic.kernels.cp import Layout
from polyadic.kernels.sharing import new_board
from polyadic.kernels.simd import aligned

MANY_SLOTS = 48  # in a row; with fewer, one thread alone would be slower for the parts
MUCH_WORK = 6144  # slots in a batch: 128 rows of the fewest; smaller steps were not tried
_ROOM = 65536  # factors that a part keeps at a time: they stay in the cache


def pays(layout: Layout, batch: int) -> bool:
    """Tell whether to part the columns: by the problem alone, since last bits depend on it."""
    n_slots = int(layout.slots[-1])
    return len(layout.first) > 1 and n_slots >= MANY_SLOTS and n_slots * batch >= MUCH_WORK


class SplitEpochs:
    """Epochs of `kernels.split`, with the room that they need."""

    def __init__(
        self,
        parameters: adam.Parameters,
        layout: Layout,
        n_outputs: int,
        always: np.ndarray,
        batch: int,
        n_threads: int,
    ):
        self.n_threads = min(n_threads, split.PARTS)
        width, n_columns = len(parameters.weights) // n_outputs, len(layout.first)
        height = len(parameters.table) // width
        half = np.searchsorted(layout.slots, layout.slots[-1] / 2)
        cuts = [0, int(np.clip(half, 1, n_columns - 1)), n_columns]
        widest = max(np.diff(cuts))
        self.n_rows = int(np.clip(_ROOM // (widest * width), 16, batch))
        self.mark = np.zeros(height, np.uint8)
        self.mark[always] = 1
        self.layout, self.height, self.always = layout, height, always
        self.width, self.n_outputs = width, n_outputs
        self.parts = tuple(self._part(a, b) for a, b in pairwise(cuts))

    def _room(self, n: int) -> np.ndarray:
        return aligned(self.n_rows * n * self.width, np.float32)

    def _part(self, begin: int, end: int) -> split.Part:
        """Return the part of the columns begin:end."""
        slots, first, constant, dense = self.layout
        own = Layout(
            np.append(slots[begin : end + 1], slots[-1]),
            first[begin:end].copy(),
            constant[begin:end].copy(),
            dense[begin:end].copy(),
        )
        stop = first[end] if end < len(first) else self.height
        always = self.always[(self.always >= first[begin]) & (self.always < stop)]
        touched = np.empty(self.height, np.intp)
        touched[: len(always)] = always
        n = end - begin
        return split.Part(
            own,
            len(always),
            touched,
            np.array([len(always)]),
            self._room(n),
            self._room(n + 1),
            self._room(1),
            np.zeros(1),
            aligned(self.n_outputs * self.width, np.float32),
        )

    def job(
        self,
        parameters: adam.Parameters,
        moments: tuple[adam.Moments, adam.Moments, adam.Moments],
        clock: adam.Clock,
        gradients: adam.Parameters,
        rows: adam.Rows,
        intercept: np.ndarray,
        loss: tuple[int, float],
        penalty: adam.Penalty,
        mask: np.ndarray,
    ) -> split.Job:
        """Return what does not change from epoch to epoch."""
        return split.Job(
            parameters,
            moments,
            clock,
            gradients,
            self.layout,
            rows,
            intercept.astype(np.float32),
            loss[0],
            np.float32(loss[1]),  # type: ignore[arg-type]
            penalty,
            mask,
            self.mark,
            self._room(1),
            self._room(1),
            np.zeros((self.n_rows, self.n_outputs), np.float32),
            np.zeros((self.n_rows, self.n_outputs), np.float32),
        )

    def run(
        self, job: split.Job, order: np.ndarray, batch: int, rates: np.ndarray, keep: float
    ) -> float:
        """Run one epoch on the threads there are; return the mean training loss on the way."""
        for part in self.parts:
            part.loss[0] = 0.0
        board, step = new_board(split.PARTS), int(job.clock.step[0])
        shared = (board, job, self.parts, order, batch, rates, np.float32(keep), step)
        helpers = [
            Thread(target=split.split_epoch, args=(me, *shared), daemon=True)
            for me in range(1, self.n_threads)
        ]
        for helper in helpers:
            helper.start()
        split.split_epoch(0, *shared)
        for helper in helpers:
            helper.join()
        return sum(float(part.loss[0]) for part in self.parts) / len(order)
