"""Tensor networks: how the weight tensor is represented. One file a format."""

from __future__ import annotations

from polyadic.formats.base import Format
from polyadic.formats.cp import CanonicalPolyadic
from polyadic.formats.fm import FactorizationMachine
from polyadic.formats.ht import HierarchicalTucker
from polyadic.formats.pn import PolynomialNetwork
from polyadic.formats.tr import TensorRing
from polyadic.formats.tt import TensorTrain, cp_to_tt
from polyadic.formats.tucker import Tucker

__all__ = ["FORMATS", "Format", "cp_to_tt", "resolve"]

FORMATS: dict[str, type[Format]] = {
    "cp": CanonicalPolyadic,
    "fm": FactorizationMachine,
    "ht": HierarchicalTucker,
    "pn": PolynomialNetwork,
    "tr": TensorRing,
    "tt": TensorTrain,
    "tucker": Tucker,
}


def resolve(name: str) -> type[Format]:
    """Return the format of that name.

    >>> resolve("tt").__name__
    'TensorTrain'
    """
    if not isinstance(name, str) or name not in FORMATS:
        raise ValueError(f"Unknown format {name!r}. Choose from: {', '.join(sorted(FORMATS))}.")
    return FORMATS[name]
