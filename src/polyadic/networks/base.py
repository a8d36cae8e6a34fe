"""The base class of formats, and functions that several of them use.

Every format has K parameters per basis element of each column, stacked into one table of D rows
like the cores of the fused engine, and possibly some *extras*, arrays that belong to no column. A
row of the data turns the table into N *parts* of K numbers, part n being phi_n(x_n)' core_n.
Formats differ in how parts and extras are contracted into L outputs. This is what a subclass
defines, with operators that NumPy arrays and torch tensors share.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

Array = Any  # a NumPy array or a torch tensor

_MAX_EXTRAS_BYTES = 2 * 10**9  # in float32, of one model; chosen by hand


class Format(ABC):
    """A tensor network over N columns with L outputs.

    Parameters
    ----------
    dims : (N,)
        Number of basis elements of each column.
    rank : int
    n_outputs : int
    order : int
        Highest order of interaction, for the formats that have one.
    """

    name: ClassVar[str]
    is_network: ClassVar[bool] = True  # whether f(x) is <W, Phi(x)> with a weight tensor W
    by_order: ClassVar[bool] = False  # whether `order` is used
    constants: ClassVar[bool] = True  # whether implied constant elements are used
    extras_name: ClassVar[str] = "extra arrays"
    # Whether the last extra array weighs the terms of each output: with one output, a Gaussian
    # start keeps these weights at one, since a factor of the term can take their size.
    weighs_terms: ClassVar[bool] = False

    def __init__(self, dims: Sequence[int], rank: int, n_outputs: int = 1, order: int = 2):
        self.dims = [_positive("dims", d) for d in dims]
        if not self.dims:
            raise ValueError("dims must have one number per column, got none.")
        self.rank, self.order = _positive("rank", rank), _positive("order", order)
        self.n_outputs = _positive("n_outputs", n_outputs)
        size = 4 * sum(math.prod(shape) for shape in self.extra_shapes())
        if size > _MAX_EXTRAS_BYTES:
            raise MemoryError(self._too_large(size))

    def _too_large(self, size: int) -> str:
        others = [name for name in ("cp", "tt", "tr", "ht") if name != self.name]
        # The size of a core tensor over hundreds of columns is beyond any float.
        gigabytes = f"{size / 1e9:,.3g}" if size < 10**300 else f"1e+{math.log10(size) - 9:.0f}"
        return (
            f"format={self.name!r} with rank {self.rank} over {self.n_columns} columns would need "
            f"{gigabytes} GB for its {self.extras_name}, more than the {_MAX_EXTRAS_BYTES / 1e9:g} "
            f"GB allowed. Lower rank, or choose another format: {', '.join(others)}."
        )

    @property
    def n_columns(self) -> int:
        """Number of columns N."""
        return len(self.dims)

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of parameters K per basis element."""

    def extra_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the arrays that belong to no column."""
        return []

    def numbers_per_row(self) -> int:
        """Return about how many numbers the contraction of one row keeps at once."""
        return self.n_columns * self.width

    def numbers_per_penalty(self) -> int:
        """Return about how many numbers the order penalty keeps for its gradient."""
        return self.n_columns * self.width

    @abstractmethod
    def contract(self, parts: Array, extras: Sequence[Array]) -> Array:
        """Return raw : (n, L) from parts : (n, N, K)."""

    def order_norm(self, cores: Sequence[Array], extras: Sequence[Array]) -> tuple[Array, Array]:
        """Return <W, W> as a number and the logarithm of a scale; cores[n] : (d_n, K).

        With cores that were multiplied by b^(n), this is the order penalty <B*W, B*W>.
        """
        raise ValueError(f"format={self.name!r} has no weight tensor to put an order penalty on.")

    def weigh_outputs(
        self, cores: Sequence[Array], extras: Sequence[Array], matrix: Array
    ) -> tuple[list[Array], list[Array]]:
        """Return cores and extras of f(x) @ matrix, matrix : (L, L).

        The last axis of the last extra array is that of the outputs, unless a format overrides
        this.
        """
        return list(cores), [*extras[:-1], extras[-1] @ matrix]

    def as_network(
        self, extras: Sequence[Array]
    ) -> tuple[Format, list[Array], Callable[[Array], Array]]:
        """Return a network that is the same function, its extras, and how to convert the parts.

        The last is an affine function, (..., K) to (..., K'), that turns parts of this format into
        parts of that network. Closed forms over all columns work on the result.
        """
        if not self.is_network:
            raise ValueError(
                f"format={self.name!r} has no weight tensor, so no closed form averages over it. "
                "Models of format cp, tt, tr, ht, tucker and fm can be explained."
            )
        return self, list(extras), lambda parts: parts

    @abstractmethod
    def near_one(
        self, rngs: Sequence[np.random.Generator], sigma: float
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return cores and extras that predict about zero, with cores near constants.

        `rngs` holds one generator per column, and one more for the extras.
        """

    def gaussian(
        self, rngs: Sequence[np.random.Generator], sigma: float
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return cores of Gaussian noise, and extras that keep the size of what they multiply.

        The weights of terms are one if there is one output.
        """
        extras = [
            rngs[-1].normal(size=shape) / np.sqrt(max(1, math.prod(shape[:-1])))
            for shape in self.extra_shapes()
        ]
        if self.keeps_weights:
            extras[-1] = np.ones_like(extras[-1])
        return self.noise(rngs, sigma), extras

    @property
    def keeps_weights(self) -> bool:
        """Whether the last extra array of a Gaussian start is ones that do not move."""
        return self.weighs_terms and self.n_outputs == 1 and len(self.extra_shapes()) > 0

    def linear(
        self,
        bias: np.ndarray,
        slopes: Sequence[np.ndarray],
        rngs: Sequence[np.random.Generator],
        sigma: float,
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return cores and extras that predict bias + sum_n phi_n' slopes[n], slopes (d_n, L)."""
        raise ValueError(
            f"init='linear' works with the formats cp, tt, tr, ht and tucker, not {self.name!r}. "
            "Choose init='near_one' or 'gaussian'."
        )

    def n_parameters(self) -> int:
        """Return the number of parameters."""
        return sum(self.dims) * self.width + sum(math.prod(s) for s in self.extra_shapes())

    def noise(
        self, rngs: Sequence[np.random.Generator], sigma: float | np.ndarray
    ) -> list[np.ndarray]:
        """Return cores of Gaussian noise, of one size or of one per column, (N,)."""
        sizes = np.broadcast_to(sigma, (self.n_columns,))
        triples = zip(rngs, self.dims, sizes)
        return [size * rng.normal(size=(d, self.width)) for rng, d, size in triples]


def _positive(name: str, value: Any) -> int:
    """Return the value as an int; refuse what is not a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
    return int(value)


def balanced_weights(rng: np.random.Generator, mask: np.ndarray) -> np.ndarray:
    """Return output weights (R, L) that sum to zero over the terms of each output with several.

    mask : (R, L) is one where a term belongs to an output, and zero elsewhere. Weights have a size
    of 1 / sqrt(number of terms of the output).
    """
    n_terms = mask.sum(axis=0)
    weights = mask * rng.normal(size=mask.shape) / np.sqrt(n_terms)
    return weights - np.where(n_terms > 1, mask * weights.sum(axis=0) / n_terms, 0.0)


def near_one_sigma(n_columns: int) -> float:
    """Return the standard deviation of the noise on initial factors of one: less for many columns.

    From 25 columns on, the product of N factors 1 + noise has a standard deviation of about one
    half, for any N; for fewer columns it is smaller.
    """
    return float(min(0.1, 0.5 / np.sqrt(n_columns)))


def with_unit_constants(cores: list[np.ndarray]) -> list[np.ndarray]:
    """Set the constant element of every core to (1, 0, ..., 0), in place."""
    for core in cores:
        core[0] = 0.0
        core[0, 0] = 1.0
    return cores


def weights_without_first(rng: np.random.Generator, rank: int, n_outputs: int) -> np.ndarray:
    """Return random output weights (k, L), zero for the first entry if there are several."""
    weights = rng.normal(size=(rank, n_outputs)) / np.sqrt(rank)
    if rank > 1:
        weights[0] = 0.0
    return weights


def rescaled(matrix: Array, log_scale: Array) -> tuple[Array, Array]:
    """Divide by the largest entry, and add its logarithm to `log_scale`, against overflow."""
    if isinstance(matrix, np.ndarray):
        size = abs(matrix).max()
        size = size + (size == 0)  # a product that is zero stays zero
        return matrix / size, log_scale + np.log(size)
    size = matrix.detach().abs().max()  # no gradient: the scale is multiplied back at the end
    size = size + (size == 0)
    return matrix / size, log_scale + size.log()


def chain(matrices: Array) -> Array:
    """Return the product over axis 1 of matrices : (n, N, r, r), pair by pair.

    This takes log N calls instead of N; for small matrices the calls take most of the time.
    """
    while matrices.shape[1] > 1:
        even = matrices.shape[1] // 2 * 2
        paired = matrices[:, 0:even:2] @ matrices[:, 1:even:2]
        if even < matrices.shape[1]:
            paired = append(paired, matrices[:, even:])
        matrices = paired
    return matrices[:, 0]


def columns_of(parts: Array) -> Sequence[Array]:
    """Return the parts of each column, (n, K), from those of all, (n, N, K)."""
    if isinstance(parts, np.ndarray):
        return list(parts.swapaxes(0, 1))
    return parts.unbind(1)  # N slices would each have a gradient of the size of the whole


def append(left: Array, right: Array) -> Array:
    """Join two NumPy arrays, two torch tensors or two symbols of a graph along axis 1."""
    if isinstance(left, np.ndarray):
        return np.concatenate([left, right], axis=1)
    if hasattr(left, "joined"):
        return left.joined(right, 1)
    import torch

    return torch.cat([left, right], dim=1)
