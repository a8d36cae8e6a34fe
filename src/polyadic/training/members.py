"""Members: models trained side by side on knots and held-out rows of their own, merged into one.

How strong the penalties that go with the noise should be differs by a factor of hundreds between
tables. So the first members, the pilots, try a ladder of strengths on the same held-out rows; the
best of them stays, and the others are trained with its strength on held-out rows of their own.
Under a prior on the weight tensor (`objective.prior`) the ladder is one of interaction, and rows
are held out for nothing else: the members that follow learn from all of them.

The mean of CP predictors is a CP predictor: terms are concatenated, output weights divided by the
number of members. Members with different knots are first carried over to the union of their knots,
which is exact for hats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyadic.data.features import encode
from polyadic.data.rows import column_seed, folds
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective import penalties, prior
from polyadic.objective.losses import Loss
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.contract import Solution, Solver
from polyadic.solvers.inits import Start, Starter

_AUTO_L2 = 2.0  # times noise over rows
_AUTO_SMOOTHNESS = 30.0
_MANY = 48.0  # elements of a numeric column beyond which L2 is shared among them
STRENGTHS = (0.03, 0.25, 1.5, 8.0)  # times the two above, tried by the first members
STRENGTHS_LONG = (0.25, 1.0, 3.0, 9.0)  # from so many rows on:
LONG = 2000
INTERACTIONS = (0.01, 0.1, 1.0)  # of the prior, tried by pilots
_FINER = (10**0.5, 10**0.25)  # then so many times more and less than the best
USUAL_INTERACTION = 0.1  # where there are no rows to try it on
RANKS = 16, 64  # rank="auto" under a prior, at least and at most
_PILOT_CELLS = 1e6  # rows times columns; a smaller table has more pilots
_MOST_PILOTS = 3
_LOST = 5.0
_FEW_ROWS = 5  # fewer held-out rows than this cannot judge anything


@dataclass(frozen=True)
class Table:
    """Coded columns, targets and weights of the same rows."""

    columns: list[np.ndarray]
    y: np.ndarray  # (n, L), for softmax (n, 1)
    weight: np.ndarray
    counts: np.ndarray | None = None  # the weights before class weights, where those differ

    def __len__(self) -> int:
        return len(self.y)

    def worth(self) -> float:
        """Return how many rows these are worth.

        The sum of the weights, since a weight of 2 is the row twice; or, where weights are small
        numbers that only their ratios mean, as many equal rows as vary as much.
        """
        return float(max(self.weight.sum(), self.weight.sum() ** 2 / np.sum(self.weight**2)))

    def take(self, rows: np.ndarray) -> Table:
        """Return these rows."""
        return Table([c[rows] for c in self.columns], self.y[rows], self.weight[rows])

    def encode(self, maps: Sequence[FeatureMap]) -> Rows:
        """Send the columns through the maps."""
        return Rows(encode(maps, self.columns), self.y, self.weight)


@dataclass(frozen=True)
class Recipe:
    """All that is needed to train a member, resolved and checked."""

    loss: Loss
    intercept: np.ndarray
    rank: int
    init: Starter
    solver: Solver
    l2: float | None  # None: in proportion to the noise
    smoothness: float | None
    order_alpha: float
    order_beta: float
    separate: bool
    validation_fraction: float  # 0: no rows are held out
    strength: float = 1.0  # of the penalties that go with the noise, or interaction of the prior
    prior: bool = False  # a prior on the weight tensor in the place of penalties on the factors
    most_rank: int = 0  # more terms for members than for pilots, by interaction, up to so many


@dataclass(frozen=True)
class Member:
    """One trained model with the maps it was trained on."""

    maps: list[FeatureMap]
    solution: Solution
    strength: float = 1.0


Report = Callable[[int, int, float], None]  # member, epoch, loss
TryOut = Callable[[list[Recipe]], list[tuple[float, Recipe, list[Member]]]]


def train_members(
    recipe: Recipe,
    maps: list[FeatureMap],
    table: Table,
    held_out: Table | None,
    n_members: int,
    seed: int,
    n_jobs: int,
    report: Report | None = None,
) -> list[Member]:
    """Train the members, n_jobs at a time. What a member becomes depends on the seed alone."""
    marks = _column_marks(table.columns)
    fold_of = assign_folds(recipe, table, held_out, seed)
    judged = held_out is not None or fold_of is not None
    strengths, n_pilots = ladder(recipe, table, n_members, judged)
    known: dict[tuple[int, bool], tuple[list[FeatureMap], Problem]] = {}

    def prepare(recipe: Recipe, number: int, whole: bool) -> tuple[list[FeatureMap], Problem]:
        """Return maps and problem; from one strength to the next, penalties alone differ."""
        if (number, whole) in known:
            own, problem = known[number, whole]
            return own, penalised(recipe, own, problem)
        own = [
            m.jitter(np.random.default_rng((seed, number, mark, 1))) if n_members > 1 else m
            for m, mark in zip(maps, marks)
        ]
        rows, held_rows = hold_out(table, held_out, None if whole else fold_of, number)
        problem = build_problem(recipe, own, rows, held_rows)
        known[number, whole] = own, problem
        return own, problem

    def train(task: tuple[int, Recipe, bool]) -> Member:
        number, recipe, whole = task
        own, problem = prepare(recipe, number, whole)
        rngs = [np.random.default_rng((seed, number, mark)) for mark in marks]
        rng = np.random.default_rng((seed, number))
        start: Start = recipe.init.start(problem, recipe.rank, [*rngs, rng])
        tell = None if report is None else lambda e, v: report(number, e, v)
        solution = recipe.solver.solve(problem, start.cores, start.free, rng, tell)
        return Member(own, solution, recipe.strength)

    def try_out(recipes: list[Recipe]) -> list[tuple[float, Recipe, list[Member]]]:
        """Return the mean loss of the pilots of each recipe, and the pilots."""
        tasks = [(number, r, False) for r in recipes for number in range(n_pilots)]
        pilots = side_by_side(train, tasks, n_jobs)
        groups = [pilots[k : k + n_pilots] for k in range(0, len(pilots), n_pilots)]
        losses = [float(np.mean([pilot.solution.loss for pilot in group])) for group in groups]
        return list(zip(losses, recipes, groups))

    recipe = replace(recipe, strength=strengths[0])
    pilots: list[Member] = []
    if len(strengths) > 1:
        recipe, pilots = choose(recipe, strengths, try_out)
        known.clear()
    if recipe.most_rank:
        recipe = replace(recipe, rank=min(rank_for(recipe.strength), recipe.most_rank))
    kept = [] if recipe.prior else pilots[:n_members]
    tasks = [(number, recipe, recipe.prior) for number in range(len(kept), n_members)]
    return [*kept, *side_by_side(train, tasks, n_jobs)]


def side_by_side(work: Callable[[Any], Any], tasks: list, n_jobs: int) -> list:
    """Do the work for every task, n_jobs at a time.

    One at a time stays in the calling thread: torch keeps threads of its own for every thread that
    calls it, and they get in each other's way.
    """
    if n_jobs == 1 or len(tasks) < 2:
        return [work(task) for task in tasks]
    with ThreadPoolExecutor(min(n_jobs, len(tasks))) as pool:
        return list(pool.map(work, tasks))


def choose(recipe: Recipe, strengths: Sequence[float], try_out: TryOut) -> tuple[Recipe, list]:
    """Return the recipe of the best strength and its pilots."""

    def better(best, tried):
        found = try_out([replace(recipe, strength=strength) for strength in tried])
        return min([*best, *found], key=lambda trial: trial[0])

    best = better([], strengths)
    for step in _FINER if recipe.prior else ():
        best = better([best], (best[1].strength / step, best[1].strength * step))
    return best[1], best[2]


def rank_for(interaction: float) -> int:
    """Return how many terms to write that much interaction with; the optimum wants many.

    >>> rank_for(0.01), rank_for(0.3), rank_for(3.0)
    (16, 40, 64)
    """
    low, high = RANKS
    return int(np.clip(8 * np.ceil(np.sqrt(interaction) * high / 8), low, high))


def ladder(
    recipe: Recipe, table: Table, n_members: int, judged: bool = True
) -> tuple[tuple[float, ...], int]:
    """Return the strengths to try, and how many pilots shall try each.

    Several where there are rows to judge them on and something depends on it. Few held-out rows say
    little, so that more pilots try them on a small table.
    """
    if recipe.prior:
        if not judged:
            return (USUAL_INTERACTION,), 1
        cells = len(table) * len(table.columns)
        return INTERACTIONS, int(np.clip(round(_PILOT_CELLS / cells), 1, _MOST_PILOTS))
    if not judged or n_members == 1 or (recipe.l2 is not None and recipe.smoothness is not None):
        return (1.0,), 1
    if len(table) >= LONG:
        return STRENGTHS_LONG, 1
    return STRENGTHS, min(n_members, 2)


def count_fits(recipe: Recipe, table: Table, n_members: int, judged: bool) -> int:
    """Return how many models are trained."""
    strengths, n_pilots = ladder(recipe, table, n_members, judged)
    if len(strengths) == 1:
        return n_members
    tried = len(strengths) + (2 * len(_FINER) if recipe.prior else 0)
    return n_pilots * tried + n_members - (0 if recipe.prior else n_pilots)


def resume(
    recipe: Recipe,
    maps: list[FeatureMap],
    cores: Any,
    free: np.ndarray | None,
    table: Table,
    held_out: Table | None,
    seed: int,
    report: Report | None = None,
) -> Member:
    """Train a fitted model further; it stays as it is where that does not help.

    Under a prior there is nothing to hold rows out for: its objective falls on all of them.
    """
    fold_of = None if recipe.prior else assign_folds(recipe, table, held_out, seed)
    rows, held_rows = hold_out(table, held_out, fold_of, 0)
    problem = build_problem(recipe, maps, rows, held_rows)
    tell = None if report is None else lambda e, v: report(0, e, v)
    rng = np.random.default_rng(seed)
    solution = recipe.solver.solve(problem, cores, free, rng, tell, resumed=True)
    return Member(maps, solution, recipe.strength)


def _column_marks(columns: list[np.ndarray]) -> list[int]:
    """Return one seed a column, from its content; equal columns are told apart by counting."""
    seen: dict[int, int] = {}
    out = []
    for column in columns:
        mark = column_seed(column)
        seen[mark] = seen.get(mark, -1) + 1
        out.append(mark + seen[mark])
    return out


def hold_out(
    table: Table, held_out: Table | None, fold_of: np.ndarray | None, number: int
) -> tuple[Table, Table | None]:
    """Return the rows that member `number` trains on, and those it is judged on."""
    if fold_of is None:
        return table, held_out
    out = fold_of == number % (fold_of.max() + 1)
    return table.take(~out), table.take(out)


def assign_folds(
    recipe: Recipe, table: Table, held_out: Table | None, seed: int
) -> np.ndarray | None:
    """Deal the rows into folds of the validation share; member m holds out fold m."""
    fraction = recipe.validation_fraction
    if held_out is not None or fraction == 0 or fraction * len(table) < _FEW_ROWS:
        return None
    n_folds = max(2, round(1 / fraction))
    return folds(table.y, n_folds, np.random.default_rng((seed, 0xF01D)))


def build_problem(
    recipe: Recipe,
    maps: list[FeatureMap],
    rows: Table,
    held_out: Table | None,
    n_seen: float = 0.0,
) -> Problem:
    """Put together what a solver needs to know; n_seen rows were learnt from before."""
    order = None
    if recipe.order_alpha > 0:
        order = penalties.Order(recipe.order_alpha, penalties.emphasis(maps, recipe.order_beta))
    none = penalties.ridge(maps, 0.0)
    problem = Problem(
        rows.encode(maps),
        None if held_out is None else held_out.encode(maps),
        recipe.loss,
        recipe.intercept,
        [m.degrees for m in maps],
        none,
        none,
        order,
        recipe.separate,
        extras_l2=recipe.l2 or 0.0,
        worth=n_seen + rows.worth(),
    )
    return penalised(recipe, maps, problem)


def penalised(recipe: Recipe, maps: list[FeatureMap], problem: Problem) -> Problem:
    """Return the problem with the penalties, or the prior, of a recipe."""
    if not recipe.prior:
        fixed, scaled = factor_penalties(recipe, maps, problem.worth)
        return replace(problem, fixed=fixed, scaled=scaled)
    known = problem.prior or prior.learn(problem, maps)
    return replace(problem, prior=known, norm=known.norm(recipe.strength))


def factor_penalties(
    recipe: Recipe, maps: list[FeatureMap], n: float
) -> tuple[penalties.Banded, penalties.Banded]:
    """Return L2 and smoothness of the factors: as given, and in proportion to the noise."""
    zero = penalties.Banded([np.zeros((m.dim, 5)) for m in maps])
    fixed, scaled = zero, zero
    if recipe.l2 is None:
        scaled = scaled + penalties.ridge(maps, recipe.strength * _AUTO_L2 / n, _MANY)
    else:
        fixed = fixed + penalties.ridge(maps, recipe.l2)
    if recipe.smoothness is None:
        strength = recipe.strength * _AUTO_SMOOTHNESS / n
        scaled = scaled + penalties.smoothness(maps, strength)
    else:
        fixed = fixed + penalties.smoothness(maps, recipe.smoothness)
    return fixed, scaled


def merge(members: Sequence[Member]) -> tuple[list[FeatureMap], CPCores]:
    """Merge members into one model that predicts their mean.

    Members that diverged are left out, unless all did, and so are those that never left the start:
    their held-out loss is a multiple of the best one's.
    """
    members = [m for m in members if m.solution.converged] or members
    best = min(m.solution.loss for m in members)
    members = [m for m in members if not m.solution.loss > _LOST * best > 0]
    n_members = len(members)
    cores = [member.solution.cores for member in members]
    if n_members == 1:
        return members[0].maps, cores[0]
    maps, factors, additive = [], [], []
    for n in range(len(members[0].maps)):
        own = [member.maps[n] for member in members]
        merged, carry = own[0].merge(own[1:])
        maps.append(merged)
        factors.append(np.hstack([_carry(t, c.factors[n]) for t, c in zip(carry, cores)]))
        parts = [_carry(t, c.additive[n]) for t, c in zip(carry, cores) if c.additive is not None]
        additive.append(sum(parts) / n_members if parts else None)
    weights = np.vstack([c.weights for c in cores]) / n_members
    intercept = np.mean([c.intercept for c in cores], axis=0)
    has_additive = additive[0] is not None
    return maps, CPCores(factors, weights, intercept, additive if has_additive else None)  # type: ignore[arg-type]


def _carry(transfer: np.ndarray | None, core: np.ndarray) -> np.ndarray:
    return core if transfer is None else transfer @ core
