"""Shapley values of leaves: products of indicators of the bins of a few columns.

Shapes: R leaves, P conditions of all leaves together, N columns, n rows, L outputs. A leaf with D
conditions depends on a row only through which of them the row meets, its *pattern*, a number of D
bits. So its Shapley values are looked up in a table of 2^D patterns, which does not depend on the
number of background rows. Leaves with too many conditions for a table are integrated over t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, inner_exact, jit, jit_exact
from polyadic.kernels.trees import SET


class Terms(NamedTuple):
    """The conditions of leaves: see `polyadic.networks.trees.Leaves`."""

    first: np.ndarray
    column: np.ndarray
    low: np.ndarray
    high: np.ndarray
    missing: np.ndarray
    sets: np.ndarray
    value: np.ndarray
    output: np.ndarray
    groups: np.ndarray


class Mass(NamedTuple):
    """The marginals of the columns, by bins.

    cumulated : the share of the rows in bins 1 ... b, for b = 0, 1, ..., of all columns in a row
    start : (N,) where a column starts in it
    missing : (N,) the share of rows in bin 0
    of_set : (G,) the share of the rows in the bins of a set
    both : the same for two sets at once, for the sets of each column, flat; only for variances
    set_start : (N,) where a column starts in it
    set_count, set_first : (N,) number of sets of a column, and the number of its first one
    """

    cumulated: np.ndarray
    start: np.ndarray
    missing: np.ndarray
    of_set: np.ndarray
    both: np.ndarray
    set_start: np.ndarray
    set_count: np.ndarray
    set_first: np.ndarray


@inner_exact
def _factor(terms, p, one):
    """Return 1 if a bin meets a condition and 0 if not; of missing values, perhaps a share."""
    if one == 0:
        return terms.missing[p]
    if terms.high[p] == SET:
        return 1.0 if terms.sets[terms.low[p], one] else 0.0
    return 1.0 if terms.low[p] <= one <= terms.high[p] else 0.0


@inner_exact
def _patterns(terms, r, bins, out):
    """Write which conditions of leaf r each row meets to out : (n,); bins : (N, n).

    For rows without a missing value that is a share.
    """
    start = terms.first[r]
    for i in range(len(out)):
        out[i] = 0
    for p in range(start, terms.first[r + 1]):
        own, bit = bins[terms.column[p]], np.int32(1 << (p - start))
        low, high, missing = terms.low[p], terms.high[p], terms.missing[p]
        if high == SET:
            for i in range(len(out)):
                out[i] |= bit * np.int32(terms.sets[low, own[i]])
        elif missing > 0.0:
            for i in range(len(out)):
                out[i] |= bit * np.int32((low <= own[i] <= high) | (own[i] == 0))
        else:  # low is at least 1
            for i in range(len(out)):
                out[i] |= bit * np.int32((low <= own[i]) & (own[i] <= high))


# ---- the marginals -------------------------------------------------------------------------------


@jit_exact
def condition_means(terms, mass, out):
    """Write the share of the rows that meet each condition, (P,)."""
    for p in range(len(out)):
        n, low, high = terms.column[p], terms.low[p], terms.high[p]
        known = 0.0
        if high == SET:
            known = mass.of_set[low]
        elif low <= high:
            start = mass.start[n]
            known = mass.cumulated[start + high] - mass.cumulated[start + low - 1]
        out[p] = known + terms.missing[p] * mass.missing[n]


@jit_exact
def leaf_means(terms, means, skipped, out):
    """Write the product of the means of each leaf's conditions, of columns that are not skipped."""
    for r in range(len(out)):
        product = 1.0
        for p in range(terms.first[r], terms.first[r + 1]):
            if not skipped[terms.column[p]]:
                product *= means[p]
        out[r] = product


@jit_exact
def means_of_rows(terms, skipped, bins, inside, out):
    """Write the share of rows that meet all conditions of each leaf, of columns not skipped.

    skipped : (N,) uint8; bins : (N, n); inside : (n,) float64 space. A leaf may have more
    conditions than a pattern has bits.
    """
    for r in range(len(out)):
        for i in range(len(inside)):
            inside[i] = 1.0
        for p in range(terms.first[r], terms.first[r + 1]):
            n = terms.column[p]
            if not skipped[n]:
                for i in range(len(inside)):
                    inside[i] *= _factor(terms, p, bins[n, i])
        total = 0.0
        for i in range(len(inside)):
            total += inside[i]
        out[r] = total / len(inside)


@jit_exact
def add_along(terms, begin, inside, skipped, bins, out):
    """Add leaves begin, begin + 1, ... to out : (n, L, k), where skipped columns have k points.

    inside : (number of leaves, k) their conditions on the skipped columns at each point;
    skipped : (N,) uint8; bins : (N, n).
    """
    for j in range(len(inside)):
        r = begin + j
        for i in range(len(out)):
            product = 1.0
            for p in range(terms.first[r], terms.first[r + 1]):
                n = terms.column[p]
                if not skipped[n]:
                    product *= _factor(terms, p, bins[n, i])
                    if product == 0.0:
                        break
            if product == 0.0:
                continue
            for w in range(terms.value.shape[1]):
                value = product * terms.value[r, w]
                here = out[i, terms.output[r] + w]
                for k in range(inside.shape[1]):
                    here[k] += value * inside[j, k]


# ---- Shapley values by patterns ------------------------------------------------------------------


@inner_exact
def _rest_of_marginals(means, start, depth, rest):
    """Write for every set of conditions the share of the rows that meet them: a product."""
    rest[0] = 1.0
    for i in range(depth):
        bit = 1 << i
        for chosen in range(bit):
            rest[bit + chosen] = rest[chosen] * means[start + i]


@inner_exact
def _rest_of_rows(terms, r, depth, bins, pattern, rest):
    """Do the same for given rows: count their patterns, then add those of all larger sets."""
    _patterns(terms, r, bins, pattern)
    size = 1 << depth
    for chosen in range(size):
        rest[chosen] = 0.0
    for i in range(len(pattern)):
        rest[pattern[i]] += 1.0
    for chosen in range(size):
        rest[chosen] /= len(pattern)
    for i in range(depth):
        for chosen in range(size):
            if not chosen >> i & 1:
                rest[chosen] += rest[chosen | 1 << i]


@inner_exact
def _write_rest(terms, r, means, bins, pattern, rest):
    """Write the shares of the sets of conditions of leaf r, and return its number of conditions.

    With bins : (N, b) of background rows the shares are theirs; with b = 0, those of the marginals.
    """
    start = terms.first[r]
    depth = terms.first[r + 1] - start
    if bins.shape[1]:
        _rest_of_rows(terms, r, depth, bins, pattern, rest)
    else:
        _rest_of_marginals(means, start, depth, rest)
    return depth


@inner_exact
def _sum_subsets(depth, table):
    """Replace each entry by the sum over all subsets of its bits; table : (2^D,)."""
    for i in range(depth):
        bit = 1 << i
        for begin in range(0, 1 << depth, 2 * bit):
            for chosen in range(begin, begin + bit):
                table[chosen + bit] += table[chosen]


@inner_exact
def _size(chosen):
    count = 0
    while chosen:
        count += chosen & 1
        chosen >>= 1
    return count


@jit_exact
def write_tables(terms, leaves, means, bins, shares, pattern, rest, at, table):
    """Write the Shapley values of each pattern, D times 2^D numbers for a leaf of D conditions.

    leaves : (m,), their numbers; at : (m,), where the table of a leaf starts; shares : (D, D), the
    share of the orders of D columns in which k given ones come first and another one next.

    The value of a set S of columns is rest[others] where the row meets all conditions of S, and
    zero elsewhere. So each column's Shapley value is a sum over the subsets of the pattern.
    """
    for j in range(len(leaves)):
        depth = _write_rest(terms, leaves[j], means, bins, pattern, rest)
        size = 1 << depth
        for i in range(depth):
            own = table[at[j] + i * size : at[j] + (i + 1) * size]
            for chosen in range(size):
                count = _size(chosen)
                share = shares[depth, count - 1] if chosen >> i & 1 else -shares[depth, count]
                own[chosen] = share * rest[size - 1 - chosen]
            _sum_subsets(depth, own)


@jit_exact
def write_pair_tables(terms, leaves, means, bins, shares, pattern, rest, at, table):
    """Do the same for the interaction of each pair of conditions, D (D - 1) / 2 times 2^D."""
    for j in range(len(leaves)):
        depth = _write_rest(terms, leaves[j], means, bins, pattern, rest)
        size, here = 1 << depth, at[j]
        for i in range(depth):
            for k in range(i):
                own = table[here : here + size]
                for chosen in range(size):
                    both = (chosen >> i & 1) + (chosen >> k & 1)
                    share = shares[depth - 1, _size(chosen) - both]
                    own[chosen] = (-share if both == 1 else share) * rest[size - 1 - chosen]
                _sum_subsets(depth, own)
                here += size


@inner_exact
def _add_entries(table, pattern, value, out):
    """Add the entry of each row's pattern, times a value, to out : (n,)."""
    for row in range(len(pattern)):
        out[row] += value * table[pattern[row]]


@jit_exact
def look_up(terms, leaves, at, table, bins, pattern, out):
    """Look up the Shapley values of rows and add them to out : (L, N, n); bins : (N, n).

    With out : (L, N, N, n), those of pairs, above the diagonal.
    """
    for j in range(len(leaves)):
        r = leaves[j]
        start = terms.first[r]
        depth = terms.first[r + 1] - start
        column, size = terms.column[start : start + depth], 1 << depth
        _patterns(terms, r, bins, pattern)
        for w in range(terms.value.shape[1]):
            value, output, here = terms.value[r, w], terms.output[r] + w, at[j]
            for i in range(depth):
                if out.ndim == 3:
                    own = table[here : here + size]
                    _add_entries(own, pattern, value, out[output, column[i]])
                    here += size
                else:
                    for k in range(i):
                        own = table[here : here + size]
                        _add_entries(own, pattern, value, out[output, column[k], column[i]])
                        here += size


# ---- Shapley values by integrals, for long paths -------------------------------------------------


class Integral(NamedTuple):
    """Nodes and weights in 0..1, and space for D numbers each."""

    nodes: np.ndarray
    weights: np.ndarray
    mean: np.ndarray
    step: np.ndarray
    before: np.ndarray


@inner
def _set_steps(terms, r, means, bins, row, backgrounds, b, integral):
    """Write for each condition its mean over the background, and how far the row is from it."""
    start = terms.first[r]
    for p in range(start, terms.first[r + 1]):
        n = terms.column[p]
        mean = means[p]
        if backgrounds.shape[1]:
            mean = _factor(terms, p, backgrounds[n, b])
        integral.mean[p - start] = mean
        integral.step[p - start] = _factor(terms, p, bins[n, row]) - mean


@inner
def _set_before(depth, t, weight, integral):
    """Write the products of the factors before each condition, at t on the line to the row."""
    mean, step, before = integral.mean, integral.step, integral.before
    before[0] = weight
    for i in range(depth - 1):
        before[i + 1] = before[i] * (mean[i] + t * step[i])


@inner
def _add_node(terms, r, depth, t, integral, row, out):
    """Add what one node adds to the Shapley values of a row."""
    start = terms.first[r]
    mean, step, before = integral.mean, integral.step, integral.before
    after = 1.0
    for i in range(depth - 1, -1, -1):
        part = before[i] * after * step[i]
        for w in range(terms.value.shape[1]):
            out[terms.output[r] + w, terms.column[start + i], row] += terms.value[r, w] * part
        after *= mean[i] + t * step[i]


@inner
def _add_node_pairs(terms, r, depth, t, integral, row, out):
    """Do the same for pairs, above the diagonal."""
    start = terms.first[r]
    mean, step, before = integral.mean, integral.step, integral.before
    after = 1.0
    for i in range(depth - 1, 0, -1):
        between = after * step[i]
        for k in range(i - 1, -1, -1):
            part = before[k] * between * step[k]
            for w in range(terms.value.shape[1]):
                pair = out[terms.output[r] + w, terms.column[start + k], terms.column[start + i]]
                pair[row] += terms.value[r, w] * part
            between *= mean[k] + t * step[k]
        after *= mean[i] + t * step[i]


@jit
def integrate(terms, leaves, means, bins, backgrounds, integral, out):
    """Add the Shapley values of leaves with many conditions to out : (L, N, n).

    With out : (L, N, N, n), those of pairs, above the diagonal.
    """
    n_backgrounds = max(backgrounds.shape[1], 1)
    for r in leaves:
        depth = terms.first[r + 1] - terms.first[r]
        n_nodes = (depth + 1) // 2
        nodes, weights = integral.nodes[depth], integral.weights[depth]
        for row in range(bins.shape[1]):
            for b in range(n_backgrounds):
                _set_steps(terms, r, means, bins, row, backgrounds, b, integral)
                for q in range(n_nodes):
                    _set_before(depth, nodes[q], weights[q] / n_backgrounds, integral)
                    if out.ndim == 3:
                        _add_node(terms, r, depth, nodes[q], integral, row, out)
                    else:
                        _add_node_pairs(terms, r, depth, nodes[q], integral, row, out)
