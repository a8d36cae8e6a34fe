"""Backends of joblib that have other processes: members are spread, and no bit changes."""

import needs
import numpy as np
import pytest
from joblib import parallel_config
from joblib.parallel import get_active_backend

from polyadic import CPClassifier, CPRegressor
from polyadic.training.pool import Pool


def table(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)


def small_model():
    return CPRegressor(n_members=3, max_iter=3, trees=False, random_state=0)


def mixed_model():
    return CPClassifier(n_members=2, random_state=0)


@pytest.mark.parametrize("name", ["threading", "loky", "multiprocessing", "sequential"])
def test_joblibs_own_backends_stay_with_threads(name):
    with parallel_config(backend=name, n_jobs=2), Pool(2) as pool:
        assert not pool.spreads


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_dask_finds_the_same_bits(tmp_path):
    distributed = needs.package("distributed")
    X, y = table()
    models = [(small_model, y), (mixed_model, y > 0)]
    alone = [make().fit(X, target) for make, target in models]
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address=None,
        local_directory=str(tmp_path),
        processes=True,
    )
    with cluster, distributed.Client(cluster), parallel_config(backend="dask"):
        assert "dask" in type(get_active_backend()[0]).__module__
        spread = [make().set_params(n_jobs=2).fit(X, target) for make, target in models]
    for one, other in zip(spread, alone):
        np.testing.assert_array_equal(one.raw(X), other.raw(X))
        np.testing.assert_array_equal(one.weights_, other.weights_)
