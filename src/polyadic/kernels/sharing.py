"""Let several threads work on the parts of a job, turn by turn, within one kernel.

Every thread goes through the same turns. In each turn it claims parts, its own first, until none is
left, and waits for those that others have claimed. The result does not depend on which thread does
a part, so one thread alone computes the same as many. No thread waits for a thread that the
operating system has not started yet: the others do its parts. A turn may take a few microseconds,
far less than waking a thread, so waiting threads read the board in a loop.

The board is an array of counters in shared memory, two per part: how many turns of the part have
been claimed, and how many are finished.
"""

from __future__ import annotations

import os
import platform

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from polyadic.kernels.jit import inner
from polyadic.kernels.pointers import data_of

_STRIDE = 16  # int64 numbers from one counter of the board to the next: two cache lines
_READS_BEFORE_YIELD = 512  # of a waiting thread, then it offers the CPU to others; chosen by hand
_ON_X86 = platform.machine().lower() in {"x86_64", "amd64"}


def new_board(n_parts: int) -> np.ndarray:
    """Return the counters that `claim`, `finish` and `wait` use, all zero."""
    return np.zeros(2 * n_parts * _STRIDE, np.int64)


def _entry(context, builder, kind, board, at):
    return builder.gep(data_of(context, builder, kind, board), [at])


@intrinsic
def _raise_by_one(_, board, at, value):
    """Set board[at] to value + 1 if it is value; return whether it was."""

    def code(context, builder, sig, args):
        entry = _entry(context, builder, sig.args[0], args[0], args[1])
        more = builder.add(args[2], ir.Constant(args[2].type, 1))
        return builder.extract_value(builder.cmpxchg(entry, args[2], more, "acq_rel", "acquire"), 1)

    return types.boolean(board, types.intp, types.int64), code


@intrinsic
def _read(_, board, at):
    """Return board[at]; memory written before it by other threads is then visible."""

    def code(context, builder, sig, args):
        entry = _entry(context, builder, sig.args[0], args[0], args[1])
        return builder.load_atomic(entry, "acquire", 8)

    return types.int64(board, types.intp), code


@intrinsic
def _write(_, board, at, value):
    """Set board[at], visible to other threads only after all that was written before."""

    def code(context, builder, sig, args):
        entry = _entry(context, builder, sig.args[0], args[0], args[1])
        builder.store_atomic(args[2], entry, "release", 8)
        return context.get_dummy_value()

    return types.void(board, types.intp, types.int64), code


@intrinsic
def _pause(_):
    """Tell the CPU that this is a waiting loop."""

    def code(context, builder, sig, args):
        if _ON_X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def _yield_cpu(_):
    """Offer the CPU to other threads, if the operating system has a call for it."""

    def code(context, builder, sig, args):
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), code


@inner
def claim(board, part, turn):
    """Return whether the caller has to do this part in this turn."""
    return _raise_by_one(board, 2 * part * _STRIDE, turn)


@inner
def finish(board, part, turn):
    """Record that a part is done in this turn."""
    _write(board, (2 * part + 1) * _STRIDE, turn + 1)


@inner
def wait(board, turn):
    """Return when every part is done in this turn."""
    for at in range(_STRIDE, board.shape[0], 2 * _STRIDE):
        reads = 0
        while _read(board, at) <= turn:
            _pause()
            reads += 1
            if reads % _READS_BEFORE_YIELD == 0:
                _yield_cpu()
