"""A fitted model as a query in SQL: one expression, or coefficient tables and joins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyadic.export.columns import check_columns, check_model
from polyadic.export.links import classifier_link, is_squared, link_of
from polyadic.export.sql_columns import RAW, SqlColumn
from polyadic.export.sql_tables import SqlTables, tables_query
from polyadic.export.sql_text import (
    Dialect,
    Levels,
    greatest,
    literal,
    multiplied,
    name,
    resolve,
    summed,
    within_single,
)
from polyadic.networks.cp import CPCores
from polyadic.training.model import FittedModel, classes_of, output_names

__all__ = ["SqlModel", "to_sql"]

_STEPS = re.compile(r"^(?:WITH (?:RECURSIVE )?)?(\w+)(?: \([\w, ]+\))? AS ", re.MULTILINE)
FORMS = ("auto", "expression", "tables")
# Numbers of a model up to which form="auto" writes one expression: some hundred kilobytes of text,
# which both systems parse within a second. Chosen by hand.
MOST_NUMBERS = 10_000


@dataclass(frozen=True)
class SqlModel:
    """A model in SQL.

    Attributes
    ----------
    query : str
        Computes the predictions of all rows, one row each, in the order of the table.
    form : "expression" or "tables"
    dialect : str
    outputs : list of str
        The names of the columns that the query returns, without those that it keeps.
    tables : dict of dict of arrays
        Of form="tables": the columns of each coefficient table, by its name. `setup` makes these
        tables; a bulk load of the arrays is faster.
    """

    query: str
    form: str
    dialect: str
    outputs: list[str]
    tables: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, repr=False)

    @property
    def setup(self) -> str:
        """Statements that make the coefficient tables; empty for form="expression"."""
        return SqlTables(self.tables).statements()

    def __str__(self) -> str:
        return self.setup + self.query + ";\n"


def to_sql(
    model: FittedModel,
    dialect: str = "duckdb",
    *,
    table: str | Sequence[str],
    keep: Sequence[str] = (),
    form: str = "auto",
    prefix: str = "polyadic",
) -> SqlModel:
    """Return a fitted CP model as a query that predicts every row of a table.

    The query returns a column `prediction` (several are named after the targets); of a classifier
    `label`, and `probability_...` for each class. NULL and NaN are missing values, and text that is
    no category is unseen, as in `predict`. A row that `predict` refuses, since a product of its
    terms is beyond single precision, gets NULL.

    Parameters
    ----------
    model : fitted estimator
        Of format CP, with or without trees.
    dialect : "duckdb" or "sqlite"
        SQLite from 3.35 on, built with its mathematical functions.
    table : str, or sequence of str
        The table that holds the model's columns, under their names; a sequence names its schema
        first.
    keep : sequence of str
        Columns of the table to return before the predictions, such as its key.
    form : "auto", "expression" or "tables"
        "expression": one query that needs nothing else. "tables": the coefficients are in tables,
        which `setup` makes once, and the query joins them: for models that are too large to be
        written as one expression, and for those with trees. "auto" chooses; the result says which.
    prefix : str
        What the names of the coefficient tables start with.

    Returns
    -------
    SqlModel

    Examples
    --------
    >>> import sqlite3
    >>> import pandas as pd
    >>> from polyadic import CPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"area": rng.uniform(20, 90, 50), "town": rng.choice(["Ulm", "Bonn"], 50)})
    >>> model = CPRegressor(rank=2, n_members=1, max_iter=5, trees=False).fit(X, X["area"])
    >>> sql = to_sql(model, "sqlite", table="flats")
    >>> sql.form, sql.outputs
    ('expression', ['prediction'])
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = X.to_sql("flats", connection)
    >>> found = [row[0] for row in connection.execute(sql.query)]
    >>> bool(np.allclose(found, model.predict(X), rtol=1e-5))
    True
    """
    check_model(model)
    if form not in FORMS:
        raise ValueError(f"Unknown form {form!r}. Choose from: {', '.join(FORMS)}.")
    own = resolve(dialect)
    cores: Any = model.tensor_
    if not isinstance(cores, CPCores):
        raise ValueError(
            f"to_sql writes models of format 'cp', got {cores.name!r}. Use polyadic.to_onnx, which "
            "takes every format."
        )
    if form == "expression" and cores.trees is not None:
        raise ValueError(
            "form='expression' is for models without trees, and this one has trees. Choose "
            "form='tables', or fit with trees=False."
        )
    if form == "auto":
        size = sum(np.size(a) for a in (*cores.factors, *(cores.additive or [])))
        small = cores.trees is None and size <= MOST_NUMBERS
        form = "expression" if small else "tables"
    levels, columns = _prepare(model, own, table, keep)
    answers = _answers(model, own)
    kept = [f"keep{i} AS {name(k)}" for i, k in enumerate(keep)]
    shown = [*kept, *(f"{text} AS {name(alias)}" for alias, text in answers.items())]
    if form == "tables":
        query, tables = tables_query(
            cores, columns, levels, own, shown, _between(model, own), prefix
        )
    else:
        query, tables = _expression(cores, columns, levels, own, shown, _between(model, own)), {}
    _check_table(table, query)
    return SqlModel(query, form, own.name, list(answers), tables)


def _check_table(table: str | Sequence[str], query: str) -> None:
    """Refuse a table with the name of a step of the query: SQLite would take the step for it."""
    if isinstance(table, str) and table.lower() in _STEPS.findall(query):
        raise ValueError(
            f"The query has a step that is named {table.lower()!r}, as the table is. Name its "
            f"schema too, such as table=('main', {table!r})."
        )


def _prepare(
    model: FittedModel, dialect: Dialect, table: str | Sequence[str], keep: Sequence[str]
) -> tuple[Levels, list[SqlColumn]]:
    """Return the steps that read the raw columns, and the columns."""
    parts = [table] if isinstance(table, str) else list(table)
    levels = Levels(".".join(map(name, parts)) + " AS t")
    for i, kept in enumerate(keep):
        levels.set(RAW, f"keep{i}", f"t.{name(kept)}")
    columns = [
        SqlColumn(levels, dialect, n, column, own)
        for n, (column, own) in enumerate(zip(check_columns(model, "SQL"), model.maps_))
    ]
    most = dialect.most_columns
    if most is not None and levels.n_columns > most:
        raise ValueError(
            f"The model would need {levels.n_columns:,} columns in a query, and {dialect.name} "
            f"allows about {most:,}. Use dialect='duckdb' or polyadic.to_onnx."
        )
    return levels, columns


def _expression(
    cores: CPCores,
    columns: Sequence[SqlColumn],
    levels: Levels,
    dialect: Dialect,
    shown: Sequence[str],
    between: Sequence[dict[str, str]],
) -> str:
    """Return the query of form="expression"."""
    for own in columns:
        own.place()
    first = len(levels.levels)
    for r in range(cores.rank):
        factors = [np.asarray(factor[:, r : r + 1], dtype=np.float64) for factor in cores.factors]
        parts = [own.part(f[:, 0]) for own, f in zip(columns, factors) if not _is_one(own, f)]
        levels.set(first, f"g{r}", multiplied(parts) if parts else "1.0e0")
    products = greatest(dialect, [f"ABS(g{r})" for r in range(cores.rank)]) if cores.rank else "0"
    for k in range(cores.n_outputs):
        terms = [f"{literal(w)} * g{r}" for r, w in enumerate(cores.weights[:, k]) if w != 0.0]
        for own, core in zip(columns, cores.additive or []):
            terms.append(own.part(np.asarray(core[:, k], dtype=np.float64)))
        total = summed([literal(cores.intercept[k]), *terms])
        levels.set(first + 1, f"f{k}", f"CASE WHEN {within_single(products)} THEN {total} END")
    for i, named in enumerate(between):
        for alias, text in named.items():
            levels.set(first + 2 + i, alias, text)
    steps, last = levels.steps()
    return "WITH " + ",\n".join(steps) + f"\nSELECT {', '.join(shown)}\nFROM {last}"


def _is_one(own: SqlColumn, core: np.ndarray) -> bool:
    """Tell whether a column has no part in a term, core (d, 1): it is one for every value."""
    same = own.same_factor(core)
    return same is not None and bool(same[0] == 1.0)


# ---- from raw predictions to answers -------------------------------------------------------------


def _between(model: FittedModel, dialect: Dialect) -> list[dict[str, str]]:
    """Return named expressions on the raw predictions f0, f1, ..., level by level."""
    n_outputs = model.tensor_.n_outputs
    raw = [f"f{k}" for k in range(n_outputs)]
    if classes_of(model) is not None and is_squared(model.loss_):
        low, high = (literal(limit) for limit in classifier_link())
        held = {
            f"s{k}": f"CASE WHEN ({f} + 1) / 2 < {low} THEN {low} WHEN ({f} + 1) / 2 > {high} "
            f"THEN {high} ELSE ({f} + 1) / 2 END"
            for k, f in enumerate(raw)
        }
        total = summed(list(held)) if n_outputs > 1 else "1.0e0"
        return [held, {f"a{k}": f"{s} / ({total})" for k, s in enumerate(held)}]
    link = link_of(model.loss_, "SQL")
    if link == "softmax":
        top = {"top": greatest(dialect, raw)}
        powers = {f"s{k}": f"EXP({f} - top)" for k, f in enumerate(raw)}
        return [
            top,
            powers,
            {f"a{k}": f"{s} / ({summed(list(powers))})" for k, s in enumerate(powers)},
        ]
    return [{f"a{k}": _inverse(link, f) for k, f in enumerate(raw)}]


def _inverse(link: str, f: str) -> str:
    if link == "log":
        return f"EXP(CASE WHEN {f} > 700 THEN 700.0e0 ELSE {f} END)"
    if link == "logit":  # the exponent is never positive, so that nothing overflows
        return f"CASE WHEN {f} < 0 THEN EXP({f}) ELSE 1.0e0 END / (1 + EXP(-ABS({f})))"
    return f


def _answers(model: FittedModel, dialect: Dialect) -> dict[str, str]:
    """Return the columns of the answer, by name, from a0, a1, ..."""
    n_outputs, classes = model.tensor_.n_outputs, classes_of(model)
    if classes is None:
        if n_outputs == 1:
            return {"prediction": "a0"}
        return {f"prediction_{own}": f"a{k}" for k, own in enumerate(output_names(model))}
    shares = ["1 - a0", "a0"] if n_outputs == 1 else [f"a{k}" for k in range(n_outputs)]
    labels = [literal(label) for label in classes.tolist()]
    best = greatest(dialect, shares)
    # No ELSE: a row without probabilities has no label.
    cases = " ".join(f"WHEN {s} >= {best} THEN {t}" for s, t in zip(shares, labels))
    out = {"label": f"CASE {cases} END"}
    return out | {f"probability_{c}": s for c, s in zip(classes.tolist(), shares)}
