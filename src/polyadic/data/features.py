"""LocalFeatures: the slots of every column of a table, in one pair of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from polyadic.kernels.cp import GUARD, Layout

if TYPE_CHECKING:
    from polyadic.maps.base import FeatureMap


@dataclass(frozen=True)
class LocalFeatures:
    """The local features phi_n(x_n) of n rows, non-zeros only.

    Attributes
    ----------
    index : (n, S) int32
        Row of the stacked cores that each slot points to. The stack has two guard rows in front.
    value : (n, S) float32
        The number that this row is multiplied by.
    layout : Layout
        Which slots and which rows of the stack belong to which column.
    dims : (N,)
        Number of basis elements d_n of each column.
    """

    index: np.ndarray
    value: np.ndarray
    layout: Layout
    dims: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: np.ndarray) -> LocalFeatures:
        """Return the features of these rows."""
        return LocalFeatures(self.index[rows], self.value[rows], self.layout, self.dims)

    def counts(self) -> np.ndarray:
        """Return how many rows touch each row of the stack, (D,)."""
        n_stack = stack_height(self.dims)
        out = np.bincount(self.index[self.value != 0].ravel(), minlength=n_stack)
        out[always_touched(self.layout, self.dims)] = len(self)
        return out


def sparse_design(index: np.ndarray, value: np.ndarray, n_elements: int) -> sparse.csr_array:
    """Return slots (n, S) as a sparse matrix (n, n_elements), in double precision."""
    n_rows, n_slots = index.shape
    ends = np.arange(n_rows + 1) * n_slots
    data = value.ravel().astype(np.float64)
    return sparse.csr_array((data, index.ravel(), ends), shape=(n_rows, n_elements))


def stack_height(dims: np.ndarray) -> int:
    """Return the number of rows D of the stacked cores, guard rows included."""
    return int(np.sum(dims)) + 2 * GUARD


def always_touched(layout: Layout, dims: np.ndarray) -> np.ndarray:
    """Return the rows of the stack that every row of the table touches."""
    rows = [
        np.arange(first, first + dim) if dense else np.arange(first, first + constant)
        for first, dim, constant, dense in zip(layout.first, dims, layout.constant, layout.dense)
    ]
    return np.concatenate(rows).astype(np.intp)


def lay_out(maps: Sequence[FeatureMap], n_slots: Sequence[int]) -> tuple[Layout, np.ndarray]:
    """Return the layout and the dims of stacked cores, for fitted maps with n_slots slots each."""
    dims = np.array([m.dim for m in maps], dtype=np.int64)
    constant = np.array([m.constant for m in maps], dtype=np.bool_)
    slots = np.concatenate(([0], np.cumsum(n_slots))).astype(np.int64)
    first = GUARD + np.concatenate(([0], np.cumsum(dims)[:-1])).astype(np.int64)
    dense = np.array([m.all_slots for m in maps], dtype=np.bool_)
    return Layout(slots, first, constant, dense), dims


def _checked(
    own: FeatureMap, index: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Check the slots of a user's map: the kernels do not check the indices they are given."""
    if type(own).__module__.startswith("polyadic.maps."):
        return index, value
    if index.shape != value.shape or index.ndim != 2:
        raise ValueError(
            f"{own!r}.encode must return index and value of one shape (n, s), got "
            f"{index.shape} and {value.shape}."
        )
    if index.size and (index.min() < 0 or index.max() >= own.dim):
        raise ValueError(
            f"{own!r}.encode must return indices from 0 to dim - 1 = {own.dim - 1}, got "
            f"{index.min()} to {index.max()}."
        )
    if own.all_slots and index.shape[1] != own.dim - own.constant:
        raise ValueError(
            f"{own!r} has all_slots, but encode returns {index.shape[1]} slots, not "
            f"{own.dim - own.constant}."
        )
    if own.all_slots and np.any(index != np.arange(int(own.constant), own.dim)):
        raise ValueError(
            f"{own!r} has all_slots, but encode returns the elements in another order than "
            f"{int(own.constant)}, ..., {own.dim - 1}."
        )
    return index, value


def encode(maps: Sequence[FeatureMap], columns: Sequence[np.ndarray]) -> LocalFeatures:
    """Encode each coded column with its map.

    >>> import numpy as np
    >>> from polyadic.maps import Polynomial
    >>> maps = [Polynomial(3).fit(np.arange(4.0)), Polynomial(2).fit(np.arange(4.0))]
    >>> local = encode(maps, [np.arange(4.0), np.arange(4.0)])
    >>> local.value.shape, local.dims.tolist()
    ((4, 3), [3, 2])
    """
    coded = [_checked(m, *m.slots(x)) for m, x in zip(maps, columns)]
    layout, dims = lay_out(maps, [index.shape[1] for index, _ in coded])
    n_rows = len(columns[0])
    index = np.empty((n_rows, layout.slots[-1]), dtype=np.int32)
    value = np.empty((n_rows, layout.slots[-1]), dtype=np.float32)
    for n, (i, v) in enumerate(coded):
        own = slice(layout.slots[n], layout.slots[n + 1])
        np.add(i, layout.first[n], out=index[:, own], casting="unsafe")
        value[:, own] = v
    return LocalFeatures(index, value, layout, dims)
