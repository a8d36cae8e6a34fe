"""The plan of a fit: all its settings, each with the reason for it.

`polyadic.training.resolve_cp` and `resolve_networks` make a plan, and `polyadic.training.members`
carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from polyadic.data.rows import CodedRows
from polyadic.maps.base import FeatureMap
from polyadic.objective.losses import Loss
from polyadic.solvers.blocks import sweep_cost
from polyadic.solvers.contract import Deadline, Solver
from polyadic.training.strategies import Ladder, Strategy

PILOT, MEMBER, FINISHED = "pilot", "member", "member on all rows"  # kinds of the steps of a fit
_MOST_TREE_STEPS = 16  # trees grow twice as many at each step


class Work(NamedTuple):
    """How many steps and epochs there are, and how long an epoch takes relative to others."""

    n_steps: int
    n_epochs: int
    cost: float = 1.0


class Choice(NamedTuple):
    """One setting of a fit: its name, its value, and the reason for it."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class PlanSummary:
    """What a fitted model keeps of its plan. Print it to see what was chosen, and why.

    Attributes
    ----------
    choices : tuple of Choice
    trials : tuple of (strength, held-out loss)
        What the pilots found.
    seconds : dict
        Time of each phase. It is not saved to model files: equal fits give equal files.

    Examples
    --------
    >>> summary = PlanSummary((Choice("rank", "8", "as given"),), ((0.1, 0.52), (1.0, 0.47)))
    >>> print(summary)
    rank      8  as given
    strength  1  held-out losses: 0.1: 0.52, 1: 0.47
    >>> summary["rank"]
    '8'
    """

    choices: tuple[Choice, ...]
    trials: tuple[tuple[float, float], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    def __getitem__(self, name: str) -> str:
        """Return what was chosen for a setting, as text."""
        known = {choice.name: choice.value for choice in self.choices}
        if name not in known:
            raise KeyError(f"{name!r} is not in the plan; it has {', '.join(known)}.")
        return known[name]

    def __str__(self) -> str:
        lines = [*self.choices, *self._outcome()]
        wide = [max((len(line[k]) for line in lines), default=0) for k in range(2)]
        rows = (f"{a:{wide[0]}}  {b:{wide[1]}}  {why}".rstrip() for a, b, why in lines)
        return "\n".join(rows)

    def _outcome(self) -> list[Choice]:
        """Return what is known once the fit is done."""
        out = []
        if self.trials:
            best = min(self.trials, key=lambda trial: trial[1])
            tried = ", ".join(f"{s:.3g}: {loss:.4g}" for s, loss in sorted(self.trials))
            out.append(Choice("strength", f"{best[0]:.3g}", f"held-out losses: {tried}"))
        if self.seconds:
            spent = ", ".join(f"{name} {t:.2f}" for name, t in self.seconds.items())
            out.append(Choice("seconds", f"{sum(self.seconds.values()):.2f}", spent))
        return out


@dataclass(frozen=True)
class Task:
    """What a plan is for: a loss, fitted maps and rows.

    Attributes
    ----------
    loss : Loss
    maps : list of fitted FeatureMap
    rows : CodedRows
    has_held_out : bool
        Whether the user gave held-out rows (X_val).
    n_outputs : int
    seed, n_jobs : int
    two_classes : bool
        Whether y are two classes.
    memory : float or None
        Bytes that the fit may take, where there is a limit.
    deadline : Deadline or None
        When the fit ends.
    """

    loss: Loss
    maps: list[FeatureMap]
    rows: CodedRows
    has_held_out: bool
    n_outputs: int
    seed: int
    n_jobs: int = 1
    two_classes: bool = False
    memory: float | None = None
    deadline: Deadline | None = None

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and self.deadline.over

    def baseline(self) -> np.ndarray:
        """Return the intercept to start from, (L,)."""
        found = self.loss.baseline(self.rows.y, self.rows.weight)
        return np.broadcast_to(found, (self.n_outputs,)).astype(float)


@dataclass(frozen=True)
class Plan:
    """All settings of one fit, every "auto" resolved. Print it to see what was chosen, and why.

    Attributes
    ----------
    loss : Loss
    intercept : (L,)
        The constant prediction that training starts from.
    maps : list of fitted FeatureMap
    strategy : Strategy
        How the model is regularised.
    ladder : Ladder
        The strengths that pilots try.
    solver : Solver
    init : Init
    ranks : (int, int)
        The rank of pilots, and the highest rank of members.
    n_members : int
    n_folds : int
        Number of folds, of which each member holds one out; 0: no rows are held out.
    order_alpha, order_beta : float
    separate_outputs : bool
    extras_l2 : float
        L2 penalty on the arrays of a network that belong to no column.
    seed, n_jobs : int
    two_classes : bool
        Whether y are two classes.
    adapts_length : bool
        Whether pilots find how fast and how long to train.
    rates_to_try : tuple of float
        Higher learning rates than the usual one, for pilots to try in turn.
    longest : int
        How many times as long as usual a training may become.
    columns : tuple of int or None
        The columns that take part in products; None: all.
    seeds : tuple of Seed
        Terms to start from: see `polyadic.training.screening`.
    mixed : bool
        Whether its members are mixed with those of other strategies.
    trees : str
        Whether boosted trees are joined: "no", "yes", or "auto", if held-out rows clearly say so.
    others : tuple of Plan
        Further strategies, whose members are mixed with those of this one.
    resume_from : cores or None
        A fitted model to go on from, for warm_start.
    free : (R, L) or None
        Which of its output weights may move.
    choices : tuple of Choice
    """

    loss: Loss
    intercept: np.ndarray
    maps: list[FeatureMap] = field(repr=False)
    strategy: Strategy
    ladder: Ladder
    solver: Solver
    init: Any
    ranks: tuple[int, int]
    n_members: int
    n_folds: int
    order_alpha: float
    order_beta: float
    separate_outputs: bool
    extras_l2: float
    seed: int
    n_jobs: int
    two_classes: bool = False
    adapts_length: bool = False
    rates_to_try: tuple[float, ...] = ()
    longest: int = 1
    columns: tuple[int, ...] | None = None
    seeds: tuple[Any, ...] = field(default=(), repr=False)
    mixed: bool = False
    trees: str = "no"
    others: tuple[Plan, ...] = ()
    resume_from: Any = field(default=None, repr=False)
    free: np.ndarray | None = field(default=None, repr=False)
    choices: tuple[Choice, ...] = field(default=(), repr=False)

    @property
    def work(self) -> dict[tuple[str, str], Work]:
        """How much there is to do, as far as is known before: by strategy and kind of step."""
        return {key: own for one in (self, *self.others) for key, own in one._own_work().items()}

    def _own_work(self) -> dict[tuple[str, str], Work]:
        name, length = self.strategy.name, self.solver.max_iter
        low, high = (self._cost(rank) for rank in self.ranks)
        if self.resume_from is not None:
            return {(name, MEMBER): Work(1, length, high)}
        ladder, continued = self.ladder, self.strategy.continued_sweeps
        n_pilots = anew = ladder.n_pilot_fits
        if n_pilots and continued is not None:
            anew = ladder.n_pilots
        kept = ladder.n_pilots if n_pilots and self.strategy.keeps_pilots else 0
        short = (continued or 0) * (n_pilots - anew)
        finished = (continued or 0) * self.n_members if self.finishes else 0
        return {
            (name, PILOT): Work(n_pilots, length * anew + short, low),
            (name, MEMBER): Work(self.n_members, length * (self.n_members - kept), high),
            (name, FINISHED): Work(self.n_members if finished else 0, finished, high),
        }

    @property
    def finishes(self) -> bool:
        """Whether members that held rows out go on with all rows."""
        stops_at_optimum = self.strategy.learns_spreads and self.strategy.continued_sweeps
        return bool(self.mixed and self.n_folds and stops_at_optimum)

    def _cost(self, rank: int) -> float:
        """Return about how long an epoch or a sweep takes, relative to others."""
        sweeps = self.solver.phases == ("sweeps",)
        return rank * (sweep_cost(self.maps, rank) if sweeps else 1.0)

    @property
    def most_steps(self) -> int:
        """How many steps a fit takes at most: pilots, members, members on all rows, and trees."""
        ladder, longer = self.ladder, max(self.longest, 1).bit_length()
        more = ladder.n_beyond + len(self.rates_to_try) + longer
        own = ladder.n_pilot_fits + ladder.n_pilots * more + 2 * self.n_members
        trees = 0 if self.trees == "no" else _MOST_TREE_STEPS
        return own + trees + sum(one.most_steps for one in self.others)

    def __str__(self) -> str:
        return str(PlanSummary(self.choices))
