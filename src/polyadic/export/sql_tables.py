"""The form of a model in SQL that joins coefficient tables: for models of any size, with trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from polyadic.export.columns import TEXT, left_bins
from polyadic.export.sql_columns import SqlColumn
from polyadic.export.sql_text import Dialect, Levels, literal, name, within_single
from polyadic.maps import Step
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees

_ROWS = 1000  # of one INSERT
Columns = dict[str, np.ndarray]


class SqlTables(NamedTuple):
    """Coefficient tables: the columns of each, by its name."""

    tables: dict[str, Columns]

    def statements(self) -> str:
        """Return the statements that make the tables."""
        return "".join(text for each in self.tables.items() for text in _statements(*each))


def _statements(table: str, columns: Columns) -> Iterator[str]:
    """Yield the statements that make one table, its first columns indexed."""
    kinds = {"i": "BIGINT", "f": "DOUBLE PRECISION", "O": "TEXT"}
    types = {n: kinds[a.dtype.kind] for n, a in columns.items()}
    listed = ", ".join(f"{n} {kind}" for n, kind in types.items())
    yield f"CREATE TABLE {name(table)} ({listed});\n"
    texts = [[literal(value) for value in a.tolist()] for a in columns.values()]
    rows = [f"({', '.join(row)})" for row in zip(*texts)]
    for begin in range(0, len(rows), _ROWS):
        some = ",\n".join(rows[begin : begin + _ROWS])
        yield f"INSERT INTO {name(table)} VALUES\n{some};\n"
    keys = list(columns)[:2]
    yield f"CREATE INDEX {name(table + '_key')} ON {name(table)} ({', '.join(keys)});\n"


class Query:
    """A query that is being written: its steps, and the coefficient tables that it joins."""

    def __init__(self, dialect: Dialect, prefix: str):
        self.dialect, self.prefix = dialect, prefix
        self.steps: list[str] = []
        self.tables: dict[str, Columns] = {}

    def table(self, what: str, columns: Columns) -> str:
        """Add a coefficient table, or rows to it, and return its quoted name."""
        called = f"{self.prefix}_{what}"
        known = self.tables.get(called)
        self.tables[called] = columns if known is None else _stacked([known, columns])
        return name(called)

    def step(self, called: str, text: str) -> None:
        """Add a step, which is computed once."""
        self.steps.append(f"{called} AS MATERIALIZED (\n{text}\n)")

    def union(self, selects: Sequence[str]) -> str:
        """Return the rows of all SELECTs; refuse more than the system can join."""
        most = self.dialect.most_parts
        if most is not None and len(selects) > most:
            raise ValueError(
                f"The model needs {len(selects)} SELECTs in one query, and {self.dialect.name} "
                f"allows about {most}. Use dialect='duckdb' or polyadic.to_onnx."
            )
        return "\nUNION ALL ".join(selects)


def tables_query(
    cores: CPCores,
    columns: Sequence[SqlColumn],
    levels: Levels,
    dialect: Dialect,
    shown: Sequence[str],
    between: Sequence[dict[str, str]],
    prefix: str,
) -> tuple[str, dict[str, Columns]]:
    """Return the query, and the coefficient tables that it joins."""
    levels.set(0, "r", "ROW_NUMBER() OVER ()")
    query = Query(dialect, prefix)
    query.steps, last = levels.steps()
    query.steps.append(f"x AS (SELECT * FROM {last})")
    sums = ["SELECT r, 0, 0.0e0 FROM x"]
    if cores.rank or cores.additive is not None:
        _list_slots(query, columns)
    if cores.rank:
        sums += _products(query, cores, columns)
    if cores.additive is not None:
        found = [_long(c.n, c.coefficients(v), "l") for c, v in zip(columns, cores.additive)]
        table = query.table("additive", _stacked(found))
        sums.append(
            f"SELECT s.r, c.l, SUM(s.value * c.c) FROM slots AS s JOIN {table} AS c "
            "ON c.n = s.n AND c.e = s.e GROUP BY s.r, c.l"
        )
    if cores.trees is not None:
        sums.append(_trees(query, cores.trees, columns))
    # A sum leaves out NULL, which stands for what is not finite: they are counted.
    raw = ", ".join(
        f"CASE WHEN COUNT(a) = COUNT(*) THEN {literal(b)} + "
        f"SUM(CASE WHEN l = {k} THEN a ELSE 0.0e0 END) END AS f{k}"
        for k, b in enumerate(cores.intercept)
    )
    query.step("sums (r, l, a)", query.union(sums))
    query.step("answer0", f"SELECT r, {raw} FROM sums GROUP BY r")
    for i, named in enumerate(between):
        own = ", ".join(f"{text} AS {alias}" for alias, text in named.items())
        query.step(f"answer{i + 1}", f"SELECT q.*, {own} FROM answer{i} AS q")
    text = (
        "WITH RECURSIVE " + ",\n".join(query.steps) + f"\nSELECT {', '.join(shown)}\n"
        f"FROM x JOIN answer{len(between)} AS a ON a.r = x.r ORDER BY x.r"
    )
    return text, query.tables


def _list_slots(query: Query, columns: Sequence[SqlColumn]) -> None:
    """Add the step that lists the slots of all columns: row, column, element, value."""
    selects = []
    local = [c for c in columns if c.pieces is not None]
    if local:
        selects += _list_cells(query, local)
    coded = [c for c in columns if c.pieces is None and not c.is_dense]
    for own in coded:
        table = _category_table(query, own, "element", own.own)
        selects.append(f"SELECT x.r, {own.n}, COALESCE(c.e, 0), 1.0e0 {table}")
    for own in columns:
        if own.is_dense:
            first = int(own.own.constant)
            selects += [f"SELECT r, {own.n}, 0, 1.0e0 FROM x"] * first
            numbered = enumerate(own.elements, start=first)
            selects += [f"SELECT r, {own.n}, {e}, {text} FROM x" for e, text in numbered]
    query.step("slots (r, n, e, value)", query.union(selects))


def _list_cells(query: Query, local: Sequence[SqlColumn]) -> list[str]:
    """Find the cells of all local columns by one join; return the SELECTs of their slots."""
    found = [_cells(c) for c in local]
    places = [f"SELECT r, {c.n}, {c.u} FROM x" for c in local]
    query.step("places (r, n, u)", query.union(places))
    table = query.table("cell", _stacked(found))
    place = "(p.u * 0.5e0 - c.start) / c.width"
    held = f"CASE WHEN {place} < 0 THEN 0.0e0 WHEN {place} > 1 THEN 1.0e0 ELSE {place} END"
    query.step(
        "cells (r, n, e, linear, powers, v)",
        f"SELECT p.r, p.n, c.e, c.linear, c.powers, {held} FROM places AS p JOIN {table} AS c "
        f"ON c.n = p.n AND {_within('p.u')}",
    )
    out = ["SELECT r, n, 0, 1.0e0 FROM places WHERE u IS NULL"]
    out.append("SELECT r, n, e, CASE WHEN linear = 1 THEN 1 - v ELSE 1.0e0 END FROM cells")
    out.append("SELECT r, n, e + 1, v FROM cells WHERE linear = 1")
    for j in range(1, max(int(one["powers"].max()) for one in found) + 1):
        value = " * ".join(["v"] * j)
        out.append(f"SELECT r, n, e + {j}, {value} FROM cells WHERE powers >= {j}")
    return out


def _within(u: str) -> str:
    """Return the condition that a number is in a cell, from `low` to before `high`."""
    return f"{u} >= c.low AND ({u} < c.high OR c.is_last = 1)"


def _cells(column: SqlColumn) -> Columns:
    """Return the cells of a local map: their ends, and the number of their first element."""
    pieces = column.pieces
    assert pieces is not None
    n_cells, powers = len(pieces.start), pieces.n_slots - 1
    if pieces.linear:
        powers = 0
    return _intervals(column.n, pieces.edges) | {
        "e": 1 + np.arange(n_cells) * (1 + powers),
        "linear": np.full(n_cells, int(pieces.linear)),
        "powers": np.full(n_cells, powers),
        "start": pieces.start,
        "width": pieces.width,
    }


def _intervals(n: int, edges: np.ndarray) -> Columns:
    """Return the cells between edges; the first starts, and the last ends, at no number."""
    ends = np.finfo(np.float64)
    return {
        "n": np.full(len(edges) + 1, n),
        "low": np.append(ends.min, edges),
        "high": np.append(edges, ends.max),
        "is_last": np.append(np.zeros(len(edges), np.int64), 1),
    }


def _category_table(query: Query, column: SqlColumn, what: str, own: FeatureMap) -> str:
    """Add categories and their elements to a table of them; return the join of x with it."""
    pairs = column.categories(own)
    kind = object if column.content == TEXT else np.float64
    names: np.ndarray = np.empty(len(pairs), dtype=kind)
    names[:] = [category for category, _ in pairs]
    elements = np.array([e for _, e in pairs], dtype=np.int64)
    number = np.full(len(pairs), column.n)
    rows = {"n": number, "category": names, "e": elements}
    table = query.table(f"{what}_of_{column.content}", rows)
    return f"FROM x LEFT JOIN {table} AS c ON c.n = {column.n} AND c.category = x.{column.x}"


def _products(query: Query, cores: CPCores, columns: Sequence[SqlColumn]) -> list[str]:
    """Add the products: coefficients of every column, element and term, and output weights."""
    weights = np.asarray(cores.weights, dtype=np.float64)
    found = []
    for own, factor in zip(columns, cores.factors):
        factor = np.asarray(factor, dtype=np.float64)
        same = own.same_factor(factor)
        if same is None:
            found.append(_long(own.n, own.coefficients(factor), "term"))
        else:
            weights = weights * same[:, None]
    if not found:
        total = weights.sum(axis=0)
        return [f"SELECT r, {k}, {literal(t)} FROM x" for k, t in enumerate(total)]
    factors = query.table("factor", _stacked(found))
    weight = query.table(
        "weight",
        {
            "term": np.repeat(np.arange(cores.rank), cores.n_outputs),
            "l": np.tile(np.arange(cores.n_outputs), cores.rank),
            "w": weights.ravel(),
        },
    )
    query.step(
        "factors",
        "SELECT s.r AS r, c.term AS term, SUM(s.value * c.c) AS g "
        f"FROM slots AS s JOIN {factors} AS c ON c.n = s.n AND c.e = s.e "
        "GROUP BY s.r, s.n, c.term",
    )
    product = query.dialect.product.format("g")
    query.step("terms", f"SELECT r, term, {product} AS g FROM factors GROUP BY r, term")
    total = f"CASE WHEN {within_single('MAX(ABS(t.g))')} THEN SUM(t.g * w.w) END"
    return [
        f"SELECT t.r, w.l, {total} FROM terms AS t JOIN {weight} AS w "
        "ON w.term = t.term GROUP BY t.r, w.l"
    ]


def _long(n: int, core: np.ndarray, last: str) -> Columns:
    """Return a core (m, K) as a table of one coefficient per row."""
    m, width = core.shape
    return {
        "n": np.full(m * width, n),
        "e": np.repeat(np.arange(m), width),
        last: np.tile(np.arange(width), m),
        "c": np.asarray(core, dtype=np.float64).ravel(),
    }


def _stacked(found: Sequence[Columns]) -> Columns:
    return {key: np.concatenate([one[key] for one in found]) for key in found[0]}


# ---- trees ---------------------------------------------------------------------------------------


def _trees(query: Query, trees: Trees, columns: Sequence[SqlColumn]) -> str:
    """Add trees: rows walk from the roots to the leaves, with a share where they go both ways."""
    asked = np.unique(trees.nodes.column[trees.nodes.column >= 0])
    root = query.table("root", {"node": trees.roots.astype(np.int64)})
    ends = np.flatnonzero(trees.nodes.column < 0)
    width = trees.value.shape[1]
    output = trees.output[trees.tree_of_node[ends]]
    leaf = query.table(
        "leaf",
        {
            "node": np.repeat(ends, width),
            "l": (output[:, None] + np.arange(width)).astype(np.int64).ravel(),
            "a": trees.value[ends].ravel(),
        },
    )
    if len(asked):
        _list_bins(query, trees, [columns[n] for n in asked])
        edge = query.table("edge", _edges(trees))
        bins = "".join(f", b{n}" for n in asked)
        moved = "".join(f", w.b{n}" for n in asked)
        place = " ".join(f"WHEN {n} THEN w.b{n}" for n in asked)
        query.steps.append(
            f"walk (r, node, share{bins}) AS (\n"
            f"SELECT b.r, t.node, 1.0e0{bins} FROM bins AS b, {root} AS t\n"
            f"UNION ALL SELECT w.r, d.child, w.share * d.share{moved} FROM walk AS w "
            f"JOIN {edge} AS d ON d.node = w.node "
            f"WHERE CASE d.n {place} END BETWEEN d.low AND d.high\n)"
        )
    else:  # every tree is one leaf
        query.step("walk", f"SELECT x.r AS r, t.node AS node, 1.0e0 AS share FROM x, {root} AS t")
    return (
        f"SELECT w.r, e.l, SUM(w.share * e.a) FROM walk AS w JOIN {leaf} AS e "
        "ON e.node = w.node GROUP BY w.r, e.l"
    )


def _list_bins(query: Query, trees: Trees, asked: Sequence[SqlColumn]) -> None:
    """Add the step that has the bins of every row side by side; 0 for a missing value."""
    found, selects = [], []
    for own in asked:
        steps = trees.maps[own.n]
        if isinstance(steps, Step):
            cells = _intervals(own.n, np.nextafter(steps.edges_, np.inf))
            found.append(cells | {"bin": np.arange(1, len(steps.edges_) + 2)})
        else:
            table = _category_table(query, own, "bin", steps)
            selects.append(f"SELECT x.r, {own.n}, COALESCE(c.e, 0) {table}")
    if found:
        table = query.table("interval", _stacked(found))
        numbers = [f"SELECT r, {own['n'][0]}, x{own['n'][0]} FROM x" for own in found]
        query.step("numbers (r, n, u)", query.union(numbers))
        selects.append(
            f"SELECT p.r, p.n, c.bin FROM numbers AS p JOIN {table} AS c "
            f"ON c.n = p.n AND {_within('p.u')}"
        )
    selects.append("SELECT r, -1, 0 FROM x")  # a row without known values is one too
    query.step("each_bin (r, n, bin)", query.union(selects))
    wide = ", ".join(f"MAX(CASE WHEN n = {c.n} THEN bin ELSE 0 END) AS b{c.n}" for c in asked)
    query.step("bins", f"SELECT r, {wide} FROM each_bin GROUP BY r")


def _edges(trees: Trees) -> Columns:
    """Return the edges from nodes to children: intervals of bins, and the share that goes there."""
    nodes = trees.nodes
    out: list[tuple] = []
    for k in np.flatnonzero(nodes.column >= 0):
        n = int(nodes.column[k])
        left = left_bins(trees, int(k))
        children = int(nodes.right[k]), int(nodes.left[k])
        share = float(nodes.share[k])
        if share >= 0.0:
            pairs = ((children[1], share), (children[0], 1.0 - share))
            out += [(k, n, 0, 0, child, part) for child, part in pairs if part > 0.0]
        begin = 1 if share >= 0.0 else 0
        starts = begin + np.flatnonzero(np.append(True, left[begin + 1 :] != left[begin:-1]))
        for low, high in zip(starts, np.append(starts[1:], len(left)) - 1):
            if low <= high:
                out.append((k, n, low, high, children[int(left[low])], 1.0))
    columns = list(zip(*out)) or [()] * 6
    keys = ("node", "n", "low", "high", "child")
    found = {key: np.array(own, dtype=np.int64) for key, own in zip(keys, columns)}
    return found | {"share": np.array(columns[5], dtype=np.float64)}
