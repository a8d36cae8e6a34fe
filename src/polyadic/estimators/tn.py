"""How tensor-network estimators are fitted: one model of any format, on the torch engine."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyadic import networks
from polyadic.data.features import encode
from polyadic.estimators import validation
from polyadic.estimators.base import TableEstimator
from polyadic.estimators.targets import Classification, Regression
from polyadic.maps import OneHot, Polynomial
from polyadic.maps.base import FeatureMap
from polyadic.networks.cores import NetworkCores
from polyadic.objective.problem import Problem
from polyadic.solvers import inits
from polyadic.solvers.contract import Solver
from polyadic.solvers.inits import Init, Start
from polyadic.training.members import Member, Table, resume, train_members

# learning_rate="auto", for a narrow table. Products of matrices answer to a step more strongly than
# products of numbers, and chains of 784 of them collapse at 0.015.
_PEAK_RATE = 0.005


def require_torch() -> None:
    """Say what to install where PyTorch is missing."""
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError(
            "TNRegressor and TNClassifier need PyTorch, which is not installed. "
            "Install it with: pip install 'polyadic[torch]'"
        )


@dataclass(frozen=True)
class NetworkInit:
    """Start a format from what an init says."""

    init: Init
    format: str
    order: int

    def start(self, problem: Problem, rank: int, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores; every extra array is free to move."""
        form = networks.resolve(self.format)(
            problem.local.dims.tolist(), rank, problem.n_outputs, self.order
        )
        factors, extras = self.init.network(problem, form, rngs)
        scale = np.ones(problem.n_outputs)
        cores = NetworkCores(
            self.format, rank, self.order, factors, extras, problem.intercept, scale
        )
        return Start(cores, None)


class TNEstimator(TableEstimator):
    """What TNRegressor and TNClassifier share."""

    tensor_: NetworkCores

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
        batch_size="auto",
        learning_rate="auto",
        schedule="one_cycle",
        ema_decay=0.99,
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=None,
        categorical_features="from_dtype",
        warm_start=False,
        random_state=None,
        device="cpu",
        verbose=0,
    ):
        require_torch()
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
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.ema_decay = ema_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.categorical_features = categorical_features
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @staticmethod
    def _solvers() -> list[str]:
        from polyadic.solvers.torch_optim import optimiser_names

        return [*optimiser_names(), "riemannian"]

    def _choose_maps(self) -> list[FeatureMap]:
        form = networks.resolve(self.format)
        if form.constants:
            return super()._choose_maps()
        if self.maps != "auto":
            raise ValueError(
                f"format={self.format!r} works on raw columns: leave maps='auto', "
                f"got {self.maps!r}."
            )
        raw = {"numeric": Polynomial(2), "categorical": OneHot()}
        return [raw[column.kind].clone() for column in self.columns_.columns]

    def _solver(self, table: Table) -> Solver:
        if self.solver == "riemannian":
            from polyadic.solvers.riemannian import PEAK_RATE, Riemannian

            plan = self._schedule(table, PEAK_RATE)
            if self.learning_rate == "auto":
                plan["learning_rate"] = PEAK_RATE  # a share of a step, whatever the width

            return Riemannian(**plan, device=self.device)
        from polyadic.solvers.torch_solver import TorchOptim

        plan = self._schedule(table, _PEAK_RATE)
        return TorchOptim(**plan, optimiser=self.solver, device=self.device)

    def _check_format(self, maps: list[FeatureMap], n_rows: int) -> None:
        """Refuse, before anything is allocated, what cannot be."""
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

    def _train(self, table: Table, held_out: Table | None, seed: int) -> list[Member]:
        maps = self._fit_maps(table)
        self._check_format(maps, len(table))
        recipe = self._recipe(table, self._solver(table))
        init = inits.resolve(self.init)
        if not hasattr(init, "network"):
            raise ValueError(f"init={init!r} has no method `network`, which networks start from.")
        recipe = replace(recipe, init=NetworkInit(init, self.format, self.order))
        return self._with_progress(
            recipe.solver.max_iter,
            lambda report: train_members(recipe, maps, table, held_out, 1, seed, 1, report),
        )

    def _continue(self, table: Table, held_out: Table | None, seed: int) -> list[Member]:
        cores = self._unscaled()
        fitted = (cores.name, cores.rank, cores.order)
        if fitted != (self.format, self.rank, self.order):
            raise ValueError(
                "warm_start=True goes on from a fitted model of format, rank and order "
                f"{fitted}, but these are now {(self.format, self.rank, self.order)}. "
                "Set them back, or set warm_start=False."
            )
        recipe = replace(self._recipe(table, self._solver(table)), intercept=cores.intercept)
        return self._with_progress(
            recipe.solver.max_iter,
            lambda report: [resume(recipe, self.maps_, cores, None, table, held_out, seed, report)],
        )

    def _evaluate(self, columns: list[np.ndarray]) -> np.ndarray:
        from polyadic.solvers import torch_engine

        device = torch_engine.find_device(self.device)
        return torch_engine.predict(self.tensor_, encode(self.maps_, columns), device)

    @property
    def extras_(self) -> list[Any]:
        """The arrays of the format that belong to no column."""
        return self.tensor_.extras


class TNRegressor(Regression, TNEstimator):
    """Regression with a weight tensor in any tensor-network format, on PyTorch.

    Parameters
    ----------
    format : str, default="tt"
        "cp", "tt" (Tensor Train), "tr" (Tensor Ring), "ht" (Hierarchical Tucker), "tucker", or for
        comparison "fm" (factorization machine) and "pn" (polynomial network) on raw columns.
    rank : int, default=5
        Rank of every bond.
    order : int, default=2
        Highest order of interaction, for "fm" and "pn".
    solver : str, default="Adam"
        The name of an optimiser in `torch.optim`, or "riemannian" for format="tt": Exponential
        Machines, which have no use for `ema_decay` and refuse numbers above 0 for `l2` and
        `smoothness`, since cores are not unique on the manifold.
    l2 : float or "auto"
        A number acts on all arrays of the network, "auto" on the cores of the columns.
    learning_rate : float or "auto"
        "auto" is 0.005, less for more than ten columns. With "riemannian" it is a share of the step
        to the minimum along the gradient, and "auto" is 0.2.
    device : str, default="cpu"

    All other parameters are those of `CPRegressor`.

    Attributes
    ----------
    cores_ : list of (d_n, K) arrays
    extras_ : list of arrays that belong to no column
    intercept_, maps_, history_, n_iter_, feature_names_in_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (300, 3))
    >>> y = X[:, 0] * X[:, 1] + X[:, 2] ** 2
    >>> model = TNRegressor("tt", maps="polynomial", rank=3, max_iter=60, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.9)
    True
    """


class TNClassifier(Classification, TNEstimator):
    """Classification with a weight tensor in any tensor-network format, on PyTorch.

    Parameters are those of `TNRegressor`, but for `loss` and `class_weight`, which are those of
    `CPClassifier`.
    """

    def __init__(
        self,
        format="tt",
        maps="auto",
        rank=5,
        order=2,
        loss="log_loss",
        class_weight=None,
        l2="auto",
        order_alpha=0.0,
        order_beta=2.0,
        smoothness="auto",
        init="near_one",
        solver="Adam",
        max_iter="auto",
        batch_size="auto",
        learning_rate="auto",
        schedule="one_cycle",
        ema_decay=0.99,
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=None,
        categorical_features="from_dtype",
        warm_start=False,
        random_state=None,
        device="cpu",
        verbose=0,
    ):
        super().__init__(
            format=format,
            maps=maps,
            rank=rank,
            order=order,
            loss=loss,
            l2=l2,
            order_alpha=order_alpha,
            order_beta=order_beta,
            smoothness=smoothness,
            init=init,
            solver=solver,
            max_iter=max_iter,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            ema_decay=ema_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            categorical_features=categorical_features,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight
