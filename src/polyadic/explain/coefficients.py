"""Coefficients: a model as a sum over products of its columns' basis elements (paper, appendix B).

The elements are those of `polyadic.explain.elements`: powers of a column in its own units where its
map is a polynomial, indicators of categories. The sum over all products of coefficient times
elements is the raw prediction, or the relative score of one of many classes. A missing value counts
as the map encodes it: a number as the mean of its column, a category without an indicator. Where
every training row has a value of a column, its indicators or hats are written with a mean of zero,
so that a product without the column has its average coefficient; the sum then does not hold for
rows in which that column is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from polyadic.data.marginals import Marginal
from polyadic.explain.elements import Elements, elements_of
from polyadic.explain.listing import Listing, number
from polyadic.explain.models import find_columns, read
from polyadic.explain.networks import contract_grid, weighed
from polyadic.explain.outputs import class_list, explained_cores, find_output
from polyadic.explain.reading import ColumnSet, outer
from polyadic.explain.wrapped import unwrap
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel, known_marginals, output_names

_MOST_PRODUCTS = 2_000_000  # that are computed and kept in memory; chosen by hand


class Product(NamedTuple):
    """One product of basis elements.

    `term` is its name, `factors` the dict that `coefficient` takes, `size` the absolute coefficient
    times the standard deviations of the elements.
    """

    term: str
    factors: dict[str, Any]
    coefficient: float
    size: float


@dataclass(frozen=True, repr=False)
class Coefficients(Listing):
    """The largest coefficients of one output; prints itself as a table.

    Attributes
    ----------
    rows : list of Product
        (term, factors, coefficient, size), largest size first.
    constant : float
        The coefficient of the product of no columns, including the intercept.
    n_products : int
        Number of all products of up to max_order columns.
    """

    mixed_units = ("coefficient",)
    rows: list[Product]
    constant: float
    n_products: int

    def table(self) -> dict[str, list[Any]]:
        """Return term, coefficient and size."""
        return {
            "term": [row.term for row in self.rows],
            "coefficient": [row.coefficient for row in self.rows],
            "size": [row.size for row in self.rows],
        }

    def footer(self) -> str:
        """Return the constant, and how many products there are."""
        return (
            f"Constant {number(self.constant)}. {len(self.rows)} of {self.n_products:,} products."
        )


def coefficient(model: FittedModel, product: Mapping[Any, Any], output: Any = None) -> float:
    """Return the coefficient of a product of basis elements (paper, appendix B).

    Parameters
    ----------
    model : fitted estimator
    product : dict
        From column to power where the map is a polynomial, to category where the column is
        categorical, else to the number of the basis element. A column that is not named takes the
        power 0, or the constant element; `{}` is the constant term, with the intercept. Where every
        training row has a category, the coefficients of a column's categories have a mean of zero
        over the rows. A map without a constant, such as Polynomial(normalize=True), has an element
        in every product: a product that does not name its column has the coefficient 0.
    output : label or int
        A class by its label, one of several numbers by its number or name; by default the first.
        Scores of three or more classes are relative to their mean over the classes.

    Returns
    -------
    float
        In original units for polynomial maps.

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(0, 10, (500, 2))
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0)
    >>> model = model.fit(X, 7 + 2 * X[:, 0] + 3 * X[:, 0] * X[:, 1])
    >>> round(coefficient(model, {"x0": 1, "x1": 1}), 1)
    3.0
    """
    model = unwrap(model)
    expansion = _Expansion(model)
    k = find_output(output, output_names(model), class_list(model))
    if not isinstance(product, Mapping):
        raise ValueError(
            "product must be a dict from column to power, category or element, such as "
            f"{{{model.columns_.names[0]!r}: 1}}, got {product!r}."
        )
    columns = find_columns(model.columns_.names, list(product))
    chosen = {n: expansion.elements[n].find(v) for n, v in zip(columns, product.values())}
    return expansion.at({n: at for n, at in chosen.items() if at != 0})[k]


def coefficients(
    model: FittedModel,
    max_order: int = 2,
    top: int | None = 20,
    output: Any = None,
    background: Any = None,
) -> Coefficients:
    """Return the largest coefficients of all products of up to `max_order` columns.

    The order does not depend on units: a coefficient is multiplied by the standard deviation of
    each of its elements over the rows. Where the mean of a column is large relative to its standard
    deviation, its powers are correlated: their coefficients are then large, and cancel.

    Parameters
    ----------
    model : fitted estimator
    max_order : int
        Largest number of columns in a product.
    top : int or None
        How many products to return, None for all.
    output : label or int
        As in `coefficient`.
    background : table, optional
        Gives the standard deviations; by default the training table, which the model keeps.

    Returns
    -------
    Coefficients

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(0, 10, (500, 2))
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0)
    >>> model = model.fit(X, 7 + 2 * X[:, 0] + 3 * X[:, 0] * X[:, 1])
    >>> coefficients(model, top=2)
    term     coefficient  size
    x0 * x1            3  24.2
    x0                 2   5.7
    Constant 7. 2 of 8 products.
    """
    model = unwrap(model)
    marginals = read(model, background).marginals
    expansion = _Expansion(model)
    k = find_output(output, output_names(model), class_list(model))
    _check_whole("max_order", max_order)
    if top is not None:
        _check_whole("top", top)
    elements = expansion.elements
    sizes = [len(e) - 1 for e in elements]
    n_products = _check_count(sizes, min(max_order, len(sizes)))
    deviations = [e.deviations(m) for e, m in zip(elements, marginals)]
    terms, values, scales = [], [], []
    for term in _sets(sizes, max_order):
        scale = np.ones(1)
        for n in term:
            scale = np.multiply.outer(scale, deviations[n]).ravel()
        terms.append(term)
        scales.append(scale)
        values.append(expansion.grid(term)[..., k].ravel())
    rows = _largest(elements, terms, values, scales, top)
    return Coefficients(rows, expansion.at({})[k], n_products)


# ---- the whole model ----------------------------------------------------------------------------


class _Expansion:
    """A model rewritten on named elements, the constant of every column first."""

    def __init__(self, model: FittedModel):
        tensor = explained_cores(model)
        if tensor.trees is not None:
            raise ValueError(
                "The model has trees, and a formula of their leaves would have thousands of terms. "
                "Fit with trees=False for coefficients; effects and interactions need no formula."
            )
        # A model from an old file has no marginals.
        known: Sequence[Marginal | None] = known_marginals(model) or [None] * len(model.maps_)
        parts = zip(model.columns_.columns, model.maps_, known)
        self.elements = [elements_of(*own) for own in parts]
        self.intercept = np.asarray(tensor.intercept, dtype=np.float64)
        if isinstance(tensor, CPCores):
            factors, extras = tensor.factors, [np.asarray(tensor.weights, dtype=np.float64)]
        else:
            factors, extras = weighed(tensor, tensor.factors)
        self.network, self.ends, self.lift = tensor.format.as_network(extras)
        self.cores = self._rewrite(factors)
        self.additive = None if tensor.additive is None else self._rewrite(tensor.additive)
        self.constants = self.lift(np.array([core[0] for core in self.cores]))  # (N, K)

    def _rewrite(self, cores: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [e.rewrite(np.asarray(c, np.float64)) for e, c in zip(self.elements, cores)]

    def _rows(self, n: int, places: Any) -> np.ndarray:
        """Return the parts of some elements of a column, for the network, (.., K)."""
        rows = self.cores[n][places]
        return self.lift(rows) - self.lift(np.zeros_like(rows))

    def at(self, chosen: Mapping[int, int]) -> list[float]:
        """Return the coefficient of one product for every output; `chosen` has no constants."""
        if -1 in chosen.values():  # a category without an element of its own
            return [0.0] * len(self.intercept)
        parts = self.constants.copy()
        for n, k in chosen.items():
            parts[n] = self._rows(n, [k])[0]
        out = self.network.contract(parts[None], self.ends)[0]
        if not chosen:
            out = out + self.intercept
        if self.additive is not None and len(chosen) < 2:
            own = [(n, chosen.get(n, 0)) for n in range(len(parts)) if not chosen or n in chosen]
            out = out + sum(self.additive[n][k] for n, k in own)
        return [float(c) for c in out]

    def grid(self, term: ColumnSet) -> np.ndarray:
        """Return the coefficients of all products of these columns, (m_1, ..., L)."""
        rows = [self._rows(n, slice(1, None)) for n in term]
        if self.network.name == "cp":  # multiply the other columns once, not once per product
            others = [n for n in range(len(self.cores)) if n not in term]
            out = outer(rows, np.prod(self.constants[others], axis=0)[:, None] * self.ends[0])
        else:
            out = contract_grid(self.network, self.ends, [self.constants[None]], term, rows)
        if self.additive is not None and len(term) == 1:
            out = out + self.additive[term[0]][1:]
        return out


def _sets(sizes: Sequence[int], max_order: int) -> Iterator[ColumnSet]:
    """Yield all sets of columns that have elements besides the constant."""
    columns = [n for n, size in enumerate(sizes) if size > 0]
    for order in range(1, min(max_order, len(columns)) + 1):
        yield from combinations(columns, order)


def _largest(
    elements: Sequence[Elements],
    terms: Sequence[ColumnSet],
    values: Sequence[np.ndarray],
    scales: Sequence[np.ndarray],
    top: int | None,
) -> list[Product]:
    """Return the products of largest size, of all sets of columns."""
    if not terms:
        return []
    value = np.concatenate(values)
    size = np.abs(value) * np.concatenate(scales)
    ends = np.cumsum([len(v) for v in values])
    rows = []
    for i in np.argsort(-size, kind="stable")[:top]:
        which = int(np.searchsorted(ends, i, side="right"))
        shape = [len(elements[n]) - 1 for n in terms[which]]
        within = np.unravel_index(i - (ends[which] - len(values[which])), shape)
        chosen = [(elements[n], int(k) + 1) for n, k in zip(terms[which], within)]
        name = " * ".join(e.name(k) for e, k in chosen)
        factors = {e.column.name: e.value(k) for e, k in chosen}
        rows.append(Product(name, factors, float(value[i]), float(size[i])))
    return rows


def _check_count(sizes: Sequence[int], max_order: int) -> int:
    """Return how many products there are; refuse too many."""
    counts = [1] + [0] * max_order
    for size in sizes:
        for k in range(max_order, 0, -1):
            counts[k] += counts[k - 1] * size
    total = sum(counts[1:])
    if total > _MOST_PRODUCTS:
        raise ValueError(
            f"max_order={max_order} over {len(sizes)} columns of {sum(sizes):,} elements would be "
            f"{total:,} products, and at most {_MOST_PRODUCTS:,} can be listed. Lower max_order, "
            "or fit maps with fewer elements; coefficient(model, product) gives any single one."
        )
    return total


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
