"""Riemannian descent on Tensor Trains (Exponential Machines) beside Adam, from the same start.

MovieLens 100K as in the paper: 26 categorical columns, squared error on labels -1 and +1; the epoch
is chosen on a tenth of the training rows, and the AUC is on untouched test rows. The synthetic task
of the paper: seven columns, validation MSE at the end of the schedule.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from common import machine, print_table, print_title, seconds
from sklearn.metrics import roc_auc_score

from polyadic import TNClassifier, TNRegressor
from polyadic.datasets import fetch_movielens100k, load_synthetic
from polyadic.maps import Polynomial

SOLVERS = {"Adam": {"learning_rate": 0.005}, "riemannian": {"learning_rate": 0.2}}


def movielens(epochs: int) -> None:
    """Print test AUC and time of either solver."""
    split = fetch_movielens100k(split="paper")
    print_title(f"MovieLens 100K, TT of rank 5, {epochs} epochs, batch 256: test AUC")
    lines = []
    for solver, own in SOLVERS.items():
        model = TNClassifier(
            rank=5,
            loss="squared_error",
            solver=solver,
            max_epochs=epochs,
            batch_size=256,
            random_state=0,
            **own,
        )
        time = seconds(lambda model=model: model.fit(split.X_train, split.y_train))
        auc = roc_auc_score(split.y_test, model.decision_function(split.X_test))
        lines.append([solver, f"{auc:.4f}", f"{time:.1f}"])
    print_table(["solver", "AUC", "fit s"], lines)


def synthetic(epochs: int) -> None:
    """Print validation MSE and time of either solver."""
    split = load_synthetic(split="paper")
    print_title(f"Synthetic, polynomial map d=3, TT of rank 5, {epochs} epochs: validation MSE")
    lines = []
    for solver, own in SOLVERS.items():
        model = TNRegressor(
            maps=Polynomial(3),
            rank=5,
            solver=solver,
            max_epochs=epochs,
            batch_size=128,
            random_state=0,
            **own,
        )
        time = seconds(lambda model=model: model.fit(split.X_train, split.y_train))
        mse = np.mean((model.predict(split.X_val) - split.y_val) ** 2)
        lines.append([solver, f"{mse:.4f}", f"{time:.1f}"])
    print_table(["solver", "val MSE", "fit s"], lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few epochs")
    quick = parser.parse_args().quick
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    print(machine())
    synthetic(5 if quick else 60)
    movielens(2 if quick else 20)


if __name__ == "__main__":
    main()
