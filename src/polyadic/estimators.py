"""CPRegressor and CPClassifier: wiring only."""

from __future__ import annotations

import copy
import os
import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from polyadic import inits, local, losses, maps, settings
from polyadic.columns import Columns
from polyadic.ensemble import Member, Recipe, Table, build_problem, merge, train_members
from polyadic.formats.cp import CPCores
from polyadic.maps.choice import choose_maps, map_kinds
from polyadic.progress import Progress
from polyadic.rows import distinct_rows
from polyadic.solvers.adam import Adam, AdamState

_CHUNK = 65536  # rows encoded at a time at predict time


@dataclass
class _Passes:
    """What `partial_fit` keeps from call to call."""

    count: int = 0
    n_seen: float = 0.0
    state: AdamState | None = None
    free: np.ndarray | None = None


class _CPEstimator(BaseEstimator):
    """What the regressor and the classifier share."""

    _scales_target: ClassVar[bool] = True

    def __init__(
        self,
        maps="auto",
        rank=32,
        loss="squared_error",
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
        learning_rate=0.015,
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
        self.maps = maps
        self.rank = rank
        self.loss = loss
        self.l2 = l2
        self.order_alpha = order_alpha
        self.order_beta = order_beta
        self.smoothness = smoothness
        self.init = init
        self.separate_outputs = separate_outputs
        self.solver = solver
        self.n_members = n_members
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.average = average
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.categorical_features = categorical_features
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # ---- fitting --------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, X_val=None, y_val=None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table of shape (n, N)
            pandas, polars or pyarrow table, or NumPy array. NaN is a missing number.
        y : (n,) or (n, L)
        sample_weight : (n,), optional
            A weight of 2 counts as the row twice.
        X_val, y_val : optional
            Rows to choose the best epoch on, in the place of a held-out part of X.
        """
        settings.check(self)
        # A copy does the work, so that a fit that fails leaves this model as it was.
        worker = copy.copy(self)
        worker._fit(X, y, sample_weight, X_val, y_val)
        vars(self).update(vars(worker))
        return self

    def _fit(self, X, y, sample_weight, X_val, y_val) -> None:
        fresh = not (self.warm_start and hasattr(self, "tensor_"))
        table = self._read(X, y, sample_weight, fresh)
        held_out = None if X_val is None else self._read_more(X_val, y_val)
        if fresh:
            members = self._train(table, held_out, self._seed())
        else:
            members = [self._continue(table, held_out, self._seed())]
        self._passes = None
        self._finish(members)

    def partial_fit(self, X, y, sample_weight=None) -> Self:
        """Take one pass over these rows, with a constant rate, and remember the moments.

        The first call fits columns, maps and the scale of the target on its rows and starts one
        model; members, early stopping and the schedule have no part in it. A call after `fit`
        goes on from the fitted model.
        """
        settings.check(self)
        worker = copy.copy(self)
        worker._pass(X, y, sample_weight)
        vars(self).update(vars(worker))
        return self

    def _pass(self, X, y, sample_weight, **classes) -> None:
        first = not hasattr(self, "tensor_")
        table = self._read(X, y, sample_weight, first, **classes)
        recipe = self._recipe(table, max_epochs=1, schedule="constant")
        passes = getattr(self, "_passes", None) or _Passes()
        if first:
            self.maps_ = self._fit_maps(table)
        else:
            cores = self._unscaled()
            recipe = replace(recipe, intercept=cores.intercept)
        problem = build_problem(recipe, self.maps_, table, None, passes.n_seen)
        seed = self._seed()
        if first:
            rngs = [np.random.default_rng((seed, n)) for n in range(len(self.maps_) + 1)]
            start = recipe.init.start(problem, recipe.rank, rngs)
            cores, passes.free = start.cores, start.free
        if passes.state is None:
            passes.state = AdamState.start(cores)
        free = (cores.weights != 0).astype(float) if passes.free is None else passes.free
        rng = np.random.default_rng((seed, passes.count))
        solution = recipe.solver.solve(problem, cores, free, rng, state=passes.state)
        passes.count += 1
        passes.n_seen += table.worth()
        self._passes = passes
        self._finish([Member(self.maps_, solution)])

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _read(self, X, y, sample_weight, fresh: bool, **classes) -> Table:
        """Turn the user's table into distinct coded rows; learn the columns where fresh."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None.")
        if fresh:
            columns, coded = Columns.learn(
                X,
                categorical_features=self.categorical_features,
                kinds=map_kinds(self.maps, X, maps.resolve),
                estimator_name=name,
            )
        else:
            columns, coded = self.columns_, self.columns_.code(X, estimator_name=name)
        n_rows = len(coded[0])
        target = self._read_target(y, n_rows, fresh, **classes)
        weight = self._row_weights(sample_weight, target, n_rows)
        if fresh:
            self.columns_ = columns
            self.n_features_in_ = len(coded)
            self._set_names()
        rows, weight = distinct_rows(coded, target, weight)
        table = Table([c[rows] for c in coded], target[rows], weight)
        if fresh:
            self._scale_target(table)
        return Table(table.columns, self._to_scale(table.y), table.weight)

    def _set_names(self) -> None:
        if self.columns_.named:
            self.feature_names_in_ = np.array(self.columns_.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _read_more(self, X, y) -> Table:
        """Code the rows to be judged on with what is known, as they are."""
        if y is None:
            raise ValueError("X_val was given without y_val.")
        coded = self.columns_.code(X, estimator_name=type(self).__name__)
        target = self._read_target(y, len(coded[0]), fresh=False)
        weight = self._row_weights(None, target, len(coded[0]))
        return Table(coded, self._to_scale(target), weight)

    def _row_weights(self, sample_weight, target, n_rows: int) -> np.ndarray:
        return settings.check_weights(sample_weight, n_rows)

    def _scale_target(self, table: Table) -> None:
        """Learn centre and scale of the target, for losses that allow it."""
        n_outputs = self._n_outputs(table.y)
        self._center, self._scale = np.zeros(n_outputs), np.ones(n_outputs)
        if self._loss().location_scale and self._scales_target:
            self._center = np.average(table.y, axis=0, weights=table.weight)
            spread = np.average((table.y - self._center) ** 2, axis=0, weights=table.weight)
            self._scale = np.where(spread > 0, np.sqrt(spread), 1.0)

    def _to_scale(self, y: np.ndarray) -> np.ndarray:
        return y if y.shape[1] != len(self._center) else (y - self._center) / self._scale

    def _recipe(self, table: Table, **changes: Any) -> Recipe:
        """Resolve names and "auto" into what members are trained by; `changes` go to the solver."""
        loss = self._loss()
        n_outputs = len(self._center)
        solver = Adam(
            **{
                "learning_rate": self.learning_rate,
                "average": self.average,
                "n_iter_no_change": self.n_iter_no_change,
                "schedule": self.schedule,
                **settings.resolve_steps(self, len(table)),
                **changes,
            }
        )
        intercept = np.broadcast_to(loss.baseline(table.y, table.weight), (n_outputs,)).astype(
            float
        )
        return Recipe(
            loss=loss,
            intercept=intercept,
            rank=self.rank,
            init=inits.resolve(self.init),
            solver=solver,
            l2=None if self.l2 == "auto" else float(self.l2),
            smoothness=None if self.smoothness == "auto" else float(self.smoothness),
            order_alpha=float(self.order_alpha),
            order_beta=float(self.order_beta),
            separate=bool(self.separate_outputs) and n_outputs > 1,
            validation_fraction=self.validation_fraction if self.early_stopping else 0.0,
        )

    def _fit_maps(self, table: Table) -> list:
        chosen = choose_maps(self.maps, self.columns_.columns, maps.resolve)
        target = table.y[:, 0]
        fitted = [m.fit(x, target, table.weight) for m, x in zip(chosen, table.columns)]
        separate = self.separate_outputs and len(self._center) > 1
        width = self.rank * (len(self._center) if separate else 1)
        settings.check_memory(fitted, width, self.order_alpha)
        return fitted

    def _train(self, table: Table, held_out: Table | None, seed: int) -> list[Member]:
        maps = self._fit_maps(table)
        recipe = self._recipe(table)
        return self._with_progress(
            recipe.solver.max_epochs * self.n_members,  # type: ignore[attr-defined]
            lambda report: train_members(
                recipe, maps, table, held_out, self.n_members, seed, self._threads(), report
            ),
        )

    def _continue(self, table: Table, held_out: Table | None, seed: int) -> Member:
        """Go on from the fitted model, for warm_start."""
        cores = self._unscaled()
        recipe = replace(self._recipe(table), intercept=cores.intercept)
        problem = build_problem(recipe, self.maps_, table, held_out)
        rng = np.random.default_rng(seed)
        free = (cores.weights != 0).astype(float)
        solution = recipe.solver.solve(problem, cores, free, rng)
        return Member(self.maps_, solution)

    def _with_progress(self, total: int, work):
        if not self.verbose:
            return work(None)
        bar = Progress(total, type(self).__name__)
        try:
            return work(bar)
        finally:
            bar.close()

    def _finish(self, members: list[Member]) -> None:
        """Merge the members and store what a fitted model consists of."""
        for member in members:
            if member.solution.message:
                warnings.warn(member.solution.message, ConvergenceWarning, stacklevel=4)
        self.maps_, cores = merge(members)
        self.tensor_ = cores.rescale(self._center, self._scale)
        self.history_ = [member.solution.history for member in members]
        self.n_iter_ = max(member.solution.n_iter for member in members)

    def _unscaled(self) -> CPCores:
        return self.tensor_.rescale(-self._center / self._scale, 1.0 / self._scale)

    def _threads(self) -> int:
        if self.n_jobs is None:
            return 1
        available = os.cpu_count() or 1
        return max(1, available + 1 + self.n_jobs if self.n_jobs < 0 else self.n_jobs)

    # ---- the fitted model -----------------------------------------------------------------------

    @property
    def cores_(self) -> list[np.ndarray]:
        """The factor matrices, one (d_n, R) array a column."""
        return self.tensor_.factors

    @property
    def weights_(self) -> np.ndarray:
        """The output matrix C, (R, L), in units of the target."""
        return self.tensor_.weights

    @property
    def intercept_(self) -> np.ndarray:
        """The intercept, (L,), in units of the target."""
        return self.tensor_.intercept

    def raw(self, X) -> np.ndarray:
        """Return the prediction before the link, (n, L)."""
        check_is_fitted(self, "tensor_")
        coded = self.columns_.code(X, estimator_name=type(self).__name__)
        n_rows, threads = len(coded[0]), self._threads()
        out = np.empty((n_rows, self.tensor_.n_outputs))
        for start in range(0, n_rows, _CHUNK):
            part = slice(start, start + _CHUNK)
            features = local.encode(self.maps_, [c[part] for c in coded])
            out[part] = self.tensor_.contract(features, threads)
        return out

    def save(self, path) -> None:
        """Write the model to one file, to be read by `polyadic.load`."""
        from polyadic import store

        store.save(self, path)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags


class CPRegressor(RegressorMixin, _CPEstimator):
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
    learning_rate : float, default=0.015
        The peak of the schedule.
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
    >>> model = CPRegressor(n_members=1, rank=8, max_epochs=60, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    def _loss(self) -> losses.Loss:
        return losses.resolve(self.loss)

    def _n_outputs(self, y) -> int:
        return y.shape[1]

    def _read_target(self, y, n_rows: int, fresh: bool) -> np.ndarray:
        target = settings.check_regression_target(y, n_rows)
        self._loss().check(target)
        if fresh:
            self._flat_target = np.ndim(y) == 1 or target.shape[1] == 1
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


class CPClassifier(ClassifierMixin, _CPEstimator):
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
    >>> model = CPClassifier(n_members=1, rank=8, max_epochs=60, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
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
        learning_rate=0.015,
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

    def _n_outputs(self, y) -> int:
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

    def partial_fit(self, X, y, classes=None, sample_weight=None) -> Self:
        """Take one pass over these rows; the first call needs all `classes`."""
        if classes is None and not hasattr(self, "tensor_"):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        settings.check(self)
        worker = copy.copy(self)
        worker._pass(X, y, sample_weight, classes=classes)
        vars(self).update(vars(worker))
        return self

    def decision_function(self, X) -> np.ndarray:
        """Return the raw predictions, (n,) for two classes, else (n, K)."""
        raw = self.raw(X)
        return raw[:, 0] if len(self.classes_) == 2 else raw

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability of each class, (n, K)."""
        loss, raw = self._loss(), self.raw(X)
        if isinstance(loss, losses.SquaredError):
            share = np.clip((raw + 1.0) / 2.0, 1e-6, 1.0 - 1e-6)
            share = share if raw.shape[1] > 1 else np.hstack((1.0 - share, share))
            return share / share.sum(axis=1, keepdims=True)
        share = loss.inverse_link(raw)
        return share if raw.shape[1] > 1 else np.hstack((1.0 - share, share))

    def predict(self, X) -> np.ndarray:
        """Return the most probable class, (n,)."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
