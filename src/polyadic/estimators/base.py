"""From a table to a fitted model: what all estimators share."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from polyadic import maps
from polyadic.data import marginals
from polyadic.data.columns import Columns
from polyadic.data.rows import distinct_rows
from polyadic.estimators import saving, validation
from polyadic.kernels.losses import SQUARED
from polyadic.maps.base import FeatureMap
from polyadic.maps.choice import choose_maps, map_kinds
from polyadic.objective import losses
from polyadic.solvers import inits
from polyadic.solvers.contract import Solver
from polyadic.training import compiling
from polyadic.training.members import Member, Recipe, Table
from polyadic.training.progress import Progress

_CHUNK = 16384  # rows that a thread predicts at a time; fixed: results do not depend on n_jobs


class TableEstimator(BaseEstimator):
    """Read tables and targets, fit maps, predict. A subclass says what is trained, and how."""

    _scales_target: ClassVar[bool] = True
    _solvers: ClassVar[Callable[[], list[str]]]
    columns_: Columns
    maps_: list[FeatureMap]
    tensor_: Any
    loss_: losses.Loss
    marginals_: list[marginals.Marginal]
    history_: list[dict[str, list[float]]]
    _center: np.ndarray  # of the target, (L,)
    _scale: np.ndarray

    # ---- what a subclass says ------------------------------------------------------------------

    def _train(self, table: Table, held_out: Table | None, seed: int) -> list[Member]:
        """Train from the start."""
        raise NotImplementedError

    def _continue(self, table: Table, held_out: Table | None, seed: int) -> list[Member]:
        """Go on from the fitted model, for warm_start."""
        raise NotImplementedError

    def _merge(self, members: list[Member]) -> tuple[list[FeatureMap], Any]:
        """Return maps and cores of one model that predicts the members' mean."""
        return members[0].maps, members[0].solution.cores

    def _evaluate(self, columns: list[np.ndarray]) -> np.ndarray:
        """Return raw : (n, L) for these coded columns."""
        raise NotImplementedError

    def _threads(self) -> int:
        """Return how many chunks of rows to predict at a time."""
        return 1

    def _loss(self) -> losses.Loss:
        raise NotImplementedError

    def _n_outputs(self, target: np.ndarray) -> int:
        raise NotImplementedError

    def response(self, raw: np.ndarray) -> np.ndarray:
        """Return what raw predictions (n, L) mean: numbers, or probabilities, (n, L)."""
        raise NotImplementedError

    def predict(self, X) -> np.ndarray:
        """Return the predicted numbers or classes."""
        raise NotImplementedError

    def code_target(self, y, n_rows: int) -> np.ndarray:
        """Check targets and return them as numbers, (n, L), or class numbers, (n, 1)."""
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
            Rows to be judged on, in the place of a held-out part of X: they choose the best epoch,
            or for two classes how much interaction to believe in.
        """
        return self._attempt(self._fit, X, y, sample_weight, X_val, y_val)

    def _attempt(self, work: Callable[..., None], *args: Any) -> Self:
        """Let a copy do the work, so that a fit that fails leaves this model as it was."""
        validation.check(self)
        worker = copy.copy(self)
        with compiling.announced(bool(self.verbose)):
            getattr(worker, work.__name__)(*args)
        self.__dict__.clear()
        self.__dict__.update(worker.__dict__)
        return self

    def _fit(self, X, y, sample_weight, X_val, y_val) -> None:
        if X_val is None and y_val is not None:
            raise ValueError("y_val was given without X_val.")
        fresh = not (self.warm_start and hasattr(self, "tensor_"))
        table = self._read(X, y, sample_weight, fresh)
        if fresh and self._scales_target and self._loss().location_scale:
            # Nothing is to be learnt about an output that does not vary: leave it no room.
            still = np.ptp(table.y, axis=0) == 0
            self._scale = np.where(
                still, 1e-12 * np.maximum(1.0, np.abs(self._center)), self._scale
            )
        held_out = None if X_val is None else self._read_more(X_val, y_val)
        if fresh:
            members = self._train(table, held_out, self._seed())
        else:
            members = self._continue(table, held_out, self._seed())
        self._finish(members)
        self.marginals_ = self._marginals(table)

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
        plain = validation.check_weights(sample_weight, n_rows)
        each = np.divide(weight, plain, out=np.ones(n_rows), where=plain > 0)
        rows, weight = distinct_rows(coded, target, weight)
        # Rows that are one have one class, and so one class weight.
        counts = weight / each[rows]
        table = Table([c[rows] for c in coded], target[rows], weight, counts)
        if fresh:
            self._scale_target(table)
        return replace(table, y=self._to_scale(table.y))

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
        return validation.check_weights(sample_weight, n_rows)

    def _scale_target(self, table: Table) -> None:
        """Learn centre and scale of the target, for losses that allow it."""
        n_outputs = self._n_outputs(table.y)
        self._center, self._scale = np.zeros(n_outputs), np.ones(n_outputs)
        if self._loss().location_scale and self._scales_target:
            # A power of two near the largest target is divided out lest its square overflow.
            size = np.ldexp(1.0, np.frexp(np.abs(table.y).max(axis=0))[1] - 1)
            share = table.y / size
            mean = np.average(share, axis=0, weights=table.weight)
            spread = np.average((share - mean) ** 2, axis=0, weights=table.weight)
            self._center = mean * size
            self._scale = np.where(spread > 0, np.sqrt(spread) * size, 1.0)

    def _to_scale(self, y: np.ndarray) -> np.ndarray:
        return y if y.shape[1] != len(self._center) else (y - self._center) / self._scale

    def _choose_maps(self) -> list[FeatureMap]:
        return choose_maps(self.maps, self.columns_.columns, maps.resolve)

    def _fit_maps(self, table: Table) -> list[FeatureMap]:
        target = table.y[:, 0]
        pairs = zip(self._choose_maps(), table.columns)
        return [m.fit(x, target, table.weight) for m, x in pairs]

    def _schedule(self, table: Table, peak_rate: float) -> dict[str, Any]:
        """Return the solver's settings, "auto" resolved by the table's size."""
        # A squared error says more in one step than the loss of a yes or no.
        least = 0.35 if self._loss().code == SQUARED else 1.0
        steps = validation.resolve_steps(self, len(table), len(table.columns), peak_rate, least)
        same = ("average", "n_iter_no_change", "schedule")
        return {name: getattr(self, name) for name in same} | steps

    def _recipe(self, table: Table, solver: Solver) -> Recipe:
        """Resolve names and "auto" into what members are trained by."""
        loss, n_outputs = self._loss(), len(self._center)
        baseline = loss.baseline(table.y, table.weight)
        return Recipe(
            loss=loss,
            intercept=np.broadcast_to(baseline, (n_outputs,)).astype(float),
            rank=self.rank,
            init=inits.resolve(self.init),
            solver=solver,
            l2=None if self.l2 == "auto" else float(self.l2),
            smoothness=None if self.smoothness == "auto" else float(self.smoothness),
            order_alpha=float(self.order_alpha),
            order_beta=float(self.order_beta),
            separate=bool(getattr(self, "separate_outputs", False)) and n_outputs > 1,
            validation_fraction=self.validation_fraction if self.early_stopping else 0.0,
        )

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
        self.maps_, cores = self._merge(members)
        self.tensor_ = cores.rescale(self._center, self._scale)
        self.loss_ = self._loss()
        self.history_ = [member.solution.history for member in members]
        self.n_iter_ = max(member.solution.n_iter for member in members)

    def _marginals(self, table: Table) -> list[marginals.Marginal]:
        """Return what explanations need to know of the columns."""
        weight = table.weight if table.counts is None else table.counts
        return marginals.learn(self.columns_.columns, self.maps_, table.columns, weight)

    def _unscaled(self) -> Any:
        return self.tensor_.rescale(-self._center / self._scale, 1.0 / self._scale)

    # ---- the fitted model -----------------------------------------------------------------------

    @property
    def cores_(self) -> list[np.ndarray]:
        """The core of each column, (d_n, R) in CP, (d_n, K) in general."""
        return self.tensor_.factors

    @property
    def intercept_(self) -> np.ndarray:
        """The intercept, (L,), in units of the target."""
        return self.tensor_.intercept

    def raw(self, X) -> np.ndarray:
        """Return the prediction before the link, (n, L)."""
        check_is_fitted(self, "tensor_")
        chunks = self.columns_.chunks(X, _CHUNK, estimator_name=type(self).__name__)
        if len(chunks) == 1 or self._threads() == 1:  # to count cores takes longer than a few rows
            return np.concatenate([self._evaluate(read()) for read in chunks])
        with ThreadPoolExecutor(self._threads()) as pool:
            return np.concatenate(list(pool.map(lambda read: self._evaluate(read()), chunks)))

    def save(self, path) -> None:
        """Write the model to one file, to be read by `polyadic.load`."""
        saving.save(self, path)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
