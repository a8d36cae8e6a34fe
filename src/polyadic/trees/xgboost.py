"""Read models of XGBoost: from the JSON that it writes, with arrays for each tree."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from polyadic.objective.losses import Logistic, Loss, Poisson, Quantile, Softmax, SquaredError
from polyadic.trees.dumps import entry, integer, integers, reals, rows_of
from polyadic.trees.source import Source, SourceTree, UnreadableModel, below_float32, reachable

VERSIONS = (2, 3)
NUMBERS = (
    "reg:squarederror",
    "reg:squaredlogerror",
    "reg:absoluteerror",
    "reg:pseudohubererror",
    "reg:quantileerror",
)
LOGARITHMS = ("count:poisson", "reg:gamma", "reg:tweedie")
TWO_CLASSES = ("binary:logistic", "binary:logitraw")
CLASSES = ("multi:softprob", "multi:softmax")
KNOWN = (*NUMBERS, *LOGARITHMS, *TWO_CLASSES, *CLASSES)

# The base is written as a prediction; for these objectives raw predictions are another thing.
_LINKS: dict[str, Callable[[np.ndarray], np.ndarray]] = dict.fromkeys(LOGARITHMS, np.log)
_LINKS["binary:logistic"] = lambda share: np.log(share) - np.log1p(-share)


def read(model: Any) -> Source:
    """Return the source of an XGBModel, up to its best iteration, or of all trees of a Booster.

    That is what their `predict` uses, if it is not told otherwise.
    """
    if not hasattr(model, "get_booster"):
        return parse(json.loads(model.save_raw("json")))
    booster = model.get_booster()
    if callable(model.objective):
        raise UnreadableModel(
            "The XGBoost model was trained with an objective of your own, so that it is not known "
            f"what its raw predictions mean. Known objectives are: {', '.join(KNOWN)}."
        )
    if model.missing is not None and not np.isnan(model.missing):
        raise UnreadableModel(
            f"The XGBoost model takes {model.missing} for missing. Replace it by NaN in the table, "
            "and train with missing=np.nan."
        )
    return parse(json.loads(booster.save_raw("json")), until_best=True)


def parse(dump: Any, until_best: bool = False) -> Source:
    """Return the source of a model's JSON; with `until_best` up to its best iteration."""
    version = integers(rows_of(dump, "version"), "version")
    if not len(version) or version[0] not in VERSIONS:
        raise UnreadableModel(
            f"The XGBoost model has the version {'.'.join(map(str, version))}. Known are the major "
            f"versions {', '.join(map(str, VERSIONS))}."
        )
    learner = entry(dump, "learner")
    model, weights = _booster(entry(learner, "gradient_booster"))
    shape = entry(learner, "learner_model_param")
    n_columns, n_classes, n_targets = (
        integer(entry(shape, name), name) for name in ("num_feature", "num_class", "num_target")
    )
    n_outputs = max(n_classes, n_targets, 1)
    loss, classes = _loss(entry(learner, "objective"), n_outputs, n_targets)
    dumps = _chosen(model, entry(learner, "attributes") if until_best else {})
    group = integers(rows_of(model, "tree_info"), "tree_info")
    if len(group) < len(dumps) or (weights is not None and len(weights) < len(dumps)):
        raise UnreadableModel("The XGBoost model has more trees than tree_info or weight_drop.")
    categories = _categories(learner, model, dumps, n_columns)
    weight = np.ones(len(dumps)) if weights is None else weights
    trees = [_tree(t, float(w), int(g), categories) for t, w, g in zip(dumps, weight, group)]
    names = rows_of(learner, "feature_names") or None
    base = _base(learner, n_outputs)
    return Source(trees, base, n_columns, loss, classes, categories, names)


# ---- the model -----------------------------------------------------------------------------------


def _booster(booster: Any) -> tuple[Any, np.ndarray | None]:
    """Return the model of trees, and the weights of trees where some were dropped (dart).

    The weights are beside the model, or since version 3.4 in it. An entry that is not known could
    change predictions, as these do, so there may be none.
    """
    name = entry(booster, "name")
    if name not in ("gbtree", "dart"):
        raise UnreadableModel(
            f"The booster of the XGBoost model is {name!r}, which cannot be read. Known are: "
            "gbtree, dart."
        )
    model = entry(booster, "gbtree", "model") if "gbtree" in booster else entry(booster, "model")
    _refuse_unknown(booster, _BOOSTER_ENTRIES)
    _refuse_unknown(model, _MODEL_ENTRIES)
    place = model if "weight_drop" in model else booster
    if name == "gbtree" and "weight_drop" not in place:
        return model, None
    return model, reals(rows_of(place, "weight_drop"), "weight_drop")


_BOOSTER_ENTRIES = {"name", "model", "gbtree", "weight_drop"}
_MODEL_ENTRIES = {"cats", "gbtree_model_param", "iteration_indptr", "tree_info", "trees"}
_MODEL_ENTRIES |= {"weight_drop"}
_TREE_ENTRIES = {"base_weights", "default_left", "id", "leaf_weights", "left_children"}
_TREE_ENTRIES |= {"loss_changes", "parents", "right_children", "split_conditions", "split_indices"}
_TREE_ENTRIES |= {"split_type", "sum_hessian", "tree_param", "categories", "categories_nodes"}
_TREE_ENTRIES |= {"categories_segments", "categories_sizes"}


def _refuse_unknown(part: Any, known: set[str]) -> None:
    unknown = sorted(set(part) - known)
    if unknown:
        raise UnreadableModel(
            f"The XGBoost model has entries that are not known here: {', '.join(unknown)}. It may "
            "be of a later version."
        )


def _chosen(model: Any, attributes: Any) -> list[Any]:
    """Return the trees up to the best iteration, or all."""
    trees = rows_of(model, "trees")
    best = attributes.get("best_iteration") if isinstance(attributes, dict) else None
    if best is None:
        return trees
    starts = integers(rows_of(model, "iteration_indptr"), "iteration_indptr")
    end = min(integer(best, "best_iteration") + 1, len(starts) - 1)
    if end < 0 or not 0 <= starts[end] <= len(trees):
        raise UnreadableModel("The best iteration of the XGBoost model has no trees.")
    return trees[: starts[end]]


def _loss(objective: Any, n_outputs: int, n_targets: int) -> tuple[Loss, np.ndarray | None]:
    """Return the loss and the classes."""
    name = entry(objective, "name")
    if name not in KNOWN:
        raise UnreadableModel(
            f"The objective of the XGBoost model is {name!r}, which cannot be read. Known are: "
            f"{', '.join(KNOWN)}."
        )
    if name in TWO_CLASSES + CLASSES and n_targets > 1:
        raise UnreadableModel(
            f"The XGBoost model has {n_targets} targets that are classes each. Train one model for "
            "each of them."
        )
    if name in TWO_CLASSES:
        return Logistic(), np.arange(2)
    if name in CLASSES:
        if n_outputs < 3:
            raise UnreadableModel(
                f"The XGBoost model has the objective {name} and {n_outputs} outputs. For two "
                "classes, train with binary:logistic."
            )
        return Softmax(n_outputs), np.arange(n_outputs)
    if name in LOGARITHMS:
        return Poisson(), None
    if name == "reg:absoluteerror":
        return Quantile(), None
    if name == "reg:quantileerror":
        levels = _list(entry(objective, "quantile_loss_param", "quantile_alpha"), "quantile_alpha")
        if len(levels) == 1:
            return Quantile(float(levels[0])), None
    return SquaredError(), None


def _base(learner: Any, n_outputs: int) -> np.ndarray:
    """Return the raw prediction before any tree, (L,)."""
    text = entry(learner, "learner_model_param", "base_score")
    share = _list(text, "base_score").astype(np.float32)
    if len(share) not in (1, n_outputs):
        raise UnreadableModel(f"base_score of the model has {len(share)} numbers, not {n_outputs}.")
    link = _LINKS.get(entry(learner, "objective", "name"), np.asarray)
    with np.errstate(all="ignore"):  # what is not finite is refused with the rest of the source
        base = link(share.astype(np.float64))
    return np.array(np.broadcast_to(base, (n_outputs,)))


def _list(text: Any, what: str) -> np.ndarray:
    """Return numbers that are written as text: 5E-1 or [5E-1, 2E0]."""
    try:
        return reals([float(word) for word in text.strip("[]").split(",")], what)
    except (AttributeError, ValueError):
        raise UnreadableModel(f"{what} of the model must be numbers, not {text!r:.50}.") from None


# ---- categories ----------------------------------------------------------------------------------


def _categories(learner: Any, model: Any, trees: list[Any], n_columns: int) -> dict[int, list[Any]]:
    """Return the categories of each categorical column.

    They are stored where the table was a frame. For an array of codes they are the codes up to the
    largest that a tree asks for. XGBoost sends larger codes left, whatever it does with missing
    ones; a source sends both the same way.
    """
    kinds = rows_of(learner, "feature_types")
    codes: dict[int, list[Any]] = {c: [] for c, kind in enumerate(kinds) if kind == "c"}
    for tree in trees:
        for column, asked in _asked(tree).values():
            count = int(asked.max(initial=-1)) + 1
            if count > len(codes.setdefault(column, [])):
                codes[column] = list(range(count))
    if codes and "cats" not in model:
        raise UnreadableModel(
            "The XGBoost model has categorical columns, but not their categories, which XGBoost "
            "stores since its version 3.1. Train with this version or a later one."
        )
    stored = rows_of(model, "cats", "enc") if codes else []
    if not stored:
        return codes
    if len(stored) != n_columns:
        raise UnreadableModel(
            f"The XGBoost model has {n_columns} columns, but categories of {len(stored)}."
        )
    found = {column: _values(stored[column]) for column in codes}
    for column, known in codes.items():
        if len(known) > len(found[column]):
            raise UnreadableModel(
                f"Column {column} of the XGBoost model has {len(found[column])} categories, but a "
                f"tree asks for number {len(known) - 1}."
            )
    return found


def _values(stored: Any) -> list[Any]:
    """Return the categories of a column: numbers, or strings that are joined to one of bytes."""
    values = rows_of(stored, "values")
    if "offsets" not in stored:
        return values
    ends = integers(rows_of(stored, "offsets"), "offsets")
    codes = integers(values, "values")
    # XGBoost 3.2 counts letters of a pandas frame where it should count bytes, and cuts the rest.
    if codes.size and (codes.min() < 0 or codes.max() > 127):
        raise UnreadableModel(
            "The XGBoost model has categories with letters beyond ASCII, which XGBoost does not "
            "store whole. Rename these categories, or pass numbers in their place."
        )
    text = bytes(codes.tolist()).decode("ascii")
    if np.any(np.diff(ends) < 0) or (len(ends) and (ends[0] != 0 or ends[-1] != len(text))):
        raise UnreadableModel("The categories of the XGBoost model are cut at places out of range.")
    return [text[first:last] for first, last in pairwise(ends.tolist())]


def _asked(tree: Any) -> dict[int, tuple[int, np.ndarray]]:
    """Return, for each node that asks for categories, its column and the codes that go right."""
    nodes = tree.get("categories_nodes") if isinstance(tree, dict) else None
    if not nodes:
        return {}
    nodes = integers(nodes, "categories_nodes")
    first = integers(entry(tree, "categories_segments"), "categories_segments", len(nodes))
    sizes = integers(entry(tree, "categories_sizes"), "categories_sizes", len(nodes))
    codes = integers(entry(tree, "categories"), "categories")
    column = integers(entry(tree, "split_indices"), "split_indices")
    if (
        min(first.min(), sizes.min(), nodes.min(), codes.min(initial=0)) < 0
        or np.any(first.astype(np.int64) + sizes > len(codes))
        or nodes.max() >= len(column)
        or codes.max(initial=0) > 2**24  # the largest category of XGBoost
    ):
        raise UnreadableModel("A tree of the XGBoost model asks for categories out of range.")
    return {int(n): (int(column[n]), codes[f : f + s]) for n, f, s in zip(nodes, first, sizes)}


# ---- trees ---------------------------------------------------------------------------------------


def _tree(dump: Any, weight: float, output: int, categories: dict[int, list[Any]]) -> SourceTree:
    """Return a tree. A number goes left where it is less than the threshold, as float32."""
    left = integers(entry(dump, "left_children"), "left_children")
    _refuse_unknown(dump, _TREE_ENTRIES)
    size = len(left)
    right = integers(entry(dump, "right_children"), "right_children", size)
    leaf = left == -1
    inner = np.concatenate((left[~leaf], right[~leaf]))
    if size == 0 or inner.min(initial=0) < 0 or inner.max(initial=0) >= size:
        raise UnreadableModel("A tree of the XGBoost model has a child that is no node of it.")
    value = weight * _leaf_values(dump, leaf, right)
    right = np.where(leaf, np.int32(-1), right)
    column = integers(entry(dump, "split_indices"), "split_indices", size)
    condition = reals(entry(dump, "split_conditions"), "split_conditions", size)
    default_left = integers(entry(dump, "default_left"), "default_left", size) != 0
    asked = _asked(dump)
    kind = integers(entry(dump, "split_type"), "split_type", size)
    if set(np.flatnonzero((kind != 0) & ~leaf).tolist()) != {n for n in asked if not leaf[n]}:
        raise UnreadableModel("The split_type of a tree of the XGBoost model is not as its sets.")
    sets = {
        node: np.setdiff1d(np.arange(len(categories[asks])), codes)
        for node, (asks, codes) in asked.items()
        if not leaf[node]
    }
    threshold = np.where(leaf, 0.0, below_float32(condition))
    threshold[list(sets)] = 0.0
    column = np.where(leaf, np.int32(-1), column)
    tree = SourceTree(column, threshold, default_left & ~leaf, left, right, value, sets, output)
    return _without_deleted(tree)


def _leaf_values(dump: Any, leaf: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the values of leaves, (K, W), of single precision in the library."""
    size = len(leaf)
    width = integer(entry(dump, "tree_param", "size_leaf_vector"), "size_leaf_vector")
    if width <= 1:
        value = reals(entry(dump, "split_conditions"), "split_conditions", size)[:, None]
    elif "leaf_weights" in dump:  # the right child of a leaf is its number among leaves
        flat = reals(dump["leaf_weights"], "leaf_weights", width * int(leaf.sum()))
        if right[leaf].min() < 0 or right[leaf].max() >= leaf.sum():
            raise UnreadableModel("A leaf of the XGBoost model has a number out of range.")
        value = np.zeros((size, width))
        value[leaf] = flat.reshape(-1, width)[right[leaf]]
    else:
        value = reals(entry(dump, "base_weights"), "base_weights", size * width).reshape(size, -1)
    with np.errstate(over="ignore"):
        return np.where(leaf[:, None], value.astype(np.float32).astype(np.float64), 0.0)


def _without_deleted(tree: SourceTree) -> SourceTree:
    """Return the tree without the nodes that pruning has left in the arrays."""
    kept = reachable(tree.left, tree.right)
    if len(kept) == len(tree.left):
        return tree
    number = np.full(len(tree.left) + 1, -1, dtype=np.int32)  # the last is for the child -1
    number[kept] = np.arange(len(kept))
    return SourceTree(
        tree.column[kept],
        tree.threshold[kept],
        tree.missing_left[kept],
        number[tree.left[kept]],
        number[tree.right[kept]],
        tree.value[kept],
        {int(number[node]): chosen for node, chosen in tree.sets.items() if number[node] >= 0},
        tree.output,
    )
