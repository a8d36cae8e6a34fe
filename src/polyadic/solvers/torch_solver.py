"""The settings of the torch engine, without PyTorch: it is imported when training starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyadic.objective.problem import Problem
from polyadic.solvers.contract import Report, Solution, SolverSettings, check
from polyadic.solvers.loop import Schedule


@dataclass(frozen=True)
class TorchOptim(Schedule):
    """Mini-batches with any optimiser of torch.optim.

    Parameters
    ----------
    optimiser : str
        Name of a class in torch.optim.
    device : str
        Name of a torch device.
    weigh_columns : bool
        Let the penalties that are multiplied by the noise weigh more on columns with small
        effects, as the fused engine does. For cores of CP.
    """

    optimiser: str = "Adam"
    device: str = "cpu"
    weigh_columns: bool = False

    name: ClassVar[str] = "engine='torch'"
    loss_forms: ClassVar[tuple[str, ...]] = ("torch",)
    penalties: ClassVar[tuple[str, ...]] = ("factors", "factors by noise", "order")
    phases: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_settings(cls, settings: SolverSettings) -> TorchOptim:
        """Return the solver of a fit of a network: the optimiser of this name."""
        return cls(**settings.epochs(), optimiser=settings.solver, device=settings.device)

    def solve(
        self,
        problem: Problem,
        cores: Any,
        free: np.ndarray | None,
        rng: np.random.Generator,
        report: Report | None = None,
        state: Any = None,
        resumed: bool = False,
    ) -> Solution:
        """Minimise the problem's objective, starting from `cores`."""
        from polyadic.solvers.torch_optim import TorchLoop

        check(self, problem)
        settings = (self, self.optimiser, self.device)
        loop = TorchLoop(*settings, problem, cores, free, self.weigh_columns)
        return loop.run(rng, report, resumed)
