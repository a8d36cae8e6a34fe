"""A graph of ONNX operators, written as arithmetic on symbols.

A `Symbol` stands for an array that is known only when the graph runs. It has the operators that
NumPy arrays and torch tensors share, so that the contraction of any format, which is written with
those, can be traced: `form.contract(symbol, extras)` adds its operators to the graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

ML = "ai.onnx.ml"
# The first version of ai.onnx.ml whose trees compare in double precision (skl2onnx knows none
# newer), and the first version of the other operators that has all that is used here.
OPSETS = {"": 18, ML: 3}
IR_VERSION = 8  # of the file; the lowest for these operators
# Stands for the number of rows in the shape of a symbol: a prime that no other axis will have.
ROWS = 1_000_003

Shape = tuple[int, ...]


class Graph:
    """Operators, constants, inputs and outputs of an ONNX model that is being written."""

    def __init__(self, prefix: str = "polyadic") -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[tuple, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._count = 0

    def input(self, name: str, dtype: Any) -> Symbol:
        """Add an input of one column, (n, 1)."""
        self.inputs.append(_value_info(name, dtype, (ROWS, 1)))
        return Symbol(self, name, np.dtype(dtype), (ROWS, 1))

    def output(self, name: str, value: Symbol) -> None:
        """Make a symbol an output of this name."""
        self.nodes.append(_make_node("Identity", [value.name], [name]))
        self.outputs.append(_value_info(name, value.dtype, value.shape))

    def constant(self, array: Any, dtype: Any = None) -> Symbol:
        """Return an array as a symbol; equal arrays are stored once."""
        from onnx import numpy_helper

        array = np.asarray(array, dtype=dtype, order="C")  # ascontiguousarray adds an axis
        if array.dtype.kind == "U":
            array = array.astype(object)
        content = tuple(array.ravel()) if array.dtype == object else array.tobytes()
        key = (array.dtype.str, array.shape, content)
        if key not in self.constants:
            tensor = numpy_helper.from_array(array, self.new_name("constant"))
            self.constants[key] = tensor
        return Symbol(self, self.constants[key].name, array.dtype, array.shape)

    def apply(
        self,
        operator: str,
        *inputs: Symbol,
        shape: Shape,
        dtype: Any = None,
        domain: str = "",
        **attributes: Any,
    ) -> Symbol:
        """Add an operator, and return its output; its type is by default that of the input."""
        name = self.new_name(operator.lower())
        own = [symbol.name for symbol in inputs]
        self.nodes.append(_make_node(operator, own, [name], domain=domain, **attributes))
        return Symbol(self, name, np.dtype(inputs[0].dtype if dtype is None else dtype), shape)

    def loop(self, count: Symbol, body: Graph, number: str, result: Symbol) -> Symbol:
        """Run a body `count` times, and return its results, stacked along a new first axis.

        The body uses symbols of this graph as they are, and `number`, the number of the pass.
        """
        from onnx import TensorProto, helper

        going = body.constant(np.array(True))
        body.output(body.new_name("going"), going)
        body.output(body.new_name("result"), result)
        inputs = [
            helper.make_tensor_value_info(number, TensorProto.INT64, []),
            helper.make_tensor_value_info(self.new_name("goes_on"), TensorProto.BOOL, []),
        ]
        tensors = list(body.constants.values())
        graph = helper.make_graph(body.nodes, "body", inputs, body.outputs, initializer=tensors)
        name, start = self.new_name("loop"), self.constant(np.array(True))
        self.nodes.append(helper.make_node("Loop", [count.name, start.name], [name], body=graph))
        return Symbol(self, name, result.dtype, (ROWS, *result.shape))

    def body(self) -> Graph:
        """Return an empty graph whose names differ from those of this one."""
        out = Graph()
        out.new_name = self.new_name  # type: ignore[method-assign]
        return out

    def use(self, symbol: Symbol) -> Symbol:
        """Return a symbol of the graph around this one, for operators of this one."""
        return Symbol(self, symbol.name, symbol.dtype, symbol.shape)

    def new_name(self, what: str) -> str:
        """Return a name that nothing in the graph has yet."""
        self._count += 1
        return f"{self.prefix}/{what}_{self._count}"  # no column of a table has such a name

    def to_model(self, name: str, about: str) -> onnx.ModelProto:
        """Return the finished model, checked by onnx."""
        from onnx import checker, helper

        tensors = list(self.constants.values())
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, initializer=tensors)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="polyadic",
            doc_string=about,
        )
        checker.check_model(model, full_check=True)
        return model


class Symbol:
    """An array of a graph: its name there, its type, and its shape with `ROWS` for the rows."""

    __array_ufunc__ = None  # an array on the left leaves the operation to this class

    def __init__(self, graph: Graph, name: str, dtype: np.dtype, shape: Shape):
        self.graph, self.name, self.dtype, self.shape = graph, name, dtype, shape

    def __len__(self) -> int:
        return self.shape[0]

    # ---- arithmetic ------------------------------------------------------------------------------

    def _with(self, other: Any) -> Symbol:
        """Return the other operand as a symbol of this type."""
        return other if isinstance(other, Symbol) else self.graph.constant(other, self.dtype)

    def _pair(self, operator: str, left: Any, right: Any, dtype: Any = None) -> Symbol:
        left, right = self._with(left), self._with(right)
        shape = np.broadcast_shapes(left.shape, right.shape)
        return self.graph.apply(operator, left, right, shape=shape, dtype=dtype)

    def __add__(self, other: Any) -> Symbol:
        return self._pair("Add", self, other)

    def __sub__(self, other: Any) -> Symbol:
        return self._pair("Sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._pair("Sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self._pair("Mul", self, other)

    def __truediv__(self, other: Any) -> Symbol:
        return self._pair("Div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._pair("Div", other, self)

    def __pow__(self, other: Any) -> Symbol:
        return self._pair("Pow", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __le__(self, other: Any) -> Symbol:
        return self._pair("LessOrEqual", self, other, bool)

    def __ge__(self, other: Any) -> Symbol:
        return self._pair("GreaterOrEqual", self, other, bool)

    def __lt__(self, other: Any) -> Symbol:
        return self._pair("Less", self, other, bool)

    def __gt__(self, other: Any) -> Symbol:
        return self._pair("Greater", self, other, bool)

    def __and__(self, other: Symbol) -> Symbol:
        return self._pair("And", self, other)

    def __or__(self, other: Symbol) -> Symbol:
        return self._pair("Or", self, other)

    def equals(self, other: Any) -> Symbol:
        """Return where two arrays are equal."""
        return self._pair("Equal", self, other, bool)

    def __matmul__(self, other: Any) -> Symbol:
        return _matmul(self, self._with(other))

    def __rmatmul__(self, other: Any) -> Symbol:
        return _matmul(self._with(other), self)

    def each(self, operator: str, dtype: Any = None) -> Symbol:
        """Apply an operator of one input to every element."""
        return self.graph.apply(operator, self, shape=self.shape, dtype=dtype)

    def cast(self, dtype: Any) -> Symbol:
        """Return the array in another type."""
        from onnx import helper

        if self.dtype == np.dtype(dtype):
            return self
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.graph.apply("Cast", self, shape=self.shape, dtype=dtype, to=to)

    def clip(self, low: float, high: float) -> Symbol:
        """Return the array held within two limits; a missing value stays missing."""
        limits = [self.graph.constant(np.array(limit), self.dtype) for limit in (low, high)]
        return self.graph.apply("Clip", self, *limits, shape=self.shape)

    def where(self, yes: Any, no: Any) -> Symbol:
        """Return `yes` where this boolean array is true, else `no`; one of them is a symbol."""
        like = yes if isinstance(yes, Symbol) else no
        yes, no = like._with(yes), like._with(no)
        shape = np.broadcast_shapes(self.shape, yes.shape, no.shape)
        return self.graph.apply("Where", self, yes, no, shape=shape, dtype=yes.dtype)

    # ---- shapes ----------------------------------------------------------------------------------

    @property
    def T(self) -> Symbol:
        """The matrix with its axes exchanged."""
        return self.swapaxes(0, 1)

    def swapaxes(self, a: int, b: int) -> Symbol:
        """Exchange two axes."""
        order = list(range(len(self.shape)))
        order[a], order[b] = order[b], order[a]
        shape = tuple(self.shape[k] for k in order)
        return self.graph.apply("Transpose", self, shape=shape, perm=order)

    def reshape(self, *shape: int) -> Symbol:
        """Return the same numbers in another shape; -1 stands for what is left."""
        if -1 in shape:
            known = -math.prod(shape)
            shape = tuple(math.prod(self.shape) // known if k == -1 else k for k in shape)
        sizes = np.array([-1 if k == ROWS else k for k in shape], dtype=np.int64)
        return self.graph.apply("Reshape", self, self.graph.constant(sizes), shape=shape)

    def sum(self, axis: int) -> Symbol:
        """Add up along an axis."""
        axis = axis % len(self.shape)
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        axes = self.graph.constant(np.array([axis]))
        return self.graph.apply("ReduceSum", self, axes, shape=shape, keepdims=0)

    def unbind(self, axis: int) -> list[Symbol]:
        """Return the slices along an axis."""
        return [self._take(np.array(k), axis) for k in range(self.shape[axis])]

    def joined(self, other: Symbol, axis: int) -> Symbol:
        """Put another array behind this one along an axis."""
        return join([self, other], axis)

    def rows_of(self, index: Symbol) -> Symbol:
        """Return row index[i] of this table for every i."""
        shape = index.shape + self.shape[1:]
        return self.graph.apply("Gather", self, index, shape=shape, axis=0)

    def _take(self, index: np.ndarray, axis: int) -> Symbol:
        shape = self.shape[:axis] + index.shape + self.shape[axis + 1 :]
        return self.graph.apply("Gather", self, self.graph.constant(index), shape=shape, axis=axis)

    def __getitem__(self, key: Any) -> Symbol:
        """Slice by numbers, slices, None and an ellipsis."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            named = sum(k is not None for k in keys) - 1
            keys[at : at + 1] = [slice(None)] * (len(self.shape) - named)
        out, axis = self, 0
        for k in keys:
            if k is None:
                shape = (*out.shape[:axis], 1, *out.shape[axis:])
                axes = self.graph.constant(np.array([axis]))
                out = self.graph.apply("Unsqueeze", out, axes, shape=shape)
            elif isinstance(k, slice) and k == slice(None):
                pass
            elif isinstance(k, slice):
                out = out._take(np.arange(*k.indices(out.shape[axis])), axis)
            else:
                out = out._take(np.array(k), axis)
                continue
            axis += 1
        return out


def join(symbols: Sequence[Symbol], axis: int) -> Symbol:
    """Put arrays side by side along an axis."""
    if len(symbols) == 1:
        return symbols[0]
    shape = list(symbols[0].shape)
    shape[axis] = sum(symbol.shape[axis] for symbol in symbols)
    graph = symbols[0].graph
    return graph.apply("Concat", *symbols, shape=tuple(shape), axis=axis)


def _matmul(left: Symbol, right: Symbol) -> Symbol:
    above = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    shape = (*above, left.shape[-2], right.shape[-1])
    return left.graph.apply("MatMul", left, right, shape=shape)


def _make_node(
    operator: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any
) -> onnx.NodeProto:
    from onnx import helper

    return helper.make_node(operator, inputs, outputs, domain=domain, **attributes)


def _value_info(name: str, dtype: Any, shape: Shape) -> onnx.ValueInfoProto:
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    sizes = ["n" if size == ROWS else size for size in shape]
    return helper.make_tensor_value_info(name, kind, sizes)
