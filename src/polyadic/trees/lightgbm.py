"""Read models of LightGBM: from the text that it writes, with arrays for each tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic.objective.losses import Logistic, Loss, Poisson, Quantile, Softmax, SquaredError
from polyadic.trees.dumps import integer
from polyadic.trees.source import Source, SourceTree, UnreadableModel

VERSIONS = ("v3", "v4")
NUMBERS = ("regression", "regression_l1", "huber", "fair", "mape", "quantile")
LOGARITHMS = ("poisson", "gamma", "tweedie")
KNOWN = (*NUMBERS, *LOGARITHMS, "binary", "multiclass")

# Bits of decision_type: whether a node asks for categories, where missing entries go, and what
# counts as missing.
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_NONE, _ZERO, _NAN = 0, 1, 2

# LightGBM takes numbers up to this size for zero: before any comparison, when it reads a row.
_ZERO_SIZE = float(np.float32(1e-35))


def read(model: Any) -> Source:
    """Return the source of an LGBMModel or a Booster, up to its best iteration."""
    booster = model if hasattr(model, "model_to_string") else model.booster_
    # Both this text and predict end at the best iteration, where training was stopped early.
    text = booster.model_to_string()
    classes = getattr(model, "classes_", None) if booster is not model else None
    return parse(text, classes, booster.pandas_categorical)


def parse(text: str, classes: Any = None, frame_categories: Any = None) -> Source:
    """Return the source of a model's text.

    Parameters
    ----------
    text : str
    classes : (C,) array or None
        The classes as the user has named them; None for 0 to C - 1.
    frame_categories : list of list or None
        The categories of the columns that were categorical in a pandas frame.
    """
    if not isinstance(text, str) or not text.startswith("tree\n"):
        raise UnreadableModel("The text of a LightGBM model must start with the line 'tree'.")
    body, _, tail = text.partition("\nend of trees")
    head, *blocks = body.split("\nTree=")
    header = _fields(head)
    if _field(header, "version") not in VERSIONS:
        raise UnreadableModel(
            f"The LightGBM model has the version {header['version']!r}. Known are: "
            f"{', '.join(VERSIONS)}."
        )
    n_outputs = integer(_field(header, "num_tree_per_iteration"), "num_tree_per_iteration")
    loss, scale, classes = _loss(header, _parameters(tail), n_outputs, classes)
    if n_outputs < 1 or len(blocks) % n_outputs:
        raise UnreadableModel(
            f"The LightGBM model has {len(blocks)} trees, which is no multiple of its {n_outputs} "
            "outputs."
        )
    if "average_output" in header:  # a random forest
        scale /= max(1, len(blocks) // n_outputs)
    trees = [_fields(block) for block in blocks]
    n_columns = integer(_field(header, "max_feature_idx"), "max_feature_idx") + 1
    codes = _codes(header, trees, n_columns)
    categories = {column: known.tolist() for column, known in codes.items()}
    if frame_categories:
        categories = _framed(codes, frame_categories, _parameters(tail))
        codes = {column: np.arange(len(values)) for column, values in categories.items()}
    return Source(
        [_tree(fields, scale, i % n_outputs, codes) for i, fields in enumerate(trees)],
        np.zeros(n_outputs),
        n_columns,
        loss,
        classes,
        categories,
        _names(header, n_columns),
    )


# ---- the text ------------------------------------------------------------------------------------


def _fields(block: str) -> dict[str, str]:
    """Return the lines `name=value`; a line without a value has an empty one."""
    return {name: value for name, _, value in (s.partition("=") for s in block.split("\n"))}


def _field(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise UnreadableModel(f"The LightGBM model lacks the line {name}=.")
    return fields[name]


def _numbers(fields: dict[str, str], name: str, length: int | None, kind: type = int) -> np.ndarray:
    """Return the numbers of a line, (length,) float64 or int64."""
    words = _field(fields, name).split()
    if length is not None and len(words) != length:
        raise UnreadableModel(
            f"The line {name}= of the LightGBM model has {len(words)} numbers, not {length}."
        )
    try:
        found = np.array([kind(word) for word in words], dtype="i8" if kind is int else "f8")
        if kind is float or not found.size or -(2**31) <= found.min() <= found.max() < 2**32:
            return found
        raise ValueError("beyond 32 bits")
    except (ValueError, OverflowError):
        raise UnreadableModel(
            f"The line {name}= of the LightGBM model must hold numbers, of at most 32 bits "
            f"where they are whole, not {fields[name]!r:.50}."
        ) from None


def _parameters(tail: str) -> dict[str, str]:
    """Return the training parameters, which are written as [name: value]."""
    lines = tail.partition("\nparameters:")[2].partition("\nend of parameters")[0].split("\n")
    pairs = (line.strip("[]").partition(":") for line in lines if line.startswith("["))
    return {name: value.strip() for name, _, value in pairs}


def _names(header: dict[str, str], n_columns: int) -> list[str] | None:
    names = _field(header, "feature_names").split(" ")
    return None if names == [f"Column_{i}" for i in range(n_columns)] else names


# ---- the loss ------------------------------------------------------------------------------------


def _loss(
    header: dict[str, str], parameters: dict[str, str], n_outputs: int, classes: Any
) -> tuple[Loss, float, np.ndarray | None]:
    """Return the loss, what to multiply values by, and the classes."""
    words = header.get("objective", "").split()
    name = words[0] if words else "of your own"
    settings = dict(word.partition(":")[::2] for word in words[1:])
    if name not in KNOWN or "sqrt" in settings:
        shown = " ".join(words) or name
        raise UnreadableModel(
            f"The objective of the LightGBM model is {shown}, which cannot be read. Known are: "
            f"{', '.join(KNOWN)}."
        )
    if name in ("binary", "multiclass"):
        count = 2 if name == "binary" else n_outputs
        classes = np.arange(count) if classes is None else np.asarray(classes)
        if len(classes) != count or n_outputs != (1 if count == 2 else count):
            raise UnreadableModel(
                f"The LightGBM model has the objective {name}, {len(classes)} classes and "
                f"{n_outputs} outputs. Two classes need the objective binary, more classes "
                "multiclass with an output each."
            )
        if count == 2:
            return Logistic(), _positive(settings.get("sigmoid", "1")), classes
        return Softmax(count), 1.0, classes
    if n_outputs != 1:
        raise UnreadableModel(f"The objective {name} of LightGBM has one output, not {n_outputs}.")
    if name in LOGARITHMS:
        return Poisson(), 1.0, None
    if name == "quantile" and "alpha" in parameters:
        return Quantile(_positive(parameters["alpha"])), 1.0, None
    return (Quantile() if name == "regression_l1" else SquaredError()), 1.0, None


def _positive(text: str) -> float:
    try:
        if 0.0 < float(text) < np.inf:
            return float(text)
    except ValueError:
        pass
    raise UnreadableModel(f"The LightGBM model has {text!r} where a positive number is needed.")


# ---- categories ----------------------------------------------------------------------------------


def _codes(
    header: dict[str, str], trees: list[dict[str, str]], n_columns: int
) -> dict[int, np.ndarray]:
    """Return the codes of each categorical column, ascending: those seen in training or asked for.

    `feature_infos` has an interval for a column of numbers, and a list for one of categories.
    """
    infos = _field(header, "feature_infos").split(" ")
    if len(infos) != n_columns:
        raise UnreadableModel(
            f"The LightGBM model has {n_columns} columns, but feature_infos of {len(infos)}."
        )
    found: dict[int, set[int]] = {}
    for column, info in enumerate(infos):
        if info != "none" and not info.startswith("["):
            seen = (integer(code, "feature_infos") for code in info.split(":"))
            found[column] = {code for code in seen if code >= 0}  # -1 is a missing entry
    for fields in trees:
        for column, asked in _asked(fields).values():
            found.setdefault(column, set()).update(asked.tolist())
    return {column: np.array(sorted(codes), dtype=np.int64) for column, codes in found.items()}


def _asked(fields: dict[str, str]) -> dict[int, tuple[int, np.ndarray]]:
    """Return, for each node that asks for categories, its column and the codes that go left."""
    if integer(_field(fields, "num_cat"), "num_cat") == 0:
        return {}
    n_inner = integer(_field(fields, "num_leaves"), "num_leaves") - 1
    column = _numbers(fields, "split_feature", n_inner)
    kind = _numbers(fields, "decision_type", n_inner)
    place = _numbers(fields, "threshold", n_inner, float)
    ends = _numbers(fields, "cat_boundaries", None)
    words = _numbers(fields, "cat_threshold", None)
    out = {}
    for node in np.flatnonzero(kind & _CATEGORICAL):
        at = place[node]
        if not 0 <= at < len(ends) - 1 or at != int(at):
            raise UnreadableModel(f"Node {node} of a LightGBM tree has no set of categories.")
        first, last = ends[int(at)], ends[int(at) + 1]
        if not 0 <= first <= last <= len(words):
            raise UnreadableModel(
                "The line cat_boundaries= of the LightGBM model is not ascending."
            )
        bits = words[first:last].astype("<u4").view(np.uint8)
        out[int(node)] = (
            int(column[node]),
            np.flatnonzero(np.unpackbits(bits, bitorder="little")),
        )
    return out


def _framed(
    codes: dict[int, np.ndarray], of_frame: Any, parameters: dict[str, str]
) -> dict[int, list[Any]]:
    """Return the categories by column where the table was a pandas frame: a code is a position."""
    listed = parameters.get("categorical_feature", "")
    try:
        columns = [int(word) for word in listed.split(",") if word]
    except ValueError:
        columns = sorted(codes)
    fits = len(columns) == len(of_frame) and codes.keys() <= set(columns)
    pairs = dict(zip(columns, of_frame))
    if not fits or any(known.size and known[-1] >= len(pairs[c]) for c, known in codes.items()):
        raise UnreadableModel(
            f"LightGBM was trained on a frame with {len(of_frame)} categorical columns, and took "
            f"the columns {columns} for categorical. It does not say which are which, where "
            "categories are ordered, or categorical_feature is given besides. Train with unordered "
            "categories and categorical_feature='auto'."
        )
    return {column: list(values) for column, values in pairs.items()}


# ---- trees ---------------------------------------------------------------------------------------


def _tree(
    fields: dict[str, str], scale: float, output: int, codes: dict[int, np.ndarray]
) -> SourceTree:
    """Return a tree: its inner nodes first, then its leaves."""
    if fields.get("is_linear", "0") != "0":
        raise UnreadableModel(
            "The LightGBM model has linear functions in its leaves, which cannot be read. Train "
            "with linear_tree=False."
        )
    n_leaves = integer(_field(fields, "num_leaves"), "num_leaves")
    n_inner = n_leaves - 1
    value = np.zeros((n_inner + n_leaves, 1))
    value[n_inner:, 0] = scale * _numbers(fields, "leaf_value", n_leaves, float)
    column = np.full(len(value), -1, dtype=np.int32)
    left, right = column.copy(), column.copy()
    threshold = np.zeros(len(value))
    missing_left = np.zeros(len(value), dtype=bool)
    sets: dict[int, np.ndarray] = {}
    if n_inner > 0:
        column[:n_inner] = np.minimum(_numbers(fields, "split_feature", n_inner), 2**31 - 1)
        for name, child in (("left_child", left), ("right_child", right)):
            number = _numbers(fields, name, n_inner)
            number = np.where(number < 0, n_inner + ~number, number)
            child[:n_inner] = np.minimum(number, 2**31 - 1)  # refused, as any that is no node
        threshold[:n_inner], missing_left[:n_inner] = _questions(fields, n_inner)
        for node, (asked, chosen) in _asked(fields).items():
            sets[node] = np.searchsorted(codes[asked], chosen)
    return SourceTree(column, threshold, missing_left, left, right, value, sets, output)


def _questions(fields: dict[str, str], n_inner: int) -> tuple[np.ndarray, np.ndarray]:
    """Return thresholds and where missing entries go, both (n_inner,).

    A missing number counts as zero, unless missing numbers were seen in training. A missing
    category goes right. Numbers up to `_ZERO_SIZE` are compared as zero, so a threshold between
    is moved to the end of this interval; where zero is missing, all of it goes the same way.
    """
    threshold = _numbers(fields, "threshold", n_inner, float)
    kind = _numbers(fields, "decision_type", n_inner)
    default_left = (kind & _DEFAULT_LEFT) > 0
    what = (kind >> 2) & 3
    zero_left = np.where(what == _ZERO, default_left, threshold >= 0.0)
    number = (kind & _CATEGORICAL) == 0
    astray = np.where(zero_left, threshold < -_ZERO_SIZE, threshold >= _ZERO_SIZE)
    if np.any(number & astray) or np.any(what > _NAN):
        raise UnreadableModel(
            "The LightGBM model sends zeros another way than the numbers around them "
            "(zero_as_missing=True). Replace zeros by NaN and train with zero_as_missing=False."
        )
    near = np.abs(threshold) <= _ZERO_SIZE
    end = np.where(zero_left, _ZERO_SIZE, np.nextafter(-_ZERO_SIZE, -1.0))
    missing = np.where(what == _NAN, default_left, zero_left)
    return np.where(number & near, end, threshold * number), number & missing
