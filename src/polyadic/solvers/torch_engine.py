"""The torch engine: every format, on any device, by automatic differentiation.

Parameters are a table (D, K) of stacked cores, as in the fused engine, the extras of the format
and, for CP, possibly an additive part. Columns whose slots are all of their elements are computed
by one batched product, all others by one gather, for any number of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

try:
    import torch
    from torch.nn import functional
except ModuleNotFoundError as error:  # pragma: no cover - the message is tested in a process apart
    raise ModuleNotFoundError(
        "This needs PyTorch, which is not installed. Install it with: pip install 'polyadic[torch]'"
    ) from error

from polyadic.data.features import LocalFeatures
from polyadic.kernels.cp import GUARD
from polyadic.networks.base import Format
from polyadic.networks.cores import Cores
from polyadic.objective.losses import Loss

_CHUNK = 8192  # rows predicted at once, at most; chosen by hand
_NUMBERS = 2**25  # numbers that the parts of those rows may take: 256 MB in double precision

Tensor = torch.Tensor


def find_device(name: str) -> torch.device:
    """Return the device of that name, or raise an error that lists the devices."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # fails if the device cannot compute or copy back
    # Some kinds of devices are modules that are not there.
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ImportError) as error:
        known = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}
        there = ["cpu", *(k for k, backend in known.items() if backend.is_available())]
        raise ValueError(
            f"device={name!r} cannot be used here. Devices that can: {', '.join(there)}."
        ) from error
    return device


class Features:
    """Local features as tensors on a device.

    Parameters
    ----------
    local : LocalFeatures
    device : torch.device
    constants : bool
        Whether implied constant elements are used.
    dtype : torch.dtype
        The type of the table they are multiplied with.
    """

    def __init__(
        self,
        local: LocalFeatures,
        device: torch.device,
        constants: bool = True,
        dtype: torch.dtype = torch.float32,
    ):
        layout = local.layout
        self.n_rows = len(local)
        dense, sparse = np.flatnonzero(layout.dense), np.flatnonzero(~layout.dense)
        self.phi, self.phi_rows = self._dense(local, dense, device, dtype)
        self.index, self.value = self._sparse(local, sparse, device, dtype)
        order = np.concatenate([dense, sparse])
        self.place = None
        if not np.array_equal(order, np.arange(len(order))):
            self.place = torch.as_tensor(np.argsort(order), device=device)
        self.first = torch.as_tensor(layout.first, device=device)
        mask = layout.constant & constants
        self.constant = torch.as_tensor(mask[:, None], dtype=dtype, device=device)

    @staticmethod
    def _dense(local, columns, device, dtype):
        """Return phi : (n, N', d) padded with zeros, and the table rows of its elements.

        The numbers of a row are contiguous, so that taking rows copies whole blocks.
        """
        layout = local.layout
        if len(columns) == 0:
            return None, None
        widths = np.diff(layout.slots)[columns]
        phi = np.zeros((len(local), len(columns), max(widths.max(), 1)), np.float32)
        rows = np.zeros((len(columns), phi.shape[2]), np.int64)  # padding points to a guard row
        for k, (n, width) in enumerate(zip(columns, widths)):
            phi[:, k, :width] = local.value[:, layout.slots[n] : layout.slots[n + 1]]
            rows[k, :width] = layout.first[n] + int(layout.constant[n]) + np.arange(width)
        at = torch.as_tensor(rows, device=device)
        return torch.as_tensor(phi, dtype=dtype, device=device), at

    @staticmethod
    def _sparse(local, columns, device, dtype):
        """Return index and value : (n, N'', s), padded with a guard row of value zero."""
        layout = local.layout
        if len(columns) == 0:
            return None, None
        widths = np.diff(layout.slots)[columns]
        shape = (len(local), len(columns), widths.max())
        index, value = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for k, (n, width) in enumerate(zip(columns, widths)):
            own = slice(layout.slots[n], layout.slots[n + 1])
            index[:, k, :width], value[:, k, :width] = local.index[:, own], local.value[:, own]
        at = torch.as_tensor(index, device=device)
        return at, torch.as_tensor(value, dtype=dtype, device=device)

    def parts(self, table: Tensor, rows: Tensor) -> Tensor:
        """Return phi_n(x_n)' core_n of these rows, (n, N, K), from table : (D, K)."""
        found = []
        if self.phi is not None:
            cores = functional.embedding(self.phi_rows, table)  # (N', d, K)
            phi = self.phi.index_select(0, rows)  # (n, N', d)
            # Rows last in memory: the operations that follow loop over them.
            found.append(torch.bmm(cores.transpose(1, 2), phi.permute(1, 2, 0)).permute(2, 0, 1))
        if self.index is not None:
            elements = functional.embedding(self.index[rows], table)  # (n, N'', s, K)
            found.append((elements * self.value[rows].unsqueeze(-1)).sum(2))
        parts = found[0] if len(found) == 1 else torch.cat(found, dim=1)
        if self.place is not None:
            parts = parts.index_select(1, self.place)
        return parts + self.constant * functional.embedding(self.first, table)


@dataclass
class Network:
    """A format with its parameters as tensors."""

    format: Format
    table: Tensor  # (D, K + L) with an additive part, else (D, K)
    extras: list[Tensor]

    @classmethod
    def pack(cls, cores: Cores, device: torch.device, dtype=None) -> Network:
        """Copy cores to the device."""
        kind = torch.float32 if dtype is None else dtype
        factors = [np.asarray(a, dtype=np.float64) for a in cores.factors]
        if cores.additive is not None:
            factors = [np.hstack(pair) for pair in zip(factors, cores.additive)]
        guard = np.zeros((GUARD, factors[0].shape[1]))
        table = np.concatenate([guard, *factors, guard])
        return cls(
            cores.format,
            torch.tensor(table, dtype=kind, device=device),
            [torch.tensor(np.asarray(e), dtype=kind, device=device) for e in cores.extras],
        )

    def unpack(self, cores: Cores) -> Cores:
        """Return cores of the same kind with these values."""
        table = self.table.detach().cpu().numpy()[GUARD:-GUARD]
        ends = np.cumsum(self.format.dims)[:-1]
        factors = [a.copy() for a in np.split(table[:, : self.format.width], ends)]
        extras = [e.detach().cpu().numpy().copy() for e in self.extras]
        additive = None
        if cores.additive is not None:
            additive = [a.copy() for a in np.split(table[:, self.format.width :], ends)]
        return cores.with_arrays(factors, extras, additive)

    def factors(self) -> list[Tensor]:
        """Return the factors (d_n, K), without the additive part."""
        table = self.table[GUARD:-GUARD, : self.format.width]
        return list(torch.split(table, list(self.format.dims)))

    def parameters(self) -> list[Tensor]:
        """Return all tensors that are trained."""
        return [self.table, *self.extras]

    def raw(self, features: Features, rows: Tensor) -> Tensor:
        """Return the contraction for these rows, (n, L), without the intercept."""
        parts, width = features.parts(self.table, rows), self.format.width
        if self.table.shape[1] == width:
            return self.format.contract(parts, self.extras)
        out = self.format.contract(parts[:, :, :width], self.extras)
        return out + parts[:, :, width:].sum(1)

    def order_penalty(self, emphasis: Tensor) -> Tensor:
        """Return <B*W, B*W>; emphasis : (D, 1) is b for every row of the table."""
        scaled = self.table[:, : self.format.width] * emphasis
        # Not by slices: each would have a gradient of the size of the whole table.
        cores = torch.split(scaled, [GUARD, *self.format.dims, GUARD])[1:-1]
        value, log_scale = self.format.order_norm(cores, self.extras)
        return value * log_scale.exp()


def predict(cores: Cores, local: LocalFeatures, device: torch.device) -> np.ndarray:
    """Return raw : (n, L) float64, in the units of the cores.

    In double precision if the device has it: the prediction of a row then depends only in the last
    bits of double precision on which other rows are predicted with it.
    """
    dtype = torch.float32 if device.type == "mps" else torch.float64
    network = Network.pack(cores, device, dtype)
    return cores.to_raw(contract(network, in_chunks(network, local, device)))


def in_chunks(network: Network, local: LocalFeatures, device: torch.device) -> Iterator[Features]:
    """Copy the rows to the device in chunks whose parts fit into memory."""
    widest = int(np.diff(local.layout.slots).max())
    per_row = len(local.dims) * network.table.shape[1] * max(1, widest)
    chunk = _NUMBERS // max(per_row, network.format.numbers_per_row())
    chunk = min(_CHUNK, max(64, chunk))
    for start in range(0, len(local), chunk):
        part = local.take(np.arange(start, min(start + chunk, len(local))))
        yield Features(part, device, network.format.constants, network.table.dtype)


def contract(network: Network, chunks: Iterable[Features]) -> np.ndarray:
    """Return the contraction for all rows, (n, L) float64."""
    out = [np.empty((0, network.format.n_outputs))]
    with torch.no_grad():
        for features in chunks:
            rows = torch.arange(features.n_rows, device=network.table.device)
            out.append(network.raw(features, rows).cpu().numpy())
    return np.concatenate(out)


def mean_loss(loss: Loss, raw: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return the mean over the rows of weight times loss; weights have mean one."""
    return (loss.torch_losses(y, raw) * weight).mean()


def band_penalty(table: Tensor, band: Tensor, diagonals: Sequence[int]) -> Tensor:
    """Return the sum of a' K a over the table's columns; band : (D, 5), see `penalties.Banded`."""
    middle = table[GUARD:-GUARD]
    out = table.new_zeros(())
    for b in diagonals:
        neighbour = table[b : len(table) - 2 * GUARD + b]
        out = out + (band[GUARD:-GUARD, b : b + 1] * middle * neighbour).sum()
    return out
