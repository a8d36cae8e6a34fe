"""CP as a Tensor Train, and a Tensor Train as CP (paper, appendix A).

A CP tensor is a train of the same rank with diagonal matrices. A train is a sum over paths: a path
chooses one number for every bond, and adds the outer product of one fibre of each core. There are
up to R_1 R_2 ... paths, the product of all ranks, so this direction is for few columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

MOST_TERMS = 100_000  # of a train written as CP; chosen by hand


def cp_to_tt(
    factors: Sequence[np.ndarray], weights: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Write a CP tensor as a Tensor Train with diagonal matrices (paper, appendix A).

    Parameters
    ----------
    factors : list of (d_n, R)
    weights : (R, L)

    Returns
    -------
    cores, extras
        Of `TensorTrain(dims, R, L)`.
    """
    rank = len(weights)
    cores = []
    for factor in factors:
        core = np.zeros((len(factor), rank, rank))
        core[:, np.arange(rank), np.arange(rank)] = factor
        cores.append(core.reshape(len(factor), -1))
    return cores, [np.ones(rank), np.asarray(weights, dtype=np.float64)]


def tt_to_cp(
    cores: Sequence[np.ndarray], extras: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Write a Tensor Train as a CP tensor, exactly (paper, appendix A).

    The number of terms is at most the product of the ranks of all bonds. Paths through fibres of
    zeros are left out, so that a train with diagonal matrices becomes the CP that it was made of.

    Parameters
    ----------
    cores, extras
        Of `TensorTrain(dims, r, L)`: list of (d_n, r * r), and the two ends, (r,) and (r, L).

    Returns
    -------
    factors : list of (d_n, R)
    weights : (R, L)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> train = [rng.normal(size=(5, 2 * 2)) for _ in range(4)]
    >>> factors, weights = tt_to_cp(train, [np.ones(2), np.ones((2, 1))])
    >>> [factor.shape for factor in factors]  # 2 * 2 * 2 terms
    [(5, 8), (5, 8), (5, 8), (5, 8)]
    """
    train = _as_train(cores, extras)
    # With bonds no larger than the elements beside them there are often fewer paths; where most
    # fibres are zeros, as in diagonal matrices, there may be more.
    train = min(train, _narrowed(train), key=_count_paths)
    n_terms = _count_paths(train)
    if n_terms > MOST_TERMS:
        raise ValueError(
            f"A Tensor Train of rank {len(extras[0])} over {len(cores)} columns is a CP of "
            f"{n_terms:,} terms, and at most {MOST_TERMS:,} are written. Keep the train, or fit "
            "one of a lower rank or on fewer columns."
        )
    if n_terms == 0:  # all of W is zero: one term, with a weight of zero
        return [np.zeros((len(core), 1)) for core in cores], np.zeros((1, extras[1].shape[1]))
    paths = _list_paths(train)
    fibres = [core[paths[:, n], :, paths[:, n + 1]] for n, core in enumerate(train)]  # (R, d_n)
    return [fibre.T.copy() for fibre in fibres[:-1]], fibres[-1]


def _as_train(cores: Sequence[np.ndarray], extras: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return arrays (r_{n-1}, d_n, r_n) that begin and end with a bond of one; the last: outputs.

    `polyadic.networks.trains` has the same form, but rounds it to orthogonal cores, in which no
    fibre is zero.
    """
    left, right = (np.asarray(extra, dtype=np.float64) for extra in extras)
    rank = len(left)
    for n, core in enumerate(cores):
        if core.ndim != 2 or core.shape[1] != rank**2:
            raise ValueError(
                f"Core {n} of a Tensor Train of rank {rank} must be (d, {rank**2}), got "
                f"{core.shape}."
            )
    train = [np.asarray(c, dtype=np.float64).reshape(-1, rank, rank).swapaxes(0, 1) for c in cores]
    train[0] = np.tensordot(left[None], train[0], 1)
    return [*train, right[:, :, None]]


def _narrowed(train: list[np.ndarray]) -> list[np.ndarray]:
    """Return the same tensor without bonds that are larger than all that is on one of their sides.

    There the smaller side becomes an identity, and the next core takes what was in it.
    """
    train = list(train)
    for n in range(len(train) - 1):
        p, d, q = train[n].shape
        if p * d < q:
            matrix, train[n] = train[n].reshape(p * d, q), np.eye(p * d).reshape(p, d, p * d)
            train[n + 1] = np.tensordot(matrix, train[n + 1], 1)
    for n in range(len(train) - 1, 0, -1):
        p, d, q = train[n].shape
        if d * q < p:
            matrix, train[n] = train[n].reshape(p, d * q), np.eye(d * q).reshape(d * q, d, q)
            train[n - 1] = np.tensordot(train[n - 1], matrix, 1)
    return train


def _links(train: list[np.ndarray]) -> list[np.ndarray]:
    """Return which fibres are not zero, (r_{n-1}, r_n) for each core."""
    return [np.any(core != 0, axis=1) for core in train]


def _count_paths(train: list[np.ndarray]) -> int:
    """Return the number of paths through fibres that are not zero, in whole numbers of any size."""
    whole = [links.astype(int).astype(object) for links in _links(train)]
    return int(reduce(np.dot, whole)[0, 0])


def _list_paths(train: list[np.ndarray]) -> np.ndarray:
    """Return the numbers of the bonds of every path, (R, M + 1) for M cores."""
    links = _links(train)
    for n in range(len(links) - 2, -1, -1):  # leave out what leads to no end
        links[n] = links[n] & np.any(links[n + 1], axis=1)
    paths = np.zeros((1, 1), dtype=np.int64)
    for link in links:
        path, onwards = np.nonzero(link[paths[:, -1]])
        paths = np.column_stack([paths[path], onwards])
    return paths
