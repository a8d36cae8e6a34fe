"""Where the numbers of an array lie, for code that is written in LLVM's terms."""

from __future__ import annotations


def data_of(context, builder, kind, array):
    """Return the pointer to an array's numbers.

    One instruction; `make_array` would write the array's whole description to the stack and read it
    back, for LLVM to take away again: the kernels have hundreds of loads and stores.
    """
    return context.data_model_manager[kind].get(builder, array, "data")
