"""Adam over rows that are given block by block, on the fused engine.

The same steps as `AdamLoop`, for tables whose rows are not all in memory: the caller reads a block,
and decides when the loss is measured. What `AdamLoop` counts in its rows is given instead.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from polyadic.networks.cp import CPCores
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.adam import Adam, AdamLoop, flat_rows
from polyadic.solvers.loop import stack

_SCALARS = ("noise", "best_loss", "best_epoch", "latest", "half_losses", "history")


class BlockLoop(AdamLoop):
    """A run over blocks of rows.

    Parameters
    ----------
    solver : Adam
    problem : Problem
        With a part of the rows: of them, only what does not depend on their number is used.
    cores, free
        As in `AdamLoop`.
    n_batches : int
        Of all rows, in one epoch.
    shares : list of (d_n,)
        The share of all rows that use each element of each column.
    n_checks : int
        How often the loss will be measured.
    """

    def __init__(
        self,
        solver: Adam,
        problem: Problem,
        cores: CPCores,
        free: np.ndarray | None,
        n_batches: int,
        shares: list[np.ndarray],
        n_checks: int,
    ):
        self._n_checks = n_checks
        self._touched = stack([share[:, None] for share in shares])[:, 0]
        super().__init__(solver, problem, cores, free, n_batches=n_batches)
        self.shares = self._touched.copy()  # for the weights of columns: constants do not count
        self.shares[problem.local.layout.first[problem.local.layout.constant]] = 0.0
        self._since = [0.0, 0.0]  # training loss and rows since it was measured

    @property
    def n_planned(self) -> int:
        """How often the loss is measured, if training is not cut short."""
        return self._n_checks

    def touched_shares(self) -> np.ndarray:
        """Return the share of all rows that use each table row, (D,)."""
        return self._touched

    def train_block(self, rows: Rows, rates: np.ndarray, rng: np.random.Generator) -> None:
        """Take one step per rate on a block of rows, in a random order."""
        job = self.job._replace(rows=flat_rows(rows, self.problem.weight_unit))
        order = rng.permutation(len(rows.y))
        self.count_loss(self.take_steps(job, order, rates) * len(order), len(order))

    def count_loss(self, loss: float, n_rows: int) -> None:
        """Remember the sum of the losses of rows until the loss is measured."""
        self._since = [self._since[0] + loss, self._since[1] + n_rows]

    def measure(self, rate: float) -> None:
        """Measure the loss, and keep the parameters if they are the best so far."""
        loss, n_rows = self._since
        self._since = [0.0, 0.0]
        self.evaluate(loss / n_rows, rate)

    # ---- to go on after a stop -------------------------------------------------------------------

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return all that changes during a run, as named arrays."""
        out = {f"state.{name}": array for name, array in self._arrays().items()}
        if self.best is not None:
            out |= _named("best", self.best)
        if self.held_out_raw is not None:
            out["held_out_raw"] = self.held_out_raw
        out["log_weights"] = self.log_weights
        scalars = {name: getattr(self, name) for name in _SCALARS} | {"since": self._since}
        out["scalars"] = np.frombuffer(json.dumps(scalars).encode(), np.uint8)
        return out

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `snapshot` returned."""
        for name, own in self._arrays().items():
            own[...] = arrays[f"state.{name}"]
        if "best.table" in arrays:
            self.best = self.state.parameters.zeros()
            for name, own in _named("best", self.best).items():
                own[...] = arrays[name]
        self.held_out_raw = arrays.get("held_out_raw")
        self.log_weights = arrays["log_weights"]
        scalars = json.loads(arrays["scalars"].tobytes())
        self._since = scalars.pop("since")
        for name, value in scalars.items():
            setattr(self, name, value)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that the kernels change, by name."""
        state = self.state
        parts: dict[str, Any] = {"parameters": state.parameters, "clock": state.clock}
        parts |= {f"moments{k}": own for k, own in enumerate(state.moments) if own is not None}
        parts["gradients"] = state.gradients
        return {key: a for name, part in parts.items() for key, a in _named(name, part).items()}


def _named(name: str, arrays: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a NamedTuple by name, those that are None left out."""
    return {f"{name}.{key}": a for key, a in arrays._asdict().items() if a is not None}
