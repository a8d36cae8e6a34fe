"""Feature maps as ONNX operators: from a raw column to its part of every term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyadic.data.columns import Column
from polyadic.export.columns import NUMBERS, constant_factor, content_of, no_form
from polyadic.export.graph import ML, ROWS, Graph, Symbol, join
from polyadic.export.pieces import PIECES, Pieces, partition_core, to_range_numbers
from polyadic.maps import Chebyshev, Fourier, OneHot, Polynomial, Trigonometric
from polyadic.maps.base import FeatureMap
from polyadic.maps.polynomial import LARGEST_ELEMENT

LEQ, LESS = "BRANCH_LEQ", "BRANCH_LT"  # how a node of an ONNX tree compares
_NODE_FIELDS = (
    "treeids",
    "nodeids",
    "featureids",
    "modes",
    "values",
    "missing_value_tracks_true",
    "truenodeids",
    "falsenodeids",
)
_LEAF_FIELDS = ("treeids", "nodeids", "ids", "weights")


# ---- reading raw columns -------------------------------------------------------------------------


class Search:
    """Where numbers lie among edges: one tree per column, all in one operator.

    ONNX has no binary search, and a tree of comparisons is one. It compares in double precision.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self._asked: list[tuple[Symbol, np.ndarray]] = []
        self._cells: list[Symbol] = []

    def ask(self, x: Symbol, edges: np.ndarray) -> int:
        """Ask how many edges are at most x : (n, 1); the answer has this number."""
        self._asked.append((x, edges))
        return len(self._asked) - 1

    def run(self) -> None:
        """Add the operator that answers all."""
        real = [k for k, (_, edges) in enumerate(self._asked) if len(edges)]
        for x, _ in self._asked:
            self._cells.append(x)
        if not real:
            return
        x = join([self._asked[k][0] for k in real], 1)
        trees = SplitTrees(len(real))
        for target, k in enumerate(real):
            trees.add_search(target, self._asked[k][1])
        found = trees.apply(x).cast(np.int64)
        for target, k in enumerate(real):
            self._cells[k] = found[:, target]

    def cell(self, number: int) -> Symbol:
        """Return an answer, (n,) int64."""
        x, edges = self._asked[number]
        if len(edges):
            return self._cells[number]
        return (x.each("IsNaN", bool).cast(np.int64) * 0).reshape(ROWS)


class SplitTrees:
    """The arrays of the ONNX operator that evaluates trees."""

    def __init__(self, n_targets: int):
        self.n_targets = n_targets
        self.nodes: dict[str, list[Any]] = {name: [] for name in _NODE_FIELDS}
        self.leaves: dict[str, list[Any]] = {name: [] for name in _LEAF_FIELDS}
        self._tree, self._size = -1, 0

    def start_tree(self) -> None:
        """Start the next tree; its first node is the root, and its nodes count from 0."""
        self._tree, self._size = self._tree + 1, 0

    def add_node(self, feature: int, mode: str, split: float, missing_left: bool = False) -> int:
        """Add a node, and return its number; `set_children` tells where it leads."""
        fields = (self._tree, self._size, feature, mode, split, int(missing_left), 0, 0)
        for name, value in zip(_NODE_FIELDS, fields):
            self.nodes[name].append(value)
        self._size += 1
        return self._size - 1

    def add_leaf(self, target: int, values: Sequence[float]) -> int:
        """Add a leaf with values for the targets from `target` on, and return its number."""
        number = self.add_node(0, "LEAF", 0.0)
        for w, value in enumerate(values):
            for name, part in zip(_LEAF_FIELDS, (self._tree, number, target + w, value)):
                self.leaves[name].append(part)
        return number

    def set_children(self, node: int, holds: int, otherwise: int) -> None:
        """Set where a node of this tree leads if its comparison holds, and otherwise."""
        at = len(self.nodes["treeids"]) - self._size + node
        self.nodes["truenodeids"][at], self.nodes["falsenodeids"][at] = holds, otherwise

    def add_search(self, target: int, edges: np.ndarray) -> None:
        """Add a balanced tree whose value is the number of edges that are at most the feature."""
        self.start_tree()

        def grow(low: int, high: int) -> int:
            if low == high:
                return self.add_leaf(target, [float(low)])
            middle = (low + high) // 2
            node = self.add_node(target, LESS, float(edges[middle]))
            self.set_children(node, grow(low, middle), grow(middle + 1, high))
            return node

        grow(0, len(edges))

    def apply(self, x: Symbol) -> Symbol:
        """Return the sum of the trees for each target, (n, targets), in single precision.

        They compare in double precision, and add up in it.
        """
        from onnx import numpy_helper

        attributes: dict[str, Any] = {f"nodes_{name}": own for name, own in self.nodes.items()}
        splits = np.array(attributes.pop("nodes_values"), dtype=np.float64)
        weights = np.array(self.leaves["weights"], dtype=np.float64)
        return x.graph.apply(
            "TreeEnsembleRegressor",
            x,
            shape=(ROWS, self.n_targets),
            dtype=np.float32,
            domain=ML,
            **attributes,
            nodes_values_as_tensor=numpy_helper.from_array(splits),
            target_treeids=self.leaves["treeids"],
            target_nodeids=self.leaves["nodeids"],
            target_ids=self.leaves["ids"],
            target_weights_as_tensor=numpy_helper.from_array(weights),
            n_targets=self.n_targets,
        )


@dataclass
class Read:
    """A raw column: numbers (n, 1), or the numbers of its categories counted from 1, (n,)."""

    column: Column
    raw: Symbol
    search: Search
    asked: int = -1

    def __post_init__(self) -> None:
        column, categories = self.column, self.column.categories
        if column.kind == "categorical" and self.raw.dtype == np.float64 and categories:
            self.asked = self.search.ask(self.raw, np.sort(np.array(categories, float))[1:])

    @property
    def missing(self) -> Symbol:
        """Where a number is missing, (n, 1)."""
        return self.raw.each("IsNaN", bool)

    def code(self) -> Symbol:
        """Return the number of the category, (n,) int64; 0 for a missing or unseen one."""
        graph, categories = self.raw.graph, self.column.categories or ()
        if self.raw.dtype != np.float64:
            keys = [str(category) for category in categories] or [""]
            numbers = list(range(1, len(categories) + 1)) or [0]
            found = graph.apply(
                "LabelEncoder",
                self.raw,
                shape=self.raw.shape,
                dtype=np.int64,
                domain=ML,
                keys_strings=keys,
                values_int64s=numbers,
                default_int64=0,
            )
            return found.reshape(ROWS)
        values = np.array(categories, dtype=np.float64)
        order = np.argsort(values)
        cell = self.search.cell(self.asked)
        known = graph.constant(values[order]).rows_of(cell).equals(self.raw.reshape(ROWS))
        number = graph.constant(order.astype(np.int64) + 1).rows_of(cell)
        return number * known.cast(np.int64)


def input_type(column: Column) -> Any:
    """Return the type of an input: double precision, or text."""
    return np.float64 if content_of(column, "ONNX") == NUMBERS else np.dtype(object)


# ---- maps ----------------------------------------------------------------------------------------


class ColumnSlots:
    """The elements of one column as symbols, and its part of every term.

    The numbers are searched after all columns were created: `part` may be called after
    `search.run()`.
    """

    def __init__(self, read: Read, own: FeatureMap):
        self.read, self.own = read, own
        self.pieces: Pieces | None = None
        self._cells: tuple[Symbol, list[Symbol]] | None = None
        if type(own) in PIECES:
            self.pieces = PIECES[type(own)](own)
            self.u = _scaled(read.raw, self.pieces.ends)
            self.asked = read.search.ask(self.u, self.pieces.edges)
        elif type(own) is not OneHot and type(own) not in DENSE:
            raise no_form(own, read.column, "ONNX", [*PIECES, OneHot, *DENSE])

    def part(self, core: np.ndarray, constant: bool, dtype: Any) -> Symbol | np.ndarray:
        """Return phi' core : (n, K), or (K,) where it is the same for every row."""
        constant = constant and self.own.constant
        if type(self.own) in DENSE:
            return self._dense_part(np.asarray(core, dtype=np.float64), constant, dtype)
        core = partition_core(core, constant)
        same = constant_factor(core)
        if same is not None:
            return same
        if self.pieces is None:
            return self.read.raw.graph.constant(core, dtype).rows_of(self._element())
        first, values = self._slots()
        # As many rows of missing values as there are slots: they add up to one of them.
        n_slots = len(values)
        table = self.read.raw.graph.constant(np.vstack([core[:1]] * (n_slots - 1) + [core]), dtype)
        if n_slots == 1:
            return table.rows_of(first)
        left = table.rows_of(first)
        if self.pieces.linear:
            return left + values[1].cast(dtype) * (table.rows_of(first + 1) - left)
        out = left * values[0].cast(dtype)
        for k in range(1, n_slots):
            out = out + table.rows_of(first + k) * values[k].cast(dtype)
        return out

    def _element(self) -> Symbol:
        """Return the element of a category, (n,); 0 for a missing, unseen or rare one."""
        return elements_of(self.read, self.own)

    def _slots(self) -> tuple[Symbol, list[Symbol]]:
        """Return the first row of the table, (n,), and the values of the slots, (n, 1) each."""
        if self._cells is None:
            pieces, graph = self.pieces, self.read.raw.graph
            assert pieces is not None
            cell, missing = self.read.search.cell(self.asked), self.read.missing.reshape(ROWS)
            first = missing.where(0, cell + pieces.n_slots)
            values = [first]
            if pieces.n_slots > 1:
                half = self.u.reshape(ROWS) * 0.5 - graph.constant(pieces.start).rows_of(cell)
                v = (half / graph.constant(pieces.width).rows_of(cell)).clip(0.0, 1.0)
                values = self._values(missing.where(0.0, v)[:, None], cell)
            self._cells = first, values
        return self._cells

    def _values(self, v: Symbol, cell: Symbol) -> list[Symbol]:
        """Return the value of each slot at v : (n, 1)."""
        pieces = self.pieces
        assert pieces is not None
        if pieces.linear:
            return [1.0 - v, v]
        powers = v ** np.arange(float(pieces.n_slots))[None]
        mix = v.graph.constant(pieces.mix).rows_of(cell)
        value = powers[:, None] @ mix  # (n, 1, s)
        return [value[:, 0, k : k + 1] for k in range(pieces.n_slots)]

    def _dense_part(self, core: np.ndarray, constant: bool, dtype: Any) -> Symbol | np.ndarray:
        rest = core[1:] if self.own.constant else core
        first = core[0] if constant else np.zeros(core.shape[1])
        if not len(rest):
            return first
        missing = self.read.missing
        known = missing.where(0.0, self.read.raw)
        element = DENSE[type(self.own)](self.own, known)
        if self.own.missing_ is not None:
            none = self.own.missing_
        else:
            none = self.own.dense(np.array([np.nan]))[0, int(self.own.constant) :]
        return missing.where(none[None], element).cast(dtype) @ rest + first


def elements_of(read: Read, own: OneHot | FeatureMap) -> Symbol:
    """Return the element of every category of a one-hot map, (n,) int64."""
    n_categories = len(read.column.categories or ())
    lookup = own.encode(np.arange(-1, n_categories))[0][:, 0].astype(np.int64)
    code = read.code()
    if np.array_equal(lookup, np.arange(len(lookup))):
        return code
    return read.raw.graph.constant(lookup).rows_of(code)


def _scaled(x: Symbol, ends: np.ndarray | None) -> Symbol:
    """Scale x : (n, 1) from a range to -1..1, as `polyadic.maps.column.to_range` does."""
    if ends is None:
        return x
    middle, half = to_range_numbers(ends)
    return ((x.clip(*map(float, ends)) - middle) / half).clip(-1.0, 1.0)


def _polynomial(own: Polynomial, x: Symbol) -> Symbol:
    z = (x - own.mean_) / own.std_
    if own.normalize:
        return _unit_powers(z, own.d)
    limit = LARGEST_ELEMENT ** (1.0 / max(own.d - 1, 1))
    element = z.clip(-limit, limit) ** np.arange(1.0, own.d)[None]
    if own.standardize:
        element = (element - own.element_mean_[None]) / own.element_std_[None]
        element = element.clip(-LARGEST_ELEMENT, LARGEST_ELEMENT)
    return element


def _unit_powers(z: Symbol, d: int) -> Symbol:
    """Return the powers of z over their norm; of 1 / z where |z| > 1, so that none overflows."""
    outside = z.each("Abs") > 1.0
    ratio = outside.where(1.0 / outside.where(z, 1.0), z)
    powers = ratio ** np.arange(float(d))[None]
    unit = powers / (powers * powers).sum(1).each("Sqrt")[:, None]
    sign = z.each("Sign") if d % 2 == 0 else z * 0.0 + 1.0
    return outside.where(unit[:, ::-1] * sign, unit)


def _chebyshev(own: Chebyshev, x: Symbol) -> Symbol:
    u = _scaled(x, own.range_)
    elements = [u * 0.0 + 1.0, u]
    while len(elements) < own.d:
        elements.append(2.0 * u * elements[-1] - elements[-2])
    return join(elements[1 : own.d], 1)


def _fourier(own: Fourier, x: Symbol) -> Symbol:
    frequency = np.repeat(np.arange(1.0, own.n_frequencies + 1), 2)[None]
    phase = np.tile([0.5, 0.0], own.n_frequencies)[None]  # a cosine is a sine a quarter further
    return ((_scaled(x, own.range_) * frequency + phase) * np.pi).each("Sin")


def _trigonometric(own: Trigonometric, x: Symbol) -> Symbol:
    angle = (_scaled(x, own.range_) + 1.0) * (0.25 * np.pi)
    return (angle + np.array([[0.5 * np.pi, 0.0]])).each("Sin")


# The elements of maps that are all non-zero, without the constant, from known numbers (n, 1).
DENSE: dict[type[FeatureMap], Callable[[Any, Symbol], Symbol]] = {
    Chebyshev: _chebyshev,
    Fourier: _fourier,
    Polynomial: _polynomial,
    Trigonometric: _trigonometric,
}


def read_columns(columns: Sequence[Column], raw: Sequence[Symbol], search: Search) -> list[Read]:
    """Return the raw columns as the maps and the trees read them."""
    return [Read(column, x, search) for column, x in zip(columns, raw)]
