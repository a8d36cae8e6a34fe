"""The trees of a model as plain JSON values, from which leaves.js predicts and explains.

A leaf is a few conditions, each the first and the last bin of a column. The page holds nothing that
it can compute: the share of the rows that meet a condition follows from the shares of the bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyadic.data.marginals import Marginal, bin_shares
from polyadic.explain.reading import quadrature
from polyadic.maps.base import FeatureMap
from polyadic.maps.step import Step
from polyadic.networks.trees import Trees


def leaf_payload(
    trees: Trees,
    maps: list[FeatureMap],
    marginals: list[Marginal],
    kept: list[np.ndarray | None],
    encode: Any,
) -> dict[str, Any]:
    """Return the leaves of trees, the bins of each column, and nodes by the number of conditions.

    Parameters
    ----------
    trees : Trees
    maps : list of N FeatureMap
        Those of the smooth terms, whose elements come first in the marginals.
    marginals : list of N Marginal
    kept : list of N arrays or None
        Codes of the categories that the page offers; None for a numeric column.
    encode : function
        From an array and a type to plain values.
    """
    leaves = trees.leaves
    longest = int(leaves.lengths.max(initial=0))
    # Short types: the page of a large forest is mostly these.
    column = "<u1" if len(maps) <= 256 else "<u2"
    bins = "<u2" if max(m.dim for m in trees.maps) < 2**16 else "<i4"
    low = bins if len(leaves.sets) < 2**16 else "<i4"
    both_ways = leaves.missing % 1.0 > 0.0
    return {
        "lengths": encode(leaves.lengths, "<u1" if longest < 256 else "<u2"),
        "column": encode(leaves.column, column),
        "low": encode(leaves.low, low),
        # 0 stands for a set: no interval ends with the bin of missing values.
        "high": encode(np.maximum(leaves.high, 0), bins),
        # 2 where a missing value goes both ways: by one share after another in `both_ways`.
        "missing": encode(np.where(both_ways, 2, leaves.missing), "<u1"),
        "both_ways": encode(leaves.missing[both_ways], "<f4"),
        "sets": [encode(np.packbits(own, bitorder="little"), "<u1") for own in leaves.sets],
        "values": encode(leaves.value, "<f8"),
        "width": leaves.value.shape[1],
        "output": encode(leaves.output, "<i4"),
        "bins": [
            {
                "shares": encode(bin_shares(marginal, own), "<f8"),
                "edges": encode(m.edges_, "<f8") if isinstance(m, Step) else None,
                "places": None if codes is None else encode(m.encode(codes)[0], "<i4"),
            }
            for own, m, marginal, codes in zip(maps, trees.maps, marginals, kept)
        ],
        "rules": [
            {"nodes": encode(nodes, "<f8"), "weights": encode(weights, "<f8")}
            for nodes, weights in (quadrature(max(k - 1, 0)) for k in range(longest + 1))
        ],
    }
