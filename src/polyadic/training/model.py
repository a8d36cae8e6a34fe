"""The interface of a fitted model, for the modules that explain, show and save it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from polyadic.data.columns import Columns
from polyadic.data.marginals import Marginal
from polyadic.maps.base import FeatureMap
from polyadic.maps.beside import Beside
from polyadic.networks.cores import Cores
from polyadic.objective.losses import Loss


class FittedModel(Protocol):
    """A fitted model of a table, of any format.

    Three more attributes are optional, and read by the functions of this module: `classes_` of
    classifiers, `marginals_`, which models from old files lack, and `n_jobs`.
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


def output_names(model: FittedModel) -> list[str]:
    """Return a name for each output: its class, "y0", "y1" ..., or "" for a single number."""
    n_outputs, classes = model.tensor_.n_outputs, classes_of(model)
    if classes is not None:
        return [str(c) for c in classes[-n_outputs:].tolist()]
    return [""] if n_outputs == 1 else [f"y{i}" for i in range(n_outputs)]
