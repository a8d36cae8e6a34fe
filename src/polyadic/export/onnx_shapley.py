"""Exact Shapley values as ONNX operators, for CP models without trees.

    phi_i = sum_r C_r (g_ir - mu_ir) integral_0^1 prod_{j != i} (mu_jr + t (g_jr - mu_jr)) dt

by Gauss-Legendre nodes, as in `polyadic.kernels.shapley`; all nodes at once, along a first axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyadic.explain.models import marginals_over
from polyadic.explain.moments import measure
from polyadic.explain.outputs import explained_cores
from polyadic.explain.reading import quadrature
from polyadic.export.graph import ROWS, Symbol, join
from polyadic.export.onnx_maps import ColumnSlots
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel


def check_shapley(model: FittedModel) -> None:
    """Refuse a model whose Shapley values have no form in ONNX."""
    if not isinstance(model.tensor_, CPCores):
        raise ValueError(
            f"shapley=True is for models of format 'cp', got {model.tensor_.name!r}. Export "
            "without it, and use polyadic.explain.shapley."
        )
    if model.tensor_.trees is not None:
        raise ValueError(
            "shapley=True is for models without trees, and this one has trees. Fit with "
            "trees=False, or export without it and use polyadic.explain.shapley."
        )


def add_shapley(
    model: FittedModel, slots: Sequence[ColumnSlots], zeros: Symbol
) -> dict[str, Symbol]:
    """Return the Shapley values, (n, N, L), and their base, (L,)."""
    cores: Any = explained_cores(model)
    moments = measure(cores, model.maps_, marginals_over(model))
    rank, n_outputs = moments.rank, len(moments.intercept)
    means = moments.means()
    parts, additive = [], []
    for own, column in zip(slots, moments.columns):
        core = _map_core(own.own, column.core)
        parts.append(own.part(core[:, :rank], True, np.float64))
        additive.append(own.part(core[:, rank:], True, np.float64) - column.mean[rank:])
    deltas = [part - mean for part, mean in zip(parts, means)]
    values = _products(deltas, means, moments.weights, zeros)
    if moments.has_additive:
        values = [value + own for value, own in zip(values, additive)]
    shown = [(zeros + value).reshape(ROWS, 1, n_outputs) for value in values]
    base = moments.constant() + np.prod(means, axis=0) @ moments.weights
    return {"shapley": join(shown, 1), "shapley_base": zeros.graph.constant(base)}


def _map_core(own: FeatureMap, full: np.ndarray) -> np.ndarray:
    """Return the core of a map from that of its design, see `polyadic.data.marginals.full_core`."""
    return np.vstack([full[:1], full[2:]]) if own.constant else full[1:]


def _products(
    deltas: Sequence[Any], means: np.ndarray, weights: np.ndarray, zeros: Symbol
) -> list[Any]:
    """Return what each column adds to the products, (n, L); deltas : g - mu, (n, R) each."""
    nodes, node_weights = quadrature(len(deltas) - 1)
    t = zeros.graph.constant(nodes[:, None, None])
    lines = [t * delta + mean for delta, mean in zip(deltas, means)]
    left = [t * 0.0 + node_weights[:, None, None]]
    for line in lines[:-1]:
        left.append(left[-1] * line)
    right: Any = 1.0
    out: list[Any] = []
    for n in range(len(deltas) - 1, -1, -1):
        beside = (left[n] * right).sum(0)
        out.append((deltas[n] * beside + zeros * 0.0) @ weights)
        right = lines[n] * right
    return out[::-1]
