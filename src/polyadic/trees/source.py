"""A model of trees as another library has grown it, in one form for all libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyadic.objective.losses import Loss, Softmax


class UnreadableModel(ValueError):
    """A model that is no sum of products of one function per column, or that cannot be read."""


@dataclass(frozen=True)
class SourceTree:
    """One tree: K nodes, of which node 0 is the root.

    Attributes
    ----------
    column : (K,) int32
        The column that a node asks; -1 for a leaf.
    threshold : (K,) float64
        A number x goes left where x <= threshold, compared in double precision. Libraries that
        compare in single precision, or by <, have thresholds converted: see `at_most_float32`.
    missing_left : (K,) bool
        Whether a missing number, or a missing or unseen category, goes left.
    left, right : (K,) int32
        The children; -1 for a leaf.
    value : (K, W) float64
        Of leaves; zero elsewhere. W is one, or the number of outputs.
    sets : dict
        For a node that asks for categories: the positions, in `Source.categories` of its column,
        of those that go left, ascending. Its threshold has no meaning.
    output : int
        The output that the tree adds to, the first of W.
    """

    column: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    sets: dict[int, np.ndarray] = field(default_factory=dict)
    output: int = 0


@dataclass(frozen=True)
class Source:
    """A model: raw(x) = base + sum of its trees, before the link.

    Attributes
    ----------
    trees : sequence of SourceTree
    base : (L,) float64
    n_columns : int
    loss : Loss
        A loss of this package with the link of the model, such as `Logistic` for two classes.
        Classifiers that average probabilities p have `SquaredError`, and raw = 2 p - 1.
    classes : (C,) array or None
        The classes in the order of the outputs; None for regression. Two classes have one output.
    categories : dict
        For each categorical column by number: its categories, as they stand in the user's table.
    names : list of str or None
        The names of the columns, where the model knows them.
    """

    trees: Sequence[SourceTree]
    base: np.ndarray
    n_columns: int
    loss: Loss
    classes: np.ndarray | None = None
    categories: dict[int, list[Any]] = field(default_factory=dict)
    names: list[str] | None = None


# ---- thresholds ----------------------------------------------------------------------------------

# Doubles of at least this size are infinite in single precision: it is halfway between the largest
# finite number and the next power of two, and a tie is rounded to the even one.
_OVERFLOW = 2.0**128 - 2.0**103


def at_most_float32(threshold: np.ndarray) -> np.ndarray:
    """Return t : float64 with x <= t exactly where float32(x) <= threshold, for every double x.

    A double is rounded to the nearest number of single precision, a tie to the even one. So the
    largest double that rounds to p is the middle between p and the next number, or just below it.

    >>> t = at_most_float32(np.array([1.0]))[0]
    >>> above = np.nextafter(t, 2.0)
    >>> bool(np.float32(t) <= 1.0), bool(np.float32(above) <= 1.0)
    (True, False)
    """
    wide = np.asarray(threshold, dtype=np.float64)
    largest = np.finfo(np.float32).max
    low = np.clip(wide, -largest, largest).astype(np.float32)
    with np.errstate(over="ignore"):
        low = np.where(low > wide, np.nextafter(low, np.float32(-np.inf)), low)
        high = np.nextafter(low, np.float32(np.inf))
    with np.errstate(invalid="ignore"):
        middle = 0.5 * (low.astype(np.float64) + high.astype(np.float64))
    even = low.view(np.int32) % 2 == 0
    out = np.where(even, middle, np.nextafter(middle, -np.inf))
    out = np.where(low == largest, np.nextafter(_OVERFLOW, 0.0), out)
    out = np.where(np.isneginf(low), -_OVERFLOW, out)
    return np.where(np.isnan(wide) | np.isposinf(wide), wide, out)


def below_float32(threshold: np.ndarray) -> np.ndarray:
    """Return t : float64 with x <= t exactly where float32(x) < threshold.

    Thresholds are of single precision, and finite or positive infinite.
    """
    narrow = np.asarray(threshold, dtype=np.float32)
    with np.errstate(over="ignore"):
        return at_most_float32(np.nextafter(narrow, np.float32(-np.inf)))


# ---- checks --------------------------------------------------------------------------------------


def checked(source: Source) -> Source:
    """Return the source if it is consistent; a file may say anything.

    Every tree must be a tree, with columns, categories and outputs that exist and finite values.
    """
    _check_model(source)
    for number, tree in enumerate(source.trees):
        fault = _fault(tree, source)
        if fault:
            raise UnreadableModel(f"Tree {number} of the model cannot be read: {fault}.")
    return source


def _check_model(source: Source) -> None:
    n, n_outputs = source.n_columns, len(source.base)
    if n < 1:
        raise UnreadableModel(f"The model has {n} columns; it must have at least one.")
    if source.base.ndim != 1 or n_outputs < 1 or not np.all(np.isfinite(source.base)):
        raise UnreadableModel(f"The base of the model is {source.base}; it must be finite numbers.")
    if source.names is not None and len(source.names) != n:
        raise UnreadableModel(f"The model has {n} columns, but {len(source.names)} names of them.")
    outside = [column for column in source.categories if not 0 <= column < n]
    if outside:
        raise UnreadableModel(f"The model has {n} columns, but categories of column {outside[0]}.")
    count = None if source.classes is None else len(source.classes)
    if count is not None and (count < 2 or n_outputs != (1 if count == 2 else count)):
        raise UnreadableModel(
            f"The model has {count} classes and {n_outputs} outputs. Two classes have one output, "
            "more classes have one each."
        )
    if isinstance(source.loss, Softmax) and source.loss.n_classes != n_outputs:
        raise UnreadableModel(
            f"The model has {n_outputs} outputs, but its loss has {source.loss.n_classes} classes."
        )


def _fault(tree: SourceTree, source: Source) -> str:
    """Return what is wrong with a tree, or an empty string."""
    return (
        _fault_of_arrays(tree, len(source.base))
        or _fault_of_links(tree)
        or _fault_of_questions(tree, source)
    )


_DTYPES = {"column": "i4", "threshold": "f8", "missing_left": "?", "left": "i4", "right": "i4"}


def _fault_of_arrays(tree: SourceTree, n_outputs: int) -> str:
    size = len(tree.column)
    if size == 0:
        return "it has no nodes"
    for name, dtype in _DTYPES.items():
        array = getattr(tree, name)
        if array.shape != (size,) or array.dtype != np.dtype(dtype):
            return f"{name} is {array.dtype}{array.shape}, but {np.dtype(dtype)}({size},) is needed"
    if tree.value.ndim != 2 or len(tree.value) != size or tree.value.dtype != np.float64:
        return f"value is {tree.value.dtype}{tree.value.shape}, but float64({size}, W) is needed"
    if not 0 <= tree.output <= n_outputs - tree.value.shape[1] or tree.value.shape[1] < 1:
        last = tree.output + tree.value.shape[1] - 1
        return f"it adds to the outputs {tree.output} to {last}, of {n_outputs}"
    if not np.all(np.isfinite(tree.value)):
        return "a value of a leaf is not finite"
    return ""


def _fault_of_links(tree: SourceTree) -> str:
    """Return a fault if the children do not form one tree from node 0."""
    size, inner = len(tree.column), tree.column >= 0
    if np.any(tree.left[~inner] != -1) or np.any(tree.right[~inner] != -1):
        return "a leaf has children"
    if np.any(tree.value[inner]):
        return "a node that asks a column has a value"
    children = np.concatenate((tree.left[inner], tree.right[inner]))
    if children.size and (children.min() < 1 or children.max() >= size):
        return f"a node has a child outside of the nodes 1 to {size - 1}"
    parents = np.bincount(children, minlength=size)
    if np.any(parents[1:] != 1):
        node = 1 + int(np.argmax(parents[1:] != 1))
        return f"node {node} is the child of {parents[node]} nodes instead of one"
    seen = len(reachable(tree.left, tree.right))
    return "" if seen == size else f"{size - seen} nodes are not reached from the root"


def reachable(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the nodes that are reached from node 0, ascending, each once.

    Children are node numbers in range; a negative child is none.
    """
    seen = np.zeros(len(left), dtype=bool)
    level = np.zeros(1, dtype=np.intp)
    while level.size:
        seen[level] = True
        level = np.concatenate((left[level], right[level]))
        level = level[level >= 0]
        level = level[~seen[level]]
    return np.flatnonzero(seen)


def _fault_of_questions(tree: SourceTree, source: Source) -> str:
    """Return a fault of the columns, thresholds or sets of categories."""
    if tree.column.min() < -1 or tree.column.max() >= source.n_columns:
        return f"it asks a column outside of 0 to {source.n_columns - 1}"
    number = tree.column >= 0
    for node, chosen in tree.sets.items():
        if not 0 <= node < len(tree.column) or int(tree.column[node]) not in source.categories:
            return f"node {node} asks for categories, but its column has none"
        count = len(source.categories[int(tree.column[node])])
        if chosen.ndim != 1 or chosen.dtype.kind != "i" or np.any(np.diff(chosen) <= 0):
            return f"the categories of node {node} are not numbers in ascending order"
        if chosen.size and (chosen[0] < 0 or chosen[-1] >= count):
            return f"node {node} asks for a category outside of 0 to {count - 1}"
        number[node] = False
    if np.any(np.isnan(tree.threshold[number])):
        return "a threshold is not a number"
    if source.categories and np.any(np.isin(tree.column[number], list(source.categories))):
        return "a node asks a column of categories for a number"
    return ""
