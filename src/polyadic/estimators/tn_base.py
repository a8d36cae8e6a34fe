"""How tensor-network estimators are fitted: one model of any format, on the torch engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyadic import networks
from polyadic.data.features import encode
from polyadic.data.rows import CodedRows
from polyadic.estimators import validation
from polyadic.estimators.base import TableEstimator
from polyadic.maps import OneHot, Polynomial
from polyadic.maps.base import FeatureMap
from polyadic.networks.cores import Cores
from polyadic.networks.cp import CPCores
from polyadic.objective.problem import Problem
from polyadic.solvers import inits
from polyadic.solvers.contract import Deadline
from polyadic.solvers.inits import Init, Start
from polyadic.solvers.registry import NETWORKS
from polyadic.training.plan import Plan
from polyadic.training.resolve_networks import resolve_tn, resume_tn


def require_torch() -> None:
    """Raise ModuleNotFoundError, with what to install, where PyTorch is missing."""
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError(
            "TNRegressor and TNClassifier need PyTorch, which is not installed. "
            "Install it with: pip install 'polyadic[torch]'"
        )


@dataclass(frozen=True)
class NetworkInit:
    """Let an init start the cores of a format."""

    init: Init
    format: str
    order: int

    def start(self, problem: Problem, rank: int, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores."""
        form = networks.resolve(self.format)(
            problem.local.dims.tolist(), rank, problem.n_outputs, self.order
        )
        return self.init.network(problem, form, rngs)


class TNEstimator(TableEstimator):
    """What TNRegressor and TNClassifier share."""

    tensor_: Cores

    def __init__(
        self,
        format="tt",
        maps="auto",
        rank=5,
        order=2,
        loss="squared_error",
        l2="auto",
        order_alpha=0.0,
        order_beta=2.0,
        smoothness="auto",
        init="near_one",
        solver="Adam",
        max_iter="auto",
        max_time=None,
        batch_size="auto",
        learning_rate="auto",
        schedule="one_cycle",
        ema_decay=0.99,
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=None,
        tol=1e-5,
        categorical_features="from_dtype",
        warm_start=False,
        random_state=None,
        device="cpu",
        verbose=0,
    ):
        self.format = format
        self.maps = maps
        self.rank = rank
        self.order = order
        self.loss = loss
        self.l2 = l2
        self.order_alpha = order_alpha
        self.order_beta = order_beta
        self.smoothness = smoothness
        self.init = init
        self.solver = solver
        self.max_iter = max_iter
        self.max_time = max_time
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.ema_decay = ema_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.categorical_features = categorical_features
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @staticmethod
    def _solvers() -> list[str]:
        require_torch()
        from polyadic.solvers.torch_optim import optimiser_names

        return [*optimiser_names(), *NETWORKS]

    def _choose_maps(self) -> list[FeatureMap]:
        form = networks.resolve(self.format)
        if form.constants:
            return super()._choose_maps()
        if self.maps != "auto":
            raise ValueError(
                f"format={self.format!r} works on raw columns: leave maps='auto', "
                f"got {self.maps!r}."
            )
        return [
            Polynomial(2)
            if column.kind == "numeric"
            else OneHot(along="circle" if column.circle else None)
            for column in self.columns_.columns
        ]

    def _check_format(self, maps: list[FeatureMap], n_rows: int) -> None:
        """Refuse, before anything is allocated, a format that cannot be trained."""
        if self.rank == "auto":
            raise ValueError("rank must be a whole number of at least 1, got 'auto'.")
        dims, n_outputs = [m.dim for m in maps], len(self._center)
        form = networks.resolve(self.format)(dims, self.rank, n_outputs, self.order)
        if self.order_alpha > 0 and not form.is_network:
            raise ValueError(
                f"format={self.format!r} has no weight tensor to put an order penalty on: "
                f"set order_alpha=0, got {self.order_alpha!r}."
            )
        n_extra = form.n_parameters() - sum(dims) * form.width
        if self.order_alpha > 0:
            n_extra += form.numbers_per_penalty()
        validation.check_memory(maps, form.width, 0.0, n_rows, n_extra=n_extra)

    def _plan(
        self,
        rows: CodedRows,
        has_held_out: bool,
        order: Sequence[int] | None = None,
        streamed: Any = None,
        deadline: Deadline | None = None,
    ) -> Plan:
        if self._resumes:
            return self._resumed_plan(rows, has_held_out)
        maps = self._fit_maps(rows)
        self._check_format(maps, len(rows))
        init = inits.resolve(self.init)
        if not hasattr(init, "network"):
            raise ValueError(f"init={init!r} has no method `network`, which networks start from.")
        start = NetworkInit(init, self.format, self.order)
        is_network = networks.resolve(self.format).is_network
        return resolve_tn(self, self._task(rows, has_held_out, maps), start, is_network)

    def _resumed_plan(self, rows: CodedRows, has_held_out: bool) -> Plan:
        """Return the plan of going on from the fitted network, if it is still of this kind."""
        cores = self._unscaled()
        order = self.order if isinstance(cores, CPCores) else cores.order
        fitted = (cores.name, cores.rank, order)
        if fitted != (self.format, self.rank, self.order):
            raise ValueError(
                "warm_start=True goes on from a fitted model of format, rank and order "
                f"{fitted}, but these are now {(self.format, self.rank, self.order)}. "
                "Set them back, or set warm_start=False."
            )
        return resume_tn(self, self._task(rows, has_held_out, self.maps_), cores)

    def _evaluate(self, columns: list[np.ndarray]) -> np.ndarray:
        from polyadic.solvers import torch_engine

        device = torch_engine.find_device(self.device)
        return torch_engine.predict(self.tensor_, encode(self.maps_, columns), device)

    @property
    def extras_(self) -> list[Any]:
        """The arrays of the format that belong to no column."""
        return self.tensor_.extras
