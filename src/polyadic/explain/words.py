"""Describe a model, or one prediction, in a few plain sentences."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from polyadic.data.tables import is_missing
from polyadic.explain.anova import Terms, terms
from polyadic.explain.effects import Effects, effects
from polyadic.explain.listing import Numbers, amount, percent
from polyadic.explain.listing import number as plain_number
from polyadic.explain.outputs import is_relative
from polyadic.explain.row import code_row
from polyadic.explain.shapley import explain_coded
from polyadic.explain.wrapped import unwrap
from polyadic.training.model import FittedModel, classes_of, target_of

# Chosen by hand:
_LEAST_SHARE = 0.001  # of the variance; weaker terms get no sentence
_MOST_OUTPUTS = 2  # of many classes, that a sentence tells of
_LEAST_WIDTH = 0.5  # share of the widest effect; weaker outputs are not told of
_WIGGLE = 0.1  # share of its range by which a monotone effect may go against its direction
_OVERALL = 0.9  # share of an effect's variance that a monotone curve explains, if it is overall one


def in_words(model: FittedModel, top: int = 5, background: Any = None) -> list[str]:
    """Describe the strongest effects and interactions, in up to `top` sentences.

    Shares are of the variance of the model under the product of the columns' marginals, as in
    `terms`; effects are those of `effects`, between the 5 % and the 95 % quantile of a
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
    model = unwrap(model)
    found = effects(model, background)
    return sentences(found, terms(model, 2, top, background), _outcome(model))


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
    model = unwrap(model)
    found = explain_coded(model, code_row(model, row), background)
    raw = found.base + found.values[0].sum(axis=0)
    k = int(np.argmax(raw)) if output is None else found.find_output(output)
    own = found.values[0, :, k]
    parts = [_opening(model, raw, found.base, k, chosen=output is not None)]
    order = np.argsort(-np.abs(own), kind="stable")
    number = Numbers(np.append(own, own.sum()), n_digits=3)
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


def _opening(
    model: FittedModel, raw: np.ndarray, base: np.ndarray, output: int, chosen: bool
) -> str:
    """Return the first sentence: what is predicted, and what the average is."""
    both = model.response(np.array([raw, base]))
    classes = classes_of(model)
    if classes is not None:
        label = classes.tolist()[output if len(raw) > 1 else -1]
        score = Numbers(np.array([raw[output], base[output], 0.0]))
        relative = ", relative to the mean over the classes," if is_relative(model) else ""
        return (
            f"The probability of {label!r} is {_share(both[0, output])}. Its score{relative} is "
            f"{score(raw[output])}, and {score(base[output])} on average."
        )
    number = Numbers(np.array([raw[output], base[output]]), n_digits=3)
    change = raw[output] - base[output]
    side = "above" if change >= 0 else "below"
    name = target_of(model, "response").prediction()
    what = f"The {name}" if len(raw) == 1 else f"The largest prediction, of output {output},"
    if chosen and len(raw) > 1:
        what = f"The prediction of output {output}"
    text = (
        f"{what} is {number(raw[output])}, {number(abs(change))} {side} the average of "
        f"{number(base[output])}."
    )
    if np.allclose(both, [raw, base]):
        return text
    return f"The {name} is {plain_number(both[0, output])}. On the raw scale: {text}"


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


def _adds(value: float, number: Numbers, several: bool = False) -> str:
    verb = "adds" if value >= 0 else "takes away"
    if several:
        verb = "add" if value >= 0 else "take away"
    return f"{verb} {number(abs(value))}"


def sentences(found: Effects, listed: Terms, outcome: str = "the prediction") -> list[str]:
    """Return a sentence for each term; weak ones are left out."""
    out = []
    for columns, _, share in listed.rows:
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
    return f"the {target_of(model).prediction()}"


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
        if ends is None:
            told.append(_categories(grid, values[:, k], what))
        else:
            rows = _rows_near(grid, found.edges[n], found.density[n])
            told.append(_curve(grid, values[:, k], what, rows))
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
    effect = Numbers(y, signed=True)
    low, high = np.argmin(y), np.argmax(y)
    return (
        f"moves {outcome} from {effect(y[low])} for {names[low]!r} "
        f"to {effect(y[high])} for {names[high]!r}"
    )


def _rows_near(x: np.ndarray, edges: np.ndarray | None, density: np.ndarray) -> np.ndarray:
    """Return the share of the rows that is nearest to each of the ascending points x : (k,)."""
    assert edges is not None  # of a numeric column
    below = np.concatenate([[0.0], np.cumsum(density)])
    middle = (x[1:] + x[:-1]) / 2
    return np.diff(np.concatenate([[0.0], np.interp(middle, edges, below), below[-1:]]))


def _curve(x: np.ndarray, y: np.ndarray, outcome: str, rows: np.ndarray) -> str:
    """Describe a function on the ascending points x : (k,), near which lie shares of the rows."""
    at, effect = Numbers(x, trim=True), Numbers(y, signed=True)

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
    overall = _trend(y, rows)
    if overall:
        verb = "raises" if overall > 0 else "lowers"
        return f"{verb} {outcome} overall: from {point(0)} to {point(-1)}"
    return f"moves {outcome} up and down, between {point(bottom)} and {point(top)}"


def _trend(y: np.ndarray, rows: np.ndarray) -> int:
    """Return 1 where y goes up overall, -1 where it goes down, 0 where it does neither.

    A curve that only goes up, or only down, must explain nearly all of its variance over the rows.
    """
    from sklearn.isotonic import isotonic_regression

    sign, weight = int(np.sign(y[-1] - y[0])), rows + 1e-12  # which must not be zero
    monotone = isotonic_regression(y, sample_weight=weight, increasing=sign > 0)
    rest = np.average((y - monotone) ** 2, weights=weight)
    whole = np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)
    return sign if rest <= (1 - _OVERALL) * whole else 0


def _direction(y: np.ndarray) -> int:
    """Return 1 where y goes up, -1 where it goes down, 0 for both; small changes do not count."""
    allowed = _WIGGLE * np.ptp(y)
    falls = np.max(np.maximum.accumulate(y) - y) > allowed
    rises = np.max(y - np.minimum.accumulate(y)) > allowed
    return int(rises) - int(falls)
