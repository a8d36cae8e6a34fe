"""The mean of several networks, by scikit-learn: what docs/formats.md says of it."""

import joblib
import needs
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import VotingClassifier, VotingRegressor

from polyadic import TNClassifier, TNRegressor, explain

needs.package("torch")

FEW = {"format": "tt", "maps": "polynomial", "rank": 2, "max_iter": 8, "learning_rate": 0.03}
SEEDS = range(3)


def table(n_rows=80):
    """Return numbers and a category, and a target that is a product."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "a": rng.uniform(-1, 1, n_rows),
            "b": rng.uniform(-1, 1, n_rows),
            "c": pd.Categorical(rng.choice(["x", "y", "z"], n_rows)),
        }
    )
    return X, (X["a"] * (1.0 + X["b"] + (X["c"] == "x"))).to_numpy()


def networks_of(kind):
    return [(f"seed {seed}", kind(**FEW, random_state=seed)) for seed in SEEDS]


@pytest.fixture(scope="module")
def mean():
    return VotingRegressor(networks_of(TNRegressor)).fit(*table())


def test_a_voting_regressor_is_the_mean_of_networks_on_a_table_with_categories(mean):
    X, y = table()
    alone = [model.fit(X, y).predict(X) for _, model in networks_of(TNRegressor)]
    np.testing.assert_array_equal(mean.predict(X), np.mean(alone, axis=0))
    assert np.std(alone, axis=0).min() > 0  # the networks differ


def test_networks_trained_side_by_side_are_the_same(mean):
    X, y = table()
    with joblib.parallel_config("threading"):  # a process would import torch first
        side_by_side = VotingRegressor(networks_of(TNRegressor), n_jobs=2).fit(X, y)
    np.testing.assert_allclose(side_by_side.predict(X), mean.predict(X), rtol=1e-6, atol=1e-6)


def test_a_voting_classifier_is_the_mean_of_the_probabilities():
    X, y = table()
    labels = np.where(y > 0, "high", "low")
    mean = VotingClassifier(networks_of(TNClassifier), voting="soft").fit(X, labels)
    alone = [model.predict_proba(X) for model in mean.estimators_]
    np.testing.assert_allclose(mean.predict_proba(X), np.mean(alone, axis=0), rtol=1e-12)
    assert set(mean.predict(X)) <= {"high", "low"}


def test_mean_shapley_values_add_up_to_the_mean_prediction(mean):
    X, _ = table()
    for background in (None, X[10:30]):
        found = [explain.shapley(model, X, background) for model in mean.estimators_]
        values, base = (np.mean([getattr(f, k) for f in found], axis=0) for k in ("values", "base"))
        total = base + values.sum(axis=1)
        np.testing.assert_allclose(total[:, 0], mean.predict(X), rtol=1e-5, atol=1e-5)


def test_the_networks_are_explained_over_the_same_marginals(mean):
    first, *others = mean.estimators_
    for other in others:
        for ours, theirs in zip(first.marginals_, other.marginals_):
            for name, array in ours.arrays().items():
                np.testing.assert_array_equal(array, theirs.arrays()[name])
