"""Sweeps over the arrays of any tensor network, each moved to its minimum with all others fixed.

For a Tensor Train this is the one-site form of the density matrix renormalisation group (DMRG). A
prediction is linear in the core of a column: raw_l = phi_n(x_n)' A env_l, where the *environment*
env_l : (K,) is the slope of the contraction by the part of column n. So the core solves normal
equations. Arrays that belong to no column are moved by conjugate gradients. Where a prediction is
not linear in an array (the cores of polynomial networks, the transfer tensors of one level of a
Hierarchical Tucker tree), it is linearised. In every case a step is shortened until the objective
falls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solveh_banded

from polyadic.data.features import LocalFeatures
from polyadic.kernels.losses import curvatures, weighted_losses
from polyadic.networks.cores import Cores
from polyadic.objective.penalties import band_product
from polyadic.objective.problem import Problem
from polyadic.solvers.als import HALVINGS, MAX_SWEEPS, PATIENCE, TINY, start_curvature
from polyadic.solvers.contract import Report, Solution, SolverSettings, check
from polyadic.solvers.loop import Schedule, TrainingLoop

# All chosen by hand.
_CHUNK = 2**23  # numbers of the parts of a chunk of rows: 64 MB
_SMALL_CORE = 1000  # unknowns up to which a core's constant is solved for with the others
_LARGEST_MATRIX = 10**8  # numbers of the normal equations of a core: 800 MB
_STEPS = 30  # of conjugate gradients
_ENOUGH = 1e-3  # of the residual at which they stop, as a share of the first one


@dataclass(frozen=True)
class CoreSweeps(Schedule):
    """Sweeps over all cores and extra arrays of a network, on the CPU.

    Learning rates, batches and running averages are not used.

    Parameters
    ----------
    damping : float
        Share by which the diagonal of the normal equations of a core is raised.
    """

    learning_rate: float = 1.0
    batch_size: int = sys.maxsize
    max_iter: int = MAX_SWEEPS
    schedule: str = "constant"
    n_iter_no_change: int | None = PATIENCE
    damping: float = 1e-3

    name: ClassVar[str] = "solver='als'"
    loss_forms: ClassVar[tuple[str, ...]] = ("compiled", "curvature")
    penalties: ClassVar[tuple[str, ...]] = ("factors", "factors by noise", "order")
    phases: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_settings(cls, settings: SolverSettings) -> CoreSweeps:
        """Return the solver of a fit; sweeps run on the CPU."""
        if str(settings.device).split(":")[0] != "cpu":
            raise ValueError(f"solver='als' runs on device='cpu' only, got {settings.device!r}.")
        sweeps = settings.decide("max_iter", settings.usual_sweeps, "sweeps")
        return cls(max_iter=sweeps, **settings.sweeps(PATIENCE))

    def solve(
        self,
        problem: Problem,
        cores: Any,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None = None,
        state: None = None,
        resumed: bool = False,
    ) -> Solution:
        """Minimise the problem's objective, starting from `cores`."""
        check(self, problem)
        return CoreLoop(self, problem, cores, free).run(rng, report, resumed)


@dataclass
class ColumnSlots:
    """The slots of one column.

    Attributes
    ----------
    index, value : (n, s)
        Elements of the core, and their numbers; an implied constant is a slot of its own.
    constant : bool
        Whether element 0 is an implied constant.
    """

    index: np.ndarray
    value: np.ndarray
    constant: bool

    @classmethod
    def read(cls, local: LocalFeatures, n: int, constants: bool) -> ColumnSlots:
        """Take the slots of column n from all slots."""
        own = slice(local.layout.slots[n], local.layout.slots[n + 1])
        index = local.index[:, own].astype(np.int64) - local.layout.first[n]
        value = local.value[:, own].astype(np.float64)
        constant = bool(constants and local.layout.constant[n])
        if constant:
            index = np.column_stack([np.zeros(len(index), np.int64), index])
            value = np.column_stack([np.ones(len(value)), value])
        return cls(index, value, constant)

    def part(self, core: np.ndarray, rows: slice) -> np.ndarray:
        """Return phi' A of these rows, (m, K)."""
        return np.einsum("is,isk->ik", self.value[rows], core[self.index[rows]])

    def groups(self, rows: slice) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the elements that rows share, and these rows, relative to the first."""
        index = self.index[rows]
        if (index == index[0]).all():
            yield index[0], np.arange(len(index))
            return
        order = np.lexsort(index.T[::-1])
        new = np.any(np.diff(index[order], axis=0) != 0, axis=1)
        bounds = np.concatenate(([0], 1 + np.flatnonzero(new), [len(order)]))
        for begin, end in pairwise(bounds):
            yield index[order[begin]], order[begin:end]

    @property
    def spread(self) -> int:
        """The largest distance of two elements of a row, an implied constant left out."""
        own = self.index[:, int(self.constant) :]
        used = self.value[:, int(self.constant) :] != 0
        last = np.where(used, own, -1).max(axis=1, initial=-1)
        first = np.where(used, own, np.iinfo(np.int64).max).min(axis=1, initial=2**62)
        return int(np.maximum(last - first, 0).max(initial=0))


class CoreLoop(TrainingLoop):
    """A run in double precision. The parameters are cores."""

    noise_pace = 1.0  # as in `als.AlsLoop`: a sweep changes the loss as much as many epochs

    def __init__(
        self, settings: CoreSweeps, problem: Problem, cores: Cores, free: np.ndarray | None = None
    ):
        import torch

        super().__init__(settings, problem, cores)
        self.torch, self.damping = torch, settings.damping
        self.form, local = cores.format, problem.local
        self.factors = [np.array(a, dtype=np.float64) for a in cores.factors]
        self.extras = [np.array(e, dtype=np.float64) for e in cores.extras]
        self.free: list[Any] = [1.0] * len(self.extras)  # what may move of each
        if free is not None:
            self.free[-1] = free
        used = self.form.constants
        self.columns = [ColumnSlots.read(local, n, used) for n in range(len(local.dims))]
        per_row = max(self.form.n_columns * self.form.width, self.form.numbers_per_row())
        step = max(64, _CHUNK // per_row)
        self.chunks = [slice(k, min(k + step, len(local))) for k in range(0, len(local), step)]
        self.row_weight = problem.unit_weights() / len(local)
        self.all_rows = np.arange(len(local))
        self.y = np.ascontiguousarray(problem.y, dtype=np.float64)
        self.loss_form = problem.loss.compiled()
        self.curvature_form = problem.loss.compiled_curvature()
        self.slopes = np.empty((len(local), problem.n_outputs))
        self.curvature = start_curvature(problem, self.row_weight)
        self.bands = problem.fixed.bands
        self.raw = self.predicted()

    # ---- predictions and the objective ----------------------------------------------------------

    def parts(self, rows: slice) -> Any:
        """Return the parts of all columns as a tensor, (m, N, K)."""
        pairs = zip(self.columns, self.factors)
        return self.torch.from_numpy(np.stack([c.part(a, rows) for c, a in pairs], axis=1))

    def tensors(self) -> list[Any]:
        """Return the extra arrays as tensors."""
        return [self.torch.from_numpy(e) for e in self.extras]

    def predicted(self) -> np.ndarray:
        """Return raw : (n, L) of the present arrays."""
        extras = self.tensors()
        parts = [self.form.contract(self.parts(rows), extras).numpy() for rows in self.chunks]
        return self.problem.intercept + np.concatenate(parts)

    def measured(self, raw: np.ndarray) -> float:
        """Return the mean loss of predictions, and write their slopes."""
        args = (self.y, self.row_weight, self.all_rows, 0, np.ascontiguousarray(raw), self.slopes)
        return weighted_losses(self.loss_form, *args)

    def penalty(self) -> float:
        """Return the sum of all penalties."""
        pairs = zip(self.bands, self.factors)
        out = sum(float(np.sum(a * band_product(band, a))) for band, a in pairs)
        out += self.problem.extras_l2 * sum(float(np.sum(e * e)) for e in self.extras)
        if self.problem.order is not None:
            out += float(self.order_norm(self.weighed_factors(), self.tensors()))
        return out

    def weighed_factors(self) -> list[Any]:
        """Return the cores times b^(n), as tensors."""
        assert self.problem.order is not None
        pairs = zip(self.factors, self.problem.order.emphasis)
        return [self.torch.from_numpy(a * b[:, None]) for a, b in pairs]

    def order_norm(self, cores: list[Any], extras: list[Any]) -> Any:
        """Return the order penalty, with its strength."""
        assert self.problem.order is not None
        value, log_scale = self.form.order_norm(cores, extras)
        return self.problem.order.alpha * value * self.torch.as_tensor(log_scale).exp()

    def model(self) -> None:
        """Write slopes and curvatures of the loss at the present predictions."""
        self.measured(self.raw)
        if not self.problem.loss.quadratic:
            curvatures(self.curvature_form, self.y, self.row_weight, self.raw, self.curvature)

    # ---- a sweep --------------------------------------------------------------------------------

    def train(self, rates: np.ndarray, rng: np.random.Generator) -> float:
        """Move every array once."""
        problem = self.problem
        self.bands = [a + self.noise * b for a, b in zip(problem.fixed.bands, problem.scaled.bands)]
        for n in range(len(self.columns)):
            if not self.out_of_time:
                self.update_core(n)
        for k, free in enumerate(self.free):
            if np.any(free) and not self.out_of_time:
                self.update_extra(k)
        return self.measured(self.raw)

    def take(self, array: np.ndarray, step: np.ndarray) -> None:
        """Add the longest share of a step, by halving, that lowers the objective."""
        start, before = array.copy(), self.measured(self.raw) + self.penalty()
        for share in 0.5 ** np.arange(HALVINGS):
            array[...] = start + share * step
            raw = self.predicted()
            if np.all(np.isfinite(raw)) and self.measured(raw) + self.penalty() < before:
                self.raw = raw
                return
        array[...] = start

    # ---- the core of a column -------------------------------------------------------------------

    def update_core(self, n: int) -> None:
        """Move the core of column n to its minimum."""
        core, column = self.factors[n], self.columns[n]
        if core.size <= _SMALL_CORE or not column.constant or len(core) == 1:
            self.solve_elements(n, column, np.arange(len(core)))
            return
        self.solve_elements(n, column, np.arange(1, len(core)))
        self.solve_elements(n, column, np.arange(1))

    def solve_elements(self, n: int, column: ColumnSlots, elements: np.ndarray) -> None:
        """Solve the normal equations of some elements of a core, and take the step."""
        core, width = self.factors[n], self.form.width
        self.model()
        begin, size = elements[0], len(elements) * width
        joint = size <= _SMALL_CORE
        reach = size - 1
        if not joint:
            reach = min(reach, (max(column.spread, self.band_reach(n)) + 1) * width - 1)
        if (reach + 1) * size > _LARGEST_MATRIX:
            raise ValueError(
                f"solver='als' solves the normal equations of {size:,} numbers for a column, which "
                "is too many. Lower rank or the number of knots, or use solver='Adam'."
            )
        matrix, pull = np.zeros((reach + 1, size)), np.zeros(size)  # lower band, by diagonals
        for rows in self.chunks:
            self.add_rows(n, column, rows, (begin, len(elements)), matrix, pull)
        self.add_penalties(n, core, (begin, len(elements)), matrix, pull)
        step = np.zeros_like(core)
        solved = solve_band(matrix, -pull, self.damping)
        if solved is not None:
            step[elements] = solved.reshape(len(elements), width)
            self.take(core, step)

    def band_reach(self, n: int) -> int:
        """Return how far apart two elements are that the penalties of a column couple."""
        band = np.abs(self.bands[n]).sum(axis=0)
        return 2 if band[0] + band[4] > 0 else 1 if band[1] + band[3] > 0 else 0

    def environments(self, n: int, rows: slice) -> np.ndarray:
        """Return the slope of every output by the part of column n, (L, m, K)."""
        parts = self.parts(rows)
        own = parts[:, n].clone().requires_grad_(True)
        before, after = parts[:, :n], parts[:, n + 1 :]
        raw = self.form.contract(
            self.torch.cat([before, own[:, None], after], dim=1), self.tensors()
        )
        found = []
        for k in range(raw.shape[1]):
            (slope,) = self.torch.autograd.grad(raw[:, k].sum(), own, retain_graph=True)
            found.append(slope.numpy())
        return np.stack(found)

    def add_rows(
        self,
        n: int,
        column: ColumnSlots,
        rows: slice,
        elements: tuple[int, int],
        matrix: np.ndarray,
        pull: np.ndarray,
    ) -> None:
        """Add the normal equations of a chunk of rows."""
        (begin, count), width = elements, self.form.width
        env = self.environments(n, rows)
        slopes, curvature = self.slopes[rows], self.curvature[rows]
        value, shared = column.value[rows], curvature.shape[1] == 1
        for index, own in column.groups(rows):
            inside = (index >= begin) & (index < begin + count)
            if not inside.any():
                continue
            places = ((index[inside] - begin)[:, None] * width + np.arange(width)).ravel()
            block = np.zeros((len(places), len(places)))
            for k in range(len(env)):
                design = value[own][:, inside, None] * env[k][own][:, None, :]
                design = design.reshape(len(own), -1)
                bent = curvature[own, 0 if shared else k]
                block += design.T @ (bent[:, None] * design)
                np.add.at(pull, places, design.T @ slopes[own, k])
            add_block(matrix, places, block)

    def add_penalties(
        self,
        n: int,
        core: np.ndarray,
        elements: tuple[int, int],
        matrix: np.ndarray,
        pull: np.ndarray,
    ) -> None:
        """Add the slopes and curvatures of the penalties on a core."""
        (begin, count), width = elements, self.form.width
        own = slice(begin, begin + count)
        pull += 2.0 * band_product(self.bands[n], core)[own].ravel()
        for offset in range(3):
            below = 2.0 * self.bands[n][begin : begin + count - offset, 2 + offset]
            if offset * width < len(matrix) and np.any(below):
                matrix[offset * width, : len(below) * width] += np.repeat(below, width)
        if self.problem.order is None:
            return
        metric, emphasis = self.order_metric(n), self.problem.order.emphasis[n][own] ** 2
        pull += (emphasis[:, None] * (core[own] @ metric)).ravel()
        for j, weight in enumerate(emphasis):
            add_block(matrix, j * width + np.arange(width), weight * metric)

    def order_metric(self, n: int) -> np.ndarray:
        """Return M, (K, K), such that the order penalty is the sum of b_j^2 a_j' M a_j / 2.

        It is the slope of the penalty at a core of unit vectors.
        """
        cores = self.weighed_factors()
        cores[n] = self.torch.eye(self.form.width, dtype=self.torch.float64, requires_grad=True)
        (slope,) = self.torch.autograd.grad(self.order_norm(cores, self.tensors()), cores[n])
        return slope.numpy()

    # ---- arrays that belong to no column --------------------------------------------------------

    def update_extra(self, k: int) -> None:
        """Move an extra array towards its minimum by conjugate gradients."""
        self.model()
        extra = self.extras[k]
        pull = self.free[k] * (self.adjoint(k, self.slopes) + self.penalty_slope(k))
        step = self.conjugate_gradients(k, -pull)
        self.take(extra, step)

    def conjugate_gradients(self, k: int, pull: np.ndarray) -> np.ndarray:
        """Solve H step = pull, where H is the curvature of the objective along an extra array."""
        step, rest = np.zeros_like(pull), pull.copy()
        along, size = rest.copy(), float(np.sum(rest * rest))
        enough = _ENOUGH**2 * size
        for _ in range(_STEPS):
            if size <= max(enough, TINY):
                break
            bent = self.adjoint(k, self.curvature * self.forward(k, along))
            bent = self.free[k] * (bent + self.penalty_curvature(k, along))
            steepness = float(np.sum(along * bent))
            if not steepness > 0:
                break
            share = size / steepness
            step += share * along
            rest -= share * bent
            size, before = float(np.sum(rest * rest)), size
            along = rest + size / before * along
        return step

    def contraction(self, k: int, rows: slice) -> Callable[[Any], Any]:
        """Return the contraction of rows as a function of an extra array."""
        parts, extras = self.parts(rows), self.tensors()
        return lambda own: self.form.contract(parts, [*extras[:k], own, *extras[k + 1 :]])

    def forward(self, k: int, along: np.ndarray) -> np.ndarray:
        """Return the change of the predictions along an extra array, (n, L).

        The slope by the array is linear in what the outputs are weighed by; its own slope by these
        weights is that change.
        """
        to, grad, found = self.torch.from_numpy(along), self.torch.autograd.grad, []
        for rows in self.chunks:
            own = self.torch.from_numpy(self.extras[k]).clone().requires_grad_(True)
            raw = self.contraction(k, rows)(own)
            weights = self.torch.zeros_like(raw).requires_grad_(True)
            (slope,) = grad(raw, own, weights, create_graph=True)
            found.append(grad(slope, weights, to)[0].numpy())
        return np.concatenate(found)

    def adjoint(self, k: int, slopes: np.ndarray) -> np.ndarray:
        """Return the slope by an extra array, from those by the predictions, (n, L)."""
        out = np.zeros_like(self.extras[k])
        for rows in self.chunks:
            own = self.torch.from_numpy(self.extras[k]).clone().requires_grad_(True)
            raw = self.contraction(k, rows)(own)
            pull = self.torch.from_numpy(np.ascontiguousarray(slopes[rows]))
            (slope,) = self.torch.autograd.grad(raw, own, pull)
            out += slope.numpy()
        return out

    def own_penalty(self, k: int) -> Callable[[Any], Any]:
        """Return the penalties that an extra array has a part in, as a function of it."""
        extras, strength = self.tensors(), self.problem.extras_l2

        def value(own: Any) -> Any:
            out = strength * (own * own).sum()
            if self.problem.order is not None:
                every = [*extras[:k], own, *extras[k + 1 :]]
                out = out + self.order_norm(self.weighed_factors(), every)
            return out

        return value

    def penalty_slope(self, k: int) -> np.ndarray:
        """Return the slope of the penalties by an extra array."""
        own = self.torch.from_numpy(self.extras[k]).clone().requires_grad_(True)
        return self.torch.autograd.grad(self.own_penalty(k)(own), own)[0].numpy()

    def penalty_curvature(self, k: int, along: np.ndarray) -> np.ndarray:
        """Return the change of that slope along a direction."""
        own = self.torch.from_numpy(self.extras[k]).clone().requires_grad_(True)
        (slope,) = self.torch.autograd.grad(self.own_penalty(k)(own), own, create_graph=True)
        moved = (slope * self.torch.from_numpy(along)).sum()
        return self.torch.autograd.grad(moved, own)[0].numpy()

    # ---- methods of every training loop -------------------------------------------------------

    def averaged(self, out: Cores | None) -> Cores:
        """Return the present cores: nothing is averaged."""
        factors, extras = ([a.copy() for a in arrays] for arrays in (self.factors, self.extras))
        return self.cores.with_arrays(factors, extras, None)

    def predict(self, parameters: Cores, local: LocalFeatures) -> np.ndarray:
        """Contract cores."""
        from polyadic.solvers import torch_engine

        return torch_engine.predict(parameters, local, self.torch.device("cpu"))

    def unpack(self, parameters: Cores) -> Cores:
        """Return the cores themselves."""
        return parameters

    def advice(self) -> str:
        """Return what to change after a run without a useful result."""
        return "Raise l2 or smoothness, lower rank, or use solver='Adam'."


def add_block(matrix: np.ndarray, places: np.ndarray, block: np.ndarray) -> None:
    """Add a symmetric block to the lower band of a matrix, by diagonals; places may repeat."""
    # Both halves of the block where places are equal.
    row, column = np.nonzero(places[:, None] >= places[None, :])
    np.add.at(matrix, (places[row] - places[column], places[column]), block[row, column])


def solve_band(matrix: np.ndarray, right: np.ndarray, damping: float) -> np.ndarray | None:
    """Solve a symmetric system given by its lower band; None where that is impossible."""
    for _ in range(4):
        raised = matrix.copy()
        raised[0] = raised[0] * (1.0 + damping) + 1e-12 * raised[0].max() + TINY
        try:
            found = _solve(raised, right)
        except (LinAlgError, ValueError):
            found = np.full(1, np.nan)
        if np.all(np.isfinite(found)):
            return found
        damping = 1e-6 + 100.0 * damping
    return None


def _solve(band: np.ndarray, right: np.ndarray) -> np.ndarray:
    if len(band) < band.shape[1]:
        return solveh_banded(band, right, lower=True)
    full = np.zeros((len(band), len(band)))
    row, column = np.tril_indices(len(band))
    full[row, column] = band[row - column, column]
    return cho_solve(cho_factor(full, lower=True), right)
