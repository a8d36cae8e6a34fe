"""Models of trees that other libraries have grown: read, and turned into estimators.

Public names are loaded when they are first used: readers of models need no estimators.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyadic.trees.compression import compress
    from polyadic.trees.joining import join
    from polyadic.trees.model import from_model
    from polyadic.trees.source import UnreadableModel

# Public name -> the module that defines it.
_MODULES = {
    "UnreadableModel": "polyadic.trees.source",
    "compress": "polyadic.trees.compression",
    "from_model": "polyadic.trees.model",
    "join": "polyadic.trees.joining",
}
__all__ = ["UnreadableModel", "compress", "from_model", "join"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'polyadic.trees' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
