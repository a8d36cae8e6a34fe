"""Marginals of elements that a model was not trained with, from those that it keeps.

A fitted model keeps the moments of its own elements, not the rows. They tell the moments of other
elements in three cases: the others are among its own; the column is categorical; or every row lies
on a knot, so that the moments of hats are the shares of the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from polyadic.data.columns import Column, Columns
from polyadic.data.marginals import Marginal, learn
from polyadic.explain.models import check_finite, marginals_over
from polyadic.maps import Hat
from polyadic.maps.base import FeatureMap
from polyadic.maps.beside import Beside
from polyadic.training.model import FittedModel, explained_maps


def marginals_with(
    model: FittedModel, columns: Columns, maps: Sequence[FeatureMap], background: Any = None
) -> list[Marginal]:
    """Return the marginals of a model's training table, or of a table, for the elements of `maps`.

    Parameters
    ----------
    model : fitted estimator
    columns : Columns
        The columns of the model, perhaps with further categories.
    maps : list of N FeatureMap
    background : table, optional
    """
    if background is not None:
        coded = columns.code(background, estimator_name=type(model).__name__)
        if len(coded[0]) == 0:
            raise ValueError("The table has no rows: at least one is needed for an explanation.")
        out = learn(columns.columns, maps, coded)
    else:
        known = marginals_over(model)
        own = explained_maps(model.maps_, model.tensor_)
        parts = zip(columns.columns, maps, model.columns_.columns, own, known)
        out = [_infer(*part) for part in parts]
    check_finite(out)
    return out


def _infer(
    column: Column, wanted: FeatureMap, own_column: Column, own: FeatureMap, marginal: Marginal
) -> Marginal:
    """Return the marginal of one column for the elements of a wanted map."""
    if column.categories is None:
        chosen = _choose(wanted, own)
        if chosen is not None:
            return _restrict(marginal, chosen)
    found = _points(column, own_column, own, marginal)
    if found is None:
        raise ValueError(
            f"The model keeps the moments of {_name(own)} over column {column.name!r}, which do "
            f"not tell those of {_name(wanted)}. Pass the table to average over, such as "
            "the training table."
        )
    points, share = found
    (out,) = learn([column], [wanted], [points], share)
    return replace(out, quantiles=marginal.quantiles, weight=marginal.weight)


def _name(feature_map: FeatureMap) -> str:
    """Name the maps that stand side by side."""
    return " and ".join(dict.fromkeys(repr(part) for part, _ in _atoms(feature_map)))


def _atoms(feature_map: FeatureMap, shift: int = 1) -> Iterator[tuple[FeatureMap, int]]:
    """Yield the maps that stand side by side; element k of one is feature k + shift of a design."""
    if isinstance(feature_map, Beside):
        yield from _atoms(feature_map.first, shift)
        yield from _atoms(feature_map.second, shift + feature_map.shift)
    else:
        yield feature_map, shift


def _choose(wanted: FeatureMap, own: FeatureMap) -> np.ndarray | None:
    """Return which features of a design are those of a wanted map, (1 + d,), -1 for none.

    None, if some are not among them.
    """
    out = np.full(1 + wanted.dim, -1, np.int64)
    out[0] = 0
    known = list(_atoms(own))
    for part, shift in _atoms(wanted):
        same = [at for other, at in known if part.same_as(other)]
        if not same:
            return None
        elements = np.arange(int(part.constant), part.dim)
        out[shift + elements] = same[0] + elements
    return out


def _restrict(marginal: Marginal, chosen: np.ndarray) -> Marginal:
    """Return the marginal of chosen features; those that are -1 are always zero."""
    kept = chosen >= 0
    place = sparse.csr_array(
        (np.ones(kept.sum()), (np.flatnonzero(kept), chosen[kept])),
        shape=(len(chosen), len(marginal.mean)),
    )
    second = sparse.csr_array(place @ marginal.second @ place.T)
    return replace(marginal, mean=place @ marginal.mean, second=second)


def _points(
    column: Column, own_column: Column, own: FeatureMap, marginal: Marginal
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the values that a column takes, coded, and their shares; None if they are not known.

    The last value is a missing one.
    """
    if own_column.categories is not None:
        codes = [column.code_of.get(category, -1) for category in own_column.categories]
        points: np.ndarray = np.array([*codes, -1], dtype=np.int64)
        return _taken(points, np.append(marginal.shares, marginal.missing))
    for part, shift in _atoms(own):
        if isinstance(part, Hat):
            at = shift + np.arange(1, part.dim)
            between = sparse.triu(marginal.second[at][:, at], 1)
            ends = marginal.quantiles[[0, -1]] if len(marginal.quantiles) else part.knots_[[0, -1]]
            inside = part.knots_[0] <= ends[0] and ends[1] <= part.knots_[-1]
            if inside and not np.any(between.data > 0):
                share = np.append(marginal.mean[at], marginal.missing)
                return _taken(np.append(part.knots_, np.nan), share)
    return None


def _taken(points: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave out the points that no row has."""
    return points[share > 0], share[share > 0]
