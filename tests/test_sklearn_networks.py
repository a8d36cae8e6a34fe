"""scikit-learn's own rules for the tensor-network estimators, all of them, for every format.

Every format is tested as a regressor. The code of classifiers depends on the format only by whether
it takes maps or raw columns: one format of each kind is enough.
"""

import needs
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyadic import TNClassifier, TNRegressor, networks

torch = needs.package("torch")

pytestmark = pytest.mark.no_cover  # as in test_sklearn_checks.py
FAST = {
    "max_iter": 3,
    "batch_size": 32,
    "learning_rate": 0.03,
    "ema_decay": 0.8,
}
RANKS = dict.fromkeys(networks.FORMATS, 3) | {"tucker": 2}
WIDE = "check_sample_weight_equivalence_on_dense_data"  # thirty columns
# Checks that require a score; for the others a barely trained model is enough. All epochs are
# trained: the twenty held-out rows of a check may stop a run before it has learnt anything (one
# tucker model in 81). scikit-learn requires a score of 0.5; the lowest of 61 seeds was 0.75.
SCORED = {"check_regressors_train", "check_classifiers_train", "check_class_weight_classifiers"}
LEARNING = {"max_iter": 25, "n_iter_no_change": 25}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        *(TNRegressor(name, rank=RANKS[name], **FAST) for name in sorted(networks.FORMATS)),
        *(TNClassifier(name, rank=RANKS[name], **FAST) for name in ("tt", "fm")),
    ]
)
def test_estimator_obeys_scikit_learn(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # as in test_sklearn_checks.py
    if check.func.__name__ in SCORED:
        estimator = clone(estimator).set_params(**LEARNING)
    if estimator.format == "tucker" and check.func.__name__ == WIDE:
        # A core tensor of 2^30 entries is refused, as it should be.
        estimator = clone(estimator).set_params(rank=1)
    check(estimator)
