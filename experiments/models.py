"""The models that several experiments share: the paper's CP and neural networks, and additions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import train_test_split

from experiments.cells import Scale
from polyadic import CPClassifier, CPRegressor, TNRegressor, networks
from polyadic.datasets import Split
from polyadic.inits import Gaussian
from polyadic.maps import Polynomial

# Adam 1e-3 and batches of 32 for CP and for the neural networks of Tables I and III.
LEARNING_RATE, BATCH = 1e-3, 32


def cp_regressor(
    seed: int,
    d: int,
    rank: int,
    epochs: int,
    normalize: bool = False,
    standardize: bool = False,
    l2: float = 0.0,
    init: Any = None,
    order_alpha: float = 0.0,
    order_beta: float = 2.0,
) -> CPRegressor:
    """Return the CP-based predictor as published, sections IX-A and IX-C.

    Polynomial maps of local dimension d, one model, Adam at a constant rate to the last epoch,
    random init with a standard deviation of 0.2 unless another is given.
    """
    return CPRegressor(
        maps=Polynomial(d, normalize=normalize, standardize=standardize),
        rank=rank,
        l2=l2,
        smoothness=0,
        order_alpha=order_alpha,
        order_beta=order_beta,
        init=init or Gaussian(0.2),
        solver="adam",
        n_members=1,
        schedule="constant",
        ema_decay=0.0,
        learning_rate=LEARNING_RATE,
        batch_size=BATCH,
        max_iter=epochs,
        n_iter_no_change=epochs,
        random_state=seed,
    )


def fit_on_split(model: Any, split: Split) -> dict[str, Any]:
    """Fit, keeping the epoch that is best on the validation rows, as the paper does."""
    start = perf_counter()
    model.fit(split.X_train, split.y_train, X_val=split.X_val, y_val=split.y_val)
    seconds = perf_counter() - start
    history = model.history_[0]
    return {
        **errors(model, split),
        "seconds": seconds,
        "parameters": n_parameters(model),
        "curve": history["validation_loss"],
        "train_curve": history["train_loss"],
    }


def fit_on_train(model: Any, split: Split) -> dict[str, Any]:
    """Fit on the training rows alone: validation rows are not used."""
    start = perf_counter()
    model.fit(split.X_train, split.y_train)
    return {"seconds": perf_counter() - start, **errors(model, split)}


def errors(model: Any, split: Split) -> dict[str, float]:
    """Return the mean squared error on validation and test rows."""
    return {
        "val": error(split.y_val, predict_or_nan(model.predict, split.X_val)),
        "test": error(split.y_test, predict_or_nan(model.predict, split.X_test)),
    }


def predict_or_nan(predict: Callable[[Any], np.ndarray], X: Any, *outputs: int) -> np.ndarray:
    """Return what a model predicts; NaN (n, *outputs) for one that diverged, which refuses to."""
    try:
        return predict(X)
    except ValueError as refused:
        if not has_diverged(refused):
            raise
        return np.full((len(X), *outputs), np.nan)


def has_diverged(error: ValueError) -> bool:
    """Tell whether a fit or a prediction was refused since the model has diverged."""
    return "beyond the range of numbers" in str(error)


def error(y: Any, predicted: np.ndarray) -> float:
    """Return the mean squared error, infinite where a prediction is not finite."""
    if not np.all(np.isfinite(predicted)):
        return np.inf
    return mean_squared_error(y, predicted)


def n_parameters(model: CPRegressor | TNRegressor) -> int:
    """Return how many numbers were learnt; the paper's CP has output weights of one.

    Factorization machines and polynomial networks do not use the constant element; their output
    weights do not move from a Gaussian start.
    """
    if isinstance(model, CPRegressor):
        return sum(core.size for core in model.cores_)
    first = 1 if model.format in ("fm", "pn") else 0
    cores = sum(core[first:].size for core in model.cores_)
    held = first == 1 and isinstance(model.init, Gaussian)
    return cores + sum(extra.size for extra in model.extras_[: -1 if held else None])


# ---- one recipe for all formats -----------------------------------------------------------------

RATES = (0.002, 0.005, 0.015)  # that are tried on the training rows
SEARCH_SHARE = 3  # the search takes one epoch for so many of the fit


def equal_recipe(
    seed: int,
    format: str,
    rank: int,
    epochs: int,
    rate: float,
    maps: Any = "auto",
    l2: float = 0.0,
    batch: int = 512,
    order: int = 2,
) -> TNRegressor:
    """Return a network with what all formats share: near-one init, one cycle of the rate, average.

    CP too is trained on the torch engine here, so that formats differ in nothing else.
    """
    return TNRegressor(
        format,
        maps="auto" if format in ("fm", "pn") else maps,
        rank=rank,
        order=order,
        l2=l2,
        smoothness=0,
        batch_size=batch,
        learning_rate=rate,
        max_iter=epochs,
        n_iter_no_change=epochs,
        random_state=seed,
    )


def find_rate(build: Callable[[float], TNRegressor], split: Split) -> float:
    """Return the rate with the least error on a fifth of the training rows, left out for this."""
    X, X_left, y, y_left = train_test_split(
        split.X_train, split.y_train, test_size=0.2, random_state=0
    )
    found = {}
    for rate in RATES:
        model = build(rate).fit(X, y, X_val=X_left, y_val=y_left)
        found[rate] = error(y_left, predict_or_nan(model.predict, X_left))
    return min(found, key=found.__getitem__)


def nearest_rank(format: str, dims: Sequence[int], n_parameters: int) -> int:
    """Return the rank that gives a format about this many parameters."""

    def size(rank: int) -> int:
        return networks.resolve(format)(dims, rank).n_parameters()

    rank = 1
    while size(rank + 1) <= n_parameters:
        rank += 1
    too_few, too_many = n_parameters / size(rank), size(rank + 1) / n_parameters
    return rank if too_few <= too_many else rank + 1


# ---- factorization machines and polynomial networks as their own libraries train them ----------

REFERENCE_RANK, RIDGE, TINY_INIT = 10, 10.0, 0.01
FM_RATE, FM_BATCH = 1e-3, 128


def reference_network(seed: int, order: int, n_rows: int, sweeps: int) -> TNRegressor:
    """Return a polynomial network as polylearn has it: least squares with a ridge.

    Output weights are one. The objective is half the sum of squares plus half the ridge times the
    squared parameters.
    """
    return TNRegressor(
        "pn",
        rank=REFERENCE_RANK,
        order=order,
        l2=RIDGE / n_rows,
        smoothness=0,
        init=Gaussian(TINY_INIT),
        solver="als",
        max_iter=sweeps,
        n_iter_no_change=sweeps,
        random_state=seed,
    )


def reference_machine(seed: int, order: int, epochs: int) -> TNRegressor:
    """Return a factorization machine as tffm has it: output weights of one, constant rate."""
    return TNRegressor(
        "fm",
        rank=REFERENCE_RANK,
        order=order,
        l2=0.0,
        smoothness=0,
        init=Gaussian(TINY_INIT / math.sqrt(3)),  # as wide as the uniform noise of tffm
        schedule="constant",
        ema_decay=0.0,
        learning_rate=FM_RATE,
        batch_size=FM_BATCH,
        max_iter=epochs,
        n_iter_no_change=epochs,
        random_state=seed,
    )


# ---- neural networks ----------------------------------------------------------------------------


def fit_network(
    seed: int,
    split: Split,
    hidden: tuple[int, ...],
    linear: tuple[int, ...],
    epochs: int,
    n_normalised: int,
) -> dict[str, Any]:
    """Train the paper's neural network, keeping the epoch that is best on the validation rows.

    Dense layers of `hidden` neurons, each followed by ReLU, the first `n_normalised` by batch
    normalisation too, then dense layers of `linear` neurons without either, then the output.
    """
    import torch

    torch.manual_seed(seed)
    network = build_network(split.X_train.shape[1], hidden, linear, n_normalised)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, eps=1e-7)  # as in Keras
    X, y = (torch.tensor(a, dtype=torch.float32) for a in (split.X_train, split.y_train))
    X_val, X_test = (torch.tensor(a, dtype=torch.float32) for a in (split.X_val, split.X_test))
    curve, train_curve, best, start = [], [], {"val": np.inf, "test": np.inf}, perf_counter()
    for _ in range(epochs):
        network.train()
        total = 0.0
        for rows in torch.randperm(len(y)).split(BATCH):
            optimiser.zero_grad()
            loss = torch.mean((network(X[rows])[:, 0] - y[rows]) ** 2)
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(rows)
        network.eval()
        with torch.no_grad():
            val = error(split.y_val, network(X_val)[:, 0].numpy())
            if val < best["val"]:
                best = {"val": val, "test": error(split.y_test, network(X_test)[:, 0].numpy())}
        curve.append(val)
        train_curve.append(total / len(y))
    return {
        **best,
        "seconds": perf_counter() - start,
        "parameters": sum(p.numel() for p in network.parameters()) + moving_numbers(network),
        "curve": curve,
        "train_curve": train_curve,
    }


def build_network(
    n_inputs: int, hidden: tuple[int, ...], linear: tuple[int, ...], n_normalised: int
) -> Any:
    """Return the layers, with the defaults of Keras, which the paper used."""
    from torch import nn

    layers: list[Any] = []
    for k, n_outputs in enumerate(hidden):
        layers += [_dense(n_inputs, n_outputs), nn.ReLU()]
        if k < n_normalised:
            layers.append(nn.BatchNorm1d(n_outputs, eps=1e-3, momentum=0.01))
        n_inputs = n_outputs
    for n_outputs in (*linear, 1):
        layers.append(_dense(n_inputs, n_outputs))
        n_inputs = n_outputs
    return nn.Sequential(*layers)


def moving_numbers(network: Any) -> int:
    """Return how many means and variances batch normalisation keeps: Keras counts them too."""
    from torch import nn

    layers = [layer for layer in network if isinstance(layer, nn.BatchNorm1d)]
    return sum(2 * layer.num_features for layer in layers)


def _dense(n_inputs: int, n_outputs: int) -> Any:
    from torch import nn

    dense = nn.Linear(n_inputs, n_outputs)
    nn.init.xavier_uniform_(dense.weight)
    nn.init.zeros_(dense.bias)
    return dense


# ---- additions: models at their defaults --------------------------------------------------------
# Imported inside the functions: without a package, only its row of the table is skipped.


def _lightgbm(seed: int, regression: bool, categorical: list[str]) -> Any:
    import lightgbm

    kind = lightgbm.LGBMRegressor if regression else lightgbm.LGBMClassifier
    return kind(random_state=seed, verbose=-1)


def _xgboost(seed: int, regression: bool, categorical: list[str]) -> Any:
    import xgboost

    kind = xgboost.XGBRegressor if regression else xgboost.XGBClassifier
    return kind(random_state=seed, enable_categorical=True)


def _catboost(seed: int, regression: bool, categorical: list[str]) -> Any:
    import catboost

    kind = catboost.CatBoostRegressor if regression else catboost.CatBoostClassifier
    return kind(random_seed=seed, verbose=0, allow_writing_files=False, cat_features=categorical)


def _hist(seed: int, regression: bool, categorical: list[str]) -> Any:
    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    return kind(random_state=seed)


def _default(seed: int, regression: bool, categorical: list[str]) -> Any:
    return (CPRegressor if regression else CPClassifier)(random_state=seed)


ADDITIONS: dict[str, Callable[..., Any]] = {
    "polyadic, defaults": _default,
    "LightGBM": _lightgbm,
    "XGBoost": _xgboost,
    "CatBoost": _catboost,
    "HistGradientBoosting": _hist,
}
# Not random at their defaults: one fit is enough.
DETERMINISTIC = ("LightGBM", "XGBoost")


def addition(
    name: str, seed: int, regression: bool = True, categorical: list[str] | None = None
) -> Any:
    """Return an added model at its defaults."""
    return ADDITIONS[name](seed, regression, categorical or [])


def addition_seeds(name: str, experiment: str, scale: Scale) -> range:
    """Return the seeds to fit an added model with."""
    return range(1) if name in DETERMINISTIC else scale.fits(experiment, name)


def warm_up() -> None:
    """Fit once: the first fit compiles what all others use; no model's time includes that."""
    X = np.random.default_rng(0).normal(size=(400, 3))
    y = X[:, 0] * X[:, 1]
    for model in (
        cp_regressor(0, d=3, rank=3, epochs=2),
        cp_regressor(0, d=3, rank=3, epochs=2, order_alpha=1e-3),
        CPRegressor(n_members=1, max_iter=2, random_state=0),
        TNRegressor("tt", maps=Polynomial(3), max_iter=2, random_state=0),
    ):
        model.fit(X, y)
