"""Functional ANOVA in closed form: how the variance of a model splits over sets of columns.

Under the product of the columns' marginals every function is a unique sum of pure terms, one for
each set S of columns, uncorrelated with each other. A term of a CP model with mean mu_n and
covariance V_n of its functions g_n (`polyadic.explain.moments`) has the variance

    sum_{r,s} C_r C_s prod_{n in S} V_n[r, s] prod_{n not in S} mu_nr mu_ns,

exactly: no sampling, no grid. Several outputs add up. A classifier is explained before the link.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyadic.columns import Column
from polyadic.explain.moments import Moments, design, measure, moments

_MOST_TERMS = 2_000_000
_GRID = 64  # points of a numeric column's effect
_ENDS = (0.05, 0.95)  # the quantiles between which an effect is put into words


class Term(NamedTuple):
    """One pure term: its columns, its variance, and that as a share of the whole."""

    columns: tuple[str, ...]
    variance: float
    share: float


@dataclass(frozen=True, repr=False)
class Interactions:
    """The strongest terms of a functional ANOVA; prints itself as a table.

    Attributes
    ----------
    rows : list of Term
        (columns, variance, share), largest variance first.
    total : float
        Variance of the model under the product of the marginals, over all orders.
    orders : list of float
        Share of all terms of order 1, 2, ..., max_order, those that are not in `rows` too.
    n_terms : int
        How many terms were looked at.
    """

    rows: list[Term]
    total: float
    orders: list[float]
    n_terms: int

    def __repr__(self) -> str:
        labels = [" * ".join(row.columns) for row in self.rows]
        numbers = [(f"{row.variance:.3g}", f"{100 * row.share:.1f} %") for row in self.rows]
        lines = _align(("term", "variance", "share"), [(a, *b) for a, b in zip(labels, numbers)])
        makes = [f"order {k} {100 * share:.1f} %" for k, share in enumerate(self.orders, 1)]
        lines.append(
            f"{len(self.rows)} of {self.n_terms} terms. "
            f"Of the variance {self.total:.3g}, {', '.join(makes)}."
        )
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Effects:
    """The main effect of each column on a grid; prints itself as a table.

    Attributes
    ----------
    columns : list of N str
    grid : list of N arrays, (k_n,)
        Quantiles of a numeric column; the categories of a categorical one.
    values : list of N arrays, (k_n, L)
        The effect at each point, zero on average over the rows.
    variance, share : (N,)
        Variance of the effect over the rows, outputs added up, and its share of the whole.
    ends : list of N tuples, or None for a categorical column
        Between which values the middle nine tenths of the rows lie.
    """

    columns: list[str]
    grid: list[np.ndarray]
    values: list[np.ndarray]
    variance: np.ndarray
    share: np.ndarray
    ends: list[tuple[float, float] | None]

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = []
        for n in np.argsort(-self.variance, kind="stable"):
            low, high = (f(self.values[n], initial=0.0) for f in (np.min, np.max))
            share = f"{100 * self.share[n]:.1f} %"
            cells = (f"{self.variance[n]:.3g}", share, f"{low:+.3g}", f"{high:+.3g}")
            rows.append((self.columns[n], *cells))
        return "\n".join(_align(("column", "variance", "share", "lowest", "highest"), rows))


def interactions(model: Any, X: Any, max_order: int = 2, top: int | None = 20) -> Interactions:
    """Return the variance of every pure term of up to `max_order` columns.

    Parameters
    ----------
    model : fitted CPRegressor or CPClassifier
    X : table
        Its columns' marginals, taken as independent, are what the variance is over. The training
        table is the natural choice.
    max_order : int
        Columns in a term at most. There are N over k terms of order k, each at a cost of R^2.
    top : int or None
        How many terms to return, None for all.

    Returns
    -------
    Interactions
        Shares are of the variance over all orders, whatever `max_order`.

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> y = X[:, 0] + X[:, 1] * X[:, 2]
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0).fit(X, y)
    >>> [row.columns for row in interactions(model, X, top=2).rows]
    [('x0',), ('x1', 'x2')]
    """
    names = _names(model)
    order = _check_order(max_order, len(names))
    measured = moments(model, X)
    total = total_variance(measured)
    rows, by_order = [], np.zeros(order)
    for term, variance in pure_variances(measured, order):
        by_order[len(term) - 1] += variance
        share = variance / total if total > 0 else 0.0
        rows.append(Term(tuple(names[n] for n in term), variance, share))
    shares = by_order / total if total > 0 else by_order
    strongest = sorted(rows, key=lambda row: -row.variance)[:top]
    return Interactions(strongest, total, shares.tolist(), len(rows))


def effects(model: Any, X: Any) -> Effects:
    """Return the main effect of each column, with all other columns averaged out.

    f_n(x_n) = u_n(x_n) + sum_r C_r g_nr(x_n) prod_{m != n} mu_mr, less its mean over the rows,
    where u_n is the additive part of the model, if it has one.

    Parameters
    ----------
    model : fitted CPRegressor or CPClassifier
    X : table
        Gives the marginals and the grids. The training table is the natural choice.

    Returns
    -------
    Effects

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> y = 3 * X[:, 0] + X[:, 0] * X[:, 1]
    >>> model = CPRegressor(n_members=1, rank=8, max_epochs=60, random_state=0).fit(X, y)
    >>> found = effects(model, X)
    >>> bool(np.corrcoef(found.grid[0], found.values[0][:, 0])[0, 1] > 0.99)
    True
    """
    names = _names(model)
    coded = model.columns_.code(X, estimator_name=type(model).__name__)
    measured = measure(model.tensor_, model.maps_, coded)
    variance = np.array([v for _, v in pure_variances(measured, 1)])
    total = total_variance(measured)
    grid, values = [], []
    for column, feature_map, marginal, slope, x in zip(
        model.columns_.columns, model.maps_, measured.marginals, _slopes(measured), coded
    ):
        points, codes = _grid(column, x)
        grid.append(points)
        values.append(design(feature_map, codes) @ (marginal.core @ slope))
    share = variance / total if total > 0 else np.zeros_like(variance)
    ends = [_ends(column, x) for column, x in zip(model.columns_.columns, coded)]
    return Effects(names, grid, values, variance, share, ends)


# ---- the closed forms ---------------------------------------------------------------------------


def pure_variances(measured: Moments, max_order: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield every set of up to `max_order` columns and the variance of its pure term.

    A set grows column by column, and the Hadamard product of its covariances with it. Means of the
    columns left out are multiplied up from the left and from the right; nothing is divided.
    """
    rank, n_columns = measured.rank, len(measured.marginals)
    means = [m.mean[:, None] for m in measured.marginals]
    covariances = [m.covariance[:rank, :rank] for m in measured.marginals]
    right, additive = measured.right(), additive_variances(measured)

    def visit(start, kept, product, chosen):
        for n in range(start, n_columns):
            here = covariances[n] if product is None else product * covariances[n]
            slope = kept * right[n + 1]  # (R, L)
            variance = float(np.sum(slope * (here @ slope)))
            if not chosen:
                variance += additive[n]
            yield (*chosen, n), max(variance, 0.0)  # rounding may go below zero
            if len(chosen) + 1 < max_order:
                yield from visit(n + 1, kept, here, (*chosen, n))
            kept = kept * means[n]

    return visit(0, measured.weights, None, ())


def total_variance(measured: Moments) -> float:
    """Return the variance over all orders.

    sum_{r,s} C_r C_s (prod_n (mu_nr mu_ns + V_n[r, s]) - prod_n mu_nr mu_ns), as a telescoping sum
    that never takes a difference of two large numbers; and what the additive part adds.
    """
    rank = measured.rank
    level = measured.weights @ measured.weights.T  # C C' times the products of means, (R, R)
    variance = np.zeros_like(level)
    for marginal in measured.marginals:
        covariance = marginal.covariance[:rank, :rank]
        square = np.outer(marginal.mean, marginal.mean)
        variance = variance * (square + covariance) + level * covariance
        level = level * square
    return max(float(variance.sum() + additive_variances(measured).sum()), 0.0)


def additive_variances(measured: Moments) -> np.ndarray:
    """Return what the additive part adds to each column's variance, (N,).

    That is sum_l Var(u_nl) + 2 Cov(u_nl, h_nl), with h_n the main effect of the CP part. The
    additive part touches no term of higher order.
    """
    if not measured.has_additive:
        return np.zeros(len(measured.marginals))
    rank, out = measured.rank, []
    for marginal, slope in zip(measured.marginals, measured.others()):
        own = np.trace(marginal.covariance[rank:, rank:])
        cross = np.sum(slope * marginal.covariance[:rank, rank:])
        out.append(own + 2.0 * cross)
    return np.array(out)


def _slopes(measured: Moments) -> list[np.ndarray]:
    """Return what turns (g_n, u_n) into the main effect of column n, N arrays (R + E, L)."""
    if not measured.has_additive:
        return measured.others()
    unit = np.eye(measured.weights.shape[1])
    return [np.vstack([slope, unit]) for slope in measured.others()]


# ---- what is shown ------------------------------------------------------------------------------


def _names(model: Any) -> list[str]:
    check_is_fitted(model, "tensor_")
    return model.columns_.names


def _check_order(max_order: int, n_columns: int) -> int:
    """Return the order to go to; refuse what is no order, or more terms than anyone could read."""
    if isinstance(max_order, bool) or not isinstance(max_order, Integral) or max_order < 1:
        raise ValueError(f"max_order must be a whole number of at least 1, got {max_order!r}.")
    order = min(int(max_order), n_columns)
    count = sum(math.comb(n_columns, k) for k in range(1, order + 1))
    if count > _MOST_TERMS:
        raise ValueError(
            f"max_order={max_order} over {n_columns} columns would be {count:,} terms. "
            f"Lower max_order, so that there are at most {_MOST_TERMS:,}."
        )
    return order


def _grid(column: Column, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points at which an effect is shown, and the same points coded."""
    if column.categories is not None:
        points = np.empty(len(column.categories), dtype=object)
        points[:] = column.categories
        return points, np.arange(len(points))
    known = x[~np.isnan(x)]
    if len(known) == 0:
        return known, known
    levels = np.linspace(0.0, 1.0, _GRID)
    points = np.unique(np.quantile(known, levels, method="inverted_cdf"))
    return points, points


def _ends(column: Column, x: np.ndarray) -> tuple[float, float] | None:
    """Return between which values the middle nine tenths of the rows lie."""
    if column.categories is not None:
        return None
    known = x[~np.isnan(x)]
    if len(known) == 0:
        return np.nan, np.nan
    low, high = np.quantile(known, _ENDS, method="inverted_cdf")
    return float(low), float(high)


def _align(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table, its first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
        for row in (head, *rows)
    ]
