"""Strategies: how a fit is regularised, and what it tries on held-out rows.

The best strength of a penalty differs by factors of hundreds between tables. So short fits, the
pilots, try a ladder of strengths on held-out rows, and the members are trained with the best. A
strategy holds all that depends on this: the penalties themselves, the ladder, and the defaults for
rank, members and sweeps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from polyadic.kernels.losses import LOGISTIC
from polyadic.maps.base import FeatureMap
from polyadic.objective import penalties, prior
from polyadic.objective.problem import Problem
from polyadic.solvers.als import MAX_SWEEPS


@dataclass(frozen=True)
class Ladder:
    """The strengths that pilots try.

    Attributes
    ----------
    strengths : tuple of float
        A single strength is used without being tried.
    n_pilots : int
        How many pilots try each strength; their held-out losses are averaged.
    refine : tuple of float
        Factors for finer steps: for each in turn, the best strength so far is divided and
        multiplied by it, and both are tried.
    n_beyond : int
        How many more strengths may be tried beyond the lowest or highest, where that is the best.
    """

    strengths: tuple[float, ...]
    n_pilots: int = 1
    refine: tuple[float, ...] = ()
    n_beyond: int = 0

    @property
    def n_pilot_fits(self) -> int:
        """How many pilots are trained in all."""
        if len(self.strengths) == 1:
            return 0
        return self.n_pilots * (len(self.strengths) + 2 * len(self.refine))


class Strategy(ABC):
    """A way of regularising, with everything that depends on it."""

    name: ClassVar[str]
    n_members: int  # n_members="auto"
    sweeps: ClassVar[int]  # max_iter="auto" of solver="als"
    ranks: ClassVar[tuple[int, int]]  # rank="auto": of pilots, and the highest of members
    usual_strength: ClassVar[float]  # where nothing is tried
    keeps_pilots: ClassVar[bool]  # whether the pilots of the best strength are members
    holds_out_rows: ClassVar[bool]  # whether each member stops early on its held-out rows
    learns_spreads: ClassVar[bool] = False  # whether it compiles the kernels of the prior
    # Sweeps of a pilot that goes on from one of another strength; None: every pilot starts anew.
    continued_sweeps: ClassVar[int | None] = None

    @abstractmethod
    def ladder(self, n_rows: int, n_columns: int, n_members: int) -> Ladder:
        """Return the strengths to try, given that there are held-out rows."""

    def prepare(
        self,
        problem: Problem,
        maps: Sequence[FeatureMap],
        out_of_time: Callable[[], bool] = prior.never,
    ) -> Problem:
        """Return the problem with what is learnt from its rows once, for all strengths."""
        return problem

    @abstractmethod
    def regularise(self, problem: Problem, maps: Sequence[FeatureMap], strength: float) -> Problem:
        """Return the problem with this strategy's penalties at this strength."""

    def member_rank(self, strength: float, ranks: tuple[int, int]) -> int:
        """Return the rank of members, between the rank of pilots and the highest that fits."""
        return ranks[1]

    def __str__(self) -> str:
        return self.name

    def resumed_strength(self, found: float | None) -> float:
        """Return the strength to go on with, given what an earlier fit has found, if anything."""
        return self.usual_strength

    def fitted_attributes(self, strength: float) -> dict[str, float]:
        """Return the attributes of a fitted estimator that tell the strength, by name."""
        return {}


@dataclass(frozen=True)
class FactorPenalties(Strategy):
    """L2 and smoothness penalties on the factors of each column.

    Parameters
    ----------
    l2, smoothness : float or None
        None: in proportion to the noise (the held-out loss) over the number of rows.
    uncertain_labels : bool
        Whether labels of two classes are taken as not quite certain: see `prepare`.
    n_members : int
        For n_members="auto".
    """

    l2: float | None = None
    smoothness: float | None = None
    uncertain_labels: bool = False
    n_members: int = 5

    name = "factor penalties"
    sweeps = MAX_SWEEPS
    ranks = 32, 32
    usual_strength = 1.0
    keeps_pilots = True
    holds_out_rows = True

    # Penalties at strength 1, times the noise over the rows. Chosen on inner splits of the
    # regression tables (benchmarks/ablation.py), as are the numbers below.
    auto_l2: ClassVar[float] = 2.0
    auto_smoothness: ClassVar[float] = 30.0
    many_elements: ClassVar[float] = 48.0  # a numeric column with more is penalised as this many
    strengths: ClassVar[tuple[float, ...]] = (0.03, 0.25, 1.5, 8.0)
    strengths_of_long_tables: ClassVar[tuple[float, ...]] = (0.25, 1.0, 3.0, 9.0)
    long: ClassVar[int] = 2000  # rows from which a table counts as long
    n_beyond: ClassVar[int] = 2

    def prepare(
        self,
        problem: Problem,
        maps: Sequence[FeatureMap],
        out_of_time: Callable[[], bool] = prior.never,
    ) -> Problem:
        """Return the problem with labels that are not quite certain, for two classes.

        Where classes can be separated, the loss has no minimum, and predictions become ever more
        certain. By Laplace's rule of succession, n rows of one class leave the other a chance of
        one in n + 2.
        """
        if not self.uncertain_labels or problem.loss.code != LOGISTIC:
            return problem
        chance = 1.0 / (problem.effective_rows + 2.0)
        y = chance + (1.0 - 2.0 * chance) * problem.y
        return replace(problem, rows=replace(problem.rows, y=y))

    def ladder(self, n_rows: int, n_columns: int, n_members: int) -> Ladder:
        """Return several strengths, unless both penalties are given or there is one member only.

        Few held-out rows say little, so two pilots try each strength on a short table.
        """
        if n_members == 1 or (self.l2 is not None and self.smoothness is not None):
            return Ladder((self.usual_strength,))
        if n_rows >= self.long:
            return Ladder(self.strengths_of_long_tables, n_beyond=self.n_beyond)
        return Ladder(self.strengths, min(n_members, 2), n_beyond=self.n_beyond)

    def regularise(self, problem: Problem, maps: Sequence[FeatureMap], strength: float) -> Problem:
        """Return the problem with L2 and smoothness, as given or in proportion to the noise."""
        n = problem.effective_rows
        fixed, scaled = penalties.ridge(maps, 0.0), penalties.ridge(maps, 0.0)
        if self.l2 is None:
            own = strength * self.auto_l2 / n
            scaled = scaled + penalties.ridge(maps, own, self.many_elements)
        else:
            fixed = fixed + penalties.ridge(maps, self.l2)
        if self.smoothness is None:
            scaled = scaled + penalties.smoothness(maps, strength * self.auto_smoothness / n)
        else:
            fixed = fixed + penalties.smoothness(maps, self.smoothness)
        return problem.penalised(fixed, replace(scaled, by_noise=True))


@dataclass(frozen=True)
class ManyClassPenalties(FactorPenalties):
    """Penalties on the factors, for more than two classes: these need more terms."""

    ranks = 64, 64


@dataclass(frozen=True)
class TensorPrior(Strategy):
    """A prior on the weight tensor itself (`polyadic.objective.prior`).

    Its strength is how much interaction to expect. Rows are held out only to choose it: members
    learn from all rows, and a single member comes close to the optimum already.
    """

    name = "tensor prior"
    n_members = 2
    sweeps = 8
    ranks = 16, 64
    usual_strength = 0.1
    keeps_pilots = False
    holds_out_rows = False
    learns_spreads = True
    continued_sweeps = 3

    interactions: ClassVar[tuple[float, ...]] = (0.1, 0.01, 1.0)
    refine: ClassVar[tuple[float, ...]] = (10**0.5, 10**0.25)
    cells_per_pilot: ClassVar[float] = 1e6  # rows times columns; smaller tables have more pilots
    most_pilots: ClassVar[int] = 3

    def ladder(self, n_rows: int, n_columns: int, n_members: int) -> Ladder:
        """Return amounts of interaction; few held-out rows say little, so more pilots try them."""
        n_pilots = round(self.cells_per_pilot / (n_rows * n_columns))
        return Ladder(self.interactions, int(np.clip(n_pilots, 1, self.most_pilots)), self.refine)

    def prepare(
        self,
        problem: Problem,
        maps: Sequence[FeatureMap],
        out_of_time: Callable[[], bool] = prior.never,
    ) -> Problem:
        """Return the problem with its prior, whose spreads are learnt from the rows."""
        return replace(problem, prior=prior.learn(problem, maps, out_of_time))

    def regularise(self, problem: Problem, maps: Sequence[FeatureMap], strength: float) -> Problem:
        """Return the problem with the prior's norm; of this amount of interaction."""
        assert problem.prior is not None
        # The optimum under a prior is the model: there is no better epoch before it.
        return replace(problem.penalised(problem.prior.norm(strength)), keep_last=True)

    def member_rank(self, strength: float, ranks: tuple[int, int]) -> int:
        """Return how many terms the expected interaction takes: the more of it, the more terms.

        >>> TensorPrior().member_rank(0.01, (16, 64)), TensorPrior().member_rank(0.3, (16, 64))
        (16, 40)
        """
        if ranks[0] == ranks[1]:
            return ranks[0]
        low, high = self.ranks
        wanted = int(np.clip(8 * np.ceil(np.sqrt(strength) * high / 8), low, high))
        return min(wanted, ranks[1])

    def resumed_strength(self, found: float | None) -> float:
        """Return the amount of interaction that an earlier fit has found."""
        return self.usual_strength if found is None else found

    def fitted_attributes(self, strength: float) -> dict[str, float]:
        """Return `interaction_`, the amount of interaction that did best on held-out rows."""
        return {"interaction_": strength}


@dataclass(frozen=True)
class MixedPrior(TensorPrior):
    """The tensor prior as a part of a mixture, beside factor penalties.

    Every member holds out rows, so that these can choose the shares. The pilots of all strengths
    go on from each other. Pilots have a rank that is cheap, and members as many terms as the
    interaction that the pilots find takes; where that is no more, the best pilots are members.
    """

    n_members = 3
    sweeps = 5
    ranks = 24, 64
    keeps_pilots = True
    holds_out_rows = True
    continued_sweeps = 2

    refine: ClassVar[tuple[float, ...]] = (10**0.5,)
    # The held-out rows of a short table cannot tell a finer step from chance.
    refine_of_long_tables: ClassVar[tuple[float, ...]] = (10**0.5, 10**0.25)
    most_pilots: ClassVar[int] = 2
    # Multiplications of one sweep, about; members have no higher rank than this allows. Chosen by
    # hand: five columns and 4,000 rows may have a rank of 40.
    most_products: ClassVar[float] = 1.5e8

    def affordable_ranks(
        self, n_rows: int, dims: Sequence[int], ranks: tuple[int, int]
    ) -> tuple[int, int]:
        """Return the ranks of pilots and members, for columns of so many elements.

        Per column and sweep, normal equations take n R^2 products, and their solution as long as
        about 3 d R^3: the ratio of both in a profile of a fit.

        >>> MixedPrior().affordable_ranks(4_000, [64] * 5, (24, 64))
        (24, 40)
        """
        low, high = ranks
        costs = (len(dims) * n_rows * r**2 + 3 * sum(dims) * r**3 for r in range(low, high + 1, 8))
        n_affordable = sum(cost <= self.most_products for cost in costs)
        return low, low + 8 * max(n_affordable - 1, 0)

    def ladder(self, n_rows: int, n_columns: int, n_members: int) -> Ladder:
        """Return amounts of interaction; few held-out rows say little, so more pilots try them."""
        if n_rows >= FactorPenalties.long:
            return Ladder(self.interactions, 1, self.refine_of_long_tables)
        return Ladder(self.interactions, min(n_members, self.most_pilots), self.refine)
