"""Appendix B as algebra: coefficients that are read off the cores are those of the model."""

import needs
import numpy as np
import pytest

from experiments import algebra
from polyadic import CPRegressor, TNRegressor, maps

needs.package("torch")

NAMES = ["cp", *algebra.FORMATS]


def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (300, 3))
    return X, 5 + X[:, 0] * X[:, 1] - 0.3 * X[:, 2] ** 2 * X[:, 0]


def fitted(name):
    X, y = table()
    settings = {"maps": maps.Polynomial(3), "rank": 3, "max_iter": 5, "random_state": 0}
    if name == "cp":
        return CPRegressor(n_members=1, **settings).fit(X, y)
    return TNRegressor(name, **settings).fit(X, y)


@pytest.mark.parametrize("name", NAMES)
def test_the_polynomial_that_was_read_off_is_the_model(name):
    model, (X, _) = fitted(name), table()
    powers, values = algebra.read_off(model)
    assert len(values) == 3**3 == len({tuple(p) for p in powers})
    assert algebra.largest_gap(model, X) < algebra.ROUNDING


def test_a_wrong_coefficient_is_a_gap(monkeypatch):
    model, (X, _) = fitted("cp"), table()
    powers, values = algebra.read_off(model)
    values[np.argmax(np.abs(values))] *= 1.01
    monkeypatch.setattr(algebra, "read_off", lambda model: (powers, values))
    assert algebra.largest_gap(model, X) > 20 * algebra.ROUNDING


@pytest.mark.parametrize("name", algebra.FORMATS)
def test_every_format_of_the_experiment_is_its_polynomial(name):
    assert algebra.gap(seed=0, format=name, epochs=1)["gap"] < algebra.ROUNDING
