"""What can be read off a fitted model, whatever its format.

A `Reading` is a model beside the marginals of its columns. Effects, interactions and Shapley values
are written once, on its methods; `polyadic.explain.cp` has them for CP estimators and
`polyadic.explain.networks` for the other formats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from polyadic.data import marginals as measuring
from polyadic.data.columns import Column
from polyadic.data.marginals import Marginal
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores

Term = tuple[int, ...]  # numbers of columns, ascending


class Reading(ABC):
    """Closed forms of one model over the product of the columns' marginals.

    Shapes: N columns, L outputs; a design is (k, 1 + d_n), see `polyadic.data.marginals.design`.
    """

    def __init__(self, model: Any, marginals: list[Marginal]):
        self.columns: list[Column] = model.columns_.columns
        self.maps: list[FeatureMap] = model.maps_
        self.marginals = marginals

    @property
    def n_columns(self) -> int:
        """Number of columns N."""
        return len(self.maps)

    @abstractmethod
    def base(self) -> np.ndarray:
        """Return the mean of the raw prediction, (L,)."""

    @abstractmethod
    def partial(
        self,
        term: Term,
        designs: Sequence[sparse.csr_array],
        pure: bool = False,
        rows: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Return the mean prediction with the columns of a term set, (k_1, ..., k_m, L).

        Over the marginals of the other columns or, where given, over coded rows as they are.
        Pure: the term of the functional ANOVA, less all terms of fewer columns.
        """

    @abstractmethod
    def variances(self, max_order: int) -> Iterator[tuple[Term, float]]:
        """Yield every set of up to `max_order` columns and the variance of its pure term."""

    @abstractmethod
    def total_variance(self) -> float:
        """Return the variance over all orders, outputs added up."""

    @abstractmethod
    def column_variances(self) -> np.ndarray:
        """Return the variance of all terms that a column has a part in, (N,)."""

    @abstractmethod
    def order_variances(self) -> np.ndarray:
        """Return the variance of all terms of order 1, 2, ..., N, (N,)."""

    @abstractmethod
    def shapley(
        self, rows: Sequence[np.ndarray], background: Sequence[np.ndarray] | None, n_jobs: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return Shapley values (n, N, L) of coded rows, and the base value (L,)."""

    @abstractmethod
    def shapley_pairs(
        self, rows: Sequence[np.ndarray], background: Sequence[np.ndarray] | None, n_jobs: int
    ) -> np.ndarray:
        """Return the Shapley interaction index of pairs, (n, N, N, L), above the diagonal."""


def read(model: Any, background: Any = None) -> Reading:
    """Return the reading of a fitted model over its training marginals, or those of a table."""
    check_is_fitted(model, "tensor_")
    marginals = _marginals(model, background)
    if not all(np.all(np.isfinite(a)) for m in marginals for a in (m.mean, m.second.data)):
        raise ValueError(
            "The local features of a column are beyond the range of numbers, so nothing can be "
            "averaged over it. Fit again with maps='hat', or with Polynomial(normalize=True)."
        )
    if isinstance(model.tensor_, CPCores):
        from polyadic.explain.cp import CPReading

        return CPReading(model, marginals)
    from polyadic.explain.networks import NetworkReading

    return NetworkReading(model, marginals)


def code(model: Any, X: Any) -> list[np.ndarray]:
    """Read a table as the model does; refuse one without rows."""
    check_is_fitted(model, "tensor_")
    coded = model.columns_.code(X, estimator_name=type(model).__name__)
    if len(coded[0]) == 0:
        raise ValueError("The table has no rows: at least one is needed for an explanation.")
    return coded


def quadrature(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return places in 0..1 and weights that integrate polynomials of this degree exactly.

    >>> nodes, weights = quadrature(3)
    >>> len(nodes), float(round(np.sum(weights * nodes**3), 12))
    (2, 0.25)
    """
    nodes, weights = np.polynomial.legendre.leggauss(max(1, degree // 2 + 1))
    return 0.5 * (nodes + 1.0), 0.5 * weights


def output_names(model: Any) -> list[str]:
    """Return a name for each output: "" for a single number, or what a score speaks for."""
    n_outputs = model.tensor_.n_outputs
    if hasattr(model, "classes_"):
        return [str(c) for c in model.classes_[-n_outputs:].tolist()]
    return [""] if n_outputs == 1 else [f"y{i}" for i in range(n_outputs)]


def find_columns(model: Any, names: Sequence[Any]) -> list[int]:
    """Return the numbers of columns that are given by name, or by number."""
    known = model.columns_.names
    out = []
    for name in names:
        if isinstance(name, int | np.integer) and not isinstance(name, bool):
            if not -len(known) <= name < len(known):
                raise ValueError(f"There is no column {name}; there are {len(known)} columns.")
            out.append(int(name) % len(known))
        elif name in known:
            out.append(known.index(name))
        else:
            listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise ValueError(f"Unknown column {name!r}. Choose from: {listed}.")
    if len(set(out)) < len(out):
        raise ValueError(f"A column is named twice in {list(names)!r}.")
    return out


def _marginals(model: Any, background: Any) -> list[Marginal]:
    if background is not None:
        coded = code(model, background)
        return measuring.learn(model.columns_.columns, model.maps_, coded)
    if not hasattr(model, "marginals_"):
        raise ValueError(
            "This model does not know the marginals of its columns: it was saved by an earlier "
            "version. Pass a table to average over, such as background=X_train."
        )
    return model.marginals_
