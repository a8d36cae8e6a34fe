"""One instance of every part, in several configurations: the laws run over these lists."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
from numba.core.registry import CPUDispatcher as Dispatcher

from polyadic import inits, kernels, losses, maps, networks
from polyadic.kernels.trees import Nodes, one_way
from polyadic.maps.base import all_elements, check_integer
from polyadic.maps.column import distinct, to_range, value_range
from polyadic.networks.cores import make_cores
from polyadic.networks.cp import CPCores
from polyadic.networks.trees import Trees
from polyadic.objective import penalties
from polyadic.solvers.adam import Adam
from polyadic.solvers.als import ALS
from polyadic.solvers.core_sweeps import CoreSweeps
from polyadic.solvers.riemannian import Riemannian
from polyadic.solvers.sequences import AdamThenAls, AlsThenAdam
from polyadic.solvers.torch_solver import TorchOptim
from polyadic.training import mixing


class Steps(maps.FeatureMap):
    """The map of docs/maps.md, as a user would write it."""

    all_slots = True
    state = ("range_",)

    def __init__(self, n_steps=3):
        self.n_steps = n_steps

    def fit(self, x, y=None, sample_weight=None):
        """Learn the range of x."""
        check_integer(self, "n_steps", at_least=1)
        self.range_ = value_range(distinct(x, sample_weight)[0])
        return self

    def encode(self, x):
        """Return whether x has reached each step."""
        self._check_fitted()
        steps = np.linspace(-1, 1, self.n_steps + 2)[1:-1]
        value = to_range(x, self.range_)[:, None] >= steps  # NaN >= c is false: zeros
        return all_elements(len(x), 1, self.dim), value.astype(np.float32)

    @property
    def dim(self):
        """Return the number of elements."""
        return 1 + self.n_steps

    @property
    def degrees(self):
        """Return the order of each element."""
        return np.array([0] + [1] * self.n_steps)


PACKAGE_MAPS = [
    maps.Polynomial(),
    maps.Polynomial(d=1),
    maps.Polynomial(d=2),
    maps.Polynomial(d=6),
    maps.Polynomial(d=5, standardize=True),
    maps.Polynomial(d=1, normalize=True),
    maps.Polynomial(d=4, normalize=True),
    maps.Polynomial(d=75, normalize=True),
    maps.Hat(),
    maps.Hat(n_knots=2),
    maps.Hat(n_knots=7),
    maps.Hat(n_knots=8, by_target=0.5),
    maps.BSpline(),
    maps.BSpline(n_knots=2, degree=1),
    maps.BSpline(n_knots=5, degree=2),
    maps.Fourier(),
    maps.Fourier(n_frequencies=1),
    maps.Trigonometric(),
    maps.Chebyshev(),
    maps.Chebyshev(d=3),
    maps.Step(),
    maps.Step(n_bins=2),
    maps.OneHot(),
    maps.OneHot(min_count=3),
]
MAPS = [*PACKAGE_MAPS, Steps(), Steps(n_steps=1)]


@dataclass(frozen=True)
class Expectile(losses.Loss):
    """A loss as a user would write it, in all forms: squares, weighted by the side of the error."""

    level: float = 0.5
    location_scale = True

    @staticmethod
    def value_and_slope(y, raw, level):
        """Return the loss of one number and its slope."""
        error = raw - y
        weight = 2.0 * (1.0 - level) if error > 0 else 2.0 * level
        return weight * error * error, 2.0 * weight * error

    @staticmethod
    def curvature(y, raw, level):
        """Return the second derivative."""
        return 4.0 * (1.0 - level) if raw > y else 4.0 * level

    def torch_losses(self, y, raw):
        """Return the same in torch."""
        above, below = (raw - y).relu(), (y - raw).relu()
        return (2 * (1 - self.level) * above**2 + 2 * self.level * below**2).sum(1)


LOSSES = [
    losses.SquaredError(),
    losses.Logistic(),
    losses.Softmax(3),
    losses.Poisson(),
    losses.Quantile(),
    losses.Quantile(0.9),
    losses.Huber(),
    losses.Huber(0.3),
    Expectile(),
    Expectile(0.8),
]

# Kinds of numbers as targets, the widest first: a loss is tried on the first that it allows.
NUMBERS = [
    lambda rng, shape: rng.normal(size=shape),
    lambda rng, shape: rng.poisson(2.0, shape).astype(float),
    lambda rng, shape: 0.1 + rng.gamma(2.0, size=shape),
    lambda rng, shape: rng.uniform(0.05, 0.95, shape),
]


def draw_targets(loss, n, n_outputs, rng):
    """Return random targets in the domain of a loss, as its `targets` and its `check` say."""
    if "numbers" not in loss.targets:
        many = "classes" in loss.targets
        shape, top = ((n, 1), n_outputs) if many else ((n, n_outputs), 2)
        return rng.integers(0, top, shape).astype(float)
    for draw in NUMBERS:
        y = draw(rng, (n, n_outputs))
        try:
            loss.check(y)
        except ValueError:
            continue
        return y
    raise ValueError(f"{loss!r} refuses every kind of target in NUMBERS: add one.")


INITS = [
    inits.Gaussian(),
    inits.Gaussian(sigma=0.05),
    inits.NearOne(),
    inits.NearOne(sigma=0.2),
    inits.Linear(),
    inits.Linear(noise=0.001),
    inits.Linear(degree_one=True),
]

# Maps of different kinds, and a penalty of every kind on their cores.
PENALISED = [
    maps.Hat(n_knots=5).fit(np.arange(20.0)),
    maps.Polynomial(d=3).fit(np.arange(20.0)),
    maps.Polynomial(d=2, normalize=True).fit(np.arange(20.0)),
]
PENALTIES = {
    "ridge": penalties.ridge(PENALISED, 0.7),
    "smoothness": penalties.smoothness(PENALISED, 0.4),
    "both": penalties.ridge(PENALISED, 0.7) + penalties.smoothness(PENALISED, 0.4),
    "order": penalties.Order(0.3, penalties.emphasis(PENALISED, 1.7)),
    "norm": penalties.Norm(
        0.2, (penalties.ridge(PENALISED, 0.7) + penalties.smoothness(PENALISED, 0.4)).bands
    ),
}


def penalties_of(family):
    """Return one penalty of every kind for these maps, by its name in the registry."""
    ridge = penalties.ridge(family, 0.1)
    return {
        "factors": ridge,
        "factors by noise": replace(ridge, by_noise=True),
        "order": penalties.Order(0.1, penalties.emphasis(family, 2.0)),
        "tensor norm": penalties.Norm(0.1, ridge.bands),
    }


SOLVERS = {
    "adam": Adam(max_iter=10, batch_size=16),
    "als": ALS(max_iter=3),
    "als+adam": AlsThenAdam(ALS(max_iter=1), Adam(max_iter=10, batch_size=16)),
    "adam+als": AdamThenAls(Adam(max_iter=10, batch_size=16), ALS(max_iter=2)),
    "als of networks": CoreSweeps(max_iter=3),
    "riemannian": Riemannian(max_iter=5, batch_size=16),
    "torch": TorchOptim(max_iter=10, batch_size=16),
}

# Name and parameters of every format.
FORMATS = [
    ("cp", {"rank": 1}),
    ("cp", {"rank": 3}),
    ("tt", {"rank": 1}),
    ("tt", {"rank": 3}),
    ("tr", {"rank": 2}),
    ("ht", {"rank": 3}),
    ("tucker", {"rank": 2}),
    ("fm", {"rank": 3, "order": 1}),
    ("fm", {"rank": 3, "order": 2}),
    ("fm", {"rank": 2, "order": 4}),
    ("pn", {"rank": 3, "order": 1}),
    ("pn", {"rank": 2, "order": 3}),
]
NETWORKS = [(name, kwargs) for name, kwargs in FORMATS if networks.FORMATS[name].is_network]


def random_cores(dims, rank, n_outputs, seed=0, zeros=0.2, additive=False):
    """Return small CP cores of these shapes in which a share of the entries is exactly zero."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=shape) * (rng.random(shape) > zeros)

    return CPCores(
        [draw(d, rank) for d in dims],
        draw(rank, n_outputs),
        rng.normal(size=n_outputs),
        [draw(d, n_outputs) for d in dims] if additive else None,
    )


def random_network(name, kwargs, dims, n_outputs, seed=0, zeros=0.2):
    """Return cores and extras of a format in which a share of the entries is exactly zero."""
    form = networks.resolve(name)(dims, n_outputs=n_outputs, **kwargs)
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=shape) * (rng.random(shape) > zeros)

    cores = [draw(d, form.width) for d in dims]
    extras = [draw(*shape) for shape in form.extra_shapes()]
    return make_cores(form, cores, extras, np.zeros(n_outputs))


def mixed_table(n=40, seed=0):
    """Return fitted maps of every kind, of uneven size, and columns with missing values."""
    rng = np.random.default_rng(seed)
    families = [
        maps.Hat(n_knots=4),
        maps.Polynomial(d=3),
        maps.OneHot(),
        maps.Polynomial(d=6, normalize=True),
        maps.BSpline(n_knots=3),
    ]
    return fitted_table(families, n, rng)


def fitted_table(families, n, rng):
    """Return copies of the maps, fitted, and columns with missing values and unseen categories."""
    columns = []
    for family in families:
        x = rng.integers(-1, 4, n) if family.kind == "categorical" else rng.normal(size=n)
        if family.kind == "numeric":
            x[rng.random(n) < 0.1] = np.nan
        columns.append(x)
    return [m.clone().fit(x) for m, x in zip(families, columns)], columns


def plan_of(model, X, y):
    """Return the plan of a fit, without fitting."""
    return model._plan(model._read_rows(X, y, None, fresh=True), has_held_out=False)


def all_kernels():
    """Return every kernel that Python calls."""
    found = {}
    for info in pkgutil.iter_modules(kernels.__path__):
        if info.name in {"plain", "vectors"}:  # a process uses only one of these two
            continue
        module = importlib.import_module(f"polyadic.kernels.{info.name}")
        for value in vars(module).values():
            if type(value) is Dispatcher:
                found[id(value)] = value
    return list(found.values())


def coded_in_training_order(model, X, y):
    """Return the coded columns of the training table, in the order in which `fit` takes them."""
    rows = model._read_rows(X, y, None, fresh=False)
    columns = model.columns_.code(X)
    return [columns[n] for n in model._training_order(rows)]


def shared_trees(share=0.4):
    """Return a context in which trees have this share, whatever held-out rows say."""
    return patch.object(mixing, "share_of_trees", lambda *args: share)


def random_trees(own_maps, n_trees, n_outputs, rng, depth=3, width=1):
    """Return trees that split at random, by intervals and by sets of categories."""
    arrays = {name: [] for name in ("column", "place", "missing", "left", "right")}
    roots, sets, values = [], [], []
    widest = max(m.dim for m in own_maps)

    def grow(level):
        k = len(values)
        values.append(rng.normal(size=width))
        for name in arrays:
            arrays[name].append(-1 if name != "missing" else 0)
        if level == 0 or rng.random() < 0.2:
            return k
        n = int(rng.integers(len(own_maps)))
        arrays["column"][k] = n
        if own_maps[n].kind == "categorical":
            arrays["place"][k], arrays["missing"][k] = len(sets), 2
            sets.append(rng.integers(0, 2, widest))
        else:
            arrays["place"][k] = int(rng.integers(1, own_maps[n].dim))
            arrays["missing"][k] = int(rng.integers(2))
        arrays["left"][k] = grow(level - 1)
        arrays["right"][k] = grow(level - 1)
        values[k] = np.zeros(width)
        return k

    for _ in range(n_trees):
        roots.append(grow(depth))
    types = {name: np.uint8 if name == "missing" else np.int32 for name in arrays}
    nodes = Nodes(
        **{name: np.array(a, types[name]) for name, a in arrays.items()},
        sets=np.array(sets, np.uint8).reshape(len(sets), widest),
        share=one_way(len(values)),
    )
    output = rng.integers(n_outputs - width + 1, size=n_trees).astype(np.int32)
    return Trees(list(own_maps), nodes, np.array(roots, np.int32), output, np.array(values))
