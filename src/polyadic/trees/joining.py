"""Join two fitted models: a weighted mean of CP models is a CP model."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from polyadic.estimators import validation
from polyadic.estimators.cp import CPClassifier, CPRegressor
from polyadic.explain.compare import check_comparable
from polyadic.explain.known import marginals_with
from polyadic.explain.union import Written, combine, write_both
from polyadic.maps.beside import Beside
from polyadic.training import mixing
from polyadic.training.plan import Choice, PlanSummary

Estimator = CPRegressor | CPClassifier


def join(
    a: Estimator, b: Estimator, X: Any, y: Any, sample_weight: Any = None, background: Any = None
) -> Estimator:
    """Return the weighted mean of two fitted models as one model, exactly.

    The share of each model minimises the loss of the mean on the rows of X. Neither model may have
    seen these rows in training: to a model that has, they would give too large a share.

    Parameters
    ----------
    a, b : fitted CPRegressor or CPClassifier
        Over the same columns and the same target, such as a model of this library and one that
        `from_model` has read.
    X : table of shape (n, N)
    y : (n,) or (n, L)
    sample_weight : (n,), optional
    background : table, optional
        The table over which explanations average. By default the training table of `a`, as far as
        what the model keeps of it is enough, else the rows of X.

    Returns
    -------
    CPRegressor or CPClassifier
        Of the class of `a`. `plan_` tells the shares; it cannot be trained further if it has trees.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> from polyadic import CPRegressor
    >>> from polyadic.trees import from_model
    >>> X = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    >>> y = np.sin(3 * X[:, 0]) * X[:, 1] + (X[:, 0] > 0.3)
    >>> trees = HistGradientBoostingRegressor(max_iter=20).fit(X[:400], y[:400])
    >>> read = from_model(trees, X[:400])
    >>> own = CPRegressor(n_members=1, max_iter=20, random_state=0).fit(X[:400], y[:400])
    >>> both = join(own, read, X[400:500], y[400:500])
    >>> error = [np.mean((m.predict(X[500:]) - y[500:]) ** 2) for m in (read, both)]
    >>> bool(error[1] < 0.5 * error[0])
    True
    """
    check_comparable(a, b)
    shares = _find_shares(a, b, X, y, sample_weight)
    first, second = write_both(a, b)
    if any(isinstance(m, Beside) for m in first.maps_):
        kinds = [f"{p!r} and {q!r}" for p, q in zip(a.maps_, b.maps_) if type(p) is not type(q)]
        raise ValueError(
            f"The models have different maps, {kinds[0] if kinds else 'of other ranges'}, which no "
            "single map can express. Join models with maps of the same kind, such as maps='hat'."
        )
    return _estimator(a, b, combine(first, second, shares), shares, X, background)


def _find_shares(a: Estimator, b: Estimator, X: Any, y: Any, sample_weight: Any) -> list[float]:
    """Return the share of each model that the rows choose."""
    raws = np.array([model.raw(X) for model in (a, b)])
    n_rows = raws.shape[1]
    weight = validation.check_weights(sample_weight, n_rows)
    target = a._read_target(y, n_rows, fresh=False)
    # In units in which the target has a variance of one, as in a fit.
    if a.loss_.location_scale and target.shape[1] == raws.shape[2]:
        mean = np.average(target, axis=0, weights=weight)
        size = np.sqrt(np.average((target - mean) ** 2, axis=0, weights=weight))
        size = np.where(size > 0, size, 1.0)
        raws, target = raws / size, target / size
    return mixing.find_shares(a.loss_, target, weight, raws).tolist()


def _estimator(
    a: Estimator, b: Estimator, written: Written, shares: list[float], X: Any, background: Any
) -> Estimator:
    """Return a fitted estimator of the class of a."""
    out = copy.copy(a)
    out.columns_, out.maps_, out.tensor_ = written.columns_, written.maps_, written.tensor_
    try:
        out.marginals_ = marginals_with(a, written.columns_, written.explained, background)
    except ValueError:
        if background is not None:
            raise
        # What a model keeps of its training rows may not tell those of b's bins.
        out.marginals_ = marginals_with(a, written.columns_, written.explained, X)
    told = [Choice("share", f"{share:.3f}", f"of {_told(m)}") for m, share in zip((a, b), shares)]
    out.plan_ = PlanSummary(tuple(told))
    out.history_ = [*a.history_, *b.history_]
    out._passes = None
    if written.tensor_.trees is not None:
        out.trees = True
    return out


def _told(model: Estimator) -> str:
    """Return what a model is, in words."""
    known = {
        choice.name: choice.value for choice in getattr(model, "plan_", PlanSummary(())).choices
    }
    return known.get("source", type(model).__name__)
