"""The paper's splits, checked by the scores of simple models on them."""

import needs
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import mean_squared_error, roc_auc_score
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVR

from polyadic import datasets


@pytest.fixture(scope="module")
def fetch():
    def fetch(name, **options):
        with needs.data():
            return getattr(datasets, name)(**options)

    return fetch


def validation_error(model, parts, n_rows=None):
    model.fit(parts.X_train[:n_rows], parts.y_train[:n_rows])
    return mean_squared_error(parts.y_val, model.predict(parts.X_val))


def assert_standardised_on_train(parts):
    np.testing.assert_allclose(parts.X_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(parts.X_train.std(axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose([parts.y_train.mean(), parts.y_train.std()], [0, 1], atol=1e-12)


def test_california_split_reaches_the_check_points(fetch):
    parts = fetch("fetch_california_housing", split="paper")
    assert parts.X_train.shape == (13_208, 8)
    assert parts.X_val.shape == (3_304, 8)
    assert parts.X_test.shape == (4_128, 8)
    assert_standardised_on_train(parts)
    assert validation_error(LinearRegression(), parts) == pytest.approx(0.3712142443, abs=1e-10)
    # On all rows it is 0.22361 and takes long: `make reproduce` checks that.
    assert validation_error(SVR(C=10), parts, 3_000) == pytest.approx(0.241247, abs=5e-6)


def test_synthetic_split_reaches_the_check_points():
    parts = datasets.load_synthetic(split="paper")
    assert (len(parts.y_train), len(parts.y_val), len(parts.y_test)) == (1_920, 480, 600)
    assert_standardised_on_train(parts)
    assert validation_error(LinearRegression(), parts) == pytest.approx(0.331154, abs=5e-7)
    assert validation_error(SVR(C=10), parts) == pytest.approx(0.17907, abs=5e-6)


def test_movielens_split_reaches_the_check_point(fetch):
    parts = fetch("fetch_movielens100k", split="paper")
    assert len(parts.y_train) == 21_200
    assert len(parts.y_test) == 78_800
    assert parts.y_train.sum() == 10_600
    assert parts.X_val is None
    assert parts.y_val is None
    onehot = OneHotEncoder(handle_unknown="ignore").fit(parts.X_train)
    model = LogisticRegression(C=1.0, solver="liblinear")
    model.fit(onehot.transform(parts.X_train), parts.y_train)
    score = model.decision_function(onehot.transform(parts.X_test))
    assert roc_auc_score(parts.y_test, score) == pytest.approx(0.78212, abs=5e-6)


def test_movielens_columns_have_the_papers_sizes(fetch):
    pd = needs.package("pandas")
    X, y = fetch("fetch_movielens100k", return_X_y=True)
    assert X.shape == (100_000, 26)
    assert list(X.columns[:7]) == ["age", "gender", "occupation", "zip", "user", "item", "decade"]
    assert all(isinstance(dtype, pd.CategoricalDtype) for dtype in X.dtypes)
    sizes = [X[name].nunique() for name in X]
    assert sizes == [7, 2, 21, 19, 943, 1682, 10] + [2] * 19
    assert y.sum() == 21_201


def test_adult_split_is_the_publishers(fetch):
    parts = fetch("fetch_adult", split="publisher")
    assert parts.X_train.shape == (32_561, 14)
    assert parts.X_test.shape == (16_281, 14)
    # Counts of the publisher's own adult.data and adult.test.
    assert (parts.y_train == ">50K").sum() == 7_841
    assert (parts.y_test == ">50K").sum() == 3_846
