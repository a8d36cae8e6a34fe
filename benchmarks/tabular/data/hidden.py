"""Made up: 4,000 rows of 100 numbers; a pair and a triple act together, and none of them alone.

y = x0 x1 + x2 x3 x4 + noise, the columns uniform from -1 to 1, each product scaled to a variance of
one, the noise of a variance of 0.2.
"""

import numpy as np
import pandas as pd
from tasks import held_out

TASK = "regression"
N_ROWS, N_COLUMNS = 4_000, 100


def load(split: int) -> tuple:
    """Return training rows, training target, test rows and test target."""
    rng = np.random.default_rng(split)
    X = rng.uniform(-1, 1, (N_ROWS, N_COLUMNS))
    # A product of k uniform columns has a variance of 3^-k.
    pair, triple = 3 * X[:, 0] * X[:, 1], 3**1.5 * X[:, 2] * X[:, 3] * X[:, 4]
    y = pair + triple + np.sqrt(0.2) * rng.normal(size=N_ROWS)
    table = pd.DataFrame(X, columns=[f"x{n}" for n in range(N_COLUMNS)])
    return held_out(table, y, TASK, 0.5, split)
