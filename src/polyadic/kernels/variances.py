"""Variances of leaves, of pairs of them, and of leaves with smooth terms.

Shapes as in `polyadic.kernels.leaves`. A variance is a sum over pairs of terms; two leaves have a
part in common only where they have a column in common.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner_exact, jit_exact
from polyadic.kernels.leaves import SET, shared


class Pairing(NamedTuple):
    """What two groups of leaves have in common, and space for one pair of leaves.

    own, other : (N,) places, among the conditions of a leaf, of the columns that both groups have
    only_own, only_other : (N,) places of those that one of them has
    square, covariance : (N,) mu mu' and V, for the columns in common
    orders, right : (N + 1,)
    chosen : (N,)
    weight : (largest group,) the value of each leaf of the other group, times its own means
    """

    own: np.ndarray
    other: np.ndarray
    only_own: np.ndarray
    only_other: np.ndarray
    square: np.ndarray
    covariance: np.ndarray
    orders: np.ndarray
    right: np.ndarray
    chosen: np.ndarray
    weight: np.ndarray

    @classmethod
    def make(cls, n_columns: int, largest: int) -> Pairing:
        """Return space for leaves of `n_columns` columns, in groups of at most `largest`."""
        return cls(
            own=np.empty(n_columns, np.int64),
            other=np.empty(n_columns, np.int64),
            only_own=np.empty(n_columns, np.int64),
            only_other=np.empty(n_columns, np.int64),
            square=np.empty(n_columns),
            covariance=np.empty(n_columns),
            orders=np.empty(n_columns + 1),
            right=np.empty(n_columns + 1),
            chosen=np.empty(n_columns, np.int64),
            weight=np.empty(largest),
        )


@inner_exact
def _pair_groups(terms, g, h, pairing):
    """List the places of columns in common and of all others; return their numbers."""
    r, s = terms.groups[g], terms.groups[h]
    p, q = terms.first[r], terms.first[s]
    p_end, q_end = terms.first[r + 1], terms.first[s + 1]
    common = alone = others = 0
    while p < p_end or q < q_end:
        if q == q_end or (p < p_end and terms.column[p] < terms.column[q]):
            pairing.only_own[alone] = p - terms.first[r]
            alone += 1
            p += 1
        elif p == p_end or terms.column[q] < terms.column[p]:
            pairing.only_other[others] = q - terms.first[s]
            others += 1
            q += 1
        else:
            pairing.own[common] = p - terms.first[r]
            pairing.other[common] = q - terms.first[s]
            common += 1
            p += 1
            q += 1
    return common, alone, others


@inner_exact
def _product(means, start, places, count):
    out = 1.0
    for i in range(count):
        out *= means[start + places[i]]
    return out


@inner_exact
def _same_output(terms, r, s):
    """Return the sum over outputs of the products of two leaves' values."""
    width, shift = terms.value.shape[1], terms.output[r] - terms.output[s]
    out = 0.0
    if shift == 0:
        for w in range(width):
            out += terms.value[r, w] * terms.value[s, w]
    return out


class Numbering(NamedTuple):
    """The place of a set of columns in an array of all sets of one column, of two, and so on.

    start : (number of orders,) where the sets of an order begin
    choose : (N, number of orders + 1) binomial coefficients; a set c_1 < c_2 < ... has the place
        choose[c_1, 1] + choose[c_2, 2] + ... among those of its order
    """

    start: np.ndarray
    choose: np.ndarray


@jit_exact
def pair_variances(terms, mass, means, begin, end, numbering, pairing, orders, totals, sets):
    """Add the variances of pairs of leaves, for the groups begin ... end - 1 with all after them.

    orders : (N,) by order 1, 2, ...; totals : (N,) of all terms that a column has a part in;
    sets : of every set of columns that `numbering` has a place for.
    """
    n_groups = len(terms.groups) - 1
    for g in range(begin, end):
        for h in range(g, n_groups):
            common, alone, others = _pair_groups(terms, g, h, pairing)
            if common == 0:
                continue
            for s in range(terms.groups[h], terms.groups[h + 1]):
                pairing.weight[s - terms.groups[h]] = _product(
                    means, terms.first[s], pairing.only_other, others
                )
            for r in range(terms.groups[g], terms.groups[g + 1]):
                own_weight = _product(means, terms.first[r], pairing.only_own, alone)
                for s in range(r if h == g else terms.groups[h], terms.groups[h + 1]):
                    level = _same_output(terms, r, s) * own_weight
                    level *= pairing.weight[s - terms.groups[h]]
                    if level == 0.0:
                        continue
                    if r != s:
                        level *= 2.0
                    for i in range(common):
                        p = terms.first[r] + pairing.own[i]
                        q = terms.first[s] + pairing.other[i]
                        square = means[p] * means[q]
                        pairing.square[i] = square
                        pairing.covariance[i] = shared(terms, mass, p, q) - square
                    _add_orders(pairing, common, level, orders)
                    _add_totals(terms, r, pairing, common, level, totals)
                    _add_sets(terms, r, pairing, common, level, numbering, sets)


@inner_exact
def _add_orders(pairing, common, level, orders):
    """Add the coefficients in z of level prod_i (square_i + z covariance_i)."""
    found = pairing.orders
    found[0] = level
    for i in range(common):
        found[i + 1] = found[i] * pairing.covariance[i]
        for k in range(i, 0, -1):
            found[k] = found[k] * pairing.square[i] + found[k - 1] * pairing.covariance[i]
        found[0] *= pairing.square[i]
    for k in range(common):
        orders[k] += found[k + 1]


@inner_exact
def _add_totals(terms, r, pairing, common, level, totals):
    """Add, for each column, what all terms with that column have: no other is left out."""
    right = pairing.right
    right[common] = 1.0
    for i in range(common - 1, -1, -1):
        right[i] = right[i + 1] * (pairing.square[i] + pairing.covariance[i])
    left = level
    for i in range(common):
        n = terms.column[terms.first[r] + pairing.own[i]]
        totals[n] += left * pairing.covariance[i] * right[i + 1]
        left *= pairing.square[i] + pairing.covariance[i]


@inner_exact
def _next_choice(chosen, order, count):
    """Advance to the next `order` of `count` things, ascending; return False after the last."""
    at = order - 1
    while at >= 0 and chosen[at] == count - order + at:
        at -= 1
    if at < 0:
        return False
    chosen[at] += 1
    for later in range(at + 1, order):
        chosen[later] = chosen[later - 1] + 1
    return True


@inner_exact
def _add_sets(terms, r, pairing, common, level, numbering, sets):
    """Add the variance of every set of columns in common, up to the largest order."""
    chosen, first = pairing.chosen, terms.first[r]
    for order in range(1, min(len(numbering.start), common) + 1):
        for i in range(order):
            chosen[i] = i
        more = True
        while more:
            product, place, at = level, numbering.start[order - 1], 0
            for i in range(common):
                if at < order and chosen[at] == i:
                    product *= pairing.covariance[i]
                    at += 1
                    place += numbering.choose[terms.column[first + pairing.own[i]], at]
                else:
                    product *= pairing.square[i]
            sets[place] += product
            more = _next_choice(chosen, order, common)


# ---- leaves with smooth terms --------------------------------------------------------------------


class Smooth(NamedTuple):
    """Terms that depend on every column, r = 0 ... R' - 1, and their moments with bins.

    weights : (R', L); means : (N, R')
    cumulated : (-, R') the mean of g_nr in bins 1 ... b, laid out as `Mass.cumulated`
    missing : (N, R') the same for bin 0; sets : (G, R') for the other bins of each set
    rest : (R',) space
    """

    weights: np.ndarray
    means: np.ndarray
    cumulated: np.ndarray
    missing: np.ndarray
    sets: np.ndarray
    rest: np.ndarray


@inner_exact
def _mean_inside(terms, mass, smooth, p, r):
    """Return the mean of g_nr times the indicator of condition p, which is on column n."""
    n = terms.column[p]
    out = terms.missing[p] * smooth.missing[n, r]
    if terms.high[p] == SET:
        out += smooth.sets[terms.low[p], r]
    elif terms.low[p] <= terms.high[p]:
        upper = smooth.cumulated[mass.start[n] + terms.high[p], r]
        out += upper - smooth.cumulated[mass.start[n] + terms.low[p] - 1, r]
    return out


@jit_exact
def cross_variances(
    terms, mass, means, smooth, begin, end, numbering, pairing, orders, totals, sets
):
    """Add twice the covariances of leaves and smooth terms, for the groups begin ... end - 1."""
    rank, n_columns = len(smooth.weights), len(smooth.means)
    for g in range(begin, end):
        leader = terms.groups[g]
        depth = terms.first[leader + 1] - terms.first[leader]
        for i in range(depth):
            pairing.own[i] = i
        for r in range(rank):
            smooth.rest[r] = 2.0
        at = terms.first[leader]
        for n in range(n_columns):
            if at < terms.first[leader + 1] and terms.column[at] == n:
                at += 1
                continue
            for r in range(rank):
                smooth.rest[r] *= smooth.means[n, r]
        for s in range(leader, terms.groups[g + 1]):
            for r in range(rank):
                level = 0.0
                for w in range(terms.value.shape[1]):
                    level += smooth.weights[r, terms.output[s] + w] * terms.value[s, w]
                level *= smooth.rest[r]
                if level == 0.0:
                    continue
                for i in range(depth):
                    p = terms.first[s] + i
                    square = means[p] * smooth.means[terms.column[p], r]
                    pairing.square[i] = square
                    pairing.covariance[i] = _mean_inside(terms, mass, smooth, p, r) - square
                _add_orders(pairing, depth, level, orders)
                _add_totals(terms, s, pairing, depth, level, totals)
                _add_sets(terms, s, pairing, depth, level, numbering, sets)
