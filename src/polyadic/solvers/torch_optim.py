"""Any optimiser of torch.optim, on the torch engine, for every format."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from polyadic.data.features import LocalFeatures
from polyadic.objective.problem import Problem
from polyadic.solvers import torch_engine as engine  # says what to install where torch is missing
from polyadic.solvers.loop import Schedule, TrainingLoop, stack

import torch  # isort: skip

# Optimisers of torch.optim that cannot train these parameters: for sparse gradients, for matrices.
_EXCLUDED = {"Muon", "SparseAdam"}


def optimiser_names() -> list[str]:
    """Return the names of the optimisers in torch.optim that can be used here."""
    found = vars(torch.optim).items()
    base = torch.optim.Optimizer
    kinds = {k for k, v in found if isinstance(v, type) and issubclass(v, base) and v is not base}
    return sorted(kinds - _EXCLUDED)


class TorchLoop(TrainingLoop):
    """A run on the torch engine. All data are copied to the device once; no step copies back."""

    def __init__(
        self,
        settings: Schedule,
        optimiser: str,
        device: str,
        problem: Problem,
        cores: Any,
        free: np.ndarray | None,
        weigh_columns: bool = False,
    ):
        super().__init__(settings, problem, cores)
        self.device = engine.find_device(device)
        self.network = engine.Network.pack(cores, self.device)
        self.features = engine.Features(problem.local, self.device, self.network.format.constants)
        self.y = self._tensor(problem.y)
        self.weight = self._tensor(problem.unit_weights())
        self.intercept = self._tensor(problem.intercept)
        for parameter in self.network.parameters():
            parameter.requires_grad_(True)
        if free is not None:
            self._hold(self.network.extras[-1], self._tensor(free))
        self.average = [p.detach().clone() for p in self.network.parameters()]
        self.optimiser = _make(optimiser, settings.learning_rate, self.network.parameters())
        self.held_out_chunks: list[engine.Features] = []
        if problem.held_out is not None:
            held_out = problem.held_out.local
            self.held_out_chunks = list(engine.in_chunks(self.network, held_out, self.device))
        self.bands = [self._tensor(stack(p.bands)) for p in (problem.fixed, problem.scaled)]
        both = sum(np.abs(stack(p.bands)) for p in (problem.fixed, problem.scaled))
        self.diagonals = np.flatnonzero(np.any(both != 0, axis=0)).tolist()
        self.weighs_columns = weigh_columns
        self.own_penalties = [p for p in problem.penalties if p.has_torch]
        if problem.order is not None:
            self.emphasis = self._tensor(stack(problem.order.emphasis)[:, None])

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.asarray(array, dtype=np.float32), device=self.device)

    @staticmethod
    def _hold(weights: torch.Tensor, free: torch.Tensor) -> None:
        """Let only some output weights move."""
        if free.any():
            weights.register_hook(lambda slope: slope * free)
        else:  # AdamW would shrink an array whose slope is zero
            weights.requires_grad_(False)

    def train(self, rates: np.ndarray, rng: np.random.Generator) -> float:
        """Take one pass over the rows."""
        order = torch.as_tensor(rng.permutation(len(self.problem.local)), device=self.device)
        weight = self._tensor(self.noise * self.row_weights()[:, None])
        band = self.bands[0] + weight * self.bands[1]
        total, n_done = torch.zeros((), device=self.device), 0
        flushed = np.float32(1e-38) * np.float32(0.1) == 0  # as the caller has set it
        torch.set_flush_denormal(True)  # x86 is a hundred times slower on denormal numbers
        try:
            for j, rate in enumerate(rates):
                rows = order[j * self.batch : (j + 1) * self.batch]
                for group in self.optimiser.param_groups:
                    group["lr"] = float(rate)
                total += self._step(rows, band) * len(rows)
                n_done += len(rows)
                with torch.no_grad():  # or the average would keep the graph of every step
                    torch._foreach_lerp_(
                        self.average, self.network.parameters(), 1.0 - self.settings.ema_decay
                    )
                if self.out_of_time:
                    break
        finally:
            torch.set_flush_denormal(bool(flushed))
        return float(total) / n_done

    def _step(self, rows: torch.Tensor, band: torch.Tensor) -> torch.Tensor:
        """Move the parameters by one batch and return its loss, without penalties."""
        losses: list[torch.Tensor] = []
        problem = self.problem

        def closure() -> Any:  # torch declares float, but returns what it is given
            self.optimiser.zero_grad(set_to_none=True)
            raw = self.network.raw(self.features, rows) + self.intercept
            loss = engine.mean_loss(problem.loss, raw, self.y[rows], self.weight[rows])
            losses.append(loss.detach())
            if self.diagonals:
                loss = loss + engine.band_penalty(self.network.table, band, self.diagonals)
            if problem.extras_l2 > 0:
                squares = [(e * e).sum() for e in self.network.extras]
                loss = loss + problem.extras_l2 * sum(squares)
            if problem.order is not None:
                loss = loss + problem.order.alpha * self.network.order_penalty(self.emphasis)
            for penalty in self.own_penalties:
                loss = loss + penalty.torch_value(self.network.factors())
            loss.backward()
            return loss

        self.optimiser.step(closure)
        return losses[0]

    def squares(self, parameters: engine.Network) -> np.ndarray | None:
        """Return the mean square over the terms of each table row, if columns are weighed."""
        if not self.weighs_columns:
            return None
        table = parameters.table[:, : self.cores.rank]
        return (table * table).mean(1).cpu().numpy().astype(np.float64)

    def averaged(self, out: engine.Network | None) -> engine.Network:
        """Return the running averages."""
        if out is None:
            table, *extras = (a.clone() for a in self.average)
            return engine.Network(self.network.format, table, extras)
        torch._foreach_copy_(out.parameters(), self.average)
        return out

    def predict(self, parameters: engine.Network, local: LocalFeatures) -> np.ndarray:
        """Contract on the device."""
        held_out = self.problem.held_out
        if held_out is not None and local is held_out.local:
            return self.problem.intercept + engine.contract(parameters, self.held_out_chunks)
        chunks = engine.in_chunks(parameters, local, self.device)
        return self.problem.intercept + engine.contract(parameters, chunks)

    def unpack(self, parameters: engine.Network) -> Any:
        """Return the parameters as cores."""
        return parameters.unpack(self.cores)


def _make(name: str, rate: float, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    """Set up the optimiser of that name; fused if it can be, which is faster for small arrays."""
    make = getattr(torch.optim, name)
    fused = {"fused": True} if "fused" in inspect.signature(make).parameters else {}
    return make(parameters, lr=rate, **fused)
