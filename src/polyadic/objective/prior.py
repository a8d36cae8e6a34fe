"""The prior of the weight tensor, and how the rows determine its scale.

f is a sum of terms f_S over sets S of columns. The prior says that f_S varies with a variance of
interaction^(|S| - 1) times the product of the spreads of its columns: what two columns do together
is smaller than what each does alone, and columns that do little alone are not expected to do much
together. As a penalty that is a norm of the weight tensor, <W, (M_1 x ... x M_N) W>, which asks
nothing about how W is written as a sum of R terms: penalties on the factors do.

The spread of a column, the variance of its effect, is learnt from an additive model by empirical
Bayes: it is what the effect's size says, given how many numbers the rows could determine of it.
How much interaction to expect is tried on held-out rows, see `polyadic.training.strategies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from polyadic.data.slots import check_maps, column_slots
from polyadic.kernels import additive as kernel
from polyadic.kernels.als import Quadratic, Slots
from polyadic.kernels.losses import curvatures, weighted_losses
from polyadic.maps.base import FeatureMap
from polyadic.objective.penalties import Prior
from polyadic.objective.problem import Problem

# Precision of a numeric column's effect of spread one: of its values, and of second differences.
# Together they make curves of about unit variance that vary over some four per cent of the rows.
_RIDGE, _ROUGH = 0.18, 2.7
_USUAL = 48.0  # knots, to which _RIDGE belongs
_LEAST = 1.0  # of all spreads together: columns without an effect may still interact
_PASSES = 10
_PACE = 0.9
_SETTLED = 0.1  # change of all logarithms in a pass
_BOUNDS = 1e-4, 1e3
_LONGEST = 2.0  # step of a logit: a parabola knows less about what is farther away
_TINY = 1e-12
_BAND = 4  # reach of normal equations of four slots


def learn(problem: Problem, maps: Sequence[FeatureMap]) -> Prior:
    """Return the prior of these columns, its spreads learnt from the problem's rows."""
    check_maps(problem.local)
    shapes = [precision(m) for m in maps]
    spreads = np.maximum(learn_spreads(problem, shapes), _LEAST / len(shapes))
    scaled = [shape / spread for shape, spread in zip(shapes, spreads)]
    return Prior(scaled, [m.constant for m in maps], problem.effective_rows)


def precision(m: FeatureMap) -> np.ndarray:
    """Return the precision of a main effect of spread one as a band : (d, 5)."""
    band = np.zeros((m.dim, 5))
    first = int(m.constant)
    if m.kind == "numeric":
        band += _ROUGH * m.roughness
        band[first:, 2] += _RIDGE * min(1.0, _USUAL / m.dim)
    else:
        band[first:, 2] = 1.0
    return band


@dataclass
class _Effect:
    """The effect of one column in the additive model."""

    slots: Slots
    shape: np.ndarray  # (d, 4), the lower band of its precision at spread one
    values: np.ndarray  # (L, d)
    spread: float = 1.0
    room: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def start(cls, problem: Problem, n: int, band: np.ndarray) -> _Effect:
        first = int(problem.local.layout.constant[n])
        lower = np.zeros((len(band) - first, _BAND))
        lower[:, :3] = band[first:, 2:]
        room = [np.empty_like(lower) for _ in range(3)]
        zero = np.zeros((problem.n_outputs, len(lower)))
        return cls(column_slots(problem.local, n), lower, zero, room=room)

    def gain(self, model: Quadratic) -> float:
        """Return about how much the loss would fall by this column alone."""
        moments, gain = self.room[0], 0.0
        for k in range(len(self.values)):
            pull = np.empty(self.values.shape[1])
            kernel.moments(self.slots, model.slope, model.curvature, k, moments, pull)
            gain += float(np.sum(pull**2 / np.maximum(moments[:, 0], _TINY)))
        return gain

    def update(self, raw: np.ndarray, model: Quadratic, noise: float, longest: float) -> None:
        """Move the effect to its minimum, the others fixed, and the spread to what it tells."""
        moments, factor, inverse = self.room
        freedom, size = 0.0, 0.0
        for k, values in enumerate(self.values):
            step, pull = np.empty_like(values), np.empty_like(values)
            kernel.moments(self.slots, model.slope, model.curvature, k, moments, step)
            moments /= noise
            factor[:] = moments + self.shape / self.spread
            factor[:, 0] += _TINY
            kernel.times(self.shape, values, pull)
            step = -step / noise - pull / self.spread
            kernel.factorise(factor)
            kernel.solve(factor, step)
            step *= min(1.0, longest / max(np.abs(step).max(initial=0.0), _TINY))
            kernel.invert(factor, inverse)
            kernel.add_effect(self.slots, step, k, raw)
            values += step
            kernel.times(self.shape, values, pull)
            freedom += kernel.band_dot(inverse, moments)
            size += float(np.sum(values * pull))
        told = np.log(max(size, _TINY) / (self.spread * max(freedom, _TINY)))
        self.spread *= np.exp(_PACE * np.clip(told, -4.0, 4.0))
        self.spread = float(np.clip(self.spread, *_BOUNDS))


def learn_spreads(problem: Problem, shapes: Sequence[np.ndarray]) -> np.ndarray:
    """Fit an additive model, one column after the other, and return the spreads, (N,)."""
    loss, n = problem.loss, len(problem.local)
    y = np.ascontiguousarray(problem.y, dtype=np.float64)
    # A row that stands for several counts as several.
    rows = problem.effective_rows
    weight = problem.unit_weights() * (rows / n if rows else 1.0)
    everything = np.arange(n)
    raw = np.tile(np.asarray(problem.intercept, dtype=np.float64), (n, 1))
    model = Quadratic(np.empty_like(raw), np.empty_like(raw))
    effects = [_Effect.start(problem, k, shape) for k, shape in enumerate(shapes)]
    noise, longest = 1.0, np.inf if loss.location_scale else _LONGEST

    compiled, curvature = loss.compiled(), loss.compiled_curvature()

    def measure() -> float:
        curvatures(curvature, y, weight, raw, model.curvature)
        return weighted_losses(compiled, y, weight, everything, 0, raw, model.slope)

    measure()
    gains = [effect.gain(model) for effect in effects]
    order = np.argsort(-np.array(gains), kind="stable")  # not by their place in the table
    spreads = np.ones(len(effects))
    for _ in range(_PASSES):
        before = spreads
        for k in order:
            total = measure()
            if loss.location_scale:  # a Gaussian likelihood divides the loss by twice the noise
                noise = 2.0 * max(total / (weight.sum() * raw.shape[1]), _TINY)
            effects[k].update(raw, model, noise, longest)
        spreads = np.array([effect.spread for effect in effects])
        if np.all(np.abs(np.log(spreads / before)) < _SETTLED):
            break
    return spreads
