"""Two maps of one column side by side."""

from __future__ import annotations

from typing import Self

import numpy as np

from polyadic.maps.base import FeatureMap


class Beside(FeatureMap):
    """The elements of a map, followed by those of a second one without its constant.

    Explanations of a model with smooth terms and trees use it, to average over both at once, and so
    do comparisons of models whose maps differ. It is made of fitted maps, and is not in the
    registry: no model is trained with it.
    """

    def __init__(self, first: FeatureMap, second: FeatureMap):
        self.first, self.second = first, second
        self.constant = first.constant
        # Element k of the second map is element k + shift here; its constant is left out.
        self.shift = first.dim - int(second.constant)

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The kind of column that both are for."""
        return self.first.kind

    def fit(
        self, x: np.ndarray, y: np.ndarray | None = None, sample_weight: np.ndarray | None = None
    ) -> Self:
        """Return the map as it is: its parts are fitted."""
        return self

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of both maps; see `FeatureMap.encode`."""
        index, value = self.first.slots(x)
        more, other = self.second.slots(x)
        implied = (more == 0) & self.second.constant
        shifted = np.where(implied, 0, more + self.shift).astype(np.int32)
        return np.hstack([index, shifted]), np.hstack([value, other])

    @property
    def dim(self) -> int:
        """Number of basis elements of both, without the constant of the second."""
        return self.shift + self.second.dim

    @property
    def degrees(self) -> np.ndarray:
        """Order of each basis element, (d,)."""
        own = self.second.degrees[int(self.second.constant) :]
        return np.concatenate([self.first.degrees, own])
