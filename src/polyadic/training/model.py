"""The interface of a fitted model, for the modules that explain, show and save it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from polyadic.data.columns import Columns
from polyadic.data.marginals import Marginal
from polyadic.maps.base import FeatureMap
from polyadic.maps.beside import Beside
from polyadic.networks.cores import Cores
from polyadic.objective.losses import Loss


class FittedModel(Protocol):
    """A fitted model of a table, of any format.

    Four more attributes are optional, and read by the functions of this module: `classes_` of
    classifiers, `marginals_` and `target_names_`, which models from old files lack, and `n_jobs`.
    """

    @property
    def columns_(self) -> Columns:
        """Names, kinds and categories of the columns."""
        ...

    @property
    def maps_(self) -> list[FeatureMap]:
        """The fitted map of each column."""
        ...

    @property
    def tensor_(self) -> Cores:
        """Cores, output weights and intercept, in units of the target."""
        ...

    @property
    def loss_(self) -> Loss:
        """The loss that the model was fitted with."""
        ...

    @property
    def history_(self) -> list[dict[str, list[float]]]:
        """The learning curves of each member."""
        ...

    def raw(self, X: Any) -> np.ndarray:
        """Return the prediction before the link, (n, L)."""
        ...

    def response(self, raw: np.ndarray) -> np.ndarray:
        """Return raw predictions (n, L) after the link: numbers or probabilities, (n, L)."""
        ...

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted numbers or classes."""
        ...

    def code_target(self, y: Any, n_rows: int) -> np.ndarray:
        """Check the targets of n rows and return them as numbers, (n, L), or class numbers (n, 1).

        Raises ValueError for targets that this model cannot predict.
        """
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor parameters by name."""
        ...


def explained_maps(maps: Sequence[FeatureMap], cores: Cores) -> list[FeatureMap]:
    """Return the maps that explanations average over: with the bins of trees, where there are any.

    `marginals_` are measured with them.
    """
    if cores.trees is None:
        return list(maps)
    return [Beside(own, steps) for own, steps in zip(maps, cores.trees.maps)]


def classes_of(model: FittedModel) -> np.ndarray | None:
    """Return the classes that a model predicts, (K,); None where it predicts numbers."""
    return getattr(model, "classes_", None)


def known_marginals(model: FittedModel) -> list[Marginal] | None:
    """Return the marginals of the training columns; None for a model from an old file."""
    return getattr(model, "marginals_", None)


def threads_of(model: FittedModel) -> int | None:
    """Return the `n_jobs` of a model; one thread where it has no such parameter."""
    return getattr(model, "n_jobs", 1)


def target_names(model: FittedModel) -> list[str] | None:
    """Return the names of the targets, one per output; None where y had no names."""
    return getattr(model, "target_names_", None)


def output_names(model: FittedModel) -> list[str]:
    """Return a name for each output: its class, its name in y or "y0" ..., "" for one number."""
    n_outputs, classes = model.tensor_.n_outputs, classes_of(model)
    if classes is not None:
        return [str(c) for c in classes[-n_outputs:].tolist()]
    if n_outputs == 1:
        return [""]
    return target_names(model) or [f"y{i}" for i in range(n_outputs)]


class Target(NamedTuple):
    """What the numbers of an explanation are about: texts and labels are made from it.

    `name` is that of the target, "" where it has none; `raw` tells whether a link follows, so that
    the numbers are not in the unit of the target; `probability`, whether they are probabilities.

    >>> Target("price").effect(), Target().effect(), Target(raw=True).effect()
    ('effect on price', 'effect on the prediction', 'effect on the prediction (raw scale)')
    >>> Target("price").prediction(), Target(raw=True).prediction()
    ('prediction of price', 'raw prediction')
    >>> Target(probability=True).prediction(), Target(probability=True).note()
    ('probability', 'As probabilities.')
    """

    name: str = ""
    raw: bool = False
    probability: bool = False

    def effect(self) -> str:
        """Return the label of an effect."""
        return f"effect on {self.name or 'the prediction'}" + self.scale()

    def prediction(self) -> str:
        """Return what a prediction is called."""
        raw, name = "raw " if self.raw else "", f" of {self.name}" if self.name else ""
        return f"{raw}{'probability' if self.probability else 'prediction'}{name}"

    def note(self) -> str:
        """Return a sentence on the unit of the numbers; empty where there is nothing to say."""
        if self.raw:
            return "On the raw scale" + (f" of {self.name}." if self.name else ".")
        if self.probability:
            return "As probabilities."
        return f"In the unit of {self.name}." if self.name else ""

    def scale(self) -> str:
        """Return the scale in brackets where it is not that of the target, else an empty text."""
        if self.probability:
            return " (probability scale)"
        return " (raw scale)" if self.raw else ""


UNNAMED = Target()  # the default of a result that was made without a model


def target_of(model: FittedModel, scale: str = "raw") -> Target:
    """Return what a model predicts, before its link with scale="raw", else after it."""
    classes, names = classes_of(model), target_names(model)
    name = names[0] if names and len(names) == 1 and classes is None else ""
    probe = np.array([[2.0]])
    linked = classes is not None or not np.array_equal(model.loss_.inverse_link(probe), probe)
    return Target(name, linked and scale == "raw", classes is not None and scale != "raw")
