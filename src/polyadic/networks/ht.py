"""Hierarchical Tucker: a balanced binary tree of transfer tensors over the columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.networks.base import (
    Array,
    Format,
    append,
    rescaled,
    weights_without_first,
    with_unit_constants,
)
from polyadic.networks.cp import CanonicalPolyadic
from polyadic.networks.tt import sums_in_parts


class HierarchicalTucker(Format):
    """Balanced binary tree: leaves (d_n, k), transfer tensors (k, k, k) per node, a root (k, L).

    Neighbours are joined level by level; a node without a partner moves up unchanged. So any number
    of columns is possible, and N = 1 is the root on one leaf.
    """

    name = "ht"
    extras_name = "transfer tensors"

    @property
    def width(self) -> int:
        """Number of parameters per basis element: the rank k."""
        return self.rank

    def levels(self) -> list[int]:
        """Return how many pairs are joined at each level.

        >>> HierarchicalTucker([2] * 5, 3).levels()
        [2, 1, 1]
        """
        out, n = [], self.n_columns
        while n > 1:
            out.append(n // 2)
            n -= n // 2
        return out

    def extra_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the stacked transfer tensors of each level, and of the root."""
        k = self.rank
        return [*((pairs, k * k, k) for pairs in self.levels()), (k, self.n_outputs)]

    def numbers_per_row(self) -> int:
        """Return the size of the outer products of the widest level."""
        return max(1, self.n_columns // 2) * self.rank**2

    def contract(self, parts: Array, extras: Sequence[Array]) -> Array:
        """Join neighbours, v <- sum_ab B[a, b] left_a right_b, up to the root."""
        nodes = parts.swapaxes(0, 1).swapaxes(1, 2)  # (nodes, k, n): inner loops over rows
        for transfer in extras[:-1]:
            even = 2 * len(transfer)
            left, right = nodes[0:even:2], nodes[1:even:2]
            outer = (left[:, :, None] * right[:, None]).reshape(
                len(transfer), self.rank**2, nodes.shape[2]
            )
            joined = transfer.swapaxes(1, 2) @ outer
            rest = nodes[even:]
            nodes = joined if len(rest) == 0 else _stack(joined, rest)
        return nodes[0].T @ extras[-1]

    def order_norm(self, cores: Sequence[Array], extras: Sequence[Array]) -> tuple[Array, Array]:
        """Carry Gram matrices from the leaves to the root."""
        k, log_scale = self.rank, 0.0
        grams = []
        for core in cores:
            gram, log_scale = rescaled(core.T @ core, log_scale)
            grams.append(gram)
        for transfer in extras[:-1]:
            joined = []
            for t, b in enumerate(transfer):
                left, right = grams[2 * t], grams[2 * t + 1]
                # (a c)' (left x right) (a c), with b : (k k, k)
                inner = (left @ b.reshape(k, k * k)).reshape(k, k, k)
                inner = (right @ inner).reshape(k * k, k)
                gram, log_scale = rescaled(b.T @ inner, log_scale)
                joined.append(gram)
            grams = joined + grams[2 * len(transfer) :]
        root = extras[-1]
        return (root * (grams[0] @ root)).sum(), log_scale

    def near_one(self, rngs, sigma):
        """Return leaves near (1, 0, ..., 0) and transfers that keep the one and add up the rest.

        At every node only the one is multiplied by an entry of one, for any rank. If all k entries
        were near one, a step would move a node by k^2 times the learning rate.
        """
        cores = with_unit_constants(self.noise(rngs, sigma))
        k, extras = self.rank, []
        rest = np.arange(k)
        for pairs in self.levels():
            transfer = sigma / k * rngs[-1].normal(size=(pairs, k, k, k))
            transfer[:, rest, 0, rest] += 1.0
            transfer[:, 0, rest[1:], rest[1:]] += 1.0
            extras.append(transfer.reshape(pairs, k * k, k))
        return cores, [*extras, weights_without_first(rngs[-1], k, self.n_outputs)]

    def linear(self, bias, slopes, rngs, sigma):
        """Embed the linear start of CP; with a rank too small for it, let nodes add up sums.

        With superdiagonal transfer tensors the tree is a CP of the same rank. In the other case a
        node holds a one and the L sums so far.
        """
        k, n_outputs = self.rank, self.n_outputs
        one = np.arange(k)
        if k >= self.n_columns * n_outputs:
            cores, [root] = CanonicalPolyadic(self.dims, k, n_outputs).linear(
                bias, slopes, rngs, sigma
            )
            transfers = [np.zeros((pairs, k * k, k)) for pairs in self.levels()]
            for transfer in transfers:
                transfer[:, one * k + one, one] = 1.0
            return cores, [*transfers, root]
        cores = sums_in_parts(self, slopes, rngs, sigma)
        transfers = [np.zeros((pairs, k, k, k)) for pairs in self.levels()]
        for transfer in transfers:
            transfer[:, one, 0, one] = 1.0
            transfer[:, 0, one[1:], one[1:]] = 1.0
        root = np.zeros((k, n_outputs))
        root[0], root[1 : 1 + n_outputs] = bias, np.eye(n_outputs)
        return cores, [*(t.reshape(len(t), k * k, k) for t in transfers), root]


def _stack(first: Array, second: Array) -> Array:
    """Join along axis 0."""
    return append(first[None], second[None])[0]
