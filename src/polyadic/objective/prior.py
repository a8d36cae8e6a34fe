"""The prior of the weight tensor, and how the rows determine its scale.

f is a sum of functions f_S over sets S of columns. Under the prior, f_S has a variance of
interaction^(|S| - 1) times the product of the spreads of its columns: the interaction of two
columns is expected to be smaller than their main effects, and columns with small main effects are
expected to interact little. As a penalty this is a norm of the weight tensor,
<W, (M_1 x ... x M_N) W>. It does not depend on how W is written as a sum of R terms; penalties on
the factors do.

The spread of a column, the variance of its main effect, is learnt from an additive model by
empirical Bayes: the squared size of the effect over its degrees of freedom. The interaction is
chosen on held-out rows, see `polyadic.training.strategies`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from polyadic.data.slots import check_maps, column_slots
from polyadic.kernels import additive as kernel
from polyadic.kernels.als import Quadratic, Slots
from polyadic.kernels.losses import (
    LOGISTIC,
    SOFTMAX,
    class_derivatives,
    curvatures,
    weighted_losses,
)
from polyadic.maps.base import REFERENCE_KNOTS, FeatureMap
from polyadic.objective.penalties import Prior
from polyadic.objective.problem import Problem

# Precision of the effect of a numeric column of spread one: of its values (_RIDGE, at
# REFERENCE_KNOTS knots) and of its second differences (_ROUGH). Together they give curves of about
# unit variance that vary over about four per cent of the rows.
_RIDGE, _ROUGH = 0.18, 2.7
# A spread is at least this over the number of columns: columns without a main effect may still
# interact. `benchmarks/ablation.py --classes` measures it.
_LEAST_TOTAL_SPREAD = 1.0
# Spreads start from this over the number of columns. If each of many columns started as able to
# explain the target alone, together they would explain the noise, and all spreads stay large.
_FIRST_TOTAL_SPREAD = 1.0
# How spreads are learnt; all chosen by hand.
_MAX_PASSES = 10  # over all columns
_SPREAD_RATE = 0.9  # share of the step to the new log spread that is taken
_SPREAD_TOLERANCE = 0.1  # stop when no log spread changes by more than this in a pass
_SPREAD_BOUNDS = 1e-4, 1e3
# The noise is the loss over the rows less the degrees of freedom of all effects, but over no less
# than this share of the rows. Otherwise many columns of noise, each of which explains a little,
# make the noise seem small, and their own spreads large.
_LEAST_LEFT = 0.1
_LARGEST_STEP = 2.0  # of a logit: far from the present point the parabola is a poor approximation
_TINY = 1e-12  # keeps divisors and logarithms away from zero
_BAND_WIDTH = 4  # diagonals of the normal equations of four slots


def never() -> bool:
    """Return False: without a limit, time is never over."""
    return False


def learn(
    problem: Problem, maps: Sequence[FeatureMap], out_of_time: Callable[[], bool] = never
) -> Prior:
    """Return the prior of these columns, its spreads learnt from the problem's rows."""
    check_maps(problem.local)
    shapes = [precision(m) for m in maps]
    effects = fit_additive(problem, shapes, out_of_time).effects
    least = _LEAST_TOTAL_SPREAD / len(shapes)
    scaled = [shape / max(one.spread, least) for shape, one in zip(shapes, effects)]
    constant = [m.constant for m in maps]
    parts = [np.pad(one.values.T, ((int(c), 0), (0, 0))) for c, one in zip(constant, effects)]
    return Prior(scaled, constant, problem.effective_rows, parts)


def precision(m: FeatureMap) -> np.ndarray:
    """Return the precision of a main effect of spread one as a band : (d, 5)."""
    band = np.zeros((m.dim, 5))
    first = int(m.constant)
    band += _ROUGH * m.roughness
    if m.kind == "numeric":
        band[first:, 2] += _RIDGE * min(1.0, REFERENCE_KNOTS / m.dim)
    else:
        band[first:, 2] += 1.0
    return band


@dataclass
class Effect:
    """The effect of one column in the additive model."""

    slots: Slots
    shape: np.ndarray  # (d, 4), the lower band of its precision at spread one
    values: np.ndarray  # (L, d)
    spread: float
    workspace: kernel.Workspace
    freedom: float = 0.0  # degrees of freedom, of all outputs together

    @classmethod
    def start(cls, problem: Problem, n: int, band: np.ndarray, spread: float) -> Effect:
        """Return an effect of zero; band : (d, 5) is the precision at spread one."""
        first = int(problem.local.layout.constant[n])
        lower = np.zeros((len(band) - first, _BAND_WIDTH))
        lower[:, :3] = band[first:, 2:]
        workspace = kernel.Workspace.make(*lower.shape)
        zero = np.zeros((problem.n_outputs, len(lower)))
        return cls(column_slots(problem.local, n), lower, zero, spread, workspace)

    def gain(self, model: Quadratic) -> float:
        """Return about how much this column alone would lower the loss."""
        moments, gain = self.workspace.moments, 0.0
        for k in range(len(self.values)):
            pull = np.empty(self.values.shape[1])
            kernel.moments(self.slots, model.slope, model.curvature, k, moments, pull)
            gain += float(np.sum(pull**2 / np.maximum(moments[:, 0], _TINY)))
        return gain

    def update(self, raw: np.ndarray, model: Quadratic, noise: float, longest: float) -> None:
        """Move the effect to its minimum with the others fixed, and update its spread."""
        freedom, size = kernel.update(
            self.slots,
            self.shape,
            self.spread,
            self.values,
            model,
            noise,
            longest,
            _TINY,
            self.workspace,
            raw,
        )
        self.freedom = freedom
        change = math.log(max(size, _TINY) / (self.spread * max(freedom, _TINY)))
        spread = self.spread * math.exp(_SPREAD_RATE * min(max(change, -4.0), 4.0))
        self.spread = min(max(spread, _SPREAD_BOUNDS[0]), _SPREAD_BOUNDS[1])


@dataclass(frozen=True)
class Additive:
    """An additive model, and what it leaves unexplained.

    Attributes
    ----------
    effects : list of effects
    before, after : Quadratic
        Derivatives of the log-likelihood, row by row, at the constant prediction and at those of
        the model: of the loss, divided by twice the variance of the residuals where it is on the
        scale of the target.
    """

    effects: list[Effect]
    before: Quadratic
    after: Quadratic


def fit_additive(
    problem: Problem, shapes: Sequence[np.ndarray], out_of_time: Callable[[], bool] = never
) -> Additive:
    """Fit an additive model, one column after the other, and learn the spread of each.

    When time is over, columns keep the effect that they have by then.
    """
    loss, n = problem.loss, len(problem.local)
    y = np.ascontiguousarray(problem.y, dtype=np.float64)
    # A row that stands for several counts as several.
    rows = problem.effective_rows
    weight = problem.unit_weights() * (rows / n if rows else 1.0)
    all_rows = np.arange(n)
    raw = np.tile(np.asarray(problem.intercept, dtype=np.float64), (n, 1))
    model = Quadratic(np.empty_like(raw), np.empty_like(raw))
    first = _FIRST_TOTAL_SPREAD / max(len(shapes), 1)
    effects = [Effect.start(problem, k, shape, first) for k, shape in enumerate(shapes)]
    noise, longest = 1.0, np.inf if loss.location_scale else _LARGEST_STEP

    compiled, curvature = loss.compiled(), loss.compiled_curvature()

    def measure() -> float:
        """Write the derivatives; return the loss, which is NaN for classes: nothing needs it."""
        if loss.code in (LOGISTIC, SOFTMAX):
            class_derivatives(loss.code, y, weight, raw, model.slope, model.curvature)
            return np.nan
        curvatures(curvature, y, weight, raw, model.curvature)
        return weighted_losses(compiled, y, weight, all_rows, 0, raw, model.slope)

    n_values, freedom = float(weight.sum() * raw.shape[1]), 0.0
    total = measure()
    scale = 2.0 * max(total, _TINY) / n_values if loss.location_scale else 1.0
    before_all = Quadratic(model.slope / scale, model.curvature / scale)
    gains = [effect.gain(model) for effect in effects]
    order = np.argsort(-np.array(gains), kind="stable")  # not by position in the table
    spreads = np.array([effect.spread for effect in effects])
    for _ in range(_MAX_PASSES):
        before = spreads
        for k in order:
            if out_of_time():
                break
            total = measure()
            if loss.location_scale:  # a Gaussian likelihood divides the loss by twice the noise
                noise = 2.0 * max(total, _TINY) / max(n_values - freedom, _LEAST_LEFT * n_values)
            freedom -= effects[k].freedom
            effects[k].update(raw, model, noise, longest)
            freedom += effects[k].freedom
        spreads = np.array([effect.spread for effect in effects])
        if out_of_time() or np.all(np.abs(np.log(spreads / before)) < _SPREAD_TOLERANCE):
            break
    measure()
    return Additive(effects, before_all, Quadratic(model.slope / noise, model.curvature / noise))
