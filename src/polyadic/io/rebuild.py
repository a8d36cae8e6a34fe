"""Put a model together from what a file says, and trust nothing of it.

Whatever is read is checked as if someone had made it up: names, shapes, parameters, and that the
slots of every map point into its core, since compiled code follows them unchecked. What is wrong is
told by a ValueError, or by whatever error Python finds fitting; `polyadic.io` gives it a frame.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic import networks
from polyadic.data.columns import KINDS, Column, Columns
from polyadic.data.marginals import Marginal
from polyadic.estimators import validation
from polyadic.estimators.targets import Classification
from polyadic.estimators.tn import TNEstimator
from polyadic.io.plain import OWN_MAPS, FindClass, from_text, unpack, unpack_labels
from polyadic.maps import FeatureMap
from polyadic.networks.cores import NetworkCores
from polyadic.networks.cp import CPCores

Tensors = dict[str, np.ndarray]

# What a fitted model keeps besides columns, maps, cores, history and classes, by its name in a
# file: plain values in the header, for the models that have them, and arrays (L,).
PLAIN = {"n_iter": "n_iter_", "flat_target": "_flat_target"}
ARRAYS = {"center": "_center", "scale": "_scale"}
_LARGEST = 2**31 - 1  # a rank or an order beyond it is made up


def rebuild(estimator: Any, header: dict[str, Any], tensors: Tensors, find_class: FindClass) -> Any:
    """Return the fitted model that header and tensors describe.

    Parameters
    ----------
    estimator : class of the model
    header : dict
        As read from a file by `polyadic.io`.
    tensors : dict of arrays
        Emptied on the way: whatever is left over is an error.
    find_class : callable
        Returns the class of a map or of a loss by its name.
    """
    model = estimator(**unpack(header["params"], find_class))
    columns = model.columns_ = _columns(header["columns"], tensors)
    model.n_features_in_ = len(columns.columns)
    if columns.named:
        model.feature_names_in_ = np.array(columns.names, dtype=object)
    build = _network if issubclass(estimator, TNEstimator) else _cores
    cores = model.tensor_ = build(len(columns.columns), header["tensor"], tensors)
    if len(header["maps"]) != len(columns.columns):
        raise ValueError(f"{len(header['maps'])} maps for {len(columns.columns)} columns.")
    model.maps_ = [
        _map(n, column, entry, len(cores.factors[n]), tensors, find_class)
        for n, (column, entry) in enumerate(zip(columns.columns, header["maps"]))
    ]
    for name, attribute in ARRAYS.items():
        setattr(model, attribute, _floats(tensors, name, (cores.n_outputs,)))
    for name in PLAIN.keys() & header.keys():
        setattr(model, PLAIN[name], unpack(header[name], find_class))
    model.history_ = [
        {name: _take(tensors, f"history.{m}.{name}", (None,)).tolist() for name in names}
        for m, names in enumerate(header["history"])
    ]
    if header.get("marginals"):  # format 1 has none
        model.marginals_ = [
            _marginal(n, column, header["marginals"], len(cores.factors[n]), tensors)
            for n, column in enumerate(columns.columns)
        ]
    if "labels" in header:
        model.classes_ = unpack_labels(header["labels"], _take(tensors, "classes"))
    if hasattr(model, "partial_fit"):
        model._passes = None  # what it remembers is not saved
    _check_whole(model, tensors)
    return model


def _take(tensors: Tensors, name: str, shape: tuple | None = None) -> np.ndarray:
    """Take a tensor out; refuse another shape than this, where None is any length."""
    if name not in tensors:
        raise ValueError(f"the array {name!r} is missing.")
    array = tensors.pop(name)
    if shape is not None:
        _check_shape(name, array, shape)
    return array


def _check_shape(name: str, array: np.ndarray, shape: tuple) -> None:
    if array.ndim != len(shape) or any(
        want not in (None, have) for have, want in zip(array.shape, shape)
    ):
        wanted = " x ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"the array {name!r} has the shape {array.shape} and should be {wanted}.")


def _floats(tensors: Tensors, name: str, shape: tuple) -> np.ndarray:
    """Take a tensor of finite floating-point numbers out."""
    array = _take(tensors, name, shape)
    if array.dtype.kind != "f" or not np.all(np.isfinite(array)):
        raise ValueError(f"the array {name!r} must hold finite floating-point numbers.")
    return array


def _columns(state: dict[str, Any], tensors: Tensors) -> Columns:
    """Rebuild names, kinds and categories."""
    out = []
    for n, entry in enumerate(state["columns"]):
        name, kind, categories = entry["name"], entry["kind"], None
        if not isinstance(name, str) or kind not in KINDS:
            raise ValueError(f"column {n} has the name {name!r} and the kind {kind!r}.")
        if kind == "categorical":
            categories = tuple(from_text(_take(tensors, f"columns.{n}.categories", (None,))))
            if not all(isinstance(c, str | int | float) for c in categories):
                raise ValueError(f"column {n} has categories that are neither numbers nor text.")
        out.append(Column(name, kind, categories))
    columns = Columns(out, state["named"] is True)
    if not out or len(set(columns.names)) < len(out):
        raise ValueError("there must be columns, and their names must differ.")
    return columns


def _cores(n_columns: int, entry: dict[str, Any], tensors: Tensors) -> CPCores:
    """Rebuild CP cores; rank and number of outputs are those of the weights."""
    weights = _floats(tensors, "weights", (None, None))
    rank, n_outputs = weights.shape
    if weights.size == 0:
        raise ValueError(f"the weights have the shape {weights.shape}: nothing is left to predict.")
    intercept = _floats(tensors, "intercept", (n_outputs,))
    factors = [_floats(tensors, f"factors.{n}", (None, rank)) for n in range(n_columns)]
    parts = None
    if entry["additive"]:
        shapes = [(len(factor), n_outputs) for factor in factors]
        parts = [_floats(tensors, f"additive.{n}", shape) for n, shape in enumerate(shapes)]
    return CPCores(factors, weights, intercept, parts)


def _network(n_columns: int, entry: dict[str, Any], tensors: Tensors) -> NetworkCores:
    """Rebuild the cores of a network; its format says which shapes go with rank and order.

    Whatever depends on rank or order, in memory or in time, is as large as the arrays that are
    there: every other shape is refused.
    """
    name, rank, order = entry["format"], entry["rank"], entry["order"]
    for value in (rank, order):
        if type(value) is not int or not 1 <= value <= _LARGEST:
            raise ValueError(f"a network cannot have rank {rank!r:.40} and order {order!r:.40}.")
    intercept = _floats(tensors, "intercept", (None,))
    if len(intercept) == 0:
        raise ValueError("the intercept is empty: nothing is left to predict.")
    multiplier = _floats(tensors, "multiplier", intercept.shape)
    factors = [_floats(tensors, f"factors.{n}", (None, None)) for n in range(n_columns)]
    form = networks.resolve(name)([len(a) for a in factors], rank, len(intercept), order)
    for n, factor in enumerate(factors):
        _check_shape(f"factors.{n}", factor, (None, form.width))
    extras = [_floats(tensors, f"extras.{n}", shape) for n, shape in enumerate(form.extra_shapes())]
    return NetworkCores(name, rank, order, factors, extras, intercept, multiplier)


def _map(
    n: int, column: Column, entry: dict[str, Any], dim: int, tensors: Tensors, find_class: FindClass
) -> FeatureMap:
    """Rebuild the fitted map of column n, whose core has `dim` rows."""
    cls = find_class(entry["@map"], "map")
    arrays = {name: _take(tensors, f"maps.{n}.{name}") for name in entry["arrays"]}
    out = cls.restore(unpack(entry["params"], find_class), arrays)
    if out.kind != column.kind or out.dim != dim:
        raise ValueError(
            f"{out!r:.100} serves {out.kind} columns and has {out.dim} elements, but column {n} is "
            f"{column.kind} and its core has {dim} rows."
        )
    if cls in OWN_MAPS.values():
        _check_state(out)
    _check_slots(out, column)
    return out


def _marginal(n: int, column: Column, names: Any, dim: int, tensors: Tensors) -> Marginal:
    """Rebuild the marginal of column n, whose core has `dim` rows."""
    arrays = {name: _take(tensors, f"marginals.{n}.{name}", (None,)) for name in names}
    return Marginal.restore(arrays, dim, len(column.categories or ()))


def _check_state(own: FeatureMap) -> None:
    """Refuse fitted arrays that fitting could not have left behind in one of polyadic's maps.

    They go to compiled code, which does not check them. Fitting an equal map to two values checks
    the parameters and shows the type and the number of dimensions that each array must have.
    """
    fresh = own.clone().fit(np.arange(2.0 if own.kind == "numeric" else 2))
    for name, model in fresh.arrays().items():
        array = own.arrays()[name]
        same = (array.dtype, array.ndim) == (model.dtype, model.ndim)
        if not same or (array.size == 0) != (model.size == 0) or not np.all(np.isfinite(array)):
            raise ValueError(
                f"the {name} of {own!r} should be finite {model.dtype} of {model.ndim} dimensions."
            )
        if name in ("knots_", "breaks_") and not np.all(array[1:] > array[:-1]):
            raise ValueError(f"the {name} of {own!r} do not ascend.")
        if name == "breaks_" and (len(array) < 2 or array[0] != -1.0 or array[-1] != 1.0):
            raise ValueError(f"the breaks_ of {own!r} must go from -1 to 1.")


def _check_slots(own: FeatureMap, column: Column) -> None:
    """Encode some numbers, or every category, and refuse slots that lie outside of the core."""
    if column.categories is None:
        state = [np.ravel(a) for a in own.arrays().values() if a.dtype.kind == "f"]
        probe = np.concatenate([[np.nan, 0.0], *state]).astype(float)
    else:
        probe = np.arange(-1, len(column.categories))
    with np.errstate(all="ignore"):
        index, value = own.encode(probe)
        alone, _ = own.encode(probe[:1])
    fits = index.ndim == 2 and index.shape == value.shape and len(index) == len(probe)
    fits = fits and alone.shape == (1, index.shape[1]) and index.dtype.kind in "iu"
    if not fits or np.any(index < 0) or np.any(index >= own.dim):
        raise ValueError(f"{own!r} of column {column.name!r} has slots outside of its core.")


def _check_whole(model: Any, tensors: Tensors) -> None:
    """Check what belongs to the model as a whole."""
    validation.check(model)
    n_outputs = model.tensor_.n_outputs
    if np.any(model._scale <= 0):
        raise ValueError("the scale of the target must be positive.")
    if type(model.n_iter_) is not int or model.n_iter_ < 0:
        raise ValueError(f"n_iter is {model.n_iter_!r}, not a number of epochs.")
    n_jobs = getattr(model, "n_jobs", None)
    if not (n_jobs is None or isinstance(n_jobs, int)):
        raise ValueError(f"n_jobs must be a whole number or None, got {n_jobs!r}.")
    if not isinstance(model.device, str):
        raise ValueError(f"device must be text, such as 'cpu', got {model.device!r:.40}.")
    if isinstance(model, TNEstimator):
        networks.resolve(model.format)
    if isinstance(model, Classification):
        classes = model.classes_
        if classes.ndim != 1 or not np.array_equal(np.unique(classes), classes):
            raise ValueError("the classes must be sorted and differ from each other.")
        if len(classes) < 2 or n_outputs != (1 if len(classes) == 2 else len(classes)):
            raise ValueError(f"{len(classes)} classes do not go with {n_outputs} outputs.")
    elif type(model._flat_target) is not bool or (model._flat_target and n_outputs > 1):
        raise ValueError(f"flat_target cannot be {model._flat_target!r} with {n_outputs} outputs.")
    model._loss()  # raises where the loss is not one of the model's
    if tensors:
        raise ValueError(f"these arrays belong to nothing: {', '.join(sorted(tensors))[:200]}.")
