"""The closed forms that explanations are computed from, for models of any format.

A `Reading` is a model together with the marginals of its columns. Effects, interactions and Shapley
values call its methods; `polyadic.explain.cp` implements them for CP and
`polyadic.explain.networks` for the other formats. `polyadic.explain.models` finds the one that a
model needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import sparse

from polyadic.data.columns import Column
from polyadic.data.marginals import Marginal
from polyadic.maps.base import FeatureMap
from polyadic.training.model import FittedModel

ColumnSet = tuple[int, ...]  # numbers of columns, ascending
# Columns that are fixed, and their values: designs with as many rows each as there are points.
Asked = tuple[ColumnSet, Sequence[sparse.csr_array]]


class Reading(ABC):
    """Closed forms of one model over the product of the columns' marginals.

    Shapes: N columns, L outputs; a design is (k, 1 + d_n), see `polyadic.data.marginals.design`.
    """

    def __init__(
        self,
        model: FittedModel,
        marginals: list[Marginal],
        maps: list[FeatureMap] | None = None,
    ):
        self.columns: list[Column] = model.columns_.columns
        self.maps: list[FeatureMap] = model.maps_ if maps is None else maps
        self.marginals = marginals

    @property
    def n_columns(self) -> int:
        """Number of columns N."""
        return len(self.maps)

    def jumps(self, n: int) -> np.ndarray:
        """Return the values above which the effect of a numeric column may jump, ascending."""
        return np.zeros(0)

    @abstractmethod
    def base(self) -> np.ndarray:
        """Return the mean of the raw prediction, (L,)."""

    @abstractmethod
    def partial(
        self,
        term: ColumnSet,
        designs: Sequence[sparse.csr_array],
        pure: bool = False,
        rows: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Return the mean prediction with the columns of `term` fixed, (k_1, ..., k_m, L).

        The mean is over the marginals of the other columns or, where given, over coded rows. With
        `pure`, return the term of the functional ANOVA: all terms of fewer columns are subtracted.
        """

    @abstractmethod
    def along(self, rows: Sequence[np.ndarray], asked: Sequence[Asked]) -> Iterator[np.ndarray]:
        """Yield the raw predictions of coded rows with the columns of each term fixed, (n, k, L).

        Point i has every column of the term as in row i of its design. A term of no columns has one
        point: the rows as they are.
        """

    @abstractmethod
    def variances(self, max_order: int) -> Iterator[tuple[ColumnSet, float]]:
        """Yield every set of up to `max_order` columns and the variance of its pure term."""

    @abstractmethod
    def total_variance(self) -> float:
        """Return the variance over all orders, summed over the outputs."""

    @abstractmethod
    def column_variances(self) -> np.ndarray:
        """Return the variance of all terms that a column has a part in, (N,)."""

    @abstractmethod
    def order_variances(self) -> np.ndarray:
        """Return the variance of all terms of order 1, 2, ..., N, (N,)."""

    @abstractmethod
    def shapley(
        self,
        rows: Sequence[np.ndarray],
        background: Sequence[np.ndarray] | None,
        n_jobs: int | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return Shapley values (n, N, L) of coded rows, and the base value (L,)."""

    @abstractmethod
    def shapley_pairs(
        self,
        rows: Sequence[np.ndarray],
        background: Sequence[np.ndarray] | None,
        n_jobs: int | None,
    ) -> np.ndarray:
        """Return the Shapley interaction index of pairs, (n, N, N, L), above the diagonal."""


def quadrature(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes in 0..1 and weights that integrate polynomials of this degree exactly.

    >>> nodes, weights = quadrature(3)
    >>> len(nodes), float(round(np.sum(weights * nodes**3), 12))
    (2, 0.25)
    """
    nodes, weights = np.polynomial.legendre.leggauss(max(1, degree // 2 + 1))
    return 0.5 * (nodes + 1.0), 0.5 * weights


def outer(parts: list[np.ndarray], rest: np.ndarray) -> np.ndarray:
    """Return sum_r rest_rl prod_i parts[i][k_i, r], (k_1, ..., k_m, L)."""
    *firsts, last = parts
    shape = [len(p) for p in parts]
    rows = np.ones((1, rest.shape[0]))
    for part in firsts:
        rows = (rows[:, None] * part).reshape(-1, rest.shape[0])
    out = np.empty((len(rows), len(last), rest.shape[1]))
    for output in range(rest.shape[1]):
        out[:, :, output] = (rows * rest[:, output]) @ last.T
    return out.reshape(*shape, rest.shape[1])
