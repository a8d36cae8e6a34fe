"""The factors of a merged model as blocks on their own knots, and back; what is read is checked.

    blocks.n.kept  (B, d_n - 1)     which elements each block has, 0 or 1
    blocks.n.values                 of all blocks, (R_b, number kept) each, one after another
    blocks.n.constant  (R,)         of all terms
    factors.n  (d_n, R)             instead, for a column without blocks

The knots are those of the column's map.
"""

from __future__ import annotations

import numpy as np

from polyadic.io.arrays import Arrays, take, take_floats
from polyadic.networks.blocks import Blocks
from polyadic.networks.cp import CPCores

# Factors may be this many times as long as their blocks: about the number of members with knots of
# their own. A limit, so that a small file cannot exhaust the memory; chosen by hand.
_MOST_TIMES = 20
# And this many times the bytes of the file: blocks of float32 give factors of float64.
MOST_BYTES = 2 * _MOST_TIMES


def pack_blocks(cores: CPCores) -> tuple[list[int], Arrays] | None:
    """Return the number of terms of each block, and arrays; None where there are no blocks.

    None too where the factors are not those of the blocks, to the last bit, as after someone has
    changed them, or where the blocks are too short for them.
    """
    ranks: list[int] = []
    arrays: Arrays = {}
    for n, (blocks, factor) in enumerate(zip(cores.blocks or [], cores.factors)):
        if blocks is None or not np.all(blocks.kept.any(axis=1)):  # such as a constant alone
            arrays[f"factors.{n}"] = factor
            continue
        short = _too_short(blocks.kept, factor.shape[1], sum(own.size for own in blocks.values))
        if short or not np.array_equal(blocks.core(factor[0]), factor):
            return None
        ranks = [own.shape[1] for own in blocks.values]
        arrays[f"blocks.{n}.kept"] = blocks.kept.astype(np.uint8)
        arrays[f"blocks.{n}.values"] = _short([own.T.ravel() for own in blocks.values])
        arrays[f"blocks.{n}.constant"] = factor[0]
    return (ranks, arrays) if ranks else None


def _short(parts: list[np.ndarray]) -> np.ndarray:
    """Return all parts as one array, of float32 where that changes nothing."""
    whole = np.concatenate(parts)
    with np.errstate(over="ignore"):
        short = whole.astype(np.float32)
    return short if np.array_equal(short, whole) else whole


def factor_bytes(n_columns: int, rank: int, arrays: Arrays) -> float:
    """Return the bytes of the factors that are computed from blocks."""
    kept = [arrays.get(f"blocks.{n}.kept") for n in range(n_columns)]
    return 8.0 * rank * sum(1 + own.shape[-1] for own in kept if own is not None and own.ndim)


def rebuild_blocks(
    n_columns: int, rank: int, ranks: list[int], arrays: Arrays, most_bytes: float
) -> tuple[list[np.ndarray], list[Blocks | None]]:
    """Rebuild the factors of all columns, and the blocks that they are computed from."""
    if any(type(own) is not int or own < 1 for own in ranks) or sum(ranks) != rank:
        raise ValueError(f"blocks of {ranks!r:.60} terms do not go with {rank} weights.")
    if factor_bytes(n_columns, rank, arrays) > most_bytes:
        raise ValueError("its factors would take far more memory than the file is long.")
    factors: list[np.ndarray] = []
    blocks: list[Blocks | None] = []
    for n in range(n_columns):
        if f"factors.{n}" in arrays:
            factors.append(take_floats(arrays, f"factors.{n}", (None, rank)))
            blocks.append(None)
            continue
        own = _rebuild_column(n, ranks, arrays)
        constant = take_floats(arrays, f"blocks.{n}.constant", (rank,))
        with np.errstate(all="ignore"):  # knots and values may be anything
            factor = own.core(constant)
        if not np.all(np.isfinite(factor)):
            raise ValueError(f"the blocks of column {n} do not give finite numbers.")
        factors.append(factor)
        blocks.append(own)
    return factors, blocks


def _rebuild_column(n: int, ranks: list[int], arrays: Arrays) -> Blocks:
    """Rebuild the blocks of a column; its map checks later that the knots ascend."""
    kept = take(arrays, f"blocks.{n}.kept", (len(ranks), None))
    if kept.dtype != np.uint8 or np.any(kept > 1) or not np.all(kept.any(axis=1)):
        raise ValueError(f"the array 'blocks.{n}.kept' must mark some elements of each block by 1.")
    sizes = kept.sum(axis=1, dtype=np.int64) * ranks
    flat = take_floats(arrays, f"blocks.{n}.values", (int(sizes.sum()),)).astype(np.float64)
    if _too_short(kept, sum(ranks), len(flat)):
        raise ValueError(f"the blocks of column {n} are too short for {kept.shape[1]} elements.")
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    values = [np.ascontiguousarray(own.reshape(rank, -1).T) for own, rank in zip(parts, ranks)]
    knots = arrays.get(f"maps.{n}.knots_")
    if knots is None and np.all(kept):
        return Blocks(kept.astype(bool), values)
    if knots is None or knots.shape != kept.shape[1:]:
        raise ValueError(f"the blocks of column {n} need {kept.shape[1]} knots.")
    return Blocks(kept.astype(bool), values, knots)


def _too_short(kept: np.ndarray, rank: int, n_values: int) -> bool:
    """Tell whether blocks are much shorter than the factor that is computed from them."""
    return kept.shape[1] * rank > _MOST_TIMES * n_values
