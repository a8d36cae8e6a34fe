"""Keep a model in MLflow's scikit-learn flavour, and load it again, also as a plain function.

Our estimators are scikit-learn estimators: `mlflow.sklearn` saves and loads them as they are, and
`mlflow.sklearn.log_model` does the same within a run.
"""

import sys
import tempfile
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from sklearn.metrics import r2_score

import polyadic
from polyadic import CPRegressor


def main(folder: Path, n_rows: int = 2000, max_iter: int = 40) -> float:
    """Fit, save, load, and return the R2 of the loaded model on new rows."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1, 1, (2 * n_rows, 3)), columns=["a", "b", "c"])
    y = np.sin(3 * X["a"]) * X["b"] + X["c"] + 0.1 * rng.normal(size=len(X))
    settings = {"rank": 8, "n_members": 1, "max_iter": max_iter, "solver": "adam", "trees": False}
    model = CPRegressor(**settings, random_state=0).fit(X[:n_rows], y[:n_rows])
    # This format is a pickle: load it only from where you trust. Named requirements save MLflow
    # from starting a process that finds them.
    mlflow.sklearn.save_model(
        model,
        folder / "model",
        serialization_format="cloudpickle",
        pip_requirements=[f"polyadic=={polyadic.__version__}", "pandas"],
        input_example=X[:3],
    )
    loaded = mlflow.sklearn.load_model(folder / "model")
    served = mlflow.pyfunc.load_model(str(folder / "model"))
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert np.array_equal(served.predict(X), model.predict(X))
    r2 = r2_score(y[n_rows:], loaded.predict(X[n_rows:]))
    print(f"R2 of the loaded model on new rows: {r2:.3f}")
    return r2


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
