"""The main effect of one column, and points with their values as a pandas frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyadic.explain.listing import Numbers, pandas, percent
from polyadic.training.model import Target


@dataclass(frozen=True, repr=False)
class Effect:
    """The main effect of one column; `Effects` has those of all columns.

    Attributes
    ----------
    column : str
    outputs : list of L str
    base : (L,)
    grid : (k,)
    values : (k, L)
    missing : (L,)
    edges, density : arrays, or None for the edges of a categorical column
    variance, share : float
    ends : tuple, or None for a categorical column
    ordered : bool
    scale : str
    target : Target
        All as in `Effects`, for this column.
    """

    column: str
    outputs: list[str]
    base: np.ndarray
    grid: np.ndarray
    values: np.ndarray
    missing: np.ndarray
    edges: np.ndarray | None
    density: np.ndarray
    variance: float
    share: float
    ends: tuple[float, float] | None
    ordered: bool
    scale: str
    target: Target

    def __repr__(self) -> str:
        raw, told = self.scale == "raw", ""
        if self.values.size:
            write = Numbers(self.values, signed=raw, n_digits=3)
            told = f", from {write(self.values.min())} to {write(self.values.max())}"
        what = self.target.effect() if raw else self.target.prediction()
        return (
            f"{self.column}: {what} at {len(self.grid)} points{told}; "
            f"{percent(self.share)} of the variance."
        )

    def to_pandas(self) -> Any:
        """Return one line per point: the value of the column, and the effect on each output."""
        what = "effect" if self.scale == "raw" else "prediction"
        return point_frame({self.column: self.grid}, what, self.outputs, self.values)


def point_frame(
    points: Mapping[str, np.ndarray], what: str, outputs: Sequence[str], values: np.ndarray
) -> Any:
    """Return points (k,) of some columns and their values (k, L) as a pandas frame."""
    frame = dict(points)
    for name, own in zip(outputs, values.T):
        label = f"{what} {name}".rstrip()
        while label in frame:  # a column may have any name
            label += "_"
        frame[label] = own
    return pandas().DataFrame(frame)
