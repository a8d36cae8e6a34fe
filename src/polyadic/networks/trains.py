"""Tensor Trains of fixed ranks: orthogonal forms, rounding, and the tangent space at a train.

Here a train is a list of M cores (r_{n-1}, d_n, r_n) with r_0 = r_M = 1. The last core is that of
the outputs, d_M = L, so that a model of N columns has M = N + 1 cores, for any number of outputs:

    W[i_1, ..., i_N, l] = G^(1)[:, i_1, :] G^(2)[:, i_2, :] ... G^(M)[:, l, :]

Cores of format "tt", with the same rank everywhere and two extra arrays for the ends, are converted
by `from_cores` and `to_cores`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from scipy.linalg import lapack

from polyadic.networks.cores import NetworkCores

Train = list[np.ndarray]


def from_cores(cores: NetworkCores) -> Train:
    """Return cores of format "tt" as a train of the same rank, or of the highest possible rank."""
    rank = cores.rank
    first, right = cores.extras
    train = [
        np.asarray(a, dtype=np.float64).reshape(-1, rank, rank).swapaxes(0, 1)
        for a in cores.factors
    ]
    train[0] = np.tensordot(np.asarray(first, float)[None], train[0], 1)
    train.append(np.asarray(right, dtype=np.float64)[:, :, None])
    return rounded(train, feasible_ranks([core.shape[1] for core in train], rank))


def to_cores(train: Train, cores: NetworkCores) -> NetworkCores:
    """Write a train into cores of one rank, with zeros beyond the train's own ranks.

    All cores are scaled to the same size, which keeps them in the range of single precision.
    """
    rank = cores.rank
    share = [np.linalg.norm(core) / np.sqrt(core.shape[2]) for core in train]
    even = np.exp(np.mean(np.log(share))) if min(share) > 0 else 1.0
    factors = []
    for n, core in enumerate(train[:-1]):
        wide = np.zeros((core.shape[1], rank, rank))
        wide[:, : core.shape[0], : core.shape[2]] = core.swapaxes(0, 1)
        wide *= even / share[n] if min(share) > 0 else 1.0
        factors.append(wide.reshape(len(wide), -1))
    left, right = np.zeros(rank), np.zeros((rank, cores.n_outputs))
    left[0] = 1.0
    right[: train[-1].shape[0]] = train[-1][:, :, 0]
    right *= even / share[-1] if min(share) > 0 else 1.0
    return replace(cores, factors=factors, extras=[left, right])


def feasible_ranks(dims: Sequence[int], rank: int) -> list[int]:
    """Return r_0, ..., r_M: `rank`, or less where the dimensions on one side allow no more.

    >>> feasible_ranks([2, 3, 4, 2], 5)
    [1, 2, 5, 2, 1]
    """
    ranks = [1, *[rank] * (len(dims) - 1), 1]
    for n in range(len(dims) - 1):
        ranks[n + 1] = min(ranks[n + 1], ranks[n] * dims[n])
    for n in range(len(dims) - 1, 0, -1):
        ranks[n] = min(ranks[n], ranks[n + 1] * dims[n])
    return ranks


def to_dense(train: Train) -> np.ndarray:
    """Return the whole tensor, (d_1, ..., d_M); for tests with small tensors."""
    return reduce(lambda left, core: np.tensordot(left, core, 1), train)[0, ..., 0]


def qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Q with orthonormal columns and R, also if the matrix does not have full rank.

    Calls LAPACK directly: for the small matrices here a wrapper would take longer than the work.
    """
    width = min(matrix.shape)
    packed, tau, _, _ = lapack.dgeqrf(matrix)
    r = np.triu(packed[:width])
    return lapack.dorgqr(packed[:, :width], tau)[0], r


def left_orthogonal(train: Train) -> Train:
    """Return the same tensor with all cores but the last orthonormal, seen from the left."""
    out, carry = [], np.ones((1, 1))
    for core in train[:-1]:
        _, d, right = core.shape
        q, r = qr((carry @ core.reshape(len(core), -1)).reshape(-1, right))
        out.append(q.reshape(len(carry), d, -1))
        carry = r
    last = train[-1]
    return [*out, (carry @ last.reshape(len(last), -1)).reshape(len(carry), *last.shape[1:])]


def rounded(train: Train, ranks: Sequence[int]) -> Train:
    """Cut a train down to ranks r_0, ..., r_M by singular values.

    Exact if the ranks are high enough; else the error is at most sqrt(M - 1) times that of the best
    train of these ranks (Oseledets, 2011). All cores of the result but the first are orthonormal,
    seen from the right.
    """
    cores = left_orthogonal(train)
    for n in range(len(cores) - 1, 0, -1):
        core = cores[n]
        q, r = qr(core.reshape(len(core), -1).T)
        u, s, v = np.linalg.svd(r, full_matrices=False)
        keep = min(ranks[n], len(s))
        cores[n] = (q @ u[:, :keep]).T.reshape(keep, *core.shape[1:])
        before = cores[n - 1]
        cores[n - 1] = before @ (v[:keep].T * s[:keep])
    return cores


@dataclass(frozen=True)
class Point:
    """A train on the manifold of its ranks, and the tangent space there.

    A tangent vector is given by its *moves*, one array per core, of the core's shape:

        sum_n  U^(1) ... U^(n-1) move^(n) V^(n+1) ... V^(M)

    with U orthonormal from the left and V from the right. The gauge condition, that move^(n) is
    orthogonal to U^(n) for all n < M, makes the moves unique and the terms orthogonal.

    Attributes
    ----------
    right : Train
        The train, all cores but the first orthonormal, seen from the right.
    """

    right: Train

    @cached_property
    def left(self) -> Train:
        """The train, all cores but the last orthonormal, seen from the left."""
        return left_orthogonal(self.right)

    @property
    def ranks(self) -> list[int]:
        """r_0, ..., r_M."""
        return [*(len(core) for core in self.right), 1]

    def gauged(self, moves: Train) -> Train:
        """Remove from each move its part in the span of the core: the gauge condition."""
        out = []
        for u, move in zip(self.left[:-1], moves):
            basis, flat = u.reshape(-1, u.shape[2]), move.reshape(-1, u.shape[2])
            out.append((flat - basis @ (basis.T @ flat)).reshape(u.shape))
        return [*out, moves[-1]]

    def project(self, train: Train) -> Train:
        """Return the moves of the orthogonal projection of a train of any ranks."""
        behind = [np.ones((1, 1))]
        for core, v in zip(train[:0:-1], self.right[:0:-1]):
            behind.append(np.tensordot(core @ behind[-1], v, ([1, 2], [1, 2])))
        moves, ahead = [], np.ones((1, 1))
        for core, u in zip(train, self.left):
            product = np.tensordot(ahead, core, 1)
            moves.append(product @ behind.pop())
            ahead = np.tensordot(u, product, ([0, 1], [0, 1]))
        return self.gauged(moves)

    def tangent(self, moves: Train, with_point: bool = False) -> Train:
        """Return a tangent vector, or the point moved by it, as a train of twice the ranks."""
        end = moves[-1] + self.left[-1] if with_point else moves[-1]
        out = [np.concatenate([moves[0], self.left[0]], axis=2)]
        for u, v, move in zip(self.left[1:-1], self.right[1:-1], moves[1:-1]):
            (a, d, b) = u.shape
            core = np.zeros((2 * a, d, 2 * b))
            core[:a, :, :b], core[a:, :, :b], core[a:, :, b:] = v, move, u
            out.append(core)
        return [*out, np.concatenate([self.right[-1], end])]

    def retract(self, moves: Train) -> Point:
        """Add a tangent vector and return to the manifold, by rounding to its ranks."""
        return Point(rounded(self.tangent(moves, with_point=True), self.ranks))


def squared_norm(moves: Train) -> float:
    """Return the squared norm of the tangent vector with these moves."""
    return float(sum(np.vdot(move, move) for move in moves))
