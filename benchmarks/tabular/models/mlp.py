"""The multi-layer perceptron of scikit-learn at its defaults, on encoded columns."""

from encode import encoded
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from tasks import Data


def build(data: Data, seed: int) -> Pipeline:
    """Return the estimator."""
    kind = MLPRegressor if data.task == "regression" else MLPClassifier
    return encoded(kind(random_state=seed))
