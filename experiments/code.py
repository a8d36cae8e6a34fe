"""What a cell depends on besides its settings: the code of the experiment, and of the library.

A cell's function is followed through everything that it uses: functions, classes and constants of
this package. Of a dictionary of functions only the entries count that the settings name. Comments
and docstrings do not count.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import polyadic

# What a fit and its coefficients run through; pictures and pages do not change a result.
_ROOMS = [
    "data",
    "datasets",
    "estimators",
    "explain",
    "kernels",
    "maps",
    "networks",
    "objective",
    "solvers",
    "training",
]
_OWN = "experiments"
_LIBRARY = "polyadic"


@cache
def fingerprint(work: Callable[..., Any], settings: tuple[Any, ...] = ()) -> str:
    """Return two short digests: of the code of an experiment, and of the library if it is used."""
    found: dict[str, str] = {}
    _follow(work, settings, found)
    library = f"/{_library()}" if _LIBRARY in found else "/"
    text = "\n".join(f"{name}: {found[name]}" for name in sorted(found))
    return _digest(text) + library


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _follow(value: Any, settings: tuple[Any, ...], found: dict[str, str], name: str = "") -> None:
    """Write down what a value is made of, and go on with what it uses."""
    value = inspect.unwrap(value) if callable(value) else value
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    room = (home or "").split(".")[0]
    if room == _LIBRARY:
        found[_LIBRARY] = ""
    elif isinstance(value, (FunctionType, type)) and room == _OWN:
        label = f"{home}.{value.__qualname__}"
        if label not in found:
            found[label] = _source(value)
            for other_name, other in _used(value):
                _follow(other, settings, found, f"{home}.{other_name}")
    elif isinstance(value, dict) and any(callable(v) for v in value.values()):
        for key in value.keys() & {s for s in settings if isinstance(s, str)}:
            _follow(value[key], settings, found)
    elif name and not callable(value) and not isinstance(value, ModuleType):
        found[name] = repr(value)


def _used(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the globals that the code of a function or a class names, defaults included."""
    scope = vars(sys.modules[value.__module__])
    nodes = list(ast.walk(ast.parse(_source(value))))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    for name in sorted(names & scope.keys()):
        found = scope[name]
        if isinstance(found, ModuleType) and found.__name__.split(".")[0] == _OWN:
            yield from ((n, getattr(found, n)) for n in sorted(names) if hasattr(found, n))
        else:
            yield name, found


def _source(value: Any) -> str:
    """Return the code without comments and docstrings."""
    return _bare(textwrap.dedent(inspect.getsource(value)))


def _bare(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


@cache
def _library() -> str:
    """Return a digest of the code that fits run through."""
    root = Path(inspect.getfile(polyadic)).parent
    files = sorted(path for room in _ROOMS for path in (root / room).rglob("*.py"))
    texts = (f"{path.relative_to(root)}\n{_bare(path.read_text())}" for path in files)
    return _digest("\n".join(texts))
