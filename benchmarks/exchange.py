"""How workers can train one model together: bytes that they exchange, and seconds per step.

Processes on this machine, joined by gloo, train on the same rows, in one of these ways:

dense       PyTorch computes each worker's gradient; all gradients of all cores are added
whole       the fused engine computes it; all gradients of all cores are added
touched     the fused engine; only the table rows that the batch touches are added
average     every worker takes steps of its own; parameters are averaged every 64 steps

The batch is that of all workers together. The rows of two processes are halves of those of one.

Uses internals: it imports modules of polyadic that are not public.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from common import machine, print_table, print_title
from torch import distributed

from polyadic.data.features import encode
from polyadic.kernels import adam as kernel
from polyadic.losses import SquaredError
from polyadic.maps import Hat, OneHot
from polyadic.objective import penalties
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.adam import Adam, AdamLoop
from polyadic.solvers.inits import NearOne
from polyadic.solvers.torch_engine import Features
from polyadic.solvers.workers import JointEpochs, Torch

RANK, RATE, KEEP, STEPS_APART = 32, np.float32(0.01), np.float32(0.99), 64
WAYS = ("dense", "whole", "touched", "average")


@dataclass(frozen=True)
class Case:
    """A table: columns of numbers with 48 knots each, and columns of categories."""

    name: str
    n_numbers: int
    categories: tuple[int, ...] = ()


CASES = (
    Case("20 numbers", 20),
    Case("10 numbers, 1,000 and 50,000 categories", 10, (1000, 50_000)),
)


def make_loop(case: Case, n_rows: int) -> AdamLoop:
    """Return a training loop on random rows, one tenth of them held out; the same for a case."""
    rng = np.random.default_rng(0)
    numbers = list(rng.normal(size=(case.n_numbers, n_rows)))
    codes = [(n * rng.random(n_rows) ** 3).astype(int) for n in case.categories]
    y = np.sin(2 * numbers[0]) * numbers[1] + numbers[2] + 0.3 * rng.normal(size=n_rows)
    for values in codes:
        y += rng.normal(size=values.max() + 1)[values]
    y = (y - y.mean()) / y.std()
    columns = [*numbers, *codes]
    maps = [Hat(48).fit(x) for x in numbers] + [OneHot(min_count=1).fit(x) for x in codes]
    local, cut = encode(maps, columns), n_rows // 10
    train, held_out = np.arange(cut, n_rows), np.arange(cut)
    parts = (Rows(local.take(r), y[r, None], np.ones(len(r))) for r in (train, held_out))
    degrees = [m.degrees for m in maps]
    problem = Problem(*parts, SquaredError(), np.zeros(1), degrees)
    problem = problem.penalised(penalties.ridge(maps, 1e-5))
    rngs = [np.random.default_rng((0, n)) for n in range(len(maps) + 1)]
    start = NearOne().start(problem, RANK, rngs)
    loop = AdamLoop(Adam(batch_size=512), problem, start.cores, start.free)
    loop.job.band[:] = loop.fixed_band
    return loop


def own_rows(loop: AdamLoop, rank: int, size: int) -> kernel.FlatRows:
    """Return the rows of one worker."""
    flat, n = loop.job.rows, len(loop.problem.local)
    rows = np.arange(rank, n, size)
    slots = (a.reshape(n, -1)[rows].ravel() for a in (flat.slot, flat.value))
    return kernel.FlatRows(*slots, flat.y[rows], flat.weight[rows])


class Fused:
    """The fused engine, and gradients that are added at every step."""

    def __init__(self, loop: AdamLoop, whole: bool):
        self.loop, group = loop, Torch()
        self.rows = own_rows(loop, group.rank, group.size)
        height = len(loop.workspace.mark)
        always = np.arange(2, height - 2, dtype=np.intp) if whole else loop.always
        self.epochs = JointEpochs(loop.job, always, group)

    def epoch(self, batch: int, rng: np.random.Generator) -> None:
        """Take every row once."""
        n_own, n_rows = len(self.rows.y), len(self.loop.problem.local)
        n_steps = -(-n_rows // batch)
        ends = n_own * np.arange(n_steps + 1) // n_steps
        sizes = np.diff(n_rows * np.arange(n_steps + 1) // n_steps)
        rates = np.full(n_steps, RATE)
        self.epochs.run(self.rows, rng.permutation(n_own), ends, sizes, rates, KEEP)

    @property
    def n_sent(self) -> int:
        """Bytes given to be added so far."""
        return self.epochs.n_sent

    def loss(self) -> float:
        """Return the held-out loss."""
        return self.loop.held_out_loss(self.loop.state.parameters)


class Average(Fused):
    """The fused engine; parameters are averaged now and then."""

    def __init__(self, loop: AdamLoop, whole: bool = False):
        super().__init__(loop, whole)
        self.sent = 0

    def epoch(self, batch: int, rng: np.random.Generator) -> None:
        """Take every row once, `batch` rows of all workers per step."""
        group = self.epochs.exchange
        own = -(-batch // group.size)
        order, job = rng.permutation(len(self.rows.y)), self.loop.job._replace(rows=self.rows)
        for begin in range(0, len(order), own * STEPS_APART):
            some = order[begin : begin + own * STEPS_APART]
            args = (len(self.loop.always), some, own, np.full(-(-len(some) // own), RATE), KEEP)
            kernel.train_epoch(job, self.loop.workspace, *args)
            for array in (job.parameters.table, job.parameters.weights):
                if group.size > 1:
                    group.sum(array)
                    array /= group.size
                    self.sent += array.nbytes

    @property
    def n_sent(self) -> int:
        """Bytes given to be added so far."""
        return self.sent


class Dense:
    """PyTorch, and all gradients added at every step."""

    def __init__(self, loop: AdamLoop):
        torch.set_num_threads(1)
        self.group, self.loop, self.n_sent = Torch(), loop, 0
        self.mine = np.arange(self.group.rank, len(loop.problem.local), self.group.size)
        cpu = torch.device("cpu")
        self.features = Features(loop.problem.local.take(self.mine), cpu)
        self.y = torch.as_tensor(loop.problem.y[self.mine], dtype=torch.float32)
        parameters = loop.state.parameters
        width = len(parameters.weights)
        table = torch.tensor(parameters.table.reshape(-1, width), requires_grad=True)
        weights = torch.tensor(parameters.weights.reshape(width, 1), requires_grad=True)
        self.parameters = [table, weights]
        self.adam = torch.optim.Adam(self.parameters, lr=float(RATE), foreach=True)

    def epoch(self, batch: int, rng: np.random.Generator) -> None:
        """Take every row once."""
        own, order = -(-batch // self.group.size), torch.as_tensor(rng.permutation(len(self.y)))
        table, weights = self.parameters
        for begin in range(0, len(order), own):
            rows = order[begin : begin + own]
            raw = self.features.parts(table, rows).prod(1) @ weights
            loss = (raw - self.y[rows]).square().mean() / self.group.size
            self.adam.zero_grad()
            loss.backward()
            for one in self.parameters:
                if self.group.size > 1:
                    distributed.all_reduce(one.grad)
                    self.n_sent += one.grad.nbytes
            self.adam.step()

    def loss(self) -> float:
        """Return the held-out loss."""
        table, weights = (one.detach().numpy().ravel() for one in self.parameters)
        return self.loop.held_out_loss(kernel.Parameters(table, weights, None))


def train(case: Case, way: str, batch: int, n_rows: int, n_epochs: int) -> tuple:
    """Train as one of the workers; return bytes and seconds per step, and the held-out loss."""
    loop = make_loop(case, n_rows)
    makers = {
        "dense": lambda: Dense(loop),
        "whole": lambda: Fused(loop, True),
        "touched": lambda: Fused(loop, False),
        "average": lambda: Average(loop),
    }
    trainer, rng = makers[way](), np.random.default_rng((0, distributed.get_rank()))
    times, n_steps = [], -(-len(loop.problem.local) // batch)
    for _ in range(n_epochs):
        distributed.barrier()
        start = perf_counter()
        trainer.epoch(batch, rng)
        times.append(perf_counter() - start)
    # The first epoch compiles; the fastest is the one least disturbed by other programs.
    return trainer.n_sent / (n_epochs * n_steps), min(times[1:]) / n_steps, trainer.loss()


def time_sum(n_bytes: int) -> tuple[float]:
    """Return the seconds that it takes to add an array of this size over the workers."""
    array, group, times = np.zeros(n_bytes // 4, np.float32), Torch(), []
    for _ in range(200):
        distributed.barrier()
        start = perf_counter()
        group.sum(array)
        times.append(perf_counter() - start)
    return (min(times),)


def work(rank: int, size: int, meeting: str, tasks: list[tuple], found) -> None:
    """Be one worker; the first one tells what was found."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=size)
    for task in tasks:
        result = time_sum(*task) if len(task) == 1 else train(*task)
        if rank == 0:
            found.put(result)
    distributed.barrier()
    distributed.destroy_process_group()


def measure(size: int, tasks: list[tuple]) -> list[tuple]:
    """Return what `train` finds for each task, with this many workers."""
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=work, args=(rank, size, f"{folder}/meet", tasks, found))
            for rank in range(size)
        ]
        for one in workers:
            one.start()
        out = [found.get() for _ in tasks]
        for one in workers:
            one.join()
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sums", action="store_true", help="only time the exchange alone")
    args = parser.parse_args()
    n_rows, n_epochs = (10_000, 2) if args.quick else (args.rows, args.epochs)
    print(machine())
    sums = [(n,) for n in (4_000, 128_000, 512_000, 2_048_000)]
    lines = [[f"{n / 1e3:,.0f}", f"{1e3 * t:.3f}"] for (n,), (t,) in zip(sums, measure(2, sums))]
    print_title("To add an array over two processes, without anything else, at best")
    print_table(["kB", "ms"], lines)
    if args.sums:
        return
    tasks = [(c, way, b, n_rows, n_epochs) for c in CASES for b in (512, 4096) for way in WAYS]
    found = list(zip(tasks, measure(1, tasks), measure(2, tasks)))
    for case in CASES:
        lines = [
            [
                f"{task[2]}",
                task[1],
                f"{two[0] / 1e3:,.0f}",
                f"{1e3 * one[1]:.2f}",
                f"{1e3 * two[1]:.2f}",
                f"{one[1] / two[1]:.2f}x",
                f"{one[2]:.4f}",
                f"{two[2]:.4f}",
            ]
            for task, one, two in found
            if task[0] == case
        ]
        print_title(f"{case.name}; rank {RANK}; {n_epochs} epochs of {9 * n_rows // 10:,} rows")
        heads = ["batch", "way", "kB a step", "ms a step, 1", "2 workers", "faster", "loss, 1", "2"]
        print_table(heads, lines)


if __name__ == "__main__":
    main()
