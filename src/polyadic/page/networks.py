"""A fitted tensor network of a format other than CP as plain JSON values, for networks.js.

The page turns each column into its part, the K numbers phi_n(x_n)' core_n, and contracts the parts
as the format does. Shapley values need only that the contraction is affine in every part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic.data.marginals import Marginal, full_core
from polyadic.explain.networks import weighed
from polyadic.explain.reading import quadrature
from polyadic.maps import FeatureMap
from polyadic.networks.cores import NetworkCores
from polyadic.page.payload import column_parts, encode_array


def network_payload(
    cores: NetworkCores,
    maps: list[FeatureMap],
    marginals: list[Marginal],
    kept: list[np.ndarray | None],
) -> dict[str, Any]:
    """Return all that the page needs in order to predict and explain a row; as `model_payload`."""
    full, extras = weighed(cores, [full_core(*own) for own in zip(maps, cores.factors)])
    means = [m.mean @ core for m, core in zip(marginals, full)]
    form = cores.format
    degree = min(len(maps), form.order) if form.by_order else len(maps)
    nodes, shares = quadrature(degree - 1)
    return {
        "format": cores.name,
        "rank": cores.rank,
        "order": cores.order,
        "width": form.width,
        "outputs": cores.n_outputs,
        "intercept": encode_array(cores.intercept),
        "columns": [
            {"parts": column_parts(own, _short_core(own, core), codes, "<f8"), "additive": []}
            for own, core, codes in zip(maps, full, kept)
        ],
        "extras": [encode_array(extra) for extra in extras],
        "means": encode_array(np.concatenate(means)),
        "nodes": encode_array(nodes),
        "node_weights": encode_array(shares),
        "trees": None,
    }


def _short_core(own: FeatureMap, core: np.ndarray) -> np.ndarray:
    """Undo `full_core`: return the core of the map's own elements, the constant first."""
    return np.vstack([core[:1], core[2:]]) if own.constant else core[1:]
