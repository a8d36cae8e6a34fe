"""Eight numbers at a time, for Numba: LLVM's vectors.

LLVM splits or joins the vectors to match the registers of the CPU. The code assumes that a float32
has four bytes and a float64 eight, and that vectors may be loaded from any address that is a
multiple of that. Only `flush_denormals` and `restore_denormals` have code for x86 alone; elsewhere
they do nothing. `tests/test_simd.py` compiles the kernels for 64-bit ARM.

These types and intrinsics use parts of Numba that are not stable: `llvmlite.ir`, `cgutils`,
templates and data models. If a new version of Numba breaks them, POLYADIC_SIMD=0 does not need
them.
"""

from __future__ import annotations

import operator
import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from polyadic.kernels.jit import FAST
from polyadic.kernels.pointers import data_of

LANES = 8
_SCALAR = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
_SUFFIX = {types.float32: "f32", types.float64: "f64"}


class Vector(types.Type):
    """The Numba type of LANES numbers held in registers."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype})")


def _llvm(vector: Vector) -> ir.VectorType:
    return ir.VectorType(_SCALAR[vector.dtype], LANES)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _llvm(kind))


def _pointer(context, builder, kind, array, at, vector):
    data = data_of(context, builder, kind, array)
    return builder.bitcast(builder.gep(data, [at]), _llvm(vector).as_pointer())


def _alignment(vector: Vector) -> int:
    return 4 if vector.dtype == types.float32 else 8


@intrinsic
def load(_, array, at):
    """Return array[at : at + LANES] of a one-dimensional contiguous array; nothing is checked."""
    vector = Vector(array.dtype)

    def code(context, builder, sig, args):
        pointer = _pointer(context, builder, sig.args[0], args[0], args[1], vector)
        return builder.load(pointer, align=_alignment(vector))

    return vector(array, types.intp), code


@intrinsic
def peek(_, array, at):
    """Return array[at] of a one-dimensional contiguous array; nothing is checked.

    Numba looks whether an index is negative, which takes longer than many a multiplication.
    """

    def code(context, builder, sig, args):
        data = data_of(context, builder, sig.args[0], args[0])
        return builder.load(builder.gep(data, [args[1]]))

    return array.dtype(array, types.intp), code


@intrinsic
def store(_, array, at, value):
    """Set array[at : at + LANES]."""

    def code(context, builder, sig, args):
        pointer = _pointer(context, builder, sig.args[0], args[0], args[1], sig.args[2])
        builder.store(args[2], pointer, align=_alignment(sig.args[2]))
        return context.get_dummy_value()

    return types.void(array, types.intp, value), code


@intrinsic
def fill(_, array, x):
    """Return LANES copies of the number x, in the type of `array`."""
    vector = Vector(array.dtype)

    def code(context, builder, sig, args):
        number = context.cast(builder, args[1], sig.args[1], vector.dtype)
        empty = ir.Constant(_llvm(vector), ir.Undefined)
        one = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, empty, mask)

    return vector(array, x), code


def _register(op, instruction: str) -> None:
    @infer_global(op)
    class _Typing(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    @lower_builtin(op, Vector, Vector)
    def _lower(context, builder, sig, args):
        return getattr(builder, instruction)(*args, flags=tuple(sorted(FAST)))


for _op, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _register(_op, _instruction)


def _llvm_intrinsic(builder, name, vector, result, arguments):
    name = f"llvm.{name}.v{LANES}{_SUFFIX[vector.dtype]}"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


@intrinsic
def root(_, value):
    """Return the square roots."""

    def code(context, builder, sig, args):
        kind = _llvm(sig.args[0])
        return builder.call(
            _llvm_intrinsic(builder, "sqrt", sig.args[0], kind, [kind]), args, fastmath=()
        )

    return value(value), code


@intrinsic
def total(_, value):
    """Return the sum of the LANES numbers."""

    def code(context, builder, sig, args):
        kind = _llvm(sig.args[0])
        function = _llvm_intrinsic(
            builder, "vector.reduce.fadd", sig.args[0], kind.element, [kind.element, kind]
        )
        zero = ir.Constant(kind.element, -0.0)
        return builder.call(function, [zero, args[0]], fastmath=("reassoc",))

    return value.dtype(value), code


_ON_X86 = platform.machine().lower() in {"x86_64", "amd64", "i386", "i686"}
_FLUSH_TO_ZERO = 0x8040  # the bits FTZ and DAZ of the control register


def _control_register(builder, operation: str, room) -> None:
    kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(ir.IntType(8))])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{operation}")
    builder.call(function, [builder.bitcast(room, ir.PointerType(ir.IntType(8)))])


@intrinsic
def flush_denormals(_):
    """Replace denormal numbers by zero from here on; return the setting before.

    Moments of parameters that no longer move become denormal and stay so, and x86 is a hundred
    times slower on such numbers. Other CPUs are not, and their setting is not changed.
    """

    def code(context, builder, sig, args):
        if not _ON_X86:
            return ir.Constant(ir.IntType(32), 0)
        room = cgutils.alloca_once(builder, ir.IntType(32))
        _control_register(builder, "stmxcsr", room)
        before = builder.load(room)
        builder.store(builder.or_(before, ir.Constant(ir.IntType(32), _FLUSH_TO_ZERO)), room)
        _control_register(builder, "ldmxcsr", room)
        return before

    return types.int32(), code


@intrinsic
def restore_denormals(_, before):
    """Undo `flush_denormals`, given what it returned."""

    def code(context, builder, sig, args):
        if _ON_X86:
            room = cgutils.alloca_once(builder, ir.IntType(32))
            builder.store(args[0], room)
            _control_register(builder, "ldmxcsr", room)
        return context.get_dummy_value()

    return types.void(types.int32), code


@intrinsic
def prefetch(_, array, at):
    """Load the cache line of array[at] in advance."""

    def code(context, builder, sig, args):
        data = data_of(context, builder, sig.args[0], args[0])
        byte = ir.PointerType(ir.IntType(8))
        pointer = builder.bitcast(builder.gep(data, [args[1]]), byte)
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), code
