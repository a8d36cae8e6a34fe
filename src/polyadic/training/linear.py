"""The linear model, as a part of the mixture: straight effects of numbers, and one per category.

On small tables of many columns nothing else can be told from the noise, and a linear model is hard
to beat. It is an additive CP model: a straight line has exact values at the knots of any hat map.
Its penalty, L2 on the slopes of standardised columns, is chosen on held-out rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from polyadic.data.features import sparse_design
from polyadic.data.rows import CodedRows
from polyadic.maps import Hat, OneHot
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective.losses import Loss
from polyadic.solvers.contract import Solution
from polyadic.training.fits import Fits, hold_out
from polyadic.training.merge import Member
from polyadic.training.plan import Choice
from polyadic.training.strategies import FactorPenalties

NAME = "linear"
# Penalties to try, strongest first, since each fit starts from the one before. One is that of
# logistic regression with C = 1.
_STRENGTHS = (1000.0, 100.0, 10.0, 1.0, 0.1)
_MOST_SLOPES = 4000  # of all outputs together; above it, a linear model is not tried
_MOST_STEPS = 200  # of L-BFGS; chosen by hand, as is the tolerance of its gradient
_TOLERANCE = 1e-5


def possible(maps: Sequence[FeatureMap], n_outputs: int) -> bool:
    """Tell whether these maps can hold a straight line, and the slopes are not too many."""
    known = all(isinstance(m, Hat | OneHot) for m in maps)
    return known and n_outputs * sum(map(_n_slopes, maps)) <= _MOST_SLOPES


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
                weight = rows.weight[known] / rows.weight[known].sum()
                centres[n] = weight @ x[known]
                scales[n] = np.sqrt(weight @ (x[known] - centres[n]) ** 2) or 1.0
        return cls(maps, centres, scales)

    def design(self, columns: Sequence[np.ndarray]) -> np.ndarray | sparse.csr_array:
        """Return what the slopes are multiplied with, (n, number of slopes)."""
        parts = [self._column(n, x) for n, x in enumerate(columns)]
        if any(sparse.issparse(part) for part in parts):
            return sparse.hstack(parts).tocsr()
        return np.hstack(parts)

    def _column(self, n: int, x: np.ndarray) -> np.ndarray | sparse.csr_array:
        m = self.maps[n]
        if isinstance(m, OneHot):
            index, value = m.encode(x)
            return sparse_design(index, value, m.dim)[:, 1:]
        assert isinstance(m, Hat)
        ends = m.knots_[[0, -1]] if len(m.knots_) else [0.0, 0.0]
        line = (np.clip(x, *ends) - self.centres[n]) / self.scales[n]
        return np.where(np.isnan(x), 0.0, line)[:, None]

    def cores(self, maps: Sequence[FeatureMap], model: Slopes, intercept: np.ndarray) -> CPCores:
        """Return the model as cores of these maps, which may have other inner knots."""
        at, additive = 0, []
        for n, m in enumerate(maps):
            own = model.slopes[at : at + _n_slopes(m)]
            at += len(own)
            part = np.zeros((m.dim, len(intercept)))
            if isinstance(m, Hat):
                line = (m.knots_ - self.centres[n]) / self.scales[n]
                part[1:] = line[:, None] * own
            else:
                part[1:] = own
            additive.append(part)
        additive[0][0] += model.bias
        factors = [np.zeros((m.dim, 1)) for m in maps]  # one term, which has no weight
        return CPCores(factors, np.zeros((1, len(intercept))), intercept, additive)


@dataclass(frozen=True)
class Slopes:
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
    strength: float,
    start: Slopes | None = None,
) -> Slopes:
    """Minimise the mean loss plus strength * |slopes|^2 / 2 over the number of rows."""
    penalty = strength / rows.effective_rows()
    if loss.quadratic:
        return _solve_squares(design, rows, intercept, penalty)
    n_outputs, n_slopes = len(intercept), design.shape[1]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        now = Slopes(flat[:n_outputs], flat[n_outputs:].reshape(n_slopes, n_outputs))
        value, slope = loss.value_and_gradient(rows.y, now.predict(design, intercept), rows.weight)
        value += 0.5 * penalty * float(np.sum(now.slopes**2))
        inner = design.T @ slope + penalty * now.slopes
        return value, np.concatenate([slope.sum(axis=0), inner.ravel()])

    first = np.zeros(n_outputs * (1 + n_slopes))
    if start is not None:
        first = np.concatenate([start.bias, start.slopes.ravel()])
    options = {"maxiter": _MOST_STEPS, "gtol": _TOLERANCE, "ftol": 1e-10}
    flat = minimize(objective, first, jac=True, method="L-BFGS-B", options=options).x
    return Slopes(flat[:n_outputs], flat[n_outputs:].reshape(n_slopes, n_outputs))


def _solve_squares(
    design: np.ndarray | sparse.csr_array, rows: CodedRows, intercept: np.ndarray, penalty: float
) -> Slopes:
    """Solve the normal equations."""
    weight = rows.weight / rows.weight.sum()
    mean = design.T @ weight
    target = rows.y - intercept
    mean_y = weight @ target
    scaled = sparse.diags_array(weight) if sparse.issparse(design) else weight[:, None]
    weighted = scaled @ design if sparse.issparse(design) else scaled * design
    gram = design.T @ weighted
    gram = (gram.toarray() if sparse.issparse(gram) else gram) - np.outer(mean, mean)
    # The squared error is not halved: neither is the penalty.
    gram[np.diag_indices_from(gram)] += 0.5 * penalty + np.finfo(float).tiny
    slopes = cho_solve(cho_factor(gram), weighted.T @ target - np.outer(mean, mean_y))
    return Slopes(mean_y - mean @ slopes, slopes)


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

        Nothing more is started after the deadline of the fit.
        """
        fits, plan, rows = self.fits, self.plan, self.fits.rows
        if fits.out_of_time:
            return
        self.view = Straight.learn(plan.maps, rows)
        self.design = self.view.design(rows.columns)
        n_models = 1 if fits.fold_of is None else plan.n_members  # else all have the same rows
        # Few held-out rows say little, so every member tries the strengths on a short table.
        n_trying = n_models if len(rows) < FactorPenalties.long else 1
        tried = [self.models(number, _STRENGTHS) for number in range(n_trying)]
        losses = np.mean([[one.loss for one in own] for own in tried], axis=0)
        best = int(np.argmin(losses))
        chosen, strength = [own[best] for own in tried], _STRENGTHS[best]
        for number in range(n_trying, n_models):
            if not fits.out_of_time:
                chosen += self.models(number, (strength,), chosen[0].slopes)
        for number in range(plan.n_members if fits.fold_of is None else len(chosen)):
            self.members.append(self.member(number, chosen[number % len(chosen)]))
        self.finish(strength, chosen[0].slopes)
        told = ", ".join(f"{s:g}: {loss:.4g}" for s, loss in zip(_STRENGTHS, losses))
        self.choices.append(Choice(NAME, f"{strength:g}", f"held-out losses: {told}"))

    def finish(self, strength: float, start: Slopes) -> None:
        """Fit once more with all rows: what was held out has served its purpose."""
        fits, plan = self.fits, self.plan
        if fits.fold_of is None or fits.out_of_time:
            return
        whole = solve(plan.loss, self.design, fits.rows, plan.intercept, strength, start)
        for own in self.members:
            self.finished[NAME, own.number] = self.member(own.number, LinearTrial(whole))

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
        out: list[LinearTrial] = []
        for strength in strengths:
            if out and fits.out_of_time:
                out.append(out[-1])
                continue
            start = solve(plan.loss, design, rows, plan.intercept, strength, start)
            raw = start.predict(held_design, plan.intercept)
            out.append(LinearTrial(start, plan.loss.value(held_out.y, raw, held_out.weight), raw))
        return out

    def member(self, number: int, trial: LinearTrial) -> Member:
        """Return a model as a member, on the knots of the member of this number."""
        maps = self.fits.member_maps(number)
        cores = self.view.cores(maps, trial.slopes, self.plan.intercept)
        return Member(maps, Solution(cores, held_out=trial.raw), 0.0, number, NAME)
