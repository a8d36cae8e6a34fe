"""The estimators: wiring only."""

from __future__ import annotations

from typing import Self

from polyadic.fitting import CPEstimator
from polyadic.networks import TNEstimator
from polyadic.targets import Classification, Regression


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
        `polyadic.losses`, such as `Quantile(0.9)`.
    l2 : float or "auto", default="auto"
        Strength of the L2 penalty on all elements but constants. "auto" follows the noise, weighs
        the heavier on a column the flatter it is, and is one of several strengths that the first
        members try (docs/defaults.md).
    order_alpha, order_beta : float
        Strength and base of the order penalty (paper, section VI); off by default.
    smoothness : float or "auto", default="auto"
        Strength of the penalty on second differences along knots; "auto" as for `l2`.
    init : str or init, default="near_one"
        "near_one", "gaussian", "linear", or an instance from `polyadic.inits`.
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
