"""scikit-learn's own rules for estimators, all of them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyadic import CPClassifier, CPRegressor
from polyadic.maps import Polynomial

# No coverage: it adds a quarter to the time, and the estimators' own tests run these lines too.
pytestmark = pytest.mark.no_cover
SMALL = {"n_members": 1, "rank": 8, "max_iter": 60, "n_jobs": 1}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        CPRegressor(**SMALL),
        CPClassifier(**SMALL),
        CPRegressor(**{**SMALL, "n_members": 2}),
        CPRegressor(**SMALL, maps=Polynomial(3), learning_rate=0.01),
    ]
)
def test_estimator_obeys_scikit_learn(estimator, check, monkeypatch):
    # Without it the check of array namespaces is skipped. The namespace tested is NumPy's.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)
