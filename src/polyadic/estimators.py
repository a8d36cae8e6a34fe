"""CPRegressor and CPClassifier: wiring only."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from polyadic import losses, settings
from polyadic.fitting import CPEstimator


class CPRegressor(RegressorMixin, CPEstimator):
    """Regression with a CP weight tensor over local feature maps.

    Accurate with its defaults, and readable exactly: the model is a sum of R products of one
    function a column. Six members, each on knots and held-out rows of its own, are merged into one
    such sum.

    Parameters
    ----------
    maps : str, FeatureMap or dict, default="auto"
        Feature map of the columns: "auto" (hats for numbers, one-hot for categories), the name or
        an instance of a map for all numeric columns, or a dict from column to map.
    rank : int, default=32
        Number of rank-one terms R of each member.
    loss : str or Loss, default="squared_error"
        "squared_error", "absolute_error", "quantile", "huber", "poisson", or an instance from
        `polyadic.losses`, such as `Quantile(0.9)`.
    l2 : float or "auto", default="auto"
        Strength of the L2 penalty on all elements but constants; "auto" follows the noise.
    order_alpha, order_beta : float
        Strength and base of the order penalty (paper, section VI); off by default.
    smoothness : float or "auto", default="auto"
        Strength of the penalty on second differences along knots; "auto" follows the noise.
    init : str or init, default="near_one"
        "near_one", "gaussian", "linear", or an instance from `polyadic.inits`.
    separate_outputs : bool, default=False
        With several outputs: one weight tensor each, as in the paper, instead of shared factors.
    solver : "adam"
    n_members : int, default=6
        Models that are averaged, and merged into one.
    max_epochs, batch_size : int or "auto"
    learning_rate : float or "auto"
        The peak of the schedule; "auto" is 0.015, less for more than ten columns.
    schedule : "one_cycle" or "constant"
    average : float, default=0.99
        Weight of the past in the running average of the parameters; 0 for none.
    early_stopping : bool, default=True
        Hold out a part of the rows, another one for each member, and keep the best epoch on it.
    validation_fraction : float, default=0.1
    n_iter_no_change : int or None
        Stop after so many epochs without progress; None lets the schedule run to its end.
    categorical_features : "from_dtype", list, mask or None
    warm_start : bool
        Let `fit` go on from the fitted model.
    random_state : int, RandomState or None
    n_jobs : int, default=-1
        Threads; results do not depend on it.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    cores_ : list of (d_n, R) arrays
    weights_ : (R, L)
    intercept_ : (L,)
    maps_ : list of fitted FeatureMap
    history_ : list of dict, the learning curves of each member
    n_iter_ : int
    feature_names_in_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (500, 3))
    >>> y = X[:, 0] * X[:, 1] + X[:, 2] ** 2
    >>> model = CPRegressor(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    def _loss(self) -> losses.Loss:
        return losses.resolve(self.loss)

    def _n_outputs(self, target) -> int:
        return target.shape[1]

    def _read_target(self, y, n_rows: int, fresh: bool, classes=None) -> np.ndarray:
        target = settings.check_regression_target(y, n_rows)
        self._loss().check(target)
        if fresh:
            self._flat_target = target.shape[1] == 1
        elif target.shape[1] != len(self._center):
            raise ValueError(
                f"y has {target.shape[1]} outputs, but the model was fitted with "
                f"{len(self._center)}."
            )
        return target

    def predict(self, X) -> np.ndarray:
        """Predict the target, (n,) or (n, L)."""
        raw = self.raw(X)
        out = losses.resolve(self.loss).inverse_link(raw)
        return out[:, 0] if self._flat_target else out

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class CPClassifier(ClassifierMixin, CPEstimator):
    """Classification with a CP weight tensor over local feature maps.

    Parameters are those of `CPRegressor`, but for `loss` ("log_loss" or, as in the paper's
    recommender experiment, "squared_error" on labels -1 and +1) and `class_weight` (a dict,
    "balanced" or None).

    Attributes
    ----------
    classes_ : (K,)
        And those of `CPRegressor`. Two classes share one output; K > 2 have K.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (400, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "opposite")
    >>> model = CPClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        maps="auto",
        rank=32,
        loss="log_loss",
        class_weight=None,
        l2="auto",
        order_alpha=0.0,
        order_beta=2.0,
        smoothness="auto",
        init="near_one",
        separate_outputs=False,
        solver="adam",
        n_members=6,
        max_epochs="auto",
        batch_size="auto",
        learning_rate="auto",
        schedule="one_cycle",
        average=0.99,
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=None,
        categorical_features="from_dtype",
        warm_start=False,
        random_state=None,
        n_jobs=-1,
        verbose=0,
    ):
        super().__init__(
            maps=maps,
            rank=rank,
            loss=loss,
            l2=l2,
            order_alpha=order_alpha,
            order_beta=order_beta,
            smoothness=smoothness,
            init=init,
            separate_outputs=separate_outputs,
            solver=solver,
            n_members=n_members,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            average=average,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            categorical_features=categorical_features,
            warm_start=warm_start,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.class_weight = class_weight

    _scales_target = False

    def _loss(self) -> losses.Loss:
        loss = losses.resolve(self.loss, losses.CLASSIFIER_LOSSES)
        if isinstance(loss, losses.Softmax):
            two = len(self.classes_) == 2
            return losses.Logistic() if two else losses.Softmax(len(self.classes_))
        return loss

    def _n_outputs(self, target) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _read_target(self, y, n_rows: int, fresh: bool, classes=None) -> np.ndarray:
        """Return the classes' numbers, or labels -1 and +1 for the squared error, (n, L or 1)."""
        y = column_or_1d(y, warn=True)
        settings.check_length(y, n_rows)
        settings.check_missing_labels(y)
        check_classification_targets(y)
        if fresh:
            known = np.unique(y if classes is None else classes)
            settings.check_classes(known, type(self).__name__)
            self.classes_ = known
        strange = ~np.isin(y, self.classes_)
        if np.any(strange):
            raise ValueError(
                f"y holds the class {y[strange][0]!r}, which is not among the known classes "
                f"{list(self.classes_)}. Pass all classes to the first call of partial_fit."
            )
        number = np.searchsorted(self.classes_, y)
        if isinstance(self._loss(), losses.SquaredError):
            if len(self.classes_) == 2:
                return 2.0 * number[:, None] - 1.0
            return 2.0 * (number[:, None] == np.arange(len(self.classes_))) - 1.0
        return number[:, None].astype(float)

    def _row_weights(self, sample_weight, target, n_rows: int) -> np.ndarray:
        weight = settings.check_weights(sample_weight, n_rows)
        if self.class_weight is None:
            return weight
        if target.shape[1] > 1:
            number = np.argmax(target, axis=1)
        else:
            number = np.maximum(target[:, 0], 0).astype(int)  # two classes may be -1 and +1
        labels = self.classes_[number]
        if self.class_weight == "balanced":
            totals = np.bincount(number, weights=weight, minlength=len(self.classes_))
            each = weight.sum() / (np.count_nonzero(totals) * np.maximum(totals, 1e-300))
            return weight * each[number]
        each = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        return weight * each[number]

    def partial_fit(self, X, y, classes=None, sample_weight=None) -> Self:  # type: ignore[override]
        """Take one pass over these rows; the first call needs all `classes`."""
        if classes is None and not hasattr(self, "tensor_"):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return self._attempt(self._pass, X, y, sample_weight, classes)

    def decision_function(self, X) -> np.ndarray:
        """Return the raw predictions, (n,) for two classes, else (n, K)."""
        raw = self.raw(X)
        return raw[:, 0] if len(self.classes_) == 2 else raw

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability of each class, (n, K)."""
        raw = self.raw(X)
        loss = self._loss()
        if isinstance(loss, losses.SquaredError):
            share = np.clip((raw + 1.0) / 2.0, 1e-6, 1.0 - 1e-6)
            share = share if raw.shape[1] > 1 else np.hstack((1.0 - share, share))
            return share / share.sum(axis=1, keepdims=True)
        share = loss.inverse_link(raw)
        return share if raw.shape[1] > 1 else np.hstack((1.0 - share, share))

    def predict(self, X) -> np.ndarray:
        """Return the most probable class, (n,)."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]
