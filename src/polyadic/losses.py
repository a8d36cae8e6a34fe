"""The losses: how far a prediction is from the target."""

from polyadic.objective.losses import *  # noqa: F403
from polyadic.objective.losses import __all__ as __all__
