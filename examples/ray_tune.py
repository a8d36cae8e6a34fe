"""Search settings with Ray Tune: trials run side by side, on one machine or on a cluster.

The defaults of CPRegressor rarely need a search. This one asks for small models: it looks for a
rank and a number of knots at which one member of one strategy still predicts well.

    pip install ".[ray]" "ray[tune]"    # from a clone
    python examples/ray_tune.py
"""

import numpy as np
from ray import tune
from sklearn.model_selection import cross_val_score

from polyadic import CPRegressor
from polyadic.maps import Hat


def make_table(n_rows):
    """Return a table in which one pair of columns acts together."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n_rows, 5))
    y = np.sin(4 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + 0.1 * rng.normal(size=n_rows)
    return X, y


def make_model(config, **settings):
    """Return the model of one trial."""
    maps = Hat(config["n_knots"])
    return CPRegressor(maps=maps, rank=config["rank"], n_members=1, random_state=0, **settings)


def try_settings(config, table, settings):
    """Cross-validate one setting; Ray calls it in a process of its own."""
    X, y = table
    model = make_model(config, n_jobs=1, **settings)
    errors = -cross_val_score(model, X, y, cv=3, scoring="neg_mean_squared_error")
    tune.report({"error": errors.mean()})


def main(n_rows=4000, n_trials=12, storage=None, **settings):
    """Search, and return the best setting and a model with it; results go to `storage`."""
    table = make_table(n_rows)
    tuner = tune.Tuner(
        tune.with_parameters(try_settings, table=table, settings=settings),
        param_space={"rank": tune.choice([2, 4, 8, 16]), "n_knots": tune.choice([4, 8, 16, 32])},
        tune_config=tune.TuneConfig(metric="error", mode="min", num_samples=n_trials),
        run_config=tune.RunConfig(storage_path=storage),
    )
    best = tuner.fit().get_best_result()
    print(f"error {best.metrics['error']:.4f} with {best.config}")
    return best.config, make_model(best.config, **settings).fit(*table)


if __name__ == "__main__":
    main()
