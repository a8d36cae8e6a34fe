"""Which columns take part in the products: those that have an effect, alone or with others.

A column of noise makes every product of factors noisier, and every sweep longer. So before a fit of
many columns an additive model is fitted, and what it leaves unexplained is searched for
interactions: pairs of columns by sums over the cells of a coarse grid, as the FAST heuristic of
explainable boosting machines does (Lou et al., 2013), and triples by products of ranks, so that
interactions without main effects are found too. All pairs are one matrix product, and all triples
as many as there are columns. A column that is left out stays in the additive part of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, norm, rankdata

from polyadic.data.rows import CodedRows
from polyadic.kernels.als import Quadratic
from polyadic.maps import Hat, OneHot
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective import prior
from polyadic.objective.prior import Additive, Effect
from polyadic.objective.problem import Problem, Rows
from polyadic.training.plan import Task
from polyadic.training.pool import Pool

# All chosen by hand.
FEW_COLUMNS = 8  # up to which none is left out
# Up to which none is left out where the search cannot tell: where rows are too few to find a pair
# that explains this share of what the additive model leaves, or cells too coarse for a column.
_FEW_IF_UNTOLD, _NOTABLE = 64, 0.05
_BINS = 4  # of a column in the grid of a pair: enough to see a product, a quarter of the rows each
_CLEAR = 2.0  # size of a main effect over what noise alone would give, from which on it counts
_CHANCE = 0.05  # that one of all columns (pairs, triples) counts where there is nothing but noise
_TINY = np.finfo(float).tiny
_MOST_ROWS = 20_000  # that pairs and triples are searched in
_MOST_CELLS = 5e7  # rows times bins of all columns: 400 MB
_MOST_SEEDS = 8  # a quarter of the terms of a member
_MOST_OPERATIONS = 2e10  # multiplications for triples; with more they are not searched
_MOST_FOR_PAIRS = 2e11  # the same of pairs, some ten seconds on one core; fewer rows are searched
_AT_ONCE = 2e9  # multiplications in which nothing can stop the search: a quarter of a second


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
    told : bool
        Whether the search would have seen other interactions that matter.
    """

    columns: list[int]
    n_main: int
    n_pairs: int
    n_triples: int
    seeds: list[Seed]
    told: bool


def search(task: Task) -> Screening | None:
    """Fit an additive model to the rows of a task, and search what it leaves; None if too late."""
    problem = Problem(
        rows=Rows.encode(task.rows, task.maps),
        held_out=None,
        loss=task.loss,
        intercept=task.baseline(),
        degrees=[m.degrees for m in task.maps],
        effective_rows=task.rows.effective_rows(),
    )
    shapes = [prior.precision(m) for m in task.maps]
    additive = prior.fit_additive(problem, shapes, lambda: task.out_of_time)
    if task.out_of_time:
        return None
    return screen(additive, task.maps, task.rows, task.n_jobs, lambda: task.out_of_time)


def screen(
    additive: Additive,
    maps: Sequence[FeatureMap],
    rows: CodedRows,
    n_jobs: int = 1,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Screening:
    """Return the columns that take part in products; when time is over, as far as they are known.

    Those with an effect in the additive model, or alone: of similar columns the additive model
    uses some and not the others, all of which may interact. And those of pairs and triples. Where
    these are few, others of the largest effects join them.
    """
    sizes = np.array([_size(effect, additive) for effect in additive.effects])
    clear = sizes > _CLEAR
    # Rows are sorted by a hash of their content: the first are a random sample.
    n_rows = min(_MOST_ROWS, int(_MOST_CELLS / (_BINS * len(maps))))
    before, after = (
        Quadratic(model.slope[:n_rows], model.curvature[:n_rows])
        for model in (additive.before, additive.after)
    )
    columns = [column[:n_rows] for column in rows.columns]
    bins = [_binned(x, m) for x, m in zip(columns, maps)]
    grid = np.concatenate([np.eye(_BINS)[b] for b in bins], axis=1)
    ranks = np.column_stack([_ranks(x, m) for x, m in zip(columns, maps)])
    n_for_pairs = _rows_for_pairs(len(grid), grid.shape[1], after.slope.shape[1])
    told = _can_tell(min(rows.effective_rows(), n_for_pairs), len(maps))
    with Pool(n_jobs) as pool:
        pairs = []
        if told or n_for_pairs == len(grid):
            some = Quadratic(after.slope[:n_for_pairs], after.curvature[:n_for_pairs])
            pairs = _pairs(grid[:n_for_pairs], some, pool, out_of_time)
        triples = _triples(ranks, after, pool, out_of_time)
    chosen = clear | _singles(grid, before)
    for found in (*pairs, *triples):
        chosen[list(found)] = True
    chosen |= np.array([not m.constant for m in maps])  # these cannot be left out
    others = np.argsort(np.where(chosen, np.inf, -sizes), kind="stable")
    told &= not any(_too_coarse(b, x, m) for b, x, m in zip(bins, columns, maps))
    few = FEW_COLUMNS if told else _FEW_IF_UNTOLD
    chosen[others[: max(0, few - int(chosen.sum()))]] = True
    seeds = [_seed(found, ranks, after) for found in (*pairs, *triples)]
    seeds.sort(key=lambda seed: (-seed.gain, seed.columns))
    kept = np.flatnonzero(chosen).tolist()
    return Screening(kept, int(clear.sum()), len(pairs), len(triples), seeds[:_MOST_SEEDS], told)


def _can_tell(n_rows: float, n_columns: int) -> bool:
    """Tell whether so many rows would show a notable pair among all pairs of columns.

    >>> _can_tell(200, 60), _can_tell(2_000, 60)
    (False, True)
    """
    n_pairs = max(n_columns * (n_columns - 1) // 2, 1)
    return bool(chi2.isf(_CHANCE / n_pairs, (_BINS - 1) ** 2) <= _NOTABLE * n_rows)


def _rows_for_pairs(n_rows: int, n_bins: int, n_outputs: int) -> int:
    """Return how many rows the search for pairs may have: its time grows with columns squared."""
    return min(n_rows, int(_MOST_FOR_PAIRS / (n_bins**2 * n_outputs)))


def _too_coarse(bins: np.ndarray, x: np.ndarray, m: FeatureMap) -> bool:
    """Tell whether most rows have a category that shares its bin with others.

    What such a column, of users for instance, does with another one cancels out in the cells.
    """
    return m.kind != "numeric" and bool(np.mean((bins == _BINS - 1) & (x >= 0)) > 0.5)


def _seed(columns: tuple[int, ...], ranks: np.ndarray, model: Quadratic) -> Seed:
    """Return the product of ranks of these columns, weighted by a step of Newton's method."""
    term = np.prod(ranks[:, columns], axis=1)[:, None]
    sums, weights = (model.slope * term).sum(axis=0), (model.curvature * term**2).sum(axis=0)
    steps = -np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)
    return Seed(columns, steps, float(_gain(sums, weights).sum()))


def _size(effect: Effect, additive: Additive) -> float:
    """Return the size of a main effect, over what noise alone would give on average."""
    if not effect.values.size:  # no category was ever seen
        return 0.0
    values = np.zeros_like(additive.after.slope)
    for k, own in enumerate(effect.values):
        for s in range(effect.slots.value.shape[1]):
            values[:, k] += effect.slots.value[:, s] * own[effect.slots.start + s]
    weight = additive.after.curvature
    mean = (weight * values).sum(axis=0) / np.maximum(weight.sum(axis=0), _TINY)
    return float((weight * (values - mean) ** 2).sum() / max(effect.freedom, 1e-3))


def _singles(grid: np.ndarray, model: Quadratic) -> np.ndarray:
    """Tell which columns have an effect when they are alone, (N,): see `_pairs`."""
    total = 0.0
    for slope, curvature in zip(model.slope.T, model.curvature.T):
        total = total + _gain(slope @ grid, curvature @ grid).reshape(-1, _BINS).sum(axis=1)
    n_columns = grid.shape[1] // _BINS
    limit = chi2.isf(_CHANCE / n_columns, (_BINS - 1) * model.slope.shape[1])
    return np.asarray(total > limit)


def _pairs(
    grid: np.ndarray,
    model: Quadratic,
    pool: Pool,
    out_of_time: Callable[[], bool] = lambda: False,
) -> list[tuple[int, ...]]:
    """Return the pairs of columns that interact in what the additive model leaves.

    grid : (n, N * bins) tells the bin of every row in every column. For each cell of the grid of
    two columns, a step of Newton's method would lower the loss by half its squared slope over its
    curvature. What the bins of each column alone explain is subtracted. Under noise alone, twice
    the rest follows a chi-squared distribution.
    """
    n_columns = grid.shape[1] // _BINS
    n_pairs = n_columns * (n_columns - 1) // 2
    if not n_pairs:
        return []
    own = np.stack(
        [
            _gain(slope @ grid, curvature @ grid).reshape(n_columns, _BINS).sum(axis=1)
            for slope, curvature in zip(model.slope.T, model.curvature.T)
        ]
    )
    limit = chi2.isf(_CHANCE / n_pairs, model.slope.shape[1] * (_BINS - 1) ** 2)

    def search_rows(first: int) -> list[tuple[int, ...]]:
        """Return the pairs of some columns with those after them."""
        if out_of_time():
            return []
        last = min(first + at_once, n_columns)
        left, right = grid[:, _BINS * first : _BINS * last], grid[:, _BINS * first :]
        total = np.zeros((last - first, n_columns - first))
        for slope, curvature, alone in zip(model.slope.T, model.curvature.T, own):
            cells = _gain((left.T * slope) @ right, (left.T * curvature) @ right)
            cells = cells.reshape(last - first, _BINS, n_columns - first, _BINS)
            total += cells.sum(axis=(1, 3)) - alone[first:last, None] - alone[None, first:]
        found = np.argwhere(np.triu(total > limit, 1))
        return [(first + int(a), first + int(b)) for a, b in found]

    per_column = 2 * grid.size * _BINS * model.slope.shape[1]
    at_once = int(np.clip(_AT_ONCE // per_column, 1, n_columns))
    blocks = pool.run(search_rows, range(0, n_columns, at_once))
    return [pair for found in blocks for pair in found]


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
    ranks: np.ndarray,
    model: Quadratic,
    pool: Pool,
    out_of_time: Callable[[], bool] = lambda: False,
) -> list[tuple[int, ...]]:
    """Return the triples of columns whose product of ranks goes along with the slopes."""
    n_rows, n_columns = ranks.shape
    n_triples = n_columns * (n_columns - 1) * (n_columns - 2) // 6
    n_outputs = model.slope.shape[1]
    if not n_triples or n_rows * n_columns**3 * n_outputs > _MOST_OPERATIONS:
        return []
    limit = norm.isf(_CHANCE / (2 * n_triples * n_outputs)) ** 2
    search = partial(_triples_with, ranks=ranks, squares=ranks**2, model=model, limit=limit)
    found = pool.run(lambda i: [] if out_of_time() else search(i), range(n_columns - 2))
    return [triple for own in found for triple in own]


def _triples_with(
    i: int, ranks: np.ndarray, squares: np.ndarray, model: Quadratic, limit: float
) -> list[tuple[int, ...]]:
    """Return those of column i and two columns after it."""
    own, own_squares = ranks[:, i + 1 :], squares[:, i + 1 :]
    total = np.zeros((own.shape[1],) * 2)
    for slope, curvature in zip(model.slope.T, model.curvature.T):
        sums = (own.T * (ranks[:, i] * slope)) @ own
        weights = (own_squares.T * (squares[:, i] * curvature)) @ own_squares
        total = np.maximum(total, _gain(sums, weights))
    pairs = np.argwhere(np.triu(total > limit, 1))
    return [(i, i + 1 + int(a), i + 1 + int(b)) for a, b in pairs]


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
        for n, own_factor in zip(own, found):
            factors[n][:, term] = own_factor
        weights[term] = seed.weights
        term += 1
    return replace(cores, factors=factors, weights=weights)
