"""Marginals of rows that are read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from polyadic.data import marginals
from polyadic.data.columns import Column
from polyadic.data.rows import CodedRows
from polyadic.maps.base import FeatureMap


@dataclass(frozen=True)
class BlockMarginals:
    """Measures the marginals of a block of rows.

    Attributes
    ----------
    columns : list of Column
    maps : list of FeatureMap
    points : list of pairs
        For each column, values and weights that stand for all of its rows.
    class_weights : (K,) or None
        They are in the weights of the rows, and do not belong to the marginals.
    numbers_of : callable or None
        Returns the class of each target.
    """

    columns: list[Column]
    maps: list[FeatureMap]
    points: list[tuple[np.ndarray, np.ndarray]]
    class_weights: np.ndarray | None
    numbers_of: Callable[[np.ndarray], np.ndarray] | None

    def __call__(
        self, block: CodedRows, apply: Callable[..., Iterable[Any]] = map
    ) -> list[marginals.Marginal]:
        """Return the marginals of the rows of a block; `apply` goes through the columns."""
        weight = block.weight
        if self.class_weights is not None:
            assert self.numbers_of is not None
            weight = weight / self.class_weights[self.numbers_of(block.y)]
        learn = partial(_learn_marginal, weight)
        return list(apply(learn, self.columns, self.maps, block.columns, self.points))

    @staticmethod
    def join(found: Iterable[list[marginals.Marginal]]) -> list[marginals.Marginal]:
        """Return the marginals of all blocks."""
        return reduce(lambda a, b: [own.mix(other) for own, other in zip(a, b)], found)


def _learn_marginal(weight: np.ndarray, column: Any, own: Any, x: Any, points: Any) -> Any:
    return marginals.learn_one(column, own, x, weight, points)
