"""Find the model of ours in a pipeline, or behind a transformed target.

An explanation then takes the rows of the whole: they pass through the steps before the model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyadic.data.columns import Columns
from polyadic.training.model import FittedModel, target_names


@dataclass
class SteppedColumns(Columns):
    """Columns of a model behind other steps: a table passes through the steps before it is coded.

    Attributes
    ----------
    inner : Columns
        Those that the model was fitted on.
    steps : fitted Pipeline
        What is before the model.
    """

    inner: Columns = field(repr=False)
    steps: Any = field(repr=False)

    def chunks(
        self, X: Any, size: int | None, *, estimator_name: str = "estimator"
    ) -> list[Callable[[], list[np.ndarray]]]:
        """Cut a table, as it was given to the pipeline, into chunks of rows: see `Columns`."""
        return self.inner.chunks(self.steps.transform(X), size, estimator_name=estimator_name)


def unwrap(model: Any) -> FittedModel:
    """Return the model of ours in a pipeline or behind a transformed target, or the model itself.

    Parameters
    ----------
    model : fitted estimator of polyadic, Pipeline, or TransformedTargetRegressor
        A Pipeline ends with a model of ours, a TransformedTargetRegressor has one as its regressor;
        each of them may also hold the other.

    Returns
    -------
    FittedModel
        Takes the rows that the whole takes. Its columns are those that reach the model, named by
        the steps before it, and its target is the transformed one.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polyadic import CPRegressor
    >>> X = np.arange(40.0).reshape(20, 2)
    >>> model = make_pipeline(StandardScaler(), CPRegressor(max_iter=1, n_members=1))
    >>> found = unwrap(model.fit(X, X[:, 0]))
    >>> type(found).__name__, bool(np.all(found.predict(X) == model.predict(X)))
    ('CPRegressor', True)
    """
    if hasattr(model, "tensor_"):
        return model
    # Imported here: most models are not wrapped, and these imports take time.
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import Pipeline

    if isinstance(model, Pipeline):
        return _behind(unwrap(model.steps[-1][1]), model[:-1])
    if isinstance(model, TransformedTargetRegressor):
        check_is_fitted(model, "regressor_")
        out: Any = copy.copy(unwrap(model.regressor_))
        names = target_names(out) or ["target"]
        out.target_names_ = [_transformed(name, model.transformer_) for name in names]
        return out
    if any(kind.__module__.startswith("polyadic.") for kind in type(model).__mro__):
        check_is_fitted(model, "tensor_")
    raise TypeError(_refusal(model))


def unwrap_target(model: Any, y: Any, name: str | None) -> tuple[Any, str | None]:
    """Return targets of the whole, and their name, as the model of ours has them."""
    if hasattr(model, "tensor_"):
        return y, name
    if hasattr(model, "steps"):
        return unwrap_target(model.steps[-1][1], y, name)
    if y is not None:
        given = np.asarray(y)
        y = model.transformer_.transform(given[:, None] if given.ndim == 1 else given)
    name = None if name is None else _transformed(name, model.transformer_)
    return unwrap_target(model.regressor_, y, name)


def pass_steps(model: FittedModel, X: Any) -> Any:
    """Return a table as it reaches the model: behind the steps before it, where there are any."""
    columns: Any = model.columns_
    while isinstance(columns, SteppedColumns):
        X, columns = columns.steps.transform(X), columns.inner
    return X


def _behind(model: FittedModel, steps: Any) -> FittedModel:
    """Return a model of ours behind the fitted steps of a pipeline."""
    if not steps.steps:
        return model
    inner = model.columns_
    has_parts = inner.names != inner.sources  # of dates, which have names of their own
    names = inner.names if has_parts else _names_after(steps, inner.names)
    columns = [replace(column, name=name) for column, name in zip(inner.columns, names)]
    out: Any = copy.copy(model)
    out.columns_ = SteppedColumns(columns, inner.named, inner, steps)
    return out


def _names_after(steps: Any, usual: list[str]) -> list[str]:
    """Return the names that steps give to their columns; the usual ones where they give none."""
    try:
        names = [str(name) for name in steps.get_feature_names_out()]
    except (AttributeError, ValueError):  # a step without names, or without those of its input
        return usual
    return names if len(names) == len(usual) == len(set(names)) else usual


def _transformed(name: str, transformer: Any) -> str:
    """Return the name of a target after a transformer.

    >>> from sklearn.preprocessing import FunctionTransformer, StandardScaler
    >>> _transformed("price", FunctionTransformer(np.log1p)), _transformed("y", StandardScaler())
    ('log1p(price)', 'StandardScaler(y)')
    """
    how = type(transformer).__name__
    if how == "FunctionTransformer":
        if transformer.func is None:
            return name
        how = getattr(transformer.func, "__name__", "")
    return f"{how}({name})" if how.isidentifier() else f"transformed {name}"


def _refusal(model: Any) -> str:
    """Return the error for what is no model of ours: what it is, and what would work."""
    told = (
        f"Got a {type(model).__module__}.{type(model).__qualname__}, where a fitted CPRegressor, "
        "CPClassifier, TNRegressor or TNClassifier is needed, or a Pipeline or a "
        "TransformedTargetRegressor with one of them inside."
    )
    if hasattr(model, "best_estimator_"):
        return f"{told} Pass its best_estimator_."
    return (
        f"{told} polyadic.trees.from_model(model, X) turns models of trees of LightGBM, XGBoost, "
        "CatBoost and scikit-learn into such an estimator."
    )
