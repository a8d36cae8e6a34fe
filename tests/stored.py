"""Fitted models of every kind to save and load."""

import hashlib
import json
from functools import cache

import needs
import numpy as np
import pandas as pd
import parts
import safetensors.numpy

from polyadic import inits, losses, maps
from polyadic.estimators import CPClassifier, CPRegressor, TNClassifier, TNRegressor
from polyadic.estimators.loading import load
from polyadic.estimators.saving import save
from polyadic.io.files import digest, read_file
from polyadic.networks import FORMATS

FAST = {"rank": 4, "n_members": 1, "max_iter": 2, "random_state": 0}
NETWORK = {"rank": 4, "order": 3, "max_iter": 2, "random_state": 0}
ROWS = 60
PACKED = {"packed", "packed_hats"}  # attributes made from the others when needed


def numbers(n_columns=3):
    return np.random.default_rng(1).normal(size=(ROWS, n_columns))


def frame():
    rng = np.random.default_rng(2)
    table = pd.DataFrame({"area": rng.normal(size=ROWS), "rooms": rng.integers(1, 6, ROWS)})
    table["city"] = pd.Series(rng.choice(["Ulm", "Bonn", "Köln ☃", ""], ROWS), dtype="object")
    table["code"] = pd.Series(rng.choice([1, 2.5, "x", True], ROWS), dtype="object")
    table["grade"] = pd.Categorical(rng.choice(["low", "high"], ROWS))
    table["none"] = pd.Series([None] * ROWS, dtype="object")
    table.loc[::7, ["area", "city", "grade"]] = None
    return table


class Intervals(maps.FeatureMap):
    """A user's own map: indicators of the intervals between edges, which may be infinite."""

    state = ("edges_", "offset_")

    def __init__(self, n_steps=3, names=("a", "b")):
        self.n_steps = n_steps
        self.names = names

    def fit(self, x, y=None, sample_weight=None):
        inner = np.nanquantile(x, np.linspace(0, 1, self.n_steps + 1)[1:-1])
        self.edges_ = np.concatenate([[-np.inf], inner, [np.inf]])
        self.offset_ = 1
        return self

    def encode(self, x):
        index = np.searchsorted(self.edges_[1:-1], x) + self.offset_
        index = np.where(np.isnan(x), 0, index).astype(np.int32)[:, None]
        return index, (index > 0).astype(np.float32)

    @property
    def dim(self):
        return len(self.edges_)

    @property
    def degrees(self):
        return (np.arange(self.dim) > 0).astype(int)


def build_named():
    X = frame()
    y = X["rooms"] + X["area"].fillna(0) * (X["city"] == "Ulm")
    return CPRegressor(**FAST).fit(X, y), X


def build_labels(labels, **options):
    X = numbers()
    y = np.asarray(labels)[np.arange(ROWS) % len(labels)]
    return CPClassifier(**{**FAST, **options}).fit(X, y), X


def build_numbers(y=None, n_columns=3, **options):
    X = numbers(n_columns)
    y = X[:, 0] * X[:, 1] + 1.0 if y is None else y
    return CPRegressor(**{**FAST, **options}).fit(X, y), X


def build_one_hot(own):
    X = np.random.default_rng(3).integers(0, 5, (ROWS, 2))
    return CPRegressor(maps=own, **FAST).fit(X, X[:, 0] - X[:, 1]), X


def build_passes():
    X = numbers()
    model = CPClassifier(**FAST)
    for rows in (slice(0, 30), slice(30, ROWS)):
        model.partial_fit(X[rows], X[rows, 0] > 0, classes=[False, True])
    return model, X


def build_network(format, n_outputs, **options):
    needs.package("torch")
    X = numbers()
    y = X[:, 0] * X[:, 1] + 1.0 if n_outputs == 1 else X**2
    return TNRegressor(format, **{**NETWORK, **options}).fit(X, y), X


def build_network_labels(format, labels, **options):
    needs.package("torch")
    X = numbers()
    y = np.asarray(labels)[np.arange(ROWS) % len(labels)]
    return TNClassifier(format, **{**NETWORK, **options}).fit(X, y), X


def build_named_network(format):
    needs.package("torch")
    X = frame()
    return TNRegressor(format, **NETWORK).fit(X, X["rooms"]), X


def build_on_torch(**options):
    needs.package("torch")
    return build_numbers(engine="torch", **options)


NETWORKS = {
    **{f"{f}, one output": lambda f=f: build_network(f, 1) for f in FORMATS},
    **{f"{f}, three outputs": lambda f=f: build_network(f, 3) for f in FORMATS},
    **{f"{f}, two classes": lambda f=f: build_network_labels(f, ["no", "yes"]) for f in FORMATS},
    **{f"{f}, three classes": lambda f=f: build_network_labels(f, [1, 2, 5]) for f in FORMATS},
    "tt, named columns": lambda: build_named_network("tt"),
    "fm, named columns": lambda: build_named_network("fm"),
    "fm, order one": lambda: build_network("fm", 1, order=1, rank=50),
    "tt, linear init": lambda: build_network("tt", 1, init="linear", maps="polynomial"),
    "tr, order penalty": lambda: build_network("tr", 1, order_alpha=0.1, solver="SGD"),
    "ht, squared classes": lambda: build_network_labels("ht", [1, 2], loss="squared_error"),
    "tucker, weighted classes": lambda: build_network_labels(
        "tucker", ["a", "b"], class_weight={"a": 2.0, "b": 0.5}
    ),
}
MODELS = {
    "named columns with categories and missing values": build_named,
    "two text classes": lambda: build_labels(["no", "yes"]),
    "three text classes": lambda: build_labels(["red", "green", "blue and long"]),
    "object classes": lambda: build_labels(np.array(["a", "ß"], dtype=object)),
    "integer classes": lambda: build_labels(np.array([3, 7, 9], dtype=np.int16)),
    "float classes": lambda: build_labels([0.0, 2.0]),
    "boolean classes": lambda: build_labels([False, True]),
    "squared classes": lambda: build_labels([1, 2, 3], loss="squared_error"),
    "weighted classes": lambda: build_labels([1, 2], class_weight={1: 2.0, 2: 0.5}),
    "several outputs": lambda: build_numbers(numbers(3) ** 2),
    "separate outputs": lambda: build_numbers(numbers(3) ** 2, separate_outputs=True),
    "one output as a matrix": lambda: build_numbers(numbers(1)),
    "additive part": lambda: build_numbers(n_columns=6, init="linear"),
    "merged members": lambda: build_numbers(n_members=2),
    "poisson": lambda: build_numbers(np.arange(ROWS) % 4, loss=losses.Poisson()),
    "quantile": lambda: build_numbers(loss=losses.Quantile(0.9)),
    "init instance": lambda: build_numbers(init=inits.Linear(noise=0.01)),
    "maps by column": lambda: build_numbers(maps={0: maps.BSpline(5), 2: "chebyshev"}),
    "mask of columns": lambda: build_numbers(categorical_features=np.array([False, True, False])),
    "order penalty": lambda: build_numbers(order_alpha=0.1, order_beta=1.5),
    "prior of the tensor": lambda: build_labels(["no", "yes"], max_iter="auto"),
    "passes": build_passes,
    "torch engine": build_on_torch,
    "torch engine, additive part": lambda: build_on_torch(n_columns=6, init="linear"),
    "named device": lambda: build_numbers(device="cpu:0"),
    **{
        repr(own): lambda own=own: (
            build_one_hot(own) if own.kind == "categorical" else build_numbers(maps=own)
        )
        for own in parts.PACKAGE_MAPS
    },
    **NETWORKS,
}


@cache
def built(name):
    """Return a fitted model and its table, built once: a test that changes it copies it first."""
    return MODELS[name]()


def round_trip(model, folder, **options):
    path = folder / "model.polyadic"
    save(model, path)
    return load(path, **options)


# ---- changes of a file, for `forge` --------------------------------------------------------------


def write_signed(path, header, tensors):
    """Write a file with these entries and tensors, whatever they are, and right checksums."""
    header = {key: value for key, value in header.items() if key != "sha256"}
    header["tensors_sha256"] = digest(tensors)
    text = json.dumps(header, separators=(",", ":"))
    header["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    text = json.dumps(header, separators=(",", ":"))
    path.write_bytes(safetensors.numpy.save(tensors, {"polyadic": text}))


def forge(model, path, change):
    """Save a model, change header and tensors, none of them packed, and correct the checksums."""
    model.save(path)
    header, tensors = read_file(path)
    header["packed"] = {}
    change(header, tensors)
    write_signed(path, header, tensors)


def put(*keys):
    """Return a change that writes the last key under the others, in the header."""
    *way, last, value = keys

    def change(header, tensors):
        for key in way:
            header = header[key]
        header[last] = value

    return change


def reshape(name, make):
    """Return a change of one tensor; None removes it."""

    def change(header, tensors):
        array = make(tensors.get(name))
        tensors.pop(name, None)
        if array is not None:
            tensors[name] = np.ascontiguousarray(array)

    return change
