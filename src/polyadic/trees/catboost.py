"""Read models of CatBoost: from the JSON that it writes, with symmetric trees or others."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from polyadic.objective.losses import Logistic, Loss, Poisson, Quantile, Softmax, SquaredError
from polyadic.trees.cityhash import category_hash
from polyadic.trees.dumps import entry, integer, reals, rows_of
from polyadic.trees.source import Source, SourceTree, UnreadableModel, at_most_float32

NUMBERS = (
    "RMSE",
    "MAE",
    "Quantile",
    "MAPE",
    "Lq",
    "Huber",
    "Expectile",
    "LogCosh",
    "MultiRMSE",
    "MultiRMSEWithMissingValues",
    "MultiQuantile",
)
LOGARITHMS = ("Poisson", "Tweedie")
KNOWN = (*NUMBERS, *LOGARITHMS, "Logloss", "MultiClass")

Categories = Mapping[int, Sequence[Any]]

_MOST_LEVELS = 16  # of a symmetric tree


def read(model: Any, categories: Categories | None = None) -> Source:
    """Return the source of a CatBoost, CatBoostRegressor or CatBoostClassifier.

    Parameters
    ----------
    model : CatBoost
    categories : dict, optional
        The categories of each categorical column, by its number. The model has only hashes of
        them, so it cannot be read without, where its trees ask for categories.
    """
    if not model.is_fitted():
        raise NotFittedError(f"This {type(model).__name__} is not fitted yet. Call fit first.")
    if model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise UnreadableModel(
            "The CatBoost model has text or embedding columns, which it turns into numbers by "
            "functions of their own. Train on numbers and categories."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        text = path.read_text(encoding="utf-8")
    try:
        dump = json.loads(text)
    except RecursionError:
        raise UnreadableModel("The trees of the CatBoost model are too deep to be read.") from None
    return parse(dump, list(model.feature_names_), model.classes_, categories)


def parse(
    dump: Any, names: list[str], classes: Any = None, categories: Categories | None = None
) -> Source:
    """Return the source of a model's JSON.

    Parameters
    ----------
    dump : dict
    names : list of str
        The names of all columns.
    classes : (C,) array or None
        The classes, which are not used for regression.
    categories : dict, optional
        As for `read`.
    """
    scale, base = _scale_and_base(dump)
    loss, known = _loss(dump, len(base), classes)
    _refuse_statistics(dump)
    splits = _Splits(entry(dump, "features_info"), categories or {})
    if "oblivious_trees" in dump:
        trees = [_symmetric(t, splits, len(base), scale) for t in rows_of(dump, "oblivious_trees")]
    else:
        trees = [_nested(t, splits, len(base), scale) for t in rows_of(dump, "trees")]
    numbered = names == [str(i) for i in range(len(names))]
    return Source(
        trees, base, len(names), loss, known, splits.categories, None if numbered else names
    )


# ---- the model -----------------------------------------------------------------------------------


def _scale_and_base(dump: Any) -> tuple[float, np.ndarray]:
    pair = rows_of(dump, "scale_and_bias")
    if len(pair) != 2 or not isinstance(pair[0], (int, float)):
        raise UnreadableModel(f"scale_and_bias of the model must be two entries, not {pair!r:.50}.")
    base = pair[1] if isinstance(pair[1], list) else [pair[1]]
    return float(pair[0]), reals(base, "scale_and_bias")


def _loss(dump: Any, n_outputs: int, classes: Any) -> tuple[Loss, np.ndarray | None]:
    """Return the loss and the classes."""
    function = entry(dump, "model_info", "params", "loss_function")
    name = entry(function, "type")
    if name not in KNOWN:
        raise UnreadableModel(
            f"The loss of the CatBoost model is {name}, which cannot be read. Known are: "
            f"{', '.join(KNOWN)}."
        )
    if name in LOGARITHMS:
        return Poisson(), None
    if name == "MAE":
        return Quantile(), None
    if name == "Quantile":
        return Quantile(_level(function)), None
    if name not in ("Logloss", "MultiClass"):
        return SquaredError(), None
    known = np.asarray([] if classes is None else classes)
    if name == "Logloss" and len(known) == 2 and n_outputs == 1:
        return Logistic(), known
    if name == "MultiClass" and len(known) == n_outputs > 2:
        return Softmax(n_outputs), known
    raise UnreadableModel(
        f"The CatBoost model has the loss {name}, {len(known)} classes and {n_outputs} outputs. "
        "Train a CatBoostClassifier with Logloss for two classes, and MultiClass for more."
    )


def _level(function: Any) -> float:
    given = function.get("params", {})
    try:
        level = float(given.get("alpha", 0.5))
    except (AttributeError, TypeError, ValueError):
        level = np.nan
    if not 0.0 < level < 1.0:
        raise UnreadableModel(f"The quantile of the CatBoost model is {given!r:.50}.")
    return level


def _refuse_statistics(dump: Any) -> None:
    if "ctrs" in entry(dump, "features_info"):
        raise UnreadableModel(
            "The CatBoost model has target statistics of categories (ctr), which may mix columns. "
            "Train with one_hot_max_size of at least the number of categories, or pass categories "
            "as numbers."
        )


# ---- splits --------------------------------------------------------------------------------------


class _Splits:
    """What splits ask: each becomes a column, a threshold, where missing goes, and a set or None.

    Of a number, float32(x) > border goes right. A missing number is less than all borders, or more
    than all. A category goes right where it is the one that a split asks for; all others, and
    unseen ones, go left.
    """

    def __init__(self, info: Any, given: Categories) -> None:
        self.floats: dict[int, tuple[int, bool]] = {}
        for feature in info.get("float_features", []):
            nan = entry(feature, "nan_value_treatment")
            if nan not in ("AsIs", "AsFalse", "AsTrue"):
                raise UnreadableModel(f"The CatBoost model treats NaN as {nan!r}: not known.")
            self.floats[_index(feature)] = (_column(feature), nan != "AsTrue")
        found = info.get("categorical_features", [])
        self.columns = {_index(feature): _column(feature) for feature in found}
        asked = {_column(feature): feature.get("values", []) for feature in found}
        self.categories = {column: list(given.get(column, [])) for column in asked}
        self._positions = {c: _positions(values) for c, values in self.categories.items()}
        for column, hashes in asked.items():
            lacking = [h for h in hashes if h not in self._positions.get(column, {})]
            if lacking:
                raise UnreadableModel(_LACKING.format(column, len(hashes), len(lacking)))

    def __call__(self, split: Any) -> tuple[int, float, bool, np.ndarray | None]:
        """Return column, border, whether missing goes left, and the categories that go left."""
        kind = entry(split, "split_type")
        if kind == "FloatFeature":
            index, border = entry(split, "float_feature_index"), entry(split, "border")
            if index in self.floats and isinstance(border, (int, float)):
                return self.floats[index][0], border, self.floats[index][1], None
        elif kind == "OneHotFeature":
            column = self.columns.get(entry(split, "cat_feature_index"), -1)
            place = self._positions.get(column, {}).get(entry(split, "value"))
            if place is not None:
                others = np.delete(np.arange(len(self.categories[column])), place)
                return column, 0.0, True, others
        raise UnreadableModel(f"A tree of the CatBoost model has a split that is unknown: {split}.")


_LACKING = (
    "The CatBoost model asks column {} for {} categories, of which it has only hashes; {} of them "
    "are not among the categories given. Pass categories={{column: [all its categories]}}."
)


def _index(feature: Any) -> int:
    return integer(entry(feature, "feature_index"), "feature_index")


def _column(feature: Any) -> int:
    return integer(entry(feature, "flat_feature_index"), "flat_feature_index")


def _positions(values: list[Any]) -> dict[int, int]:
    """Return the positions of categories by hash. CatBoost takes a number for its digits."""
    return {category_hash(str(value)): place for place, value in enumerate(values)}


# ---- trees ---------------------------------------------------------------------------------------


def _symmetric(dump: Any, splits: _Splits, n_outputs: int, scale: float) -> SourceTree:
    """Return a tree that asks the same in all nodes of a level.

    Split i decides bit i of the number of the leaf. So the last split is asked first: the leaves
    are then in order.
    """
    found = [splits(split) for split in reversed(entry(dump, "splits") or [])]
    n_leaves = 2 ** min(len(found), _MOST_LEVELS)
    if len(found) > _MOST_LEVELS:
        raise UnreadableModel(
            f"A symmetric CatBoost tree has {len(found)} levels; CatBoost allows {_MOST_LEVELS}."
        )
    flat = reals(entry(dump, "leaf_values"), "leaf_values", n_leaves * n_outputs)
    inner = n_leaves - 1
    level = np.repeat(np.arange(len(found)), 2 ** np.arange(len(found)))
    table = np.array([(c, border, left) for c, border, left, _ in found]).reshape(-1, 3)[level]
    value = np.zeros((inner + n_leaves, n_outputs))
    value[inner:] = scale * flat.reshape(n_leaves, n_outputs)
    column = np.full(len(value), -1, dtype=np.int32)
    column[:inner] = table[:, 0]
    left = np.full(len(value), -1, dtype=np.int32)
    left[:inner] = 2 * np.arange(inner) + 1
    sets = {node: s for node, at in enumerate(level) if (s := found[at][3]) is not None}
    return SourceTree(
        column,
        np.concatenate((at_most_float32(table[:, 1]), np.zeros(n_leaves))),
        np.concatenate((table[:, 2] > 0, np.zeros(n_leaves, dtype=bool))),
        left,
        np.where(left < 0, left, left + np.int32(1)),
        value,
        sets,
    )


def _nested(dump: Any, splits: _Splits, n_outputs: int, scale: float) -> SourceTree:
    """Return a tree whose nodes hold their children. They are numbered as they are met."""
    rows: list[tuple[Any, ...]] = []
    children: list[list[int]] = []
    values: list[Any] = []
    sets: dict[int, np.ndarray] = {}
    stack: list[tuple[Any, int, int]] = [(dump, -1, 0)]
    while stack:
        node, parent, side = stack.pop()
        number = len(rows)
        children.append([-1, -1])
        if parent >= 0:
            children[parent][side] = number
        if "split" not in node:
            rows.append((-1, 0.0, False))
            values.append(entry(node, "value"))
            continue
        *row, chosen = splits(node["split"])
        rows.append(tuple(row))
        if chosen is not None:
            sets[number] = chosen
        stack += [(entry(node, "right"), number, 1), (entry(node, "left"), number, 0)]
    table = np.array(rows)
    column = table[:, 0].astype(np.int32)
    value = np.zeros((len(rows), n_outputs))
    value[column < 0] = scale * _leaf_values(values, n_outputs)
    left, right = np.array(children, dtype=np.int32).T.copy()
    threshold = np.where(column < 0, 0.0, at_most_float32(table[:, 1]))
    return SourceTree(column, threshold, table[:, 2] > 0, left, right, value, sets)


def _leaf_values(values: list[Any], n_outputs: int) -> np.ndarray:
    """Return the values of leaves, (leaves, outputs); a leaf holds a number or a list."""
    flat = [v for value in values for v in (value if isinstance(value, list) else [value])]
    return reals(flat, "value", len(values) * n_outputs).reshape(len(values), n_outputs)
