"""The live page as a file: what is in it, and what is refused."""

import copy
import os
import re
from html.parser import HTMLParser

import needs
import numpy as np
import pandas as pd
import pytest
from pages import (
    HOSTILE,
    HOSTILE_QUOTES,
    data_of,
    decode,
    mixed_model,
    numeric_table,
    tiny_regressor,
)
from sklearn.exceptions import NotFittedError

import polyadic
from polyadic import maps, networks
from polyadic.datasets import fetch_california_housing
from polyadic.page import gather, page, payload


def write(model, X, y, folder, **more):
    return polyadic.report(model, X, y, folder / "page.html", **more)


@pytest.fixture(scope="module")
def fitted():
    X, y = numeric_table()
    return tiny_regressor().fit(X, y), X, y


@pytest.fixture(scope="module")
def mixed():
    return mixed_model()


# ---- the model in the page -----------------------------------------------------------------------


def test_report_is_the_function_also_after_its_modules_are_imported(fitted, tmp_path):
    import polyadic.page.page

    assert polyadic.report is polyadic.page.page.report
    assert write(*fitted, tmp_path) == tmp_path / "page.html"


def test_a_network_of_format_cp_has_the_page_of_its_cores(fitted, tmp_path):
    needs.package("torch")
    other, X, y = fitted
    model = polyadic.TNRegressor("cp", rank=3, max_iter=3, random_state=0).fit(X, y)
    found = data_of(write(model, X, y, tmp_path))
    same = copy.copy(other)
    same.maps_, same.tensor_, same.marginals_ = model.maps_, model.tensor_, model.marginals_
    wanted = data_of(write(same, X, y, tmp_path))
    assert found["summary"].startswith("A TNRegressor: a sum of 3 products")
    for part in ("model", "columns", "importance", "effects", "pairs"):
        assert found[part] == wanted[part]


def test_kept_knots_give_back_the_cores_to_rounding():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 2))
    model = tiny_regressor(rank=4, n_members=4, max_iter=2).fit(X, X[:, 0] * X[:, 1])
    for own, core in zip(model.maps_, model.cores_):
        parts = payload.column_parts(own, core, None)
        assert len(parts) == 4  # one per member
        back = []
        for part in parts:
            knots, small = decode(part["map"]["knots_"]), decode(part["core"])
            small = small.reshape(1 + len(knots), part["terms"])
            assert len(knots) < 0.5 * len(own.knots_)
            values = [np.interp(own.knots_, knots, column) for column in small[1:].T]
            back.append(np.vstack([small[:1], np.transpose(values)]))
        error = np.abs(np.hstack(back) - core).max(axis=0)
        assert np.all(error <= 2e-6 * np.abs(core).max(axis=0))


def test_the_script_computes_every_map():
    script = page._source("engine.js")
    known = re.search(r"const MAPS = \{(.*?)\};", script, flags=re.DOTALL)[1]
    written = set(re.findall(r"\w+", known))
    for name in maps.MAPS:
        assert name in written, f"write `{name}` in page/engine.js, and add it to its MAPS"
    assert written == set(maps.MAPS)


def test_the_script_contracts_every_format():
    script = page._source("networks.js")
    known = set(re.findall(r"\w+", re.search(r"const FORMATS = \{(.*?)\};", script)[1]))
    assert known == set(networks.FORMATS) - {"cp"}


def test_a_category_without_an_indicator_has_a_row_of_zeros():
    own = maps.OneHot(min_count=2).fit(np.array([0, 0, 1, 2, 2]))
    core = np.array([[1.0], [2.0], [3.0]])
    (part,) = payload.column_parts(own, core, np.arange(4))  # the last one without a row
    assert decode(part["core"]).tolist() == [1.0, 2.0, 0.0, 3.0, 0.0]


def test_knots_on_a_curve_are_kept_though_each_lies_between_its_neighbours():
    knots = np.linspace(0.0, 1.0, 4001)
    core = np.vstack([[0.0], knots[:, None] ** 2])
    kept = payload.bends(knots, core)
    error = np.interp(knots, knots[kept], core[1 + kept, 0]) - core[1:, 0]
    assert np.abs(error).max() <= payload.ROUNDING
    assert len(kept) < len(knots)


@pytest.mark.parametrize("knots", [[0.0], [0.0, 1.0], [-1.7e308, 0.0, 1.7e308]])
def test_few_or_far_knots_are_kept(knots):
    core = np.arange(1.0 + len(knots))[:, None] ** 2
    assert payload.bends(np.array(knots), core).tolist() == list(range(len(knots)))


def test_a_default_model_of_a_large_table_fits_into_a_megabyte_and_a_half(tmp_path):
    rng = np.random.default_rng(0)  # the shape of California housing
    X = pd.DataFrame(rng.gamma(2.0, size=(13_208, 8)), columns=[f"column {n}" for n in range(8)])
    y = np.log(X["column 0"]) + X["column 1"] * X["column 2"]
    model = polyadic.CPRegressor(rank=32, n_members=5, max_iter=1, solver="adam", random_state=0)
    path = write(model.fit(X, y), X, y, tmp_path)
    assert max(own.dim for own in model.maps_) > 400
    assert path.stat().st_size < 1_500_000


def test_a_default_model_of_california_fits_into_three_megabytes(tmp_path):
    with needs.data():
        split = fetch_california_housing(split="paper")
    model = polyadic.CPRegressor(max_iter=2, random_state=0)  # epochs do not change the knots
    path = write(model.fit(split.X_train, split.y_train), split.X_test, split.y_test, tmp_path)
    assert len(model.history_) > 1
    assert path.stat().st_size < 3_000_000


def test_the_same_model_gives_the_same_page(mixed, tmp_path):
    first = write(*mixed, tmp_path).read_bytes()
    assert write(*mixed, tmp_path).read_bytes() == first


def test_a_model_of_an_older_file_is_explained_over_the_rows_passed(fitted, tmp_path):
    model, X, y = fitted
    older = tiny_regressor().fit(X, y)
    del older.marginals_
    here, there = (data_of(write(m, X, y, tmp_path)) for m in (model, older))
    for name in ("means", "weights"):
        assert np.allclose(decode(here["model"][name]), decode(there["model"][name]), atol=1e-6)
    assert np.allclose(here["importance"]["total"], there["importance"]["total"], atol=1e-6)
    assert (here["background"], there["background"]) == ("the training rows", "the rows passed")


# ---- what is shown -------------------------------------------------------------------------------


def test_rows_to_pick_from_run_from_the_lowest_to_the_highest_prediction(fitted, tmp_path):
    model, X, y = fitted
    rows = data_of(write(model, X, y, tmp_path))["rows"]
    assert len(rows["numbers"]) == 50
    predicted = model.predict(X)[rows["numbers"]]
    assert np.all(np.diff(predicted) >= 0)
    assert predicted[[0, -1]].tolist() == [model.predict(X).min(), model.predict(X).max()]
    shown = np.array(rows["values"], dtype=float).T
    assert np.array_equal(shown, X[rows["numbers"]], equal_nan=True)


def test_targets_of_the_same_400_rows_are_in_the_page_for_all_outputs(tmp_path):
    X, y = numeric_table(n_rows=900, missing=0.0)
    Y = np.column_stack([y, -(X[:, 3] ** 2), X[:, 1]])
    data = data_of(write(tiny_regressor().fit(X, Y), X, Y, tmp_path))
    shown = [np.array(own["points"])[:, 1] for own in data["quality"]["regression"]]
    rows = [int(np.flatnonzero(y == value)[0]) for value in shown[0]]
    assert len(set(rows)) == 400
    assert np.array_equal(np.column_stack(shown), Y[rows])
    assert set(data["rows"]["numbers"]) <= set(rows)


@pytest.mark.parametrize(
    ("weight", "fact"),
    [
        (None, ("Training rows", "200")),
        (2.0, ("Training rows", "400")),  # each row counts twice
        (0.3125, ("Sum of training weights", "62.5")),
    ],
)
def test_weights_are_not_called_rows(weight, fact, tmp_path):
    X, y = numeric_table()
    weights = None if weight is None else np.full(len(X), weight)
    model = tiny_regressor().fit(X, y, sample_weight=weights)
    assert fact in [tuple(own) for own in data_of(write(model, X, y, tmp_path))["facts"]]


def test_sliders_stop_at_ascending_values_from_end_to_end(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 200), np.append(rng.random(199), 1e9), np.ones(200)])
    model = tiny_regressor().fit(X, X[:, 0])
    columns = data_of(write(model, X, X[:, 0], tmp_path))["columns"]
    stops = [decode(column["stops"]) for column in columns]
    assert stops[0].tolist() == [0.0, 1.0, 2.0]
    assert stops[1][[0, -1]].tolist() == [X[:, 1].min(), 1e9]
    assert np.all(np.diff(stops[1]) > 0)
    assert stops[1][len(stops[1]) // 2] < 1  # an outlier does not take most of the slider
    assert stops[2].tolist() == [1.0]


def test_a_column_of_very_many_categories_offers_the_frequent_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "MOST_CATEGORIES", 20)
    monkeypatch.setattr(gather, "KEPT_CATEGORIES", 10)
    rng = np.random.default_rng(0)
    names = np.array([f"c{k}" for k in range(40)])
    X = pd.DataFrame({"a": names[rng.zipf(1.5, 600) % 40], "b": rng.random(600)})
    model = tiny_regressor().fit(X, X["b"])
    data = data_of(write(model, X, X["b"], tmp_path))
    column = data["columns"][0]
    assert column["total"] == len(set(X["a"])) > 20
    assert 10 <= len(column["categories"]) < column["total"]
    for row, code in zip(data["rows"]["numbers"], data["rows"]["values"][0]):
        assert column["categories"][code] == X["a"][row]


@pytest.mark.parametrize("n_columns", [1, 2])
def test_odd_tables_have_pages(n_columns, tmp_path):
    X = np.full((30, n_columns), np.nan)  # the last column has no values
    X[:, 0] = np.arange(30.0)
    model = tiny_regressor().fit(X, np.arange(30.0))
    data = data_of(write(model, X[:1], [1.0], tmp_path))
    assert len(data["effects"]) == n_columns
    assert len(data["rows"]["numbers"]) == 1


# ---- safety --------------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_names_never_become_markup(mixed, tmp_path):
    path = write(*mixed, tmp_path, title=HOSTILE_QUOTES, target=HOSTILE)
    parser = Tags()
    text = path.read_text(encoding="utf-8")
    parser.feed(text)
    tags = [tag for tag, _ in parser.seen]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert "\u2028" not in text
    data = data_of(path)
    assert (data["title"], data["target"]) == (HOSTILE_QUOTES, HOSTILE)
    assert HOSTILE in data["columns"][2]["categories"]


def test_the_policy_allows_this_script_and_nothing_else(fitted, tmp_path):
    parser = Tags()
    parser.feed(write(*fitted, tmp_path).read_text(encoding="utf-8"))
    policy = next(a["content"] for tag, a in parser.seen if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not any(a.get("src") or a.get("href", "#")[0] != "#" for _, a in parser.seen)


def test_the_script_builds_no_markup_from_text():
    script = "".join(page._source(name) for name in page._SCRIPTS)
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in script


def test_a_lone_surrogate_does_not_stop_the_page(fitted, tmp_path):
    assert data_of(write(*fitted, tmp_path, title="x\ud800"))["title"] == "x?"


# ---- refusals ------------------------------------------------------------------------------------


class Square(maps.Polynomial):
    """A map of the user's own."""


def test_models_that_the_page_cannot_compute_are_refused(fitted, tmp_path):
    _, X, y = fitted
    with pytest.raises(NotFittedError):
        write(tiny_regressor(), X, y, tmp_path)
    with pytest.raises(
        ValueError, match=r"Square is not part of polyadic. It can compute: bspline, "
    ):
        write(tiny_regressor(maps=Square(3)).fit(X, y), X, y, tmp_path)
    broken = tiny_regressor().fit(X, y)
    broken.tensor_.weights[:] = np.nan
    network = polyadic.TNRegressor("tt", rank=2, max_iter=1).fit(X, y)
    network.tensor_.extras[0][:] = np.inf
    for model in (broken, network):
        with pytest.raises(ValueError, match="diverged"):
            write(model, X, y, tmp_path)
    assert os.listdir(tmp_path) == []


def test_tables_that_do_not_match_the_model_are_refused(fitted, mixed, tmp_path):
    model, X, y = fitted
    with pytest.raises(ValueError, match="3 features"):
        write(model, X[:, :3], y, tmp_path)
    with pytest.raises(ValueError, match=r"0 sample|no rows|at least"):
        write(model, X[:0], y[:0], tmp_path)
    with pytest.raises(ValueError, match=r"inconsistent|rows"):
        write(model, X, y[:-1], tmp_path)
    classifier, X, y = mixed
    with pytest.raises(ValueError, match="grade"):
        write(classifier, X.drop(columns="grade"), y, tmp_path)
    with pytest.raises(ValueError, match="not among the known classes"):
        write(classifier, X, np.where(y == "low", "odd", y), tmp_path)
    assert os.listdir(tmp_path) == []


def test_labels_and_units_that_do_not_match_are_refused(fitted, tmp_path):
    model, X, y = fitted
    for labels in (["a"] * 3, "a" * len(X)):
        with pytest.raises(ValueError, match="one entry for each of the 200 rows, got"):
            write(model, X, y, tmp_path, labels=labels)
    with pytest.raises(ValueError, match="entry for 'area', which is none of 'x0', 'x1'"):
        write(model, X, y, tmp_path, units={"area": "m"})
    with pytest.raises(TypeError, match="unit of 'x0' must be a text, got 3"):
        write(model, X, y, tmp_path, units={"x0": 3})
    assert os.listdir(tmp_path) == []


def test_an_index_that_only_counts_is_no_label(mixed, tmp_path):
    model, X, y = mixed
    rows = data_of(write(model, X, y, tmp_path))["rows"]
    assert (rows["labels"], rows["heading"]) == (None, "row")
    shuffled = np.arange(len(X))[::-1]
    rows = data_of(write(model, X.iloc[shuffled], y[shuffled], tmp_path))["rows"]
    assert rows["labels"] == [str(shuffled[k]) for k in rows["numbers"]]


def test_a_page_needs_a_folder_that_exists(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        polyadic.report(*fitted, tmp_path / "nowhere" / "page.html")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        polyadic.report(*fitted, tmp_path)


def test_a_page_that_is_too_large_is_not_written(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="lower rank, fewer members or fewer knots"):
        write(*fitted, tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_failed_write_does_not_change_the_old_page(fitted, tmp_path, monkeypatch):
    (tmp_path / "page.html").write_text("old")

    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        write(*fitted, tmp_path)
    assert os.listdir(tmp_path) == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "old"
