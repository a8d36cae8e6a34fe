"""How surely means over seeds differ: intervals by the paired bootstrap.

Fits of two models with the same seed are a pair. A model without randomness has one fit, which is
paired with every seed of the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95  # of all intervals


class Interval(NamedTuple):
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return both as text."""
        if not all(map(math.isfinite, self)):
            return f"{self.mean:.3g}"
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


def paired(first: Sequence[float], second: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return both; one fit alone is repeated for every seed of the other."""
    a, b = (np.array(values, dtype=float) for values in (first, second))
    if len(a) and len(b) and 1 in (len(a), len(b)):
        n = max(len(a), len(b))
        a, b = (np.repeat(v, n) if len(v) == 1 else v for v in (a, b))
    return a, b


def paired_difference(
    first: Sequence[float], second: Sequence[float], draws: int = 2000
) -> Interval:
    """Return the mean of first - second over seeds, and its 95 % interval.

    Two fits that both diverged count as equal. Where one model has more seeds than the other, they
    are drawn independently instead of in pairs. The percentiles of a bootstrap are too narrow for
    few seeds: distances from the mean are stretched as Student's t is beside the normal.

    >>> paired_difference([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    Interval(mean=0.0, low=0.0, high=0.0)
    """
    a, b = paired(first, second)
    n = min(len(a), len(b))
    if n == 0:
        return Interval(math.nan, math.nan, math.nan)
    if n == 1:  # nothing tells how much seeds differ
        return Interval(float(a.mean() - b.mean()), -math.inf, math.inf)
    rng = np.random.default_rng(0)
    with np.errstate(invalid="ignore"):
        if len(a) == len(b):
            difference = np.where(a == b, 0.0, a - b)
            mean = float(difference.mean())
            means = difference[rng.integers(n, size=(draws, n))].mean(axis=1)
        else:
            mean = float(a.mean() - b.mean())
            drawn = (v[rng.integers(len(v), size=(draws, len(v)))].mean(axis=1) for v in (a, b))
            means = next(drawn) - next(drawn)
        low, high = _ends(means, mean, n)
    return Interval(mean, low, high)


def _ends(means: np.ndarray, mean: float, n: int) -> tuple[float, float]:
    """Return the ends of the interval from the means of the draws."""
    if not math.isfinite(mean):
        return (mean, mean) if not np.isnan(means).any() else (math.nan, math.nan)
    tail = int(len(means) * (1.0 - LEVEL) / 2.0)
    level = 1.0 - (1.0 - LEVEL) / 2.0
    stretch = math.sqrt(n / (n - 1)) * stats.t.ppf(level, n - 1) / stats.norm.ppf(level)
    ordered = np.sort(means)
    low, high = (mean + stretch * (end - mean) for end in (ordered[tail], ordered[-1 - tail]))
    return float(low), float(high)


def smaller(first: Sequence[float], second: Sequence[float], by: float = 0.0) -> bool | None:
    """Tell whether the first mean is smaller, by a share of the second if given.

    True or False where the interval of the difference is on one side of zero, None elsewhere.

    >>> smaller([1.0, 1.1, 1.2], [2.0, 2.1, 2.2]), smaller([1.0, 3.0], [2.0, 2.0])
    (True, None)
    >>> smaller([1.9, 1.9], [2.0, 2.0], by=0.1)
    False
    """
    found = paired_difference(first, [(1.0 - by) * v for v in second])
    if math.isnan(found.mean):
        return None
    return True if found.high < 0 else False if found.low > 0 else None


def same(first: Sequence[float], second: Sequence[float], within: float) -> bool | None:
    """Tell whether two means differ by no more than a share of the second.

    True where the whole interval of the difference is within that share, False where it is wholly
    outside, None elsewhere.

    >>> same([1.0, 1.001, 1.0], [1.0], 0.02), same([1.5, 1.51, 1.5], [1.0], 0.02)
    (True, False)
    """
    found = paired_difference(first, second)
    margin = within * abs(float(np.mean(second))) if len(second) else math.nan
    if math.isnan(found.mean) or not math.isfinite(margin):
        return None
    if -margin <= found.low and found.high <= margin:
        return True
    return False if found.low > margin or found.high < -margin else None


def lowest(
    scores: Mapping[str, Sequence[float]], own: str, larger: bool = False
) -> tuple[str, bool | None]:
    """Return the rival with the best mean, and whether `own` is surely better than every rival.

    False where one rival is surely better than `own`.
    """
    sign = -1.0 if larger else 1.0
    signed = {name: [sign * v for v in values] for name, values in scores.items() if len(values)}
    rivals = {name: float(np.mean(values)) for name, values in signed.items() if name != own}
    if own not in signed or not rivals:
        return "", None
    rival = min(rivals, key=rivals.__getitem__)
    return rival, all_of([smaller(signed[own], signed[name]) for name in rivals])


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """Return True if all are, False if one is not, None otherwise.

    >>> all_of([True, None]), all_of([True, False]), all_of([True])
    (None, False, True)
    """
    if any(v is False for v in verdicts):
        return False
    return None if not verdicts or any(v is None for v in verdicts) else True
