"""What the footer of the page says about a model: its kind, size, training rows and settings."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import numpy as np

from polyadic.data.marginals import Marginal
from polyadic.networks.cores import Cores, NetworkCores
from polyadic.networks.cp import CPCores
from polyadic.page.payload import map_name
from polyadic.training.model import FittedModel, classes_of, known_marginals

# The names of the formats in a sentence.
_FORMATS = {
    "tt": "a Tensor Train",
    "tr": "a Tensor Ring",
    "ht": "a Hierarchical Tucker tree",
    "tucker": "a Tucker decomposition",
    "fm": "a factorization machine",
    "pn": "a polynomial network",
}


def summary(model: FittedModel) -> str:
    """Describe the model in two sentences."""
    cores = model.tensor_
    kind = _network(cores) if isinstance(cores, NetworkCores) else _products(model, cores)
    return f"A {type(model).__name__}: {kind}. The whole model is in this page."


def _network(cores: NetworkCores) -> str:
    order = f" and order {cores.order}" if cores.format.by_order else ""
    kind = _FORMATS.get(cores.name, f"a tensor network of format {cores.name!r}")
    return f"{kind} of rank {cores.rank}{order}"


def _products(model: FittedModel, cores: CPCores) -> str:
    rank, n_members = cores.rank, len(model.history_)
    merged, products = "", f"a sum of {count(rank)} products of one function per column"
    if n_members > 1 and rank % n_members == 0:
        merged = f", merged from {n_members} members of rank {rank // n_members}"
    additive = " and an additive part" if cores.additive is not None else ""
    if cores.trees is not None:
        leaves = f"{count(len(cores.trees.leaves))} leaves of {count(len(cores.trees))} trees"
        if n_members == 0 and not np.any(cores.weights):  # a model of another library
            products = f"a sum of {leaves}, each a product of one function per column"
        else:
            additive += f", and {leaves}"
    return f"{products}{merged}{additive}"


def facts(model: FittedModel, known: list[Marginal], n_rows: int) -> list[list[str]]:
    """Return names and texts of the facts about the model."""
    kinds = Counter(column.kind for column in model.columns_.columns)
    maps = Counter(map_name(own) for own in model.maps_)
    classes = classes_of(model)
    task = "Regression" if classes is None else f"{len(classes)} classes"
    return [
        ["Task", f"{task}, {_spaced(type(model.loss_).__name__)} loss"],
        ["Columns", ", ".join(f"{count(n)} {kind}" for kind, n in sorted(kinds.items()))],
        ["Maps", ", ".join(f"{count(n)} {name}" for name, n in sorted(maps.items()))],
        ["Parameters", count(_n_parameters(model.tensor_))],
        _training_rows(model, known[0].weight),
        ["Rows passed", count(n_rows)],
        ["Settings", _settings(model)],
    ]


def count(n: int) -> str:
    """Write a whole number as `format` in elements.js does.

    >>> count(4128), count(13208)
    ('4128', '13,208')
    """
    return f"{n:,}" if n >= 10_000 else str(n)


def _n_parameters(cores: Cores) -> int:
    if isinstance(cores, NetworkCores):
        return sum(a.size for a in [*cores.factors, *cores.extras])
    n = sum(a.size for a in [*cores.factors, *(cores.additive or []), cores.weights])
    if cores.trees is not None:
        n += len(cores.trees.leaves.column) * 2 + cores.trees.leaves.value.size
    return n


def _training_rows(model: FittedModel, weight: float) -> list[str]:
    """Return how many rows the model was trained on: rows count by their sample weights."""
    if known_marginals(model) is None:
        return ["Training rows", "unknown"]
    if float(weight).is_integer():
        return ["Training rows", count(int(weight))]
    return ["Sum of training weights", f"{weight:,.12g}" if weight >= 10_000 else f"{weight:.12g}"]


def _spaced(name: str) -> str:
    """Return a class name as words.

    >>> _spaced("SquaredError")
    'squared error'
    """
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def _settings(model: FittedModel) -> str:
    """Return the constructor parameters that are not the defaults."""
    usual = {k: p.default for k, p in inspect.signature(type(model)).parameters.items()}
    quiet = {"verbose", "n_jobs"}
    given: dict[str, Any] = model.get_params(deep=False)
    changed = [
        f"{k}={v!r}" for k, v in given.items() if k not in quiet and repr(v) != repr(usual.get(k))
    ]
    return ", ".join(changed) or "defaults"
