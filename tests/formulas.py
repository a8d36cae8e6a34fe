"""Formulas of every format, mostly on dense tensors, written independently of the library.

Also random features to try them on, and what the library predicts from these.
"""

import math
import string
from itertools import combinations

import numpy as np
import pytest

DIMS = [3, 2, 4, 1, 2]  # uneven; the first N of them
ROWS = 7
columns_of_interest = pytest.mark.parametrize("n_columns", [1, 2, 3, 5])
outputs_of_interest = pytest.mark.parametrize("n_outputs", [1, 3])


def random_phis(dims, seed=1, n=ROWS):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, d)) for d in dims]


def predict(network, phis):
    projected = np.stack([phi @ core for phi, core in zip(phis, network.factors)], axis=1)
    return network.format.contract(projected, network.extras)


def replaced(network, n, core):
    cores = [core if k == n else a for k, a in enumerate(network.factors)]
    return network.__class__(**{**vars(network), "factors": cores})


def dense_cp(network):
    letters = string.ascii_lowercase[: len(network.factors)]
    operands = ",".join(f"{c}R" for c in letters)
    return np.einsum(f"{operands},RL->{letters}L", *network.factors, network.extras[0])


def matrices(network):
    return [core.reshape(len(core), network.rank, network.rank) for core in network.factors]


def dense_tt(network):
    letters = string.ascii_lowercase[: len(network.factors)]
    bonds = string.ascii_uppercase[: len(letters) + 1]
    operands = ",".join(f"{c}{bonds[n : n + 2]}" for n, c in enumerate(letters))
    left, right = network.extras
    formula = f"{bonds[0]},{operands},{bonds[-1]}z->{letters}z"
    return np.einsum(formula, left, *matrices(network), right)


def dense_tr(network):
    letters = string.ascii_lowercase[: len(network.factors)]
    bonds = string.ascii_uppercase[: len(letters) + 1]
    operands = ",".join(f"{c}{bonds[n : n + 2]}" for n, c in enumerate(letters))
    closing = network.extras[0] if network.extras else np.eye(network.rank)[None]
    formula = f"{operands},z{bonds[-1]}{bonds[0]}->{letters}z"
    return np.einsum(formula, *matrices(network), closing)


def dense_ht(network):
    k = network.rank

    def node(low, high):
        """Return the tensor of columns low .. high - 1, (d_low, ..., k)."""
        if high - low == 1:
            return network.factors[low]
        level = (high - low - 1).bit_length() - 1  # the left child holds 2 ** level columns
        left, right = node(low, low + 2**level), node(low + 2**level, high)
        transfer = network.extras[level][low >> (level + 1)].reshape(k, k, k)
        return _join(left, transfer, right)

    return node(0, len(network.factors)) @ network.extras[-1]


def _join(left, transfer, right):
    flat_left, flat_right = left.reshape(-1, len(transfer)), right.reshape(-1, len(transfer))
    joined = np.einsum("ia,abc,jb->ijc", flat_left, transfer, flat_right)
    return joined.reshape(*left.shape[:-1], *right.shape[:-1], -1)


def dense_tucker(network):
    n = len(network.factors)
    letters, ranks = string.ascii_lowercase[:n], string.ascii_uppercase[:n]
    core = network.extras[0].reshape(*[network.rank] * n, -1)
    operands = ",".join(f"{c}{r}" for c, r in zip(letters, ranks))
    return np.einsum(f"{ranks}z,{operands}->{letters}z", core, *network.factors)


DENSE = {"cp": dense_cp, "tt": dense_tt, "tr": dense_tr, "ht": dense_ht, "tucker": dense_tucker}


def from_dense(network, phis):
    out = DENSE[network.name](network)
    out = np.tile(out, (len(phis[0]), *[1] * out.ndim))
    for phi in phis:
        out = np.einsum("nd,nd...->n...", phi, out)
    return out


def from_fm(network, phis):
    """Sum over all sets of at most m columns."""
    u = [phi @ core for phi, core in zip(phis, network.factors)]
    n_outputs, k = network.n_outputs, network.rank
    out = sum(v[:, :n_outputs] for v in u)
    for t in range(2, network.order + 1):
        own = slice(n_outputs + (t - 2) * k, n_outputs + (t - 1) * k)
        for chosen in combinations(u, t):
            out = out + math.prod(v[:, own] for v in chosen) @ network.extras[0][t - 2]
    return out


def from_pn(network, phis):
    """Multiply m affine forms for each of the terms."""
    constants, weights = network.extras
    out = np.zeros((len(phis[0]), network.n_outputs))
    for r in range(network.rank):
        term = np.ones(len(phis[0]))
        for t in range(network.order):
            slopes = [core[:, t * network.rank + r] for core in network.factors]
            term *= constants[t, r] + sum(phi @ w for phi, w in zip(phis, slopes))
        out += np.outer(term, weights[r])
    return out


REFERENCE = dict.fromkeys(DENSE, from_dense) | {"fm": from_fm, "pn": from_pn}
