"""A model as a query in SQL predicts what `predict` does, in DuckDB and in SQLite."""

import sqlite3
from dataclasses import replace

import duckdb
import exported
import numpy as np
import pandas as pd
import parts
import pytest
from exported import LABELS, close, joined, made, odd_rows, some_trees, table

from polyadic import CPRegressor, TNRegressor, losses, maps
from polyadic.export import sql_text, to_sql

DIALECTS = ["duckdb", "sqlite"]
FORMS = ["expression", "tables"]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
each_form = pytest.mark.parametrize("form", FORMS)


def load(connection, X, name):
    """Write a table, with NULL for what is missing; NaN too in DuckDB, which has both."""
    if isinstance(connection, sqlite3.Connection):
        X.to_sql(name, connection, index=False)
    else:
        connection.register("given", X)
        quoted = '"' + name.replace('"', '""') + '"'
        connection.execute(f"CREATE TABLE {quoted} AS SELECT * FROM given")


def connect(dialect):
    return sqlite3.connect(":memory:") if dialect == "sqlite" else duckdb.connect()


def run(model, X, dialect, name="rows", **options):
    """Return what the query returns for a table, by column."""
    sql = to_sql(model, dialect, table=name, **options)
    connection = connect(dialect)
    load(connection, X, name)
    if sql.setup and dialect == "sqlite":
        connection.executescript(sql.setup)
    elif sql.setup:
        connection.execute(sql.setup)
    rows = connection.execute(sql.query).fetchall()
    names = [*options.get("keep", ()), *sql.outputs]
    return pd.DataFrame(rows, columns=names)


def check_numbers(model, X, dialect, **options):
    found = run(model, X, dialect, **options)
    close(found, model.predict(X).reshape(len(X), -1))


def check_classes(model, X, dialect, **options):
    found = run(model, X, dialect, **options)
    close(found.iloc[:, 1:], model.predict_proba(X))
    assert found["label"].tolist() == model.predict(X).tolist()
    assert list(found)[1:] == [f"probability_{c}" for c in model.classes_.tolist()]


@each_form
@each_dialect
@pytest.mark.parametrize("own", parts.PACKAGE_MAPS, ids=repr)
def test_every_map(own, dialect, form):
    pair = (own, maps.OneHot()) if own.kind == "numeric" else (maps.Hat(n_knots=5), own)
    model = made(pair, n_outputs=2, rank=2)
    check_numbers(model, odd_rows(table()), dialect, form=form)


@each_form
@each_dialect
def test_missing_values_with_elements_of_their_own(dialect, form):
    model = made((exported.averaged_polynomial(), maps.OneHot()))
    check_numbers(model, odd_rows(table()), dialect, form=form)


@each_dialect
@pytest.mark.parametrize("loss", exported.LOSSES_OF_NUMBERS, ids=repr)
def test_every_link_of_numbers(loss, dialect):
    check_numbers(made(loss=loss), odd_rows(table()), dialect)


@each_form
@each_dialect
@pytest.mark.parametrize("case", exported.BEYOND)
def test_rows_that_predict_refuses_are_null(case, dialect, form):
    model, X = exported.beyond(case)
    found = run(model, X, dialect, form=form)
    assert found[:2].isna().all(axis=None)
    assert found[2:].notna().all(axis=None)


@each_form
@each_dialect
@pytest.mark.parametrize("kind", LABELS)
def test_classes_of_every_type(kind, dialect, form):
    n_classes = len(LABELS[kind])
    model = made(n_outputs=1 if n_classes == 2 else n_classes, kind=kind)
    check_classes(model, odd_rows(table()), dialect, form=form)


@each_dialect
@pytest.mark.parametrize("kind", ["two texts", "three texts"])
def test_classes_fitted_by_the_squared_error(kind, dialect):
    n_outputs = 1 if kind.startswith("two") else 3
    model = made(n_outputs=n_outputs, kind=kind, loss=losses.SquaredError())
    check_classes(model, odd_rows(table()), dialect)


@each_dialect
@pytest.mark.parametrize("width", [1, 2])
def test_trees(width, dialect):
    model = made(n_outputs=3, trees=some_trees(n_outputs=3, width=width))
    check_numbers(model, odd_rows(table()), dialect)


@each_dialect
@pytest.mark.parametrize("classes", [False, True])
def test_a_fit_with_members_and_boosted_trees(classes, dialect):
    model, X = joined(classes)
    (check_classes if classes else check_numbers)(model, odd_rows(X), dialect)


def test_auto_chooses_the_form_by_size_and_trees(monkeypatch):
    assert to_sql(made(), table="rows").form == "expression"
    assert to_sql(made(trees=some_trees()), table="rows").form == "tables"
    monkeypatch.setattr("polyadic.export.sql_model.MOST_NUMBERS", 3)
    assert to_sql(made(), table="rows").form == "tables"


def test_an_expression_needs_no_setup_and_prints_as_one_statement():
    sql = to_sql(made(), table="rows")
    assert sql.setup == ""
    assert str(sql) == sql.query + ";\n"
    assert "CREATE TABLE" in str(to_sql(made(), table="rows", form="tables"))


# ---- names ---------------------------------------------------------------------------------------


@each_form
@each_dialect
def test_hostile_names_and_texts(dialect, form):
    X = table()
    X.columns = ['a"; DROP TABLE rows; --', "it's", "select", "x0"]
    X["select"] = X["select"].replace("Bath", "'; DROP TABLE rows; --")
    key = 'key "of" it\'s'
    model = CPRegressor(**exported.FAST).fit(X, X["x0"] + X['a"; DROP TABLE rows; --'])
    more = X.assign(**{key: np.arange(len(X))})
    found = run(model, more, dialect, name='my "rows"', keep=[key], form=form)
    assert found[key].tolist() == list(range(len(X)))
    close(found["prediction"], model.predict(X))


def test_a_table_in_a_schema():
    model, connection = made(), duckdb.connect()
    connection.execute("CREATE SCHEMA old")
    connection.register("given", table())
    connection.execute("CREATE TABLE old.rows AS SELECT * FROM given")
    sql = to_sql(model, "duckdb", table=("old", "rows"))
    close(np.ravel(connection.execute(sql.query).fetchall()), model.predict(table()))


def test_several_targets_are_named_after_y():
    X = table()
    y = X[["size", "grade"]].to_numpy()
    model = CPRegressor(**exported.FAST).fit(X, pd.DataFrame(y, columns=["p", "q"]))
    assert to_sql(model, table="rows").outputs == ["prediction_p", "prediction_q"]
    check_numbers(model, X, "sqlite")


def test_in_sqlite_text_is_missing_unless_it_is_a_number():
    """SQLite would read the text as zero."""
    model, X = made(), table().astype({"size": object})
    X.loc[0, "size"], X.loc[1, "size"] = "no number", "1.5"
    connection = sqlite3.connect(":memory:")
    X.to_sql("rows", connection, index=False, dtype={"size": "BLOB"})  # keeps values as they are
    found = connection.execute(to_sql(model, "sqlite", table="rows").query).fetchall()
    wanted = X.assign(size=[np.nan, 1.5, *X["size"][2:]]).astype({"size": float})
    close(np.ravel(found), model.predict(wanted))


@each_form
def test_a_column_that_is_compared_without_case_has_the_same_categories(form):
    model, X = made(), table()
    connection = sqlite3.connect(":memory:")
    X.to_sql("rows", connection, index=False, dtype={"town": "TEXT COLLATE NOCASE"})
    sql = to_sql(model, "sqlite", table="rows", form=form)
    connection.executescript(sql.setup)
    close(np.ravel(connection.execute(sql.query).fetchall()), model.predict(X))


def test_more_classes_than_a_function_has_arguments():
    values = [f"v{k}" for k in range(250)]
    text = sql_text.greatest(sql_text.DIALECTS["sqlite"], values)
    given = ", ".join(f"{k * 7 % 250} AS v{k}" for k in range(250))
    found = sqlite3.connect(":memory:").execute(f"SELECT {text} FROM (SELECT {given})")
    assert found.fetchone() == (249,)


@each_dialect
def test_a_table_with_the_name_of_a_step(dialect):
    model, X = made(), table()
    for form, name in (("expression", "STEP0"), ("tables", "slots"), ("tables", "x")):
        with pytest.raises(ValueError, match=rf"table=\('main', '{name}'\)"):
            to_sql(model, dialect, table=name, form=form)
        sql, connection = to_sql(model, dialect, table=("main", name), form=form), connect(dialect)
        load(connection, X, name)
        run_all = connection.executescript if dialect == "sqlite" else connection.execute
        run_all(sql.setup or "SELECT 1")
        close(np.ravel(connection.execute(sql.query).fetchall()), model.predict(X))


# ---- what is refused -----------------------------------------------------------------------------


def test_what_has_no_form_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'size', Steps\(n_steps=3\), has no form in SQL"):
        to_sql(made((parts.Steps(), maps.OneHot())), table="rows")
    with pytest.raises(ValueError, match="Unknown dialect 'oracle'"):
        to_sql(made(), "oracle", table="rows")
    with pytest.raises(ValueError, match="Unknown form 'text'"):
        to_sql(made(), table="rows", form="text")
    with pytest.raises(ValueError, match="models without trees, and this one has trees"):
        to_sql(made(trees=some_trees()), table="rows", form="expression")


def test_null_characters_are_refused():
    y = np.arange(40.0)
    kind = np.where(y % 2 == 0, "a\0b", "c")
    fast = {"n_members": 1, "max_iter": 1, "rank": 2, "random_state": 0}
    for X in (pd.DataFrame({"x\0": y}), pd.DataFrame({"kind": pd.Categorical(kind)})):
        with pytest.raises(ValueError, match="has a null character"):
            to_sql(CPRegressor(**fast).fit(X, y), "sqlite", table="given")


def test_other_formats_are_refused_by_name():
    model = TNRegressor(format="tt")
    vars(model).update(vars(made()))
    dims = [m.dim for m in model.maps_]
    model.tensor_ = parts.random_network("tt", {"rank": 2}, dims, 1)
    with pytest.raises(ValueError, match=r"format 'cp', got 'tt'. Use polyadic.to_onnx"):
        to_sql(model, table="rows")


def test_too_many_columns_are_refused(monkeypatch):
    few = replace(sql_text.DIALECTS["sqlite"], most_columns=8)
    monkeypatch.setitem(sql_text.DIALECTS, "sqlite", few)
    polynomials = made((maps.Polynomial(d=3), maps.OneHot()))
    with pytest.raises(ValueError, match="columns in a query, and sqlite allows about 8"):
        to_sql(polynomials, "sqlite", table="rows")
    few = replace(few, most_columns=None, most_parts=3)
    monkeypatch.setitem(sql_text.DIALECTS, "sqlite", few)
    with pytest.raises(ValueError, match="SELECTs in one query, and sqlite allows about 3"):
        to_sql(polynomials, "sqlite", table="rows", form="tables")
