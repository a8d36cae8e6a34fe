"""What every local feature map has in common."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import NotFittedError

# Number of knots for which the roughness is the plain sum of squared second differences; for other
# numbers it is rescaled. Chosen by hand.
REFERENCE_KNOTS = 48
BAND = 5  # a roughness matrix has two diagonals on either side of the main one


class FeatureMap(ABC):
    """Map phi_n of one column to `dim` numbers, the elements; most are zero for local maps.

    A map is a small object with plain constructor parameters, like a scikit-learn transformer for
    one column. Subclass it, store each constructor parameter in an attribute of the same name,
    and write `fit`, `encode`, `dim` and `degrees`.

    `encode`, and `dim` where it depends on the fit, call `self._check_fitted()` first, which raises
    NotFittedError where one of the attributes named in `state` is missing.

    Numeric maps are given float64 with NaN for a missing number; categorical maps int64 codes with
    -1 for a missing or unseen category.

    Where `constant` is true, element 0 is 1 for every row: it is *implied*, and `encode` leaves it
    out. A missing value then encodes to zeros only, that is, to the constant element alone. A map
    without a constant encodes a missing value as element 0 with value 1.
    """

    kind: ClassVar[str] = "numeric"  # the kind of column it is for: "numeric" or "categorical"
    constant: bool = True
    # Whether `encode` always returns every element but the constant, in order.
    all_slots: ClassVar[bool] = False
    # Whether all elements but the constant add up to one for every value that is not missing.
    partition: ClassVar[bool] = False
    # The elements of a missing value, set by `with_missing`; None: zeros.
    missing_: np.ndarray | None = None
    state: ClassVar[tuple[str, ...]] = ()  # names of the fitted arrays and numbers that are saved

    @abstractmethod
    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn knots, scales or categories from x : (n,); a weight of 2 counts as two rows."""

    @abstractmethod
    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of each row.

        index : (n, s) int32 in 0..dim-1, and value : (n, s) float32; s is the same for every row.
        """

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of basis elements d, the constant included."""

    @property
    @abstractmethod
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,) ints: 0 for the constant."""

    @property
    def roughness(self) -> np.ndarray:
        """Band of the symmetric matrix K of the smoothness penalty a' K a, (d, 5).

        Row k holds K[k, k-2] ... K[k, k+2]. Zero, that is no penalty, unless a map overrides it.
        """
        return np.zeros((self.dim, BAND))

    def jitter(self, rng: np.random.Generator) -> Self:
        """Return a fitted map with random knots, for one member; by default the map itself."""
        return self

    def merge(self, others: Sequence[Self]) -> tuple[Self, list[np.ndarray | None]]:
        """Return one map that can express what this map and the others can express.

        Also returns, for each of `(self, *others)`, the matrix (dim of the merged map, dim) that
        converts a core exactly to the merged map; None stands for the identity.
        """
        if any(not self.same_as(other) for other in others):
            raise ValueError(f"{self!r} cannot be merged with maps that differ from it.")
        return self, [None] * (1 + len(others))

    # ---- what follows is the same for every map -------------------------------------------------

    def slots(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what `encode` does, except for missing values after `with_missing`."""
        index, value = self.encode(x)
        if self.missing_ is not None:
            value = np.where(np.isnan(x)[:, None], self.missing_.astype(value.dtype), value)
        return index, value

    def dense(self, x: np.ndarray) -> np.ndarray:
        """Return phi(x) : (n, d) with every element written out; for reading and for tests."""
        index, value = self.slots(x)
        out = np.zeros((len(index), self.dim))
        rows = np.arange(len(index))
        for s in range(index.shape[1]):
            out[rows, index[:, s]] += value[:, s]  # each row once
        if self.constant:
            out[:, 0] += 1.0
        return out

    def params(self) -> dict[str, Any]:
        """Return the constructor parameters, JSON scalars only."""
        # A grid search over np.arange passes NumPy scalars, which JSON cannot hold.
        given = {name: getattr(self, name) for name in _parameters(type(self))}
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fitted state as named arrays."""
        own = {name: np.asarray(getattr(self, name)) for name in self.state}
        return own if self.missing_ is None else own | {"missing_": self.missing_}

    @classmethod
    def restore(cls, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild a fitted map from `params` and `arrays`."""
        out = cls(**params)
        for name in cls.state:
            array = np.asarray(arrays[name])
            setattr(out, name, array if array.ndim else array.item())
        return out.with_missing(arrays["missing_"]) if "missing_" in arrays else out

    def with_missing(self, elements: np.ndarray) -> Self:
        """Return a map for which a missing value has these elements; (s,), only with `all_slots`.

        >>> from polyadic.maps import Polynomial
        >>> own = Polynomial(2).fit(np.arange(3.0)).with_missing(np.array([0.5]))
        >>> own.dense(np.array([np.nan]))
        array([[1. , 0.5]])
        """
        if not self.all_slots or elements.shape != (self.dim - self.constant,):
            raise ValueError(f"{self!r} cannot give missing values {elements.shape} elements.")
        out = copy.copy(self)
        out.missing_ = np.asarray(elements, dtype=np.float64)
        return out

    def clone(self) -> Self:
        """Return an unfitted copy."""
        return type(self)(**self.params())

    def same_as(self, other: object) -> bool:
        """Return whether two fitted maps compute the same function of values that are known."""
        return (
            type(self) is type(other)
            and isinstance(other, FeatureMap)
            and self.params() == other.params()
            and all(np.array_equal(getattr(self, k), getattr(other, k)) for k in self.state)
        )

    def _check_fitted(self) -> None:
        if any(name not in vars(self) for name in self.state):
            raise NotFittedError(f"{self!r} is not fitted yet. Call fit with a column first.")

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.params().items())
        return f"{type(self).__name__}({inside})"


@cache  # a signature takes far longer to find than all that is done with it
def _parameters(cls: type[FeatureMap]) -> tuple[str, ...]:
    """Return the names of the constructor's parameters."""
    return tuple(inspect.signature(cls).parameters)


def check_integer(owner: FeatureMap, name: str, at_least: int, at_most: int = 10**6) -> None:
    """Raise a ValueError unless parameter `name` of a map is an integer within the bounds."""
    given = getattr(owner, name)
    whole = isinstance(given, Integral) and not isinstance(given, bool)
    if not whole or not at_least <= given <= at_most:
        raise ValueError(
            f"{type(owner).__name__} got {name}={given!r}. It must be an integer >= {at_least}"
            f"{'' if not whole or given <= at_most else f' and <= {at_most:,}'}."
        )


def check_flag(owner: FeatureMap, name: str) -> None:
    """Raise a ValueError unless parameter `name` of a map is True or False."""
    given = getattr(owner, name)
    if not isinstance(given, (bool, np.bool_)):
        raise ValueError(
            f"{type(owner).__name__} got {name}={given!r:.40}. It must be True or False."
        )


def all_elements(n_rows: int, first: int, dim: int) -> np.ndarray:
    """Return the index (n, dim - first) of a map whose elements first..dim-1 are all non-zero."""
    return np.tile(np.arange(first, dim, dtype=np.int32), (n_rows, 1))


def knot_share(n_knots: int) -> float:
    """Return the factor of the roughness: the same curve has smaller differences on finer knots."""
    return (max(n_knots - 1, 1) / (REFERENCE_KNOTS - 1)) ** 1.5


def second_difference_band(n_knots: int) -> np.ndarray:
    """Return the band (n_knots, 5) of D2' D2, where D2 takes second differences along the knots.

    >>> second_difference_band(3)[1]
    array([ 0., -2.,  4., -2.,  0.])
    """
    band = np.zeros((n_knots, BAND))
    stencil, n_differences = np.array([1.0, -2.0, 1.0]), max(n_knots - 2, 0)
    for i in range(3):
        for j in range(3):
            band[i : i + n_differences, 2 + j - i] += stencil[i] * stencil[j]
    return band
