"""Outputs: what is explained of many classes, and how an output is addressed.

The softmax does not change if one number is added to all scores of a row, so a fit does not
determine that number. Scores of three or more classes are therefore explained relative to their
mean over the classes, s_k - mean_j s_j. This is a linear map of the outputs: every closed form
holds for it, terms still add up, and no class is singled out as a reference. The score of one class
against the rest, the log-odds, is not linear in the scores, and its terms would not add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from polyadic.networks.cores import Cores
from polyadic.training.model import FittedModel, classes_of


def is_relative(model: FittedModel) -> bool:
    """Tell whether scores are explained relative to their mean over the classes.

    The scores of loss="squared_error" are estimates of 2 p - 1: they have no free constant.
    """
    many = classes_of(model) is not None and model.tensor_.n_outputs > 2
    return many and model.loss_.link_name == "softmax"


def centring(n_outputs: int) -> np.ndarray:
    """Return the matrix that subtracts the mean over the outputs, (L, L)."""
    return np.eye(n_outputs) - 1.0 / n_outputs


def explained_cores(model: FittedModel) -> Cores:
    """Return the cores of what is explained: the raw prediction, or relative scores."""
    cores = model.tensor_
    return cores.weigh_outputs(centring(cores.n_outputs)) if is_relative(model) else cores


def explained_raw(model: FittedModel, raw: np.ndarray) -> np.ndarray:
    """Return what is explained of raw predictions, (n, L)."""
    return raw - raw.mean(axis=1, keepdims=True) if is_relative(model) else raw


def class_list(model: FittedModel) -> list[Any] | None:
    """Return the classes as Python values; None where a model predicts numbers."""
    classes = classes_of(model)
    return None if classes is None else classes.tolist()


def find_output(wanted: Any, outputs: Sequence[str], classes: Sequence[Any] | None = None) -> int:
    """Return the number of an output: of a class by its label, else by its number or name.

    Parameters
    ----------
    wanted : label, int, str or None
        None is the first output.
    outputs : list of L str
    classes : list of K, optional

    Examples
    --------
    >>> find_output("b", ["a", "b", "c"], ["a", "b", "c"]), find_output(-1, ["y0", "y1"])
    (1, 1)
    """
    if wanted is None:
        return 0
    labels = [] if classes is None else list(classes[-len(outputs) :])
    if wanted in labels:
        return labels.index(wanted)
    if wanted in outputs:
        return list(outputs).index(wanted)
    if classes is None:
        whole = isinstance(wanted, Integral) and not isinstance(wanted, bool)
        if whole and -len(outputs) <= wanted < len(outputs):
            return int(wanted) % len(outputs)
        names = f" They are named {_listed(outputs)}." if len(outputs) > 1 else ""
        raise ValueError(
            f"There is no output {wanted!r}; there are {len(outputs)}, counted from 0.{names}"
        )
    if wanted in classes:  # the first of two
        raise ValueError(
            f"Two classes share one output, which is the score of {labels[0]!r}: that of "
            f"{wanted!r} is the same with the opposite sign. Use output={labels[0]!r}."
        )
    raise ValueError(f"There is no class {wanted!r}. The classes are {_listed(classes)}.")


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(repr(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")
