"""How CP estimators are fitted: members side by side, merged into one model."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.metaestimators import available_if

from polyadic.data.features import encode, lay_out
from polyadic.data.marginals import full_core
from polyadic.data.rows import CodedRows, content_order
from polyadic.estimators import validation
from polyadic.estimators.base import TableEstimator
from polyadic.estimators.callbacks import with_callbacks
from polyadic.estimators.distributed import Cluster, fit_on
from polyadic.estimators.streamed import (
    StreamedFit,
    budget_of,
    check_streams,
    gather,
    is_small,
    learn_table,
    open_reading,
    store_rows,
)
from polyadic.kernels.jit import FORM
from polyadic.maps import FeatureMap, Hat, OneHot
from polyadic.networks.cp import CPCores
from polyadic.objective.problem import Problem
from polyadic.scale.reading import Reading
from polyadic.scale.sources import is_source
from polyadic.solvers.adam import Adam, AdamState
from polyadic.solvers.blocks import working_memory
from polyadic.solvers.contract import Deadline
from polyadic.solvers.registry import FUSED
from polyadic.solvers.sequences import balanced, balanced_by
from polyadic.training.checkpoints import Checkpoint
from polyadic.training.fits import build_problem
from polyadic.training.members import Training
from polyadic.training.merge import Member
from polyadic.training.model import known_marginals
from polyadic.training.plan import Plan
from polyadic.training.resolve_cp import plan_pass, resolve_cp, resume_cp, separate_mask
from polyadic.version import __version__

# Parameters that change no bit of a fit: it may go on with others.
_NO_EFFECT = ("checkpoint", "memory", "n_jobs", "verbose")
# Sum of the sizes of the weights of 32 terms at their start: the usual rate is for these.
_USUAL_WEIGHTS = 4.5


@dataclass
class _Passes:
    """What `partial_fit` keeps from call to call."""

    weight_unit: float  # the mean weight of the first call's rows
    order: list[int]  # of the columns, by their content in the first call's rows
    count: int = 0  # calls so far
    n_seen: float = 0.0  # effective rows of all calls so far
    state: AdamState | None = None
    pace: float = 1.0  # share of the usual rate
    free: np.ndarray | None = None
    cores: CPCores | None = None  # as trained, in this order, before missing values were averaged


def _pace(cores: CPCores) -> float:
    """Return the share of the usual rate at which a model is trained further.

    A step moves every entry by up to the rate, and a prediction by up to that times the sum of the
    sizes of all weights. Merged models have hundreds of terms, which partly cancel each other.
    """
    sizes = np.abs(cores.weights).sum(axis=0)
    return float(min(1.0, _USUAL_WEIGHTS / max(sizes.max(initial=0.0), _USUAL_WEIGHTS)))


def has_passes(estimator: CPEstimator) -> bool:
    """Tell whether an estimator has `partial_fit`; where it has not, say why."""
    if estimator.engine != "fused":
        raise AttributeError(
            f"partial_fit runs on engine='fused' only, got engine={estimator.engine!r}."
        )
    return True


class CPEstimator(TableEstimator):
    """What CPRegressor and CPClassifier share."""

    tensor_: CPCores
    _passes: _Passes | None

    @staticmethod
    def _solvers() -> list[str]:
        return ["auto", *FUSED]

    def __init__(
        self,
        maps="auto",
        rank="auto",
        loss="squared_error",
        l2="auto",
        order_alpha=0.0,
        order_beta=2.0,
        smoothness="auto",
        init="near_one",
        separate_outputs=False,
        solver="auto",
        engine="fused",
        device="cpu",
        n_members="auto",
        trees="auto",
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
        memory="auto",
        checkpoint=None,
        random_state=None,
        n_jobs=-1,
        verbose=0,
    ):
        self.maps = maps
        self.rank = rank
        self.loss = loss
        self.l2 = l2
        self.order_alpha = order_alpha
        self.order_beta = order_beta
        self.smoothness = smoothness
        self.init = init
        self.separate_outputs = separate_outputs
        self.solver = solver
        self.engine = engine
        self.device = device
        self.n_members = n_members
        self.trees = trees
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
        self.memory = memory
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _training_order(self, rows: CodedRows) -> list[int]:
        """Return the columns sorted by their content: their order in the table does not matter."""
        names = self.columns_.names if self.columns_.named else None
        return content_order(rows.columns, names)

    def fit(self, X, y, sample_weight=None, X_val=None, y_val=None, sample_weight_val=None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table of shape (n, N), path, dataset or function
            pandas, polars or pyarrow table, or NumPy array; NaN is a missing number. Or a table
            that need not fit into memory: a Parquet, Arrow or CSV file, a folder or a glob pattern
            of such files, a `pyarrow.dataset.Dataset`, or a function without arguments that returns
            Arrow batches. Above the limit of `memory` its rows are read in parts (docs/scale.md).
        y : (n,), (n, L), or names
            For a table in files: the name of the target's column, or a list of names.
        sample_weight : (n,) or str, optional
            A row with a weight of 2 counts as two rows. For a table in files: the name of a column.
        X_val, y_val : optional
            Held-out rows, used in place of a part of X: they choose all that `plan_` says was
            chosen by held-out rows, such as the best epoch and the shares of the strategies. They
            are read into memory; of a table in files, y_val may be left out.
        sample_weight_val : (m,) or str, optional
            Weights of the held-out rows.
        """
        if is_source(X_val):
            reading = open_reading(X_val, y if y_val is None else y_val, sample_weight_val)
            X_val, y_val, sample_weight_val = reading.whole()
        if not is_source(X):
            return super().fit(X, y, sample_weight, X_val, y_val, sample_weight_val)
        validation.check_to_fit(self)
        reading, budget = open_reading(X, y, sample_weight), budget_of(self)
        if is_small(reading, budget):
            table, target, weight = reading.whole()
            super().fit(table, target, weight, X_val, y_val, sample_weight_val)
            self.target_names_ = list(reading.targets)
            return self
        return self._fit_streamed(reading, budget, X_val, y_val, sample_weight_val)

    @with_callbacks
    def _fit_streamed(self, reading: Reading, budget: float, *val: Any) -> Self:
        """Fit a table that does not fit into memory."""
        start = time.perf_counter()
        check_streams(self)
        with self._all_or_nothing() as model:
            deadline = Deadline(np.inf if self.max_time is None else start + float(self.max_time))
            statistics = gather(model, reading)
            learn_table(model, reading, statistics)
            held_out = None if val[0] is None else model._read_held_out(*val)
            read = time.perf_counter() - start
            streamed = store_rows(model, reading, statistics, budget, held_out)
            with streamed.store:
                given = (reading.source, reading.targets, reading.weight)
                callbacks = model._learn(
                    self, given, streamed.sample, streamed.held_out, deadline, streamed
                )
            seconds = {"statistics": read, **streamed.seconds, **model.plan_.seconds}
            model.plan_ = replace(model.plan_, seconds=seconds)
        for one in callbacks:
            one.finish()
        return self

    @with_callbacks
    def _fit_on(self, cluster: Cluster, y: Any, sample_weight: Any, how: str) -> Self:
        """Fit a table that the processes of a cluster read: see `polyadic.scale.ray.fit`."""
        validation.check_to_fit(self)
        return fit_on(self, cluster, y, sample_weight, how)

    def _open_checkpoint(
        self, rows: CodedRows, held_out: CodedRows | None, streamed: StreamedFit | None
    ) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        parts = [rows] if held_out is None else [rows, held_out]
        arrays = [array for part in parts for array in (*part.columns, part.y, part.weight)]
        kept = {k: v for k, v in self.get_params(deep=False).items() if k not in _NO_EFFECT}
        blocks = () if streamed is None else streamed.identity
        settings = repr((__version__, FORM, type(self).__name__, sorted(kept.items()), blocks))
        return Checkpoint(
            self.checkpoint,
            [settings.encode(), *(np.ascontiguousarray(a).tobytes() for a in arrays)],
        )

    def _plan(
        self,
        rows: CodedRows,
        has_held_out: bool,
        order: Sequence[int] | None = None,
        streamed: StreamedFit | None = None,
        deadline: Deadline | None = None,
    ) -> Plan:
        self._passes = None
        order = range(len(rows.columns)) if order is None else order
        if self._resumes:
            self._check_no_trees()
            task = self._task(rows, has_held_out, [self.maps_[n] for n in order])
            strength = getattr(self, "interaction_", None)
            return resume_cp(self, task, self._unscaled().reordered(order), strength)
        if streamed is None:
            maps = self._fit_maps(rows, order)
        else:
            maps = streamed.fit_maps(self._choose_maps(), order)
        task = replace(self._task(rows, has_held_out, maps), deadline=deadline)
        if streamed is not None:
            task = replace(task, memory=budget_of(self))
        plan = resolve_cp(self, task)
        if streamed is not None and "epochs" not in plan.solver.phases:
            plan = resolve_cp(self, task, solver="adam")  # sweeps need all rows in memory
        for one in (plan, *plan.others):
            self._check_memory(one, len(rows))
        return plan

    def _check_no_trees(self) -> None:
        """Refuse to go on from a model with trees: only the smooth terms could follow."""
        if self.tensor_.trees is not None:
            raise ValueError(
                "The fitted model has trees, which cannot be trained further. Fit it anew with "
                "trees=False and warm_start=False, and go on from there."
            )

    def _check_memory(self, plan: Plan, n_rows: int) -> None:
        """Refuse, before anything is allocated, a plan that would not fit into memory."""
        width = plan.ranks[1] * (len(plan.intercept) if plan.separate_outputs else 1)
        sweeps = "sweeps" in plan.solver.phases
        validation.check_memory(
            plan.maps,
            width,
            self.order_alpha,
            n_rows,
            plan.n_members,
            plan.n_jobs,
            working_memory(plan.maps, width, n_rows) if sweeps else 0,
        )

    def _evaluate(self, columns: list[np.ndarray]) -> np.ndarray:
        raw = self._evaluate_smooth(columns)
        if self.tensor_.trees is not None:
            self.tensor_.trees.add_to(raw, columns)
        return raw

    def _evaluate_smooth(self, columns: list[np.ndarray]) -> np.ndarray:
        knots = [m.knots_ for m in self.maps_ if type(m) is Hat]
        if len(knots) == len(self.maps_):
            layout, _ = lay_out(self.maps_, [2] * len(knots))
            return self.tensor_.contract_hats(layout, knots, columns)
        return self.tensor_.contract(encode(self.maps_, columns))

    def _threads(self) -> int:
        return effective_n_jobs(self.n_jobs)

    @available_if(has_passes)
    def partial_fit(self, X, y, sample_weight=None) -> Self:
        """Train for one epoch on these rows, at a constant rate, and keep Adam's moments.

        The first call fits columns, maps and the scale of the target on its rows and starts one
        model; `n_members`, `early_stopping` and `schedule` are not used. A call after `fit` goes on
        from the fitted model. The solver is always Adam, whatever `solver` says. Estimators with
        engine="torch" do not have this method.
        """
        return self._partial_fit(X, y, sample_weight)

    def _partial_fit(self, X, y, sample_weight, classes=None) -> Self:
        with self._all_or_nothing() as model:
            if hasattr(self, "tensor_"):
                self._check_no_trees()
                self._check_same_loss()
            rows = model._read_rows(X, y, sample_weight, not hasattr(self, "tensor_"), classes)
            model._take_pass(rows)
        return self

    def _take_pass(self, rows: CodedRows) -> None:
        """Train for one epoch on the rows, from the start or from the fitted model."""
        first = not hasattr(self, "tensor_")
        if first:
            self.maps_ = self._fit_first_maps(rows)
        passes = self._open_passes(rows)
        as_given, rows = rows, rows.restricted(passes.order)
        maps = [self.maps_[n] for n in passes.order]
        plan = plan_pass(self, self._task(rows, False, maps))
        if first:
            self._check_memory(plan, len(rows))
        else:
            known = passes.cores
            cores = self._unscaled().reordered(passes.order) if known is None else known
            plan = replace(plan, intercept=cores.intercept)
        strength = plan.ladder.strengths[0]
        problem = build_problem(plan, maps, rows, None, passes.n_seen)
        problem = plan.strategy.prepare(problem, maps)
        problem = plan.strategy.regularise(problem, maps, strength)
        problem = replace(problem, weight_unit=passes.weight_unit)
        if first:
            rngs = [np.random.default_rng((plan.seed, n)) for n in range(len(maps) + 1)]
            start = plan.init.start(problem, plan.ranks[0], rngs)
            cores, passes.free = start.cores, start.free
        if passes.state is None:
            if not first:
                cores = self._balanced(cores, problem, passes.order)
                passes.pace = _pace(cores)
            passes.state = AdamState.start(cores)
        free = passes.free
        if free is None and self.separate_outputs:
            free = separate_mask(cores)
        rng = np.random.default_rng((plan.seed, passes.count))
        solver = plan.solver
        assert isinstance(solver, Adam)
        if self.learning_rate == "auto":
            solver = solver.with_rate(passes.pace * solver.learning_rate)
        solution = solver.solve(problem, cores, free, rng, state=passes.state)
        if not solution.converged:
            passes.state = None  # the next call starts from the model, not from what diverged
        passes.count, passes.cores = passes.count + 1, solution.cores
        passes.n_seen += rows.effective_rows()
        self._passes = passes
        # A later pass may have a row far outside of all others: the model is as good as before.
        looked_at = as_given if first else None
        self._remember(plan, Training([Member(maps, solution)]), looked_at, passes.order)
        self._add_marginals(as_given, first)

    def _balanced(self, cores: CPCores, problem: Problem, order: Sequence[int]) -> CPCores:
        """Return the fitted model as Adam goes on from it.

        Of a merged model, some terms have one factor of thousands and others near zero. Their sizes
        are those on all rows so far: a single row, where a factor is near zero by chance, would
        make that factor large everywhere else.
        """
        known = known_marginals(self)
        if known is None:  # a model from an old file
            return balanced(cores, problem.local)
        sizes = []
        for n, core in zip(order, cores.factors):
            full = full_core(self.maps_[n], core)
            squares = np.einsum("dr,dr->r", full, known[n].second @ full)
            sizes.append(np.sqrt(np.maximum(squares, 0.0)))
        return balanced_by(cores, sizes)

    def _open_passes(self, rows: CodedRows) -> _Passes:
        """Return what earlier calls have kept, or what the first call starts with.

        The first call's rows fix the order in which columns are taken: the content of later rows
        would give another one.
        """
        known = copy.deepcopy(getattr(self, "_passes", None))
        return known or _Passes(rows.weight.mean(), self._training_order(rows))

    def _fit_first_maps(self, rows: CodedRows) -> list[FeatureMap]:
        """Fit maps on rows that others will follow: a category of one row may become frequent."""
        chosen = self._choose_maps()
        for n, own in enumerate(chosen):
            if isinstance(own, OneHot) and own.min_count == "auto":
                chosen[n] = OneHot(min_count=1, along=own.along)
        return self._fit_maps(rows, chosen=chosen)

    def _add_marginals(self, rows: CodedRows, first: bool) -> None:
        """Add these rows to the known marginals of the columns."""
        if first:
            self.marginals_ = self._measure_marginals(rows)
        elif hasattr(self, "marginals_"):  # a model from an old file has none
            pairs = zip(self.marginals_, self._measure_marginals(rows))
            self.marginals_ = [known.mix(new) for known, new in pairs]
        if hasattr(self, "marginals_"):
            self._average_missing()

    @property
    def weights_(self) -> np.ndarray:
        """The output matrix C, (R, L), in units of the target."""
        return self.tensor_.weights
