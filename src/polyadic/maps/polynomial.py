"""Powers of a column."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from polyadic.kernels import encode as kernels
from polyadic.maps.base import FeatureMap, all_elements, check_flag, check_integer
from polyadic.maps.column import distinct, mean_and_std

# Largest basis element. float32 ends at 3e38, and the model multiplies elements by more numbers.
LARGEST_ELEMENT = 1e30
# An element whose standard deviation is less than this share of its size counts as constant: only
# rounding errors vary. Chosen by hand.
ROUNDING = 1e-9


class Polynomial(FeatureMap):
    """Map a column to its powers, phi(x) = [1, z, z^2, ..., z^(d-1)], the paper's polynomial map.

    z = (x - mean) / std is the column standardised on the training rows.

    Parameters
    ----------
    d : int
        Number of elements, the constant included; the largest power is d - 1.
    normalize : bool
        Divide the vector by its Euclidean norm (the paper's normalised polynomial map). There is
        then no constant element, and d may be in the hundreds: no x overflows.
    standardize : bool
        Give each power, after mapping, mean 0 and standard deviation 1 over the training rows. Not
        together with `normalize`.

    Notes
    -----
    Without `normalize`, z is held within +-1e30^(1/(d-1)), so that no power leaves the range of
    float32. The limit is large for small d (1e15 for d=3) and small for large d (2.5 for d=75),
    where `normalize` is the better choice.

    Examples
    --------
    >>> x = np.array([1.0, 3.0])
    >>> Polynomial(d=4).fit(x).dense(np.array([1.0, 2.0, 4.0]))
    array([[ 1., -1.,  1., -1.],
           [ 1.,  0.,  0.,  0.],
           [ 1.,  2.,  4.,  8.]])
    >>> Polynomial(d=2, normalize=True).fit(x).dense(np.array([2.0, 1e300]))
    array([[1., 0.],
           [0., 1.]])
    """

    all_slots = True
    state: ClassVar[tuple[str, ...]] = ("mean_", "std_", "element_mean_", "element_std_")

    def __init__(self, d: int = 3, normalize: bool = False, standardize: bool = False):
        self.d = d
        self.normalize = normalize
        self.standardize = standardize

    @property
    def constant(self) -> bool:  # type: ignore[override]
        """Whether element 0 is 1 for every row; a vector of unit length has no such element."""
        return not self.normalize

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Learn the mean and the standard deviation of x : (n,), and of its powers if asked."""
        check_integer(self, "d", at_least=1)
        check_flag(self, "normalize")
        check_flag(self, "standardize")
        if self.normalize and self.standardize:
            raise ValueError(
                "Polynomial got normalize=True and standardize=True. Choose one: normalize for "
                "vectors of unit length, standardize for elements of mean 0 and deviation 1."
            )
        values, counts = distinct(x, sample_weight)
        self.mean_, self.std_ = mean_and_std(values, counts)
        self.element_mean_, self.element_std_ = np.zeros(self.d - 1), np.ones(self.d - 1)
        if self.standardize and len(values):
            self._fit_elements(self._powers(values), counts)
        return self

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the elements of x : (n,), the constant left out; see `FeatureMap.encode`."""
        self._check_fitted()
        x = np.asarray(x, dtype=np.float64)
        index = all_elements(len(x), int(self.constant), self.d)
        if self.normalize:
            value = np.empty(index.shape, dtype=np.float32)
            kernels.unit_powers(self._scaled(x), value)
            return index, value
        element = self._powers(x)  # (n, d-1)
        if self.standardize:
            element = (element - self.element_mean_) / self.element_std_
            element = np.clip(element, -LARGEST_ELEMENT, LARGEST_ELEMENT)
            element[np.isnan(x)] = 0.0
        return index, element.astype(np.float32)

    @property
    def dim(self) -> int:
        """Number of basis elements d, the constant included."""
        return self.d

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,): its power of x, 0 for the constant."""
        return np.arange(self.d)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # the callers accept an infinite z
            return (x - self.mean_) / self.std_

    def _powers(self, x: np.ndarray) -> np.ndarray:
        """Return z, ..., z^(d-1) : (n, d-1), zeros for a missing x."""
        # The largest power of a large z would be infinite in float32, and one infinity in a product
        # of columns makes the whole prediction NaN. Beyond the limit the map is constant instead.
        limit = LARGEST_ELEMENT ** (1.0 / max(self.d - 1, 1))
        power = np.empty((len(x), self.d - 1))
        kernels.powers(np.clip(self._scaled(x), -limit, limit), power)
        return power

    def _fit_elements(self, power: np.ndarray, counts: np.ndarray) -> None:
        share = (counts / counts.sum())[:, None]
        mean = np.sum(share * power, axis=0)
        std = np.sqrt(np.sum(share * (power - mean) ** 2, axis=0))
        size = np.sqrt(np.sum(share * power**2, axis=0))
        # z^2 of a column of two equally frequent values is always 1: do not divide by its zero std.
        self.element_mean_ = mean
        self.element_std_ = np.where(std > ROUNDING * size, std, 1.0)
