"""The estimators."""

from polyadic.estimators.cp import CPClassifier, CPRegressor
from polyadic.estimators.tn import TNClassifier, TNRegressor

__all__ = ["CPClassifier", "CPRegressor", "TNClassifier", "TNRegressor"]
