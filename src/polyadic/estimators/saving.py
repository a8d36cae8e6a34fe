"""Write a fitted estimator to one file (`polyadic.estimators.loading` reads it).

The header holds the class, the constructor parameters, the loss and the plan without its times
(from format 3 on), columns, maps, and the names of arrays. The arrays:

    factors.n  (d_n, K)     intercept  (L,)
    blocks.n.*              of a merged CP model instead of its factors, from format 4 on
    weights  (R, L)         of a CP model, and additive.n  (d_n, L), if any
    extras.n                of a network, in the shapes of its format, and multiplier  (L,)
    center, scale  (L,)     of the target
    trees.*                 nodes, values and maps of trees, if any
    maps.n.*                what the map of column n has learnt
    columns.n.categories    the categories of column n, a JSON text in UTF-8
    classes                 of a classifier
    history.m.*             the learning curves of member m
    marginals.n.*           the marginal of column n, for explanations, from format 2 on

Nothing in the file is code, and no class is imported by a name found in it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyadic.estimators import validation
from polyadic.io import parts
from polyadic.io.arrays import check_finite
from polyadic.io.files import write_file
from polyadic.io.plain import pack, pack_labels
from polyadic.io.trees import pack_trees
from polyadic.kernels.trees import one_way
from polyadic.networks.trees import Trees
from polyadic.training.missing import average_trees, averages_are_cheap
from polyadic.training.model import FittedModel, classes_of, known_marginals
from polyadic.training.plan import PlanSummary

# What a fitted model keeps besides columns, maps, cores, history and classes, by its name in a
# file: plain values in the header, for the models that have them, and arrays (L,).
PLAIN = {
    "n_iter": "n_iter_",
    "flat_target": "_flat_target",
    "loss": "loss_",
    "interaction": "interaction_",
    "target_names": "target_names_",
    "configuration": "configuration_",
}
ARRAYS = {"center": "_center", "scale": "_scale"}


def save(model: FittedModel, path: str | os.PathLike) -> None:
    """Write a fitted model to one file, whole or not at all.

    A generator passed as `random_state` and the moments that `partial_fit` keeps are not saved;
    NumPy scalars become plain numbers. The same model gives the same bytes every time.

    Parameters
    ----------
    model : CPRegressor, CPClassifier, TNRegressor or TNClassifier
    path : str or path
        An existing file is replaced once the new one is complete.
    """
    if not type(model).__module__.startswith("polyadic.estimators."):
        raise TypeError(
            "A model file holds one of polyadic's own estimators, not one of a class derived from "
            f"them; got an instance of {type(model).__name__}."
        )
    check_is_fitted(model, "tensor_")
    validation.check(model)
    header, arrays = describe(model)
    write_file(path, header, arrays, parts.least_bytes(model.tensor_, arrays))


def describe(model: FittedModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the arrays of a fitted model."""
    tensor, arrays = parts.pack_cores(model.tensor_)
    arrays |= {name: getattr(model, attribute) for name, attribute in ARRAYS.items()}
    trees = model.tensor_.trees
    marginals, moments = parts.pack_marginals(known_marginals(model) or [])
    splits: dict[str, Any] = {}
    if trees is not None:
        splits, nodes = pack_trees(trees, not (marginals and _shares_follow(model, trees)))
        arrays |= nodes
    check_finite(arrays)
    columns, texts = parts.pack_columns(model.columns_)
    maps, learnt = parts.pack_maps(model.maps_)
    history, curves = parts.pack_history(model.history_)
    params = model.get_params(deep=False)
    if not isinstance(params["random_state"], Integral):
        params["random_state"] = None
    header = {
        "class": type(model).__name__,
        "params": pack(params),
        "columns": columns,
        "maps": maps,
        "tensor": tensor,
        "history": history,
        "marginals": marginals,
        "plan": _pack_plan(getattr(model, "plan_", None)),
    }
    if trees is not None:
        header["trees"] = splits
    header |= {k: pack(getattr(model, a)) for k, a in PLAIN.items() if hasattr(model, a)}
    classes = classes_of(model)
    if classes is not None:
        header["labels"], arrays["classes"] = pack_labels(classes)
    return header, arrays | texts | learnt | curves | moments


def _shares_follow(model: FittedModel, trees: Trees) -> bool:
    """Tell whether the marginals give the shares of missing values, soon and to the last bit."""
    if not averages_are_cheap(model.maps_, trees, known_marginals(model) or []):
        return False
    plain = replace(trees, nodes=trees.nodes._replace(share=one_way(len(trees.value))))
    found = average_trees(model.maps_, plain, known_marginals(model) or [])
    return np.array_equal(found.nodes.share, trees.nodes.share)


def _pack_plan(plan: PlanSummary | None) -> Any:
    """Return the choices and the trials of a plan; a model from an older file has none."""
    if plan is None:
        return None
    return pack({"choices": list(plan.choices), "trials": list(plan.trials)})
