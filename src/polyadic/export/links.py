"""The links of losses, as exports need them: by name, and refused where a loss has its own."""

from __future__ import annotations

from polyadic.objective.losses import Loss, SquaredError

LINKS_WITH_A_FORM = ("identity", "log", "logit", "softmax")
_SMALLEST_SHARE = 1e-6  # of a class, with the squared error: as `Classification.response` has it


def link_of(loss: Loss, target: str) -> str:
    """Return the name of the link of a loss; refuse a link that has no form in the target."""
    own = type(loss).inverse_link is not Loss.inverse_link
    if own or loss.link_name not in LINKS_WITH_A_FORM:
        what = "an inverse_link of its own" if own else f"the link {loss.link_name!r}"
        raise ValueError(
            f"The loss {loss!r} has {what}, which has no form in {target}. Links with one: "
            f"{', '.join(LINKS_WITH_A_FORM)}."
        )
    return loss.link_name


def is_squared(loss: Loss) -> bool:
    """Tell whether a classifier was fitted to labels -1 and +1 by the squared error."""
    return isinstance(loss, SquaredError)


def classifier_link() -> tuple[float, float]:
    """Return the limits of a probability under the squared error."""
    return _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE
