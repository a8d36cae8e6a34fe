"""The losses: how far a prediction is from the target."""

from polyadic.objective.losses import (
    LOSSES,
    Huber,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    SquaredError,
)

__all__ = ["LOSSES", "Huber", "Logistic", "Loss", "Poisson", "Quantile", "Softmax", "SquaredError"]
