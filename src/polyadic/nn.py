"""Tensor networks as torch modules, for training loops of your own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.solvers import torch_engine  # noqa: F401  (says what to install where torch is missing)

import torch  # isort: skip

from polyadic.networks import resolve
from polyadic.networks.base import near_one_sigma

__all__ = ["TensorNetwork"]


class TensorNetwork(torch.nn.Module):
    """A tensor network on mapped inputs: (n, N, d) feature vectors in, (n, L) predictions out.

    Parameters
    ----------
    format : str
        "cp", "tt", "tr", "ht", "tucker", "fm" or "pn".
    dims : sequence of int
        Length d_n of each column's feature vector; shorter ones are padded with zeros. Element 0
        should be about constant, because training starts from a model that depends on it alone.
        "fm" and "pn" take the numbers themselves, without a constant.
    rank : int
    n_outputs : int
    order : int
        Highest order of interaction; used by "fm" and "pn" only.
    sigma : float, optional
        Standard deviation of the noise on the initial cores; the default is smaller for more
        columns.
    seed : int
        Seed of the initial cores.

    Examples
    --------
    >>> network = TensorNetwork("tt", dims=[3, 3, 3], rank=4)
    >>> network(torch.ones(5, 3, 3)).shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        format: str,
        dims: Sequence[int],
        rank: int,
        n_outputs: int = 1,
        order: int = 2,
        sigma: float | None = None,
        seed: int = 0,
    ):
        super().__init__()
        self.network = resolve(format)(dims, rank, n_outputs, order)
        rngs = [np.random.default_rng((seed, n)) for n in range(len(dims) + 1)]
        # Formats without constants set element 0 to zero: draw one element more, and drop it.
        spare = 0 if self.network.constants else 1
        drawn = resolve(format)([d + spare for d in dims], rank, n_outputs, order)
        if sigma is None:
            sigma = near_one_sigma(len(dims))
        cores, extras = drawn.near_one(rngs, sigma)
        stacked = np.zeros((len(dims), max(dims), self.network.width), np.float32)
        for n, core in enumerate(cores):
            stacked[n, : dims[n]] = core[spare:]
        self.cores = torch.nn.Parameter(torch.tensor(stacked))
        self.extras = torch.nn.ParameterList(
            torch.nn.Parameter(torch.tensor(e, dtype=torch.float32)) for e in extras
        )

    def forward(self, phi: torch.Tensor) -> torch.Tensor:
        """Contract phi : (n, N, d) with the network."""
        if phi.ndim != 3 or phi.shape[1:] != self.cores.shape[:2]:
            n_columns, dim = self.cores.shape[:2]
            raise ValueError(f"phi must be (n, {n_columns}, {dim}), got {tuple(phi.shape)}.")
        parts = torch.einsum("nid,idk->nik", phi, self.cores)
        return self.network.contract(parts, list(self.extras))
