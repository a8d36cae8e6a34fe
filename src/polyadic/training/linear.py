"""The linear model, as a part of the mixture: straight effects of numbers, and one per category.

On small tables of many columns nothing else can be told from the noise, and a linear model is hard
to beat. It is an additive CP model: a straight line has exact values at the knots of any hat map.
Its penalty, L2 on the slopes of standardised columns, is chosen on held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from polyadic.data.features import sparse_design
from polyadic.data.rows import CodedRows
from polyadic.maps import Hat, OneHot
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective.losses import Loss
from polyadic.solvers.contract import Solution
from polyadic.solvers.linear import minimise_linear
from polyadic.training.fits import Fits, hold_out
from polyadic.training.merge import Member
from polyadic.training.plan import Choice
from polyadic.training.strategies import FactorPenalties

NAME = "linear"
# Penalties to try, strongest first, since each fit starts from the one before. One is that of
# logistic regression with C = 1.
_STRENGTHS = (1000.0, 100.0, 10.0, 1.0, 0.1)
# A linear model is tried up to this many slopes, of all outputs together: normal equations take
# their third power in multiplications. And up to this many numbers in the table, which are kept
# twice, with 8 bytes each. Both chosen by hand.
_MOST_SLOPES, _MOST_NUMBERS = 3000, 5e7
_MOST_WORK = 1e10  # multiplications of a product of matrices, some tenths of a second
_SPARSE = 0.1  # share of non-zeros below which a matrix is kept as sparse; chosen by hand
# Least diagonal entry of normal equations, as a share of the largest; chosen by hand.
_FLOOR = 1e-10
# Of L-BFGS: steps, and when it stops; all chosen by hand.
_MOST_STEPS, _SLOPE_TOLERANCE, _LOSS_TOLERANCE = 200, 1e-5, 1e-10


def possible(maps: Sequence[FeatureMap], n_rows: int, n_outputs: int) -> bool:
    """Tell whether these maps can hold a straight line, and the linear model is small enough."""
    # A subclass may encode in another way.
    known = all(type(m) in (Hat, OneHot) for m in maps)
    n_slopes = sum(map(_n_slopes, maps))
    numbers = n_rows * sum(isinstance(m, Hat) for m in maps)
    return known and n_outputs * n_slopes <= _MOST_SLOPES and numbers <= _MOST_NUMBERS


def _n_slopes(m: FeatureMap) -> int:
    return m.dim - 1 if isinstance(m, OneHot) else 1


@dataclass(frozen=True)
class Straight:
    """Columns as a linear model sees them: standardised numbers, and indicators of categories.

    Attributes
    ----------
    maps : list of fitted Hat or OneHot
    centres, scales : (N,)
        Mean and standard deviation of each numeric column; a missing number counts as the mean.
    """

    maps: Sequence[FeatureMap]
    centres: np.ndarray
    scales: np.ndarray

    @classmethod
    def learn(cls, maps: Sequence[FeatureMap], rows: CodedRows) -> Straight:
        """Measure the numeric columns."""
        centres, scales = np.zeros(len(maps)), np.ones(len(maps))
        for n, (m, x) in enumerate(zip(maps, rows.columns)):
            known = ~np.isnan(x) if isinstance(m, Hat) else np.zeros(0, dtype=bool)
            if known.any():
                centres[n], scales[n] = _mean_and_std(x[known], rows.weight[known])
        return cls(maps, centres, scales)

    def design(self, columns: Sequence[np.ndarray]) -> np.ndarray | sparse.csr_array:
        """Return what the slopes are multiplied with, (n, number of slopes)."""
        parts = [self._column(n, x) for n, x in enumerate(columns)]
        if len(columns) < _SPARSE * sum(part.shape[1] for part in parts):
            return sparse.hstack(parts).tocsr()
        return np.hstack(
            [part if isinstance(part, np.ndarray) else part.toarray() for part in parts]
        )

    def _column(self, n: int, x: np.ndarray) -> np.ndarray | sparse.csr_array:
        m = self.maps[n]
        if isinstance(m, OneHot):
            index, value = m.encode(x)
            return sparse_design(index, value, m.dim)[:, 1:]
        assert isinstance(m, Hat)
        ends = m.knots_[[0, -1]] if len(m.knots_) else [0.0, 0.0]
        line = self._line(n, np.clip(x, *ends))
        return np.where(np.isnan(x), 0.0, line)[:, None]

    def _line(self, n: int, x: np.ndarray) -> np.ndarray:
        """Return numbers of column n, standardised; divided by a power of two, none overflows."""
        exponent = np.frexp(self.scales[n])[1]
        x, centre, scale = (np.ldexp(v, -exponent) for v in (x, self.centres[n], self.scales[n]))
        return (x - centre) / scale

    def cores(self, maps: Sequence[FeatureMap], model: Slopes, intercept: np.ndarray) -> CPCores:
        """Return the model as cores of these maps, which may have other inner knots."""
        at, additive = 0, []
        for n, m in enumerate(maps):
            own = model.slopes[at : at + _n_slopes(m)]
            at += len(own)
            part = np.zeros((m.dim, len(intercept)))
            if isinstance(m, Hat):
                part[1:] = self._line(n, m.knots_)[:, None] * own
            else:
                part[1:] = own
            additive.append(part)
        additive[0][0] += model.bias
        factors = [np.zeros((m.dim, 1)) for m in maps]  # one term, which has no weight
        return CPCores(factors, np.zeros((1, len(intercept))), intercept, additive)


def _mean_and_std(x: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation of known numbers; 1 for the latter if all are equal.

    Dividing by a power of two near the largest is exact, and squares do not overflow.
    """
    if x.min() == x.max():  # rounding would give a constant column a scale
        return float(x[0]), 1.0
    exponent = np.frexp(np.abs(x).max())[1]
    small, share = np.ldexp(x, -exponent), weight / weight.sum()
    mean = share @ small
    std = float(np.ldexp(np.sqrt(share @ (small - mean) ** 2), exponent))
    return float(np.ldexp(mean, exponent)), std if std > 0 else 1.0


class Slopes(NamedTuple):
    """A linear model: bias : (L,), relative to the intercept, and slopes : (D, L)."""

    bias: np.ndarray
    slopes: np.ndarray

    def predict(self, design: np.ndarray | sparse.csr_array, intercept: np.ndarray) -> np.ndarray:
        """Return raw predictions, (n, L)."""
        return intercept + self.bias + design @ self.slopes


def solve(
    loss: Loss,
    design: np.ndarray | sparse.csr_array,
    rows: CodedRows,
    intercept: np.ndarray,
    strengths: Sequence[float],
    start: Slopes | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> list[Slopes]:
    """Minimise the mean loss plus strength * |slopes|^2 / 2 over the number of rows.

    Returns a model for every strength; when time is over, only for the first ones.
    """
    penalties = [strength / rows.effective_rows() for strength in strengths]
    if loss.quadratic:
        return _solve_squares(design, rows, intercept, penalties, out_of_time)
    out: list[Slopes] = []
    for penalty in penalties:
        if not out or not out_of_time():
            found = minimise_linear(
                loss,
                design,
                rows.y,
                rows.weight,
                intercept,
                penalty,
                start,
                out_of_time,
                max_steps=_MOST_STEPS,
                slope_tolerance=_SLOPE_TOLERANCE,
                loss_tolerance=_LOSS_TOLERANCE,
            )
            start = Slopes(*found)
            out.append(start)
    return out


def _solve_squares(
    design: np.ndarray | sparse.csr_array,
    rows: CodedRows,
    intercept: np.ndarray,
    penalties: Sequence[float],
    out_of_time: Callable[[], bool],
) -> list[Slopes]:
    """Solve the normal equations with each penalty."""
    weight = rows.weight / rows.weight.sum()
    mean = design.T @ weight
    target = rows.y - intercept
    mean_y = weight @ target
    if sparse.issparse(design):
        weighted = sparse.diags_array(weight) @ design
        gram = (design.T @ weighted).toarray()
    else:
        weighted = weight[:, None] * design
        gram = _gram(design, weighted, out_of_time)
    gram -= np.outer(mean, mean)
    moment = weighted.T @ target - np.outer(mean, mean_y)
    diagonal = np.diag_indices_from(gram)
    floor = _FLOOR * gram.diagonal().max(initial=0.0) + np.finfo(float).tiny
    out = []
    for penalty in penalties:
        # Half of it: so is the gradient of the squared error, on both sides of these equations.
        raised = gram.copy()
        raised[diagonal] += max(0.5 * penalty, floor)
        slopes = cho_solve(cho_factor(raised), moment)
        out.append(Slopes(mean_y - mean @ slopes, slopes))
    return out


def _gram(design: np.ndarray, weighted: np.ndarray, out_of_time: Callable[[], bool]) -> np.ndarray:
    """Return design' weighted, by parts of the rows between which a fit can be stopped."""
    n_rows, n_slopes = design.shape
    step = max(1, int(_MOST_WORK // n_slopes**2))
    gram = np.zeros((n_slopes, n_slopes))
    for start in range(0, n_rows, step):
        out_of_time()  # ends the thread of a fit that was stopped; half of the sums are no use
        gram += design[start : start + step].T @ weighted[start : start + step]
    return gram


class LinearTrial(NamedTuple):
    """A model of one strength, with loss and predictions of its held-out rows."""

    slopes: Slopes
    loss: float = np.inf
    raw: np.ndarray | None = None


class LinearTraining:
    """The linear models of a plan that mixes strategies."""

    def __init__(self, fits: Fits):
        self.fits, self.plan = fits, fits.plan
        self.members: list[Member] = []
        self.finished: dict[tuple[str, int], Member] = {}  # the same, of all rows
        self.choices: list[Choice] = []

    def train(self) -> None:
        """Choose the penalty on held-out rows, and fit a model without the rows of each fold.

        After the deadline of the fit, only what is needed for one member is finished.
        """
        fits, plan, rows = self.fits, self.plan, self.fits.rows
        if fits.out_of_time:
            return
        self.view = Straight.learn(plan.maps, rows)
        self.design = self.view.design(rows.columns)
        # With held-out rows that the user gave, all members have the same rows.
        n_models = 1 if fits.fold_of is None else plan.n_members
        # Few held-out rows say little, so every member tries the strengths on a short table.
        n_trying = n_models if len(rows) < FactorPenalties.long else 1
        tried: list[list[LinearTrial]] = []
        for number in range(n_trying):
            if not tried or not fits.out_of_time:
                tried.append(self.models(number, _STRENGTHS))
        n_common = min(map(len, tried))
        losses = np.mean([[one.loss for one in own[:n_common]] for own in tried], axis=0)
        best = int(np.argmin(losses))
        chosen, strength = [own[best] for own in tried], _STRENGTHS[best]
        for number in range(len(chosen), n_models):
            if not fits.out_of_time:
                chosen += self.models(number, (strength,), chosen[0].slopes)
        for number in range(plan.n_members if fits.fold_of is None else len(chosen)):
            self.members.append(self.member(number, chosen[number % len(chosen)]))
        self.strength, self.start = strength, chosen[0].slopes
        told = ", ".join(f"{s:g}: {loss:.4g}" for s, loss in zip(_STRENGTHS, losses))
        self.choices.append(Choice(NAME, f"{strength:g}", f"held-out losses: {told}"))

    def finish(self, kinds: Collection[str]) -> None:
        """Fit once more with all rows, if there is a share: nothing need be held out any more."""
        fits = self.fits
        if NAME not in kinds or fits.fold_of is None or fits.out_of_time:
            return
        [whole] = self.solve(self.design, fits.rows, (self.strength,), self.start)
        for own in self.members:
            self.finished[NAME, own.number] = self.member(own.number, LinearTrial(whole))

    def solve(
        self,
        design: np.ndarray | sparse.csr_array,
        rows: CodedRows,
        strengths: Sequence[float],
        start: Slopes | None,
    ) -> list[Slopes]:
        """Fit these rows with each strength, until time is over."""
        plan, fits = self.plan, self.fits
        args = (plan.loss, design, rows, plan.intercept, strengths, start)
        return solve(*args, fits.is_over)

    def groups(self) -> list[list[Member]]:
        """Return the members whose share is to be found."""
        return [self.members] if self.members else []

    def models(
        self, number: int, strengths: Sequence[float], start: Slopes | None = None
    ) -> list[LinearTrial]:
        """Fit the rows that a member does not hold out, with each strength in turn."""
        fits, plan, design = self.fits, self.plan, self.design
        rows, held_out = hold_out(fits.rows, fits.held_out, fits.fold_of, number)
        assert held_out is not None
        held_design = self.view.design(held_out.columns)
        if fits.fold_of is not None:
            design = design[fits.fold_of != number % (fits.fold_of.max() + 1)]
        out = []
        for model in self.solve(design, rows, strengths, start):
            raw = model.predict(held_design, plan.intercept)
            out.append(LinearTrial(model, plan.loss.value(held_out.y, raw, held_out.weight), raw))
        return out

    def member(self, number: int, trial: LinearTrial) -> Member:
        """Return a model as a member, on the knots of the member of this number."""
        maps = self.fits.member_maps(number)
        cores = self.view.cores(maps, trial.slopes, self.plan.intercept)
        return Member(maps, Solution(cores, held_out=trial.raw), 0.0, number, NAME)
