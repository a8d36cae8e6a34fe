"""Fewer terms for a sum of products, by least squares over a product of marginals.

Shapes: N columns, R terms of the target, S terms of the result, L outputs, F_n features of a
column's design. Both sums have an additive part,

    f(x) = b + sum_n v_n(x_n) + sum_r C_r prod_n a_nr(x_n),

and functions of one column are matrices of coefficients. Over a product of marginals the pure
terms of the functional ANOVA are orthogonal, so the additive part of the result takes on mean and
main effects of the target exactly, and only the interactions have to be approximated by terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from polyadic.data.marginals import Marginal

# Chosen by hand: most sweeps; the share by which a sweep has to lower the squared error, or it is
# the last; terms among which the first choice is made.
_SWEEPS, _LEAST_GAIN, _CANDIDATES = 40, 0.002, 1500
_TIE = 1.02  # squared errors up to this ratio count as equal
# Directions with less than this share of the largest are not solved for: with them, weights would
# be so large that the rounding of predictions were seen.
_SMALLEST = 1e-9


@dataclass(frozen=True)
class Products:
    """A sum of products over the columns of a table.

    Attributes
    ----------
    cores : list of N arrays, (F_n, R)
        Each function has a mean square of one, unless it is zero on every row.
    weights : (R, L)
    additive : list of N arrays, (F_n, L)
    intercept : (L,)
    """

    cores: list[np.ndarray]
    weights: np.ndarray
    additive: list[np.ndarray]
    intercept: np.ndarray

    def some(self, terms: np.ndarray) -> Products:
        """Return the same with some of the terms only."""
        cores = [core[:, terms] for core in self.cores]
        return replace(self, cores=cores, weights=self.weights[terms])


def normalised(target: Products, marginals: Sequence[Marginal]) -> Products:
    """Return the same sum with functions of mean square one."""
    cores, log_size = [], np.zeros(len(target.weights))
    for core, marginal in zip(target.cores, marginals):
        square = np.sum(core * (marginal.second @ core), axis=0)
        size = np.sqrt(np.where(square > 0, square, 1.0))
        log_size += np.log(size)
        cores.append(core / size)
    return replace(target, cores=cores, weights=target.weights * np.exp(log_size)[:, None])


def reduce_terms(
    target: Products, marginals: Sequence[Marginal], rank: int, whole: float, sweep: bool = True
) -> Products:
    """Return a sum of at most `rank` products that is near the target in the L2 norm.

    It starts from terms of the target, chosen one by one, each with the best weights of all. Then,
    with `sweep`, the functions of one column after another are solved for. For this every column
    must be able to express a constant.

    Parameters
    ----------
    target : Products
    marginals : list of N Marginal
    rank : int
    whole : float
        Variance of the interactions of the target, to tell when an error is small.
    sweep : bool
    """
    chosen = target.some(_choose(target, marginals, rank))
    if not sweep or len(chosen.weights) == 0:
        return _refit(target, chosen, marginals)[0]
    # Many terms of a trained model are near constant, with large weights that cancel: a start
    # without these constants often ends as near, and then its predictions are rounded less.
    found, error = _improve(target, chosen, marginals, whole)
    other, now = _improve(target, _centre(chosen, marginals), marginals, whole)
    return other if now <= _TIE * error else found


def _improve(
    target: Products, start: Products, marginals: Sequence[Marginal], whole: float
) -> tuple[Products, float]:
    """Sweep as long as that lowers the error clearly; return the best sum and its squared error."""
    best, gained = _refit(target, start, marginals)
    for _ in range(_SWEEPS):
        moved, now = _refit(target, _sweep(target, best, marginals), marginals)
        if not now > gained:
            break
        step, best, gained = now - gained, moved, now
        if step < _LEAST_GAIN * max(whole - gained + step, 0.0):
            break
    return best, max(whole - gained, 0.0)


def _centre(found: Products, marginals: Sequence[Marginal]) -> Products:
    """Subtract the mean of every term's functions in the two columns where it varies most.

    Of a product of two functions this changes the main effects only.
    """
    means = np.array([m.mean @ core for core, m in zip(found.cores, marginals)])
    two = np.argsort(np.abs(means), axis=0, kind="stable")[:2]
    cores = []
    for n, core in enumerate(found.cores):
        shift = np.where(np.any(two == n, axis=0), means[n], 0.0)
        cores.append(np.vstack([core[:1] - shift, core[1:]]))
    return normalised(replace(found, cores=cores), marginals)


# ---- the norm of interactions --------------------------------------------------------------------


def _interactions(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], marginals: Sequence[Marginal]
) -> np.ndarray:
    """Return the mean products of two sets of terms, without their means and main effects, (R, S).

    A column multiplies by the product of the means or by the covariance; two covariances at least
    make an interaction. Nothing is subtracted.
    """
    shape = first[0].shape[1], second[0].shape[1]
    constant, main, rest = np.ones(shape), np.zeros(shape), np.zeros(shape)
    for a, b, marginal in zip(first, second, marginals):
        square = np.outer(marginal.mean @ a, marginal.mean @ b)
        covariance = _centred(a, marginal).T @ (marginal.second @ _centred(b, marginal))
        rest = rest * (square + covariance) + main * covariance
        main = main * square + constant * covariance
        constant = constant * square
    return rest


def _centred(core: np.ndarray, marginal: Marginal) -> np.ndarray:
    out = core.copy()
    out[0] -= marginal.mean @ core
    return out


def _choose(target: Products, marginals: Sequence[Marginal], rank: int) -> np.ndarray:
    """Return the numbers of terms that lower the error most, one after another."""
    strength = np.linalg.norm(target.weights, axis=1)
    some = np.sort(np.argsort(-strength, kind="stable")[:_CANDIDATES])
    cores = [core[:, some] for core in target.cores]
    gram = _interactions(cores, cores, marginals)
    aim = np.zeros((len(some), target.weights.shape[1]))
    for start in range(0, len(strength), _CANDIDATES):
        part = slice(start, start + _CANDIDATES)
        own = [core[:, part] for core in target.cores]
        aim += _interactions(cores, own, marginals) @ target.weights[part]
    chosen: list[int] = []
    floor = _SMALLEST * np.diag(gram).max(initial=0.0)
    for _ in range(min(rank, len(some))):
        size = np.diag(gram)
        free = size > floor
        if not free.any():
            break
        gain = np.where(free, np.sum(aim**2, axis=1) / np.where(free, size, 1.0), -1.0)
        k = int(np.argmax(gain))
        chosen.append(int(some[k]))
        row = gram[k] / size[k]
        aim = aim - np.outer(row, aim[k])
        gram = gram - np.outer(row, gram[k])
        gram[k] = gram[:, k] = 0.0
    return np.array(chosen, dtype=np.intp)


def _refit(
    target: Products, found: Products, marginals: Sequence[Marginal]
) -> tuple[Products, float]:
    """Return the best weights, additive part and intercept for given terms.

    Also returns how much of the variance of the target's interactions they explain.
    """
    gram = _interactions(found.cores, found.cores, marginals)
    cross = _interactions(target.cores, found.cores, marginals)
    aim = cross.T @ target.weights
    weights = _solve(gram, aim)
    means = [np.array([m.mean @ c for c, m in zip(p.cores, marginals)]) for p in (target, found)]
    rests = [_others(target.weights, means[0]), _others(weights, means[1])]
    additive, middle = [], target.intercept + means[0].prod(axis=0) @ target.weights
    middle = middle - means[1].prod(axis=0) @ weights
    for n, marginal in enumerate(marginals):
        own = target.additive[n] + target.cores[n] @ rests[0][n] - found.cores[n] @ rests[1][n]
        additive.append(own)
        middle = middle + marginal.mean @ (target.additive[n] - own)
    return Products(found.cores, weights, additive, middle), float(np.sum(weights * aim))


def _others(weights: np.ndarray, means: np.ndarray) -> list[np.ndarray]:
    """Return the weights times the means of all other columns, N arrays (R, L)."""
    right = [np.ones(means.shape[1])]
    for mean in means[:0:-1]:
        right.append(right[-1] * mean)
    left, out = np.ones(means.shape[1]), []
    for mean, rest in zip(means, right[::-1]):
        out.append(weights * (left * rest)[:, None])
        left = left * mean
    return out


def _solve(gram: np.ndarray, aim: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(gram, rcond=_SMALLEST, hermitian=True) @ aim


# ---- sweeps --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """Products over the columns on one side of a column, and a sum over them.

    Attributes
    ----------
    own : (S, S)
        Mean products of the result's functions.
    cross : (R, S)
        Mean products of the target's functions with those of the result.
    mean : (S,)
        Means of the result's functions.
    added : (S, L)
        sum_m E[w_ml g_ms] prod_k E g_ks, over the columns m and k != m of this side, where w is the
        additive part of the target less that of the result.
    """

    own: np.ndarray
    cross: np.ndarray
    mean: np.ndarray
    added: np.ndarray

    def times(self, other: _Side) -> _Side:
        """Return the same of both sides together."""
        return _Side(
            self.own * other.own,
            self.cross * other.cross,
            self.mean * other.mean,
            self.added * other.mean[:, None] + self.mean[:, None] * other.added,
        )


def _side(a: np.ndarray, g: np.ndarray, w: np.ndarray, marginal: Marginal) -> _Side:
    """Return the products of one column: of functions a (F, R), g (F, S) and w (F, L)."""
    moved = marginal.second @ g
    return _Side(g.T @ moved, a.T @ moved, marginal.mean @ g, moved.T @ w)


def _sweep(target: Products, found: Products, marginals: Sequence[Marginal]) -> Products:
    """Solve for the functions of one column after another, with its additive part."""
    n_columns, (rank, n_outputs) = len(marginals), found.weights.shape
    cores, additive, weights = list(found.cores), list(found.additive), found.weights
    more = [v - u for v, u in zip(target.additive, additive)]
    gap = target.intercept - found.intercept
    means = np.array([m.mean @ core for core, m in zip(target.cores, marginals)])
    rests = _others(target.weights, means)
    none = _Side(
        np.ones((rank, rank)),
        np.ones((len(target.weights), rank)),
        np.ones(rank),
        np.zeros((rank, n_outputs)),
    )
    rights = [none]
    for n in range(n_columns - 1, 0, -1):
        own = _side(target.cores[n], cores[n], more[n], marginals[n])
        rights.append(own.times(rights[-1]))
    left = none
    for n, marginal in enumerate(marginals):
        outside = left.times(rights.pop())
        constant = gap + sum(marginals[m].mean @ more[m] for m in range(n_columns) if m != n)
        # Directions: what a function of this column is multiplied by, for terms and outputs.
        factor = (weights * outside.mean[:, None]).T  # (L, S)
        inner = np.block(
            [[weights @ weights.T * outside.own, factor.T], [factor, np.eye(n_outputs)]]
        )
        aim = target.cores[n] @ np.hstack([target.weights @ weights.T * outside.cross, rests[n]])
        aim += target.additive[n] @ np.hstack([factor, np.eye(n_outputs)])
        level = outside.added + outside.mean[:, None] * gap
        aim[0] += np.concatenate([np.sum(weights * level, axis=1), constant])
        solved = _solve(inner, aim.T).T
        core, additive[n] = solved[:, :rank], solved[:, rank:]
        square = np.sum(core * (marginal.second @ core), axis=0)
        size = np.sqrt(np.where(square > 0, square, 1.0))
        cores[n], weights = core / size, weights * size[:, None]
        more[n] = target.additive[n] - additive[n]
        left = left.times(_side(target.cores[n], cores[n], more[n], marginal))
    return replace(found, cores=cores, weights=weights, additive=additive)
