"""Gradient boosting of regression trees on binned columns, compiled.

Trees grow leaf by leaf: the leaf whose best split lowers the loss most is split next. A leaf has a
histogram of gradients per column; of two new leaves only the smaller one is counted, the other is
the difference to their parent. Bin 0 holds missing values.

Shapes: n rows, N columns, L outputs; bins : (N, n) uint8; y : (n, 1 or L); raw : (n, L).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyadic.kernels.jit import inner_exact, jit_exact
from polyadic.kernels.losses import LOGISTIC, POISSON, SOFTMAX
from polyadic.kernels.trees import BY_SET

LEAST_CURVATURE = 1e-3  # of a leaf, as sum of second derivatives; as in other libraries
FEW_IN_CATEGORY = 10.0  # rows of the table: a rarer category goes right
CATEGORY_SMOOTHING = 10.0  # added to the curvature of a category before categories are sorted
_LARGEST_RAW = 500.0  # of a Poisson model, so that exp does not overflow


class Settings(NamedTuple):
    """How trees grow: `rate` multiplies the values of leaves."""

    loss: int
    rate: float
    most_leaves: int
    least_rows: float  # of a leaf
    split_columns: int  # columns that a split may ask, drawn at random
    row_share: float  # of rows, drawn at random for each tree


class Grown(NamedTuple):
    """The nodes of all trees so far: see `polyadic.kernels.trees.Nodes`; counts : (3,) of them.

    counts: trees, nodes, sets. Children are numbered from the root of their tree.
    """

    column: np.ndarray
    place: np.ndarray
    missing: np.ndarray
    left: np.ndarray
    right: np.ndarray
    sets: np.ndarray
    value: np.ndarray
    root: np.ndarray
    counts: np.ndarray


class Workspace(NamedTuple):
    """Space for one tree; K is the largest number of leaves, B the number of bins of all columns.

    order, kept : (n,) int32; gradient, curvature : (n,), ordered : (2, n)
    histograms : (K, B, 3) sums of gradients, of curvatures and of rows
    leaf_node, begin, end : (K,); sums : (K, 3)
    gain : (K,), the best split of each leaf; where : (K, 3) its column, place and missing
    inside : (K, 256) uint8, the bins that go left
    drawn : (N,), columns; sorted, score : (256,)
    """

    order: np.ndarray
    kept: np.ndarray
    gradient: np.ndarray
    curvature: np.ndarray
    highest: np.ndarray
    total: np.ndarray
    ordered: np.ndarray
    histograms: np.ndarray
    leaf_node: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    sums: np.ndarray
    gain: np.ndarray
    where: np.ndarray
    inside: np.ndarray
    drawn: np.ndarray
    sorted: np.ndarray
    score: np.ndarray

    @classmethod
    def make(cls, n_rows: int, n_columns: int, n_bins: int, most_leaves: int) -> Workspace:
        """Return space for this many rows, columns, bins of all columns, and leaves."""
        return cls(
            order=np.empty(n_rows, np.int32),
            kept=np.empty(n_rows, np.int32),
            gradient=np.empty(n_rows),
            curvature=np.empty(n_rows),
            highest=np.empty(n_rows),
            total=np.empty(n_rows),
            ordered=np.empty((2, n_rows)),
            histograms=np.empty((most_leaves, n_bins, 3)),
            leaf_node=np.empty(most_leaves, np.int64),
            begin=np.empty(most_leaves, np.int64),
            end=np.empty(most_leaves, np.int64),
            sums=np.empty((most_leaves, 3)),
            gain=np.empty(most_leaves),
            where=np.empty((most_leaves, 3), np.int64),
            inside=np.empty((most_leaves, 256), np.uint8),
            drawn=np.arange(n_columns),
            sorted=np.empty(256, np.int64),
            score=np.empty(256),
        )


class Table(NamedTuple):
    """The rows: bins, where the bins of each column start, (N + 1,), and which are categories."""

    bins: np.ndarray
    start: np.ndarray
    categorical: np.ndarray
    y: np.ndarray
    weight: np.ndarray


# ---- gradients -----------------------------------------------------------------------------------


@inner_exact
def _add_scores(raw, highest, total):
    """Write what all classes of a row share in softmax: the highest score, and the sum of exp."""
    for i in range(len(total)):
        highest[i], total[i] = raw[i, 0], 0.0
        for j in range(1, raw.shape[1]):
            highest[i] = max(highest[i], raw[i, j])
        for j in range(raw.shape[1]):
            total[i] += np.exp(raw[i, j] - highest[i])


@inner_exact
def _write_gradients(loss, table, raw, k, work):
    """Write first and second derivatives of the loss by output k, times the weights."""
    y, weight = table.y, table.weight
    for i in range(len(weight)):
        f = raw[i, k]
        if loss == LOGISTIC:
            p = 1.0 / (1.0 + np.exp(-f))
            slope, bend = p - y[i, 0], p * (1.0 - p)
        elif loss == POISSON:
            p = np.exp(min(f, _LARGEST_RAW))
            slope, bend = p - y[i, 0], p
        elif loss == SOFTMAX:
            p = np.exp(f - work.highest[i]) / work.total[i]
            slope, bend = p - (1.0 if y[i, 0] == k else 0.0), p * (1.0 - p)
        else:
            slope, bend = f - y[i, k], 1.0
        work.gradient[i], work.curvature[i] = slope * weight[i], bend * weight[i]


# ---- histograms and splits -----------------------------------------------------------------------


@inner_exact
def _add(histogram, b, g, h):
    """Add a row to a bin."""
    histogram[b, 0] += g
    histogram[b, 1] += h
    histogram[b, 2] += 1.0


@inner_exact
def _count(table, work, leaf):
    """Fill the histogram of a leaf with its rows.

    Of four columns at a time: rows that follow each other are often in the same bin of a column,
    and each sum would wait for the one before.
    """
    histogram, ordered, order = work.histograms[leaf], work.ordered, work.order
    first, last, bins, start = work.begin[leaf], work.end[leaf], table.bins, table.start
    for b in range(len(histogram)):
        histogram[b, 0] = histogram[b, 1] = histogram[b, 2] = 0.0
    for i in range(first, last):
        ordered[0, i], ordered[1, i] = work.gradient[order[i]], work.curvature[order[i]]
    n_together = len(bins) - len(bins) % 4
    for n in range(0, n_together, 4):
        s0, s1 = np.uint64(start[n]), np.uint64(start[n + 1])
        s2, s3 = np.uint64(start[n + 2]), np.uint64(start[n + 3])
        bins0, bins1, bins2, bins3 = bins[n], bins[n + 1], bins[n + 2], bins[n + 3]
        for i in range(first, last):
            row, g, h = np.uint64(order[i]), ordered[0, i], ordered[1, i]
            _add(histogram, s0 + bins0[row], g, h)
            _add(histogram, s1 + bins1[row], g, h)
            _add(histogram, s2 + bins2[row], g, h)
            _add(histogram, s3 + bins3[row], g, h)
    for n in range(n_together, len(bins)):
        for i in range(first, last):
            _add(histogram, start[n] + bins[n, order[i]], ordered[0, i], ordered[1, i])


@inner_exact
def _subtract(work, parent, child):
    """Turn the histogram of a parent into that of its other child."""
    whole, part = work.histograms[parent], work.histograms[child]
    for b in range(len(whole)):
        for c in range(3):
            whole[b, c] -= part[b, c]


@inner_exact
def _draw(state, limit):
    """Return a random number below `limit`, by xorshift."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64((x >> np.uint64(11)) % np.uint64(limit))


@inner_exact
def _shuffle(state, items, n_first):
    """Move random ones of the items to the first places."""
    for j in range(n_first):
        k = j + _draw(state, len(items) - j)
        items[j], items[k] = items[k], items[j]


@inner_exact
def _improvement(settings, sums, g, h, c):
    """Return what a split gains if g, h and c rows go left; -1 where it is not allowed."""
    g_right, h_right, c_right = sums[0] - g, sums[1] - h, sums[2] - c
    few = settings.least_rows
    if c < few or c_right < few or h < LEAST_CURVATURE or h_right < LEAST_CURVATURE:
        return -1.0
    return g * g / h + g_right * g_right / h_right - sums[0] * sums[0] / sums[1]


@inner_exact
def _keep(work, leaf, gain, column, place, missing):
    if gain > work.gain[leaf]:
        work.gain[leaf] = gain
        work.where[leaf, 0], work.where[leaf, 1], work.where[leaf, 2] = column, place, missing
        return True
    return False


@inner_exact
def _split_numbers(settings, own, work, leaf, n):
    """Try every edge between bins, with missing values on either side."""
    sums = work.sums[leaf, 0], work.sums[leaf, 1], work.sums[leaf, 2]
    g, h, c = 0.0, 0.0, 0.0
    missing = own[0, 0], own[0, 1], own[0, 2]
    for b in range(1, len(own)):
        g += own[b, 0]
        h += own[b, 1]
        c += own[b, 2]
        if own[b, 2] == 0.0 and b + 1 < len(own):
            continue
        # Missing values that no row of the leaf has go where more rows go.
        side = 1 if missing[2] == 0.0 and 2.0 * c > sums[2] else 0
        if b + 1 < len(own) or missing[2] > 0.0:
            _keep(work, leaf, _improvement(settings, sums, g, h, c), n, b, side)
        if missing[2] > 0.0 and b + 1 < len(own):
            gain = _improvement(settings, sums, g + missing[0], h + missing[1], c + missing[2])
            _keep(work, leaf, gain, n, b, 1)


@inner_exact
def _split_categories(settings, own, work, leaf, n):
    """Sort categories by their mean gradient, and try every place to cut this order.

    Rare categories go right: from either end of the order, at most half of the categories go left.
    Missing values are one of the categories.
    """
    sums, count = (work.sums[leaf, 0], work.sums[leaf, 1], work.sums[leaf, 2]), 0
    for b in range(len(own)):
        if own[b, 2] >= settings.row_share * FEW_IN_CATEGORY:
            score = own[b, 0] / (own[b, 1] + CATEGORY_SMOOTHING)
            at = count
            while at > 0 and work.score[at - 1] > score:
                work.score[at], work.sorted[at] = work.score[at - 1], work.sorted[at - 1]
                at -= 1
            work.score[at], work.sorted[at] = score, b
            count += 1
    for direction in range(2):
        g, h, c = 0.0, 0.0, 0.0
        for k in range(count):
            if 2 * (k + 1) > count + 1 or k + 1 == len(own):
                break
            b = work.sorted[k if direction == 0 else count - 1 - k]
            g += own[b, 0]
            h += own[b, 1]
            c += own[b, 2]
            gain = _improvement(settings, sums, g, h, c)
            if _keep(work, leaf, gain, n, k, BY_SET):
                for other in range(256):
                    work.inside[leaf, other] = 0
                for j in range(k + 1):
                    work.inside[leaf, work.sorted[j if direction == 0 else count - 1 - j]] = 1


@inner_exact
def _find_split(settings, table, work, leaf, state):
    """Find the best split of a leaf among columns drawn at random."""
    work.gain[leaf] = 1e-12 * abs(work.sums[leaf, 0])
    work.where[leaf, 0] = -1
    if work.sums[leaf, 2] < 2 * settings.least_rows:
        return
    _shuffle(state, work.drawn, settings.split_columns)
    for j in range(settings.split_columns):
        n = work.drawn[j]
        own = work.histograms[leaf, table.start[n] : table.start[n + 1]]
        if table.categorical[n]:
            _split_categories(settings, own, work, leaf, n)
        else:
            _split_numbers(settings, own, work, leaf, n)


# ---- growing -------------------------------------------------------------------------------------


@inner_exact
def _goes_left(work, leaf, one):
    missing = work.where[leaf, 2]
    if missing == BY_SET:
        return work.inside[leaf, one] != 0
    if one == 0:
        return missing == 1
    return one <= work.where[leaf, 1]


@inner_exact
def _divide(table, work, leaf):
    """Sort the rows of a leaf into those that go left and the others; return where these start."""
    bins = table.bins[work.where[leaf, 0]]
    at, kept = work.begin[leaf], 0
    for i in range(work.begin[leaf], work.end[leaf]):
        row = work.order[i]
        if _goes_left(work, leaf, bins[row]):
            work.order[at] = row
            at += 1
        else:
            work.kept[kept] = row
            kept += 1
    for i in range(kept):
        work.order[at + i] = work.kept[i]
    return at


@inner_exact
def _sum_rows(work, leaf):
    g, h = 0.0, 0.0
    for i in range(work.begin[leaf], work.end[leaf]):
        g += work.gradient[work.order[i]]
        h += work.curvature[work.order[i]]
    work.sums[leaf, 0], work.sums[leaf, 1] = g, h
    work.sums[leaf, 2] = work.end[leaf] - work.begin[leaf]


@inner_exact
def _new_leaf(grown, work, leaf, node):
    """Note that a node is a leaf, until it is split."""
    work.leaf_node[leaf] = node
    grown.column[node] = grown.left[node] = grown.right[node] = -1
    grown.place[node] = grown.missing[node] = 0
    grown.value[node] = 0.0


@inner_exact
def _split_leaf(table, grown, work, leaf, new):
    """Split a leaf: it keeps the rows of one child, and leaf `new` gets those of the other."""
    node, root = work.leaf_node[leaf], grown.root[grown.counts[0]]
    grown.column[node], grown.place[node] = work.where[leaf, 0], work.where[leaf, 1]
    grown.missing[node] = work.where[leaf, 2]
    if work.where[leaf, 2] == BY_SET:
        grown.place[node] = grown.counts[2]
        for b in range(grown.sets.shape[1]):
            grown.sets[grown.counts[2], b] = work.inside[leaf, b]
        grown.counts[2] += 1
    middle = _divide(table, work, leaf)
    left, right = grown.counts[1], grown.counts[1] + 1
    grown.counts[1] += 2
    grown.left[node], grown.right[node] = left - root, right - root
    smaller_left = 2 * (middle - work.begin[leaf]) <= work.end[leaf] - work.begin[leaf]
    if smaller_left:
        work.begin[new], work.end[new], work.begin[leaf] = work.begin[leaf], middle, middle
    else:
        work.begin[new], work.end[new], work.end[leaf] = middle, work.end[leaf], middle
    _new_leaf(grown, work, new, left if smaller_left else right)
    _new_leaf(grown, work, leaf, right if smaller_left else left)
    _sum_rows(work, new)
    _sum_rows(work, leaf)
    _count(table, work, new)
    _subtract(work, leaf, new)


@inner_exact
def _draw_rows(settings, work, state):
    """Put the rows of the next tree at the front of the order; return how many they are."""
    limit, every = np.int64(settings.row_share * 2.0**30), settings.row_share >= 1.0
    first, last = 0, len(work.order)
    for i in range(len(work.order)):
        if every or _draw(state, 2**30) < limit:
            work.order[first] = i
            first += 1
        else:
            last -= 1
            work.order[last] = i
    return first


@inner_exact
def _leaf_of(table, grown, root, i):
    """Return the leaf of a tree that row i reaches."""
    node = root
    while grown.column[node] >= 0:
        one, place = table.bins[grown.column[node], i], grown.place[node]
        if grown.missing[node] == BY_SET:
            left = grown.sets[place, one] != 0
        elif one == 0:
            left = grown.missing[node] == 1
        else:
            left = one <= place
        node = root + (grown.left[node] if left else grown.right[node])
    return node


@inner_exact
def _grow_tree(settings, table, grown, work, state):
    """Grow one tree on the gradients, and return its number of leaves."""
    grown.root[grown.counts[0]] = grown.counts[1]
    work.begin[0], work.end[0] = 0, _draw_rows(settings, work, state)
    _new_leaf(grown, work, 0, grown.counts[1])
    grown.counts[1] += 1
    _sum_rows(work, 0)
    _count(table, work, 0)
    n_leaves, changed = 1, (0, -1)
    while True:
        for leaf in changed:  # the only call: it is long, and compiled into every place of a call
            if leaf >= 0:
                _find_split(settings, table, work, leaf, state)
        if n_leaves >= settings.most_leaves:
            break
        best = 0
        for leaf in range(1, n_leaves):
            if work.where[leaf, 0] >= 0 and (
                work.where[best, 0] < 0 or work.gain[leaf] > work.gain[best]
            ):
                best = leaf
        if work.where[best, 0] < 0:
            break
        _split_leaf(table, grown, work, best, n_leaves)
        changed = (n_leaves, best)
        n_leaves += 1
    grown.counts[0] += 1
    return n_leaves


@jit_exact
def boost(settings, table, n_rounds, raw, grown, work, state):
    """Grow one tree per output in each round, and add them to raw."""
    for _ in range(n_rounds):
        if settings.loss == SOFTMAX:  # at the start of a round: the order of classes is no matter
            _add_scores(raw, work.highest, work.total)
        for k in range(raw.shape[1]):
            _write_gradients(settings.loss, table, raw, k, work)
            root, n_drawn = grown.counts[1], 0
            n_leaves = _grow_tree(settings, table, grown, work, state)
            for leaf in range(n_leaves):
                g, h = work.sums[leaf, 0], work.sums[leaf, 1]
                value = -settings.rate * g / max(h, LEAST_CURVATURE)
                grown.value[work.leaf_node[leaf]] = value
                n_drawn += work.end[leaf] - work.begin[leaf]
                for i in range(work.begin[leaf], work.end[leaf]):
                    raw[work.order[i], k] += value
            for i in range(n_drawn, len(work.order)):
                leaf = _leaf_of(table, grown, root, work.order[i])
                raw[work.order[i], k] += grown.value[leaf]
