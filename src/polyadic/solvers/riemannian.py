"""Riemannian gradient descent on Tensor Trains of fixed rank: Exponential Machines.

After Novikov, Trofimov and Oseledets (2016), for local features of any dimension and L outputs. A
step takes the gradient of the batch with respect to the weight tensor, which is a sum of rank-one
tensors, projects it on the tangent space at W, adds a multiple of it to W, and rounds the sum to
the ranks of W. Neither tensor is ever formed, and the step does not depend on how W is written as a
train.

Two things are not in that paper. With them one learning rate suits all tables:

*Metric.* Gradients and projections are those of <X, Y> = <X, (K_1 x ... x K_N) Y>. K_n is the
second moment of phi_n over the rows plus terms that keep it away from zero (see `metric`), so that
the size of a step is about the size of its change of f. It is implemented by a change of basis in
every column: phi_n becomes F_n^-T phi_n and core n becomes F_n core_n, with F_n' F_n = K_n.

*Step.* The learning rate is a share of the step to the minimum along the gradient, which is
computed from the slope and the curvature of the loss, running averages over the batches. The order
penalty has a separate step of the same length, but not beyond the minimum along its gradient: its
curvature grows like beta^(2N), and a common length that suits both would be far too short for the
loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyadic.data.features import LocalFeatures
from polyadic.kernels.losses import weighted_losses
from polyadic.networks import trains
from polyadic.networks.cores import NetworkCores
from polyadic.networks.trains import Point, Train
from polyadic.objective.problem import Problem
from polyadic.solvers.batches import BatchColumn, Batches, DenseColumn
from polyadic.solvers.blas import one_blas_thread
from polyadic.solvers.contract import Report, Solution, SolverSettings, check
from polyadic.solvers.loop import Schedule, TrainingLoop

# All chosen by hand; `benchmarks/riemannian.py` compares the solver with Adam.
PEAK_RATE = 0.2  # learning_rate="auto"
_CHUNK = 4096  # rows at once where there is no batch
_DAMPING = 0.2  # added to the metric, as a share of an element's mean square where it is not zero
_SMOOTHING = 30.0  # multiple of the penalties `scaled` that is added to the metric
_FLOOR = 1e-8  # smallest eigenvalue of a metric that is scaled to a diagonal of one
_MEMORY = 0.98  # weight of the past in the running averages of slope and curvature
_TINY = 1e-300  # keeps divisors away from zero
_PROBE = 0.1  # change of predictions over which the curvature of the loss is measured


@dataclass(frozen=True)
class Riemannian(Schedule):
    """Mini-batches with Riemannian gradients, for format "tt".

    A running average would leave the manifold: `ema_decay` is not used. Penalties on single cores
    have no meaning on the manifold, where cores are not unique. Those that are multiplied by the
    noise, the default ones, only enter the metric. Of the others only the order penalty is
    possible; with beta = 1 it is the L2 penalty on W.

    Parameters
    ----------
    learning_rate : float
        Share of the way to the minimum along the gradient, 0 to 1. It means something else than
        in other solvers.
    device : str
        Only "cpu" is possible.
    """

    learning_rate: float = PEAK_RATE
    device: str = "cpu"

    name: ClassVar[str] = "solver='riemannian'"
    loss_forms: ClassVar[tuple[str, ...]] = ("compiled",)
    penalties: ClassVar[tuple[str, ...]] = ("factors by noise", "order")
    phases: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_settings(cls, settings: SolverSettings) -> Riemannian:
        """Return the solver of a fit: the rate is a share of the full step, whatever the width."""
        return cls(**settings.epochs(PEAK_RATE), device=settings.device)

    def solve(
        self,
        problem: Problem,
        cores: NetworkCores,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None = None,
        state: Any = None,
        resumed: bool = False,
    ) -> Solution:
        """Minimise the problem's objective, starting from `cores`."""
        check_format(self.device, cores)
        check(self, problem)
        # Matrices are small: several threads would be slower.
        with one_blas_thread():
            return RiemannianLoop(self, problem, cores).run(rng, report, resumed)


def check_format(device: str, cores: NetworkCores) -> None:
    """Refuse formats other than "tt" and devices other than the CPU."""
    name = getattr(cores, "name", "cp")
    if name != "tt":
        raise ValueError(f"solver='riemannian' works on format='tt' only, got format={name!r}.")
    if str(device).split(":")[0] != "cpu":
        raise ValueError(f"solver='riemannian' runs on device='cpu' only, got {device!r}.")


class RiemannianLoop(TrainingLoop):
    """A run in double precision. The parameters are a `Point`: W in the basis of the metric."""

    def __init__(self, settings: Schedule, problem: Problem, cores: NetworkCores):
        super().__init__(settings, problem, cores)
        self.bases = [basis(k) for k in metric(problem)]  # F_n
        self.inverses = [1.0 / f if f.ndim == 1 else np.linalg.inv(f) for f in self.bases]
        train = in_basis(trains.from_cores(cores), self.bases)
        self.point = Point(trains.rounded(train, [*(len(core) for core in train), 1]))
        self.batches = Batches(problem.local, self.inverses)
        self.y = np.ascontiguousarray(problem.y, dtype=np.float64)
        self.row_weight = problem.weight / problem.weight.mean()
        self.compiled_loss = problem.loss.compiled()
        self.penalty: list[np.ndarray] | None = None
        if problem.order is not None:
            self.penalty = [
                (g * b) ** 2 if g.ndim == 1 else g.T @ (g * b[:, None] ** 2)
                for g, b in zip(self.inverses, problem.order.emphasis)
            ]
        self.slope, self.curvature, self.n_steps = 0.0, 0.0, 0

    def train(self, rates: np.ndarray, rng: np.random.Generator) -> float:
        """Take one pass over the rows."""
        order = rng.permutation(len(self.problem.local))
        total, n_done = 0.0, 0
        with np.errstate(over="ignore", invalid="ignore"):
            for j, rate in enumerate(rates):
                rows = order[j * self.batch : (j + 1) * self.batch]
                total += self._step(rows, float(rate))
                n_done += len(rows)
                if self.out_of_time:
                    break
        return total / n_done

    def _step(self, rows: np.ndarray, rate: float) -> float:
        """Move the point by one batch and return the sum of its losses, without penalties."""
        columns = self.batches.columns(rows)
        ahead = sweep(columns, self.point.left)
        raw = ahead[-1] @ self.point.left[-1][:, :, 0] + self.problem.intercept
        value, slope = self._loss(rows, raw)
        moves = gradient(self.point, columns, ahead, slope)
        change = change_of_raw(self.point, columns, ahead, moves)
        length = rate * self._full_step(rows, raw, slope, change, trains.squared_norm(moves))
        moves = [-length * move for move in moves]
        if self.penalty is not None:
            moves = self._penalised(moves, length)
        if not np.isfinite(trains.squared_norm(moves)):
            return np.nan
        self.point = self.point.retract(moves)
        return value

    def _loss(self, rows: np.ndarray, raw: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum of the losses and the slope of their mean, (b, L)."""
        slope = np.empty_like(raw)
        value = weighted_losses(self.compiled_loss, self.y, self.row_weight, rows, 0, raw, slope)
        return value, slope / len(rows)

    def _full_step(self, rows, raw, slope, change, size) -> float:
        """Return the step to the minimum along the gradient.

        `size` is the squared norm of the gradient, and `change` : (b, L) what it adds to raw.
        """
        spread = float(np.sqrt(np.mean(change**2)))
        if spread == 0:
            return 0.0
        probe = _PROBE / spread
        beyond = self._loss(rows, raw - probe * change)[1]
        curvature = float(np.vdot(slope - beyond, change)) / probe
        pace = max(1.0 - _MEMORY, 1.0 / (1 + self.n_steps))
        self.n_steps += 1
        self.slope += pace * (size - self.slope)
        self.curvature += pace * (curvature - self.curvature)
        # The minimum of a nearly linear loss is far away: predictions move by one at most.
        return min(self.slope / max(self.curvature, _TINY), 1.0 / spread)

    def _penalised(self, moves: Train, length: float) -> Train:
        """Add a step down alpha <B*W, B*W>, whose gradient is 2 alpha B*B*W."""
        assert self.penalty is not None
        assert self.problem.order is not None
        double = 2 * self.problem.order.alpha
        half = self.point.project(in_basis(self.point.left, self.penalty))
        turned = self.point.project(in_basis(self.point.tangent(half), self.penalty))
        curvature = float(sum(np.vdot(a, b) for a, b in zip(turned, half)))
        own = min(double * length, trains.squared_norm(half) / max(curvature, _TINY))
        return [move - own * more for move, more in zip(moves, half)]

    def averaged(self, out: Point | None) -> Point:
        """Return the present point, which no later step changes: a step makes a new one."""
        return self.point

    def predict(self, parameters: Point, local: LocalFeatures) -> np.ndarray:
        """Contract the rows, chunk by chunk."""
        batches = Batches(local, self.inverses)
        train = parameters.right
        out = np.empty((len(local), self.problem.n_outputs))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(local), _CHUNK):
                rows = np.arange(start, min(start + _CHUNK, len(local)))
                out[rows] = sweep(batches.columns(rows), train)[-1] @ train[-1][:, :, 0]
        return self.problem.intercept + out

    def unpack(self, parameters: Point) -> NetworkCores:
        """Return the point as cores, in the basis of the maps."""
        return trains.to_cores(in_basis(parameters.right, self.inverses), self.cores)


def sweep(columns: list[BatchColumn], train: Train) -> list[np.ndarray]:
    """Return the contractions of rows with the first 0, 1, ..., N cores, each (b, r_n)."""
    ahead = [np.ones((len(columns[0]), 1))]
    for column, core in zip(columns, train):
        ahead.append(_vector_times_matrix(ahead[-1], column.contract(core)))
    return ahead


def gradient(
    point: Point, columns: list[BatchColumn], ahead: list[np.ndarray], slope: np.ndarray
) -> Train:
    """Return the moves of the projection of sum_i Phi(x_i) x slope_i.

    Move n is, before the gauge, sum_i ahead_i phi_n(x_i) behind_i, where ahead_i is the row's
    contraction with the left cores before n, and behind_i with the right cores after n. The slope
    takes the place of phi for the output core.

    Parameters
    ----------
    ahead : list of (b, r_n)
        What `sweep` returns for `point.left`.
    slope : (b, L)
    """
    factors = [*columns, DenseColumn(slope)]
    behind, moves = np.ones((len(slope), 1)), []
    for n in range(len(factors) - 1, -1, -1):
        core = point.right[n]
        moves.append(factors[n].outer_sum(ahead[n], behind, core.shape[1]))
        if n > 0:
            behind = np.einsum("rbq,bq->br", factors[n].contract(core), behind)
    return point.gauged(moves[::-1])


def change_of_raw(
    point: Point, columns: list[BatchColumn], ahead: list[np.ndarray], moves: Train
) -> np.ndarray:
    """Return the contraction of rows with a tangent vector, (b, L)."""
    moved = np.zeros((len(ahead[0]), 1))
    for n, (column, move) in enumerate(zip(columns, moves)):
        on = _vector_times_matrix(moved, column.contract(point.right[n])) if n > 0 else 0.0
        moved = on + _vector_times_matrix(ahead[n], column.contract(move))
    return moved @ point.right[-1][:, :, 0] + ahead[-1] @ moves[-1][:, :, 0]


def _vector_times_matrix(ahead: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Return each row's vector times its matrix, (b, q) from (b, r) and (r, b, q)."""
    return np.einsum("br,rbq->bq", ahead, matrices)


def in_basis(train: Train, bases: list[np.ndarray]) -> Train:
    """Multiply each core but the last by a matrix, (d_n, d_n), or by a diagonal, (d_n,)."""
    cores = [f[:, None] * core if f.ndim == 1 else f @ core for core, f in zip(train, bases)]
    return [*cores, train[-1]]


def metric(problem: Problem) -> list[np.ndarray]:
    """Return K_n : (d_n, d_n) of each column, or its diagonal, (d_n,), if the column is tall.

    Two terms are added to the second moment: a share of each element's mean square over the rows
    where it is not zero, which makes steps on rare categories small, and the penalties `scaled`,
    which make steps smooth.
    """
    batches, n_rows = Batches(problem.local), len(problem.local)
    weight = problem.weight / problem.weight.sum()
    moments: list[Any] = [0.0] * len(problem.local.dims)
    present = [np.zeros(d) for d in problem.local.dims]
    for start in range(0, n_rows, _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, n_rows))
        for n, column in enumerate(batches.columns(rows)):
            moment, share = column.moment(weight[rows], len(present[n]))
            moments[n], present[n] = moments[n] + moment, present[n] + share
    for n, (k, share) in enumerate(zip(moments, present)):
        own = k if k.ndim == 1 else np.diag(k)
        typical = np.where(own > 0, own / np.where(share > 0, share, 1.0), 1.0)
        band = _SMOOTHING * problem.scaled.bands[n]
        extra = _DAMPING * typical
        moments[n] = k + extra + band[:, 2] if k.ndim == 1 else k + np.diag(extra) + _full(band)
    return moments


def _full(band: np.ndarray) -> np.ndarray:
    """Return the matrix whose five diagonals are band : (d, 5)."""
    d = len(band)
    wide = np.zeros((d, d + 4))
    for b in range(5):
        wide[np.arange(d), np.arange(d) + b] = band[:, b]
    return wide[:, 2:-2]


def basis(k: np.ndarray) -> np.ndarray:
    """Return F with F' F = K, or the diagonal of F.

    K is first scaled to a diagonal of one, so that elements may have very different sizes.
    """
    if k.ndim == 1:
        return np.sqrt(k)
    size = np.sqrt(np.diag(k))
    values, vectors = np.linalg.eigh(k / np.outer(size, size))
    root = vectors * np.sqrt(np.maximum(values, _FLOOR))
    return root @ vectors.T * size
