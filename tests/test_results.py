"""Laws of the results of explanations: what they are called, how they are read and printed."""

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pytest
from explained import FAST, cases, mixed_columns, one_output, target, three_classes, two_classes
from hypothesis import given
from hypothesis import strategies as st

from polyadic import CPClassifier, CPRegressor, explain, load
from polyadic.explain.listing import Numbers, fixed, number
from polyadic.io.files import ModelFileError, read_file, write_file

# ---- terms and interactions ----------------------------------------------------------------------


@cases
def test_interactions_are_the_terms_of_two_columns_and_more(case):
    model, X = case()
    terms = explain.terms(model, background=X, top=None)
    found = explain.interactions(model, background=X, top=None)
    assert found.rows == [row for row in terms.rows if len(row.columns) > 1]
    assert (found.total, found.orders) == (terms.total, terms.orders)
    assert (found.n_terms, terms.n_terms) == (4, 7)
    assert "of 4 interactions." in str(found)
    assert "of 7 terms." in str(terms)


def test_the_strongest_interactions_are_listed_though_all_columns_are_stronger():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 5))
    model = CPRegressor(maps="polynomial", n_members=1, random_state=0)
    model.fit(X, X.sum(axis=1) + 0.1 * X[:, 1] * X[:, 3])
    assert {len(row.columns) for row in explain.terms(model, top=5).rows} == {1}
    assert explain.interactions(model, top=5).rows[0].columns == ("x1", "x3")


def test_interactions_of_one_column_are_refused_and_those_of_a_table_of_one_are_none():
    model, X = one_output()
    with pytest.raises(ValueError, match=r"two columns or more, got max_order=1. Use terms"):
        explain.interactions(model, max_order=1)
    x = X[:, :1]
    assert explain.interactions(CPRegressor(**FAST).fit(x, x[:, 0])).rows == []


# ---- Shapley values as a table -------------------------------------------------------------------


def test_shapley_values_are_a_frame_of_rows_and_columns():
    model, X = mixed_columns()
    rows = X.iloc[[5, 2, 9]]
    found = explain.shapley(model, rows)
    frame = found.to_pandas()
    assert frame.index.tolist() == [5, 2, 9]
    assert frame.columns.tolist() == model.columns_.names
    np.testing.assert_array_equal(frame.to_numpy(), found.values[:, :, 0])
    np.testing.assert_allclose(found.base[0] + frame.sum(axis=1), model.raw(rows)[:, 0], atol=1e-5)


def test_several_outputs_are_a_second_level_of_columns():
    model, X = three_classes()
    found = explain.shapley(model, X[:4])
    frame = found.to_pandas()
    assert frame.shape == (4, 9)
    for k, name in enumerate(found.outputs):
        np.testing.assert_array_equal(frame[name].to_numpy(), found.values[:, :, k])


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    model, X = one_output()
    results = [explain.shapley(model, X[:2]), explain.effects(model), explain.effects(model)[0]]
    monkeypatch.setitem(sys.modules, "pandas", None)
    for result in results:
        with pytest.raises(ImportError, match="pip install pandas"):
            result.to_pandas()


# ---- effects of one column -----------------------------------------------------------------------


@cases
@pytest.mark.parametrize("scale", ["raw", "response"])
def test_effects_are_read_by_name_by_number_and_one_after_the_other(case, scale):
    model, X = case()
    found = explain.effects(model, X, scale)
    assert len(found) == len(model.columns_.names) == len(list(found))
    for n, effect in enumerate(found):
        assert effect.column in found
        for same in (found[effect.column], found[n], found[n - len(found)], effect):
            assert same.column == found.columns[n]
            for name in ("grid", "values", "missing", "density", "share", "variance"):
                np.testing.assert_array_equal(getattr(same, name), getattr(found, name)[n])
        frame = effect.to_pandas()
        assert frame.shape == (len(effect.grid), 1 + len(found.outputs))
        np.testing.assert_array_equal(frame.iloc[:, 1:].to_numpy(), effect.values)
    assert "nothing" not in found
    with pytest.raises(ValueError, match=r"Unknown column 'nothing'\. Choose from: "):
        found["nothing"]


def test_effects_of_some_columns_are_those_of_all():
    model, _ = mixed_columns()
    every, some = explain.effects(model), explain.effects(model, columns=["c", "a"])
    assert some.columns == ["c", "a"] == every[["c", "a"]].columns
    for name in some.columns:
        np.testing.assert_array_equal(some[name].values, every[name].values)
    assert some.share.tolist() == [every["c"].share, every["a"].share]
    assert explain.effects(model, columns="b").columns == ["b"]
    assert str(every["b"]).startswith("b: effect on the prediction at ")


# ---- printing ------------------------------------------------------------------------------------


class Cells(HTMLParser):
    """Collect the texts of the cells, and every tag."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.tags = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        self.inside = tag in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.cells[-1] += data


@cases
def test_a_notebook_shows_what_is_printed(case):
    model, X = case()
    for found in (explain.effects(model, X), explain.sobol(model, X), explain.shapley(model, X)):
        shown, printed = Cells(found._repr_html_()), str(found)
        assert shown.tags == {"table", "thead", "tbody", "tr", "th", "td"} | (
            {"p"} if found.footer() else set()
        )
        width = len(found.table())
        rows = [shown.cells[k : k + width] for k in range(0, len(shown.cells), width)]
        lines = printed.splitlines()
        assert [" ".join(row).split() for row in rows] == [
            line.split() for line in lines[: len(rows)]
        ]


def test_names_do_not_become_markup_in_a_notebook():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["<b>a</b>", "x & y"])
    model = CPRegressor(**FAST).fit(X, X.iloc[:, 0])
    shown = Cells(explain.effects(model)._repr_html_())
    assert "b" not in shown.tags
    assert {"<b>a</b>", "x & y"} <= set(shown.cells)


def test_long_results_print_their_first_lines():
    X = np.random.default_rng(0).normal(size=(40, 60))
    found = explain.effects(CPRegressor(**FAST).fit(X, X[:, 0]))
    lines = str(found).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "... and 40 more; table() returns all."
    assert len(found.table()["column"]) == len(found.to_pandas()) == 60


# ---- numbers -------------------------------------------------------------------------------------


@given(st.integers(-9999, 9999))
def test_numbers_of_four_digits_such_as_years_have_no_separator(year):
    assert number(float(year)) == fixed(year, 0) == str(year)
    assert Numbers(np.array([year, year + 20.0]))(year) == str(year)


@given(st.floats(1e-12, 1e12), st.integers(2, 6), st.booleans())
def test_a_written_number_has_the_digits_asked_for(size, digits, signed):
    for value in (size, -size):
        text = number(value, digits, signed)
        assert float(text.replace(",", "")) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
        assert text[0] == "-" if value < 0 else text.startswith("+") == signed
        if 1e-4 <= size < 1e9:
            assert "e" not in text
            assert ("," in text) == (abs(round(value, digits)) >= 10_000)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9))
def test_numbers_of_a_table_have_the_same_decimals_and_differ_where_they_should(values):
    known = np.array(values)
    write = Numbers(known, n_digits=3)
    texts = [write(v) for v in values]
    span = np.ptp(known)
    if span < 1e-4:  # powers of ten
        return
    assert len({len(text.partition(".")[2]) for text in texts}) == 1
    for value, text in zip(values, texts):
        assert abs(float(text.replace(",", "")) - value) <= max(0.006 * span, 1e-9)


def test_a_table_of_years_is_described_without_separators():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"year": rng.integers(1990, 2021, 400), "rooms": rng.integers(1, 9, 400)})
    model = CPRegressor(n_members=1, random_state=0).fit(X, 3.0 * X["year"] + X["rooms"])
    sentence = explain.in_words(model)[0]
    assert re.search(
        r"year raises the prediction: from -\d+ at 199\d to \+\d+ at 20[12]\d", sentence
    )
    assert "year = 2005 " in explain.describe(model, {"year": 2005, "rooms": 3})
    assert " 2005 " in str(explain.shapley(model, X.assign(year=2005)[:1]))


# ---- the name of the target ----------------------------------------------------------------------


def test_the_name_of_the_target_is_remembered_and_saved(tmp_path):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    y = X["a"].rename("price")
    model = CPRegressor(**FAST)
    for given_y in (y, pl.Series("price", y.to_numpy())):
        assert model.fit(X, given_y).target_names_ == ["price"]
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.target_names_ == ["price"]
    assert str(explain.effects(again)).endswith("In the unit of price.")
    assert explain.in_words(again)[0].startswith("a raises the prediction of price: from ")
    assert explain.describe(again, X[:1]).startswith("The prediction of price is ")
    assert "prediction of price " in str(explain.shapley(again, X[:1]))
    assert model.fit(X, y.to_numpy()).target_names_ is None
    assert model.fit(X, y.rename(3)).target_names_ is None


def test_targets_of_a_frame_name_the_outputs():
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = pd.DataFrame({"rent": X[:, 0], "price": X[:, 1]})
    model = CPRegressor(**FAST).fit(X, y)
    assert explain.effects(model).outputs == ["rent", "price"]
    assert explain.shapley(model, X[:3]).to_pandas()["price"].shape == (3, 2)


def test_a_file_with_other_names_than_outputs_is_refused(tmp_path):
    _, X = one_output()
    y = pd.Series(target(X), name="price")
    path = tmp_path / "model"
    CPRegressor(**FAST).fit(X, y).save(path)
    header, arrays = read_file(path)
    for wrong in (["price", "rent"], [3], "price"):
        write_file(path, header | {"target_names": wrong}, arrays)
        with pytest.raises(ModelFileError, match="target_names must be 1 texts"):
            load(path)


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda X, y: CPRegressor(**FAST).fit(X, y), ""),
        (lambda X, y: CPRegressor(**FAST).fit(X, pd.Series(y, name="p")), "In the unit of p."),
        (lambda X, y: CPRegressor(loss="poisson", **FAST).fit(X, abs(y)), "On the raw scale."),
        (lambda X, y: CPClassifier(**FAST).fit(X, pd.Series(y > 0, name="p")), "On the raw scale."),
        (
            lambda X, y: CPRegressor(loss="poisson", **FAST).fit(X, pd.Series(abs(y), name="p")),
            "On the raw scale of p.",
        ),
    ],
)
def test_the_raw_scale_is_named_only_where_there_is_a_link(make, note):
    X = one_output()[1]
    model = make(X, target(X))
    assert explain.effects(model).footer() == note
    assert ("raw" in str(explain.shapley(model, X[:1]))) == ("raw" in note)
    assert "raw scale" not in explain.effects(model, scale="response").footer()


def test_a_class_is_not_called_by_the_name_of_the_target():
    model, _ = two_classes()
    assert explain.effects(model).target.name == ""
