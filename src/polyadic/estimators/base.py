"""From a table to a fitted model: what all estimators share."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from polyadic import maps
from polyadic.data import marginals
from polyadic.data.columns import Columns
from polyadic.data.hints import warn_of_columns
from polyadic.data.rows import CodedRows, distinct_rows
from polyadic.data.tables import series_names
from polyadic.estimators import saving, validation
from polyadic.estimators.callbacks import (
    Callbacks,
    CallbackSupportMixin,
    has_callbacks,
    kept_by_sklearn,
    with_callbacks,
)
from polyadic.estimators.finite import check_finite_raw, set_finite_model
from polyadic.explain.anova import sobol
from polyadic.maps.base import FeatureMap
from polyadic.maps.choice import choose_maps, map_kinds
from polyadic.objective import losses
from polyadic.scale.statistics import power_near
from polyadic.solvers.contract import Deadline
from polyadic.training import compiling
from polyadic.training.checkpoints import Checkpoint
from polyadic.training.members import Training, train
from polyadic.training.merge import Member, merge
from polyadic.training.missing import average_missing
from polyadic.training.model import explained_maps
from polyadic.training.plan import Plan, PlanSummary, Task
from polyadic.training.progress import Progress
from polyadic.training.watch import Listener

# Rows that a thread predicts at a time; chosen by hand. Fixed, so that results do not depend on
# n_jobs.
_CHUNK = 16384

_MOST_COPIES = 10  # of a repeated row: by default there are as many folds

# Scale of an output that does not vary, as a share of its value (of one, if that is larger): small
# beside the rounding of float32, so that predictions are the constant. Chosen by hand.
_CONSTANT_SCALE = 1e-12


class TableEstimator(CallbackSupportMixin, BaseEstimator):
    """Read tables and targets, fit maps, predict. A subclass defines what is trained, and how."""

    _scales_target: ClassVar[bool] = True
    _solvers: ClassVar[Callable[[], list[str]]]
    columns_: Columns
    maps_: list[FeatureMap]
    tensor_: Any
    loss_: losses.Loss
    marginals_: list[marginals.Marginal]
    history_: list[dict[str, list[float]]]
    plan_: PlanSummary
    _center: np.ndarray  # of the target, (L,)
    _scale: np.ndarray

    # ---- what a subclass defines ---------------------------------------------------------------

    def _plan(
        self,
        rows: CodedRows,
        has_held_out: bool,
        order: Sequence[int] | None = None,
        streamed: Any = None,
        deadline: Deadline | None = None,
    ) -> Plan:
        """Resolve every "auto" for these rows, whose columns are in this order, or the table's."""
        raise NotImplementedError

    def _training_order(self, rows: CodedRows) -> list[int] | None:
        """Return the order in which a fit takes the columns; None: that of the table."""
        return None

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
        """Return raw predictions (n, L) after the link: numbers or probabilities, (n, L)."""
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

    @with_callbacks
    def fit(self, X, y, sample_weight=None, X_val=None, y_val=None, sample_weight_val=None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table of shape (n, N)
            pandas, polars or pyarrow table, or NumPy array. NaN is a missing number.
        y : (n,) or (n, L)
        sample_weight : (n,), optional
            A row with a weight of 2 counts as two rows.
        X_val, y_val : optional
            Held-out rows, used in place of a part of X: they choose all that `plan_` says was
            chosen by held-out rows, such as the best epoch and the shares of the strategies.
        sample_weight_val : (m,), optional
            Weights of the held-out rows.
        """
        start = time.perf_counter()
        with self._all_or_nothing() as model:
            deadline = Deadline(np.inf if self.max_time is None else start + float(self.max_time))
            rows, held_out = model._read(X, y, sample_weight, X_val, y_val, sample_weight_val)
            callbacks = model._learn(self, (X, y, sample_weight), rows, held_out, deadline)
        for one in callbacks:
            one.finish()
        return self

    def _learn(
        self,
        estimator: TableEstimator,
        given: tuple[Any, Any, Any],
        rows: CodedRows,
        held_out: CodedRows | None,
        deadline: Deadline | None,
        streamed: Any = None,
    ) -> list[Callbacks]:
        """Train on coded rows, and set all attributes of the fitted model.

        `estimator` is the one that the user called, with `given`: X, y and sample_weight. Where the
        rows are a sample of those that are `streamed`, training goes on with all of them.
        """
        as_given, order = rows, self._training_order(rows)
        if order is not None:
            rows = rows.restricted(order)
            held_out = None if held_out is None else held_out.restricted(order)
        plan = self._plan(rows, held_out is not None, order, streamed, deadline)
        told = Callbacks(estimator, partial(self._with_member, order=order), *given)
        callbacks = [told] if has_callbacks(estimator) else []
        bars = [Progress(type(self).__name__)] if self.verbose else []
        checkpoint = self._open_checkpoint(rows, held_out, streamed)
        extend = None if streamed is None else streamed.extend(order)
        listeners: list[Listener] = [*callbacks, *bars]
        training = train(plan, rows, held_out, listeners, deadline, checkpoint, extend)
        self._remember(plan, training, as_given, order)
        if not estimator._resumes:
            self.__dict__.pop("interaction_", None)
        self.__dict__.update(training.attributes)
        known = self._measure_marginals(as_given) if streamed is None else streamed.measure(self)
        self.marginals_ = known
        self._average_missing()
        if checkpoint is not None:
            checkpoint.remove()
        return callbacks

    def _open_checkpoint(
        self, rows: CodedRows, held_out: CodedRows | None, streamed: Any
    ) -> Checkpoint | None:
        """Return where to keep what is finished; None: nowhere."""
        return None

    @contextmanager
    def _all_or_nothing(self) -> Iterator[Self]:
        """Let a copy do the work, so that a fit that fails leaves this model as it was."""
        validation.check_to_fit(self)
        model = copy.copy(self)
        with compiling.announced(bool(self.verbose)):
            yield model
        kept = kept_by_sklearn(self)
        self.__dict__.clear()
        self.__dict__.update(model.__dict__ | kept)

    @property
    def _resumes(self) -> bool:
        """Whether `fit` goes on from a fitted model."""
        return bool(self.warm_start) and hasattr(self, "tensor_")

    def _read(
        self, X, y, sample_weight, X_val, y_val, sample_weight_val
    ) -> tuple[CodedRows, CodedRows | None]:
        """Return the rows to train on and, where given, the held-out rows."""
        if X_val is None and y_val is not None:
            raise ValueError("y_val was given without X_val.")
        if X_val is None and sample_weight_val is not None:
            raise ValueError("sample_weight_val was given without X_val.")
        fresh = not self._resumes
        if not fresh:
            self._check_same_loss()
        rows = self._read_rows(X, y, sample_weight, fresh)
        if fresh:
            self._shrink_constant_outputs(rows)
        return rows, None if X_val is None else self._read_held_out(X_val, y_val, sample_weight_val)

    def _check_same_loss(self) -> None:
        """Refuse to go on from a model of another loss, whose scale and link differ."""
        now = self._loss()
        if now != self.loss_:
            raise ValueError(
                f"The fitted model has the loss {self.loss_!r}, and the parameters now ask for "
                f"{now!r}: training cannot go on. Set the loss back, or fit anew with "
                "warm_start=False."
            )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _read_rows(self, X, y, sample_weight, fresh: bool, classes=None) -> CodedRows:
        """Turn the user's table into distinct coded rows; `fresh`: learn the columns from it."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None.")
        if fresh:
            kinds = map_kinds(self.maps, X, maps.resolve)
            columns, coded = Columns.learn(
                X,
                categorical_features=self.categorical_features,
                kinds=kinds,
                estimator_name=name,
            )
            by_dtype = isinstance(self.categorical_features, str)
            n_known = [float(np.count_nonzero(codes >= 0)) for codes in coded]
            asked_for = (kinds or ()) if by_dtype else columns.names
            warn_of_columns(columns.columns, n_known, asked_for)
        else:
            columns, coded = self.columns_, self.columns_.code(X, estimator_name=name)
        n_rows = len(coded[0])
        target = self._read_target(y, n_rows, fresh, classes)
        weight = self._row_weights(sample_weight, target, n_rows)
        if fresh:
            self.columns_ = columns
            self.target_names_ = series_names(y)
            self.n_features_in_ = len(columns.sources)
            self._set_names()
        plain = validation.check_weights(sample_weight, n_rows)
        each = np.divide(weight, plain, out=np.ones(n_rows), where=plain > 0)
        names = columns.names if columns.named else None
        rows, weight = distinct_rows(coded, target, weight, names)
        # Equal rows have the same class, and so the same class weight.
        counts = weight / each[rows]
        distinct = CodedRows([c[rows] for c in coded], target[rows], weight, counts)
        if fresh:
            self._scale_target(distinct)
        else:
            self._check_constant_outputs(distinct)
        return replace(distinct, y=self._to_scale(distinct.y)).in_copies(_MOST_COPIES)

    def _set_names(self) -> None:
        if self.columns_.named:
            self.feature_names_in_ = np.array(self.columns_.sources, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _read_held_out(self, X, y, sample_weight) -> CodedRows:
        """Code the held-out rows with the known columns; equal rows are not merged."""
        if y is None:
            raise ValueError("X_val was given without y_val.")
        coded = self.columns_.code(X, estimator_name=type(self).__name__)
        target = self._read_target(y, len(coded[0]), fresh=False)
        weight = self._row_weights(sample_weight, target, len(coded[0]))
        return CodedRows(coded, self._to_scale(target), weight)

    def _row_weights(self, sample_weight, target, n_rows: int) -> np.ndarray:
        return validation.check_weights(sample_weight, n_rows)

    def _scale_target(self, rows: CodedRows) -> None:
        """Learn centre and scale of the target, for losses that allow scaling."""
        n_outputs = self._n_outputs(rows.y)
        self._center, self._scale = np.zeros(n_outputs), np.ones(n_outputs)
        if self._loss().location_scale and self._scales_target:
            # Divided by a power of two near the largest target, so that squares do not overflow.
            size = power_near(np.abs(rows.y).max(axis=0))
            share = rows.y / size
            mean = np.average(share, axis=0, weights=rows.weight)
            spread = np.average((share - mean) ** 2, axis=0, weights=rows.weight)
            # The mean of equal numbers may be rounded, and would then seem to be far from them.
            constant = np.ptp(rows.y, axis=0) == 0
            self._center = np.where(constant, rows.y[0], mean * size)
            self._scale = np.where(constant | (spread == 0), 1.0, np.sqrt(spread) * size)
            validation.check_spread(self._scale)

    def _shrink_constant_outputs(self, rows: CodedRows) -> None:
        """Give an output that does not vary a tiny scale, so that it is predicted as constant."""
        if self._scales_target and self._loss().location_scale:
            self._shrink_constant(np.ptp(rows.y, axis=0) == 0)

    def _shrink_constant(self, constant: np.ndarray) -> None:
        """Give the outputs that are marked a tiny scale."""
        self._scale = np.where(constant, self._tiny_scale(), self._scale)

    def _tiny_scale(self) -> np.ndarray:
        """Return the scale of outputs that do not vary, (L,)."""
        return _CONSTANT_SCALE * np.maximum(1.0, np.abs(self._center))

    def _check_constant_outputs(self, rows: CodedRows) -> None:
        """Refuse to go on where an output varies that did not: the fitted scale leaves no room."""
        if not (self._scales_target and self._loss().location_scale):
            return
        # An output in small units may vary by less; the mean of equal numbers may be rounded.
        shrunk = np.isclose(self._scale, self._tiny_scale(), rtol=1e-9, atol=0.0)
        moved = shrunk & np.any(np.abs(rows.y - self._center) > self._scale, axis=0)
        if np.any(moved):
            raise ValueError(
                f"Output {np.flatnonzero(moved)[0]} of y was constant when the model was fitted, "
                "and varies now: training cannot go on. Fit anew with warm_start=False."
            )

    def _to_scale(self, y: np.ndarray) -> np.ndarray:
        return y if y.shape[1] != len(self._center) else (y - self._center) / self._scale

    def _choose_maps(self) -> list[FeatureMap]:
        return choose_maps(self.maps, self.columns_.columns, maps.resolve)

    def _fit_maps(
        self,
        rows: CodedRows,
        order: Sequence[int] | None = None,
        chosen: list[FeatureMap] | None = None,
    ) -> list[FeatureMap]:
        """Return the fitted maps of the columns, which are in this order, or the table's."""
        target, chosen = rows.y[:, 0], chosen or self._choose_maps()
        if order is not None:
            chosen = [chosen[n] for n in order]
        # The weight of a class says nothing about how many rows a category has.
        counts = rows.weight if rows.counts is None else rows.counts
        weights = {"numeric": rows.weight, "categorical": counts}
        return [m.fit(x, target, weights[m.kind]) for m, x in zip(chosen, rows.columns)]

    def _task(self, rows: CodedRows, has_held_out: bool, maps: list[FeatureMap]) -> Task:
        """Return the task that a plan is made for."""
        return Task(
            loss=self._loss(),
            maps=maps,
            rows=rows,
            has_held_out=has_held_out,
            n_outputs=len(self._center),
            seed=self._seed(),
            n_jobs=self._threads(),
            two_classes=len(getattr(self, "classes_", ())) == 2,
        )

    def _remember(
        self,
        plan: Plan,
        training: Training,
        rows: CodedRows | None,
        order: Sequence[int] | None = None,
    ) -> None:
        """Merge the members and set the attributes of the fitted model.

        `rows` are the training rows, with their columns in the order of the table, whose
        predictions must be finite; None: they are not looked at. `order` is the one in which
        training took the columns, None: that of the table.
        """
        members = training.members
        for member in members:
            if member.solution.message:
                warnings.warn(member.solution.message, ConvergenceWarning, stacklevel=3)
        if rows is None:
            self._set_model(members, order)
        else:
            members = list(set_finite_model(self, members, rows, order))
        self.__dict__.pop("configuration_", None)  # that of an earlier fit, from a model file
        self.loss_ = self._loss()
        self.history_ = replace(training, members=members).histories
        self.n_iter_ = max(member.solution.n_iter for member in members)
        tried = tuple((trial.strength, trial.loss) for trial in training.trials)
        self.plan_ = PlanSummary(plan.choices + training.choices, tried, training.seconds)

    def _set_model(self, members: Sequence[Member], order: Sequence[int] | None) -> None:
        """Set maps and cores to those of the merged members."""
        self.maps_, cores = merge(members)
        if order is not None:
            place = np.argsort(order).tolist()
            self.maps_, cores = [self.maps_[n] for n in place], cores.reordered(place)
        cores = cores.rescale(self._center, self._scale)
        if cores.trees is not None:
            cores = replace(cores, trees=cores.trees.rounded())
        self.tensor_ = cores

    def _with_member(self, member: Member, order: Sequence[int] | None) -> dict[str, Any]:
        """Return the attributes of the model, while it is trained, with one member alone."""
        model = copy.copy(self)
        model._set_model([member], order)
        model.loss_ = self._loss()
        return dict(vars(model))

    def _measure_marginals(self, rows: CodedRows) -> list[marginals.Marginal]:
        """Return the marginals of the columns, which explanations use."""
        weight = rows.weight if rows.counts is None else rows.counts
        maps = explained_maps(self.maps_, self.tensor_)
        return marginals.learn(self.columns_.columns, maps, rows.columns, weight)

    def _average_missing(self) -> None:
        """Make a missing value neutral in columns that had none: see `training.missing`."""
        self.maps_, self.tensor_ = average_missing(self.maps_, self.tensor_, self.marginals_)

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

    @property
    def feature_importances_(self) -> np.ndarray:
        """Share of the variance that each column has a part in, scaled to a sum of one, (N,).

        Total Sobol shares over the product of the columns' marginals: the variance of an
        interaction counts for each of its columns. Zero for all columns where the prediction is
        constant.
        """
        check_is_fitted(self, "tensor_")
        try:
            total = sobol(self).total
        except ValueError as error:  # such as a model that does not know its training rows
            raise AttributeError(f"feature_importances_ is not available. {error}") from error
        return total / total.sum() if total.sum() > 0 else total

    def raw(self, X) -> np.ndarray:
        """Return the prediction before the link, (n, L).

        It is finite for every finite or missing input; a row for which it would not be, far outside
        of the training range of a map without bounds, raises ValueError.
        """
        check_is_fitted(self, "tensor_")
        chunks = self.columns_.chunks(X, _CHUNK, estimator_name=type(self).__name__)
        return check_finite_raw(self, X, np.concatenate(self._evaluate_chunks(chunks)))

    def _evaluate_rows(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return raw : (n, L) of coded columns, chunk by chunk."""
        starts = range(0, len(columns[0]), _CHUNK)
        return self._evaluate_chunks([partial(_chunk, columns, start) for start in starts])

    def _evaluate_chunks(
        self, chunks: Sequence[Callable[[], list[np.ndarray]]]
    ) -> list[np.ndarray]:
        """Return raw : (n, L) of every chunk of rows, several chunks at a time."""
        if len(chunks) == 1 or self._threads() == 1:  # counting cores takes longer than a few rows
            return [self._evaluate_quietly(read) for read in chunks]
        with ThreadPoolExecutor(self._threads()) as pool:
            return list(pool.map(self._evaluate_quietly, chunks))

    def _evaluate_quietly(self, read: Callable[[], list[np.ndarray]]) -> np.ndarray:
        """Return raw : (n, L) of a chunk; that a number is not finite is said later."""
        columns = read()
        with np.errstate(over="ignore", invalid="ignore"):
            return self._evaluate(columns)

    def save(self, path) -> None:
        """Write the model to one file, to be read by `polyadic.load`."""
        saving.save(self, path)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _chunk(columns: Sequence[np.ndarray], start: int) -> list[np.ndarray]:
    """Return a chunk of the rows of coded columns."""
    return [column[start : start + _CHUNK] for column in columns]
