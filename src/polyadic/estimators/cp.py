"""How CP estimators are fitted: members side by side, merged into one model."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from joblib import effective_n_jobs

from polyadic.data.features import encode, plan
from polyadic.data.slots import MOST_SLOTS, dense_slots, n_slots
from polyadic.estimators import validation
from polyadic.estimators.base import TableEstimator
from polyadic.estimators.targets import Classification, Regression
from polyadic.kernels.examples import Form, Plan
from polyadic.kernels.losses import LOGISTIC, OWN, SQUARED
from polyadic.maps import Hat
from polyadic.maps.base import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.solvers.adam import Adam, AdamState
from polyadic.solvers.als import ALS, MAX_SWEEPS, PATIENCE
from polyadic.solvers.blocks import sweep_cost, working_room
from polyadic.solvers.contract import Solver
from polyadic.solvers.registry import FUSED
from polyadic.solvers.sequences import AdamThenAls, AlsThenAdam
from polyadic.solvers.threads import MANY_SLOTS
from polyadic.training.compiling import prepare_fit
from polyadic.training.members import (
    RANKS,
    USUAL_INTERACTION,
    Member,
    Recipe,
    Table,
    assign_folds,
    build_problem,
    count_fits,
    merge,
    resume,
    train_members,
)

_PEAK_RATE = 0.015  # learning_rate="auto", for a narrow table
_WARM_SWEEPS = 1  # solver="als+adam": a second sweep costs more than it gains
_PRIOR_SWEEPS = 8
_RANK = 32  # rank="auto", but under a prior
_MOST_ROOM = 2e8  # of 24 bytes for normal equations; beyond, solver="auto" does without
_MEMBERS = 5  # n_members="auto", but under a prior: one model is its optimum already
_PRIOR_MEMBERS = 2


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

    def _chosen_solver(self, maps: list[FeatureMap]) -> str:
        """Resolve solver="auto".

        Least squares alone for two classes, where nothing was asked for that belongs to Adam or to
        the factors; a sweep of it before Adam otherwise, and for the squared error. Where a map has
        all its elements in every row, as polynomials have, sweeps come after Adam instead: such a
        model can be exact, and a start from a sweep gains nothing. Adam alone from another start,
        and where maps have many slots or elements.
        """
        if self.solver != "auto":
            return self.solver
        plain = self.engine == "fused" and self.init == "near_one" and self.max_iter != 0
        code = self._loss().code
        rank = min(RANKS) if code == LOGISTIC and self._believes() else _RANK
        wide = working_room(maps, rank, 0) > _MOST_ROOM
        slots = dense_slots(maps)
        if not plain or wide or max(map(n_slots, maps)) > MOST_SLOTS:
            return "adam"
        if slots > 0:
            polish = code == SQUARED and self.max_iter == "auto"
            return "adam+als" if polish else "adam"
        if code == LOGISTIC and self._believes() and self.max_iter == "auto":
            return "als"
        return "als+adam" if code in (SQUARED, LOGISTIC) else "adam"

    def _believes(self) -> bool:
        """Tell whether solver="als" has a prior on the weight tensor as its penalty.

        Not where penalties or a start were asked for, nor where rows are held out to follow the
        noise.
        """
        auto = self.l2 == "auto" and self.smoothness == "auto" and self.order_alpha == 0
        return auto and self.init == "near_one" and not self._loss().location_scale

    def _solver(self, table: Table, maps: list[FeatureMap]) -> Solver:
        solver = self._chosen_solver(maps)
        if self.engine == "torch":
            return self._torch_solver(table, solver)
        if solver == "adam":
            return self._adam(table)
        if solver == "als":
            patience = self.n_iter_no_change or PATIENCE
            usual = _PRIOR_SWEEPS if self._believes() else MAX_SWEEPS
            sweeps = usual if self.max_iter == "auto" else self.max_iter
            return ALS(max_iter=sweeps, n_iter_no_change=patience)
        if solver == "adam+als":
            return self._polished(self._adam(table), maps)
        return AlsThenAdam(ALS(max_iter=_WARM_SWEEPS), self._adam(table))

    def _adam(self, table: Table) -> Adam:
        # Members run side by side; one alone shares its columns among the threads.
        threads = self._threads() if self.n_members == 1 else None
        return Adam(**self._schedule(table, _PEAK_RATE), n_threads=threads)

    def _polished(self, adam: Adam, maps: list[FeatureMap]) -> Solver:
        """Return Adam with sweeps after it that take no longer than it does."""
        sweeps = int(adam.max_iter / sweep_cost(maps, self._width(maps)))
        if self.solver != "auto":
            sweeps = max(1, sweeps)
        return AdamThenAls(adam, ALS(max_iter=min(sweeps, MAX_SWEEPS))) if sweeps else adam

    def _width(self, maps: list[FeatureMap]) -> int:
        """Return how many terms there are in all, at most."""
        separate = self.separate_outputs and len(self._center) > 1
        return self._highest_rank(maps) * (len(self._center) if separate else 1)

    def _torch_solver(self, table: Table, solver: str) -> Solver:
        if solver != "adam":
            raise ValueError(
                f"solver={solver!r} runs on engine='fused' only; engine='torch' has solver='adam'."
            )
        from polyadic.solvers.torch_solver import TorchOptim

        return TorchOptim(**self._schedule(table, _PEAK_RATE), device=self.device)

    def _fit_maps(self, table: Table) -> list[FeatureMap]:
        fitted = super()._fit_maps(table)
        width = self._width(fitted)
        alone = self._chosen_solver(fitted) == "adam"
        extra = 0 if alone else working_room(fitted, width, len(table))
        validation.check_memory(
            fitted,
            width,
            self.order_alpha,
            len(table),
            self._n_members(False),
            self._threads(),
            extra,
        )
        return fitted

    def _n_members(self, prior: bool) -> int:
        if self.n_members != "auto":
            return self.n_members
        return _PRIOR_MEMBERS if prior else _MEMBERS

    def _highest_rank(self, maps: list[FeatureMap]) -> int:
        """Return the rank, or the most that "auto" may come to: as many terms as have room."""
        if self.rank != "auto":
            return self.rank
        if not (self._chosen_solver(maps) == "als" and self._believes()):
            return _RANK
        ranks = range(max(RANKS), min(RANKS), -8)
        roomy = (rank for rank in ranks if working_room(maps, rank, 0) <= _MOST_ROOM)
        return next(roomy, min(RANKS))

    def _recipe(self, table: Table, solver: Solver) -> Recipe:
        """Resolve names and "auto" into what members are trained by."""
        recipe = super()._recipe(table, solver)
        prior = isinstance(solver, ALS) and self._believes()
        strength = getattr(self, "interaction_", USUAL_INTERACTION) if prior else 1.0
        recipe = replace(recipe, prior=prior, strength=strength)
        if self.rank != "auto":
            return recipe
        return replace(recipe, rank=min(RANKS) if prior else _RANK)

    def _train(self, table: Table, held_out: Table | None, seed: int) -> list[Member]:
        self._passes = None
        maps = self._fit_maps(table)
        recipe = self._recipe(table, self._solver(table, maps))
        n_members = self._n_members(recipe.prior)
        self._prepare_kernels(maps, recipe, n_members)
        if recipe.prior and self.rank == "auto":
            recipe = replace(recipe, most_rank=self._highest_rank(maps))
        judged = held_out is not None or assign_folds(recipe, table, held_out, seed) is not None
        n_fits = count_fits(recipe, table, n_members, judged)
        members = self._with_progress(
            recipe.solver.max_iter * n_fits,
            lambda report: train_members(
                recipe, maps, table, held_out, n_members, seed, self._threads(), report
            ),
        )
        self.__dict__.pop("interaction_", None)
        if recipe.prior:
            self.interaction_ = members[0].strength
        return members

    def _prepare_kernels(self, maps: list[FeatureMap], recipe: Recipe, n_members: int) -> None:
        """Compile what the fit needs, where it was not done before: see `kernels.compiling`."""
        if self.engine != "fused" or self.init != "near_one":
            return  # another start may have an additive part, or not: it compiles as it goes
        shared = n_members == 1 and sum(map(n_slots, maps)) >= MANY_SLOTS
        plan = Plan(
            Form(
                dense=any(m.all_slots for m in maps),
                order=recipe.order_alpha > 0,
                own_loss=recipe.loss.code == OWN,
            ),
            least_squares=isinstance(recipe.solver, ALS | AlsThenAdam | AdamThenAls),
            adam=not (isinstance(recipe.solver, ALS) or shared),
            prior=recipe.prior,
            members=n_members > 1,
        )
        prepare_fit(plan)

    def _continue(self, table: Table, held_out: Table | None, seed: int) -> list[Member]:
        self._passes = None
        cores = self._unscaled()
        recipe = self._recipe(table, self._solver(table, self.maps_))
        recipe = replace(recipe, intercept=cores.intercept)
        return self._with_progress(
            recipe.solver.max_iter,
            lambda report: [
                resume(recipe, self.maps_, cores, self._free(cores), table, held_out, seed, report)
            ],
        )

    def _free(self, cores: CPCores) -> np.ndarray | None:
        """Return which output weights of a fitted model may move: separate tensors stay apart."""
        return (cores.weights != 0).astype(float) if self.separate_outputs else None

    def _merge(self, members: list[Member]) -> tuple[list[FeatureMap], CPCores]:
        return merge(members)

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
        return self._attempt(self._pass, X, y, sample_weight)

    def _pass(self, X, y, sample_weight, classes=None) -> None:
        first = not hasattr(self, "tensor_")
        table = self._read(X, y, sample_weight, first, classes)
        if self.engine != "fused":
            raise ValueError("partial_fit runs on engine='fused' only.")
        solver = replace(self._adam(table), max_iter=1, schedule="constant")
        recipe = self._recipe(table, solver)
        passes = copy.deepcopy(getattr(self, "_passes", None)) or _Passes(table.weight.mean())
        if first:
            self.maps_ = self._fit_maps(table)
        else:
            cores = self._unscaled()
            recipe = replace(recipe, intercept=cores.intercept)
        problem = build_problem(recipe, self.maps_, table, None, passes.n_seen)
        problem = replace(problem, weight_unit=passes.weight_unit)
        seed = self._seed()
        if first:
            rngs = [np.random.default_rng((seed, n)) for n in range(len(self.maps_) + 1)]
            start = recipe.init.start(problem, recipe.rank, rngs)
            cores, passes.free = start.cores, start.free
        if passes.state is None:
            passes.state = AdamState.start(cores)
        free = self._free(cores) if passes.free is None else passes.free
        rng = np.random.default_rng((seed, passes.count))
        solution = recipe.solver.solve(problem, cores, free, rng, state=passes.state)
        if not solution.converged:
            passes.state = None  # the next call starts from the model, not from the wreck
        passes.count += 1
        passes.n_seen += table.worth()
        self._passes = passes
        self._finish([Member(self.maps_, solution)])
        if first:
            self.marginals_ = self._marginals(table)
        elif hasattr(self, "marginals_"):  # a model from an older file does not know its rows
            pairs = zip(self.marginals_, self._marginals(table))
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
        return self._attempt(self._pass, X, y, sample_weight, classes)
