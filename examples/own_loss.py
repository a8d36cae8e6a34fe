"""Use a loss of your own: the Tweedie deviance, for insurance claims that are mostly zero.

Most policies have no claim, the others a skewed amount. The Tweedie deviance of power 1 < p < 2 is
made for such totals. Value and slope are plain Python, which Numba compiles; with the curvature,
least squares (solver="als") can use the loss too, and with the torch form, so can the torch engine.
"""

import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.metrics import mean_tweedie_deviance

from polyadic import CPRegressor, explain
from polyadic.losses import Loss


@dataclass(frozen=True)
class Tweedie(Loss):
    """Tweedie deviance with a log link, halved and up to a constant."""

    power: float = 1.5
    link_name = "log"

    def check(self, y):
        """Refuse negative totals."""
        if np.any(y < 0):
            raise ValueError(f"Tweedie needs y >= 0, but the smallest y is {np.min(y):.6g}.")

    @staticmethod
    def value_and_slope(y, raw, power):
        """Return the loss of one number and its derivative by raw."""
        claim = y * np.exp((1 - power) * raw)
        mean = np.exp((2 - power) * raw)
        return mean / (2 - power) - claim / (1 - power), mean - claim

    @staticmethod
    def curvature(y, raw, power):
        """Return the second derivative."""
        return (2 - power) * np.exp((2 - power) * raw) - (1 - power) * y * np.exp((1 - power) * raw)

    def torch_losses(self, y, raw):
        """Return the loss of each row in torch."""
        claim, mean = y * ((1 - self.power) * raw).exp(), ((2 - self.power) * raw).exp()
        return (mean / (2 - self.power) - claim / (1 - self.power)).sum(1)


def claims(n, seed):
    """Return policies and the total of their claims."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.uniform(18, 90, n),
            "car_age": rng.integers(0, 20, n).astype(float),
            "city": rng.uniform(0, 1, n),
        }
    )
    young, old_car = X["age"] < 26, X["car_age"] > 10
    mean = np.exp(-1.0 + 1.2 * young * X["city"] + 0.5 * old_car + 0.8 * X["city"])
    number = rng.poisson(mean)
    return X, rng.gamma(np.maximum(number, 1e-9), 1.0) * (number > 0)


def main(n_rows=4000):
    """Compare the Tweedie loss with the squared error on new policies."""
    X, y = claims(n_rows, seed=0)
    X_new, y_new = claims(20_000, seed=1)
    print(f"policies without a claim: {np.mean(y == 0):.0%}")
    for loss in ("squared_error", Tweedie(1.5)):
        model = CPRegressor(loss=loss, random_state=0).fit(X, y)
        predicted = np.maximum(model.predict(X_new), 1e-3)
        deviance = mean_tweedie_deviance(y_new, predicted, power=1.5)
        print(f"loss {loss!s:20} deviance on new policies {deviance:.4f}")
    print(*explain.in_words(model), sep="\n")
    return model


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
