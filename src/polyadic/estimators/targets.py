"""Targets: how regression and classification read y, and what raw predictions mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from polyadic.estimators import validation
from polyadic.objective import losses
from polyadic.scale.statistics import TargetStatistics


class Regression(RegressorMixin):
    """One number or several for each row."""

    loss: Any
    quantile: Any

    def _loss(self) -> losses.Loss:
        if self.loss != "quantile":
            return self._resolve_loss(self.loss)
        if self.quantile is None:
            raise ValueError(
                "loss='quantile' needs the level of the quantile, but quantile is None. Set a "
                "number between 0 and 1, such as quantile=0.9."
            )
        return losses.Quantile(float(self.quantile))

    @staticmethod
    def _resolve_loss(loss: Any) -> losses.Loss:
        return losses.resolve(loss)

    def _n_outputs(self, target) -> int:
        return target.shape[1]

    def _read_target(self, y, n_rows: int, fresh: bool, classes=None) -> np.ndarray:
        target = validation.check_regression_target(y, n_rows, type(self).__name__)
        self._loss().check(target)
        validation.check_unscaled_target(target, self._loss())
        if fresh:
            self._flat_target = target.shape[1] == 1
        else:
            self._check_outputs(target)
        return target

    def _check_outputs(self, target: np.ndarray) -> None:
        if target.shape[1] != len(self._center):
            raise ValueError(
                f"y has {target.shape[1]} outputs, but the model was fitted with "
                f"{len(self._center)}."
            )

    def _target_statistics(self, y, weight: np.ndarray) -> TargetStatistics:
        """Return the statistics of the targets of some rows."""
        target = validation.check_regression_target(y, len(weight), type(self).__name__)
        self._loss().check(target)
        return TargetStatistics.of_numbers(target, weight)

    def _learn_target(self, known: TargetStatistics, flat: bool) -> None:
        """Learn centre and scale from the statistics of all rows."""
        self._flat_target = flat or len(known.mean) == 1
        n_outputs = len(known.mean)
        self._center, self._scale = np.zeros(n_outputs), np.ones(n_outputs)
        if self._loss().location_scale and self._scales_target:
            varies = known.spread > 0
            self._center, self._scale = known.mean, np.where(varies, known.deviation, 1.0)
            validation.check_spread(self._scale)
            self._shrink_constant(known.low == known.high)

    def _learn_class_weights(self, known: TargetStatistics) -> None:
        """Return None: numbers have no classes."""
        return

    def code_target(self, y, n_rows: int) -> np.ndarray:
        """Check targets against the fitted model and return them as numbers, (n, L)."""
        target = validation.check_regression_target(y, n_rows, type(self).__name__)
        self.loss_.check(target)
        self._check_outputs(target)
        return target

    def predict(self, X) -> np.ndarray:
        """Predict the target, (n,) or (n, L)."""
        out = self.response(self.raw(X))
        return out[:, 0] if self._flat_target else out

    def response(self, raw: np.ndarray) -> np.ndarray:
        """Return raw predictions (n, L) after the link of the loss, (n, L)."""
        return self.loss_.inverse_link(raw)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class Classification(ClassifierMixin):
    """One class for each row. Two classes share one output; K > 2 have K."""

    loss: Any
    class_weight: Any
    _scales_target = False

    def _loss(self) -> losses.Loss:
        return self._resolve_loss(self.loss)

    def _resolve_loss(self, given: Any) -> losses.Loss:
        two = len(self.classes_) == 2
        if isinstance(given, losses.Logistic):  # the name it has for two classes
            loss: losses.Loss = losses.Softmax()
        else:
            loss = losses.resolve(given, "two classes" if two else "classes")
        if isinstance(loss, losses.Softmax):
            return losses.Logistic() if two else losses.Softmax(len(self.classes_))
        return loss

    def _n_outputs(self, target) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _read_target(self, y, n_rows: int, fresh: bool, classes=None) -> np.ndarray:
        """Return the classes' numbers, or labels -1 and +1 for the squared error, (n, L or 1)."""
        y = self._check_labels(y, n_rows)
        if fresh:
            if classes is not None:
                classes = validation.read_labels(classes, type(self).__name__)
                validation.check_missing_labels(classes, "classes")
            known = np.unique(y if classes is None else classes)
            validation.check_classes(known, type(self).__name__)
            self.classes_ = known
        number = self._class_numbers(y)
        if isinstance(self._loss(), losses.SquaredError):
            if len(self.classes_) == 2:
                return 2.0 * number[:, None] - 1.0
            return 2.0 * (number[:, None] == np.arange(len(self.classes_))) - 1.0
        return number[:, None].astype(float)

    def _check_labels(self, y, n_rows: int) -> np.ndarray:
        y = validation.read_labels(y, type(self).__name__)
        validation.check_length(y, n_rows)
        validation.check_missing_labels(y)
        check_classification_targets(y)
        return y

    def _target_statistics(self, y, weight: np.ndarray) -> TargetStatistics:
        """Return the statistics of the labels of some rows."""
        return TargetStatistics.of_classes(self._check_labels(y, len(weight)).tolist(), weight)

    def _learn_target(self, known: TargetStatistics, flat: bool) -> None:
        """Learn the classes from the statistics of all rows."""
        assert known.classes is not None
        labels = np.array(list(known.classes.of))
        self._read_target(labels, len(labels), fresh=True)
        n_outputs = self._n_outputs(labels)
        self._center, self._scale = np.zeros(n_outputs), np.ones(n_outputs)

    def _learn_class_weights(self, known: TargetStatistics) -> np.ndarray | None:
        """Return the weight of each class, (K,), or None if there are none."""
        assert known.classes is not None
        totals = np.array([known.classes.of[label] for label in self.classes_.tolist()])
        return None if self.class_weight is None else self._class_weights(totals)

    def _class_numbers(self, y: np.ndarray) -> np.ndarray:
        """Return the numbers of known classes, (n,)."""
        unknown = ~np.isin(y, self.classes_)
        if np.any(unknown):
            raise ValueError(
                f"y holds the class {y[unknown][0]!r}, which is not among the known classes "
                f"{list(self.classes_)}. Pass all classes to the first call of partial_fit."
            )
        return np.searchsorted(self.classes_, y)

    def code_target(self, y, n_rows: int) -> np.ndarray:
        """Check labels of known classes and return the numbers of their classes, (n, 1)."""
        return self._class_numbers(self._check_labels(y, n_rows))[:, None]

    def _row_weights(self, sample_weight, target, n_rows: int) -> np.ndarray:
        weight = validation.check_weights(sample_weight, n_rows)
        if self.class_weight is None:
            return weight
        number = self._numbers_of(target)
        order = np.argsort(weight)  # the sums then do not depend on the order of rows
        totals = np.bincount(number[order], weights=weight[order], minlength=len(self.classes_))
        return validation.to_usual_size(weight * self._class_weights(totals)[number])

    @staticmethod
    def _numbers_of(target: np.ndarray) -> np.ndarray:
        """Return the numbers of the classes of coded targets, (n,)."""
        if target.shape[1] > 1:
            return np.argmax(target, axis=1)
        return np.maximum(target[:, 0], 0).astype(int)  # two classes may be -1 and +1

    def _class_weights(self, totals: np.ndarray) -> np.ndarray:
        """Return the weight of each class, (K,), given the sum of the weights of its rows."""
        if self.class_weight is None:
            return np.ones(len(totals))
        if not isinstance(self.class_weight, str | dict):
            raise ValueError(
                f"class_weight must be 'balanced', a dict or None, got {self.class_weight!r:.80}."
            )
        if self.class_weight == "balanced":
            return totals.sum() / (np.count_nonzero(totals) * np.maximum(totals, 1e-300))
        # The labels are there to be checked: each class that has rows once.
        present = totals > 0
        if isinstance(self.class_weight, dict):
            validation.check_class_weight(self.class_weight)
        labels = self.classes_[present]
        weight = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        if not np.any(weight[present] > 0):
            raise ValueError(
                f"class_weight={self.class_weight!r} is zero for every class that has rows: "
                "nothing is left to learn from."
            )
        return validation.to_usual_size(weight)

    def decision_function(self, X) -> np.ndarray:
        """Return the raw predictions, (n,) for two classes, else (n, K)."""
        raw = self.raw(X)
        return raw[:, 0] if len(self.classes_) == 2 else raw

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability of each class, (n, K)."""
        share = self.response(self.raw(X))
        return share if share.shape[1] > 1 else np.hstack((1.0 - share, share))

    def response(self, raw: np.ndarray) -> np.ndarray:
        """Return the probabilities of raw predictions (n, L), (n, L)."""
        if not isinstance(self.loss_, losses.SquaredError):
            return self.loss_.inverse_link(raw)
        share = np.clip((raw + 1.0) / 2.0, 1e-6, 1.0 - 1e-6)
        return share / share.sum(axis=1, keepdims=True) if raw.shape[1] > 1 else share

    def predict(self, X) -> np.ndarray:
        """Return the most probable class, (n,)."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]
