"""Turn a fitted model and a table into what explanations use: readings, coded rows, columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyadic.data import marginals as measuring
from polyadic.data.marginals import Marginal
from polyadic.explain.cp import CPReading
from polyadic.explain.joined import JoinedReading
from polyadic.explain.networks import NetworkReading
from polyadic.explain.outputs import explained_cores
from polyadic.explain.reading import Reading
from polyadic.networks.cores import Cores
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel, explained_maps, known_marginals


def read(model: FittedModel, background: Any = None) -> Reading:
    """Return the reading of a fitted model over its training marginals, or those of a table.

    Scores of three or more classes are read relative to their mean: `polyadic.explain.outputs`.
    """
    check_is_fitted(model, "tensor_")
    return read_cores(model, explained_cores(model), background)


def read_cores(model: FittedModel, cores: Cores, background: Any = None) -> Reading:
    """Return the reading of a model with these cores instead of its own."""
    marginals = marginals_over(model, background)
    check_finite(marginals)
    if isinstance(cores, CPCores):
        kind = CPReading if cores.trees is None else JoinedReading
        return kind(model, cores, marginals)
    return NetworkReading(model, cores, marginals)


def check_finite(marginals: Sequence[Marginal]) -> None:
    """Refuse marginals with which nothing can be computed."""
    if not all(np.all(np.isfinite(a)) for m in marginals for a in (m.mean, m.second.data)):
        raise ValueError(
            "The map of a column gives numbers beyond the range of float64, so nothing can be "
            "averaged over it. Fit again with maps='hat', or with Polynomial(normalize=True)."
        )


def code(model: FittedModel, X: Any) -> list[np.ndarray]:
    """Return the columns of a table, coded as by the model; refuse a table without rows."""
    check_is_fitted(model, "tensor_")
    coded = model.columns_.code(X, estimator_name=type(model).__name__)
    if len(coded[0]) == 0:
        raise ValueError("The table has no rows: at least one is needed for an explanation.")
    return coded


def find_columns(known: Sequence[str], names: Sequence[Any]) -> list[int]:
    """Return the numbers of columns that are given by one of the known names, or by number."""
    out = []
    for name in names:
        if isinstance(name, int | np.integer) and not isinstance(name, bool):
            if not -len(known) <= name < len(known):
                raise ValueError(f"There is no column {name}; there are {len(known)} columns.")
            out.append(int(name) % len(known))
        elif name in known:
            out.append(known.index(name))
        else:
            listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise ValueError(f"Unknown column {name!r}. Choose from: {listed}.")
    if len(set(out)) < len(out):
        raise ValueError(f"A column is named twice in {list(names)!r}.")
    return out


def marginals_over(model: FittedModel, background: Any = None) -> list[Marginal]:
    """Return the marginals of the training table, or those of another one."""
    if background is not None:
        coded = code(model, background)
        maps = explained_maps(model.maps_, model.tensor_)
        return measuring.learn(model.columns_.columns, maps, coded)
    known = known_marginals(model)
    if known is None:
        raise ValueError(
            "This model does not know the marginals of its columns: it was saved by an earlier "
            "version. Pass a table to average over, such as background=X_train."
        )
    return known
