"""Tensor networks as torch modules, for training loops of your own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.solvers import torch_engine  # noqa: F401  (says what to install where torch is missing)

import torch  # isort: skip

from polyadic.networks import resolve
from polyadic.networks.base import near_one_sigma

__all__ = ["TensorNetwork"]

Array = torch.Tensor | np.ndarray


class TensorNetwork(torch.nn.Module):
    """A tensor network on mapped inputs: N arrays (n, d_n) in, (n, L) predictions out.

    Parameters
    ----------
    format : str
        "cp", "tt", "tr", "ht", "tucker", "fm" or "pn".
    dims : sequence of int
        Length d_n of each column's feature vector. Element 0 should be about constant, because
        training starts from a model that depends on it alone. "fm" and "pn" take the numbers
        themselves, without a constant.
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

    Columns of different widths, such as those of fitted maps:

    >>> network = TensorNetwork("cp", dims=[3, 8], rank=4)
    >>> network([torch.ones(5, 3), torch.ones(5, 8)]).shape
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

    def forward(self, phi: Array | Sequence[Array]) -> torch.Tensor:
        """Contract feature vectors with the network.

        Parameters
        ----------
        phi : list of N arrays (n, d_n), or one array (n, N, d)
            The feature vectors of each column, as tensors or NumPy arrays; they get the dtype and
            device of the network. In one array, d is the largest d_n, and shorter feature vectors
            end with zeros.

        Returns
        -------
        torch.Tensor, (n, L)
        """
        if isinstance(phi, (torch.Tensor, np.ndarray)):
            parts = torch.einsum("nid,idk->nik", self._read_stacked(phi), self.cores)
        else:
            pairs = zip(self._read_columns(phi), self.cores.unbind())
            parts = torch.stack([own @ core[: own.shape[1]] for own, core in pairs], dim=1)
        return self.network.contract(parts, list(self.extras))

    def _as_tensor(self, array: Array) -> torch.Tensor:
        return torch.as_tensor(array, dtype=self.cores.dtype, device=self.cores.device)

    def _read_stacked(self, phi: Array) -> torch.Tensor:
        """Return the feature vectors of all columns in one tensor, if it has their shape."""
        n_columns, dim = self.cores.shape[:2]
        if phi.ndim != 3 or tuple(phi.shape[1:]) != (n_columns, dim):
            raise ValueError(
                f"phi must be (n, {n_columns}, {dim}), got {tuple(phi.shape)}. Columns of "
                f"different widths go into a list of {n_columns} arrays (n, d_n)."
            )
        return self._as_tensor(phi)

    def _read_columns(self, phi: Sequence[Array]) -> list[torch.Tensor]:
        """Return the feature vectors of each column, if the list has the shapes of the columns."""
        dims = self.network.dims
        if len(phi) != len(dims):
            raise ValueError(
                f"phi must have one array for each of the {len(dims)} columns, got {len(phi)}."
            )
        columns = [self._as_tensor(own) for own in phi]
        for n, (own, dim) in enumerate(zip(columns, dims)):
            if own.ndim != 2 or own.shape[1] != dim:
                raise ValueError(f"phi[{n}] must be (n, {dim}), got {tuple(own.shape)}.")
            if len(own) != len(columns[0]):
                raise ValueError(
                    "All arrays in phi must have the same number of rows: "
                    f"phi[0] has {len(columns[0])}, phi[{n}] has {len(own)}."
                )
        return columns
