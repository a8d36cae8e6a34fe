"""Where two models differ: the difference of two CP models is a CP model, and is read as one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyadic.data.tables import listing
from polyadic.explain.anova import Term, Terms
from polyadic.explain.effects import Effects, effects_of
from polyadic.explain.known import marginals_with
from polyadic.explain.listing import Listing, aligned_percent, amount, number
from polyadic.explain.outputs import centring, class_list, is_relative
from polyadic.explain.reading import Reading
from polyadic.explain.union import combine, write_both
from polyadic.explain.wrapped import pass_steps, unwrap
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel, output_names, target_of

# A difference whose variance is below this share of the models' own is zero: its size is 3e-7 of
# theirs, the rounding of the single precision in which models predict.
_ROUNDING = 1e-13
# Chosen by hand: terms of an order are listed if they are not more than the first number, and if
# they take, with the squared number of terms of the model, less than the second.
_MOST_SETS, _MOST_WORK = 200_000, 4e9
_TOP = 10  # interactions that are kept


@dataclass(frozen=True, repr=False)
class Comparison(Listing):
    """How two models differ, over one product of marginals; prints itself as a table.

    Attributes
    ----------
    columns : list of N str
    outputs : list of L str
    variance : float
        Variance of a - b, before the link, summed over the outputs.
    share : float
        The same as a share of the variance of a; it can be above one.
    mean : (L,)
        Mean of a less mean of b.
    correlation : float
        Of both raw predictions, over all outputs; NaN if one of them is constant.
    main : (N,)
        Variance of the difference of the main effects.
    total : (N,)
        Share of `variance` due to all terms that a column has a part in; these add up to more than
        one.
    largest : (N,)
        The largest difference, a less b, of both curves of a column, on the grid of `effects`.
    at : list of N
        The value of the column where it is; None where no value is known.
    at_output : (N,) int
        The output that it is of.
    interactions : Terms
        The strongest terms of two or three columns of the difference, and the share of each order.
    effects : (Effects, Effects)
        The main effects of a and of b on the same grid.
    """

    columns: list[str]
    outputs: list[str]
    variance: float
    share: float
    mean: np.ndarray
    correlation: float
    main: np.ndarray
    total: np.ndarray
    largest: np.ndarray
    at: list[Any]
    at_output: np.ndarray
    interactions: Terms
    effects: tuple[Effects, Effects]

    @property
    def rms(self) -> float:
        """Root mean square of a - b, its mean included: the L2 distance of the models."""
        return math.sqrt(self.variance + float(np.sum(self.mean**2)))

    def table(self) -> dict[str, list[Any]]:
        """Return what each column adds to the difference, most first."""
        order = np.lexsort((-self.main, -self.total))
        out = {
            "column": [self.columns[n] for n in order],
            "main std": np.sqrt(self.main[order]).tolist(),
            "total share": self.total[order].tolist(),
            "largest difference": self.largest[order].tolist(),
            "at": [amount(self.at[n]) for n in order],
        }
        if len(self.outputs) > 1:
            out["output"] = [self.outputs[k] for k in self.at_output[order]]
        return out

    def footer(self) -> str:
        """Return the size of the difference, and its strongest interactions."""
        mean = ", ".join(number(m, 3, signed=True) for m in self.mean[:4]) + (
            " ..." if self.mean[4:].size else ""
        )
        lines = [
            f"The difference has the standard deviation {number(math.sqrt(self.variance), 3)}, "
            f"{aligned_percent(self.share)} of the variance of a, and the mean {mean}. "
            f"Correlation: {self.correlation:.4g}."
        ]
        shown = [row for row in self.interactions.rows[:3] if row.share >= 5e-4]
        if shown:
            told = [f"{' * '.join(row.columns)} {aligned_percent(row.share)}" for row in shown]
            lines.append(f"Interactions that differ: {', '.join(told)}.")
        return "\n".join(lines)


def compare(a: FittedModel, b: FittedModel, background: Any = None) -> Comparison:
    """Return where two fitted CP models differ, and by how much.

    The difference of their raw predictions is itself a CP model, with the terms of both. So its
    variance, and the part of each column in it, are closed forms.

    Parameters
    ----------
    a, b : fitted CPRegressor or CPClassifier
        Models of the same columns and outputs, and with the same link. Their maps, categories and
        trees may differ.
    background : table, optional
        The difference is averaged over the marginals of its columns, taken as independent; by
        default over those of a's training table. A model keeps of that only the moments of its own
        elements. They are not enough if b has other knots, except for columns that are categorical
        or have a knot of a on every value: then a table is needed here.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> settings = {"maps": "polynomial", "n_members": 1, "random_state": 0}
    >>> a = CPRegressor(**settings).fit(X, X[:, 0] + X[:, 1] * X[:, 2])
    >>> b = CPRegressor(**settings).fit(X, X[:, 0])
    >>> found = compare(a, b)
    >>> found.table()["column"][2], found.interactions.rows[0].columns
    ('x0', ('x1', 'x2'))
    """
    a, b = unwrap(a), unwrap(b)
    check_comparable(a, b)
    if background is not None:
        background = pass_steps(a, background)
    both = write_both(a, b)
    if is_relative(a):
        matrix = centring(a.tensor_.n_outputs)
        both = both[0].weigh_outputs(matrix), both[1].weigh_outputs(matrix)
    difference = combine(*both, (1.0, -1.0))
    marginals = marginals_with(a, difference.columns_, difference.explained, background)
    first, second, rest = (one.read(marginals) for one in (*both, difference))
    of_a, of_b = first.total_variance(), second.total_variance()
    variance = rest.total_variance()
    if variance <= _ROUNDING * (of_a + of_b):
        variance = 0.0
    unit = variance if variance > 0 else np.inf
    main, found = _list_terms(rest, variance, difference.tensor_.rank)
    names = output_names(a)
    jumps = [np.union1d(first.jumps(n), second.jumps(n)) for n in range(rest.n_columns)]
    classes = class_list(a)
    effects = effects_of(first, names, classes, jumps), effects_of(second, names, classes, jumps)
    effects = replace(effects[0], target=target_of(a)), replace(effects[1], target=target_of(b))
    largest = [_largest(*pair) for pair in zip(*(e.values for e in effects), effects[0].grid)]
    scale = math.sqrt(of_a * of_b)
    return Comparison(
        columns=difference.columns_.names,
        outputs=names,
        variance=variance,
        share=variance / of_a if of_a > 0 else (math.inf if variance > 0 else 0.0),
        mean=rest.base(),
        correlation=(of_a + of_b - variance) / (2.0 * scale) if scale > 0 else math.nan,
        main=main,
        total=rest.column_variances() / unit,
        largest=np.array([value for value, _, _ in largest]),
        at=[point for _, point, _ in largest],
        at_output=np.array([output for _, _, output in largest]),
        interactions=found,
        effects=effects,
    )


def distance(a: FittedModel, b: FittedModel, background: Any = None) -> float:
    """Return the root of E (a - b)^2, summed over outputs, as `compare` does, and nothing else."""
    check_comparable(a, b)
    difference = combine(*write_both(a, b), (1.0, -1.0))
    marginals = marginals_with(a, difference.columns_, difference.explained, background)
    rest = difference.read(marginals)
    return math.sqrt(rest.total_variance() + float(np.sum(rest.base() ** 2)))


def cp_cores(model: FittedModel, done: str) -> CPCores:
    """Return the cores of a fitted CP model; refuse any other, and say what is `done` to a CP."""
    check_is_fitted(model, "tensor_")
    if not isinstance(model.tensor_, CPCores):
        raise TypeError(
            f"Only models in CP format are {done}: CPRegressor and CPClassifier. Got a "
            f"{type(model).__name__} in the format {model.tensor_.name!r}."
        )
    return model.tensor_


def check_comparable(a: FittedModel, b: FittedModel) -> None:
    """Refuse models whose raw predictions are not two functions of the same kind."""
    for model in (a, b):
        cp_cores(model, "compared")
    _check_columns(a, b)
    pairs = {
        "outputs": (a.tensor_.n_outputs, b.tensor_.n_outputs),
        "classes": (class_list(a), class_list(b)),
        "links": (a.loss_.link_name, b.loss_.link_name),
    }
    for what, (own, other) in pairs.items():
        if own != other:
            raise ValueError(
                f"The models have different {what}: {own!r:.80} and {other!r:.80}. Only models of "
                "the same target, with the same link, are compared."
            )


def _check_columns(a: FittedModel, b: FittedModel) -> None:
    known = [{c.name: c.kind for c in model.columns_.columns} for model in (a, b)]
    for own, other, name in ((known[0], known[1], "a"), (known[1], known[0], "b")):
        alone = [column for column in own if column not in other]
        if alone:
            raise ValueError(
                f"The models have different columns: only {name} has {listing(alone)}. Fit both "
                "on tables with the same columns."
            )
    for column, kind in known[0].items():
        if kind != known[1][column]:
            raise ValueError(
                f"Column {column!r} is {kind} in a and {known[1][column]} in b. Set "
                "categorical_features so that both models agree."
            )


def _largest(a: np.ndarray, b: np.ndarray, grid: np.ndarray) -> tuple[float, Any, int]:
    """Return the largest difference of two curves, (k, L) each, where it is, and its output."""
    if len(grid) == 0:
        return 0.0, None, 0
    gap = a - b
    point, output = np.unravel_index(np.argmax(np.abs(gap)), gap.shape)
    return float(gap[point, output]), grid[point], int(output)


def _list_terms(reading: Reading, total: float, rank: int) -> tuple[np.ndarray, Terms]:
    """Return the variances of single columns, and the strongest terms of two or three columns.

    As far as listing them is cheap.
    """
    n_columns, order, count = reading.n_columns, 1, reading.n_columns
    for k in range(2, min(3, n_columns) + 1):
        count += math.comb(n_columns, k)
        if count > _MOST_SETS or count * float(rank) ** 2 > _MOST_WORK:
            break
        order = k
    names = [column.name for column in reading.columns]
    unit = total if total > 0 else math.inf
    by_order, main, rows = np.zeros(order), np.zeros(n_columns), []
    for term, variance in reading.variances(order):
        by_order[len(term) - 1] += variance
        if len(term) == 1:
            main[term[0]] = variance if total > 0 else 0.0
        else:
            rows.append(Term(tuple(names[n] for n in term), variance, variance / unit))
    strongest = sorted(rows, key=lambda row: -row.variance)[:_TOP]
    terms = Terms(strongest, total, (by_order / unit).tolist(), len(rows), least_order=2)
    return main, terms
