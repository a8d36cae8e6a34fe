"""How a CP estimator is fitted: from a table to distinct rows, members, and one merged model."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from polyadic import inits, local, losses, maps, settings
from polyadic.columns import Columns
from polyadic.ensemble import Member, Recipe, Table, build_problem, merge, train_members
from polyadic.formats.cp import CPCores
from polyadic.maps.base import FeatureMap
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


class CPEstimator(BaseEstimator):
    """What the regressor and the classifier share."""

    _scales_target: ClassVar[bool] = True
    columns_: Columns
    tensor_: CPCores
    maps_: list[FeatureMap]
    _passes: _Passes | None
    _center: np.ndarray  # of the target, (L,)
    _scale: np.ndarray

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

    # ---- what a subclass says ------------------------------------------------------------------

    def _loss(self) -> losses.Loss:
        raise NotImplementedError

    def _n_outputs(self, target: np.ndarray) -> int:
        raise NotImplementedError

    def _read_target(self, y, n_rows: int, fresh: bool, classes=None) -> np.ndarray:
        """Check y and return it as numbers, (n, L), or (n, 1) for softmax."""
        raise NotImplementedError

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
        return self._attempt(self._fit, X, y, sample_weight, X_val, y_val)

    def _attempt(self, work: Callable[..., None], *args: Any) -> Self:
        """Let a copy do the work, so that a fit that fails leaves this model as it was."""
        settings.check(self)
        worker = copy.copy(self)
        getattr(worker, work.__name__)(*args)
        self.__dict__.update(worker.__dict__)
        return self

    def _fit(self, X, y, sample_weight, X_val, y_val) -> None:
        fresh = not (self.warm_start and hasattr(self, "tensor_"))
        table = self._read(X, y, sample_weight, fresh)
        if fresh and self._scales_target:
            # Nothing is to be learnt about an output that does not vary: leave it no room.
            still = np.ptp(table.y, axis=0) == 0
            self._scale = np.where(
                still, 1e-12 * np.maximum(1.0, np.abs(self._center)), self._scale
            )
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
        return self._attempt(self._pass, X, y, sample_weight)

    def _pass(self, X, y, sample_weight, classes=None) -> None:
        first = not hasattr(self, "tensor_")
        table = self._read(X, y, sample_weight, first, classes)
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

    def _read(self, X, y, sample_weight, fresh: bool, classes=None) -> Table:
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
        target = self._read_target(y, n_rows, fresh, classes)
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
                "average": self.average,
                "n_iter_no_change": self.n_iter_no_change,
                "schedule": self.schedule,
                **settings.resolve_steps(self, len(table), len(table.columns)),
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
            recipe.solver.max_epochs * self.n_members,
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
        return tags
