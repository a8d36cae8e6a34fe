"""Penalties on the cores. One file each, and a line in `PENALTIES`."""

from __future__ import annotations

from polyadic.objective.penalties.banded import Banded, band_product, ridge, smoothness
from polyadic.objective.penalties.base import Penalty
from polyadic.objective.penalties.norm import Norm, Prior
from polyadic.objective.penalties.order import Order, emphasis

__all__ = [
    "PENALTIES",
    "Banded",
    "Norm",
    "Order",
    "Penalty",
    "Prior",
    "band_product",
    "emphasis",
    "ridge",
    "smoothness",
]

# By the names under which solvers list what they can minimise.
PENALTIES: dict[str, type[Penalty]] = {
    "factors": Banded,
    "factors by noise": Banded,
    "order": Order,
    "tensor norm": Norm,
}
