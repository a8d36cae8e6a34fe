"""A fitted CP model as plain JSON values, from which engine.js predicts and explains.

    f(x)_l = b_l + sum_n u_nl(x_n) + sum_r C_rl prod_n g_nr(x_n)

Every column has one part or several: a map, and the core of some of the terms on it, float32 as in
the fused engine. Weights, means and knots are float64. Arrays are little-endian bytes in base64.

**Parts.** The members of a merged model have knots of their own, and all its terms are written on
the union of these knots. A term needs few of them: its functions are linear across the others. So
the terms are divided into equal blocks, and a block keeps only the knots at which one of its
functions bends. That is exact up to the rounding of float32, and reduces the page of a default
model to a fourth of the size.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from polyadic.data.marginals import Marginal
from polyadic.explain.moments import joined_cores
from polyadic.explain.reading import quadrature
from polyadic.maps import MAPS, FeatureMap, Hat, OneHot
from polyadic.networks.cp import CPCores
from polyadic.page.leaves import leaf_payload

# A knot is kept where its value differs from the line between its neighbours by more than this
# share of the function's size: twice the precision of float32, which is 2^-23.
ROUNDING = 2.0**-22
_MOST_BLOCKS = 32  # of terms that are tried; chosen by hand
_NAMES = {cls: name for name, cls in MAPS.items()}


def encode_array(array: np.ndarray, dtype: str = "<f8") -> dict[str, str]:
    """Return an array as its type and its bytes in base64, flat.

    >>> encode_array(np.array([1.0]), "<f4")
    {'type': 'f4', 'data': 'AACAPw=='}
    """
    flat = np.ascontiguousarray(array, dtype=dtype)
    return {"type": dtype[1:], "data": base64.b64encode(flat.tobytes()).decode("ascii")}


def encode_short(array: np.ndarray) -> dict[str, str]:
    """Return an array that is only drawn: in float32, unless its numbers exceed that range."""
    size = float(np.max(np.abs(array), initial=0.0))
    return encode_array(array, "<f4" if 1e-30 < size < 1e30 else "<f8")


def model_payload(
    cores: CPCores,
    maps: list[FeatureMap],
    marginals: list[Marginal],
    kept: list[np.ndarray | None],
) -> dict[str, Any]:
    """Return all that the page needs in order to predict and explain a row.

    Parameters
    ----------
    cores : CPCores
    maps : list of N FeatureMap
    marginals : list of N Marginal
    kept : list of N arrays or None
        Codes of the categories that the page offers; None for a numeric column.
    """
    # Behind the elements of the smooth terms, a marginal has the bins of trees.
    pairs = zip(marginals, joined_cores(cores, maps))
    means = [m.mean[: len(core)] @ core for m, core in pairs]
    nodes, shares = quadrature(len(maps) - 1)
    return {
        "rank": cores.rank,
        "outputs": cores.n_outputs,
        "intercept": encode_array(cores.intercept),
        "weights": encode_array(cores.weights),
        "columns": [
            {
                "parts": column_parts(own, core, codes),
                # In target units, which may be beyond float32.
                "additive": column_parts(own, cores.additive[n], codes, "<f8")
                if cores.additive
                else [],
            }
            for n, (own, core, codes) in enumerate(zip(maps, cores.factors, kept))
        ],
        "means": encode_array(np.concatenate([m[: cores.rank] for m in means])),
        "additive_means": encode_array(np.concatenate([m[cores.rank :] for m in means])),
        "nodes": encode_array(nodes),
        "node_weights": encode_array(shares),
        "trees": None
        if cores.trees is None
        else leaf_payload(cores.trees, maps, marginals, kept, encode_array),
    }


# ---- maps and cores ------------------------------------------------------------------------------


def column_parts(
    own: FeatureMap, core: np.ndarray, codes: np.ndarray | None, dtype: str = "<f4"
) -> list[dict[str, Any]]:
    """Return the parts of a column: each a map with the core (d, K) of the next K terms."""
    core, name = np.asarray(core, dtype=np.float64), map_name(own)
    if isinstance(own, Hat):
        return _hat_parts(own.knots_, core, dtype)
    if isinstance(own, OneHot):
        assert codes is not None
        settings = {"name": name, "constant": True}
        return [_part(settings, _category_core(own, core, codes), dtype)]
    return [_part(_settings(own), core, dtype)]


def map_name(own: FeatureMap) -> str:
    """Return the name of a map in engine.js; refuse a class that is not polyadic's."""
    if type(own) not in _NAMES:
        raise ValueError(
            f"The page cannot compute the map {own!r}: {type(own).__name__} is not part of "
            f"polyadic. It can compute: {', '.join(sorted(MAPS))}."
        )
    return _NAMES[type(own)]


def _settings(own: FeatureMap) -> dict[str, Any]:
    """Return what the map's function in engine.js reads: parameters and fitted arrays."""
    learnt = {
        name: encode_array(array) if array.ndim else array.item()
        for name, array in own.arrays().items()
    }
    return {"name": map_name(own), "constant": own.constant, **own.params(), **learnt}


def _part(settings: dict[str, Any], core: np.ndarray, dtype: str) -> dict[str, Any]:
    return {"map": settings, "terms": core.shape[1], "core": encode_array(core, dtype)}


def _category_core(own: OneHot, core: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the constant and one row per category offered, zero for one without an element."""
    element = np.zeros(len(codes), dtype=np.int64)
    known = codes < len(own.lookup_)
    element[known] = own.lookup_[codes[known]]
    return np.vstack([core[:1], np.where(element[:, None] > 0, core[element], 0.0)])


# ---- fewer knots ---------------------------------------------------------------------------------


def _hat_parts(knots: np.ndarray, core: np.ndarray, dtype: str) -> list[dict[str, Any]]:
    """Divide the terms into equal blocks, as many as give the fewest bytes."""
    n_terms = core.shape[1]
    best: list[tuple[np.ndarray, np.ndarray]] = []
    least = np.inf
    for n_blocks in range(1, min(n_terms, _MOST_BLOCKS) + 1):
        if n_terms % n_blocks:
            continue
        blocks = [(bends(knots, block), block) for block in np.split(core, n_blocks, axis=1)]
        size = sum(8 * len(kept) + 4 * (1 + len(kept)) * b.shape[1] for kept, b in blocks)
        if size < least:
            best, least = blocks, size
    return [
        _part(
            {"name": "hat", "constant": True, "knots_": encode_array(knots[kept])},
            np.vstack([block[:1], block[1 + kept]]),
            dtype,
        )
        for kept, block in best
    ]


def bends(knots: np.ndarray, core: np.ndarray) -> np.ndarray:
    """Return the knots that a block of hats needs: at all others, its functions are linear.

    Parameters
    ----------
    knots : (K,)
    core : (1 + K, R), the constant first

    Examples
    --------
    >>> bends(np.arange(5.0), np.array([[0.0], [0.0], [1.0], [2.0], [0.0], [0.0]]))
    array([0, 2, 3, 4])
    """
    values = core[1:]
    last = len(knots) - 1
    if last == 0:
        return np.zeros(1, dtype=np.int64)
    slack = ROUNDING * np.maximum(np.abs(values).max(axis=0), np.abs(core[0]))
    kept = np.zeros(len(knots), dtype=bool)
    kept[[0, last]] = True
    if last > 1:
        middle = _between(knots, values, np.arange(last - 1), np.arange(2, last + 1))
        kept[1:-1] = np.any(np.abs(values[1:-1] - middle) > slack, axis=1)
    while True:
        at = np.flatnonzero(kept)
        cell = np.clip(np.searchsorted(at, np.arange(last + 1), side="right") - 1, 0, len(at) - 2)
        # Each of many knots may lie on the line of its neighbours, and all together on a curve.
        lines = _between(knots, values, at[cell], at[cell + 1], np.arange(last + 1))
        excess = np.max(np.abs(values - lines) - slack, axis=1)
        excess[at] = -1.0
        if excess.max() <= 0:
            return at
        worst = np.lexsort((-excess, cell))
        worst = worst[np.unique(cell[worst], return_index=True)[1]]
        kept[worst[excess[worst] > 0]] = True


def _between(
    knots: np.ndarray,
    values: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    at: np.ndarray | None = None,
) -> np.ndarray:
    """Return the values on the lines between knots `lower` and `upper`, (n, R)."""
    at = lower + 1 if at is None else at
    # Halved first: a difference of knots at both ends of the float range would overflow.
    width = 0.5 * knots[upper] - 0.5 * knots[lower]
    t = ((0.5 * knots[at] - 0.5 * knots[lower]) / width)[:, None]
    return (1.0 - t) * values[lower] + t * values[upper]
