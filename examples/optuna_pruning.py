"""Tune with Optuna, and stop trials that fall behind, by a callback of scikit-learn (from 1.9 on).

A callback is told of every epoch. This one reports the held-out loss so far to the trial, and asks
the fit to stop when Optuna says that the trial cannot win. With an older scikit-learn a trial runs
to its end.
"""

import sys

import numpy as np
import optuna
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import train_test_split

from polyadic import CPRegressor


class Prune:
    """Report the error on some rows after every few epochs; stop the fit of a trial that lags."""

    def __init__(self, trial: optuna.Trial, X: np.ndarray, y: np.ndarray, every: int = 2):
        self.trial, self.X, self.y, self.every = trial, X, y, every
        self.count, self.pruned = 0, False

    def setup(self, estimator, context):
        """Do nothing before a fit."""

    def teardown(self, estimator, context):
        """Do nothing after a fit."""

    def on_fit_task_begin(self, estimator, context):
        """Do nothing before a step."""

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        """Look at the model after an epoch; True ends the step, and then the fit."""
        if self.pruned:
            return True
        if context.task_name != "epoch" or fitted_estimator is None:
            return False
        self.count += 1
        if self.count % self.every == 0:
            error = mean_squared_error(self.y, fitted_estimator.predict(self.X))
            self.trial.report(error, self.count)
            self.pruned = self.trial.should_prune()
        return self.pruned


def objective(trial: optuna.Trial, X: np.ndarray, y: np.ndarray, max_iter: int) -> float:
    """Return the error of one trial on held-out rows."""
    X_train, X_val, y_train, y_val = train_test_split(X, y, random_state=0)
    model = CPRegressor(
        rank=trial.suggest_int("rank", 2, 16, log=True),
        learning_rate=trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
        solver="adam",
        n_members=1,
        trees=False,
        max_iter=max_iter,
        random_state=0,
    )
    watch = Prune(trial, X_val, y_val)
    if hasattr(model, "set_callbacks"):
        model.set_callbacks(watch)
    model.fit(X_train, y_train)
    if watch.pruned:
        raise optuna.TrialPruned
    return mean_squared_error(y_val, model.predict(X_val))


def main(n_trials: int = 20, n_rows: int = 1000, max_iter: int = 30) -> optuna.Study:
    """Tune rank and learning rate on a small table."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n_rows, 3))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler, pruner = optuna.samplers.TPESampler(seed=0), optuna.pruners.MedianPruner(2)
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    study.optimize(lambda trial: objective(trial, X, y, max_iter), n_trials)
    pruned = sum(t.state == optuna.trial.TrialState.PRUNED for t in study.trials)
    print(f"best MSE {study.best_value:.4f} with {study.best_params}; {pruned} trials pruned")
    return study


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
