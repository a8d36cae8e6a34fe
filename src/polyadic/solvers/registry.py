"""The solvers by the parameter `solver`. A line here makes one available to the estimators."""

from __future__ import annotations

from polyadic.solvers.adam import Adam
from polyadic.solvers.als import ALS
from polyadic.solvers.contract import Solver
from polyadic.solvers.core_sweeps import CoreSweeps
from polyadic.solvers.riemannian import Riemannian
from polyadic.solvers.sequences import AdamThenAls, AlsThenAdam
from polyadic.solvers.torch_solver import TorchOptim

# Of CP models on the fused engine.
FUSED: dict[str, type[Solver]] = {
    "adam": Adam,
    "als": ALS,
    "als+adam": AlsThenAdam,
    "adam+als": AdamThenAls,
}
# Of tensor networks, besides the optimisers of torch.optim.
NETWORKS: dict[str, type[Solver]] = {"als": CoreSweeps, "riemannian": Riemannian}
# Both kinds have sweeps of least squares; here each has a name of its own.
SOLVERS: dict[str, type[Solver]] = {
    **FUSED,
    **{name if name not in FUSED else f"{name} of networks": one for name, one in NETWORKS.items()},
    "torch": TorchOptim,
}
