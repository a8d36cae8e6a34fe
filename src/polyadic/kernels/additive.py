"""One column of an additive model: its normal equations, their solution, and degrees of freedom.

The slots of a row are neighbouring elements, so the normal matrix of a column is a narrow band. The
same band of its inverse, which is all that is needed, follows from the factor of the band by a
recursion from the last element. Bands are lower: band[k, b] couples elements k and k + b. All is in
double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, jit


class Workspace(NamedTuple):
    """Arrays of one column of d elements."""

    moments: np.ndarray  # (d, width), as all bands
    factor: np.ndarray
    inverse: np.ndarray
    step: np.ndarray  # (d,)
    pull: np.ndarray

    @classmethod
    def make(cls, d: int, width: int) -> Workspace:
        """Return arrays of the right sizes."""
        moments, factor, inverse = (np.empty((d, width)) for _ in range(3))
        return cls(moments, factor, inverse, np.empty(d), np.empty(d))


@jit
def update(slots, shape, spread, values, model, noise, longest, tiny, work, raw):
    """Move the effect of a column to its minimum, with those of all others fixed.

    values : (L, d) and raw : (n, L) are changed in place. The precision of the effect is `shape`, a
    band, over its spread. No element moves by more than `longest`. Returns the degrees of freedom
    and the squared size of the effect, in units of the shape, of all outputs together.
    """
    d, width = shape.shape
    freedom, size = 0.0, 0.0
    for k in range(values.shape[0]):
        moments(slots, model.slope, model.curvature, k, work.moments, work.step)
        times(shape, values[k], work.pull)
        largest = tiny
        for e in range(d):
            for b in range(width):
                work.moments[e, b] /= noise
                work.factor[e, b] = work.moments[e, b] + shape[e, b] / spread
            work.factor[e, 0] += tiny
            work.step[e] = -work.step[e] / noise - work.pull[e] / spread
        factorise(work.factor)
        solve(work.factor, work.step)
        for e in range(d):
            largest = max(largest, abs(work.step[e]))
        share = min(1.0, longest / largest)
        for e in range(d):
            work.step[e] *= share
            values[k, e] += work.step[e]
        invert(work.factor, work.inverse)
        add_effect(slots, work.step, k, raw)
        times(shape, values[k], work.pull)
        freedom += band_dot(work.inverse, work.moments)
        for e in range(d):
            size += values[k, e] * work.pull[e]
    return freedom, size


@jit
def moments(slots, slope, curvature, output, band, gradient):
    """Write phi' phi, weighted by curvature : (n, L), to the band, and phi' slope to the gradient.

    Only for one output.
    """
    for k in range(band.shape[0]):
        gradient[k] = 0.0
        for b in range(band.shape[1]):
            band[k, b] = 0.0
    n_slots = slots.value.shape[1]
    for i in range(slots.start.shape[0]):
        at = slots.start[i]
        for a in range(n_slots):
            value = slots.value[i, a]
            gradient[at + a] += value * slope[i, output]
            for b in range(a, n_slots):
                band[at + a, b - a] += curvature[i, output] * value * slots.value[i, b]


@inner
def add_effect(slots, effect, output, raw):
    """Add phi' effect to one output of raw : (n, L)."""
    for i in range(raw.shape[0]):
        for a in range(slots.value.shape[1]):
            raw[i, output] += slots.value[i, a] * effect[slots.start[i] + a]


@inner
def factorise(band):
    """Overwrite a band by L and D of L D L', D on the diagonal."""
    d, width = band.shape
    for k in range(d):
        for b in range(1, min(width, d - k)):
            share = band[k, b] / band[k, 0]
            for c in range(b, min(width, d - k)):
                band[k + b, c - b] -= share * band[k, c]
        for b in range(1, width):
            band[k, b] /= band[k, 0]


@inner
def solve(factor, x):
    """Overwrite the right-hand side x : (d,) by the solution."""
    d, width = factor.shape
    for k in range(d):
        for b in range(1, min(width, d - k)):
            x[k + b] -= factor[k, b] * x[k]
    for k in range(d - 1, -1, -1):
        x[k] /= factor[k, 0]
        for b in range(1, min(width, d - k)):
            x[k] -= factor[k, b] * x[k + b]


@inner
def invert(factor, out):
    """Write the band of the inverse, (d, width), of the matrix with this factor."""
    d, width = factor.shape
    for k in range(d - 1, -1, -1):
        for b in range(width):
            out[k, b] = 0.0
        reach = min(width, d - k)
        for b in range(reach - 1, -1, -1):
            sum_ = 1.0 / factor[k, 0] if b == 0 else 0.0
            for c in range(1, reach):
                low, high = min(b, c), max(b, c)
                entry = out[k, c] if b == 0 else out[k + low, high - low]
                sum_ -= factor[k, c] * entry
            out[k, b] = sum_


@inner
def times(band, x, out):
    """Write B x for a symmetric band."""
    d, width = band.shape
    for k in range(d):
        out[k] = band[k, 0] * x[k]
    for k in range(d):
        for b in range(1, min(width, d - k)):
            out[k] += band[k, b] * x[k + b]
            out[k + b] += band[k, b] * x[k]


@inner
def band_dot(left, right):
    """Return the sum of the products of all entries of two symmetric bands."""
    out = 0.0
    for k in range(left.shape[0]):
        out += left[k, 0] * right[k, 0]
        for b in range(1, left.shape[1]):
            out += 2.0 * left[k, b] * right[k, b]
    return out
