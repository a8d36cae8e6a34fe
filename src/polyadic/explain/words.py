"""A model in a few plain sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic import losses
from polyadic.explain.anova import Effects, Interactions, effects, interactions

_LEAST_SHARE = 0.001  # weaker terms are not worth a sentence
_WIGGLE = 0.1  # share of its range that a monotone effect may go back


def in_words(model: Any, X: Any, top: int = 5) -> list[str]:
    """Say what the strongest effects and interactions are, in up to `top` sentences.

    Shares are of the variance of the model under the product of the marginals of X, as in
    `interactions`; effects are those of `effects`, between the 5 % and the 95 % quantile of a
    numeric column.

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(0, 10, (500, 3))
    >>> y = 2 * X[:, 0] + 0.3 * (X[:, 1] - 5) * (X[:, 2] - 5)
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0).fit(X, y)
    >>> for sentence in in_words(model, X, top=2):
    ...     print(sentence)
    x0 raises the prediction: from -9 at 0.6 to +8 at 9.4 (8... % of the variance).
    x1 and x2 act together (1... % of the variance).
    """
    found = effects(model, X)
    return sentences(found, interactions(model, X, top=top), _outcome(model))


def sentences(found: Effects, terms: Interactions, outcome: str = "the prediction") -> list[str]:
    """Put each term into a sentence; weak ones are left out."""
    out = []
    for columns, _, share in terms.rows:
        if share < _LEAST_SHARE:
            continue
        if len(columns) == 1:
            text = _effect(found, found.columns.index(columns[0]), outcome)
        else:
            text = f"{', '.join(columns[:-1])} and {columns[-1]} act together"
        out.append(f"{text} ({_percent(share)} of the variance).")
    return out


def _outcome(model: Any) -> str:
    """Return the words for what the raw prediction is."""
    if hasattr(model, "classes_"):
        return f"the score of {model.classes_.tolist()[-1]!r}"
    raw = np.array([[2.0]])
    same = np.array_equal(losses.resolve(model.loss).inverse_link(raw), raw)
    return "the prediction" if same else "the raw prediction"


def _effect(found: Effects, n: int, outcome: str) -> str:
    """Describe one main effect."""
    name, grid, ends = found.columns[n], found.grid[n], found.ends[n]
    n_outputs = found.values[n].shape[1]
    if n_outputs > 1:
        return f"{name} matters by itself, over all {n_outputs} outputs"
    value = found.values[n][:, 0]
    if ends is None:
        effect = _Numbers(value, signed=True)
        low, high = np.argmin(value), np.argmax(value)
        return (
            f"{name} moves {outcome} from {effect(value[low])} for {grid[low]!r} "
            f"to {effect(value[high])} for {grid[high]!r}"
        )
    inside = (grid >= ends[0]) & (grid <= ends[1])
    if inside.sum() < 2:  # nearly all rows have one value; the others make the effect
        inside[:] = True
    return f"{name} {_curve(grid[inside], value[inside], outcome)}"


def _curve(x: np.ndarray, y: np.ndarray, outcome: str) -> str:
    """Describe a function on the ascending points x : (k,)."""
    at, effect = _Numbers(x), _Numbers(y, signed=True)

    def point(i: int) -> str:
        return f"{effect(y[i])} at {at(x[i])}"

    direction = _direction(y)
    if direction:
        verb = "raises" if direction > 0 else "lowers"
        return f"{verb} {outcome}: from {point(0)} to {point(-1)}"
    top, bottom = int(np.argmax(y)), int(np.argmin(y))
    for turn, verb, back in ((top, "raises", "lowers"), (bottom, "lowers", "raises")):
        sign = 1 if turn == top else -1
        if _direction(y[: turn + 1]) == sign and _direction(y[turn:]) == -sign:
            return (
                f"{verb} {outcome} up to {at(x[turn])} and {back} it beyond: "
                f"{point(0)}, {point(turn)}, {point(-1)}"
            )
    return f"moves {outcome} up and down, between {point(bottom)} and {point(top)}"


def _direction(y: np.ndarray) -> int:
    """Return 1 where y goes up, -1 where it goes down, 0 where it does both; wiggles are let be."""
    allowed = _WIGGLE * np.ptp(y)
    falls = np.max(np.maximum.accumulate(y) - y) > allowed
    rises = np.max(y - np.minimum.accumulate(y)) > allowed
    return int(rises) - int(falls)


class _Numbers:
    """Write numbers with the digits that their range calls for, two of it."""

    def __init__(self, values: np.ndarray, signed: bool = False):
        span = float(np.ptp(values)) or float(np.max(np.abs(values)))
        self.digits = int(np.clip(1 - np.floor(np.log10(span)), 0, 9)) if span > 0 else 0
        self.sign = "+" if signed else ""

    def __call__(self, value: float) -> str:
        rounded = round(float(value), self.digits) + 0.0  # no minus zero
        sign = self.sign if rounded else ""
        return f"{rounded:{sign},.{self.digits}f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0095 else f"{100 * share:.1f} %"
