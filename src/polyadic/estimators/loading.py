"""Read an estimator from a file that `polyadic.estimators.saving` has written; check all of it.

`polyadic.io.parts` checks the parts one by one; here they are put together, and checked as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from polyadic import networks
from polyadic.estimators import validation
from polyadic.estimators.cp import CPClassifier, CPRegressor
from polyadic.estimators.saving import ARRAYS, PLAIN
from polyadic.estimators.targets import Classification
from polyadic.estimators.tn import TNClassifier, TNRegressor
from polyadic.estimators.tn_base import TNEstimator
from polyadic.io import parts
from polyadic.io.arrays import Arrays, take, take_floats
from polyadic.io.files import ModelFileError, read_file
from polyadic.io.plain import FindClass, unpack, unpack_labels
from polyadic.io.trees import rebuild_trees
from polyadic.maps import FeatureMap
from polyadic.networks.cp import CPCores
from polyadic.objective.losses import Loss
from polyadic.training.missing import average_trees, averages_are_cheap
from polyadic.training.model import classes_of, target_names
from polyadic.training.plan import Choice, PlanSummary

Model = CPRegressor | CPClassifier | TNRegressor | TNClassifier
RENAMED = {"max_epochs": "max_iter", "average": "ema_decay"}  # parameters before format 3
_LONGEST = 1000  # characters of an error
ESTIMATORS: dict[str, Any] = {
    cls.__name__: cls for cls in (CPRegressor, CPClassifier, TNRegressor, TNClassifier)
}


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
        Loss classes of your own that the model uses; they are found by their name.

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
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a text or a path of pathlib, got {path!r:.100}.")
    find_class = parts.class_finder(maps, losses)
    try:
        header, arrays = read_file(Path(path))
        return _rebuild(header, arrays, find_class, os.path.getsize(path))
    except (OSError, ModuleNotFoundError):
        raise
    except ModelFileError as error:
        told = _shortened(str(error))
        raise ModelFileError(f"Cannot load {str(path)!r}. {told}") from error
    except Exception as error:
        told = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        told = _shortened(told)
        raise ModelFileError(f"Cannot load {str(path)!r}. Its content is wrong: {told}") from error


def _shortened(text: str) -> str:
    """Return an error without most of what a file says in its place."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"


def _rebuild(header: dict[str, Any], arrays: Arrays, find_class: FindClass, n_bytes: int) -> Model:
    """Return the fitted model that header and arrays describe, of a file of n_bytes."""
    if header["class"] not in ESTIMATORS:
        raise ModelFileError(
            f"It holds a {header['class']!r}; known classes are {', '.join(sorted(ESTIMATORS))}."
        )
    estimator = ESTIMATORS[header["class"]]
    params = unpack(header["params"], find_class)
    if header["format"] < 3:
        params = {RENAMED.get(name, name): value for name, value in params.items()}
    model = estimator(**params)
    columns = model.columns_ = parts.rebuild_columns(header["columns"], arrays)
    model.n_features_in_ = len(columns.sources)
    if columns.named:
        model.feature_names_in_ = np.array(columns.sources, dtype=object)
    n_columns = len(columns.columns)
    cores = parts.rebuild_cores(n_columns, header["tensor"], arrays, n_bytes)
    model.tensor_ = cores
    model.maps_ = parts.rebuild_maps(header["maps"], columns, cores, arrays, find_class)
    if "trees" in header and isinstance(cores, CPCores):
        trees = rebuild_trees(header["trees"], columns, cores.n_outputs, arrays, find_class)
        cores = model.tensor_ = replace(cores, trees=trees)
    for name, attribute in ARRAYS.items():
        setattr(model, attribute, take_floats(arrays, name, (cores.n_outputs,)))
    for name in PLAIN.keys() & header.keys():
        setattr(model, PLAIN[name], unpack(header[name], find_class))
    model.history_ = parts.rebuild_history(header["history"], arrays)
    if header["format"] >= 3 and header["plan"] is not None:
        model.plan_ = _rebuild_plan(unpack(header["plan"], find_class))
    if header.get("marginals"):  # format 1 has none
        model.marginals_ = parts.rebuild_marginals(header["marginals"], columns, cores, arrays)
    if isinstance(cores, CPCores) and cores.trees is not None and _shares_follow(header):
        if not averages_are_cheap(model.maps_, cores.trees, model.marginals_):
            raise ValueError("the shares of missing values in its trees would take far too long.")
        trees = average_trees(model.maps_, cores.trees, model.marginals_)
        model.tensor_ = replace(cores, trees=trees)
    if "labels" in header:
        model.classes_ = unpack_labels(header["labels"], take(arrays, "classes"))
    if header["format"] < 3:  # older files hold only the parameter, not the loss of the fit
        model.loss_ = model._loss()
    if isinstance(model, CPRegressor | CPClassifier):
        model._passes = None  # what partial_fit keeps is not saved
    _check_whole(model)
    if arrays:
        raise ValueError(
            f"these arrays belong to no part of the model: {', '.join(sorted(arrays))[:200]}."
        )
    return model


def _shares_follow(header: dict[str, Any]) -> bool:
    """Tell whether the shares of missing values in trees are to be computed from the marginals."""
    if isinstance(header["trees"], list) or header["trees"]["shares"]:  # a list up to format 3
        return False
    if not header.get("marginals"):
        raise ValueError("its trees have no shares of missing values, and no marginals are known.")
    return True


def _rebuild_plan(entry: dict[str, Any]) -> PlanSummary:
    """Return what was chosen for the fit, and what the pilots found."""
    choices = tuple(Choice(*choice) for choice in entry["choices"])
    trials = tuple((strength, loss) for strength, loss in entry["trials"])
    if not all(type(text) is str for choice in choices for text in choice):
        raise ValueError("the choices of the plan must be texts.")
    if not all(type(number) is float for trial in trials for number in trial):
        raise ValueError("the trials of the plan must be numbers.")
    return PlanSummary(choices, trials)


def _check_whole(model: Any) -> None:
    """Check what concerns the model as a whole."""
    validation.check(model)
    n_outputs = model.tensor_.n_outputs
    if np.any(model._scale <= 0):
        raise ValueError("the scale of the target must be positive.")
    if type(model.n_iter_) is not int or model.n_iter_ < 0:
        raise ValueError(f"n_iter is {model.n_iter_!r}, not a number of epochs.")
    if isinstance(model, TNEstimator):
        networks.resolve(model.format)
    elif not isinstance(model.tensor_, CPCores):
        raise ValueError(f"a {type(model).__name__} has cores of CP, not of {model.tensor_.name}.")
    if isinstance(model, Classification):
        classes = model.classes_
        if classes.ndim != 1 or not np.array_equal(np.unique(classes), classes):
            raise ValueError("the classes must be sorted and differ from each other.")
        if any(isinstance(one, float) and not isfinite(one) for one in classes.tolist()):
            raise ValueError("the classes must be finite.")
        if len(classes) < 2 or n_outputs != (1 if len(classes) == 2 else len(classes)):
            raise ValueError(f"{len(classes)} classes do not go with {n_outputs} outputs.")
    elif type(model._flat_target) is not bool or (model._flat_target and n_outputs > 1):
        raise ValueError(f"flat_target cannot be {model._flat_target!r} with {n_outputs} outputs.")
    model._loss()  # raises where the parameter is not one of the model's losses
    if not hasattr(model, "loss_") or model._resolve_loss(model.loss_) != model.loss_:
        raise ValueError(f"the loss of the fit cannot be {getattr(model, 'loss_', None)!r:.100}.")
    names, count = target_names(model), 1 if classes_of(model) is not None else n_outputs
    if names is not None and [type(name) for name in names] != [str] * count:
        raise ValueError(f"target_names must be {count} texts, got {names!r:.100}.")
    _check_configuration(getattr(model, "configuration_", {}))
    interaction = getattr(model, "interaction_", 1.0)
    if type(interaction) is not float or not 0.0 < interaction < np.inf:
        raise ValueError(f"interaction must be a positive number, got {interaction!r:.40}.")


def _check_configuration(given: Any) -> None:
    """Refuse anything but texts, numbers and lists of texts by name: it is only shown."""
    plain = (str, bool, int, float, type(None))
    if type(given) is not dict or not all(type(name) is str for name in given):
        raise ValueError(f"the configuration must be values by name, got {given!r:.100}.")
    for name, value in given.items():
        items = value if type(value) is list else [value]
        if not all(type(item) in plain for item in items):
            raise ValueError(f"the configuration of {name!r:.40} cannot be {value!r:.60}.")
