"""Read models of scikit-learn: from the arrays of its trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils.validation import check_is_fitted

from polyadic.objective.losses import Logistic, Loss, Poisson, Quantile, Softmax, SquaredError
from polyadic.trees.source import Source, SourceTree, UnreadableModel, at_most_float32


def read(model: Any) -> Source:
    """Return the source of a boosted model, a forest or a tree."""
    check_is_fitted(model)
    for kind in type(model).__mro__:
        if kind.__name__ in READERS and kind.__module__.split(".")[0] == "sklearn":
            return READERS[kind.__name__](model)
    raise UnreadableModel(
        f"{type(model).__name__} cannot be read. Known of scikit-learn are: {', '.join(READERS)}."
    )


def _names(model: Any) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


# ---- boosted trees -------------------------------------------------------------------------------

# For each loss: ours, and what to multiply raw predictions by.
_LOSSES: dict[str, tuple[Callable[[int], Loss], float]] = {
    "HalfSquaredError": (lambda n: SquaredError(), 1.0),
    "HuberLoss": (lambda n: SquaredError(), 1.0),
    "AbsoluteError": (lambda n: Quantile(), 1.0),
    "HalfPoissonLoss": (lambda n: Poisson(), 1.0),
    "HalfGammaLoss": (lambda n: Poisson(), 1.0),
    "HalfBinomialLoss": (lambda n: Logistic(), 1.0),
    "ExponentialLoss": (lambda n: Logistic(), 2.0),  # its raw predictions are half the log-odds
    "HalfMultinomialLoss": (Softmax, 1.0),
}


def _loss(model: Any, n_outputs: int) -> tuple[Loss, float]:
    """Return the loss, and what to multiply raw predictions by."""
    loss = model._loss
    name = type(loss).__name__
    if type(loss).__module__.split(".")[0] == "sklearn":
        if name == "PinballLoss":
            return Quantile(float(loss.closs.quantile)), 1.0
        if name in _LOSSES:
            make, scale = _LOSSES[name]
            return make(n_outputs), scale
    raise UnreadableModel(
        f"The loss of the {type(model).__name__} is {name}, which cannot be read. Known are: "
        f"{', '.join([*_LOSSES, 'PinballLoss'])}."
    )


def _read_histograms(model: Any) -> Source:
    """Read HistGradientBoosting: it compares in double precision.

    Where columns are categorical it puts them first, and codes them: both is undone.
    """
    n_outputs = model.n_trees_per_iteration_
    loss, scale = _loss(model, n_outputs)
    mask = model.is_categorical_
    order = np.arange(model.n_features_in_)
    categories: dict[int, list[Any]] = {}
    if mask is not None:
        order = np.concatenate((np.flatnonzero(mask), np.flatnonzero(~mask)))
        found = model._preprocessor.named_transformers_["encoder"].categories_
        categories = {
            int(column): _without_missing(values.tolist()) for column, values in zip(order, found)
        }
    trees = [
        _histogram_tree(grown, output, order, categories, scale)
        for iteration in model._predictors
        for output, grown in enumerate(iteration)
    ]
    return Source(
        trees,
        scale * np.asarray(model._baseline_prediction, dtype=np.float64).ravel(),
        model.n_features_in_,
        loss,
        getattr(model, "classes_", None),
        categories,
        _names(model),
    )


def _without_missing(values: list[Any]) -> list[Any]:
    """Return the categories without NaN, which counts as missing and comes last."""
    if None in values:
        raise UnreadableModel(
            "The model has None as a category of its own, besides missing ones. Replace None by "
            "NaN in the table, and fit again."
        )
    return [value for value in values if value == value]


def _histogram_tree(
    grown: Any, output: int, order: np.ndarray, categories: dict[int, list[Any]], scale: float
) -> SourceTree:
    nodes = grown.nodes
    leaf = nodes["is_leaf"].astype(bool)
    column = np.where(leaf, -1, order[np.where(leaf, 0, nodes["feature_idx"])]).astype(np.int32)
    asks = nodes["is_categorical"].astype(bool) & ~leaf
    sets = {}
    for node in np.flatnonzero(asks):
        words = grown.raw_left_cat_bitsets[nodes["bitset_idx"][node]].astype("<u4")
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        sets[int(node)] = np.flatnonzero(bits[: len(categories[int(column[node])])])
    return SourceTree(
        column,
        np.where(leaf | asks, 0.0, nodes["num_threshold"]).astype(np.float64),
        nodes["missing_go_to_left"].astype(bool) & ~leaf,
        np.where(leaf, -1, nodes["left"].astype(np.int64)).astype(np.int32),
        np.where(leaf, -1, nodes["right"].astype(np.int64)).astype(np.int32),
        scale * np.where(leaf, nodes["value"], 0.0).astype(np.float64)[:, None],
        sets,
        output,
    )


def _read_boosted(model: Any) -> Source:
    """Read GradientBoosting: learning_rate times each tree, added to a constant."""
    n_outputs = model.estimators_.shape[1]
    loss, scale = _loss(model, n_outputs)
    # Of exactly these classes: a subclass may predict anything.
    if model.init_ != "zero" and type(model.init_) not in (DummyRegressor, DummyClassifier):
        raise UnreadableModel(
            f"The {type(model).__name__} starts from a model of its own, {model.init_!r:.60}. Only "
            "init=None and init='zero' can be read."
        )
    base = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))[0]
    factor = scale * model.learning_rate
    trees = [
        _plain_tree(fitted.tree_, factor * fitted.tree_.value[:, :, 0], output)
        for iteration in model.estimators_
        for output, fitted in enumerate(iteration)
    ]
    classes = getattr(model, "classes_", None)
    return Source(trees, scale * base, model.n_features_in_, loss, classes, names=_names(model))


# ---- averages ------------------------------------------------------------------------------------


def _plain_tree(tree: Any, value: np.ndarray, output: int = 0) -> SourceTree:
    """Return a tree that rounds a number to single precision, and compares with a double."""
    leaf = tree.children_left == -1
    return SourceTree(
        np.where(leaf, -1, tree.feature).astype(np.int32),
        np.where(leaf, 0.0, at_most_float32(tree.threshold)),
        tree.missing_go_to_left.astype(bool) & ~leaf,
        tree.children_left.astype(np.int32),
        np.where(leaf, -1, tree.children_right).astype(np.int32),
        np.where(leaf[:, None], value, 0.0),
        output=output,
    )


def _fitted_trees(model: Any) -> list[Any]:
    return [fitted.tree_ for fitted in getattr(model, "estimators_", [model])]


def _read_averaged_numbers(model: Any) -> Source:
    """Read a regressor whose prediction is the mean over trees, of one output or several."""
    trees = _fitted_trees(model)
    return Source(
        [_plain_tree(tree, tree.value[:, :, 0] / len(trees)) for tree in trees],
        np.zeros(model.n_outputs_),
        model.n_features_in_,
        SquaredError(),
        names=_names(model),
    )


def _read_averaged_classes(model: Any) -> Source:
    """Read a classifier whose probabilities p are means over trees: raw is 2 p - 1."""
    if model.n_outputs_ != 1:
        raise UnreadableModel(
            f"The {type(model).__name__} has {model.n_outputs_} targets that are classes each. Fit "
            "one model for each of them."
        )
    count = len(model.classes_)
    if count < 2:
        raise UnreadableModel(
            f"The {type(model).__name__} has one class, {model.classes_[0]!r}; two are needed."
        )
    trees = _fitted_trees(model)
    first = 1 if count == 2 else 0  # of two classes only the second has an output
    return Source(
        [_plain_tree(tree, tree.value[:, 0, first:] * (2.0 / len(trees))) for tree in trees],
        np.full(count - first, -1.0),
        model.n_features_in_,
        SquaredError(),
        model.classes_,
        names=_names(model),
    )


READERS: dict[str, Callable[[Any], Source]] = {
    "HistGradientBoostingRegressor": _read_histograms,
    "HistGradientBoostingClassifier": _read_histograms,
    "GradientBoostingRegressor": _read_boosted,
    "GradientBoostingClassifier": _read_boosted,
    "RandomForestRegressor": _read_averaged_numbers,
    "RandomForestClassifier": _read_averaged_classes,
    "ExtraTreesRegressor": _read_averaged_numbers,
    "ExtraTreesClassifier": _read_averaged_classes,
    "DecisionTreeRegressor": _read_averaged_numbers,
    "DecisionTreeClassifier": _read_averaged_classes,
}
