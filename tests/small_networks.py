"""Settings of small tensor networks, a target that they learn, and how two models are compared."""

import numpy as np
import pytest

from polyadic import networks

NAMES = sorted(networks.FORMATS)
RAW = ["fm", "pn"]  # on raw columns
# Few epochs without early stopping: the few held-out rows could stop a run too early.
SMALL = {
    "rank": 4,
    "max_iter": 20,
    "batch_size": 32,
    "learning_rate": 0.05,
    "ema_decay": 0.9,
    "early_stopping": False,
    "random_state": 0,
}
FAST = {**SMALL, "max_iter": 3, "early_stopping": True}
every_format = pytest.mark.parametrize("name", NAMES)


def same_model(a, b):
    pairs = zip([*a.cores_, *a.extras_, a.intercept_], [*b.cores_, *b.extras_, b.intercept_])
    return all(np.array_equal(x, y) for x, y in pairs)


def product_table(n=300):
    """Return a target with a product of columns, which no sum of functions of one column equals."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X[:, 0] * X[:, 1] + X[:, 2]
