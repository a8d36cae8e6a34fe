"""What the paper publishes, as data: Tables I, II and III, and the check points of the splits."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """One row of a table of the paper: its name there, the score, and seconds where given."""

    name: str
    score: float
    seconds: float | None = None


# Table I: validation MSE and training time, synthetic regression.
SYNTHETIC = {
    "cp": Published("CP-based (d=3)", 0.1378, 11.09),
    "linear regression": Published("Linear Regression", 0.3311, 0.004),
    "svr": Published("RBF SVR", 0.1790, 1.30),
    "neural network": Published("Neural Network", 0.1545, 20.59),
    "pn": Published("3rd-order Polynomial Network", 0.1390, 6.96),
    "fm": Published("3rd-order Factorization Machine", 0.1485, 4.35),
}

# Table II: AUC on the test rows, which the paper calls validation AUC, MovieLens 100K.
MOVIELENS = {
    "logistic regression": Published("Logistic Regression", 0.7821),
    "cp": Published("CP-based", 0.7863),
    "exponential machines": Published("Exponential Machines", 0.784),
    "tt": Published("TT-based (local)", 0.7815),
    "tr": Published("TR-based", 0.7827),
    "ht": Published("HT-based", 0.7803),
}

# Table III: validation MSE and training time, California Housing.
CALIFORNIA = {
    "linear regression": Published("Linear Regression", 0.3712, 0.023),
    "cp": Published("CP-based (d=75, norm., L2)", 0.1959, 118.84),
    "tt": Published("TT-based (d=75, norm., L2)", 0.2128, 773.25),
    "tucker": Published("Tucker-based (d=75, norm., L2)", 0.2084, 659.86),
    "tr": Published("TR-based (d=75, norm., L2)", 0.2056, 249.53),
    "ht": Published("HT-based (d=75, norm., L2)", 0.1999, 113.32),
    "svr": Published("RBF SVR", 0.2236, 18.78),
    "neural network": Published("Neural Network", 0.2029, 153.20),
    "pn": Published("4th-order Polynomial Network", 0.2761, 9.06),
    "fm": Published("4th-order Factorization Machine", 0.3322, 51.69),
}


class CheckPoint(NamedTuple):
    """A figure of a deterministic model that only the right split gives."""

    experiment: str
    model: str
    score: str
    value: float
    tolerance: float


CHECK_POINTS = [
    CheckPoint("synthetic", "linear regression", "val", 0.331154, 5e-7),
    CheckPoint("synthetic", "svr", "val", 0.17907, 5e-6),
    CheckPoint("california", "linear regression", "val", 0.3712142443, 1e-9),
    CheckPoint("california", "svr", "val", 0.22361, 5e-6),
    CheckPoint("movielens", "logistic regression", "auc", 0.78212, 5e-6),
]

# y = 1000 + 6 x0 - 4 x2 - 3 x0 x1 + 4 x2 x3 + 3 x0 x1 + 0.5 x0^2 x1 + 0.2 x1^2 x2
#     + 0.1 x1^2 x2 x3: the exponents of x0 to x6, and the coefficient. The two x0 x1 cancel.
POLYNOMIAL: dict[tuple[int, ...], float] = {
    (0, 0, 0, 0, 0, 0, 0): 1000.0,
    (1, 0, 0, 0, 0, 0, 0): 6.0,
    (0, 0, 1, 0, 0, 0, 0): -4.0,
    (0, 0, 1, 1, 0, 0, 0): 4.0,
    (2, 1, 0, 0, 0, 0, 0): 0.5,
    (0, 2, 1, 0, 0, 0, 0): 0.2,
    (0, 2, 1, 1, 0, 0, 0): 0.1,
}
