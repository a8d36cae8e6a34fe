"""Tables drawn by hypothesis: a fit predicts finite numbers for its own rows, or refuses them.

`torture/tables.py` draws tables of nasty columns by the thousand. Here the numbers and texts are
drawn one by one, the same at every run, and what fails is made as small as it can be.
"""

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from polyadic import CPClassifier, CPRegressor, load

FAST = {"n_members": 1, "rank": 2, "max_iter": 2, "random_state": 0}
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(FINITE, st.just(np.nan), st.integers(-3, 3).map(float))
TEXTS = st.one_of(st.none(), st.text(max_size=3))


@st.composite
def tables(draw, target):
    """Return a table of one to three columns, and its target."""
    n = draw(st.integers(2, 12))
    of_numbers = st.lists(NUMBERS, min_size=n, max_size=n).map(lambda x: np.array(x, dtype=float))
    of_texts = st.lists(TEXTS, min_size=n, max_size=n).map(lambda x: pd.Series(x, dtype=object))
    columns = draw(st.lists(st.one_of(of_numbers, of_texts), min_size=1, max_size=3))
    X = pd.DataFrame({f"column {k}": column for k, column in enumerate(columns)})
    return X, np.array(draw(st.lists(target, min_size=n, max_size=n)))


def check(model, X, y, path):
    """Fit, or be refused; then predict, and predict the same when saved and loaded."""
    try:
        model.fit(X, y)
    except (ValueError, TypeError):
        return
    raw = model.raw(X)
    assert np.all(np.isfinite(raw))
    if isinstance(model, CPRegressor):
        assert np.all(np.isfinite(model.predict(X)))
    else:
        assert set(model.predict(X)) <= set(y)
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-6)
    model.save(path)
    np.testing.assert_array_equal(load(path).raw(X), raw)


@given(table=tables(FINITE))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_numbers_and_texts_are_fitted_or_refused(table, tmp_path_factory):
    check(CPRegressor(**FAST), *table, tmp_path_factory.getbasetemp() / "regressor")


@given(table=tables(st.integers(0, 2)))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_table_of_classes_is_fitted_or_refused(table, tmp_path_factory):
    check(CPClassifier(**FAST), *table, tmp_path_factory.getbasetemp() / "classifier")
