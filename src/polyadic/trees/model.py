"""Turn a fitted model of another library into an estimator of this one, which can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyadic.data import marginals
from polyadic.data.columns import Columns
from polyadic.data.tables import read_table
from polyadic.estimators import validation
from polyadic.estimators.cp import CPClassifier, CPRegressor
from polyadic.maps import Step
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees
from polyadic.objective.losses import Logistic, Loss, Poisson, Quantile, Softmax, SquaredError
from polyadic.training.forest import possible
from polyadic.training.model import explained_maps
from polyadic.training.plan import Choice, PlanSummary
from polyadic.trees.align import align, categories_for
from polyadic.trees.assembly import assemble, no_bins, widened
from polyadic.trees.registry import library_of, read_source
from polyadic.trees.source import Source, SourceTree

_NAMES: dict[type[Loss], str] = {
    SquaredError: "squared_error",
    Poisson: "poisson",
    Logistic: "log_loss",
    Softmax: "log_loss",
}


def from_model(
    model: Any,
    X: Any,
    sample_weight: Any = None,
    categories: Mapping[Any, Sequence[Any]] | None = None,
) -> CPRegressor | CPClassifier:
    """Return an estimator that predicts what a fitted model of trees predicts.

    Each leaf of a tree is a product of indicators, one per column on its path, so the model is a
    sum of products as any other here: it can be explained, plotted, shown as a page, and saved.
    Nothing is trained, and nothing is approximated.

    Parameters
    ----------
    model : fitted model of LightGBM, XGBoost, CatBoost or scikit-learn
        A regressor or a classifier: boosted trees, a forest or a single tree. See
        `polyadic.trees.registry.READABLE` for all classes.
    X : table of shape (n, N)
        The columns that the model was fitted on: pandas, polars or pyarrow table, or NumPy array.
        Columns are found by name, if the table and the model have names, else by position. The
        rows give the marginals over which explanations average, so that training rows are best.
    sample_weight : (n,), optional
        A row with a weight of 2 counts as two rows.
    categories : dict, optional
        For CatBoost only: further categories of a column, by its name or its number in X. A model
        of CatBoost has hashes of its categories; those that X lacks must be given here.

    Returns
    -------
    CPRegressor or CPClassifier
        With `loss` as in the model, `trees=True` where a fit can grow trees for that loss, and all
        other parameters at their defaults.
        `plan_` tells where it came from. `history_` is empty, and it cannot be trained further.

    Raises
    ------
    UnreadableModel
        If the class of the model is not known, or it is no sum of products of one function per
        column, such as a model with linear functions in its leaves.
    ValueError
        If X does not have the columns of the model, or its categories.

    Notes
    -----
    Raw predictions differ from those of the library by rounding only: libraries of single
    precision round more than this one. For numbers between thresholds, on them and beside them,
    and for missing ones, the same leaves are reached. A few things differ:

    - An infinite number is refused, as everywhere here.
    - A forest of scikit-learn may give a class the probability 0; here the lowest is 1e-6. Where
      two classes are equally probable, rounding may choose the other one.
    - `decision_function` returns log-odds, which some libraries divide by a number: LightGBM by
      `sigmoid`, and scikit-learn by 2 for the exponential loss.
    - XGBoost sends an unknown code of an array another way than a missing one. Codes that X holds
      are sent as XGBoost sends them; others count as missing.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from polyadic import explain
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> tree = DecisionTreeRegressor(random_state=0).fit(X, [0.0, 0.0, 1.0, 5.0])
    >>> model = from_model(tree, X)
    >>> model.predict(X)
    array([0., 0., 1., 5.])
    >>> print(model.plan_["source"])
    DecisionTreeRegressor
    >>> explain.shapley(model, X[-1:]).values.round(2).ravel()
    array([2. , 1.5])
    """
    library = library_of(model)
    table = read_table(X, "from_model")
    given = categories_for(model, table, categories) if library == "catboost" else None
    source = _with_sorted_classes(read_source(model, given))
    columns, coded = align(table, source, library)
    weight = validation.check_weights(sample_weight, len(coded[0]))
    trees = assemble(source, columns.columns, new_left=library == "xgboost")
    out = _estimator(source, columns, trees)
    out.plan_ = PlanSummary(_choices(model, library, source, trees, weight))
    kept = weight > 0
    maps = explained_maps(out.maps_, out.tensor_)
    rows = [column[kept] for column in coded]
    out.marginals_ = marginals.learn(columns.columns, maps, rows, weight[kept])
    return out


# ---- outputs -------------------------------------------------------------------------------------


def _with_sorted_classes(source: Source) -> Source:
    """Return the source with its classes in sorted order, and its outputs with them."""
    if source.classes is None:
        return source
    known = np.asarray(source.classes)
    classes, order = np.unique(known, return_index=True)
    if len(classes) < len(known):
        raise ValueError(f"The classes of the model must differ, got {known.tolist()!r:.100}.")
    if np.array_equal(order, np.arange(len(order))):
        return replace(source, classes=classes)
    if len(classes) == 2:  # the output speaks for the other class
        trees = [replace(tree, value=-tree.value) for tree in source.trees]
        return replace(source, trees=trees, base=-source.base, classes=classes)
    trees = [_reordered(tree, order) for tree in source.trees]
    return replace(source, trees=trees, base=source.base[order], classes=classes)


def _reordered(tree: SourceTree, order: np.ndarray) -> SourceTree:
    """Return a tree whose output k is what output order[k] was."""
    if tree.value.shape[1] == 1:
        return replace(tree, output=int(np.flatnonzero(order == tree.output)[0]))
    full = widened(tree, len(order))
    return replace(full, value=full.value[:, order])


# ---- the estimator -------------------------------------------------------------------------------


def _estimator(source: Source, columns: Columns, trees: Trees) -> CPRegressor | CPClassifier:
    """Return the fitted estimator, without its marginals and its plan."""
    out: CPRegressor | CPClassifier
    n_outputs = len(source.base)
    grows = True if possible(source.loss) else "auto"  # for a fit of a clone
    if source.classes is None:
        out = CPRegressor(trees=grows, **_loss_settings(source.loss))
        out._flat_target = n_outputs == 1
    else:
        out = CPClassifier(trees=grows, **_loss_settings(source.loss))
        out.classes_ = source.classes
    out.columns_ = columns
    out.n_features_in_ = len(columns.columns)
    out._set_names()
    # A model has smooth terms too: here one, of weight zero, over maps without any detail.
    out.maps_ = [
        Step.at(np.zeros(0)) if c.categories is None else no_bins(len(c.categories))
        for c in columns.columns
    ]
    factors = [np.zeros((m.dim, 1)) for m in out.maps_]
    base = np.array(source.base, dtype=np.float64)
    out.tensor_ = CPCores(factors, np.zeros((1, n_outputs)), base, None, trees)
    out._center, out._scale = np.zeros(n_outputs), np.ones(n_outputs)
    out.loss_ = out._loss()
    out.history_, out.n_iter_ = [], 0
    out._passes = None
    return out


def _loss_settings(loss: Loss) -> dict[str, Any]:
    """Return the parameters that stand for a loss."""
    if not isinstance(loss, Quantile):
        return {"loss": _NAMES[type(loss)]}
    if loss.level == 0.5:
        return {"loss": "absolute_error"}
    return {"loss": "quantile", "quantile": loss.level}


def _choices(
    model: Any, library: str, source: Source, trees: Trees, weight: np.ndarray
) -> tuple[Choice, ...]:
    """Return where the estimator came from, in place of what was chosen for a fit."""
    n_leaves = int(np.count_nonzero(trees.nodes.column < 0))
    size = f"{_count(len(source.trees), 'tree', 'trees')}, {_count(n_leaves, 'leaf', 'leaves')}"
    return (
        Choice("source", type(model).__name__, f"of {library}: {size}"),
        Choice("loss", repr(source.loss), "with the link of the source"),
        Choice("rows", f"{np.count_nonzero(weight):,}", "that explanations average over"),
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
