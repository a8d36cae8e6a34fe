"""Alternating least squares: every core in turn, to its minimum with all others fixed.

A block is the core of a column, the output weights, or the additive part of a column. With all
other blocks fixed, f is linear in a block. For the squared error the best block is the solution of
normal equations; for other losses, the loss is approximated by a parabola at the present
predictions. The objective is the same as Adam's. No step raises it: a step is shortened until the
objective falls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from polyadic.data.features import LocalFeatures
from polyadic.data.slots import check_maps, column_slots
from polyadic.kernels import als as kernel
from polyadic.kernels import banded
from polyadic.kernels.losses import SOFTMAX, curvatures, weighted_losses
from polyadic.kernels.simd import padded
from polyadic.networks.cp import CPCores
from polyadic.objective.penalties import Norm, band_product
from polyadic.objective.problem import Problem
from polyadic.solvers.blocks import FLOOR, Block, band_reach, depth, pad, solve_block
from polyadic.solvers.contract import Report, Solution, SolverSettings, check
from polyadic.solvers.loop import Schedule, TrainingLoop

# All chosen by hand.
MAX_SWEEPS = 20  # max_iter="auto"
PATIENCE = 3  # sweeps without progress, for n_iter_no_change=None
HALVINGS = 12  # lengths of a step that are tried, each half of the one before
_LONGEST_STEP = 8.0  # a step is doubled up to this length while the objective falls
TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class ALS(Schedule):
    """Sweeps over all blocks. Learning rates, batches and running averages are not used.

    Parameters
    ----------
    damping : float
        Share by which the diagonal of the normal equations is raised. It shortens steps along
        directions that the rows determine poorly, and does not move the optimum.
    """

    learning_rate: float = 1.0
    batch_size: int = sys.maxsize
    max_iter: int = MAX_SWEEPS
    schedule: str = "constant"
    n_iter_no_change: int | None = PATIENCE
    damping: float = 1e-3

    name: ClassVar[str] = "solver='als'"
    loss_forms: ClassVar[tuple[str, ...]] = ("compiled", "curvature")
    penalties: ClassVar[tuple[str, ...]] = ("factors", "factors by noise", "order", "tensor norm")
    phases: ClassVar[tuple[str, ...]] = ("sweeps",)

    @classmethod
    def from_settings(cls, settings: SolverSettings) -> ALS:
        """Return the solver of a fit."""
        sweeps = settings.decide("max_iter", settings.usual_sweeps, "sweeps")
        return cls(max_iter=sweeps, **settings.sweeps(PATIENCE))

    def solve(
        self,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None = None,
        state: None = None,
        resumed: bool = False,
    ) -> Solution:
        """Minimise the problem's objective, starting from `cores`."""
        check(self, problem)
        return AlsLoop(self, problem, cores, free).run(rng, report, resumed)

    def go_on(
        self,
        problem: Problem,
        first: Solution,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None = None,
    ) -> Solution:
        """Continue from the solution of another solver, with the noise that it has measured."""
        loop = AlsLoop(self, problem, first.cores, free, noise=first.loss)
        return loop.run(rng, report, resumed=True)


@dataclass
class TensorNorm:
    """A norm of the weight tensor in a run: its strength and its Gram matrices."""

    norm: Norm
    by_noise: bool = False  # whether its strength is multiplied by the noise
    strength: float = 0.0
    grams: list[np.ndarray] = field(default_factory=list)  # A' M A of every column, (W, W)

    def weigh(self, noise: float, tables: list[np.ndarray], width: int) -> None:
        """Set the strength and all Gram matrices; tables[n] : (d_n * W,)."""
        self.strength = self.norm.strength * (noise if self.by_noise else 1.0)
        self.grams = [self._gram(n, a, width) for n, a in enumerate(tables)]

    def update(self, n: int, table: np.ndarray, width: int) -> None:
        """Set the Gram matrix of column n."""
        self.grams[n] = self._gram(n, table, width)

    def _gram(self, n: int, a: np.ndarray, width: int) -> np.ndarray:
        right, out = band_product(self.norm.metric[n], a.reshape(-1, width)), np.empty(width**2)
        kernel.gram(a, right.ravel(), len(right), width, out)
        return out.reshape(width, width)

    def gram_product(self, columns: Iterable[int], start: np.ndarray) -> np.ndarray:
        """Return start times the Gram matrices of these columns, entry by entry."""
        out = start.copy()
        for n in columns:
            out *= self.grams[n]
        return out


def start_curvature(problem: Problem, row_weight: np.ndarray) -> np.ndarray:
    """Return the array of curvatures: (n, 1) where all outputs share one, (n, L) otherwise.

    That of a quadratic loss never changes. Of all other losses only softmax has a kernel that
    writes one curvature per row; the others write one per output, whatever the loss declares.
    """
    loss = problem.loss
    if loss.quadratic:
        return 2.0 * row_weight[:, None]
    shared = loss.shared_curvature and loss.code == SOFTMAX
    return np.empty((len(row_weight), 1 if shared else problem.n_outputs))


class AlsLoop(TrainingLoop):
    """A run in double precision. The parameters are cores."""

    noise_pace = 1.0  # one sweep changes the loss as much as many epochs of Adam

    def __init__(
        self,
        solver: ALS,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray | None,
        noise: float | None = None,
    ):
        super().__init__(solver, problem, cores)
        if noise is not None and problem.loss.location_scale:
            self.noise = min(noise, 1.0)  # already measured: no sweep with a guess
        self.damping = solver.damping
        local, n_outputs = problem.local, problem.n_outputs
        check_maps(local)
        self.slots = [column_slots(local, n) for n in range(len(local.dims))]
        self.y = np.ascontiguousarray(problem.y, dtype=np.float64)
        self.row_weight = problem.unit_weights() / len(local)
        self.all_rows = np.arange(len(local))
        packed = cores.pack(np.float64)
        self.width, self.output_width = padded(cores.rank), padded(n_outputs)
        self.weights = packed.weights
        self.tables = [pad(a, self.width) for a in cores.factors]
        self.additive = [pad(v, self.output_width) for v in cores.additive or []]
        self.free = np.zeros((n_outputs, self.width))
        self.free[:, : cores.rank] = 1.0 if free is None else free.T
        n_products = depth(len(local.dims))
        self.products = [np.empty(len(local) * self.width) for _ in range(n_products)]
        self.products[0][:] = 1.0
        self.raw = np.empty((len(local), n_outputs))
        self.slopes = np.empty_like(self.raw)
        self.compiled_loss = problem.loss.compiled()
        self.compiled_curvature = problem.loss.compiled_curvature()
        self.curvature = start_curvature(problem, self.row_weight)
        self.refresh()
        self.order = self.column_order()
        self.norms = [] if problem.norm is None else [TensorNorm(problem.norm, by_noise=True)]
        if problem.order is not None:
            self.norms.append(TensorNorm(problem.order.as_norm()))
        self.weigh_norms()
        self.reaches = [self.reach(n, self.width, self.norms) for n in range(len(self.slots))]

    # ---- predictions and the objective ----------------------------------------------------------

    def refresh(self) -> None:
        """Compute the predictions, their loss and their slopes from the parameters."""
        self.raw[:] = self.problem.intercept
        product = self.multiplied(range(len(self.slots)), self.products[0], self.products[-1])
        kernel.read_out(product, self.width, self.weights, self.raw)
        ones = np.ones(len(self.raw) * self.output_width) if self.additive else self.raw[:0]
        for slots, core in zip(self.slots, self.additive):
            part = np.empty_like(ones)
            kernel.multiply(core, self.output_width, slots, ones, part)
            identity = pad(np.eye(self.raw.shape[1]), self.output_width)
            kernel.read_out(part, self.output_width, identity, self.raw)
        self.loss = self.measured(self.raw)

    def measured(self, raw: np.ndarray) -> float:
        """Return the mean loss of predictions, and write their slopes to `slopes`."""
        args = (self.y, self.row_weight, self.all_rows, 0, raw, self.slopes)
        return weighted_losses(self.compiled_loss, *args)

    def multiplied(self, columns: Iterable[int], source: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write source times the factors of these columns to `out`, both (n * W,)."""
        for n in columns:
            kernel.multiply(self.tables[n], self.width, self.slots[n], source, out)
            source = out
        return out

    def model(self) -> kernel.Quadratic:
        """Return the parabola that approximates the loss at the present predictions."""
        if not self.problem.loss.quadratic:
            args = (self.y, self.row_weight, self.raw, self.curvature)
            curvatures(self.compiled_curvature, *args)
        return kernel.Quadratic(self.slopes, self.curvature)

    def column_order(self) -> list[int]:
        """Return the columns, those that lower the loss most first: table order has no effect."""
        pulls = np.column_stack([self.slopes, self.row_weight])
        gains = []
        for slots in self.slots:
            begins = slots.bounds[:-1][np.diff(slots.bounds) > 0]
            cells = np.add.reduceat(pulls[slots.order], begins, axis=0)
            gains.append(np.sum(cells[:, :-1] ** 2 / np.maximum(cells[:, -1:], TINY)))
        return np.argsort(-np.array(gains), kind="stable").tolist()

    # ---- a sweep --------------------------------------------------------------------------------

    def train(self, rates: np.ndarray, rng: np.random.Generator) -> float:
        """Update every block once."""
        problem = self.problem
        self.bands = [a + self.noise * b for a, b in zip(problem.fixed.bands, problem.scaled.bands)]
        self.refresh()
        self.weigh_norms()
        for n in range(len(self.additive)):
            self.update_additive(n)
        self.descend(self.order, 0, [np.ones((self.width, self.width)) for _ in self.norms])
        self.update_weights()
        return self.loss

    def descend(self, columns: list[int], level: int, grams: list[np.ndarray]) -> None:
        """Update these columns; products[level] holds the product of all other columns' factors.

        First one half of them, with the factors of the other half as they were; then the other
        half, with the updated factors of the first. The product for one column thus takes log N
        multiplications and no division. The same holds for the Gram matrices : (W, W) of the norms.
        """
        if len(columns) == 1:
            self.update_core(columns[0], self.products[level], grams)
            return
        half = len(columns) // 2
        for own, rest in ((columns[:half], columns[half:]), (columns[half:], columns[:half])):
            self.multiplied(rest, self.products[level], self.products[level + 1])
            pairs = zip(self.norms, grams)
            self.descend(own, level + 1, [norm.gram_product(rest, gram) for norm, gram in pairs])

    def update_core(self, n: int, product: np.ndarray, grams: list[np.ndarray]) -> None:
        """Move the core of column n to its minimum, while there is time."""
        if self.out_of_time:
            return
        c = self.weights.reshape(-1, self.width)
        norms = [
            (norm.strength * norm.norm.metric[n], (c.T @ c * gram).ravel())
            for norm, gram in zip(self.norms, grams)
        ]
        block = Block(
            self.tables[n],
            self.slots[n],
            self.bands[n],
            product,
            self.weights,
            self.width,
            self.reaches[n],
            norms,
        )
        self.update(block)
        for norm in self.norms:
            norm.update(n, self.tables[n], self.width)

    def update_additive(self, n: int) -> None:
        """Move the additive part of column n to its minimum: a core of rank L, times ones."""
        width = self.output_width
        block = Block(
            self.additive[n],
            self.slots[n],
            self.bands[n],
            np.ones(len(self.raw) * width),
            pad(np.eye(self.raw.shape[1]), width),
            width,
            self.reach(n, width),
        )
        self.update(block)

    def reach(self, n: int, width: int, norms: Sequence[TensorNorm] = ()) -> int:
        """Return how far from the diagonal the normal equations of column n reach."""
        problem, metrics = self.problem, [norm.norm.metric[n] for norm in norms]
        bands = (problem.fixed.bands[n], problem.scaled.bands[n])
        return band_reach(self.slots[n].value.shape[1], bands, metrics, width)

    def weigh_norms(self) -> None:
        """Set the strengths of the norms by the noise, and recompute their Gram matrices."""
        for norm in self.norms:
            norm.weigh(self.noise, self.tables, self.width)

    def update(self, block: Block) -> None:
        """Solve the normal equations of a block, and take the best share of the step."""
        model, damping = self.model(), self.damping
        for _ in range(4):
            step, solved = solve_block(block, model, damping)
            if solved and np.all(np.isfinite(step)):
                break
            damping = 1e-6 + 100.0 * damping
        else:
            return
        part = np.empty_like(block.product)
        moved = np.zeros_like(self.raw)
        kernel.multiply(step, block.width, block.slots, block.product, part)
        kernel.read_out(part, block.width, block.weights, moved)
        linear = 2.0 * (step @ block.slope(block.core))
        square = step @ block.slope(step)
        block.core += self.best_share(moved, linear, square) * step

    def update_weights(self) -> None:
        """Move those output weights that are free to their minimum."""
        if not np.any(self.free):
            return
        width, model = self.width, self.model()
        product = self.multiplied(self.order, self.products[0], self.products[-1])
        z = np.zeros((width, width))
        for norm in self.norms:
            z += norm.strength * norm.gram_product(self.order, np.ones_like(z))
        step, c = np.zeros_like(self.free), self.weights.reshape(-1, width)
        workspace, dense_workspace = (
            kernel.Workspace.make(width, 0),
            banded.DenseWorkspace.make(width),
        )
        for k, free in enumerate(self.free):
            moments, gradient = np.zeros(width * width), np.zeros(width)
            kernel.weight_moments(product, width, model, k, workspace, moments, gradient)
            matrix = (moments.reshape(width, width) + 2.0 * z) * np.outer(free, free)
            gradient = (gradient + 2.0 * (z @ c[k])) * free
            floor = FLOOR * matrix.max() + TINY
            args = (self.damping, floor, dense_workspace, step[k])
            solved = banded.solve_dense(matrix.ravel(), gradient, *args)
            if not (solved and np.all(np.isfinite(step[k]))):
                step[k] = 0.0
        moved = np.zeros_like(self.raw)
        kernel.read_out(product, width, step.ravel(), moved)
        linear, square = 2.0 * np.sum(step * (c @ z)), np.sum(step * (step @ z))
        self.weights += self.best_share(moved, linear, square) * step.ravel()

    def best_share(self, moved: np.ndarray, linear: float, square: float) -> float:
        """Return the share of a step to take, and add that share to the predictions.

        moved : (n, L) is the change of the predictions by the whole step. The share t changes the
        penalties by t * linear + t**2 * square. It is zero if no share lowers the objective.
        """
        start = self.loss

        def rise(t: float) -> float:
            self.loss = self.measured(self.raw + t * moved)
            return self.loss - start + t * linear + t * t * square

        share, best = 0.0, 0.0
        for t in 0.5 ** np.arange(HALVINGS):
            best = rise(t)
            if best < 0.0:
                share = float(t)
                break
        measured, stretch = share, not self.problem.loss.exact_curvature
        while stretch and 0.0 < share < _LONGEST_STEP:
            measured = 2.0 * share
            found = rise(measured)
            if not found < best:
                break
            share, best = measured, found
        if share > 0.0:
            self.raw += share * moved
        if measured != share or share == 0.0:
            self.loss = self.measured(self.raw)
        return share

    # ---- methods of every training loop -------------------------------------------------------

    def averaged(self, out: CPCores | None) -> CPCores:
        """Return the present cores: nothing is averaged."""
        rank, n_outputs = self.cores.rank, self.raw.shape[1]
        factors = [a.reshape(-1, self.width)[:, :rank].copy() for a in self.tables]
        weights = self.weights.reshape(-1, self.width)[:, :rank].T.copy()
        additive = [v.reshape(-1, self.output_width)[:, :n_outputs].copy() for v in self.additive]
        return CPCores(factors, weights, self.problem.intercept, additive or None)

    def predict(self, parameters: CPCores, local: LocalFeatures) -> np.ndarray:
        """Contract cores."""
        return parameters.contract(local)

    def unpack(self, parameters: CPCores) -> CPCores:
        """Return the cores themselves."""
        return parameters

    def advice(self) -> str:
        """Return what to change after a run without a useful result."""
        return "Raise l2 or smoothness, lower rank, or use solver='adam'."
