"""Let threads share the parts of a job, turn by turn, within one kernel.

Every thread runs through the same turns. In each turn it claims parts, its own first, until none is
left, and waits for those that others have claimed. Which thread does a part leaves no trace in the
result, so one thread alone does the same as many; and no one waits for a thread that the system has
not let run: its parts are done by the others. A turn may be a few microseconds, far less than it
takes to wake a thread, so that who waits looks again and again.
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

_APART = 16  # numbers between two of the board: two cache lines
_PATIENCE = 512  # looks before the processor is offered to other threads
_ON_X86 = platform.machine().lower() in {"x86_64", "amd64"}


def new_board(n_parts: int) -> np.ndarray:
    """Return what `claim`, `finish` and `wait` write down: the turns of every part so far."""
    return np.zeros(2 * n_parts * _APART, np.int64)


def _entry(context, builder, kind, board, at):
    return builder.gep(data_of(context, builder, kind, board), [at])


@intrinsic
def _raise_by_one(_, board, at, value):
    """Set board[at] to value + 1 if it is value; tell whether it was."""

    def code(context, builder, sig, args):
        entry = _entry(context, builder, sig.args[0], args[0], args[1])
        more = builder.add(args[2], ir.Constant(args[2].type, 1))
        return builder.extract_value(builder.cmpxchg(entry, args[2], more, "acq_rel", "acquire"), 1)

    return types.boolean(board, types.intp, types.int64), code


@intrinsic
def _read(_, board, at):
    """Return board[at], and see all that was written before it."""

    def code(context, builder, sig, args):
        entry = _entry(context, builder, sig.args[0], args[0], args[1])
        return builder.load_atomic(entry, "acquire", 8)

    return types.int64(board, types.intp), code


@intrinsic
def _write(_, board, at, value):
    """Set board[at], for others to see after all that was written before it."""

    def code(context, builder, sig, args):
        entry = _entry(context, builder, sig.args[0], args[0], args[1])
        builder.store_atomic(args[2], entry, "release", 8)
        return context.get_dummy_value()

    return types.void(board, types.intp, types.int64), code


@intrinsic
def _pause(_):
    """Tell the processor that this is a loop that waits."""

    def code(context, builder, sig, args):
        if _ON_X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def _give_way(_):
    """Offer the processor to other threads, where the system has a call for it."""

    def code(context, builder, sig, args):
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), code


@inner
def claim(board, part, turn):
    """Tell whether the caller is to do this part in this turn."""
    return _raise_by_one(board, 2 * part * _APART, turn)


@inner
def finish(board, part, turn):
    """Say that a part is done."""
    _write(board, (2 * part + 1) * _APART, turn + 1)


@inner
def wait(board, turn):
    """Return when every part is done in this turn."""
    for at in range(_APART, board.shape[0], 2 * _APART):
        looks = 0
        while _read(board, at) <= turn:
            _pause()
            looks += 1
            if looks % _PATIENCE == 0:
                _give_way()
