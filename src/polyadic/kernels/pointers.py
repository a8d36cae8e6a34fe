"""The address of the numbers of an array, for code written in LLVM's intermediate language."""

from __future__ import annotations


def data_of(context, builder, kind, array):
    """Return the pointer to an array's numbers.

    This takes one instruction. Numba's `make_array` would write the whole array structure to the
    stack and read it back, code that LLVM then has to remove, at hundreds of loads and stores.
    """
    return context.data_model_manager[kind].get(builder, array, "data")
