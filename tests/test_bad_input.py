"""Bad input gets an error that says what was given and what would be right."""

import datetime
import decimal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from polyadic import CPClassifier, CPRegressor, load, maps
from polyadic.cli import fitting
from polyadic.estimators import streamed, validation

X = np.random.default_rng(0).normal(size=(20, 3))
Y = X[:, 0]
FAST = {"n_members": 1, "rank": 2, "max_iter": 1}


def refused(message, X=X, y=Y, error=ValueError, model=None, **fit):
    with pytest.raises(error, match=message):
        (CPRegressor(**FAST) if model is None else model).fit(X, y, **fit)


def test_a_target_with_nan_is_refused():
    refused("Input y contains NaN", y=np.where(np.arange(20) == 4, np.nan, Y))


def test_a_target_with_infinity_is_refused():
    refused("Input y contains infinity", y=np.where(np.arange(20) == 4, np.inf, Y))


def test_infinite_numbers_are_refused():
    bad = X.copy()
    bad[2, 1] = np.inf
    refused("Column 1 holds infinity in 1 of 20 rows", X=bad)


def test_a_table_without_rows_is_refused():
    refused(r"0 sample\(s\)", X=X[:0], y=Y[:0])
    refused(r"0 sample\(s\)", X=pd.DataFrame({"a": []}), y=Y[:0])


def test_lengths_that_do_not_match_are_refused():
    refused("X has 20 rows and y has 19", y=Y[:-1])
    refused("sample_weight has 3 entries, but X has 20 rows", sample_weight=np.ones(3))


def test_negative_zero_and_missing_weights_are_refused():
    refused("must not be negative, but its smallest entry is -1", sample_weight=-np.ones(20))
    refused("zero for every row", sample_weight=np.zeros(20))
    refused("Input sample_weight contains NaN", sample_weight=np.full(20, np.nan))
    refused("sample_weight must be finite, got inf", sample_weight=np.inf)
    refused("sample_weight must be finite, got a whole number of", sample_weight=10**400)
    refused("sample_weight holds a whole number that no float", sample_weight=[10**400, *Y[1:]])


@pytest.mark.parametrize("weight", [np.inf, -1, np.nan, None, "2", 10**400])
def test_weights_of_classes_that_are_no_weights_are_refused(weight):
    model = CPClassifier(**FAST, class_weight={False: weight})
    refused("finite number of at least 0, but gives the class False", y=Y > 0, model=model)


def test_weights_of_classes_that_are_all_zero_are_refused():
    both = CPClassifier(**FAST, class_weight={False: 0, True: 0})
    refused("class_weight=.* is zero for every class that has rows", y=Y > 0, model=both)
    one = CPClassifier(**FAST, class_weight={False: 0})
    weight = np.where(Y > 0, 0.0, 1.0)
    refused("is zero for every class that has rows", y=Y > 0, model=one, sample_weight=weight)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_weights_of_classes_may_have_any_size(size):
    usual, scaled = (
        CPClassifier(**FAST, random_state=0, class_weight={False: by, True: by}).fit(X, Y > 0)
        for by in (1.0, size)
    )
    np.testing.assert_array_equal(scaled.predict_proba(X), usual.predict_proba(X))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("tiny", [1e-200, 5e-324])
def test_tiny_weights_beside_usual_ones_are_no_trouble(tiny):
    light = np.arange(len(Y)) % 2 == 0
    part = np.where(light, Y, np.nan)  # known where weights are tiny only
    model = CPRegressor(**FAST).fit(np.column_stack([X, part]), Y, np.where(light, tiny, 1.0))
    assert np.all(np.isfinite(model.predict(np.column_stack([X, part]))))


def test_masked_entries_are_missing_values_of_a_table():
    mask = np.arange(X.size).reshape(X.shape) % 7 == 0
    masked, missing = np.ma.array(X, mask=mask), np.where(mask, np.nan, X)
    model = CPRegressor(**FAST, random_state=0).fit(masked, Y)
    want = CPRegressor(**FAST, random_state=0).fit(missing, Y)
    assert model.predict(masked).tobytes() == want.predict(missing).tobytes()
    whole = np.ma.array(np.arange(X.size).reshape(X.shape), mask=mask)
    assert np.all(np.isfinite(CPRegressor(**FAST).fit(whole, Y).predict(whole)))
    words = np.ma.array(np.where(X > 0, "a", "b").astype(object), mask=mask)
    model = CPRegressor(**FAST, categorical_features=[0, 1, 2]).fit(words, Y)
    assert all(column.categories == ("a", "b") for column in model.columns_.columns)


def test_masked_targets_and_weights_are_refused():
    masked = np.ma.array(np.abs(Y), mask=np.arange(len(Y)) < 2)
    refused("y has 2 masked entries", y=masked)
    refused("y has 2 masked entries", y=masked > 0.5, model=CPClassifier(**FAST))
    refused("sample_weight has 2 masked entries", sample_weight=masked)


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pl.Series])
def test_numbers_stored_as_text_are_no_targets_and_no_weights(kind):
    texts = kind(["1.5", "2.5"] * (len(Y) // 2))
    refused("y holds text, such as '1.5'", y=texts)
    refused("sample_weight must hold numbers, but holds text, such as '1", sample_weight=texts)


def test_text_in_an_array_is_refused():
    bad = X.astype(object)
    bad[3, 1] = "tall"
    refused("(?s)tall.*categorical_features", X=bad)


def test_sparse_tables_are_refused():
    refused(
        "X is a sparse matrix .* CPRegressor reads dense", X=sparse.csr_array(X), error=TypeError
    )


def test_the_error_inside_a_pipeline_says_how_to_make_it_work():
    towns = pd.DataFrame({"town": ["Ulm", "Bonn"] * 10})
    with pytest.raises(TypeError, match=r"OneHotEncoder\(sparse_output=False\)"):
        make_pipeline(OneHotEncoder(), CPRegressor(**FAST)).fit(towns, Y)
    make_pipeline(OneHotEncoder(sparse_output=False), CPRegressor(**FAST)).fit(towns, Y)
    encoded = make_column_transformer((OneHotEncoder(), ["town"]), sparse_threshold=0)
    make_pipeline(encoded, CPRegressor(**FAST)).fit(towns, Y)


TEXTS = {
    "list": lambda y: y,
    "object": lambda y: np.array(y, dtype=object),
    "text": np.array,
    "pandas": pd.Series,
    "categories": lambda y: pd.Series(y, dtype="category"),
    "frame": lambda y: pd.DataFrame({"y": y}),
    "polars": pl.Series,
}


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_text_as_the_target_of_a_regression_names_the_classifier(make):
    refused(
        r"y holds text, such as 'no', and CPRegressor predicts .* use CPClassifier",
        y=make(["no", "yes"] * 10),
    )


def test_a_column_missing_at_predict_time_is_named():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = CPRegressor(**FAST).fit(frame, Y)
    with pytest.raises(
        ValueError, match="X lacks 1 of the 3 columns that CPRegressor was fitted on: 'b'"
    ):
        model.predict(frame[["a", "c"]])
    with pytest.raises(ValueError, match="X has 2 features, but CPRegressor is expecting 3"):
        CPRegressor(**FAST).fit(X, Y).predict(X[:, :2])


def test_duplicate_column_names_are_refused():
    refused("Column names must differ from each other", X=pd.DataFrame(X, columns=["a", "b", "a"]))


def test_a_single_class_is_refused():
    refused("needs at least two classes", y=np.zeros(20), model=CPClassifier(**FAST))


def test_missing_labels_are_refused():
    bad = np.array(["a", "b"] * 10, dtype=object)
    bad[3] = None
    refused("missing labels", y=bad, model=CPClassifier(**FAST))
    named = pd.Series(["a", "b"] * 9 + ["a", pd.NA], dtype="string")
    refused("missing labels", y=named, model=CPClassifier(**FAST))


@pytest.mark.parametrize("classes", [[0, 1, np.nan], np.array([0, 1, None], dtype=object)])
def test_missing_labels_among_the_classes_are_refused(classes):
    with pytest.raises(ValueError, match="Input classes contains"):
        CPClassifier(**FAST).partial_fit(X, (Y > 0).astype(float), classes=classes)


def test_a_checkpoint_that_is_no_folder_is_refused():
    model = CPRegressor(**FAST, random_state=0, checkpoint="/dev/null")
    refused("'/dev/null' is there and is no folder", model=model)


@pytest.mark.parametrize("path", ["y" * 5000, "/dev/null/folder", "nul\0l"])
def test_a_checkpoint_that_can_be_no_folder_is_refused_by_fit_not_by_load(path, tmp_path):
    model = CPRegressor(**FAST, random_state=0, checkpoint=path)
    refused("cannot be one", model=model)
    fitted = CPRegressor(**FAST, random_state=0).fit(X, Y).set_params(checkpoint=path)
    fitted.save(tmp_path / "model")
    assert load(tmp_path / "model").checkpoint == path


def test_a_checkpoint_of_bytes_is_refused():
    class Path:
        def __fspath__(self):
            return b"folder"

    for path in (b"folder", Path()):
        model = CPRegressor(**FAST, random_state=0, checkpoint=path)
        refused("must be the path of a folder, or None, got b'folder'", model=model)


def test_a_checkpoint_that_is_a_link_to_nothing_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    model = CPRegressor(**FAST, random_state=0, checkpoint=tmp_path / "link")
    refused("is a link to nothing", model=model)


def test_negative_counts_are_refused():
    refused("needs y >= 0, but the smallest y is -", model=CPRegressor(**FAST, loss="poisson"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("maps", "spline", "Unknown map 'spline'. Choose from: bspline, "),
        ("maps", {"nothing": "hat"}, "nothing"),
        ("loss", "l1", "Unknown loss 'l1'. Choose from: absolute_error, huber"),
        ("init", "zero", "Unknown init 'zero'. Choose from: gaussian, linear, near_one"),
        ("solver", "sgd", "Unknown solver 'sgd'. Choose from: adam"),
        ("schedule", "step", "Unknown schedule 'step'. Choose from: constant, one_cycle"),
        ("rank", 0, "rank must be a whole number of at least 1, or 'auto', got 0"),
        ("rank", 2.5, "rank must be a whole number of at least 1, or 'auto', got 2.5"),
        ("l2", -1, "l2 must be a number of at least 0, or 'auto', got -1"),
        ("l2", "much", "l2 must be a number"),
        ("smoothness", None, "smoothness must be a number"),
        ("order_alpha", np.nan, "order_alpha must be a number"),
        ("n_members", 0, "n_members must be a whole number of at least 1"),
        ("max_iter", -1, "max_iter must be a whole number of at least 0, or 'auto'"),
        ("batch_size", 0, "batch_size must be a whole number"),
        ("learning_rate", "fast", "learning_rate must be a number"),
        ("ema_decay", 1.0, "ema_decay must be a number from 0"),
        ("validation_fraction", 0.9, "validation_fraction must be a number from"),
        ("learning_rate", 0, "learning_rate must be a number of at least"),
        ("early_stopping", "yes", "early_stopping must be True or False, got 'yes'"),
        ("rank", 10**400, "got a whole number of 1,329 bits, more than a float can hold"),
        ("l2", -(10**400), "l2 must be a number of at least 0.* bits, more than a float can hold"),
        ("max_time", 10**400, "max_time must be a number"),
        ("n_jobs", 0, "n_jobs must be a whole number other than 0, or None, got 0"),
        ("maps", maps.Polynomial(10**13), "It must be an integer >= 1 and <= 1,000,000"),
        ("n_iter_no_change", 0, "n_iter_no_change must be a whole number of at least 1, or None"),
    ],
)
def test_a_wrong_parameter_is_refused_with_the_allowed_values(name, value, message):
    refused(message, model=CPRegressor(**{**FAST, name: value}))


def test_a_list_of_maps_is_refused_with_the_right_form():
    message = r"maps got a list.* a dict from column name or position to map, such as \{0: 'hat'\}"
    refused(message, error=TypeError, model=CPRegressor(**FAST, maps=["hat", "hat", "hat"]))


def test_classifier_losses_are_listed():
    model = CPClassifier(**FAST, loss="hinge")
    refused("Unknown loss 'hinge'. Choose from: log_loss, squared_error", y=Y > 0, model=model)


def test_too_large_a_model_is_refused_before_allocating():
    model = CPRegressor(**{**FAST, "rank": 10**10})
    refused(
        "(?s)would need about .* GB to train; this process may use", error=MemoryError, model=model
    )
    wide = CPRegressor(**{**FAST, "rank": 10**6}, maps=maps.Polynomial(2), order_alpha=1.0)
    refused("would need about", error=MemoryError, model=wide)


def test_memory_is_assumed_where_the_system_does_not_report_it(monkeypatch):
    def silent(name):
        raise ValueError(name)

    monkeypatch.setattr(validation.os, "sysconf", silent)
    assert validation.physical_memory() == 8e9


def test_limits_of_the_process_count_as_memory():
    """In a process of its own: a limit cannot be raised again."""
    lines = (
        "import resource; from polyadic.estimators import validation as v",
        "before = v.available_memory()",
        "resource.setrlimit(resource.RLIMIT_DATA, (123 * 10**7, 123 * 10**7))",
        "assert v.available_memory() == min(before, 123e7)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_the_budget_of_a_fit_is_a_share_of_what_the_process_may_use(tmp_path, monkeypatch):
    file = tmp_path / "rows.parquet"
    pd.DataFrame(X, columns=list("abc")).to_parquet(file)
    settings = SimpleNamespace(data=str(file), memory=None)
    assert not fitting.is_large(settings)
    monkeypatch.setattr(validation, "_process_limits", lambda: iter([1000.0]))
    assert streamed.budget_of(CPRegressor()) == 500.0
    assert fitting.is_large(settings)


def test_limits_of_control_groups_count_as_memory(tmp_path):
    own, root = tmp_path / "own", tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "memory" / "job").mkdir(parents=True)
    (root / "memory.max").write_text("9000000000\n")
    (root / "a" / "memory.max").write_text("5000000000\n")
    (root / "a" / "b" / "memory.max").write_text("max\n")
    (root / "memory" / "job" / "memory.limit_in_bytes").write_text("70000\n")
    own.write_text("0::/a/b\n")
    assert sorted(validation._group_limits(root, own)) == [5e9, 9e9]
    own.write_text("0::/outside/of/it\n")  # a container sees its own limit at the top
    assert list(validation._group_limits(root, own)) == [9e9]
    own.write_text("5:cpu:/\n3:memory:/job\n")
    assert list(validation._group_limits(root, own)) == [7e4]
    assert list(validation._group_limits(root, tmp_path / "gone")) == []


DATES = np.array(["2020-01-01", "2021-01-01"] * 15, "M8[D]")[: len(Y)]
ODD_TARGETS = {
    "huge": (np.where(Y > 0, 8e307, -8e307), "y holds 8e\\+307, beyond 1e\\+300"),
    "tiny": (np.where(Y > 0, 5e-324, 0.0), "y varies by about .* only"),
    "whole numbers beyond floats": ([10**400, *[1] * (len(Y) - 1)], "no float can hold"),
    "dates": (np.resize(DATES, len(Y)), "y holds dates"),
    "durations": (np.resize(DATES, len(Y)) - DATES[0], "y holds dates"),
    "objects of dates": (list(np.resize(DATES, len(Y)).astype(object)), "y holds dates"),
}


@pytest.mark.parametrize("name", ODD_TARGETS)
def test_targets_that_cannot_be_fitted_are_refused_before_work(name):
    y, words = ODD_TARGETS[name]
    refused(words, y=y)


@pytest.mark.parametrize("scale", [1e299, 1e-289])
def test_targets_near_the_limits_are_fitted(scale):
    model = CPRegressor(**FAST).fit(X, scale * Y)
    assert np.all(np.isfinite(model.predict(X)))


def test_counts_beyond_single_precision_are_refused():
    refused("beyond 1e\\+15", y=np.full(len(Y), 1e16), model=CPRegressor(**FAST, loss="poisson"))


def test_dates_and_wide_numbers_are_no_classes():
    model = CPClassifier(**FAST)
    refused("y holds dates", y=np.resize(DATES, len(Y)), model=model)
    wide = np.array([10**30, 1] * len(Y), dtype=object)[: len(Y)]
    refused("100 bits as a class", y=wide, model=model)


def test_integers_of_128_bits_are_numbers():
    whole = pl.Series([1, 2, 3] * len(Y), dtype=pl.Int128)[: len(Y)]
    table = pl.DataFrame({"a": whole, "b": X[:, 0]})
    want = CPRegressor(**FAST, random_state=0).fit(
        table.with_columns(pl.col("a").cast(pl.Float64)), Y
    )
    model = CPRegressor(**FAST, random_state=0).fit(table, Y)
    assert model.predict(table).tobytes() == want.predict(table).tobytes()
    assert np.all(np.isfinite(CPRegressor(**FAST, random_state=0).fit(X, whole).predict(X)))
    assert CPClassifier(**FAST, random_state=0).fit(X, whole).classes_.tolist() == [1, 2, 3]


def test_integers_of_128_bits_are_numbers_in_a_table_of_targets_too():
    whole = pl.Series("a", [1, 2, 3] * len(Y), dtype=pl.Int128)[: len(Y)]
    both = pl.DataFrame({"a": whole, "b": Y})
    model = CPRegressor(**FAST, random_state=0).fit(X, both)
    want = CPRegressor(**FAST, random_state=0).fit(X, both.cast(pl.Float64))
    assert model.predict(X).tobytes() == want.predict(X).tobytes()
    assert model.target_names_ == ["a", "b"]
    assert CPClassifier(**FAST).fit(X, whole.to_frame()).classes_.tolist() == [1, 2, 3]


@pytest.mark.parametrize("table", [Y, pd.Series(Y), Y.tolist(), None])
def test_what_is_no_table_is_refused_under_a_map_of_categories_too(table):
    for given in ("auto", "onehot"):
        refused(
            "Expected (2D array|a 2-dimensional container)",
            X=table,
            model=CPRegressor(**FAST, maps=given),
        )


@pytest.mark.parametrize("device", ["banana", "cpu:x", "cuda:1:2", "", "CPU"])
def test_a_device_of_no_name_is_refused(device):
    refused("is no name of a device", model=CPRegressor(**FAST, device=device))


def test_validation_rows_without_targets_are_refused():
    refused("X_val was given without y_val", X_val=X)


def test_validation_targets_without_rows_are_refused():
    refused("y_val was given without X_val", y_val=Y)


def test_another_number_of_outputs_is_refused_by_warm_start():
    model = CPRegressor(**FAST, warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match="y has 2 outputs, but the model was fitted with 1"):
        model.fit(X, np.column_stack([Y, Y]))


def test_a_target_of_three_dimensions_is_refused():
    refused("dim", y=np.zeros((20, 2, 2)))


@pytest.mark.skipif(np.finfo(np.longdouble).maxexp <= 1024, reason="long doubles are doubles here")
def test_numbers_beyond_double_precision_are_refused():
    X = np.arange(40.0).reshape(20, 2)
    model = CPRegressor(n_members=1, max_iter=1, random_state=0).fit(X, X[:, 0])
    far = X[:3].astype(np.longdouble)
    assert model.predict(far).tobytes() == model.predict(X[:3]).tobytes()
    far[1, 1] = np.longdouble(10) ** 400
    with pytest.raises(ValueError, match="infinity"):
        model.predict(far)


DAY = datetime.date(2026, 1, 1)


@pytest.mark.parametrize("model", [CPRegressor(**FAST), CPClassifier(**FAST)])
@pytest.mark.parametrize("other", [DAY, datetime.time(1), datetime.timedelta(1)])
def test_dates_are_found_anywhere_in_the_target(model, other):
    refused(
        "holds dates, times or durations", y=np.array([1.0, None, other] * 6 + [1, 2]), model=model
    )


@pytest.mark.parametrize("other", [pd.Period("2026"), pd.Interval(0, 1), {}])
def test_objects_that_are_no_numbers_are_refused(other):
    y = np.empty(20, dtype=object)
    y[:] = [other] * 20
    refused("y holds an object that is no number", y=y)


@pytest.mark.parametrize(
    "weight", [pd.to_timedelta(range(20), unit="D"), pd.date_range("2026", periods=20)]
)
def test_dates_are_no_weights(weight):
    refused("sample_weight holds dates, times or durations", sample_weight=weight)


def test_nullable_integers_and_booleans_keep_their_classes():
    wide = pd.Series([2**53, 2**53 + 1, 7] * 6 + [7, 7], dtype="Int64")
    assert CPClassifier(**FAST).fit(X, wide).classes_.tolist() == [7, 2**53, 2**53 + 1]
    yes = pd.Series([True, False] * 10, dtype="boolean")
    assert CPClassifier(**FAST).fit(X, yes).predict(X).dtype == bool


def test_a_signalling_nan_is_a_missing_label():
    y = np.array([decimal.Decimal(1), decimal.Decimal("sNaN")] * 10, dtype=object)
    refused("missing labels", y=y, model=CPClassifier(**FAST))


def test_parameters_of_the_wrong_kind_are_named():
    refused("categorical_features must be", model=CPRegressor(**FAST, categorical_features=0))
    wrong = CPClassifier(**FAST, class_weight=np.array([1, 2]))
    refused("class_weight must be 'balanced'", y=np.arange(20) % 2, model=wrong)
