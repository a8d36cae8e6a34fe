"""The basis functions of the maps, compiled.

Shapes: x, z, u : (n,) float64; index : (n, s) int32; value : (n, s) float32 or float64. Every
function fills `index` or `value` in place. NaN stands for a missing number and encodes to zeros.
Arithmetic is float64 throughout and is rounded once, on storing.
"""

from __future__ import annotations

import numpy as np

from polyadic.kernels.jit import inner_exact, jit_exact

TINY = 1e-37  # just above the subnormal numbers of float32, which are slow and set to zero
BLOCK = 64  # rows searched at once, so that they stay in the nearest cache


@inner_exact
def _find_cells(x, knots, begin, end, at, index):
    """Write the cell that each of x[begin:end] is in, from knot k to knot k + 1, to index[:, at].

    A binary search, in which each step is done for all x: the steps of one x depend on each other,
    those of several x do not. A step shifts the result of the comparison; LLVM would turn a product
    into a branch, and on random data the CPU mispredicts half of the branches.
    """
    last = len(knots) - 1
    levels = 0
    while 2 << levels <= last:
        levels += 1
    ahead = max(last - (1 << levels), 0)
    for i in range(begin, end):  # which of two spans of 2^levels cells, which overlap
        index[i, at] = ahead * (knots[ahead] <= x[i])
    for level in range(levels - 1, -1, -1):
        for i in range(begin, end):
            index[i, at] += np.int64(knots[index[i, at] + (1 << level)] <= x[i]) << level


@inner_exact
def write_hats(x, knots, first, missing, at, index, value):
    """Write the two hats around x to the slots `at` and `at` + 1; see `hats`."""
    last = len(knots) - 1
    for begin in range(0, len(x), BLOCK):
        _find_cells(x, knots, begin, min(begin + BLOCK, len(x)), at, index)
    for i in range(len(x)):
        xi = x[i]
        if np.isnan(xi):
            index[i, at] = index[i, at + 1] = first - 1
            value[i, at], value[i, at + 1] = missing, 0.0
            continue
        lower = np.int64(index[i, at])
        upper = min(lower + 1, last)
        left, right = knots[lower], knots[upper]
        if np.isinf(right - left):  # knots at both ends of the float range
            t = (0.5 * xi - 0.5 * left) / (0.5 * right - 0.5 * left)
        elif left < right:
            t = (xi - left) / (right - left)
        else:  # the only knot
            t = 0.0
        t = 0.0 if t < 0.0 else t  # beyond the ends
        t = 1.0 if t > 1.0 else t
        index[i, at] = first + lower
        index[i, at + 1] = first + upper
        value[i, at] = 1.0 - t
        value[i, at + 1] = t


@jit_exact
def hats(x, knots, first, missing, index, value):
    """Write the two hats around x, element first + k for knot k; knots : (K,) ascending.

    A missing number is encoded as the element before these, the constant, with value `missing`.
    """
    write_hats(x, knots, first, missing, 0, index, value)


@jit_exact
def bsplines(u, knots, degree, workspace, index, value):
    """Write the degree + 1 B-splines that are non-zero at u, element 1 + k for spline k.

    knots : the clamped knot vector, each end repeated degree + 1 times and every inner knot once;
    workspace : (3, degree + 1), a work array.
    """
    left, right, basis = workspace[0], workspace[1], workspace[2]
    for i in range(len(u)):
        ui = u[i]
        if np.isnan(ui):
            for j in range(degree + 1):
                index[i, j] = 0
                value[i, j] = 0.0
            continue
        span = degree
        size = len(knots) - 2 * degree - 1
        while size > 1:
            half = size >> 1
            span += half * (knots[span + half] <= ui)
            size -= half
        basis[0] = 1.0
        for j in range(1, degree + 1):  # the recursion of Cox and de Boor, by degree
            left[j] = ui - knots[span + 1 - j]
            right[j] = knots[span + j] - ui
            carried = 0.0
            for r in range(j):
                part = basis[r] / (right[r + 1] + left[j - r])
                basis[r] = carried + right[r + 1] * part
                carried = left[j - r] * part
            basis[j] = carried
        for j in range(degree + 1):
            index[i, j] = 1 + span - degree + j
            value[i, j] = basis[j]


@jit_exact
def powers(z, value):
    """Write z, z^2, ..., one power per slot."""
    for i in range(len(z)):
        zi = 0.0 if np.isnan(z[i]) else z[i]
        power = 1.0
        for k in range(value.shape[1]):
            power *= zi
            value[i, k] = power


@jit_exact
def unit_powers(z, value):
    """Write 1, z, z^2, ... divided by their Euclidean norm; z may be infinite.

    If |z| > 1 the vector is first divided by its largest power, z^(d-1), so that it consists of
    powers of 1/z, from the last element to the first. Nothing overflows for any z.
    """
    d = value.shape[1]
    for i in range(len(z)):
        zi = 0.0 if np.isnan(z[i]) else z[i]
        outside = abs(zi) > 1.0
        ratio = 1.0 / zi if outside else zi
        square = ratio * ratio
        total = term = 1.0
        for _ in range(1, d):
            term *= square
            if term < 1e-17:  # nothing left to add to a sum of at least one
                break
            total += term
        power = 1.0 / np.sqrt(total)
        if outside and zi < 0.0 and d % 2 == 0:
            power = -power  # the sign of z^(d-1), which was divided out
        for k in range(d):
            value[i, d - 1 - k if outside else k] = power
            power *= ratio
            if abs(power) < TINY:
                power = 0.0


@jit_exact
def chebyshev(u, value):
    """Write T_1(u), T_2(u), ..., with |u| <= 1, by T_{k+1} = 2 u T_k - T_{k-1}."""
    for i in range(len(u)):
        ui = u[i]
        if np.isnan(ui):
            for k in range(value.shape[1]):
                value[i, k] = 0.0
            continue
        before, now = 1.0, ui
        for k in range(value.shape[1]):
            value[i, k] = now
            before, now = now, 2.0 * ui * now - before


@jit_exact
def harmonics(u, value):
    """Write cos(pi u), sin(pi u), cos(2 pi u), sin(2 pi u), ..., turning by pi u each time."""
    for i in range(len(u)):
        ui = u[i]
        if np.isnan(ui):
            for k in range(value.shape[1]):
                value[i, k] = 0.0
            continue
        cosine, sine = np.cos(np.pi * ui), np.sin(np.pi * ui)
        c, s = cosine, sine
        for k in range(value.shape[1] // 2):
            value[i, 2 * k] = c
            value[i, 2 * k + 1] = s
            c, s = c * cosine - s * sine, s * cosine + c * sine
