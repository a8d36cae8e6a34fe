"""Shapley values and variances of leaves: products of indicators of the bins of a few columns.

Shapes: R leaves, P conditions of all leaves together, N columns, n rows, L outputs. A leaf with D
conditions depends on a row only through which of them the row meets, its *pattern*, a number of D
bits. So its Shapley values are looked up in a table of 2^D patterns, which does not depend on the
number of background rows. Leaves with too many conditions for a table are integrated over t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner, inner_exact, jit, jit_exact

SET = -1  # in place of the last bin: the condition is a set


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
    both : the share of the rows in two sets at once, for the sets of each column, flat
    set_start : (N,) where a column starts in it
    set_count, set_first : (N,) number of sets of a column, and the number of its first one
    """

    cumulated: np.ndarray
    start: np.ndarray
    missing: np.ndarray
    both: np.ndarray
    set_start: np.ndarray
    set_count: np.ndarray
    set_first: np.ndarray


@inner_exact
def _meets(terms, p, one):
    if terms.high[p] == SET:
        return terms.sets[terms.low[p], one] != 0
    if one == 0:
        return terms.missing[p] != 0
    return terms.low[p] <= one <= terms.high[p]


@inner_exact
def _patterns(terms, r, bins, out):
    """Write which conditions of leaf r each row meets to out : (n,); bins : (N, n)."""
    start = terms.first[r]
    for i in range(len(out)):
        out[i] = 0
    for p in range(start, terms.first[r + 1]):
        own, bit = bins[terms.column[p]], np.int32(1 << (p - start))
        low, high, missing = terms.low[p], terms.high[p], terms.missing[p]
        if high == SET:
            for i in range(len(out)):
                out[i] |= bit * np.int32(terms.sets[low, own[i]])
        elif missing:
            for i in range(len(out)):
                out[i] |= bit * np.int32((low <= own[i] <= high) | (own[i] == 0))
        else:  # low is at least 1
            for i in range(len(out)):
                out[i] |= bit * np.int32((low <= own[i]) & (own[i] <= high))


# ---- the marginals -------------------------------------------------------------------------------


@inner_exact
def _shared(terms, mass, p, q):
    """Return the share of the rows that meet both conditions, which are on the same column."""
    n = terms.column[p]
    if terms.high[p] == SET:
        row = terms.low[p] - mass.set_first[n]
        return mass.both[
            mass.set_start[n] + row * mass.set_count[n] + terms.low[q] - mass.set_first[n]
        ]
    low, high = max(terms.low[p], terms.low[q]), min(terms.high[p], terms.high[q])
    out = 0.0
    if low <= high:
        out = mass.cumulated[mass.start[n] + high] - mass.cumulated[mass.start[n] + low - 1]
    if terms.missing[p] and terms.missing[q]:
        out += mass.missing[n]
    return out


@jit_exact
def condition_means(terms, mass, out):
    """Write the share of the rows that meet each condition, (P,)."""
    for p in range(len(out)):
        out[p] = _shared(terms, mass, p, p)


@jit_exact
def means_of_rows(terms, begin, end, skipped, bins, pattern, out):
    """Write the share of rows that meet all conditions of leaves begin ... end - 1 to out.

    skipped : (N,) uint8, columns whose conditions do not count.
    """
    for r in range(begin, end):
        start = terms.first[r]
        asked = np.int32(0)
        for p in range(start, terms.first[r + 1]):
            if not skipped[terms.column[p]]:
                asked |= np.int32(1 << (p - start))
        count = 0
        _patterns(terms, r, bins, pattern)
        for i in range(len(pattern)):
            count += (pattern[i] & asked) == asked
        out[r - begin] = count / len(pattern)


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
    share of the orders of D columns in which k given ones come first and another one next. With
    bins : (N, b) of background rows the means are theirs; with b = 0, those of the marginals.

    The value of a set S of columns is rest[others] where the row meets all conditions of S, and
    zero elsewhere. So each column's Shapley value is a sum over the subsets of the pattern.
    """
    for j in range(len(leaves)):
        r = leaves[j]
        start = terms.first[r]
        depth = terms.first[r + 1] - start
        size = 1 << depth
        if bins.shape[1]:
            _rest_of_rows(terms, r, depth, bins, pattern, rest)
        else:
            _rest_of_marginals(means, start, depth, rest)
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
        r = leaves[j]
        start = terms.first[r]
        depth = terms.first[r + 1] - start
        size, here = 1 << depth, at[j]
        if bins.shape[1]:
            _rest_of_rows(terms, r, depth, bins, pattern, rest)
        else:
            _rest_of_marginals(means, start, depth, rest)
        for i in range(depth):
            for k in range(i):
                own = table[here : here + size]
                for chosen in range(size):
                    both = (chosen >> i & 1) + (chosen >> k & 1)
                    share = shares[depth - 1, _size(chosen) - both]
                    own[chosen] = (-share if both == 1 else share) * rest[size - 1 - chosen]
                _sum_subsets(depth, own)
                here += size


@jit_exact
def add_values(terms, leaves, at, table, bins, pattern, out):
    """Look up the Shapley values of rows and add them to out : (L, N, n); bins : (N, n)."""
    for j in range(len(leaves)):
        r = leaves[j]
        start = terms.first[r]
        depth = terms.first[r + 1] - start
        _patterns(terms, r, bins, pattern)
        for w in range(terms.value.shape[1]):
            value = terms.value[r, w]
            for i in range(depth):
                own = table[at[j] + (i << depth) : at[j] + ((i + 1) << depth)]
                column = out[terms.output[r] + w, terms.column[start + i]]
                for row in range(len(pattern)):
                    column[row] += value * own[pattern[row]]


@jit_exact
def add_pairs(terms, leaves, at, table, bins, pattern, out):
    """Do the same for pairs, out : (L, N, N, n), above the diagonal."""
    for j in range(len(leaves)):
        r = leaves[j]
        start = terms.first[r]
        depth = terms.first[r + 1] - start
        _patterns(terms, r, bins, pattern)
        for w in range(terms.value.shape[1]):
            value, here = terms.value[r, w], at[j]
            for i in range(depth):
                for k in range(i):
                    own = table[here : here + (1 << depth)]
                    pair = out[
                        terms.output[r] + w, terms.column[start + k], terms.column[start + i]
                    ]
                    for row in range(len(pattern)):
                        pair[row] += value * own[pattern[row]]
                    here += 1 << depth


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
            mean = 1.0 if _meets(terms, p, backgrounds[n, b]) else 0.0
        integral.mean[p - start] = mean
        integral.step[p - start] = (1.0 if _meets(terms, p, bins[n, row]) else 0.0) - mean


@jit
def integrate_values(terms, leaves, means, bins, backgrounds, integral, out):
    """Add the Shapley values of leaves with many conditions to out : (L, N, n)."""
    n_backgrounds = max(backgrounds.shape[1], 1)
    mean, step, before = integral.mean, integral.step, integral.before
    for r in leaves:
        start = terms.first[r]
        depth = terms.first[r + 1] - start
        n_nodes = (depth + 1) // 2
        nodes, weights = integral.nodes[depth], integral.weights[depth]
        for row in range(bins.shape[1]):
            for b in range(n_backgrounds):
                _set_steps(terms, r, means, bins, row, backgrounds, b, integral)
                for q in range(n_nodes):
                    t = nodes[q]
                    before[0] = weights[q] / n_backgrounds
                    for i in range(depth - 1):
                        before[i + 1] = before[i] * (mean[i] + t * step[i])
                    after = 1.0
                    for i in range(depth - 1, -1, -1):
                        part = before[i] * after * step[i]
                        for w in range(terms.value.shape[1]):
                            out[terms.output[r] + w, terms.column[start + i], row] += (
                                terms.value[r, w] * part
                            )
                        after *= mean[i] + t * step[i]


@jit
def integrate_pairs(terms, leaves, means, bins, backgrounds, integral, out):
    """Do the same for pairs, out : (L, N, N, n), above the diagonal."""
    n_backgrounds = max(backgrounds.shape[1], 1)
    mean, step, before = integral.mean, integral.step, integral.before
    for r in leaves:
        start = terms.first[r]
        depth = terms.first[r + 1] - start
        n_nodes = (depth + 1) // 2
        nodes, weights = integral.nodes[depth], integral.weights[depth]
        for row in range(bins.shape[1]):
            for b in range(n_backgrounds):
                _set_steps(terms, r, means, bins, row, backgrounds, b, integral)
                for q in range(n_nodes):
                    t = nodes[q]
                    before[0] = weights[q] / n_backgrounds
                    for i in range(depth - 1):
                        before[i + 1] = before[i] * (mean[i] + t * step[i])
                    after = 1.0
                    for i in range(depth - 1, 0, -1):
                        between = after * step[i]
                        for k in range(i - 1, -1, -1):
                            part = before[k] * between * step[k]
                            for w in range(terms.value.shape[1]):
                                pair = out[
                                    terms.output[r] + w,
                                    terms.column[start + k],
                                    terms.column[start + i],
                                ]
                                pair[row] += terms.value[r, w] * part
                            between *= mean[k] + t * step[k]
                        after *= mean[i] + t * step[i]


# ---- variances -----------------------------------------------------------------------------------


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
                        pairing.covariance[i] = _shared(terms, mass, p, q) - square
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
    missing : (N, R') the same for bin 0; sets : (G, R') for each set
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
    if terms.high[p] == SET:
        return smooth.sets[terms.low[p], r]
    out = 0.0
    if terms.low[p] <= terms.high[p]:
        upper = smooth.cumulated[mass.start[n] + terms.high[p], r]
        out = upper - smooth.cumulated[mass.start[n] + terms.low[p] - 1, r]
    if terms.missing[p]:
        out += smooth.missing[n, r]
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


@jit_exact
def leaf_means(terms, means, skipped, out):
    """Write the product of the means of each leaf's conditions, of columns that are not skipped."""
    for r in range(len(out)):
        product = 1.0
        for p in range(terms.first[r], terms.first[r + 1]):
            if not skipped[terms.column[p]]:
                product *= means[p]
        out[r] = product
