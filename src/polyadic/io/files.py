"""Save a fitted model to one file, and load it again.

The file is a safetensors file. Its metadata hold one JSON text, `polyadic`: the number of the file
format, the class, the constructor parameters, what is known of columns and maps, and two checksums.
All arrays are tensors:

    factors.n  (d_n, K)     intercept  (L,)
    weights  (R, L)         of a CP model, and additive.n  (d_n, L), if any
    extras.n                of a network, in the shapes of its format, and multiplier  (L,)
    center, scale  (L,)     of the target
    maps.n.*                what the map of column n has learnt
    columns.n.categories    the categories of column n, a JSON text in UTF-8
    classes                 of a classifier
    history.m.*             the learning curves of member m
    marginals.n.*           what explanations need to know of column n, from format 2 on

Nothing in the file is code, and no class is imported by a name found in it. The checksums find
damage; they are no signature, which is why `polyadic.io.rebuild` trusts nothing it is given.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from sklearn.utils.validation import check_is_fitted

import polyadic
from polyadic.estimators import CPClassifier, CPRegressor, TNClassifier, TNRegressor, validation
from polyadic.estimators.targets import Classification
from polyadic.io.atomic import write_whole
from polyadic.io.plain import NUMBERS, OWN_MAPS, dumps, pack, pack_labels, to_text
from polyadic.io.rebuild import ARRAYS, PLAIN, rebuild
from polyadic.maps import FeatureMap
from polyadic.networks.cores import NetworkCores
from polyadic.networks.cp import CPCores
from polyadic.objective.losses import Loss

FORMAT = 2  # raised when files change in a way that older code cannot read
_KEY = "polyadic"  # the only entry: safetensors writes several in no fixed order
_ESTIMATORS: dict[str, Any] = {
    cls.__name__: cls for cls in (CPRegressor, CPClassifier, TNRegressor, TNClassifier)
}
Model = CPRegressor | CPClassifier | TNRegressor | TNClassifier


class ModelFileError(ValueError):
    """A model file that is damaged, foreign, too new, or does not fit together."""


def save(model: Model, path: str | os.PathLike) -> None:
    """Write a fitted model to one file, whole or not at all.

    A generator passed as `random_state` and the moments that `partial_fit` remembers are left
    behind; NumPy scalars become plain numbers. The same model gives the same bytes every time.

    Parameters
    ----------
    model : CPRegressor, CPClassifier, TNRegressor or TNClassifier
    path : str or path
        An existing file is replaced once the new one is complete.
    """
    if _ESTIMATORS.get(type(model).__name__) is not type(model):
        raise TypeError(
            f"A model file holds one of {', '.join(sorted(_ESTIMATORS))}; got an instance of "
            f"{type(model).__name__}."
        )
    check_is_fitted(model, "tensor_")
    validation.check(model)
    header, tensors = _describe(model)
    header["tensors_sha256"] = _digest(tensors)
    header["sha256"] = hashlib.sha256(dumps(header).encode()).hexdigest()
    write_whole(path, safetensors.numpy.save(tensors, {_KEY: dumps(header)}))


def load(
    path: str | os.PathLike,
    maps: Iterable[type[FeatureMap]] = (),
    losses: Iterable[type[Loss]] = (),
) -> Model:
    """Read a model that `save` has written.

    Parameters
    ----------
    path : str or path
    maps : list of FeatureMap classes, optional
        Map classes of your own that the model uses; they are found by their name.
    losses : list of Loss classes, optional
        Loss classes of your own, likewise.

    Returns
    -------
    model : CPRegressor, CPClassifier, TNRegressor or TNClassifier
        Predicts bit for bit what the saved model predicted on the same machine; on another CPU to
        1e-6 of the predictions' scale.

    Raises
    ------
    ModelFileError
        Where the file is not a model file of this or an earlier format, or is damaged.
    ModuleNotFoundError
        Where the model needs PyTorch, and it is not installed.

    Examples
    --------
    >>> import tempfile
    >>> X = np.arange(20.0).reshape(10, 2)
    >>> model = CPRegressor(n_members=1, rank=2, max_iter=1, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.polyadic")
    ...     again = load(f"{folder}/model.polyadic")
    >>> bool(np.all(again.predict(X) == model.predict(X)))
    True
    """
    known = {"map": _by_name(maps, FeatureMap, "maps"), "loss": _by_name(losses, Loss, "losses")}
    try:
        header, tensors = _read(Path(path))
        estimator = _ESTIMATORS[header["class"]]
        return rebuild(
            estimator, header, tensors, lambda name, kind: _find_class(name, kind, known[kind])
        )
    except (OSError, ModuleNotFoundError):
        raise
    except ModelFileError as error:
        raise ModelFileError(f"Cannot load {str(path)!r}. {error}") from error
    except Exception as error:
        told = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ModelFileError(f"Cannot load {str(path)!r}. Its content is wrong: {told}") from error


def _by_name(classes: Iterable[type], base: type, parameter: str) -> dict[str, type]:
    """Return the classes that a user has passed by their names."""
    known = {}
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise TypeError(f"{parameter} must hold subclasses of {base.__name__}, got {cls!r}.")
        known[cls.__name__] = cls
    return known


def _find_class(name: str, kind: str, known: dict[str, type]) -> type:
    """Return the class of a "map" or a "loss", among polyadic's own maps and what was passed."""
    if "." not in name:
        if name not in OWN_MAPS:
            raise ModelFileError(
                f"It uses the {kind} {name!r}, which this version of polyadic does not have. "
                f"Known are: {', '.join(sorted(OWN_MAPS))}."
            )
        return OWN_MAPS[name]
    own = name.rpartition(".")[2]
    if own not in known:
        parameter = "maps" if kind == "map" else "losses"
        raise ModelFileError(
            f"It uses the {kind} class {name!r}, which is not part of polyadic. Import the class "
            f"and pass it: polyadic.load(path, {parameter}=[{own}])."
        )
    return known[own]


# ---- the file ------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the tensors of a file that is whole and of a known format."""
    if path.is_dir():
        raise ModelFileError("It is a folder, not a model file.")
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {str(path)!r}.")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError:
        raise
    except Exception as error:
        raise ModelFileError(f"It is not a model file, or was cut short: {error}.") from error
    if text is None:
        raise ModelFileError("It is a safetensors file, but not one that polyadic has written.")
    header = json.loads(text)
    number = header["format"]
    if not isinstance(number, int) or number < 1:
        raise ModelFileError(f"Its file format is {number!r}, which never existed.")
    if number > FORMAT:
        raise ModelFileError(
            f"It has file format {number}, written by polyadic {header.get('version')}; polyadic "
            f"{polyadic.__version__} reads formats up to {FORMAT}. Install a newer polyadic."
        )
    if header.pop("sha256") != hashlib.sha256(dumps(header).encode()).hexdigest():
        raise ModelFileError("It is damaged: the checksum of its header does not match.")
    if header["tensors_sha256"] != _digest(tensors):
        raise ModelFileError("It is damaged: the checksum of its arrays does not match.")
    if header["class"] not in _ESTIMATORS:
        raise ModelFileError(
            f"It holds a {header['class']!r}; known are {', '.join(sorted(_ESTIMATORS))}."
        )
    return header, tensors


def _digest(tensors: dict[str, np.ndarray]) -> str:
    """Return the checksum of names, types, shapes and little-endian bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype.name} {array.shape} ".encode())
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


# ---- from a model to header and tensors ----------------------------------------------------------


def _describe(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Take a fitted model apart."""
    tensor, arrays = _cores(model.tensor_)
    arrays |= {name: getattr(model, attribute) for name, attribute in ARRAYS.items()}
    _check_finite(arrays)
    columns = model.columns_.to_json()
    for n, column in enumerate(columns["columns"]):
        categories = column.pop("categories")
        if column["kind"] == "categorical":
            arrays[f"columns.{n}.categories"] = to_text(categories)
    maps = []
    for n, own in enumerate(model.maps_):
        maps.append({**pack(own), "arrays": list(own.arrays())})
        arrays |= {f"maps.{n}.{name}": array for name, array in own.arrays().items()}
    for m, curves in enumerate(model.history_):
        arrays |= {f"history.{m}.{name}": np.array(c, dtype=float) for name, c in curves.items()}
    marginals = [own.arrays() for own in getattr(model, "marginals_", [])]
    # Without those that have left the range of numbers, a model still predicts.
    finite = all(np.all(np.isfinite(array)) for own in marginals for array in own.values())
    for n, own in enumerate(marginals if finite else []):
        arrays |= {f"marginals.{n}.{name}": array for name, array in own.items()}
    params = model.get_params(deep=False)
    if not isinstance(params["random_state"], Integral):
        params["random_state"] = None
    header = {
        "format": FORMAT,
        "version": polyadic.__version__,
        "class": type(model).__name__,
        "params": pack(params),
        "columns": columns,
        "maps": maps,
        "tensor": pack(tensor),
        "history": [list(curves) for curves in model.history_],
        "marginals": list(marginals[0]) if marginals and finite else [],
    }
    header |= {k: pack(getattr(model, a)) for k, a in PLAIN.items() if hasattr(model, a)}
    if isinstance(model, Classification):
        header["labels"], arrays["classes"] = pack_labels(model.classes_)
    return header, {name: _as_tensor(name, array) for name, array in arrays.items()}


def _cores(cores: CPCores | NetworkCores) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Take cores apart into what goes to the header, and arrays."""
    arrays = {f"factors.{n}": factor for n, factor in enumerate(cores.factors)}
    arrays["intercept"] = cores.intercept
    if isinstance(cores, NetworkCores):
        arrays["multiplier"] = cores.scale
        arrays |= {f"extras.{n}": extra for n, extra in enumerate(cores.extras)}
        return {"format": cores.name, "rank": cores.rank, "order": cores.order}, arrays
    arrays["weights"] = cores.weights
    arrays |= {f"additive.{n}": part for n, part in enumerate(cores.additive or ())}
    return {"additive": cores.additive is not None}, arrays


def _check_finite(arrays: dict[str, np.ndarray]) -> None:
    """Refuse what could not be loaded again."""
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(
                f"The model cannot be saved: its {name} is not finite. Training has diverged; fit "
                "again with a lower learning_rate, or scale a target of huge numbers first."
            )


def _as_tensor(name: str, array: Any) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.name not in NUMBERS:
        raise TypeError(f"A model file cannot hold {name!r}, an array of type {array.dtype}.")
    return array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
