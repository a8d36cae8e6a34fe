"""The tensor-network estimators: their parameters."""

from __future__ import annotations

from polyadic.estimators.targets import Classification, Regression
from polyadic.estimators.tn_base import TNEstimator


class TNRegressor(Regression, TNEstimator):
    """Regression with a weight tensor in any tensor-network format, on PyTorch.

    Parameters
    ----------
    format : str, default="tt"
        "cp", "tt" (Tensor Train), "tr" (Tensor Ring), "ht" (Hierarchical Tucker), "tucker", or for
        comparison "fm" (factorization machine) and "pn" (polynomial network) on raw columns.
    maps : str, FeatureMap or dict, default="auto"
        Feature map of the columns: "auto" (hats for numbers, one-hot for categories), the name or
        an instance of a map for all numeric columns, or a dict from column to map.
    rank : int, default=5
        Rank of every bond.
    order : int, default=2
        Highest order of interaction, for "fm" and "pn" alone.
    loss : str or Loss, default="squared_error"
        "squared_error", "absolute_error", "quantile", "huber", "poisson", an instance from
        `polyadic.losses`, or a loss of your own (docs/losses.md).
    quantile : float or None, default=None
        The level of loss="quantile", between 0 and 1.
    l2 : float or "auto", default="auto"
        Strength of the L2 penalty. A number acts on all arrays of the network, "auto" on the cores
        of the columns, in proportion to the noise.
    order_alpha : float, default=0.0
        Strength of the order penalty (paper, section VI).
    order_beta : float, default=2.0
        Base of the order penalty: how much more a term costs per degree.
    smoothness : float or "auto", default="auto"
        Strength of the penalty on second differences along knots; "auto" as for `l2`.
    init : str or init, default="near_one"
        "near_one", "gaussian", "linear", or an instance from `polyadic.inits`.
    solver : str, default="Adam"
        The name of an optimiser in `torch.optim`; "als", sweeps of least squares over one core at a
        time, for every format, on the CPU, without learning rates, batches and averages; or
        "riemannian" for format="tt" (Exponential Machines), which does not use `ema_decay` and
        refuses numbers above 0 for `l2` and `smoothness`, since cores are not unique on the
        manifold.
    max_iter : int or "auto", default="auto"
        Epochs; "auto" depends on the numbers of rows and columns. With "als" sweeps, up to 20.
    max_time : float or None, default=None
        Seconds after which a fit starts nothing new: it keeps the best that it has so far. The
        current epoch, or column of a sweep, is finished. Results then depend on the machine.
    batch_size : int or "auto", default="auto"
        Rows per step; "auto" is a fortieth of the rows, from 16 to 128.
    learning_rate : float or "auto", default="auto"
        The peak of the schedule; "auto" is 0.005, less for more than ten columns. With "riemannian"
        it is a share of the step to the minimum along the gradient, and "auto" is 0.2.
    schedule : "one_cycle" or "constant", default="one_cycle"
        "one_cycle": the rate rises to the peak in a tenth of the steps, then falls along a cosine.
    ema_decay : float, default=0.99
        Weight of the past in the running average of the parameters; 0 for no average.
    early_stopping : bool, default=True
        Hold out a part of the rows, and keep the epoch with the lowest loss on it.
    validation_fraction : float, default=0.1
        Share of the rows to hold out, rounded to 1/k for a whole number k. Where that is fewer than
        five rows, none are held out.
    n_iter_no_change : int or None, default=None
        Stop after this many epochs without progress. None lets the schedule run to its end, unless
        the held-out loss has long been far above its best.
    tol : float, default=1e-5
        A decrease by less than this share of the loss does not count as progress.
    categorical_features : "from_dtype", list, mask or None, default="from_dtype"
        Which columns are categories: those with a categorical, text or boolean dtype; those in a
        list of names or positions, or in a mask; or none.
    warm_start : bool, default=False
        Let `fit` go on from the fitted model, with its maps; `format`, `rank` and `order` must be
        the same.
    random_state : int, RandomState or None, default=None
        Seed. With an int, a fit on the same machine gives the same bits every time.
    device : str, default="cpu"
        The torch device to train and to predict on.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    cores_ : list of (d_n, K) arrays
    extras_ : list of arrays
        The arrays of the network that belong to no column.
    intercept_ : (L,)
    maps_ : list of fitted FeatureMap
    marginals_ : list of Marginal
        The distribution of each column, for explanations.
    plan_ : PlanSummary
        What was chosen for this fit, and why: print it.
    history_ : list of dict
        The learning curves, of one member.
    n_iter_ : int
        Number of epochs.
    feature_importances_ : (N,)
        Share of the variance that each column has a part in (total Sobol shares, scaled to a sum of
        one).
    n_features_in_ : int
    feature_names_in_ : (N,), where the table has names
    target_names_ : list of str, or None where y has no names

    Notes
    -----
    One network is trained: there is no `n_members` and no `n_jobs`. The mean of M networks is one
    of M times the rank, which costs far more than M networks. scikit-learn's `VotingRegressor`
    averages networks of several seeds: see docs/formats.md.

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

    def __init__(
        self,
        format="tt",
        maps="auto",
        rank=5,
        order=2,
        loss="squared_error",
        quantile=None,
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
            max_time=max_time,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            ema_decay=ema_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            categorical_features=categorical_features,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.quantile = quantile


class TNClassifier(Classification, TNEstimator):
    """Classification with a weight tensor in any tensor-network format, on PyTorch.

    Two classes share one output; K > 2 classes have K.

    Parameters
    ----------
    format : str, default="tt"
        "cp", "tt" (Tensor Train), "tr" (Tensor Ring), "ht" (Hierarchical Tucker), "tucker", or for
        comparison "fm" (factorization machine) and "pn" (polynomial network) on raw columns.
    maps : str, FeatureMap or dict, default="auto"
        Feature map of the columns: "auto" (hats for numbers, one-hot for categories), the name or
        an instance of a map for all numeric columns, or a dict from column to map.
    rank : int, default=5
        Rank of every bond.
    order : int, default=2
        Highest order of interaction, for "fm" and "pn" alone.
    loss : str or Loss, default="log_loss"
        "log_loss", or "squared_error" on labels -1 and +1, as in the paper's recommender
        experiment.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply those of the rows.
    l2 : float or "auto", default="auto"
        Strength of the L2 penalty. A number acts on all arrays of the network, "auto" on the cores
        of the columns, in proportion to the noise. With solver="als" and the log-loss, "auto" adds
        the penalty of logistic regression with C = 1: see docs/formats.md.
    order_alpha : float, default=0.0
        Strength of the order penalty (paper, section VI).
    order_beta : float, default=2.0
        Base of the order penalty: how much more a term costs per degree.
    smoothness : float or "auto", default="auto"
        Strength of the penalty on second differences along knots; "auto" as for `l2`.
    init : str or init, default="near_one"
        "near_one", "gaussian", "linear", or an instance from `polyadic.inits`.
    solver : str, default="Adam"
        The name of an optimiser in `torch.optim`; "als", sweeps of least squares over one core at a
        time, for every format, on the CPU, without learning rates, batches and averages; or
        "riemannian" for format="tt" (Exponential Machines), which does not use `ema_decay` and
        refuses numbers above 0 for `l2` and `smoothness`, since cores are not unique on the
        manifold.
    max_iter : int or "auto", default="auto"
        Epochs; "auto" depends on the numbers of rows and columns. With "als" sweeps, up to 20.
    max_time : float or None, default=None
        Seconds after which a fit starts nothing new: it keeps the best that it has so far. The
        current epoch, or column of a sweep, is finished. Results then depend on the machine.
    batch_size : int or "auto", default="auto"
        Rows per step; "auto" is a fortieth of the rows, from 16 to 128.
    learning_rate : float or "auto", default="auto"
        The peak of the schedule; "auto" is 0.005, less for more than ten columns. With "riemannian"
        it is a share of the step to the minimum along the gradient, and "auto" is 0.2.
    schedule : "one_cycle" or "constant", default="one_cycle"
        "one_cycle": the rate rises to the peak in a tenth of the steps, then falls along a cosine.
    ema_decay : float, default=0.99
        Weight of the past in the running average of the parameters; 0 for no average.
    early_stopping : bool, default=True
        Hold out a part of the rows, and keep the epoch with the lowest loss on it.
    validation_fraction : float, default=0.1
        Share of the rows to hold out, rounded to 1/k for a whole number k. Where that is fewer than
        five rows, none are held out.
    n_iter_no_change : int or None, default=None
        Stop after this many epochs without progress. None lets the schedule run to its end, unless
        the held-out loss has long been far above its best.
    tol : float, default=1e-5
        A decrease by less than this share of the loss does not count as progress.
    categorical_features : "from_dtype", list, mask or None, default="from_dtype"
        Which columns are categories: those with a categorical, text or boolean dtype; those in a
        list of names or positions, or in a mask; or none.
    warm_start : bool, default=False
        Let `fit` go on from the fitted model, with its maps; `format`, `rank` and `order` must be
        the same.
    random_state : int, RandomState or None, default=None
        Seed. With an int, a fit on the same machine gives the same bits every time.
    device : str, default="cpu"
        The torch device to train and to predict on.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : (K,)
    cores_ : list of (d_n, K) arrays
    extras_ : list of arrays
        The arrays of the network that belong to no column.
    intercept_ : (L,)
    maps_ : list of fitted FeatureMap
    marginals_ : list of Marginal
        The distribution of each column, for explanations.
    plan_ : PlanSummary
        What was chosen for this fit, and why: print it.
    history_ : list of dict
        The learning curves, of one member.
    n_iter_ : int
        Number of epochs.
    feature_importances_ : (N,)
        Share of the variance that each column has a part in (total Sobol shares, scaled to a sum of
        one).
    n_features_in_ : int
    feature_names_in_ : (N,), where the table has names
    target_names_ : list of str, or None where y has no names

    Notes
    -----
    One network is trained: there is no `n_members` and no `n_jobs`. The mean of M networks is one
    of M times the rank, which costs far more than M networks. scikit-learn's `VotingClassifier`
    averages networks of several seeds: see docs/formats.md.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (300, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "opposite")
    >>> model = TNClassifier("tt", maps="polynomial", rank=3, max_iter=60, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.9)
    True
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
            max_time=max_time,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            ema_decay=ema_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            categorical_features=categorical_features,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight
