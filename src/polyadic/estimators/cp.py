"""How CP estimators are fitted: members side by side, merged into one model."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from joblib import effective_n_jobs

from polyadic.data.features import encode, plan
from polyadic.data.rows import CodedRows
from polyadic.estimators import validation
from polyadic.estimators.base import TableEstimator
from polyadic.estimators.targets import Classification, Regression
from polyadic.maps import Hat
from polyadic.networks.cp import CPCores
from polyadic.solvers.adam import AdamState
from polyadic.solvers.als import ALS, AdamThenAls, AlsThenAdam
from polyadic.solvers.blocks import working_room
from polyadic.training.members import Training, build_problem
from polyadic.training.merge import Member
from polyadic.training.plan import Plan, plan_pass, resolve_cp, resume_cp, separate_mask


@dataclass
class _Passes:
    """What `partial_fit` keeps from call to call."""

    weight_unit: float  # the mean weight of the first rows
    count: int = 0
    n_seen: float = 0.0
    state: AdamState | None = None
    free: np.ndarray | None = None


class CPEstimator(TableEstimator):
    """What CPRegressor and CPClassifier share."""

    tensor_: CPCores
    _passes: _Passes | None

    @staticmethod
    def _solvers() -> list[str]:
        return ["auto", "adam", "als", "als+adam", "adam+als"]

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
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _plan(self, rows: CodedRows, has_held_out: bool) -> Plan:
        self._passes = None
        if self._resumes:
            task = self._task(rows, has_held_out, self.maps_)
            strength = getattr(self, "interaction_", None)
            return resume_cp(self, task, self._unscaled(), strength)
        plan = resolve_cp(self, self._task(rows, has_held_out, self._fit_maps(rows)))
        self._check_memory(plan, len(rows))
        return plan

    def _check_memory(self, plan: Plan, n_rows: int) -> None:
        """Refuse, before anything is allocated, what would not fit into memory."""
        width = plan.ranks[1] * (len(plan.intercept) if plan.separate_outputs else 1)
        sweeps = isinstance(plan.solver, ALS | AlsThenAdam | AdamThenAls)
        validation.check_memory(
            plan.maps,
            width,
            self.order_alpha,
            n_rows,
            plan.n_members,
            plan.n_jobs,
            working_room(plan.maps, width, n_rows) if sweeps else 0,
        )

    def _evaluate(self, columns: list[np.ndarray]) -> np.ndarray:
        knots = [m.knots_ for m in self.maps_ if type(m) is Hat]
        if len(knots) == len(self.maps_):
            layout, _ = plan(self.maps_, [2] * len(knots))
            return self.tensor_.contract_hats(layout, knots, columns)
        return self.tensor_.contract(encode(self.maps_, columns))

    def _threads(self) -> int:
        return effective_n_jobs(self.n_jobs)

    def partial_fit(self, X, y, sample_weight=None) -> Self:
        """Take one pass over these rows, with a constant rate, and remember the moments.

        The first call fits columns, maps and the scale of the target on its rows and starts one
        model; members, early stopping and the schedule have no part in it. A call after `fit`
        goes on from the fitted model. Passes are Adam's, whatever the solver of `fit`.
        """
        return self._partial_fit(X, y, sample_weight)

    def _partial_fit(self, X, y, sample_weight, classes=None) -> Self:
        with self._all_or_nothing() as model:
            if self.engine != "fused":
                raise ValueError("partial_fit runs on engine='fused' only.")
            rows = model._read_rows(X, y, sample_weight, not hasattr(self, "tensor_"), classes)
            model._take_pass(rows)
        return self

    def _take_pass(self, rows: CodedRows) -> None:
        """Take one pass over the rows, from the start or from the fitted model."""
        first = not hasattr(self, "tensor_")
        if first:
            self.maps_ = self._fit_maps(rows)
        plan = plan_pass(self, self._task(rows, False, self.maps_))
        passes = copy.deepcopy(getattr(self, "_passes", None)) or _Passes(rows.weight.mean())
        if first:
            self._check_memory(plan, len(rows))
        else:
            cores = self._unscaled()
            plan = replace(plan, intercept=cores.intercept)
        strength = plan.ladder.strengths[0]
        problem = build_problem(plan, self.maps_, rows, None, strength, passes.n_seen)
        problem = replace(problem, weight_unit=passes.weight_unit)
        if first:
            rngs = [np.random.default_rng((plan.seed, n)) for n in range(len(self.maps_) + 1)]
            start = plan.init.start(problem, plan.ranks[0], rngs)
            cores, passes.free = start.cores, start.free
        if passes.state is None:
            passes.state = AdamState.start(cores)
        free = passes.free
        if free is None and self.separate_outputs:
            free = separate_mask(cores)
        rng = np.random.default_rng((plan.seed, passes.count))
        solution = plan.solver.solve(problem, cores, free, rng, state=passes.state)
        if not solution.converged:
            passes.state = None  # the next call starts from the model, not from what diverged
        passes.count += 1
        passes.n_seen += rows.effective_rows()
        self._passes = passes
        self._remember(plan, Training([Member(self.maps_, solution)]))
        self._add_marginals(rows, first)

    def _add_marginals(self, rows: CodedRows, first: bool) -> None:
        """Mix what is known of the columns with what these rows say."""
        if first:
            self.marginals_ = self._measure_marginals(rows)
        elif hasattr(self, "marginals_"):  # a model from an older file does not know its rows
            pairs = zip(self.marginals_, self._measure_marginals(rows))
            self.marginals_ = [known.mix(new) for known, new in pairs]

    @property
    def weights_(self) -> np.ndarray:
        """The output matrix C, (R, L), in units of the target."""
        return self.tensor_.weights


class CPRegressor(Regression, CPEstimator):
    """Regression with a CP weight tensor over local feature maps.

    Accurate with its defaults, and readable exactly: the model is a sum of R products of one
    function a column. Five members, each on knots and held-out rows of its own, are merged into one
    such sum.

    Parameters
    ----------
    maps : str, FeatureMap or dict, default="auto"
        Feature map of the columns: "auto" (hats for numbers, one-hot for categories), the name or
        an instance of a map for all numeric columns, or a dict from column to map.
    rank : int or "auto", default="auto"
        Number of rank-one terms R of each member. "auto" is 32.
    loss : str or Loss, default="squared_error"
        "squared_error", "absolute_error", "huber", "poisson", or an instance from
        `polyadic.objective.losses`, such as `Quantile(0.9)`.
    l2 : float or "auto", default="auto"
        Strength of the L2 penalty on all elements but constants. "auto" follows the noise, weighs
        the heavier on a column the flatter it is, and is one of several strengths that the first
        members try (docs/defaults.md).
    order_alpha, order_beta : float
        Strength and base of the order penalty (paper, section VI); off by default.
    smoothness : float or "auto", default="auto"
        Strength of the penalty on second differences along knots; "auto" as for `l2`.
    init : str or init, default="near_one"
        "near_one", "gaussian", "linear", or an instance from `polyadic.solvers.inits`.
    separate_outputs : bool, default=False
        With several outputs: one weight tensor each, as in the paper, instead of shared factors.
    solver : "auto", "adam", "als", "als+adam" or "adam+als"
        "als" takes each core in turn to its minimum with the others fixed, for hats, B-splines,
        categories and polynomials of up to five elements: a few sweeps, each an epoch. "als+adam"
        starts Adam from one such sweep, and is what "auto" takes for the squared error where maps
        allow it. "adam+als" ends with sweeps, for as long as held-out rows gain by them; "auto"
        takes it where columns have polynomials, or other maps without knots, of up to five
        elements, `max_iter` is left alone, and a sweep costs little beside Adam.
    engine : "fused" or "torch"
        "torch" trains by automatic differentiation on `device`; it needs the extra `torch`.
    device : str, default="cpu"
    n_members : int or "auto", default="auto"
        Models that are averaged, and merged into one; "auto" is 5. With one, no strengths of L2 and
        smoothness are tried.
    max_iter, batch_size : int or "auto"
    learning_rate : float or "auto"
        The peak of the schedule; "auto" is 0.015, less for more than ten columns.
    schedule : "one_cycle" or "constant"
    ema_decay : float, default=0.99
        Weight of the past in the running average of the parameters; 0 for none.
    early_stopping : bool, default=True
        Hold out a part of the rows, another one for each member, and keep the best epoch on it.
    validation_fraction : float, default=0.1
        Rounded to one part in k. Where that is fewer than five rows, none are held out.
    n_iter_no_change : int or None
        Stop after so many epochs without progress; None lets the schedule run to its end, unless
        the held-out loss has long been far above its best.
    categorical_features : "from_dtype", list, mask or None
    warm_start : bool
        Let `fit` go on from the fitted, merged model, with its maps and its rank.
    random_state : int, RandomState or None
    n_jobs : int, default=-1
        Threads; results do not depend on it.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    cores_ : list of (d_n, R) arrays
    weights_ : (R, L)
    intercept_ : (L,)
    maps_ : list of fitted FeatureMap
    history_ : list of dict, the learning curves of each member
    n_iter_ : int
    feature_names_in_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (500, 3))
    >>> y = X[:, 0] * X[:, 1] + X[:, 2] ** 2
    >>> model = CPRegressor(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """


class CPClassifier(Classification, CPEstimator):
    """Classification with a CP weight tensor over local feature maps.

    Parameters are those of `CPRegressor`, but for `loss` ("log_loss" or, as in the paper's
    recommender experiment, "squared_error" on labels -1 and +1) and `class_weight` (a dict,
    "balanced" or None).

    Two classes are fitted under a prior on the weight tensor (docs/defaults.md), by solver="als",
    as long as `solver`, `max_iter`, `l2`, `smoothness`, `order_alpha` and `init` are left alone.
    Held-out rows then choose how much interaction to believe in, also with one member, and nothing
    else: two members (n_members="auto") learn from all rows, their rank (rank="auto") is 16 to 64,
    the more the more interaction was found, and `n_iter_no_change` and all that steers Adam have no
    part in it. With solver="als" the same holds for more classes.

    Attributes
    ----------
    classes_ : (K,)
        And those of `CPRegressor`. Two classes share one output; K > 2 have K.
    interaction_ : float
        How much interaction the held-out rows asked for, where there is a prior.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (400, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "opposite")
    >>> model = CPClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        maps="auto",
        rank="auto",
        loss="log_loss",
        class_weight=None,
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
        n_jobs=-1,
        verbose=0,
    ):
        super().__init__(
            maps=maps,
            rank=rank,
            loss=loss,
            l2=l2,
            order_alpha=order_alpha,
            order_beta=order_beta,
            smoothness=smoothness,
            init=init,
            separate_outputs=separate_outputs,
            solver=solver,
            engine=engine,
            device=device,
            n_members=n_members,
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
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def partial_fit(self, X, y, classes=None, sample_weight=None) -> Self:  # type: ignore[override]
        """Take one pass over these rows; the first call needs all `classes`."""
        if classes is None and not hasattr(self, "tensor_"):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return self._partial_fit(X, y, sample_weight, classes)
