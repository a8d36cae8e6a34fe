"""Describe a model, or one prediction, in a few plain sentences."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from polyadic.data.tables import is_missing
from polyadic.explain.anova import Interactions, interactions
from polyadic.explain.effects import Effects, code_points, effects
from polyadic.explain.listing import amount, percent
from polyadic.explain.models import code
from polyadic.explain.outputs import is_relative
from polyadic.explain.shapley import explain_coded
from polyadic.training.model import FittedModel, classes_of

# Chosen by hand:
_LEAST_SHARE = 0.001  # of the variance; weaker terms get no sentence
_MOST_DIGITS = 6  # decimals; smaller numbers are written in powers of ten
_MOST_OUTPUTS = 2  # of many classes, that a sentence tells of
_LEAST_WIDTH = 0.5  # share of the widest effect; weaker outputs are not told of
_WIGGLE = 0.1  # share of its range by which a monotone effect may go against its direction


def in_words(model: FittedModel, top: int = 5, background: Any = None) -> list[str]:
    """Describe the strongest effects and interactions, in up to `top` sentences.

    Shares are of the variance of the model under the product of the columns' marginals, as in
    `interactions`; effects are those of `effects`, between the 5 % and the 95 % quantile of a
    numeric column. Of three or more classes, a sentence tells which are moved most, and where.

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(0, 10, (500, 3))
    >>> y = 2 * X[:, 0] + 0.3 * (X[:, 1] - 5) * (X[:, 2] - 5)
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0).fit(X, y)
    >>> for sentence in in_words(model, top=2):
    ...     print(sentence)
    x0 raises the prediction: from -9 at 0... to +9 at 9... (8... % of the variance).
    x1 and x2 act together (1... % of the variance).
    """
    found = effects(model, background)
    return sentences(found, interactions(model, 2, top, background), _outcome(model))


def describe(
    model: FittedModel, row: Any, top: int = 5, background: Any = None, output: Any = None
) -> str:
    """Describe in plain English how one prediction comes about.

    The numbers are exact Shapley values, as in `shapley`.

    Parameters
    ----------
    model : fitted estimator
    row : dict, array, or table of one row
        A dict maps column names to values.
    top : int
        How many columns to name; the effects of the others are added up.
    background : table, optional
        As in `shapley`.
    output : label or int, optional
        Which of three or more classes, by its label, by default the predicted one; which of several
        numbers, by default the largest.

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(0, 10, (500, 3))
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0)
    >>> model = model.fit(X, 2 * X[:, 0] - X[:, 1])
    >>> print(describe(model, {"x0": 9.0, "x1": 2.0, "x2": 5.0}, top=2))
    The prediction is 16.0, 10.8 above the average of 5.2.
    x0 = 9 adds 7.6. x1 = 2 adds 3.1. The other column changes almost nothing.
    """
    if isinstance(top, bool) or not isinstance(top, Integral) or top < 1:
        raise ValueError(f"top must be a whole number of at least 1, got {top!r}.")
    found = explain_coded(model, _one_row(model, row), background)
    raw = found.base + found.values[0].sum(axis=0)
    k = int(np.argmax(raw)) if output is None else found.find_output(output)
    own = found.values[0, :, k]
    parts = [_opening(model, raw, found.base, k, chosen=output is not None)]
    order = np.argsort(-np.abs(own), kind="stable")
    number = _Numbers(np.append(own, own.sum()), n_digits=3)
    for n in order[:top]:
        parts.append(f"{found.columns[n]}{_holds(found.data[n][0])} {_adds(own[n], number)}.")
    rest = order[top:]
    if len(rest):
        who = "The other column" if len(rest) == 1 else f"The other {len(rest)} columns together"
        change = own[rest].sum()
        tiny = abs(change) < 0.01 * np.abs(own).sum()
        verb = _adds(change, number, several=len(rest) > 1)
        parts.append(f"{who} {_ALMOST_NOTHING[len(rest) > 1] if tiny else verb}.")
    return parts[0] + "\n" + " ".join(parts[1:])


_ALMOST_NOTHING = {False: "changes almost nothing", True: "change almost nothing"}


def _one_row(model: FittedModel, row: Any) -> list[np.ndarray]:
    """Return one row, coded, from a dict, a Series, an array or a table."""
    if hasattr(row, "to_dict") and getattr(row, "ndim", 2) == 1:  # a pandas Series
        row = row.to_dict()
    if isinstance(row, Mapping):
        absent = [c.name for c in model.columns_.columns if c.name not in row]
        if absent:
            raise ValueError(f"The row has no value for the column {absent[0]!r}. Use None or NaN.")
        pairs = ((c, row[c.name]) for c in model.columns_.columns)
        return [code_points(c, [v]) for c, v in pairs]
    if isinstance(row, np.ndarray | list | tuple) and np.ndim(row) == 1:
        row = [list(row)] if not isinstance(row, np.ndarray) else row[None]
    rows = code(model, row)
    if len(rows[0]) != 1:
        raise ValueError(
            f"describe takes one row, got {len(rows[0])}. Pass one row, such as X[:1]."
        )
    return rows


def _opening(
    model: FittedModel, raw: np.ndarray, base: np.ndarray, output: int, chosen: bool
) -> str:
    """Return the first sentence: what is predicted, and what the average is."""
    both = model.response(np.array([raw, base]))
    classes = classes_of(model)
    if classes is not None:
        label = classes.tolist()[output if len(raw) > 1 else -1]
        score = _Numbers(np.array([raw[output], base[output], 0.0]))
        relative = ", relative to the mean over the classes," if is_relative(model) else ""
        return (
            f"The probability of {label!r} is {_share(both[0, output])}. Its score{relative} is "
            f"{score(raw[output])}, and {score(base[output])} on average."
        )
    number = _Numbers(np.array([raw[output], base[output]]), n_digits=3)
    change = raw[output] - base[output]
    side = "above" if change >= 0 else "below"
    what = "The prediction" if len(raw) == 1 else f"The largest prediction, of output {output},"
    if chosen and len(raw) > 1:
        what = f"The prediction of output {output}"
    text = (
        f"{what} is {number(raw[output])}, {number(abs(change))} {side} the average of "
        f"{number(base[output])}."
    )
    if np.allclose(both, [raw, base]):
        return text
    return f"The prediction is {both[0, output]:.4g}. On the raw scale: {text}"


def _share(probability: float) -> str:
    """Write a probability in per cent; never one that is not certain as 0 or 100 %.

    >>> _share(0.123), _share(5e-9), _share(0.9999)
    ('12 %', 'below 0.1 %', 'above 99.9 %')
    """
    if min(probability, 1.0 - probability) < 5e-4:
        return "below 0.1 %" if probability < 0.5 else "above 99.9 %"
    digits = 0 if 0.05 <= probability <= 0.95 else 1
    return f"{100 * probability:.{digits}f} %"


def _holds(value: Any) -> str:
    return ", which is missing," if is_missing(value) else f" = {amount(value)}"


def _adds(value: float, number: _Numbers, several: bool = False) -> str:
    verb = "adds" if value >= 0 else "takes away"
    if several:
        verb = "add" if value >= 0 else "take away"
    return f"{verb} {number(abs(value))}"


def sentences(found: Effects, terms: Interactions, outcome: str = "the prediction") -> list[str]:
    """Return a sentence for each term; weak ones are left out."""
    out = []
    for columns, _, share in terms.rows:
        if share < _LEAST_SHARE:
            continue
        if len(columns) == 1:
            text = _effect(found, found.columns.index(columns[0]), outcome)
        else:
            text = f"{', '.join(columns[:-1])} and {columns[-1]} act together"
        out.append(f"{text} ({percent(share)} of the variance).")
    return out


def _outcome(model: FittedModel) -> str:
    """Return what to call the raw prediction in a sentence, of a single output."""
    classes = classes_of(model)
    if classes is not None:
        return f"the score of {classes.tolist()[-1]!r}"
    raw = np.array([[2.0]])
    same = np.array_equal(model.loss_.inverse_link(raw), raw)
    return "the prediction" if same else "the raw prediction"


def _effect(found: Effects, n: int, outcome: str) -> str:
    """Describe one main effect."""
    grid, ends, values = found.grid[n], found.ends[n], found.values[n]
    if ends is not None:
        inside = (grid >= ends[0]) & (grid <= ends[1])
        if inside.sum() < 2:  # nearly all rows have one value, so show all points
            inside[:] = True
        grid, values = grid[inside], values[inside]
    told = []
    for k in _strongest(values):
        what = outcome if values.shape[1] == 1 else _name_output(found, k)
        describe_one = _categories if ends is None else _curve
        told.append(describe_one(grid, values[:, k], what))
    return f"{found.columns[n]} {'; it '.join(told)}"


def _strongest(values: np.ndarray) -> np.ndarray:
    """Return the outputs that a column moves most: at most two, and none far behind."""
    width = np.ptp(values, axis=0)
    order = np.argsort(-width, kind="stable")[:_MOST_OUTPUTS]
    return order[width[order] >= _LEAST_WIDTH * width[order[0]]]


def _name_output(found: Effects, k: int) -> str:
    return found.outputs[k] if found.classes is None else f"the score of {found.classes[k]!r}"


def _categories(names: np.ndarray, y: np.ndarray, outcome: str) -> str:
    """Describe the effect of a categorical column."""
    effect = _Numbers(y, signed=True)
    low, high = np.argmin(y), np.argmax(y)
    return (
        f"moves {outcome} from {effect(y[low])} for {names[low]!r} "
        f"to {effect(y[high])} for {names[high]!r}"
    )


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
    """Return 1 where y goes up, -1 where it goes down, 0 for both; small changes do not count."""
    allowed = _WIGGLE * np.ptp(y)
    falls = np.max(np.maximum.accumulate(y) - y) > allowed
    rises = np.max(y - np.minimum.accumulate(y)) > allowed
    return int(rises) - int(falls)


class _Numbers:
    """Write numbers with as many decimals as their range needs, at least two digits of it."""

    def __init__(self, values: np.ndarray, signed: bool = False, n_digits: int = 2):
        span = float(np.ptp(values)) or float(np.max(np.abs(values)))
        self.digits = int(max(n_digits - 1 - np.floor(np.log10(span)), 0)) if span > 0 else 0
        self.sign = "+" if signed else ""

    def __call__(self, value: float) -> str:
        if self.digits > _MOST_DIGITS:
            return f"{value:{self.sign}.3g}"
        rounded = round(float(value), self.digits) + 0.0  # no minus zero
        sign = self.sign if rounded else ""
        return f"{rounded:{sign},.{self.digits}f}"
