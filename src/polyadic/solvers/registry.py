"""The solvers by name."""

from __future__ import annotations

from polyadic.solvers.adam import Adam
from polyadic.solvers.als import ALS
from polyadic.solvers.contract import Solver
from polyadic.solvers.riemannian import Riemannian
from polyadic.solvers.sequences import AdamThenAls, AlsThenAdam
from polyadic.solvers.torch_solver import TorchOptim

# For CP models on the fused engine.
FUSED: dict[str, type[Solver]] = {
    "adam": Adam,
    "als": ALS,
    "als+adam": AlsThenAdam,
    "adam+als": AdamThenAls,
}
SOLVERS: dict[str, type[Solver]] = {**FUSED, "riemannian": Riemannian, "torch": TorchOptim}
