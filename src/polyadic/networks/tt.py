"""Tensor Train: W = l' G^(1) G^(2) ... G^(N) P, a matrix G^(n)[i] of r x r for every element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.networks.base import (
    Array,
    Format,
    balanced_weights,
    columns_of,
    rescaled,
    with_unit_constants,
)


class TensorTrain(Format):
    """Tensor Train with cores (r, d_n, r), a left vector l : (r,) and an output mode P : (r, L)."""

    name = "tt"

    @property
    def width(self) -> int:
        """Number of parameters per basis element: one r x r matrix."""
        return self.rank**2

    def extra_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the two ends of the train."""
        return [(self.rank,), (self.rank, self.n_outputs)]

    def contract(self, parts: Array, extras: Sequence[Array]) -> Array:
        """Move the left end through the row's matrices, to the right end.

        Products of a vector with many small matrices are sums of vectors here: calls for small
        matrices take several times as long.
        """
        left, right = extras
        state = left
        for part in columns_of(parts):
            state = (state[..., None] * part.reshape(-1, self.rank, self.rank)).sum(-2)
        return state @ right

    def order_norm(self, cores: Sequence[Array], extras: Sequence[Array]) -> tuple[Array, Array]:
        """Sweep S <- sum_i G[i]' S G[i] from the left end to the right.

        By two products of large matrices per column: many small ones take ten times as long.
        """
        r, (left, right) = self.rank, extras
        state, log_scale = left[:, None] * left, 0.0
        for core in cores:
            d = len(core)
            beside = core.reshape(d, r, r).swapaxes(0, 1).reshape(r, d * r)
            moved = (state @ beside).reshape(r, d, r).swapaxes(0, 1).reshape(d * r, r)
            state, log_scale = rescaled(core.reshape(d * r, r).T @ moved, log_scale)
        return (right * (state @ right)).sum(), log_scale

    def near_one(self, rngs, sigma):
        """Return identities plus noise between a vector of ones and balanced output weights."""
        cores = rank_scaled_noise(self, rngs, sigma)
        for core in cores:
            core[0] = np.eye(self.rank).ravel()
        return cores, [
            np.ones(self.rank),
            balanced_weights(rngs[-1], np.ones((self.rank, self.n_outputs))),
        ]

    def linear(self, bias, slopes, rngs, sigma):
        """Let the state hold a one and the sums so far: G = [[1, phi' v], [0, I]]."""
        used = 1 + self.n_outputs
        check_rank(self, used)
        cores = rank_scaled_noise(self, rngs, sigma)
        for core, slope in zip(cores, slopes):
            write_sums(core.reshape(-1, self.rank, self.rank), slope, used)
        left = np.zeros(self.rank)
        left[0] = 1.0
        right = np.zeros((self.rank, self.n_outputs))
        right[0], right[1:used] = bias, np.eye(self.n_outputs)
        return cores, [left, right]


def rank_scaled_noise(
    network: Format, rngs: Sequence[np.random.Generator], sigma: float
) -> list[np.ndarray]:
    """Return noise over sqrt(r), which changes the state by about sigma for any rank r.

    With noise of size sigma, a product over N columns would grow like exp(r N sigma^2 / 2).
    """
    return network.noise(rngs, sigma / np.sqrt(network.rank))


def write_sums(core: np.ndarray, slope: np.ndarray, used: int) -> None:
    """Write [[1, phi' v], [0, I]] into the first rows and columns of core : (d, r, r).

    Beyond those, the constant element is an identity. The one adds noise to the unused entries of
    the state, which the right end multiplies by zero at the start: predictions are exact, and
    gradients are not zero.
    """
    core[:, 1:, :used] = 0.0
    core[:, 0, :used] = 0.0
    core[0] += np.eye(len(core[0])) - np.diag(np.diag(core[0]))
    core[:, 0, 1:used] = slope


def sums_in_parts(
    network: Format,
    slopes: Sequence[np.ndarray],
    rngs: Sequence[np.random.Generator],
    sigma: float,
) -> list[np.ndarray]:
    """Return cores whose parts are a one, the L sums phi' slopes, and noise without a constant."""
    used = 1 + slopes[0].shape[1]
    check_rank(network, used)
    cores = with_unit_constants(network.noise(rngs, sigma))
    for core, slope in zip(cores, slopes):
        core[1:, 0] = 0.0
        core[:, 1:used] = slope
    return cores


def check_rank(network: Format, needed: int) -> None:
    """Raise ValueError if the rank is too small for init="linear"."""
    if network.rank < needed:
        raise ValueError(
            f"init='linear' needs a rank of at least {needed} in format={network.name!r} with "
            f"{network.n_outputs} outputs, got {network.rank}."
        )
