"""MNIST digits, 784 columns, in CP, TT and TR: pixels in their order, and permuted.

4,000 rows to train on and 1,000 to test, of the 5,000 of `fetch_mnist5k`, shuffled. A product over
784 columns must neither overflow nor vanish, from either init. CP must not depend on the order of
the columns: the noise of the init goes with a column, not with its place, so both fits agree up to
rounding.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from common import machine, print_table, print_title, seconds, verdict
from sklearn.exceptions import ConvergenceWarning

from polyadic import CPClassifier, TNClassifier
from polyadic.datasets import fetch_mnist5k
from polyadic.maps import Polynomial

N_TRAIN, SEED = 4000, 0
AGREE = 0.005  # difference in accuracy allowed for rounding: 5 of 1,000 rows; chosen by hand

EPOCHS, LINEAR_EPOCHS = 12, 3
RATE = 5e-4  # one step moves a product of 784 factors by 784 times the rate
LINEAR_RATE = 1e-4  # the linear model is a good start: larger steps would destroy it


def network(
    format: str, rank: int, epochs: int, init: str = "near_one", rate: float = RATE
) -> TNClassifier:
    """Return a network on the pixels themselves."""
    return TNClassifier(
        format,
        maps=Polynomial(2),
        rank=rank,
        init=init,
        learning_rate=rate,
        max_iter=epochs,
        early_stopping=False,
        random_state=SEED,
    )


def from_linear(format: str) -> TNClassifier:
    """Return a network that starts from logistic regression; 10 outputs need a rank of 11."""
    return network(format, 11, LINEAR_EPOCHS, "linear", LINEAR_RATE)


def cp_from_linear() -> CPClassifier:
    """Return CP that starts from logistic regression; unlike the networks, it takes any rank."""
    return CPClassifier(
        maps=Polynomial(2),
        rank=30,
        init="linear",
        learning_rate=LINEAR_RATE,
        max_iter=LINEAR_EPOCHS,
        n_members=1,
        early_stopping=False,
        random_state=SEED,
    )


RANKS = {"cp": 30, "tt": 6, "tr": 6}
LINEAR: dict[str, Callable[[], Any]] = {
    "cp": cp_from_linear,
    "tt": lambda: from_linear("tt"),
    "tr": lambda: from_linear("tr"),
}


@dataclass(frozen=True)
class Run:
    """The result of a fit: probabilities of the test rows, accuracy, seconds, training losses."""

    proba: np.ndarray
    accuracy: float
    seconds: float
    losses: list[float]

    @property
    def finite(self) -> bool:
        """Whether all numbers stayed in range, and the model learnt."""
        in_range = np.all(np.isfinite(self.losses)) and np.all(np.isfinite(self.proba))
        return bool(in_range) and self.accuracy > 0.5


def fit(model: Any, X: np.ndarray, y: np.ndarray) -> Run:
    """Train on the first rows and measure on the others."""
    time = seconds(lambda: model.fit(X[:N_TRAIN], y[:N_TRAIN]))
    proba = model.predict_proba(X[N_TRAIN:])
    accuracy = float(np.mean(model.classes_[proba.argmax(1)] == y[N_TRAIN:]))
    return Run(proba, accuracy, time, model.history_[0]["train_loss"])


def compare(name: str, build: Callable[[], Any], X: np.ndarray, y: np.ndarray) -> list[Run]:
    """Fit on the pixels in their order, and permuted; print both."""
    permuted = X[:, np.random.default_rng(SEED + 1).permutation(X.shape[1])]
    runs = [fit(build(), pixels, y) for pixels in (X, permuted)]
    lines = [
        [
            f"{name}, {order}",
            f"{run.accuracy:.3f}",
            f"{run.seconds:.1f}",
            f"{run.losses[0]:.4f}",
            f"{run.losses[-1]:.4f}",
            verdict(run.finite),
        ]
        for order, run in zip(("in order", "permuted"), runs)
    ]
    print_table(["", "accuracy", "fit s", "first loss", "last loss", "in range"], lines)
    first, second = (run.proba for run in runs)
    print(
        f"Between the two, {np.sum(first.argmax(1) != second.argmax(1))} of {len(first)} "
        f"predictions differ, probabilities by up to {np.abs(first - second).max():.1e}.\n"
    )
    return runs


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels from 0 to 1 and digits, shuffled: the file is sorted by digit."""
    X, y = fetch_mnist5k(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(y))
    return X[order] / 255.0, y[order]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 epochs, near-one init only")
    parser.add_argument("--threads", type=int, help="of torch; all cores where not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    X, y = load_digits()
    print(f"{machine()}, torch {version('torch')} on {torch.get_num_threads()} threads")
    epochs = 3 if options.quick else EPOCHS
    print_title(f"init='near_one', {epochs} epochs")
    found = {
        format: compare(
            f"{format} of rank {rank}", lambda f=format, r=rank: network(f, r, epochs), X, y
        )
        for format, rank in RANKS.items()
    }
    if not options.quick:
        print_title(f"init='linear', {LINEAR_EPOCHS} epochs")
        for format, build in LINEAR.items():
            found[f"{format}, linear"] = compare(f"{format} of rank {build().rank}", build, X, y)
    finite = all(run.finite for runs in found.values() for run in runs)
    print(f"No overflow and no underflow, from either init: {verdict(finite)}")
    for name, runs in found.items():
        if name.startswith("cp"):
            gap = abs(runs[0].accuracy - runs[1].accuracy)
            print(f"{name} does not depend on the order of the pixels: {verdict(gap <= AGREE)}")


if __name__ == "__main__":
    main()
