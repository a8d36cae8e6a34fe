"""Variances of leaves, of pairs of them, and of leaves with smooth terms.

Shapes as in `polyadic.kernels.leaves`. A variance is a sum over pairs of terms; two leaves have a
part in common only where they have a column in common. One term is paired with several others at
once, `LANES` at most, so that all loops over pairs are over neighbouring numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, jit
from polyadic.kernels.leaves import SET

LANES = 64  # the space of a block of pairs stays in the fastest cache; chosen by hand


class ByPlace(NamedTuple):
    """The conditions of leaves, those of the same place on the path of a group's leaves neighbours.

    low, high : (P,) the share of the rows in the bins below an interval, and up to its end
    missing, mean : (P,) as `Terms.missing`, and the share of the rows that meet a condition
    number : (P,) the number of a set among those of its column, -1 for an interval
    """

    low: np.ndarray
    high: np.ndarray
    missing: np.ndarray
    mean: np.ndarray
    number: np.ndarray


class Pairing(NamedTuple):
    """What two groups of leaves have in common, and space for a block of pairs.

    own, other : (N,) places, among the conditions of a leaf, of the columns that both groups have
    only_own, only_other : (N,) places of those that one of them has
    column, chosen : (N,) the columns in common; a choice of them
    level : (LANES,) the product of both values, times the means of the columns not in common
    square, covariance : (N, LANES) mu mu' and V, for the columns in common
    orders, right, left : (N + 1, LANES)
    """

    own: np.ndarray
    other: np.ndarray
    only_own: np.ndarray
    only_other: np.ndarray
    column: np.ndarray
    chosen: np.ndarray
    level: np.ndarray
    square: np.ndarray
    covariance: np.ndarray
    orders: np.ndarray
    right: np.ndarray
    left: np.ndarray

    @classmethod
    def make(cls, n_columns: int) -> Pairing:
        """Return space for leaves of `n_columns` columns."""
        more = n_columns + 1
        return cls(
            own=np.empty(n_columns, np.int64),
            other=np.empty(n_columns, np.int64),
            only_own=np.empty(n_columns, np.int64),
            only_other=np.empty(n_columns, np.int64),
            column=np.empty(n_columns, np.int64),
            chosen=np.empty(n_columns, np.int64),
            level=np.empty(LANES),
            square=np.empty((n_columns, LANES)),
            covariance=np.empty((n_columns, LANES)),
            orders=np.empty((more, LANES)),
            right=np.empty((more, LANES)),
            left=np.empty((more, LANES)),
        )


class Numbering(NamedTuple):
    """The place of a set of columns in an array of all sets of one column, of two, and so on.

    start : (number of orders,) where the sets of an order begin
    choose : (N, number of orders + 1) binomial coefficients; a set c_1 < c_2 < ... has the place
        choose[c_1, 1] + choose[c_2, 2] + ... among those of its order
    """

    start: np.ndarray
    choose: np.ndarray


# ---- sums over a block of pairs ------------------------------------------------------------------


@inner
def _add_block(pairing, common, count, numbering, orders, totals, sets):
    """Add what a block of `count` pairs with `common` columns in common has to all variances."""
    _add_orders(pairing, common, count, orders)
    _add_totals(pairing, common, count, totals)
    _add_sets(pairing, common, count, numbering, sets)


@inner
def _add_orders(pairing, common, count, orders):
    """Add the coefficients in z of level prod_i (square_i + z covariance_i)."""
    found = pairing.orders
    for s in range(count):
        found[0, s] = pairing.level[s]
    for i in range(common):
        square, covariance = pairing.square[i], pairing.covariance[i]
        for s in range(count):
            found[i + 1, s] = found[i, s] * covariance[s]
        for k in range(i, 0, -1):
            for s in range(count):
                found[k, s] = found[k, s] * square[s] + found[k - 1, s] * covariance[s]
        for s in range(count):
            found[0, s] *= square[s]
    for k in range(common):
        total = 0.0
        for s in range(count):
            total += found[k + 1, s]
        orders[k] += total


@inner
def _add_totals(pairing, common, count, totals):
    """Add, for each column, what all terms with that column have: no other is left out."""
    right, left = pairing.right, pairing.left[0]
    for s in range(count):
        right[common, s] = 1.0
        left[s] = pairing.level[s]
    for i in range(common - 1, -1, -1):
        for s in range(count):
            both = pairing.square[i, s] + pairing.covariance[i, s]
            right[i, s] = right[i + 1, s] * both
    for i in range(common):
        total = 0.0
        for s in range(count):
            total += left[s] * pairing.covariance[i, s] * right[i + 1, s]
            left[s] *= pairing.square[i, s] + pairing.covariance[i, s]
        totals[pairing.column[i]] += total


@inner
def _add_sets(pairing, common, count, numbering, sets):
    """Add the variance of every set of columns in common, up to the largest order.

    The sets of an order are visited in lexicographic order. `left[at]` holds the product of the
    level, the covariances of the columns chosen before `at` and the squares of all others before
    `chosen[at]`: the next set changes only the last of them.
    """
    right, chosen = pairing.right, pairing.chosen
    for s in range(count):
        right[common, s] = 1.0
    for i in range(common - 1, -1, -1):
        for s in range(count):
            right[i, s] = right[i + 1, s] * pairing.square[i, s]
    for order in range(1, min(len(numbering.start), common) + 1):
        for s in range(count):
            pairing.left[0, s] = pairing.level[s]
        at, chosen[0] = 0, 0
        while at >= 0:
            _choose_next_columns(pairing, at, order, count)
            sets[_place(pairing, order, numbering)] += _sum_set(pairing, order, count)
            at = order - 1
            while at >= 0 and chosen[at] == common - order + at:
                at -= 1
            if at >= 0:
                for s in range(count):
                    pairing.left[at, s] *= pairing.square[chosen[at], s]
                chosen[at] += 1


@inner
def _choose_next_columns(pairing, at, order, count):
    """Choose the columns after that of `at` for the rest of a set, and go on with its products."""
    left, chosen = pairing.left, pairing.chosen
    for later in range(at + 1, order):
        chosen[later] = chosen[later - 1] + 1
        for s in range(count):
            left[later, s] = left[later - 1, s] * pairing.covariance[chosen[later - 1], s]


@inner
def _place(pairing, order, numbering):
    """Return the place of the chosen set of columns."""
    out = numbering.start[order - 1]
    for at in range(order):
        out += numbering.choose[pairing.column[pairing.chosen[at]], at + 1]
    return out


@inner
def _sum_set(pairing, order, count):
    """Return the sum over the block of the chosen set's products."""
    last = pairing.chosen[order - 1]
    left, right = pairing.left[order - 1], pairing.right[last + 1]
    covariance, out = pairing.covariance[last], 0.0
    for s in range(count):
        out += left[s] * covariance[s] * right[s]
    return out


# ---- pairs of leaves -----------------------------------------------------------------------------


@inner
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
            pairing.column[common] = terms.column[p]
            common += 1
            p += 1
            q += 1
    return common, alone, others


@inner
def _write_levels(terms, conditions, r, own_weight, h, others, begin, count, pairing):
    """Write the levels of leaf r with `count` leaves of group h, from the one at `begin` on."""
    first, size = terms.groups[h], terms.groups[h + 1] - terms.groups[h]
    level = pairing.level
    for s in range(count):
        level[s] = 0.0
    for w in range(terms.value.shape[1]):
        own = 2.0 * own_weight * terms.value[r, w]
        for s in range(count):
            level[s] += own * terms.value[first + begin + s, w]
    if first + begin == r:
        level[0] *= 0.5  # a leaf with itself is one pair, any other stands for two
    for i in range(others):
        start = terms.first[first] + pairing.only_other[i] * size + begin
        for s in range(count):
            level[s] *= conditions.mean[start + s]


@inner
def _write_shared(mass, conditions, p, q, column, count, square, covariance):
    """Write mu mu' and V of condition p with the conditions q, q + 1, ..., all on one column."""
    mean, both_missing = conditions.mean[p], conditions.missing[p] * mass.missing[column]
    for s in range(count):
        square[s] = mean * conditions.mean[q + s]
        covariance[s] = both_missing * conditions.missing[q + s] - square[s]
    if conditions.number[p] >= 0:
        row = mass.set_start[column] + conditions.number[p] * mass.set_count[column]
        for s in range(count):
            covariance[s] += mass.both[row + conditions.number[q + s]]
    else:
        low, high = conditions.low[p], conditions.high[p]
        for s in range(count):
            inside = min(high, conditions.high[q + s]) - max(low, conditions.low[q + s])
            covariance[s] += max(inside, 0.0)


@jit
def pair_variances(terms, mass, conditions, begin, end, numbering, pairing, orders, totals, sets):
    """Add the variances of pairs of leaves, for the groups begin ... end - 1 with all after them.

    orders : (N,) by order 1, 2, ...; totals : (N,) of all terms that a column has a part in;
    sets : of every set of columns that `numbering` has a place for.
    """
    n_groups = len(terms.groups) - 1
    for g in range(begin, end):
        own_first, own_size = terms.groups[g], terms.groups[g + 1] - terms.groups[g]
        for h in range(g, n_groups):
            first, size = terms.groups[h], terms.groups[h + 1] - terms.groups[h]
            if terms.output[own_first] != terms.output[first]:
                continue
            common, alone, others = _pair_groups(terms, g, h, pairing)
            if common == 0:
                continue
            for at in range(own_size):
                p = terms.first[own_first] + at
                own_weight = 1.0
                for i in range(alone):
                    own_weight *= conditions.mean[p + pairing.only_own[i] * own_size]
                for block in range(at if h == g else 0, size, LANES):
                    count = min(LANES, size - block)
                    _write_levels(
                        terms,
                        conditions,
                        own_first + at,
                        own_weight,
                        h,
                        others,
                        block,
                        count,
                        pairing,
                    )
                    for i in range(common):
                        _write_shared(
                            mass,
                            conditions,
                            p + pairing.own[i] * own_size,
                            terms.first[first] + pairing.other[i] * size + block,
                            pairing.column[i],
                            count,
                            pairing.square[i],
                            pairing.covariance[i],
                        )
                    _add_block(pairing, common, count, numbering, orders, totals, sets)


# ---- leaves with smooth terms --------------------------------------------------------------------


class Smooth(NamedTuple):
    """Terms that depend on every column, r = 0 ... R' - 1, and their moments with bins.

    weights : (L, R'); means : (N, R')
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


@inner
def _write_inside(terms, mass, smooth, p, begin, count, mean, square, covariance):
    """Write mu mu' and V of condition p of a leaf with `count` smooth terms, from `begin` on."""
    n, missing = terms.column[p], terms.missing[p]
    for r in range(count):
        square[r] = mean * smooth.means[n, begin + r]
        covariance[r] = missing * smooth.missing[n, begin + r] - square[r]
    if terms.high[p] == SET:
        for r in range(count):
            covariance[r] += smooth.sets[terms.low[p], begin + r]
    elif terms.low[p] <= terms.high[p]:
        lower, upper = mass.start[n] + terms.low[p] - 1, mass.start[n] + terms.high[p]
        for r in range(count):
            inside = smooth.cumulated[upper, begin + r] - smooth.cumulated[lower, begin + r]
            covariance[r] += inside


@inner
def _write_rest(terms, leader, smooth):
    """Write twice the product of the smooth terms' means of columns that a leaf does not have."""
    for r in range(len(smooth.rest)):
        smooth.rest[r] = 2.0
    at, end = terms.first[leader], terms.first[leader + 1]
    for n in range(len(smooth.means)):
        if at < end and terms.column[at] == n:
            at += 1
            continue
        for r in range(len(smooth.rest)):
            smooth.rest[r] *= smooth.means[n, r]


@jit
def cross_variances(
    terms, mass, means, smooth, begin, end, numbering, pairing, orders, totals, sets
):
    """Add twice the covariances of leaves and smooth terms, for the groups begin ... end - 1.

    means : (P,) the share of the rows that meet each condition, in the order of the leaves
    """
    rank = len(smooth.rest)
    for g in range(begin, end):
        leader = terms.groups[g]
        depth = terms.first[leader + 1] - terms.first[leader]
        for i in range(depth):
            pairing.column[i] = terms.column[terms.first[leader] + i]
        _write_rest(terms, leader, smooth)
        for s in range(leader, terms.groups[g + 1]):
            for block in range(0, rank, LANES):
                count = min(LANES, rank - block)
                for r in range(count):
                    pairing.level[r] = 0.0
                for w in range(terms.value.shape[1]):
                    value, weights = terms.value[s, w], smooth.weights[terms.output[s] + w]
                    for r in range(count):
                        pairing.level[r] += value * weights[block + r]
                for r in range(count):
                    pairing.level[r] *= smooth.rest[block + r]
                for i in range(depth):
                    p = terms.first[s] + i
                    _write_inside(
                        terms,
                        mass,
                        smooth,
                        p,
                        block,
                        count,
                        means[p],
                        pairing.square[i],
                        pairing.covariance[i],
                    )
                _add_block(pairing, depth, count, numbering, orders, totals, sets)
