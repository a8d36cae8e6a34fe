"""Functional ANOVA: how the variance of a model splits over sets of columns.

Under the product of the columns' marginals every function is a unique sum of pure terms, one for
each set S of columns, uncorrelated with each other. Their variances are closed forms of the model's
cores (`polyadic.explain.reading`). A classifier is explained before the link.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from polyadic.explain.listing import Listing, aligned_percent, number
from polyadic.explain.models import read
from polyadic.explain.reading import Reading
from polyadic.explain.wrapped import unwrap
from polyadic.training.model import FittedModel

_MOST_TERMS = 2_000_000  # that are computed and kept in memory; chosen by hand
# A variance below this share of the squared mean is rounding: the square of double precision (about
# 1e-32), with a wide margin.
_ROUNDING = 1e-24


class Term(NamedTuple):
    """One pure term: its columns, its variance, and that as a share of the whole."""

    columns: tuple[str, ...]
    variance: float
    share: float


@dataclass(frozen=True, repr=False)
class Terms(Listing):
    """The strongest terms of a functional ANOVA; prints itself as a table.

    Attributes
    ----------
    rows : list of Term
        (columns, variance, share), largest variance first.
    total : float
        Variance of the model under the product of the marginals, over all orders.
    orders : list of float
        Share of all terms of order 1, 2, ..., max_order, including those that are not in `rows`.
    n_terms : int
        Number of all terms of up to max_order columns, `least_order` or more.
    least_order : int
        1 where single columns are listed too, 2 where only interactions are.
    """

    rows: list[Term]
    total: float
    orders: list[float]
    n_terms: int
    least_order: int = 1

    def table(self) -> dict[str, list[Any]]:
        """Return term, standard deviation and share."""
        return {
            "term": [" * ".join(row.columns) for row in self.rows],
            "std": [math.sqrt(row.variance) for row in self.rows],
            "share": [row.share for row in self.rows],
        }

    def footer(self) -> str:
        """Return the share of each order."""
        shares = [f"order {k} {aligned_percent(share)}" for k, share in enumerate(self.orders, 1)]
        what = "terms" if self.least_order == 1 else "interactions"
        return (
            f"{len(self.rows)} of {self.n_terms:,} {what}. Standard deviation "
            f"{number(math.sqrt(self.total), 3)}; of the variance, {', '.join(shares)}."
        )


@dataclass(frozen=True, repr=False)
class Sobol(Listing):
    """Sobol indices: shares of the variance; prints itself as a table.

    Attributes
    ----------
    columns : list of N str
    first : (N,)
        Share of the column's main effect.
    total : (N,)
        Share of all terms that the column has a part in; these add up to more than one.
    orders : (N,)
        Share of the main effects, of all pairs, of all terms of three columns and so on; they add
        up to one.
    variance : float
        Variance of the model, over all orders.
    """

    columns: list[str]
    first: np.ndarray
    total: np.ndarray
    orders: np.ndarray
    variance: float

    def table(self) -> dict[str, list[Any]]:
        """Return first-order and total shares, largest total first."""
        order = np.argsort(-self.total, kind="stable")
        return {
            "column": [self.columns[n] for n in order],
            "first-order share": self.first[order].tolist(),
            "total share": self.total[order].tolist(),
        }

    def footer(self) -> str:
        """Return the share of each order that is not nearly zero."""
        shown = [(k, share) for k, share in enumerate(self.orders, 1) if share >= 5e-4]
        told = [f"order {k} {aligned_percent(share)}" for k, share in shown]
        shares = f"of the variance, {', '.join(told)}" if told else "nothing is explained"
        return f"Standard deviation {number(math.sqrt(self.variance), 3)}; {shares}."


def interactions(
    model: FittedModel, max_order: int = 3, top: int | None = 20, background: Any = None
) -> Terms:
    """Return the strongest interactions: pure terms of two columns and more.

    Parameters
    ----------
    model, max_order, top, background
        As in `terms`, which lists the effects of single columns too.

    Returns
    -------
    Terms
        Shares are of the variance over all orders, also of those above `max_order`.

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> y = X[:, 0] + X[:, 1] * X[:, 2]
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0).fit(X, y)
    >>> [row.columns for row in interactions(model, top=1).rows]
    [('x1', 'x2')]
    """
    if max_order == 1 and not isinstance(max_order, bool):
        raise ValueError(
            "An interaction has two columns or more, got max_order=1. Use terms(model, "
            "max_order=1) for the effects of single columns."
        )
    return _strongest(unwrap(model), max_order, top, background, least_order=2)


def terms(
    model: FittedModel, max_order: int = 3, top: int | None = 20, background: Any = None
) -> Terms:
    """Return the variance of every pure term of up to `max_order` columns, single ones too.

    Parameters
    ----------
    model : fitted estimator
    max_order : int
        Largest number of columns in a term. There are (N choose k) terms of order k, each of which
        costs O(R^2) in CP.
    top : int or None
        How many terms to return, None for all.
    background : table, optional
        The variance is over the marginals of its columns, taken as independent; by default over
        those of the training table, which the model keeps.

    Returns
    -------
    Terms
        Shares are of the variance over all orders, also of those above `max_order`.

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> y = X[:, 0] + X[:, 1] * X[:, 2]
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0).fit(X, y)
    >>> [row.columns for row in terms(model, top=2).rows]
    [('x0',), ('x1', 'x2')]
    """
    return _strongest(unwrap(model), max_order, top, background, least_order=1)


def _strongest(
    model: FittedModel, max_order: int, top: int | None, background: Any, least_order: int
) -> Terms:
    """Return the strongest terms of at least so many columns."""
    reading = read(model, background)
    order = _check_order(max_order, reading.n_columns)
    if top is not None and (isinstance(top, bool) or not isinstance(top, Integral) or top < 1):
        raise ValueError(f"top must be a whole number of at least 1, or None, got {top!r}.")
    found = list(reading.variances(order))  # with trees, the total comes from these
    names, total = model.columns_.names, _zero_if_rounding(reading, reading.total_variance())
    rows, by_order = [], np.zeros(order)
    for term, variance in found:
        by_order[len(term) - 1] += variance
        if len(term) >= least_order:
            rows.append(Term(tuple(names[n] for n in term), variance, _share(variance, total)))
    strongest = sorted(rows, key=lambda row: -row.variance)[:top]
    shares = [_share(v, total) for v in by_order]
    return Terms(strongest, total, shares, len(rows), least_order)


def sobol(model: FittedModel, background: Any = None) -> Sobol:
    """Return first-order and total Sobol indices, and the share of every order of interaction.

    Parameters
    ----------
    model : fitted estimator
    background : table, optional
        As in `terms`.

    Returns
    -------
    Sobol

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> y = X[:, 0] + X[:, 1] * X[:, 2]
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0).fit(X, y)
    >>> sobol(model)
    column  first-order share  total share
    x0                 7... %       7... %
    x2                  0... %      2... %
    x1                  0... %      2... %
    Standard deviation 0.6...; of the variance, order 1 7... %, order 2 2... %...
    """
    model = unwrap(model)
    reading = read(model, background)
    first = np.array([variance for _, variance in reading.variances(1)])
    orders = reading.order_variances()
    variance = _zero_if_rounding(reading, float(orders.sum()))
    unit = variance if variance > 0 else np.inf  # a constant prediction: shares of zero
    total = reading.column_variances()
    return Sobol(model.columns_.names, first / unit, total / unit, orders / unit, variance)


def _share(variance: float, total: float) -> float:
    return float(variance / total) if total > 0 else 0.0


def main_shares(reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance of every main effect, and its share of the whole, (N,) each."""
    variance = np.array([v for _, v in reading.variances(1)])
    total = _zero_if_rounding(reading, reading.total_variance())
    return variance, variance / total if total > 0 else np.zeros_like(variance)


def _zero_if_rounding(reading: Reading, variance: float) -> float:
    """Return the variance, or zero where it is only the rounding error of a constant."""
    return variance if variance > _ROUNDING * float(np.sum(reading.base() ** 2)) else 0.0


def _check_order(max_order: int, n_columns: int) -> int:
    """Return max_order, at most N; refuse what is no order, and too many terms."""
    if isinstance(max_order, bool) or not isinstance(max_order, Integral) or max_order < 1:
        raise ValueError(f"max_order must be a whole number of at least 1, got {max_order!r:.40}.")
    order = min(int(max_order), n_columns)
    count = sum(math.comb(n_columns, k) for k in range(1, order + 1))
    if count > _MOST_TERMS:
        raise ValueError(
            f"max_order={max_order} over {n_columns} columns would be {count:,} terms, and at most "
            f"{_MOST_TERMS:,} are allowed. Lower max_order; the share of every order is in "
            "sobol(model), for any number of columns."
        )
    return order
