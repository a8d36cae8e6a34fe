"""Batches of local features, column by column, for solvers that use one core at a time.

Shapes: b rows; a core (r, d, q) of a Tensor Train; its contraction with the rows, (r, b, q).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from polyadic.data.features import LocalFeatures
from polyadic.kernels.cp import GUARD

_TALL = 128  # columns of more elements are kept as slots, not as a dense phi; chosen by hand


class BatchColumn(Protocol):
    """The local features of a batch in one column."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def contract(self, core: np.ndarray) -> np.ndarray:
        """Return phi(x_i)' core of every row, (r, b, q)."""
        ...

    def outer_sum(self, ahead: np.ndarray, behind: np.ndarray, dim: int) -> np.ndarray:
        """Return sum_i ahead_i x phi(x_i) x behind_i, (r, d, q), of ahead (b, r), behind (b, q)."""
        ...

    def moment(self, weight: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the weighted sum of phi phi', or of its diagonal, and of phi != 0, (d,)."""
        ...


@dataclass(frozen=True)
class DenseColumn:
    """All elements of every row, phi : (b, d)."""

    phi: np.ndarray

    def __len__(self) -> int:
        return len(self.phi)

    def contract(self, core: np.ndarray) -> np.ndarray:
        """Return phi(x_i)' core of every row."""
        return self.phi @ core

    def outer_sum(self, ahead: np.ndarray, behind: np.ndarray, dim: int) -> np.ndarray:
        """Return the sum of outer products."""
        return self.phi.T @ (ahead.T[:, :, None] * behind)

    def moment(self, weight: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Return second moments, of all pairs of elements if they are few."""
        share = weight @ (self.phi != 0)
        if dim > _TALL:
            return weight @ self.phi**2, share
        return self.phi.T @ (weight[:, None] * self.phi), share


@dataclass(frozen=True)
class SparseColumn:
    """Slots of every row, index and value : (b, s), and the value of the implied constant."""

    index: np.ndarray
    value: np.ndarray
    constant: float

    def __len__(self) -> int:
        return len(self.index)

    def contract(self, core: np.ndarray) -> np.ndarray:
        """Return phi(x_i)' core of every row."""
        out = self.constant * core[:, :1]
        for index, value in zip(self.index.T, self.value.T):
            out = out + core[:, index] * value[:, None]
        return np.broadcast_to(out, (len(core), len(self), core.shape[2]))

    def outer_sum(self, ahead: np.ndarray, behind: np.ndarray, dim: int) -> np.ndarray:
        """Return the sum of outer products, by runs of equal index."""
        outer = ahead.T[:, :, None] * behind
        out = np.zeros((ahead.shape[1], dim, behind.shape[1]))
        index = self.index.T.ravel()
        order = np.argsort(index, kind="stable")
        index = index[order]
        runs = np.flatnonzero(np.diff(index, prepend=-1))
        each = outer[:, order % len(self)] * self.value.T.ravel()[order, None]
        out[:, index[runs]] = np.add.reduceat(each, runs, axis=1)
        out[:, 0] += self.constant * outer.sum(1)
        return out

    def moment(self, weight: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Return second moments of single elements."""
        flat, each = self.index.ravel(), weight[:, None]
        moment = np.bincount(flat, (each * self.value**2).ravel(), dim)
        share = np.bincount(flat, (each * (self.value != 0)).ravel(), dim)
        if self.constant:
            moment[0], share[0] = self.constant**2 * weight.sum(), weight.sum()
        return moment, share


class Batches:
    """Local features of chosen rows, after an optional change of basis in every column.

    Parameters
    ----------
    local : LocalFeatures
    inverses : list of (d_n, d_n) or (d_n,), optional
        phi_n' becomes phi_n' G_n, with G_n given as a matrix or by its diagonal. A matrix is
        possible for the columns for which `BatchColumn.moment` returns a matrix.
    """

    def __init__(self, local: LocalFeatures, inverses: Sequence[np.ndarray] | None = None):
        self.local, self.inverses = local, inverses
        layout, dims = local.layout, local.dims
        self.short = layout.dense | (dims <= _TALL)
        widths = np.where(self.short, dims, 0)
        self.start = np.cumsum(widths) - widths  # of each short column in phi
        self.width = int(widths.sum())
        self.place = np.zeros(GUARD + int(dims.sum()), dtype=np.int64)  # from table row to phi
        for n in np.flatnonzero(self.short):
            own = slice(layout.first[n], layout.first[n] + dims[n])
            self.place[own] = self.start[n] + np.arange(dims[n])
        # Two slots of a column may point to the same element, so slots are added one by one.
        n_slots, mixed = np.diff(layout.slots), self.short & ~layout.dense
        self.turns = [
            layout.slots[:-1][mixed & (n_slots > k)] + k
            for k in range(int(n_slots[mixed].max(initial=0)))
        ]

    def columns(self, rows: np.ndarray) -> list[BatchColumn]:
        """Return the local features of these rows, column by column."""
        index = self.local.index[rows]
        value = self.local.value[rows].astype(np.float64)
        phi = np.zeros((len(rows), self.width))
        for slots in self.turns:
            phi[np.arange(len(rows))[:, None], self.place[index[:, slots]]] += value[:, slots]
        return [self._column(n, index, value, phi) for n in range(len(self.short))]

    def _column(self, n: int, index: np.ndarray, value: np.ndarray, phi: np.ndarray) -> BatchColumn:
        layout, dim = self.local.layout, self.local.dims[n]
        own, constant = slice(layout.slots[n], layout.slots[n + 1]), bool(layout.constant[n])
        base = None if self.inverses is None else self.inverses[n]
        if not self.short[n]:
            within, each, one = index[:, own] - layout.first[n], value[:, own], float(constant)
            if base is not None:
                each, one = each * base[within], one * float(base[0])
            return SparseColumn(within, each, one)
        part = phi[:, self.start[n] : self.start[n] + dim]
        if layout.dense[n]:
            part[:, int(constant) :] = value[:, own]
        if constant:
            part[:, 0] = 1.0
        if base is None:
            return DenseColumn(part)
        return DenseColumn(part * base if base.ndim == 1 else part @ base)
