"""The rule of predictions: finite input gives a finite prediction, or an error that says why.

A fit looks at its own training rows: a model that cannot predict them has diverged.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from polyadic.data.columns import Columns
from polyadic.data.rows import CodedRows
from polyadic.maps.base import FeatureMap
from polyadic.networks.cores import Cores
from polyadic.networks.cp import CPCores
from polyadic.training.merge import Member
from polyadic.training.model import known_marginals

# Logarithm of the largest product of factors that counts as safe, and the largest number that may
# be multiplied by it, or added: float32, of the factors, ends at exp(88.7), and float64 at 1e308.
# The rest is for numbers of terms and for rounding. Chosen by hand.
_SAFE_LOG, _SAFE_SIZE = 75.0, 1e250


def check_finite_raw(model: Any, X: Any, raw: np.ndarray) -> np.ndarray:
    """Return raw predictions (n, L) of a table; refuse them where one is infinite or NaN.

    A class, or a probability, would be made from it as from any other number.
    """
    if np.isfinite(raw).all():
        return raw
    bad = np.flatnonzero(~np.isfinite(raw).all(axis=1))
    others = f", and {len(bad) - 1} other rows" if len(bad) > 1 else ""
    raise ValueError(
        f"Row {bad[0]} of X{others} cannot be predicted: the prediction is beyond the range of "
        f"numbers.{_furthest(model.columns_, known_marginals(model) or [], X, int(bad[0]))} Maps "
        "without bounds, such as Polynomial, grow without end outside of the training range. Drop "
        "or clip such values, or fit with a map that stays at its border, such as 'hat' or "
        "Polynomial(normalize=True)."
    )


def _furthest(columns: Columns, marginals: list, X: Any, row: int) -> str:
    """Return which number of a row is furthest from those of the training rows."""
    found = []
    for column, marginal, x in zip(columns.columns, marginals, columns.code(X)):
        ends = marginal.quantiles
        if column.categories is None and len(ends) and not np.isnan(x[row]):
            low, high, value = float(ends[0]), float(ends[-1]), float(x[row])
            width = max(high / 2 - low / 2, 1e-300)  # halved first: no overflow
            beyond = max(low / 2 - value / 2, value / 2 - high / 2)
            found.append((beyond / width, column.name, value, low, high))
    if not found or max(found)[0] <= 0:
        return ""
    _, name, value, low, high = max(found)
    return (
        f" Its column {name!r} is {value:.6g}, and was from {low:.6g} to {high:.6g} in the "
        "training rows."
    )


def set_finite_model(
    model: Any, members: Sequence[Member], rows: CodedRows, order: Sequence[int] | None
) -> Sequence[Member]:
    """Set maps and cores to members that predict finite numbers for the training rows; return them.

    Members that diverged unnoticed are left out, with a warning. Where no member is left, the fit
    is refused. `rows` are the training rows, or the sample of them that is in memory, with columns
    in the order of the table; `order` is the one that training took.
    """
    model._set_model(members, order)
    if predicts(model, rows):
        return members
    kept = []
    for member in members if len(members) > 1 else ():
        model._set_model([member], order)
        if predicts(model, rows):
            kept.append(member)
    if kept:
        model._set_model(kept, order)
    if not kept or not predicts(model, rows):
        raise ValueError(
            f"Training diverged: the model of these {len(rows)} distinct rows predicts numbers "
            f"for them that are beyond the range of numbers. The fit had {_given(model)}. Choose a "
            "map with bounds, such as 'hat' or Polynomial(normalize=True), or a lower degree; "
            "lower learning_rate or order_alpha; or clip the largest values of the columns."
        )
    warnings.warn(
        f"Training diverged in {len(members) - len(kept)} of {len(members)} members, which are "
        "left out: their predictions of training rows are beyond the range of numbers. The fit "
        f"had {_given(model)}. Lower learning_rate, or choose a map with bounds, such as 'hat'.",
        ConvergenceWarning,
        stacklevel=4,
    )
    return kept


def predicts(model: Any, rows: CodedRows) -> bool:
    """Tell whether the predictions of these rows are finite."""
    if always_finite(model.maps_, model.tensor_):
        return True
    return all(np.isfinite(raw).all() for raw in model._evaluate_rows(rows.columns))


def _given(model: Any) -> str:
    """Return the parameters that may be at fault."""
    names = ["maps", "learning_rate"] + ["order_alpha"] * (model.order_alpha > 0)
    return ", ".join(f"{name}={getattr(model, name)!r:.200}" for name in names)


def always_finite(maps: Sequence[FeatureMap], cores: Cores) -> bool:
    """Tell whether cores alone show that every prediction is finite.

    The elements of the package's local maps are from zero to one and add up to one, or are all zero
    for a missing value, so that a factor is no larger than its largest entry plus the constant. A
    product is no larger than that of those entries that are above one.

    >>> from polyadic.maps import Hat, Polynomial
    >>> x = np.arange(3.0)
    >>> cores = CPCores([np.ones((4, 2))], np.ones((2, 1)), np.zeros(1))
    >>> always_finite([Hat(3).fit(x)], cores), always_finite([Polynomial(4).fit(x)], cores)
    (True, False)
    """
    if not isinstance(cores, CPCores) or not all(map(_is_local, maps)):
        return False
    others = [cores.weights, cores.intercept, *(cores.additive or ())]
    if cores.trees is not None:
        others.append(cores.trees.value)
    # Comparisons with NaN are false.
    if not all(np.abs(array).max(initial=0.0) <= _SAFE_SIZE for array in others):
        return False
    logs = np.zeros(cores.rank)
    for factor in cores.factors:
        logs += np.log(np.maximum(_largest(factor), 1.0))
    return bool(logs.max() <= _SAFE_LOG)


def _is_local(own: FeatureMap) -> bool:
    """Tell whether a map of the package has elements that add up to one."""
    return own.partition and type(own).__module__.startswith("polyadic.maps.")


def _largest(core: np.ndarray) -> np.ndarray:
    """Return the largest size of phi' a over all phi of a local map, (K,) from (d, K)."""
    size = np.abs(core)
    return size[0] + (size[1:].max(axis=0) if len(size) > 1 else 0.0)
