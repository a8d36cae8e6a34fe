"""Tests that other libraries ship for estimators, on every public setting of ours.

    python torture/peers.py --minutes 30 --jobs 2

A case is one test on one setting: the checks of scikit-learn's `parametrize_with_checks` on every
loss, solver, map, init, penalty and format (CI runs them on a few); skops' tests of storing fitted
and unfitted estimators; imbalanced-learn's checks of classifiers, on ours and on its ensembles of
ours; shap's check that values add up to the prediction. mlxtend ships no tests with its package.
The part ends with the last case.
"""

from __future__ import annotations

import os
from functools import cache, partial
from types import SimpleNamespace
from unittest import SkipTest

import numpy as np
from common import run
from imblearn.ensemble import BalancedBaggingClassifier, EasyEnsembleClassifier
from imblearn.utils import estimator_checks as imblearn_checks
from shap.explainers import TreeExplainer
from sklearn.base import clone, is_classifier
from sklearn.utils.estimator_checks import estimator_checks_generator

from polyadic import CPClassifier, CPRegressor, TNClassifier, TNRegressor, explain, networks
from polyadic.explain.outputs import explained_raw
from polyadic.maps import MAPS, OneHot
from polyadic.solvers.inits import INITS

CP = {"n_members": 1, "rank": 8, "max_iter": 60, "n_jobs": 1, "random_state": 0}
TN = {"max_iter": 25, "n_iter_no_change": 25, "batch_size": 32, "learning_rate": 0.03}
TN |= {"ema_decay": 0.8, "random_state": 0}
WIDE = "check_sample_weight_equivalence_on_dense_data"  # thirty columns: too many for tucker
# It expects that noise cannot be learnt. Without any penalty, least squares separates its 50 rows,
# and weights of classes mean nothing where the loss of every row is near zero.
UNLEARNABLE = "check_class_weight_classifiers"
# What cannot hold for a setting: counts have no negative targets, which the checks draw.
LOSSES = ["squared_error", "huber", "absolute_error"]
SOLVERS = ["adam", "als", "als+adam", "adam+als"]


@cache
def settings() -> dict[str, object]:
    """Return estimators by what is special in them."""
    found = {}
    for kind, cls in (("regressor", CPRegressor), ("classifier", CPClassifier)):
        own = {f"solver={name!r}": {"solver": name} for name in SOLVERS}
        own |= {f"init={name!r}": {"init": name} for name in INITS}
        numeric = {name: one for name, one in MAPS.items() if one is not OneHot}
        own |= {f"maps={name!r}": {"maps": name, "learning_rate": 0.01} for name in numeric}
        own |= {"two members": {"n_members": 2, "n_jobs": 2}, "trees": {"trees": True}}
        own |= {"order penalty": {"order_alpha": 0.001}, "torch": {"engine": "torch"}}
        own |= {"no penalties": {"l2": 0.0, "smoothness": 0.0}}
        if cls is CPRegressor:
            own |= {f"loss={name!r}": {"loss": name} for name in LOSSES}
            own["loss='quantile'"] = {"loss": "quantile", "quantile": 0.5}
        else:
            own["squared loss"] = {"loss": "squared_error"}
            own["balanced"] = {"class_weight": "balanced"}
        found |= {f"CP {kind}, {name}": cls(**CP | one) for name, one in own.items()}
    for kind, cls in (("regressor", TNRegressor), ("classifier", TNClassifier)):
        for name in networks.FORMATS:
            rank = 2 if name == "tucker" else 3
            found[f"{name} {kind}"] = cls(name, rank=rank, **TN)
        for solver in ("als", "riemannian"):
            found[f"tt {kind}, solver={solver!r}"] = cls("tt", rank=3, max_iter=25, solver=solver)
    return found


# ---- the tests -----------------------------------------------------------------------------------


def sklearn_check(estimator, check):
    os.environ["SCIPY_ARRAY_API"] = "1"  # without it a check is skipped
    name = check.func.__name__
    if getattr(estimator, "format", "") == "tucker" and name == WIDE:
        estimator = clone(estimator).set_params(rank=1)
    if name == UNLEARNABLE and estimator.l2 == 0 and estimator.smoothness == 0:
        raise SkipTest("without penalties noise is learnt")
    check(estimator)


def skops_check(estimator, name):
    from skops.io.tests import test_persist

    getattr(test_persist, name)(clone(estimator))


def imblearn_check(estimator, name):
    getattr(imblearn_checks, name)(type(estimator).__name__, estimator)


def shap_check(estimator):
    """Check by shap's own rule that the values of every output add up to the raw prediction."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X[:, 0] * X[:, 1] + X[:, 2])
    if is_classifier(estimator):
        y = np.digitize(y, [-0.5, 0.5])
    model = clone(estimator).fit(X, y)
    found = explain.shapley(model, X[:50])
    raw = explained_raw(model, model.raw(X[:50]))
    own = SimpleNamespace(expected_value=found.base, feature_perturbation="interventional")
    values = [found.values[:, :, k] for k in range(raw.shape[1])]
    TreeExplainer.assert_additivity(own, values, raw)


@cache
def cases() -> list[tuple[str, partial]]:
    """Return all cases, by a name."""
    found = []
    for title, estimator in settings().items():
        for own, check in estimator_checks_generator(clone(estimator)):
            found.append((f"scikit-learn: {title}", partial(sklearn_check, own, check)))
        for name in ("test_can_persist_non_fitted", "test_can_persist_fitted"):
            found.append((f"skops: {title}", partial(skops_check, estimator, name)))
        if not title.startswith("pn "):  # it has no Shapley values in closed form
            found.append((f"shap: {title}", partial(shap_check, estimator)))
        if is_classifier(estimator):
            check = partial(imblearn_check, estimator, "check_classifiers_with_encoded_labels")
            found.append((f"imbalanced-learn: {title}", check))
    for wrap in (BalancedBaggingClassifier, EasyEnsembleClassifier):
        own = wrap(estimator=CPClassifier(**CP), n_estimators=2, random_state=0)
        for check in imblearn_checks._yield_classifier_checks(own):
            one = partial(imblearn_check, own, check.__name__)
            found.append((f"imbalanced-learn: {wrap.__name__} of ours", one))
    return found


def case(number, folder) -> str:
    title, check = cases()[number]
    word = title.split(":")[0]
    np.random.seed(number)  # imbalanced-learn draws tables from the generator that all share
    try:
        check()
    except SkipTest:
        return f"{word}: skipped"
    except Exception as error:
        raise AssertionError(f"{title}: {check}") from error
    return word


if __name__ == "__main__":
    run("peers", case, block=10, total=lambda: len(cases()))
