"""Which columns take part in the products: those that have an effect, alone or with others.

A column of noise makes every product of factors noisier, and every sweep longer. So before a fit of
many columns an additive model is fitted, and what it leaves unexplained is searched for
interactions: pairs of columns by sums over the cells of a coarse grid, as the FAST heuristic of
explainable boosting machines does (Lou et al., 2013), and triples by products of ranks, so that
interactions without main effects are found too. All pairs are one matrix product, and all triples
as many as there are columns. A column that is left out stays in the additive part of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, norm, rankdata

from polyadic.data.rows import CodedRows
from polyadic.maps import Hat, OneHot
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective.prior import Additive

# All chosen by hand.
FEW_COLUMNS = 8  # up to which none is left out
_SOME_COLUMNS = 20  # up to which none is left out of a table with clear main effects
_BINS = 4  # of a column in the grid of a pair: enough to see a product, a quarter of the rows each
# Size of a main effect over what noise alone would give: from which on it is clear, and from which
# on it counts in a table that has clear ones.
_CLEAR, _FAINT = 2.0, 0.1
_CHANCE = 0.05  # that a pair (or triple) of noise counts, anywhere in the table
_MOST_ROWS = 20_000  # that pairs and triples are searched in
_MOST_SEEDS = 8  # a quarter of the terms of a member
_MOST_OPERATIONS = 2e10  # multiplications for triples; with more they are not searched


class Seed(NamedTuple):
    """A term to start from: a weight for each output, times the ranks of these columns."""

    columns: tuple[int, ...]
    weights: np.ndarray  # (L,)
    gain: float  # about twice what the term lowers the loss by


@dataclass(frozen=True)
class Screening:
    """What was found.

    Attributes
    ----------
    columns : list of int
        The columns that take part in products.
    n_main, n_pairs, n_triples : int
        How many columns have a main effect, and how many pairs and triples interact.
    seeds : list of Seed
        The strongest of these interactions.
    """

    columns: list[int]
    n_main: int
    n_pairs: int
    n_triples: int
    seeds: list[Seed]


def screen(additive: Additive, maps: Sequence[FeatureMap], rows: CodedRows) -> Screening:
    """Return the columns that take part in products.

    In a table without any clear main effect, weak ones are noise; elsewhere columns with a weak
    one may well interact, and so may those whose effect is hidden by that of a similar column.
    """
    n_rows = len(rows)
    sizes = np.array([_size(effect, additive) for effect in additive.effects])
    clear = sizes > _CLEAR
    chosen = sizes > _FAINT if clear.any() else clear.copy()
    some = np.arange(n_rows)
    if n_rows > _MOST_ROWS:  # rows are sorted by a hash of their content: the first are a sample
        some = some[:_MOST_ROWS]
    slope, curvature = additive.slope[some] / additive.noise, additive.curvature[some]
    curvature = curvature / additive.noise
    columns = [column[some] for column in rows.columns]
    pairs = _pairs(columns, maps, slope, curvature)
    ranks = np.column_stack([_ranks(x, m) for x, m in zip(columns, maps)])
    triples = _triples(ranks, slope, curvature)
    for found in (*pairs, *triples):
        chosen[list(found)] = True
    chosen |= np.array([not m.constant for m in maps])  # these cannot be left out
    others = np.argsort(np.where(chosen, np.inf, -sizes), kind="stable")
    least = _SOME_COLUMNS if clear.any() else FEW_COLUMNS
    chosen[others[: max(0, least - int(chosen.sum()))]] = True
    seeds = [_seed(found, ranks, slope, curvature) for found in (*pairs, *triples)]
    seeds.sort(key=lambda seed: (-seed.gain, seed.columns))
    kept = np.flatnonzero(chosen).tolist()
    return Screening(kept, int(clear.sum()), len(pairs), len(triples), seeds[:_MOST_SEEDS])


def _seed(
    columns: tuple[int, ...], ranks: np.ndarray, slope: np.ndarray, curvature: np.ndarray
) -> Seed:
    """Return the product of ranks of these columns, with the weights of a step of Newton's method.

    """
    term = np.prod(ranks[:, columns], axis=1)[:, None]
    sums, weights = (slope * term).sum(axis=0), (curvature * term**2).sum(axis=0)
    steps = -np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)
    return Seed(columns, steps, float(_gain(sums, weights).sum()))


def _size(effect, additive: Additive) -> float:
    """Return the size of a main effect, over what noise alone would give on average."""
    n, n_outputs = additive.slope.shape
    values = np.zeros((n, n_outputs))
    slots = effect.slots
    for k, own in enumerate(effect.values):
        for s in range(slots.value.shape[1]):
            values[:, k] += slots.value[:, s] * own[slots.start + s]
    weight = additive.curvature / additive.noise
    mean = (weight * values).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300)
    return float((weight * (values - mean) ** 2).sum() / max(effect.freedom, 1e-3))


def _pairs(
    columns: Sequence[np.ndarray],
    maps: Sequence[FeatureMap],
    slope: np.ndarray,
    curvature: np.ndarray,
) -> list[tuple[int, ...]]:
    """Return the pairs of columns that interact in what the additive model leaves.

    For each cell of the grid of two columns, a step of Newton's method would lower the loss by half
    its squared slope over its curvature. What rows and columns of the grid explain is subtracted.
    Under noise alone, twice the rest follows a chi-squared distribution.
    """
    bins = [_binned(x, m) for x, m in zip(columns, maps)]
    grid = np.concatenate([np.eye(_BINS, dtype=np.float64)[b] for b in bins], axis=1)
    n_columns, total = len(columns), np.zeros((len(columns), len(columns)))
    freedom = 0.0
    for k in range(slope.shape[1]):
        sums = (grid.T * slope[:, k]) @ grid
        weights = (grid.T * curvature[:, k]) @ grid
        cells = _gain(sums, weights).reshape(n_columns, _BINS, n_columns, _BINS).sum(axis=(1, 3))
        own = _gain(np.diag(sums), np.diag(weights)).reshape(n_columns, _BINS).sum(axis=1)
        total += cells - own[:, None] - own[None, :]
        freedom += (_BINS - 1) ** 2
    upper = np.triu_indices(n_columns, 1)
    if not len(upper[0]):
        return []
    limit = chi2.isf(_CHANCE / len(upper[0]), freedom)
    found = np.flatnonzero(total[upper] > limit)
    return [(int(upper[0][f]), int(upper[1][f])) for f in found]


def _gain(sums: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.divide(sums**2, weights, out=np.zeros_like(sums), where=weights > 0)


def _binned(x: np.ndarray, m: FeatureMap) -> np.ndarray:
    """Return the bin of each value: quarters of the numbers, or the most frequent categories."""
    if m.kind == "numeric":
        known = ~np.isnan(x)
        if not known.any():
            return np.zeros(len(x), dtype=np.intp)
        edges = np.unique(np.quantile(x[known], np.arange(1, _BINS) / _BINS))
        return np.searchsorted(edges, np.where(known, x, -np.inf), side="right")
    counts = np.bincount(x[x >= 0], minlength=_BINS)
    bins = np.full(len(counts) + 1, _BINS - 1)  # the last entry is for missing values, coded -1
    bins[np.argsort(-counts, kind="stable")[: _BINS - 1]] = np.arange(_BINS - 1)
    return bins[np.where(x >= 0, x, len(counts))]


def _triples(
    ranks: np.ndarray, slope: np.ndarray, curvature: np.ndarray
) -> list[tuple[int, ...]]:
    """Return the triples of columns whose product of ranks goes along with the slopes."""
    n_rows, n_columns = ranks.shape
    n_triples = n_columns * (n_columns - 1) * (n_columns - 2) // 6
    if not n_triples or n_rows * n_columns**3 * slope.shape[1] > _MOST_OPERATIONS:
        return []
    squares = ranks**2
    limit = norm.isf(_CHANCE / (2 * n_triples)) ** 2
    found: list[tuple[int, ...]] = []
    for i in range(n_columns - 2):
        later = slice(i + 1, None)
        total = np.zeros((n_columns - i - 1,) * 2)
        for k in range(slope.shape[1]):
            sums = (ranks[:, later].T * (ranks[:, i] * slope[:, k])) @ ranks[:, later]
            weights = (squares[:, later].T * (squares[:, i] * curvature[:, k])) @ squares[:, later]
            total = np.maximum(total, _gain(sums, weights))
        for a, b in np.argwhere(np.triu(total > limit, 1)):
            found.append((i, i + 1 + int(a), i + 1 + int(b)))
    return found


def _ranks(x: np.ndarray, m: FeatureMap) -> np.ndarray:
    """Return ranks of mean zero and variance one; of a category, whether it is the commonest."""
    if m.kind == "numeric":
        known = ~np.isnan(x)
        out = np.zeros(len(x))
        out[known] = rankdata(x[known])
    else:
        out = (_binned(x, m) == 0).astype(float)
        known = np.ones(len(x), dtype=bool)
    out[known] -= out[known].mean() if known.any() else 0.0
    scale = out.std()
    return out / scale if scale > 0 else out


def rank_factor(x: np.ndarray, m: FeatureMap) -> np.ndarray | None:
    """Return the ranks of a column, as in `Seed`, as a factor (d,); None if the map cannot.

    Numbers get the rank of each knot among x : (n,), categories whether they are the commonest.
    """
    factor = np.zeros(m.dim)
    if isinstance(m, Hat):
        known = np.sort(x[~np.isnan(x)])
        if not len(known):
            return None
        below, upto = (np.searchsorted(known, m.knots_, side) for side in ("left", "right"))
        # Shares of the rows have a variance of a twelfth.
        factor[1:] = np.sqrt(12.0) * ((below + upto) / (2.0 * len(known)) - 0.5)
        return factor
    if isinstance(m, OneHot):
        bins = _binned(x, m) == 0
        share = bins.mean()
        scale = np.sqrt(share * (1.0 - share))
        if not scale > 0:
            return None
        factor[0] = -share / scale
        factor[m.encode(x[bins][:1])[0][0, 0]] += 1.0 / scale
        return factor
    return None


def seeded(
    cores: CPCores,
    seeds: Sequence[Seed],
    columns: Sequence[np.ndarray],
    maps: Sequence[FeatureMap],
    kept: Sequence[int],
) -> CPCores:
    """Return the cores with the first terms replaced by seeds; their columns are among `kept`."""
    factors, weights = [factor.copy() for factor in cores.factors], cores.weights.copy()
    place = {n: at for at, n in enumerate(kept)}
    term = 0
    for seed in seeds:
        own = [place[n] for n in seed.columns]
        found = [rank_factor(columns[n], maps[n]) for n in own]
        if any(factor is None for factor in found):
            continue
        for factor in factors:
            factor[:, term] = 0.0
            factor[0, term] = 1.0
        for n, factor in zip(own, found):
            factors[n][:, term] = factor
        weights[term] = seed.weights
        term += 1
    return replace(cores, factors=factors, weights=weights)
