"""Which reader reads which model: by the name of its class, so that no library is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from polyadic.trees.source import Source, UnreadableModel, checked

# For each library: its classes that can be read, subclasses of them too.
READABLE: dict[str, tuple[str, ...]] = {
    "lightgbm": ("LGBMRegressor", "LGBMClassifier", "Booster"),
    "xgboost": ("XGBRegressor", "XGBClassifier", "Booster"),
    "catboost": ("CatBoostRegressor", "CatBoostClassifier", "CatBoost"),
    "sklearn": (
        "HistGradientBoostingRegressor",
        "HistGradientBoostingClassifier",
        "GradientBoostingRegressor",
        "GradientBoostingClassifier",
        "RandomForestRegressor",
        "RandomForestClassifier",
        "ExtraTreesRegressor",
        "ExtraTreesClassifier",
        "DecisionTreeRegressor",
        "DecisionTreeClassifier",
    ),
}

_MODULES = {"sklearn": "scikit"}
# What goes wrong in a reader where the dump of a model is not what it should be.
_DAMAGED = (AttributeError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError)


def read_source(model: Any, categories: Mapping[int, Sequence[Any]] | None = None) -> Source:
    """Return a fitted model of another library as a `Source`, checked.

    Parameters
    ----------
    model : object
        A fitted model of trees: see `READABLE`.
    categories : dict, optional
        The categories of each categorical column, by its number. Only CatBoost needs them: its
        models have hashes in their place. Other models know their categories.

    Raises
    ------
    UnreadableModel
        If the model is not known, or is no sum of products of one function per column.
    NotFittedError
        If the model is not fitted.
    """
    library = library_of(model)
    reader = import_module(f"polyadic.trees.{_MODULES.get(library, library)}")
    try:
        found = reader.read(model, categories) if library == "catboost" else reader.read(model)
    except _DAMAGED as error:
        # By name: its class would import scikit-learn.
        if isinstance(error, UnreadableModel) or type(error).__name__ == "NotFittedError":
            raise
        raise UnreadableModel(
            f"The {library} model of the class {type(model).__name__} cannot be read: its trees "
            f"are not written as expected ({type(error).__name__}: {error}). The file that it was "
            "loaded from may be damaged, or of a newer version of the library."
        ) from error
    return checked(found)


def library_of(model: Any) -> str:
    """Return the library whose reader reads this model."""
    for kind in type(model).__mro__:
        library = kind.__module__.split(".")[0]
        if kind.__name__ in READABLE.get(library, ()):
            return library
    known = "; ".join(f"{library}: {', '.join(names)}" for library, names in READABLE.items())
    raise UnreadableModel(
        f"A {type(model).__module__}.{type(model).__qualname__} cannot be read. Known are {known}."
    )
