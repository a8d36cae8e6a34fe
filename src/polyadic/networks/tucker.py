"""Tucker: a full core tensor of k^N entries between one factor matrix per column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.networks.base import (
    Array,
    Format,
    rescaled,
    weights_without_first,
    with_unit_constants,
)
from polyadic.networks.cp import CanonicalPolyadic
from polyadic.networks.tt import sums_in_parts


class Tucker(Format):
    """Tucker with factors (d_n, k) and a core tensor of k^N L entries.

    The core tensor is kept as a matrix: its rows run over the first half of the columns, its
    columns over the second half.
    """

    name = "tucker"
    extras_name = "core tensor"

    @property
    def width(self) -> int:
        """Number of parameters per basis element: the rank k."""
        return self.rank

    @property
    def half(self) -> int:
        """Number of columns that the rows of the core matrix run over."""
        return (self.n_columns + 1) // 2

    def extra_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of the core, kept as one matrix per output."""
        down, across = self.half, self.n_columns - self.half
        return [(self.rank**down, self.rank**across, self.n_outputs)]

    def numbers_per_row(self) -> int:
        """Return the size of the outer products of both halves, and of the first times the core."""
        across = self.rank ** (self.n_columns - self.half)
        return self.rank**self.half + 2 * across * self.n_outputs

    def contract(self, parts: Array, extras: Sequence[Array]) -> Array:
        """Multiply the core by the outer products of the parts of both halves."""
        core = extras[0]
        down, across = _outer(parts[:, : self.half]), _outer(parts[:, self.half :])
        product = (down @ core.reshape(len(core), -1)).reshape(len(parts), *core.shape[1:])
        return (product * across[:, :, None]).sum(1)

    def order_norm(self, cores: Sequence[Array], extras: Sequence[Array]) -> tuple[Array, Array]:
        """Apply the Gram matrix of every factor to the core, and take the inner product."""
        k, core, log_scale = self.rank, extras[0], 0.0
        flat = core.reshape(-1)
        out = flat
        for n, factor in enumerate(cores):
            gram, log_scale = rescaled(factor.T @ factor, log_scale)
            after = k ** (self.n_columns - 1 - n) * self.n_outputs
            out = (gram @ out.reshape(k**n, k, after)).reshape(-1)
        return (flat * out).sum(), log_scale

    def near_one(self, rngs, sigma):
        """Return factors near (1, 0, ..., 0), and a core whose entries use one column each.

        An entry of the core is then multiplied by one small number per column that it uses. If all
        k entries of a factor were near one, a step would move the prediction by k^N times the
        learning rate.
        """
        cores = with_unit_constants(self.noise(rngs, sigma))
        k, n_columns, shape = self.rank, self.n_columns, self.extra_shapes()[0]
        middle = np.zeros((k**n_columns, self.n_outputs))
        for n, rng in enumerate(rngs[:-1] if k > 1 else rngs[-1:]):
            # A column's entries use its own generator: the order of columns does not matter.
            middle[np.arange(k) * k ** (n_columns - 1 - n)] = weights_without_first(
                rng, k, self.n_outputs
            )
        return cores, [middle.reshape(shape)]

    def linear(self, bias, slopes, rngs, sigma):
        """Embed the linear start of CP; with a rank too small for it, use one column per entry.

        With a superdiagonal core tensor this is a CP of the same rank. In the other case the entry
        of the core that takes sum l of column n, and the one of all others, is one.
        """
        k, n_columns, n_outputs = self.rank, self.n_columns, self.n_outputs
        middle = np.zeros((k**n_columns, n_outputs))
        if k >= n_columns * n_outputs:
            form = CanonicalPolyadic(self.dims, k, n_outputs)
            cores, [weights] = form.linear(bias, slopes, rngs, sigma)
            middle[np.arange(k) * sum(k**n for n in range(n_columns))] = weights
        else:
            cores = sums_in_parts(self, slopes, rngs, sigma)
            middle[0] = bias
            for n in range(n_columns):
                middle[(1 + np.arange(n_outputs)) * k**n] = np.eye(n_outputs)
        return cores, [middle.reshape(self.extra_shapes()[0])]


def _outer(parts: Array) -> Array:
    """Return the outer product of each row's parts, (n, k^m) from (n, m, k)."""
    n = len(parts)
    out = parts[:, :0].sum(1)[:, :1] + 1.0  # ones, (n, 1), in the arrays' own library
    for m in range(parts.shape[1]):
        out = (out[:, :, None] * parts[:, m][:, None, :]).reshape(n, out.shape[1] * parts.shape[2])
    return out
