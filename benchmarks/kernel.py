"""Time of a training epoch: the fused engine against eager PyTorch, and against this CPU's peak.

Both run the same steps on the same rows: gather or einsum, product over the columns, squared loss
plus L2, gradients, Adam. The fused engine uses one thread, and also keeps a running average of
the parameters, which PyTorch does not.

Uses internals: it imports modules of polyadic that are not public.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

import numpy as np
import peak
import torch
from common import machine, medians, print_table, print_title, verdict

from polyadic.data.features import always_touched, encode, stack_height
from polyadic.datasets import fetch_california_housing
from polyadic.kernels import adam as kernel
from polyadic.kernels.cp import GUARD
from polyadic.kernels.simd import LANES
from polyadic.losses import SquaredError
from polyadic.maps import Hat, Polynomial
from polyadic.maps.base import FeatureMap
from polyadic.objective import penalties
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.adam import AdamState
from polyadic.solvers.inits import Gaussian, Init, NearOne

RATE, AVERAGE, L2 = 1e-3, 0.99, 3e-7
ADAM = 19  # operations per entry: moments 3 + 4, move 6, running average 6
PENALTY = 2  # operations per entry


@dataclass(frozen=True)
class Case:
    """A model and its batches, and how much faster than PyTorch it has to be."""

    name: str
    map: FeatureMap
    rank: int
    batch: int
    init: Init
    required: float


CASES = (
    Case("polynomial", Polynomial(75, normalize=True), 20, 32, Gaussian(0.2), 5.0),
    Case("hats", Hat(48), 32, 128, NearOne(), 10.0),
)


class Fused:
    """Epochs of the fused engine, by direct calls of the kernel: no held-out rows."""

    def __init__(self, case: Case, X: np.ndarray, y: np.ndarray):
        maps = [case.map.clone().fit(x) for x in X.T]
        self.features = encode(maps, list(X.T))
        self.batch, self.n = case.batch, len(y)
        rows = Rows(self.features, y[:, None], np.ones(self.n))
        degrees = [m.degrees for m in maps]
        problem = Problem(rows, None, SquaredError(), np.zeros(1), degrees)
        self.problem = problem.penalised(penalties.ridge(maps, L2))
        rngs = [np.random.default_rng((0, n)) for n in range(len(maps) + 1)]
        self.start = case.init.start(self.problem, case.rank, rngs)
        self.state = AdamState.start(self.start.cores)
        self.rng = np.random.default_rng(0)

    def train(self, state: AdamState, order: np.ndarray) -> None:
        """Take the rows in this order, in batches, once."""
        features = self.features
        band = np.concatenate(
            [np.zeros((GUARD, 5)), *self.problem.fixed.bands, np.zeros((GUARD, 5))]
        )
        weights = state.parameters.weights
        mask = np.zeros_like(weights)
        mask[: len(self.start.free)] = self.start.free[:, 0]
        job = kernel.Job(
            parameters=state.parameters,
            moments=state.moments,
            clock=state.clock,
            gradients=state.gradients,
            layout=features.layout.for_kernel(),
            rows=kernel.FlatRows(
                features.index.ravel(),
                features.value.ravel(),
                self.problem.y.astype(np.float32),
                np.ones(self.n, np.float32),
            ),
            intercept=np.zeros(1, np.float32),
            loss=self.problem.loss.compiled(np.float32),
            band=band.astype(np.float32),
            order=None,
            mask=mask,
        )
        always = always_touched(features.layout, features.dims)
        workspace = kernel.Workspace.make(state.parameters, len(features.dims), 1, always)
        rates = np.full(-(-len(order) // self.batch), RATE, np.float32)
        args = (len(always), order, self.batch, rates, np.float32(AVERAGE))
        kernel.train_epoch(job, workspace, *args)

    def epoch(self) -> None:
        """Train on all rows once."""
        self.train(self.state, self.rng.permutation(self.n))

    def first_gradient(self) -> np.ndarray:
        """Return the gradient of the first batch, (D, R), recovered from Adam's first moment."""
        state = AdamState.start(self.start.cores)
        self.train(state, np.arange(self.batch))
        first = state.moments[0].first.reshape(self.height, -1)[:, : self.start.cores.rank]
        return first / (1.0 - kernel.BETA1)

    @property
    def height(self) -> int:
        """Rows of the stacked cores, guard rows included."""
        return stack_height(self.features.dims)

    def touched(self) -> np.ndarray:
        """Return how many rows of the cores each batch of an epoch touches."""
        always = always_touched(self.features.layout, self.features.dims)
        order = self.rng.permutation(self.n)
        batches = [order[begin : begin + self.batch] for begin in range(0, self.n, self.batch)]
        return np.array([len(np.union1d(self.features.index[b], always)) for b in batches])

    def operations(self, width: int) -> float:
        """Return the floating-point operations that an epoch of this width needs."""
        layout = self.features.layout
        n_columns, n_slots = len(layout.first), layout.slots[-1]
        n_constant = layout.constant.sum()
        factors = 2 * n_slots - n_columns + n_constant
        products = 3 * (n_columns - 1)  # prefix, suffix, and one times the other
        outputs = 2 + 1 + 2  # C'p, C g, and the gradient of C
        slopes = 2 * n_slots + n_constant
        per_row = factors + products + outputs + slopes
        touched = self.touched()
        updates = np.sum(PENALTY * (touched - n_constant) + ADAM * (touched + 1))
        return width * (float(self.n) * per_row + updates)

    def traffic(self, width: int) -> float:
        """Return the bytes that an epoch of this width has to read and write.

        A row of data writes and reads factors and prefix products, reads its elements, and reads
        and writes their gradient; where every row touches all elements, once per batch is enough.
        An update reads and writes parameters, gradient, two moments and the average.
        """
        layout, touched = self.features.layout, self.touched()
        n_elements = layout.slots[-1] + layout.constant.sum()
        visits = len(touched) if layout.dense.all() else self.n
        elements, products = 3.0 * n_elements * visits, 4.0 * len(layout.first) * self.n
        return 4.0 * width * (elements + products + 10.0 * touched.sum())

    def working_set(self, width: int) -> int:
        """Return the bytes of parameters, gradient, moments and average."""
        return 5 * 4 * width * self.height


class Torch:
    """The same epochs in eager PyTorch.

    As written: gather or einsum, prod, Adam, all with their defaults. Tuned: the fastest variant
    of those tried (embedding, indexing, embedding_bag; einsum, bmm; prod, a loop over the columns;
    Adam plain, fused), and denormal numbers flushed to zero, as the fused engine does: the moments
    of high powers end up there, and slow a CPU down several times.
    """

    def __init__(self, fused: Fused, tuned: bool):
        features, cores = fused.features, fused.start.cores
        self.tuned, self.batch, self.n = tuned, fused.batch, fused.n
        self.y = torch.tensor(fused.problem.y[:, 0], dtype=torch.float32)
        self.dense = bool(features.layout.dense.all())
        n_columns = len(cores.factors)
        self.value = torch.tensor(features.value.reshape(self.n, n_columns, -1))
        if self.dense:
            parts = [np.stack(cores.factors)]
        else:
            # The constant element has no slot: its rows are a parameter of their own.
            table, constant = np.concatenate(cores.factors), features.layout.first - GUARD
            index = features.index.reshape(self.n, n_columns, -1) - GUARD
            self.index = torch.tensor(index - 1 - np.arange(n_columns)[:, None], dtype=torch.int64)
            parts = [np.delete(table, constant, axis=0), table[constant], cores.weights[:, 0]]
        self.parameters = [
            torch.nn.Parameter(torch.tensor(part, dtype=torch.float32)) for part in parts
        ]
        self.optimiser = torch.optim.Adam(self.parameters, lr=RATE, fused=tuned or None)

    def factors(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the factors of the rows, (N, rows, R)."""
        core, value = self.parameters[0], self.value[rows]
        if not self.dense:
            if self.tuned:
                slots = torch.nn.functional.embedding(self.index[rows], core)
            else:
                slots = core[self.index[rows]]
            return ((slots * value[..., None]).sum(2) + self.parameters[1]).transpose(0, 1)
        if self.tuned:
            return torch.bmm(value.transpose(0, 1), core)
        return torch.einsum("bnd,ndr->nbr", value, core)

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of the rows plus the penalty."""
        core, product = self.parameters[0], self.factors(rows).prod(0)
        # In the paper's model the output weights are ones and are not trained.
        raw = product.sum(1) if self.dense else product @ self.parameters[2]
        return torch.mean((raw - self.y[rows]) ** 2) + L2 * torch.sum(core * core)

    def epoch(self, n_threads: int) -> None:
        """Train on all rows once."""
        torch.set_num_threads(n_threads)
        torch.set_flush_denormal(self.tuned)
        order = torch.randperm(self.n)
        for begin in range(0, self.n, self.batch):
            self.optimiser.zero_grad()
            self.loss(order[begin : begin + self.batch]).backward()
            self.optimiser.step()
        torch.set_flush_denormal(False)

    def first_gradient(self, fused: Fused) -> np.ndarray:
        """Return the gradient of the first batch in the layout of the fused engine, (D, R)."""
        parts = torch.autograd.grad(self.loss(torch.arange(self.batch)), self.parameters)
        out = np.zeros((fused.height, fused.start.cores.rank), np.float32)
        if self.dense:
            out[GUARD:-GUARD] = parts[0].reshape(-1, out.shape[1]).numpy()
            return out
        constant = fused.features.layout.first
        others = np.setdiff1d(np.arange(GUARD, fused.height - GUARD), constant)
        out[others], out[constant] = parts[0].numpy(), parts[1].numpy()
        return out


def gradient_difference(fused: Fused, eager: Torch) -> float:
    """Return the largest difference of the first gradients, relative to the largest entry.

    Rows of the cores that the batch does not touch are left out: the fused engine does not change
    them at this step, PyTorch applies the penalty to them.
    """
    ours, theirs = fused.first_gradient(), eager.first_gradient(fused)
    always = always_touched(fused.features.layout, fused.features.dims)
    touched = np.union1d(fused.features.index[: fused.batch], always)
    return float(np.abs(ours[touched] - theirs[touched]).max() / np.abs(theirs[touched]).max())


VARIANTS = {"as written": False, "tuned": True}


def measure(case: Case, fused: Fused, repeats: int) -> tuple[dict[str, float], list[list[str]]]:
    """Return the median times, and one line of the table for each variant of the PyTorch code."""
    eager = {name: Torch(fused, tuned) for name, tuned in VARIANTS.items()}
    differences = {name: gradient_difference(fused, engine) for name, engine in eager.items()}
    works = {"fused": fused.epoch}
    for name, engine in eager.items():
        works |= {f"{name} {k}": partial(engine.epoch, k) for k in (1, 2)}
    times = medians(works, repeats)
    lines = []
    for name in eager:
        one, two = times[f"{name} 1"], times[f"{name} 2"]
        ratio = min(one, two) / times["fused"]
        lines.append(
            [
                f"{case.name}, d={fused.features.dims[0]}, R={case.rank}, batch {case.batch}",
                name,
                *(f"{1e3 * t:.2f}" for t in (times["fused"], one, two)),
                f"{ratio:.1f}x",
                f"{case.required:g}x {verdict(ratio >= case.required)}",
                f"{differences[name]:.0e}",
            ]
        )
    return times, lines


def shares(case: Case, fused: Fused, epoch: float, peaks: dict[int, float]) -> list[list[str]]:
    """Return one line of the table of operations for the padded width and one for the rank."""
    lines = []
    padded = len(fused.state.parameters.weights)
    for text, width in (("as executed", padded), ("useful", case.rank)):
        operations = fused.operations(width)
        speed = operations / epoch
        lines.append(
            [
                f"{case.name}, width {width} ({text})",
                f"{operations / 1e6:.1f}",
                f"{speed / 1e9:.1f}",
                f"{speed / max(peaks.values()):.1%}",
                f"{speed / peaks[LANES]:.1%}",
            ]
        )
    return lines


def roofs(case: Case, fused: Fused, epoch: float, peak_speed: float, repeats: int) -> list[str]:
    """Return the line of the table that says which bound is the lower one, and how near it is."""
    width = len(fused.state.parameters.weights)
    operations, moved = fused.operations(width), fused.traffic(width)
    held = fused.working_set(width)
    speed = peak.bandwidth(held, repeats)
    bounds = {"arithmetic": operations / peak_speed, "traffic": moved / speed}
    lower = max(bounds, key=bounds.__getitem__)
    return [
        case.name,
        f"{operations / moved:.2f}",
        f"{held / 1e3:.0f} kB",
        f"{speed / 1e9:.0f}",
        *(f"{1e3 * bound:.2f}" for bound in bounds.values()),
        f"{1e3 * epoch:.2f}",
        f"{lower}, {bounds[lower] / epoch:.0%}",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    split = fetch_california_housing(split="paper")
    X, y = split.X_train, split.y_train
    print(f"{machine()}, torch {torch.__version__}")
    print(f"{len(X):,} rows, {X.shape[1]} columns; medians of {repeats} epochs, taken in turns")
    peaks = peak.measure(repeats)
    against, rates, lines_of_roofs = [], [], []
    for case in CASES:
        fused = Fused(case, X, y)
        times, lines = measure(case, fused, repeats)
        against += lines
        rates += shares(case, fused, times["fused"], peaks)
        lines_of_roofs.append(roofs(case, fused, times["fused"], peaks[LANES], repeats))
    print_title("Milliseconds per epoch; the ratio is to the better of one and two threads")
    columns = ["model", "PyTorch", "fused", "1 thread", "2 threads", "ratio", "required"]
    print_table([*columns, "gradients differ by"], against)
    print_title("Share of the float32 peak of one core")
    widest = max(peaks, key=peaks.__getitem__)
    print(
        f"measured peak: {peaks[widest] / 1e9:.0f} GFLOP/s, with vectors of {widest}; "
        f"{peaks[LANES] / 1e9:.0f} with vectors of {LANES}, as the kernels use"
    )
    header = ["model", "MFLOP per epoch", "GFLOP/s", "of the peak", f"of the peak at {LANES} lanes"]
    print_table(header, rates)
    print_title("The roofline: the least time that arithmetic or traffic takes, in milliseconds")
    header = ["model", "FLOP per byte", "working set", "GB/s", "arithmetic", "traffic"]
    print_table([*header, "measured", "lower roof, how near"], lines_of_roofs)


if __name__ == "__main__":
    main()
