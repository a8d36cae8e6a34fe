"""The CP estimators: their parameters."""

from __future__ import annotations

from typing import Self

from sklearn.utils.metaestimators import available_if

from polyadic.estimators.cp_base import CPEstimator, has_passes
from polyadic.estimators.targets import Classification, Regression


class CPRegressor(Regression, CPEstimator):
    """Regression with a CP weight tensor over local feature maps.

    The defaults are meant to be used as they are. The model can be read exactly: it is a sum of
    products, each of one function per column. Several strategies are trained, most of them with
    several members that have knots and held-out rows of their own; shares that the held-out rows
    choose merge them all into one such sum (docs/defaults.md). `plan_` tells the shares.

    Parameters
    ----------
    maps : str, FeatureMap or dict, default="auto"
        Feature map of the columns: "auto" (hats for numbers, one-hot for categories), the name or
        an instance of a map for all numeric columns, or a dict from column to map.
    rank : int or "auto", default="auto"
        Number of rank-one terms R of each member. "auto" is 32, and 24 to 64 for the tensor prior.
    loss : str or Loss, default="squared_error"
        "squared_error", "absolute_error", "quantile", "huber", "poisson", an instance from
        `polyadic.losses`, or a loss of your own (docs/losses.md).
    quantile : float or None, default=None
        The level of loss="quantile", between 0 and 1.
    l2 : float or "auto", default="auto"
        Strength of the L2 penalty on all elements but constants. "auto" is proportional to the
        noise, larger for columns with flat factors, and multiplied by the best of several strengths
        that pilots try.
    order_alpha : float, default=0.0
        Strength of the order penalty (paper, section VI).
    order_beta : float, default=2.0
        Base of the order penalty: how much more a term costs per degree.
    smoothness : float or "auto", default="auto"
        Strength of the penalty on second differences along knots; "auto" as for `l2`.
    init : str or init, default="near_one"
        "near_one", "gaussian", "linear", or an instance from `polyadic.inits`.
    separate_outputs : bool, default=False
        With several outputs: a weight tensor for each, as in the paper, instead of shared factors.
    solver : "auto", "adam", "als", "als+adam" or "adam+als", default="auto"
        "als" moves each core in turn to its minimum with the others fixed, for hats, B-splines,
        categories and polynomials of up to five elements: a few sweeps. "als+adam" starts Adam from
        one such sweep; "adam+als" ends with sweeps for as long as they lower the held-out loss.
        `plan_` tells what "auto" chose, and why.
    engine : "fused" or "torch", default="fused"
        "torch" trains by automatic differentiation on `device`; it needs the extra `torch`.
    device : str, default="cpu"
        The torch device to train on.
    n_members : int or "auto", default="auto"
        Number of models that are averaged and merged into one: "auto" is 5 by factor penalties, and
        3 to 5 by the tensor prior; on fewer than 500 distinct rows 10 by each. With one member
        there is one strategy, and no strengths of L2 and smoothness are tried.
    trees : bool or "auto", default="auto"
        Whether boosted trees are joined to the smooth terms: the leaves of trees are terms too.
        They are grown as in other libraries for gradient boosting, and held-out rows choose how
        many there are, and their share. "auto": on 500 rows or more, where they lower the
        held-out loss; True: whatever they gain, except where the rows are too few to hold any out,
        which gives a warning.
    max_iter : int or "auto", default="auto"
        Epochs of Adam, or sweeps of "als"; "auto" depends on the numbers of rows and columns, and
        on how much longer training lowers the held-out loss.
    max_time : float or None, default=None
        Seconds after which a fit starts nothing new: it keeps the best that it has so far. The
        current epoch, or column of a sweep, is finished. Results then depend on the machine.
    batch_size : int or "auto", default="auto"
        Rows per step; "auto" is a fortieth of the rows, from 16 to 128.
    learning_rate : float or "auto", default="auto"
        The peak of the schedule; "auto" is 0.015, less for more than ten columns.
    schedule : "one_cycle" or "constant", default="one_cycle"
        "one_cycle": the rate rises to the peak in a tenth of the steps, then falls along a cosine.
    ema_decay : float, default=0.99
        Weight of the past in the running average of the parameters; 0 for no average.
    early_stopping : bool, default=True
        Hold out a part of the rows, a different one for each member, and keep the epoch with the
        lowest loss on it.
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
        Let `fit` go on from the fitted, merged model, with its maps and its rank.
    memory : str or number, default="auto"
        For a table in files, such as "2GB": rows are read in parts if a fit of all of them at once
        would take more, and parts are as large as that allows. "auto" is half of the machine's
        memory. Tables in memory are not concerned.
    checkpoint : path or None, default=None
        A folder that keeps what is finished. After a stop, the same call goes on from there, and
        ends with the same bits; it needs an integer `random_state`. A fit that ends removes what it
        kept.
    random_state : int, RandomState or None, default=None
        Seed. With an int, a fit on the same machine gives the same bits every time.
    n_jobs : int, default=-1
        Number of threads; -1 for one per core. Results do not depend on it.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    cores_ : list of (d_n, R) arrays
    weights_ : (R, L)
        The output matrix C.
    intercept_ : (L,)
    maps_ : list of fitted FeatureMap
    marginals_ : list of Marginal
        The distribution of each column, for explanations.
    plan_ : PlanSummary
        What was chosen for this fit, and why: print it.
    history_ : list of dict
        The learning curves of each member.
    n_iter_ : int
        Epochs or sweeps of the longest member.
    feature_importances_ : (N,)
        Share of the variance that each column has a part in (total Sobol shares, scaled to a sum of
        one).
    n_features_in_ : int
    feature_names_in_ : (N,), where the table has names
    target_names_ : list of str, or None where y has no names

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

    def __init__(
        self,
        maps="auto",
        rank="auto",
        loss="squared_error",
        quantile=None,
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
            trees=trees,
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
            memory=memory,
            checkpoint=checkpoint,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.quantile = quantile


class CPClassifier(Classification, CPEstimator):
    """Classification with a CP weight tensor over local feature maps.

    Two classes share one output; K > 2 classes have K.

    As in `CPRegressor`, several strategies are trained and merged by shares that held-out rows
    choose (docs/defaults.md), as long as `solver`, `max_iter`, `l2`, `smoothness`, `order_alpha`,
    `init` and `engine` keep their defaults and there are several members. With one member, two
    classes have a prior on the weight tensor, by solver="als": held-out rows then only choose how
    much interaction to expect, the member learns from all rows, and `n_iter_no_change` and the
    settings of Adam are not used. With solver="als" the same holds for more classes.

    Parameters
    ----------
    maps : str, FeatureMap or dict, default="auto"
        Feature map of the columns: "auto" (hats for numbers, one-hot for categories), the name or
        an instance of a map for all numeric columns, or a dict from column to map.
    rank : int or "auto", default="auto"
        Number of rank-one terms R of each member. "auto" is 32, 64 for more than two classes, and
        24 to 64 for the tensor prior (16 to 64 where that is alone): the more interaction the
        pilots find, the more.
    loss : str or Loss, default="log_loss"
        "log_loss", or "squared_error" on labels -1 and +1, as in the paper's recommender
        experiment.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply those of the rows.
    l2 : float or "auto", default="auto"
        Strength of the L2 penalty on all elements but constants. "auto" is proportional to the
        noise, larger for columns with flat factors, and multiplied by the best of several strengths
        that pilots try.
    order_alpha : float, default=0.0
        Strength of the order penalty (paper, section VI).
    order_beta : float, default=2.0
        Base of the order penalty: how much more a term costs per degree.
    smoothness : float or "auto", default="auto"
        Strength of the penalty on second differences along knots; "auto" as for `l2`.
    init : str or init, default="near_one"
        "near_one", "gaussian", "linear", or an instance from `polyadic.inits`.
    separate_outputs : bool, default=False
        With several outputs: a weight tensor for each, as in the paper, instead of shared factors.
    solver : "auto", "adam", "als", "als+adam" or "adam+als", default="auto"
        "als" moves each core in turn to its minimum with the others fixed, for hats, B-splines,
        categories and polynomials of up to five elements: a few sweeps. "als+adam" starts Adam from
        one such sweep; "adam+als" ends with sweeps for as long as they lower the held-out loss.
        `plan_` tells what "auto" chose, and why.
    engine : "fused" or "torch", default="fused"
        "torch" trains by automatic differentiation on `device`; it needs the extra `torch`.
    device : str, default="cpu"
        The torch device to train on.
    n_members : int or "auto", default="auto"
        Number of models that are averaged and merged into one: "auto" is 5 by factor penalties, and
        3 to 5 by the tensor prior, or 2 where that is alone; on fewer than 500 distinct rows 10 by
        each of both.
    trees : bool or "auto", default="auto"
        Whether boosted trees are joined to the smooth terms: the leaves of trees are terms too.
        They are grown as in other libraries for gradient boosting, and held-out rows choose how
        many there are, and their share. "auto": on 500 rows or more, where they lower the
        held-out loss; True: whatever they gain, except where the rows are too few to hold any out,
        which gives a warning.
    max_iter : int or "auto", default="auto"
        Epochs of Adam, or sweeps of "als"; "auto" depends on the numbers of rows and columns, and
        on how much longer training lowers the held-out loss.
    max_time : float or None, default=None
        Seconds after which a fit starts nothing new: it keeps the best that it has so far. The
        current epoch, or column of a sweep, is finished. Results then depend on the machine.
    batch_size : int or "auto", default="auto"
        Rows per step; "auto" is a fortieth of the rows, from 16 to 128.
    learning_rate : float or "auto", default="auto"
        The peak of the schedule; "auto" is 0.015, less for more than ten columns.
    schedule : "one_cycle" or "constant", default="one_cycle"
        "one_cycle": the rate rises to the peak in a tenth of the steps, then falls along a cosine.
    ema_decay : float, default=0.99
        Weight of the past in the running average of the parameters; 0 for no average.
    early_stopping : bool, default=True
        Hold out a part of the rows, a different one for each member, and keep the epoch with the
        lowest loss on it.
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
        Let `fit` go on from the fitted, merged model, with its maps and its rank.
    memory : str or number, default="auto"
        For a table in files, such as "2GB": rows are read in parts if a fit of all of them at once
        would take more, and parts are as large as that allows. "auto" is half of the machine's
        memory. Tables in memory are not concerned.
    checkpoint : path or None, default=None
        A folder that keeps what is finished. After a stop, the same call goes on from there, and
        ends with the same bits; it needs an integer `random_state`. A fit that ends removes what it
        kept.
    random_state : int, RandomState or None, default=None
        Seed. With an int, a fit on the same machine gives the same bits every time.
    n_jobs : int, default=-1
        Number of threads; -1 for one per core. Results do not depend on it.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : (K,)
    interaction_ : float
        With the tensor prior: the amount of interaction that did best on held-out rows.
    cores_ : list of (d_n, R) arrays
    weights_ : (R, L)
        The output matrix C.
    intercept_ : (L,)
    maps_ : list of fitted FeatureMap
    marginals_ : list of Marginal
        The distribution of each column, for explanations.
    plan_ : PlanSummary
        What was chosen for this fit, and why: print it.
    history_ : list of dict
        The learning curves of each member.
    n_iter_ : int
        Epochs or sweeps of the longest member.
    feature_importances_ : (N,)
        Share of the variance that each column has a part in (total Sobol shares, scaled to a sum of
        one).
    n_features_in_ : int
    feature_names_in_ : (N,), where the table has names
    target_names_ : list of str, or None where y has no names

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
            trees=trees,
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
            memory=memory,
            checkpoint=checkpoint,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.class_weight = class_weight

    @available_if(has_passes)
    def partial_fit(self, X, y, classes=None, sample_weight=None) -> Self:
        """Train for one epoch on these rows; the first call needs all `classes`."""
        if classes is None and not hasattr(self, "tensor_"):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return self._partial_fit(X, y, sample_weight, classes)
