"""The parts of a fitted model as header entries and arrays, and back.

Everything that is read is checked, since a file may be forged: names, shapes, parameters, and that
the slots of every map point into its core, since compiled code does not check them. A fault raises
ValueError, or another error of Python; `polyadic.estimators.loading` adds the path of the file.

Rebuilding a part takes its arrays from the dict that it is given (`polyadic.io.arrays`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from polyadic import networks
from polyadic.data.columns import Column, Columns
from polyadic.data.marginals import Marginal
from polyadic.io.arrays import Arrays, check_shape, take, take_floats
from polyadic.io.blocks import MOST_BYTES, factor_bytes, pack_blocks, rebuild_blocks
from polyadic.io.files import ModelFileError
from polyadic.io.plain import OWN_MAPS, FindClass, from_text, pack, to_text, unpack
from polyadic.maps import FeatureMap
from polyadic.networks.cores import Cores, NetworkCores, make_cores
from polyadic.networks.cp import CPCores
from polyadic.objective.losses import Loss

Curves = list[dict[str, list[float]]]

_LARGEST = 2**31 - 1  # of a rank or an order: no real model has more
_MOST_PROBES = 4096  # elements that a map is asked to encode, if its dimension is smaller
# What maps learn that is as long as the column has knots or categories. All else has the length
# that fitting any column gives.
_BY_COLUMN = ("knots_", "breaks_", "edges_", "lookup_")


# ---- columns -------------------------------------------------------------------------------------


def pack_columns(columns: Columns) -> tuple[dict[str, Any], Arrays]:
    """Return the entry of the columns, and their categories as JSON texts in UTF-8."""
    entry, arrays = columns.to_json(), {}
    for n, column in enumerate(entry["columns"]):
        categories = column.pop("categories")
        if column["kind"] == "categorical":
            arrays[f"columns.{n}.categories"] = to_text(categories)
    return entry, arrays


def rebuild_columns(entry: dict[str, Any], arrays: Arrays) -> Columns:
    """Rebuild names, kinds and categories."""
    columns = []
    for n, column in enumerate(entry["columns"]):
        categories = None
        if column["kind"] == "categorical":
            categories = from_text(take(arrays, f"columns.{n}.categories", (None,)))
        columns.append({**column, "categories": categories})
    return Columns.from_json({**entry, "columns": columns})


# ---- maps ----------------------------------------------------------------------------------------


def class_finder(maps: Iterable[type[FeatureMap]], losses: Iterable[type[Loss]]) -> FindClass:
    """Return a function from a name to the class of a map or loss: polyadic's or one of these."""
    known = {"map": _by_name(maps, FeatureMap, "maps"), "loss": _by_name(losses, Loss, "losses")}
    parameter = {"map": "maps", "loss": "losses"}

    def find(name: str, kind: str) -> Any:
        if "." not in name:
            if name not in OWN_MAPS:
                raise ModelFileError(
                    f"It uses the {kind} {name!r}, which this version of polyadic does not have. "
                    f"Known are: {', '.join(sorted(OWN_MAPS))}."
                )
            return OWN_MAPS[name]
        own = name.rpartition(".")[2]
        if own not in known[kind]:
            raise ModelFileError(
                f"It uses the {kind} class {name!r}, which is not part of polyadic. Import the "
                f"class and pass it: polyadic.load(path, {parameter[kind]}=[{own}])."
            )
        return known[kind][own]

    return find


def _by_name(classes: Iterable[type], base: type, parameter: str) -> dict[str, type]:
    """Return the classes that a user has passed, by their names."""
    known = {}
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise TypeError(f"{parameter} must hold subclasses of {base.__name__}, got {cls!r}.")
        known[cls.__name__] = cls
    return known


def pack_maps(
    maps: Sequence[FeatureMap], prefix: str = "maps"
) -> tuple[list[dict[str, Any]], Arrays]:
    """Return the entries of fitted maps, and what they have learnt."""
    entries: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for n, own in enumerate(maps):
        entries.append({**pack(own), "arrays": list(own.arrays())})
        arrays |= {f"{prefix}.{n}.{name}": array for name, array in own.arrays().items()}
    return entries, arrays


def rebuild_maps(
    entries: list[dict[str, Any]],
    columns: Columns,
    cores: Cores,
    arrays: Arrays,
    find_class: FindClass,
) -> list[FeatureMap]:
    """Rebuild the fitted map of every column; it must match the column and its core."""
    if len(entries) != len(columns.columns):
        raise ValueError(f"{len(entries)} maps for {len(columns.columns)} columns.")
    return [
        rebuild_map(f"maps.{n}", column, entry, len(cores.factors[n]), arrays, find_class)
        for n, (column, entry) in enumerate(zip(columns.columns, entries))
    ]


def rebuild_map(
    name: str,
    column: Column,
    entry: dict[str, Any],
    dim: int | None,
    arrays: Arrays,
    find_class: FindClass,
) -> FeatureMap:
    """Rebuild the fitted map of a column, whose core has `dim` rows; None for a map of trees."""
    cls = find_class(entry["@map"], "map")
    learnt = {own: take(arrays, f"{name}.{own}") for own in entry["arrays"]}
    out = cls.restore(unpack(entry["params"], find_class), learnt)
    if out.kind != column.kind or dim not in (None, out.dim):
        raise ValueError(
            f"{out!r:.100} serves {out.kind} columns and has {out.dim} elements, but {name} is for "
            f"a {column.kind} column and its core has {dim} rows."
        )
    if out.missing_ is not None and not np.all(np.isfinite(out.missing_)):
        raise ValueError(f"the elements of a missing value of {out!r:.100} are not finite.")
    if cls in OWN_MAPS.values():
        _check_state(out)
    _check_slots(out, column)
    return out


def _check_state(own: FeatureMap) -> None:
    """Refuse arrays of polyadic's maps that fitting could not have made.

    They go to compiled code, which does not check them. Fitting an equal map to two values checks
    the parameters and shows the type and the number of dimensions that each array must have.
    """
    fresh = own.clone().fit(np.arange(2.0 if own.kind == "numeric" else 2))
    for name, expected in fresh.arrays().items():
        array = own.arrays()[name]
        same = (array.dtype, array.ndim) == (expected.dtype, expected.ndim)
        same = same and (name in _BY_COLUMN or array.shape == expected.shape)
        filled = array.size > 0 or expected.size == 0 or name == "edges_"  # one bin has no edges
        if not same or not filled or not np.all(np.isfinite(array)):
            raise ValueError(
                f"the {name} of {own!r} should be finite {expected.dtype} of {expected.ndim} "
                "dimensions."
            )
        if name in ("knots_", "breaks_", "edges_") and not np.all(array[1:] > array[:-1]):
            raise ValueError(f"the {name} of {own!r} do not ascend.")
        if name == "breaks_" and (len(array) < 2 or array[0] != -1.0 or array[-1] != 1.0):
            raise ValueError(f"the breaks_ of {own!r} must go from -1 to 1.")


def _check_slots(own: FeatureMap, column: Column) -> None:
    """Encode some numbers, or every category, and refuse slots outside of the core."""
    if column.categories is None:
        state = [np.ravel(a) for a in own.arrays().values() if a.dtype.kind == "f"]
        probe = np.concatenate([[np.nan, 0.0], *state]).astype(float)
        # Not all numbers: the elements of all would be the square of the dimension.
        probe = probe[: max(2, _MOST_PROBES // max(own.dim, 1))]
    else:
        probe = np.arange(-1, len(column.categories))
    with np.errstate(all="ignore"):
        index, value = own.encode(probe)
        alone, _ = own.encode(probe[:1])
    fits = index.ndim == 2 and index.shape == value.shape and len(index) == len(probe)
    fits = fits and alone.shape == (1, index.shape[1]) and index.dtype.kind in "iu"
    if not fits or np.any(index < 0) or np.any(index >= own.dim):
        raise ValueError(f"{own!r} of column {column.name!r} has slots outside of its core.")


# ---- cores ---------------------------------------------------------------------------------------


def pack_cores(cores: Cores) -> tuple[dict[str, Any], Arrays]:
    """Return the entry of cores, and their arrays."""
    arrays: Arrays = {"intercept": cores.intercept}
    blocks = pack_blocks(cores) if isinstance(cores, CPCores) else None
    if blocks is None:
        arrays |= {f"factors.{n}": factor for n, factor in enumerate(cores.factors)}
    if isinstance(cores, NetworkCores):
        arrays["multiplier"] = cores.scale
        arrays |= {f"extras.{n}": extra for n, extra in enumerate(cores.extras)}
        return pack({"format": cores.name, "rank": cores.rank, "order": cores.order}), arrays
    arrays["weights"] = cores.weights
    arrays |= {f"additive.{n}": part for n, part in enumerate(cores.additive or ())}
    entry: dict[str, Any] = {"additive": cores.additive is not None}
    if blocks is None:
        return entry, arrays
    return entry | {"blocks": blocks[0]}, arrays | blocks[1]


def least_bytes(cores: Cores, arrays: Arrays) -> float:
    """Return how long a file must be for its blocks to be accepted as factors."""
    if not isinstance(cores, CPCores):
        return 0.0
    return factor_bytes(len(cores.factors), cores.rank, arrays) / MOST_BYTES


def rebuild_cores(n_columns: int, entry: dict[str, Any], arrays: Arrays, n_bytes: int) -> Cores:
    """Rebuild cores from a file of n_bytes.

    Up to file format 2, networks of format "cp" were written as networks.
    """
    if "format" in entry:
        return _rebuild_network(n_columns, entry, arrays)
    return _rebuild_cp(n_columns, entry, arrays, n_bytes)


def _rebuild_cp(n_columns: int, entry: dict[str, Any], arrays: Arrays, n_bytes: int) -> CPCores:
    """Rebuild CP cores; rank and number of outputs are those of the weights."""
    weights = take_floats(arrays, "weights", (None, None))
    rank, n_outputs = weights.shape
    if weights.size == 0:
        raise ValueError(f"the weights have the shape {weights.shape}, but must not be empty.")
    intercept = take_floats(arrays, "intercept", (n_outputs,))
    blocks = None
    if "blocks" in entry:
        most = float(MOST_BYTES * n_bytes)
        factors, blocks = rebuild_blocks(n_columns, rank, entry["blocks"], arrays, most)
    else:
        factors = [take_floats(arrays, f"factors.{n}", (None, rank)) for n in range(n_columns)]
    parts = None
    if entry["additive"]:
        shapes = [(len(factor), n_outputs) for factor in factors]
        parts = [take_floats(arrays, f"additive.{n}", shape) for n, shape in enumerate(shapes)]
    return CPCores(factors, weights, intercept, parts, blocks=blocks)


def _rebuild_network(n_columns: int, entry: dict[str, Any], arrays: Arrays) -> Cores:
    """Rebuild the cores of a network; its format defines the shapes for a rank and an order.

    Every other shape is refused, so that a forged rank or order takes no more memory or time than
    the arrays in the file.
    """
    name, rank, order = entry["format"], entry["rank"], entry["order"]
    for value in (rank, order):
        if type(value) is not int or not 1 <= value <= _LARGEST:
            raise ValueError(f"a network cannot have rank {rank!r:.40} and order {order!r:.40}.")
    intercept = take_floats(arrays, "intercept", (None,))
    if len(intercept) == 0:
        raise ValueError("the intercept is empty: a model needs at least one output.")
    multiplier = take_floats(arrays, "multiplier", intercept.shape)
    factors = [take_floats(arrays, f"factors.{n}", (None, None)) for n in range(n_columns)]
    form = networks.resolve(name)([len(a) for a in factors], rank, len(intercept), order)
    for n, factor in enumerate(factors):
        check_shape(f"factors.{n}", factor, (None, form.width))
    shapes = form.extra_shapes()
    extras = [take_floats(arrays, f"extras.{n}", shape) for n, shape in enumerate(shapes)]
    cores = make_cores(form, factors, extras, np.zeros_like(intercept))
    return cores.rescale(intercept, multiplier)


# ---- marginals and history -----------------------------------------------------------------------


def pack_marginals(marginals: Sequence[Marginal]) -> tuple[list[str], Arrays]:
    """Return the names of a marginal's arrays, and the arrays of all.

    Both are empty where a marginal is not finite: the model can predict without them.
    """
    parts = [own.arrays() for own in marginals]
    if not parts or not all(np.all(np.isfinite(a)) for own in parts for a in own.values()):
        return [], {}
    named = {f"marginals.{n}.{k}": a for n, own in enumerate(parts) for k, a in own.items()}
    return list(parts[0]), named


def rebuild_marginals(
    names: list[str], columns: Columns, cores: Cores, arrays: Arrays
) -> list[Marginal]:
    """Rebuild the marginal of every column; it must match the column, its core and its bins."""
    out = []
    for n, (column, factor) in enumerate(zip(columns.columns, cores.factors)):
        own = {name: take(arrays, f"marginals.{n}.{name}", (None,)) for name in names}
        n_bins = 0 if cores.trees is None else cores.trees.maps[n].dim - 1
        out.append(Marginal.restore(own, len(factor) + n_bins, len(column.categories or ())))
    return out


def pack_history(history: Curves) -> tuple[list[list[str]], Arrays]:
    """Return the names of the learning curves of every member, and the curves."""
    arrays = {
        f"history.{m}.{name}": np.array(curve, dtype=float)
        for m, curves in enumerate(history)
        for name, curve in curves.items()
    }
    return [list(curves) for curves in history], arrays


def rebuild_history(entries: list[list[str]], arrays: Arrays) -> Curves:
    """Rebuild the learning curves of every member."""
    return [
        {name: _take_curve(arrays, f"history.{m}.{name}") for name in names}
        for m, names in enumerate(entries)
    ]


def _take_curve(arrays: Arrays, name: str) -> list[float]:
    """Remove a learning curve and return it."""
    curve = take(arrays, name, (None,))
    if curve.dtype != np.float64:  # the numbers of a list would take many times their bytes
        raise ValueError(
            f"the array {name!r} must hold numbers of type float64, not {curve.dtype}."
        )
    return curve.tolist()
