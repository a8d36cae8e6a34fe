"""The two bounds of a roofline, measured on one core: multiply-adds in registers, and traffic.

Traffic is the speed at which numbers are read from the cache that holds them, and written back.

Uses internals: it imports modules of polyadic that are not public.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from common import medians
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from polyadic.kernels.simd import LANES, fill, load, padded, store

_CHAINS = 12  # two units times a latency of four cycles need eight; more would spill registers
_ROUNDS = 3_000_000  # steps of each chain for one measurement
_TRAFFIC = 400_000_000  # bytes to read for one measurement
_INDEX = ir.IntType(32)


def _spread(builder, kind, scalar):
    """Return a vector of copies of the scalar."""
    empty = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(empty, scalar, ir.Constant(_INDEX, 0))
    mask = ir.Constant(ir.VectorType(_INDEX, kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, empty, mask)


def multiply_adds(lanes: int) -> Callable:
    """Compile a loop of independent chains a = a * x + b on vectors of `lanes` numbers.

    The kernels' own vectors have eight lanes; a CPU with wider registers has a higher peak, and
    shares of the peak refer to that one. So the loop is written for any width.
    """
    kind = ir.VectorType(ir.FloatType(), lanes)

    @intrinsic
    def chains(_, rounds, x, b):
        def code(context, builder, sig, args):
            x, b = _spread(builder, kind, args[1]), _spread(builder, kind, args[2])
            # Each chain starts from another value: equal chains would be computed once.
            starts = [ir.Constant(kind, [float(n)] * lanes) for n in range(_CHAINS)]
            variables = [cgutils.alloca_once_value(builder, start) for start in starts]
            with cgutils.for_range(builder, args[0]):
                for a in variables:
                    product = builder.fmul(builder.load(a), x, flags=("contract",))
                    builder.store(builder.fadd(product, b, flags=("contract",)), a)
            out = builder.load(variables[0])
            for a in variables[1:]:
                out = builder.fadd(out, builder.load(a))
            return builder.extract_element(out, ir.Constant(_INDEX, 0))

        return types.float32(types.intp, types.float32, types.float32), code

    return njit(lambda rounds, x, b: chains(rounds, x, b))


@njit
def _update(numbers, rounds, x, b):
    """Read, change and write back all the numbers, `rounds` times."""
    for _ in range(rounds):
        for k in range(0, numbers.shape[0], LANES):
            store(numbers, k, load(numbers, k) * fill(numbers, x) + fill(numbers, b))


def bandwidth(n_bytes: int, repeats: int) -> float:
    """Return the bytes per second, read and written, over numbers of `n_bytes` in all."""
    numbers = np.ones(padded(n_bytes // 4), np.float32)
    rounds = max(1, _TRAFFIC // numbers.nbytes)
    work = {"update": lambda: _update(numbers, rounds, np.float32(0.5), np.float32(1.0))}
    return 2.0 * numbers.nbytes * rounds / medians(work, repeats)["update"]


def measure(repeats: int) -> dict[int, float]:
    """Return operations per second, a multiply-add counted as two, by the lanes of the vectors."""
    x, b = np.float32(0.5), np.float32(1.0)
    loops = {lanes: multiply_adds(lanes) for lanes in (8, 16)}
    works = {str(lanes): (lambda f=f: f(_ROUNDS, x, b)) for lanes, f in loops.items()}
    times = medians(works, repeats)
    return {lanes: 2.0 * lanes * _CHAINS * _ROUNDS / times[str(lanes)] for lanes in loops}
