"""Canonical Polyadic format: W = sum_r c_r a_r^(1) o ... o a_r^(N), for any order of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from polyadic.data.features import LocalFeatures, stack_height
from polyadic.kernels.adam import Parameters
from polyadic.kernels.cp import GUARD, Layout, block_size
from polyadic.kernels.penalties import OrderPenalty, order_gradient
from polyadic.kernels.predict import HAT_ROWS, HatWorkspace, Workspace, contract, contract_hats
from polyadic.kernels.simd import aligned, padded
from polyadic.networks.base import Array, Format, append, balanced_weights, rescaled
from polyadic.networks.blocks import Blocks
from polyadic.networks.trees import Trees


@dataclass(frozen=True)
class CPCores:
    """The parameters of a CP predictor with an optional additive part, and optional trees.

    f(x)_l = b_l + sum_n phi_n' V^(n)_l + sum_r C_rl prod_n phi_n' a_r^(n) + trees

    The leaves of trees are terms too, over maps of their own: see `polyadic.networks.trees`.

    Attributes
    ----------
    factors : list of (d_n, R)
    weights : (R, L)
        The output matrix C. In the paper's predictor it is ones, or L blocks of ones.
    intercept : (L,)
    additive : list of (d_n, L), or None
        The additive part V, where there is one.
    trees : Trees or None
        `contract` leaves them out, since it is given no bins: they add themselves to raw.
    blocks : list of N Blocks or None, or None
        Of a merged model: what its factors were computed from, and can be again. None for a column
        whose factor is all there is.
    """

    factors: list[np.ndarray]
    weights: np.ndarray
    intercept: np.ndarray
    additive: list[np.ndarray] | None = None
    trees: Trees | None = None
    blocks: list[Blocks | None] | None = None
    name: ClassVar[str] = "cp"

    @property
    def format(self) -> CanonicalPolyadic:
        """The format, for cores of this shape."""
        return CanonicalPolyadic(self.dims.tolist(), self.rank, self.n_outputs)

    @property
    def extras(self) -> list[np.ndarray]:
        """The arrays that belong to no column: the output weights."""
        return [self.weights]

    @property
    def dims(self) -> np.ndarray:
        """Number of basis elements of each column, (N,)."""
        return np.array([len(a) for a in self.factors])

    @property
    def rank(self) -> int:
        """Number of rank-one terms R."""
        return len(self.weights)

    @property
    def n_outputs(self) -> int:
        """Number of outputs L."""
        return len(self.intercept)

    def rescale(self, center: np.ndarray, scale: np.ndarray) -> CPCores:
        """Return the cores of center + scale * f(x), both (L,)."""
        additive = None if self.additive is None else [v * scale for v in self.additive]
        return replace(
            self,
            weights=self.weights * scale,
            intercept=center + scale * self.intercept,
            additive=additive,
            trees=None if self.trees is None else self.trees.rescale(scale),
        )

    def weigh_outputs(self, matrix: np.ndarray) -> CPCores:
        """Return the cores of f(x) @ matrix, matrix : (L, L), in double precision."""
        return replace(
            self,
            weights=self.weights @ matrix,
            intercept=self.intercept @ matrix,
            additive=None if self.additive is None else [v @ matrix for v in self.additive],
            trees=None if self.trees is None else self.trees.weigh_outputs(matrix),
        )

    def with_arrays(
        self,
        factors: list[np.ndarray],
        extras: list[np.ndarray],
        additive: list[np.ndarray] | None = None,
    ) -> CPCores:
        """Return cores of the same format and intercept with other arrays."""
        return replace(self, factors=factors, weights=extras[0], additive=additive, blocks=None)

    def reordered(self, order: Sequence[int]) -> CPCores:
        """Return the same model with its columns in another order."""
        factors = [self.factors[n] for n in order]
        additive = None if self.additive is None else [self.additive[n] for n in order]
        trees = None if self.trees is None else self.trees.reordered(order)
        blocks = None if self.blocks is None else [self.blocks[n] for n in order]
        return replace(self, factors=factors, additive=additive, trees=trees, blocks=blocks)

    def to_raw(self, contracted: np.ndarray) -> np.ndarray:
        """Return raw : (n, L) from the contraction of the network, (n, L)."""
        return self.intercept + contracted

    def pack(self, dtype: type = np.float32) -> Parameters:
        """Stack the factors into the arrays of the fused engine."""
        dims, width = self.dims, padded(self.rank)
        height = stack_height(dims)
        table = aligned(height * width, dtype).reshape(height, width)
        table[GUARD:-GUARD, : self.rank] = np.concatenate(self.factors)
        weights: np.ndarray = np.zeros((self.n_outputs, width), dtype)
        weights[:, : self.rank] = self.weights.T
        if self.additive is None:
            return Parameters(table.ravel(), weights.ravel(), None)
        additive: np.ndarray = np.zeros((height, self.n_outputs), dtype)
        additive[GUARD:-GUARD] = np.concatenate(self.additive)
        return Parameters(table.ravel(), weights.ravel(), additive.ravel())

    def unpack(self, parameters: Parameters) -> CPCores:
        """Return cores of the same shape with the values of `parameters`."""
        width, ends = padded(self.rank), np.cumsum(self.dims)[:-1]
        table = parameters.table.reshape(-1, width)[GUARD:-GUARD, : self.rank]
        weights = parameters.weights.reshape(self.n_outputs, width)[:, : self.rank].T
        additive = None
        if parameters.additive is not None:
            flat = parameters.additive.reshape(-1, self.n_outputs)[GUARD:-GUARD]
            additive = [a.copy() for a in np.split(flat, ends)]
        factors = [a.copy() for a in np.split(table, ends)]
        return replace(
            self, factors=factors, weights=weights.copy(), additive=additive, blocks=None
        )

    @cached_property
    def packed(self) -> tuple[Parameters, np.ndarray]:
        """The arrays of the fused engine, scaled to outputs near one, and the scales (L,).

        Targets of 1e40, or of 1e-40, would not fit into single precision. Scales are powers of two,
        so that nothing is rounded; they are multiplied back in double precision.
        """
        parts = [self.weights, *(self.additive or [])]
        size = np.max([np.abs(p).max(axis=0) for p in parts if len(p)], axis=0)
        unit = np.ldexp(1.0, np.frexp(np.where(size > 0, size, 1.0))[1])
        return replace(self, trees=None).rescale(np.zeros_like(unit), 1.0 / unit).pack(), unit

    def contract(self, local: LocalFeatures) -> np.ndarray:
        """Return raw : (n, L), by the paper's Algorithm 1."""
        parameters, unit = self.packed
        raw = run(parameters, np.zeros(self.n_outputs), local)
        return self.intercept + unit * raw

    @cached_property
    def packed_hats(self) -> tuple[Parameters, np.ndarray]:
        """As `packed`, with the constant added to each hat: the hats at any x sum to one."""
        cores = replace(
            self,
            factors=[_add_constant(a) for a in self.factors],
            additive=self.additive and [_add_constant(v) for v in self.additive],
            blocks=None,
        )
        parameters, unit = cores.packed
        parameters.table[: padded(self.rank)] = 1.0  # a guard row that has no effect as a factor
        return parameters, unit

    def contract_hats(
        self, layout: Layout, knots: list[np.ndarray], columns: list[np.ndarray]
    ) -> np.ndarray:
        """Return raw : (n, L) where every map is a Hat: `contract` without LocalFeatures."""
        parameters, unit = self.packed_hats
        raw = np.empty((len(columns[0]), self.n_outputs))
        n_slots = 2 * len(knots)
        workspace = HatWorkspace(
            slot=np.empty((HAT_ROWS, n_slots), np.int32),
            value=np.empty((HAT_ROWS, n_slots), np.float32),
            products=np.empty(HAT_ROWS * padded(self.rank), np.float32),
        )
        contract_hats(
            *parameters,
            np.zeros(self.n_outputs),
            layout.first,
            np.concatenate(knots),
            np.concatenate(([0], np.cumsum([len(k) for k in knots]))),
            np.array(columns),
            workspace,
            raw,
        )
        return self.intercept + unit * raw

    def order_norm(self, emphasis: list[np.ndarray]) -> float:
        """Return <B*W, B*W> by the paper's Algorithm 3; `emphasis` is b^(n) for every column."""
        return self.order_gradient(emphasis)[0]

    def order_gradient(self, emphasis: list[np.ndarray]) -> tuple[float, CPCores]:
        """Return <B*W, B*W> and its gradient, in the shape of the cores, in double precision."""
        parameters = self.pack(np.float64)
        first = GUARD + np.concatenate(([0], np.cumsum(self.dims)[:-1]))
        b = np.concatenate([np.zeros(GUARD), *emphasis, np.zeros(GUARD)])
        order = OrderPenalty.make(1.0, b, self.dims, padded(self.rank), np.float64)
        slope = parameters.zeros()
        value = order_gradient(
            order,
            parameters.table,
            parameters.weights,
            self.n_outputs,
            first,
            slope.table,
            slope.weights,
        )
        gradient = self.unpack(slope)
        return float(value), replace(gradient, intercept=np.zeros_like(self.intercept))

    def to_dense(self) -> np.ndarray:
        """Return the whole weight tensor, (d_1, ..., d_N, L); for small tensors only."""
        dense = np.asarray(self.weights, dtype=np.float64)  # (R, L)
        for factor in reversed(self.factors):
            dense = np.einsum("ir,r...->ri...", factor, dense)
        return dense.sum(axis=0)

    def __getstate__(self) -> dict:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("packed")}


class CanonicalPolyadic(Format):
    """Canonical Polyadic format: factors (d_n, R) and output weights (R, L)."""

    name = "cp"
    weighs_terms = True

    @property
    def width(self) -> int:
        """Number of parameters per basis element: the rank R."""
        return self.rank

    def extra_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of the output weights."""
        return [(self.rank, self.n_outputs)]

    def contract(self, parts: Array, extras: Sequence[Array]) -> Array:
        """Multiply the parts, term by term."""
        while parts.shape[1] > 1:  # pair by pair: log N steps
            even = parts.shape[1] // 2 * 2
            paired = parts[:, 0:even:2] * parts[:, 1:even:2]
            parts = paired if even == parts.shape[1] else append(paired, parts[:, even:])
        return parts[:, 0] @ extras[0]

    def order_norm(self, cores: Sequence[Array], extras: Sequence[Array]) -> tuple[Array, Array]:
        """Multiply the Gram matrices of the factors, entry by entry (paper, Algorithm 3)."""
        state, log_scale = extras[0] @ extras[0].T, 0.0
        for core in cores:
            state, log_scale = rescaled(state * (core.T @ core), log_scale)
        return state.sum(), log_scale

    def near_one(self, rngs, sigma):
        """Return factors near the constant one and balanced output weights."""
        every = np.ones((self.rank, self.n_outputs))
        return self.factors_near_one(rngs, sigma), [balanced_weights(rngs[-1], every)]

    def factors_near_one(
        self, rngs: Sequence[np.random.Generator], sigma: float | np.ndarray
    ) -> list[np.ndarray]:
        """Return factors with a first row of one and noise below, of one size or one per column."""
        factors = self.noise(rngs, sigma)
        for factor in factors:
            factor[0] = 1.0
        return factors

    def linear(self, bias, slopes, rngs, sigma):
        """Let term (l, n) be column n's part of output l; other terms get zero output weights."""
        n_columns, n_outputs = self.n_columns, self.n_outputs
        if self.rank < n_columns * n_outputs:
            raise ValueError(
                f"init='linear' needs a rank of at least {n_columns * n_outputs}, the columns "
                f"times the outputs, got {self.rank}. CPRegressor takes any rank."
            )
        cores, _ = self.near_one(rngs, sigma)
        weights = np.zeros((self.rank, n_outputs))
        write_linear(cores, weights, bias, slopes, n_columns)
        return cores, [weights]


def write_linear(
    factors: Sequence[np.ndarray],
    weights: np.ndarray,
    bias: np.ndarray,
    slopes: Sequence[np.ndarray],
    stride: int,
) -> None:
    """Write bias + sum_n phi_n' slopes[n] into terms (paper, equation (lin_init_rows)).

    Term l * stride + n is column n's part of output l, with ones for all other columns.
    """
    n_columns = len(factors)
    for k in range(weights.shape[1]):
        terms = slice(k * stride, k * stride + n_columns)
        weights[terms, k] = 1.0
        for n, factor in enumerate(factors):
            factor[0, terms] = 1.0
            factor[1:, terms] = 0.0
            factor[:, terms.start + n] = slopes[n][:, k]
            factor[0, terms.start + n] = bias[k] / n_columns


def run(parameters: Parameters, intercept: np.ndarray, local: LocalFeatures) -> np.ndarray:
    """Contract packed parameters with the rows of `local`."""
    out = np.empty((len(local), len(intercept)))
    n_columns, width = len(local.dims), len(parameters.weights) // len(intercept)
    rows = block_size(n_columns, width)
    # Only dense columns store their factors.
    n_factors = rows * n_columns * width if local.layout.dense.any() else 0
    workspace = Workspace(np.empty(n_factors, np.float32), np.empty(rows * width, np.float32))
    contract(
        *parameters,
        np.asarray(intercept, dtype=np.float64),
        local.layout.for_kernel(),
        local.index.ravel(),
        local.value.ravel(),
        np.arange(len(local)),
        workspace,
        out,
    )
    return out


def _add_constant(core: np.ndarray) -> np.ndarray:
    """Return a core with its element 0 added to all others."""
    return np.vstack([core[:1], core[1:] + core[:1]])
