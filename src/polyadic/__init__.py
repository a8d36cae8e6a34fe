"""polyadic: models for tables that can be read exactly.

Public names are loaded when they are first used, so that importing the package is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from polyadic.version import __version__ as __version__

if TYPE_CHECKING:
    from polyadic import datasets, explain, export, inits, losses, maps, networks, plots, trees
    from polyadic.estimators import CPClassifier, CPRegressor, TNClassifier, TNRegressor
    from polyadic.estimators.loading import load
    from polyadic.export import to_onnx, to_sql
    from polyadic.io.files import ModelFileError
    from polyadic.page import report
    from polyadic.training.compiling import warmup

# Public name -> the module that defines it. The name of a module stands for the module itself.
_MODULES = {
    "CPClassifier": "polyadic.estimators",
    "CPRegressor": "polyadic.estimators",
    "ModelFileError": "polyadic.io.files",
    "TNClassifier": "polyadic.estimators",
    "TNRegressor": "polyadic.estimators",
    "datasets": "polyadic.datasets",
    "explain": "polyadic.explain",
    "export": "polyadic.export",
    "networks": "polyadic.networks",
    "inits": "polyadic.inits",
    "load": "polyadic.estimators.loading",
    "losses": "polyadic.losses",
    "maps": "polyadic.maps",
    "plots": "polyadic.plots",
    "report": "polyadic.page",
    "to_onnx": "polyadic.export",
    "to_sql": "polyadic.export",
    "trees": "polyadic.trees",
    "warmup": "polyadic.training.compiling",
}
__all__ = [
    "CPClassifier",
    "CPRegressor",
    "ModelFileError",
    "TNClassifier",
    "TNRegressor",
    "datasets",
    "explain",
    "export",
    "inits",
    "load",
    "losses",
    "maps",
    "networks",
    "plots",
    "report",
    "to_onnx",
    "to_sql",
    "trees",
    "warmup",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'polyadic' has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    return module if _MODULES[name] == f"polyadic.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
