"""Riemannian descent on Tensor Trains (Exponential Machines) beside Adam, from the same start.

MovieLens 100K as in the paper: 26 categorical columns, squared error on labels -1 and +1; AUC on
the untouched test rows. The synthetic task of the paper: seven columns, test MSE. The epoch is
chosen on a tenth of the training rows in both cases. Adam has the default L2 penalty on the cores,
the Riemannian solver has none; the order penalty, where given, is the same for both.

High local dimension: California housing on the paper's split, normalised polynomials of 25 and 75
elements. Adam, least squares and the Riemannian solver have the same start and the default
penalties, which the last uses in its metric alone. The epoch or sweep is chosen on the validation
rows, as in the paper.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from common import machine, print_table, print_title, seconds
from sklearn.metrics import roc_auc_score

from polyadic import TNClassifier, TNRegressor
from polyadic.datasets import Split, fetch_california_housing, fetch_movielens100k, load_synthetic
from polyadic.maps import Hat, Polynomial

RATES = {"Adam": 0.005, "riemannian": 0.2}  # Riemannian: a share of a full step
ORDERS = (0.0, 1e-3)
BETA = 2.0
# Epochs or sweeps by local dimension, and rates, chosen by validation errors of another seed. Few
# sweeps: one at d=75 takes longer than all epochs of Adam.
HIGH = {
    "Adam": ({25: 60, 75: 60}, 0.005),
    "riemannian": ({25: 60, 75: 60}, 0.5),
    "als": ({25: 4, 75: 3}, "auto"),
}
DIMENSIONS = (25, 75)


def fit(model: Any, X: Any, y: np.ndarray) -> list[str]:
    """Fit; return the best epoch and the seconds of the fit."""
    time = seconds(lambda: model.fit(X, y))
    best = int(np.argmin(model.history_[0]["validation_loss"])) + 1
    return [str(best), f"{time:.1f}"]


def movielens(epochs: int) -> None:
    """Print test AUC and time of both solvers."""
    split = fetch_movielens100k(split="paper")
    print_title(f"MovieLens 100K, TT of rank 5, {epochs} epochs, batch 256: test AUC")
    lines = []
    for alpha in ORDERS:
        for solver, rate in RATES.items():
            model = TNClassifier(
                rank=5,
                loss="squared_error",
                solver=solver,
                order_alpha=alpha,
                order_beta=BETA,
                max_iter=epochs,
                batch_size=256,
                learning_rate=rate,
                random_state=0,
            )
            times = fit(model, split.X_train, split.y_train)
            auc = roc_auc_score(split.y_test, model.decision_function(split.X_test))
            lines.append([solver, f"{alpha:g}", f"{auc:.4f}", *times])
    print_table(["solver", "order penalty", "AUC", "best epoch", "fit s"], lines)


def synthetic(epochs: int) -> None:
    """Print test MSE and time of both solvers."""
    split = load_synthetic(split="paper")
    print_title(f"Synthetic, TT of rank 5, {epochs} epochs, batch 128: test MSE")
    lines = []
    for family in (Polynomial(3), Hat()):
        for solver, rate in RATES.items():
            model = TNRegressor(
                maps=family,
                rank=5,
                solver=solver,
                max_iter=epochs,
                batch_size=128,
                learning_rate=rate,
                random_state=0,
            )
            times = fit(model, split.X_train, split.y_train)
            mse = np.mean((model.predict(split.X_test) - split.y_test) ** 2)
            lines.append([solver, type(family).__name__, f"{mse:.4f}", *times])
    print_table(["solver", "map", "MSE", "best epoch", "fit s"], lines)


def california(seeds: int, quick: bool) -> None:
    """Print validation and test MSE and time of three solvers at a high local dimension."""
    split = fetch_california_housing(split="paper")
    print_title(f"California, TT of rank 5, normalised polynomials, seeds: {seeds}; MSE")
    lines = []
    for d in DIMENSIONS:
        for solver, (lengths, rate) in HIGH.items():
            length = 1 if quick else lengths[d]
            runs = [high_dimension(solver, d, length, rate, seed, split) for seed in range(seeds)]
            val, test, best, time = np.array(runs).T
            spread = f"{np.std(val, ddof=1):.4f}" if seeds > 1 else ""
            errors = [f"{val.mean():.4f}", spread, f"{test.mean():.4f}"]
            of = f"{best.mean():.0f} of {length}"
            lines.append([solver, str(d), *errors, of, f"{time.mean():.1f}"])
    print_table(["solver", "d", "val MSE", "sd", "test MSE", "best epoch", "fit s"], lines)


def high_dimension(
    solver: str, d: int, length: int, rate: float | str, seed: int, split: Split
) -> tuple[float, float, int, float]:
    """Return validation and test MSE, the best epoch, and the seconds of one fit."""
    model = TNRegressor(
        maps=Polynomial(d, normalize=True),
        rank=5,
        solver=solver,
        max_iter=length,
        n_iter_no_change=length,
        batch_size=512,
        learning_rate=rate,
        random_state=seed,
    )
    val = {"X_val": split.X_val, "y_val": split.y_val}
    time = seconds(lambda: model.fit(split.X_train, split.y_train, **val))
    best = int(np.argmin(model.history_[0]["validation_loss"])) + 1
    errors = [
        float(np.mean((model.predict(X) - y) ** 2))
        for X, y in ((split.X_val, split.y_val), (split.X_test, split.y_test))
    ]
    return errors[0], errors[1], best, time


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few epochs")
    quick = parser.parse_args().quick
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    print(machine())
    synthetic(5 if quick else 60)
    movielens(2 if quick else 20)
    california(1 if quick else 3, quick)


if __name__ == "__main__":
    main()
