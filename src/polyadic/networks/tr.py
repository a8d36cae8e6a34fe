"""Tensor Ring: W = tr(G^(1) G^(2) ... G^(N)), the train with its ends joined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.networks.base import Array, Format, balanced_weights, chain, rescaled
from polyadic.networks.tt import check_rank, rank_scaled_noise, write_sums


class TensorRing(Format):
    """Tensor Ring with cores (r, d_n, r) and, for several outputs, an output core (L, r, r).

    With one output the ring has no first core: rotating the columns changes nothing.
    """

    name = "tr"

    @property
    def width(self) -> int:
        """Number of parameters per basis element: one r x r matrix."""
        return self.rank**2

    def extra_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of the output core, if there are several outputs."""
        return [] if self.n_outputs == 1 else [(self.n_outputs, self.rank, self.rank)]

    def numbers_per_penalty(self) -> int:
        """Return the size of the transfer matrices, r^2 x r^2 each, and of their products."""
        return 2 * self.n_columns * self.width**2

    def contract(self, parts: Array, extras: Sequence[Array]) -> Array:
        """Multiply the row's matrices around the ring and take the trace."""
        r = self.rank
        product = chain(parts.reshape(len(parts), self.n_columns, r, r)).reshape(len(parts), r * r)
        if not extras:
            return product[:, :: r + 1].sum(1)[:, None]
        return product @ extras[0].swapaxes(1, 2).reshape(self.n_outputs, r * r).T

    def order_norm(self, cores: Sequence[Array], extras: Sequence[Array]) -> tuple[Array, Array]:
        """Multiply the matrices sum_i G[i] (x) G[i], of r^2 x r^2, and take the trace."""
        r = self.rank
        state, log_scale = None, 0.0
        for core in cores:
            # (d, r r) -> entries (a, b), (c, e) of the pair of matrices, as ((a c), (b e)).
            pair = (core.T @ core).reshape(r, r, r, r).swapaxes(1, 2).reshape(r * r, r * r)
            state, log_scale = rescaled(pair if state is None else state @ pair, log_scale)
        assert state is not None
        four = state.reshape(r, r, r, r).swapaxes(1, 2)  # (a, b), (c, e)
        if not extras:
            return four.reshape(r * r, r * r)[:: r + 1, :: r + 1].sum(), log_scale
        # Output l: sum over (a, b), (c, e) of O_l[b, a] state O_l[e, c].
        turned = extras[0].swapaxes(1, 2).reshape(self.n_outputs, r * r)
        return (turned * (turned @ four.reshape(r * r, r * r))).sum(), log_scale

    def weigh_outputs(self, cores, extras, matrix):
        """Multiply the output core, or the first core if there is no output core."""
        if not extras:
            return [cores[0] * matrix[0, 0], *cores[1:]], []
        return list(cores), [np.tensordot(matrix.T, extras[0], 1)]

    def near_one(self, rngs, sigma):
        """Return identities plus noise, and balanced weights where the ring is closed."""
        cores = rank_scaled_noise(self, rngs, sigma)
        for core in cores:
            core[0] = np.eye(self.rank).ravel()
        weights = balanced_weights(rngs[-1], np.ones((self.rank, self.n_outputs)))
        if self.n_outputs == 1:
            cores[0] = self._multiply_left(cores[0], np.diag(weights[:, 0]))
            return cores, []
        return cores, [np.stack([np.diag(w) for w in weights.T])]

    def linear(self, bias, slopes, rngs, sigma):
        """Add up sums as in the Tensor Train, and read them where the ring is closed."""
        used = 1 + self.n_outputs
        check_rank(self, used)
        cores = rank_scaled_noise(self, rngs, sigma)
        for core, slope in zip(cores, slopes):
            write_sums(core.reshape(-1, self.rank, self.rank), slope, used)
        reading = np.zeros((self.n_outputs, self.rank, self.rank))
        reading[:, 0, 0] = bias
        for k in range(self.n_outputs):
            reading[k, 1 + k, 0] = 1.0
        if self.n_outputs == 1:
            cores[0] = self._multiply_left(cores[0], reading[0])
            return cores, []
        return cores, [reading]

    def _multiply_left(self, core: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Multiply every matrix of a core from the left."""
        return (matrix @ core.reshape(-1, self.rank, self.rank)).reshape(core.shape)
