"""Tensor networks: how the weight tensor is represented. One file per format."""

from __future__ import annotations

from polyadic.networks.base import Format
from polyadic.networks.conversions import cp_to_tt, tt_to_cp
from polyadic.networks.cp import CanonicalPolyadic
from polyadic.networks.fm import FactorizationMachine
from polyadic.networks.ht import HierarchicalTucker
from polyadic.networks.pn import PolynomialNetwork
from polyadic.networks.tr import TensorRing
from polyadic.networks.tt import TensorTrain
from polyadic.networks.tucker import Tucker

__all__ = ["FORMATS", "Format", "cp_to_tt", "resolve", "tt_to_cp"]

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
