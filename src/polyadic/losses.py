"""The losses: what a prediction costs, given the target."""

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
