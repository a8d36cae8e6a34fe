"""Losses: how far a raw prediction is from the target. One file and one line in `LOSSES` each."""

from __future__ import annotations

from polyadic.objective.losses.base import FORMS, Loss
from polyadic.objective.losses.huber import Huber
from polyadic.objective.losses.logistic import Logistic
from polyadic.objective.losses.poisson import Poisson
from polyadic.objective.losses.quantile import Quantile
from polyadic.objective.losses.softmax import Softmax
from polyadic.objective.losses.squared import SquaredError

__all__ = [
    "FORMS",
    "LOSSES",
    "Huber",
    "Logistic",
    "Loss",
    "Poisson",
    "Quantile",
    "Softmax",
    "SquaredError",
    "names",
    "resolve",
]

LOSSES: dict[str, type[Loss]] = {
    "absolute_error": Quantile,
    "huber": Huber,
    "log_loss": Softmax,
    "logistic": Logistic,  # what "log_loss" is for two classes
    "poisson": Poisson,
    "quantile": Quantile,
    "squared_error": SquaredError,
}


def names(target: str = "numbers") -> list[str]:
    """Return the names of the losses for a target of "numbers" or of "classes".

    >>> names("classes")
    ['log_loss', 'squared_error']
    """
    return sorted(name for name, loss in LOSSES.items() if target in loss.targets)


def resolve(loss: str | Loss, target: str = "numbers") -> Loss:
    """Return the loss of that name, or the given instance, if it allows this kind of target.

    Parameters
    ----------
    loss : str or Loss
    target : "numbers", "two classes" or "classes"
        A loss for classes also allows two classes.

    >>> resolve("poisson")
    Poisson()
    """
    kind = "classes" if target == "two classes" else target
    if isinstance(loss, Loss) and {target, kind} & set(loss.targets):
        return loss
    known = names(kind)
    if isinstance(loss, str) and loss in known:
        return LOSSES[loss]()
    choice = f"Choose from: {', '.join(known)}, or an instance of Loss."
    if isinstance(loss, Loss):
        raise ValueError(
            f"The loss {loss!r} is for {' and '.join(loss.targets)}, but y holds {target}. {choice}"
        )
    raise ValueError(f"Unknown loss {loss!r}. {choice}")
