"""scikit-learn's callbacks, such as its ProgressBar and ScoringMonitor: from version 1.9 on.

A fit is a task of three levels: the fit, its steps (pilots, members, trees), and their epochs. A
callback that returns True at the end of an epoch ends the step; at the end of a step, the fit: it
goes on as if `max_time` was over. The model that a callback is given is that of the pilot or member
alone, as it is then; at the end of the fit, the fitted model. Trees have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from polyadic.training.merge import Member
from polyadic.training.plan import Work
from polyadic.training.watch import GetMember, Key, Step

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before version 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: this version of scikit-learn has no callbacks."""

    def with_callbacks(method):
        """Return the method as it is: this version of scikit-learn has no callbacks."""
        return method


# What scikit-learn keeps in an estimator while it is fitted.
_KEPT = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")


def has_callbacks(estimator: Any) -> bool:
    """Tell whether callbacks are registered."""
    return bool(getattr(estimator, "_skl_callbacks", None))


def kept_by_sklearn(estimator: Any) -> dict[str, Any]:
    """Return what scikit-learn needs to find in the estimator when its fit is over."""
    return {name: vars(estimator)[name] for name in _KEPT if name in vars(estimator)}


class Callbacks:
    """Tell the callbacks of an estimator how its fit goes.

    Parameters
    ----------
    estimator : estimator
    fitted : callable
        Returns the attributes of a fitted estimator that has one member only.
    X, y, sample_weight : as given to fit
    """

    def __init__(
        self,
        estimator: Any,
        fitted: Callable[[Member], dict[str, Any]],
        X: Any,
        y: Any,
        sample_weight: Any,
    ):
        self.estimator, self.fitted = estimator, fitted
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self.given = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
        self.steps: dict[Step, Any] = {}
        self.n_steps = 0
        self.n_epochs: Counter[Step] = Counter()

    def start(self, work: dict[Key, Work], most_steps: int) -> None:
        """Set up the callbacks, and begin the fit."""
        self.fit = self.estimator._init_callback_context(
            max_subtasks=most_steps, sequential_subtasks=False
        )
        self.fit.call_on_fit_task_begin(**self.given)

    def expect(self, key: Key, n_epochs: int) -> None:
        """Do nothing: the most that can follow was said at the start."""

    def begin(self, step: Step) -> None:
        """Begin a step."""
        if self.n_steps == self.fit.max_subtasks:
            return
        context = self.fit.subcontext(
            task_name=step.phase, task_id=self.n_steps, max_subtasks=step.n_epochs
        )
        self.steps[step] = context.call_on_fit_task_begin(**self.given)
        self.n_steps += 1

    def epoch(self, step: Step, loss: float, held_out: bool, member: GetMember | None) -> bool:
        """Begin and end an epoch, of which is told once it is over."""
        above = self.steps.get(step)
        if above is None or self.n_epochs[step] == step.n_epochs:
            return False
        self.n_epochs[step] += 1
        context = above.subcontext(task_name="epoch").call_on_fit_task_begin(**self.given)
        return context.call_on_fit_task_end(**self.given, **self._model(member))

    def end(self, step: Step, member: GetMember | None) -> bool:
        """End a step."""
        context = self.steps.pop(step, None)
        if context is None:
            return False
        return context.call_on_fit_task_end(**self.given, **self._model(member))

    def close(self) -> None:
        """Do nothing: the fit ends when the model is ready."""

    def finish(self) -> None:
        """End the fit: the estimator is fitted."""
        self.fit.call_on_fit_task_end(**self.given, reconstruction_attributes={})

    def _model(self, member: GetMember | None) -> dict[str, Any]:
        """Return how to make the model, which happens only if a callback asks for it."""
        if member is None:
            return {}
        return {"reconstruction_attributes": lambda: self.fitted(member())}
