"""Train one model on several workers, each with rows of its own, as one worker would on all.

Every batch is divided among the workers. Each computes the gradient of its part, the gradients are
added, and all take the same step: they hold the same parameters at every time. Table rows that no
part of a batch touches are not sent: what is sent per step does not grow with the number of
categories or knots.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from polyadic.data.features import LocalFeatures
from polyadic.kernels import adam as kernel
from polyadic.objective.problem import Rows
from polyadic.solvers.adam import flat_rows
from polyadic.solvers.blockwise import BlockLoop

# Steps whose touched rows are told in one message: their lists are small beside the gradients, so
# that this saves messages, not bytes. Chosen by hand.
_STEPS_TOLD = 64
# Where the slots of a batch are this many times the table rows, nearly all rows are touched: it is
# faster to send them all than to tell which. Chosen by hand, after `benchmarks/exchange.py`.
_MANY_TOUCHED = 8


class Exchange(Protocol):
    """How workers add up what each of them has; every worker must make the same calls."""

    rank: int  # of this worker, 0, 1, ...
    size: int  # number of workers

    def sum(self, array: np.ndarray) -> None:
        """Write the sum over the workers into a contiguous float32 or float64 array.

        All workers must get the same bits.
        """
        ...

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the int64 arrays (n,) of all workers, in the order of their ranks."""
        ...


class Torch:
    """The exchange of the current process group of `torch.distributed`.

    Parameters
    ----------
    device : str
        Where the group can add: "cpu" for gloo, "cuda" for NCCL.
    """

    def __init__(self, device: str = "cpu"):
        import torch
        import torch.distributed as group

        self.torch, self.group, self.device = torch, group, device
        self.rank, self.size = group.get_rank(), group.get_world_size()

    def sum(self, array: np.ndarray) -> None:
        """Add over the workers, in place: the array is not copied where the group adds on CPUs."""
        if self.size == 1:
            return
        own = self.torch.from_numpy(array)
        there = own.to(self.device)
        self.group.all_reduce(there)
        if there is not own:
            own.copy_(there)

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all workers."""
        if self.size == 1:
            return [array]
        lengths = self._gather(np.array([len(array)]))
        padded = np.zeros(int(max(lengths)[0]), np.int64)
        padded[: len(array)] = array
        return [each[: int(n[0])] for each, n in zip(self._gather(padded), lengths)]

    def _gather(self, array: np.ndarray) -> list[np.ndarray]:
        own = self.torch.from_numpy(array).to(self.device)
        found = [self.torch.empty_like(own) for _ in range(self.size)]
        self.group.all_gather(found, own)
        return [each.cpu().numpy() for each in found]


class JointEpochs:
    """Epochs that all workers of an exchange run together.

    Parameters
    ----------
    job : Job
        The same parameters, moments and clock in all workers; rows of its own in each.
    always : (k,)
        Table rows that every batch touches.
    exchange : Exchange
    """

    def __init__(self, job: kernel.Job, always: np.ndarray, exchange: Exchange):
        self.job, self.always, self.exchange = job, always, exchange
        n_outputs = len(job.intercept)
        self.workspace = kernel.Workspace.make(
            job.parameters, len(job.layout.first), n_outputs, always
        )
        gradients = job.gradients
        self.table = gradients.table.reshape(len(self.workspace.mark), -1)
        self.additive = None
        if gradients.additive is not None:
            self.additive = gradients.additive.reshape(len(self.table), n_outputs)
        self.buffer = np.empty(0, np.float32)  # made longer when needed
        self.n_sent = 0  # bytes that this worker has given to be added

    def run(
        self,
        rows: kernel.FlatRows,
        order: np.ndarray,
        ends: np.ndarray,
        sizes: np.ndarray,
        rates: np.ndarray,
        keep: np.float32,
    ) -> float:
        """Take one step per batch, and return the sum of the losses of all workers' rows.

        Parameters
        ----------
        rows : FlatRows
            The rows of this worker.
        order : (m,)
            These rows in their order of use.
        ends : (steps + 1,)
            Where in `order` the part of each batch begins, and the last one ends.
        sizes : (steps,)
            The rows of each batch, the parts of all workers together.
        rates : (steps,)
        """
        job = self.job._replace(rows=rows)
        total, n_always = np.zeros(1), len(self.always)
        whole = self.sends_all(int(sizes.max(initial=0)))
        told: list[np.ndarray] = []
        for step, size in enumerate(sizes):
            if not whole and step % _STEPS_TOLD == 0:
                told = self.tell_touched(rows, order, ends[step : step + _STEPS_TOLD + 1])
            args = (order, ends[step], ends[step + 1], np.float32(1.0 / size))
            loss, count = kernel.part_gradient(job, self.workspace, n_always, *args)
            total[0] += loss
            if whole:
                touched = self.add_all(self.workspace.touched[:count])
            else:
                touched = told[step % _STEPS_TOLD]
                self.add_touched(touched)
            kernel.joint_step(job, touched, rates[step], keep)
        self.exchange.sum(total)
        return float(total[0])

    def sends_all(self, batch: int) -> bool:
        """Tell whether batches touch so many table rows that all are sent, with marks."""
        return len(self.table) * _MANY_TOUCHED <= batch * int(self.job.layout.slots[-1])

    def tell_touched(
        self, rows: kernel.FlatRows, order: np.ndarray, ends: np.ndarray
    ) -> list[np.ndarray]:
        """Return the table rows that the batches of the next steps touch, in any worker."""
        height, n_slots = len(self.table), int(self.job.layout.slots[-1])
        mark, own = self.workspace.mark, np.empty(height, np.intp)
        found = []
        for step, (a, b) in enumerate(pairwise(ends)):
            count = kernel.list_touched(rows.slot, n_slots, order, a, b, mark, own)
            found.append(np.sort(own[:count]) + step * height)
        told = self.exchange.gather(np.concatenate(found))
        out = []
        for step in range(len(ends) - 1):
            low, high = step * height, (step + 1) * height
            parts = [one[np.searchsorted(one, low) : np.searchsorted(one, high)] for one in told]
            union = np.concatenate([*(part - low for part in parts), self.always])
            out.append(np.unique(union).astype(np.intp))
        return out

    def add_touched(self, touched: np.ndarray) -> None:
        """Add the gradients of the workers, those of the output weights and of these rows."""
        if self.exchange.size == 1:
            return
        weights, table, additive = self.job.gradients.weights, self.table, self.additive
        n, n_table = len(weights), len(weights) + len(touched) * table.shape[1]
        sent = self.sized(n_table + (0 if additive is None else len(touched) * additive.shape[1]))
        sent[:n] = weights
        rows = sent[n:n_table].reshape(len(touched), -1)
        np.take(table, touched, axis=0, out=rows)
        if additive is not None:
            sent[n_table:] = additive[touched].ravel()
        self.send(sent)
        weights[:] = sent[:n]
        table[touched] = rows
        if additive is not None:
            additive[touched] = sent[n_table:].reshape(len(touched), -1)

    def add_all(self, touched: np.ndarray) -> np.ndarray:
        """Add the gradients of the workers, and marks; return the rows that any has touched."""
        if self.exchange.size == 1:
            return np.sort(touched)
        arrays = [a.ravel() for a in self.job.gradients if a is not None]
        ends = np.cumsum([len(a) for a in arrays])
        sent = self.sized(ends[-1] + len(self.table))
        for array, end in zip(arrays, ends):
            sent[end - len(array) : end] = array
        marks = sent[ends[-1] :]
        marks[:] = 0.0
        marks[touched] = 1.0
        self.send(sent)
        for array, end in zip(arrays, ends):
            array[:] = sent[end - len(array) : end]
        return np.flatnonzero(marks)

    def sized(self, n: int) -> np.ndarray:
        """Return a work array of this many numbers."""
        if len(self.buffer) < n:
            self.buffer = np.empty(n, np.float32)
        return self.buffer[:n]

    def send(self, sent: np.ndarray) -> None:
        """Add over the workers, and count the bytes."""
        self.exchange.sum(sent)
        self.n_sent += sent.nbytes


class JointLoop(BlockLoop):
    """A run over blocks of rows, each of which is divided among the workers.

    All workers draw the same order of a block's rows, so that a batch has the same rows for any
    number of workers: those of `BlockLoop` on the whole block.

    Parameters
    ----------
    exchange : Exchange
    other parameters
        As for `BlockLoop`.
    """

    def __init__(self, *args: Any, exchange: Exchange, **others: Any):
        super().__init__(*args, **others)
        self.exchange = exchange
        self.joint = JointEpochs(self.job, self.always, exchange)

    def train_block(self, rows: Rows, rates: np.ndarray, rng: np.random.Generator) -> None:
        """Take one step per rate; `rows` are this worker's part of the block, in its order."""
        n_own = len(rows.y)
        told = np.concatenate(self.exchange.gather(np.array([n_own])))
        first, n_rows = int(told[: self.exchange.rank].sum()), int(told.sum())
        order = rng.permutation(n_rows)
        places = np.flatnonzero((order >= first) & (order < first + n_own))
        cuts = np.minimum(np.arange(-(-n_rows // self.batch) + 1) * self.batch, n_rows)
        ends = np.searchsorted(places, cuts)
        self.weigh_penalties(self.job)
        flat = flat_rows(rows, self.problem.weight_unit)
        keep = np.float32(self.settings.ema_decay)
        args = (order[places] - first, ends, np.diff(cuts), rates, keep)
        self.count_loss(self.joint.run(flat, *args), n_rows)

    def predict(self, parameters: kernel.Parameters, local: LocalFeatures) -> np.ndarray:
        """Contract packed parameters; every worker does a part of the rows."""
        raw = np.zeros((len(local), self.problem.n_outputs))
        own = np.array_split(np.arange(len(local)), self.exchange.size)[self.exchange.rank]
        raw[own] = super().predict(parameters, local.take(own))
        self.exchange.sum(raw)
        return raw

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline of any worker has passed."""
        late = np.array([float(super().out_of_time)])
        self.exchange.sum(late)
        return bool(late[0] > 0)
