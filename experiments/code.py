"""What a cell depends on besides its settings: the code of the experiment, and of the library.

A cell's function is followed through everything that it uses: functions, classes and constants of
this package. Of a dictionary of functions only the entries count that the settings name. Comments
and docstrings do not count.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import polyadic

# What a fit runs through; pictures, pages and readings of a fitted model do not change it.
_ROOMS = [
    "data",
    "datasets",
    "estimators",
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
    """Yield the globals that a function or the methods of a class use, with their names."""
    functions = [value]
    if isinstance(value, type):
        functions = [f for f in vars(value).values() if isinstance(f, FunctionType)]
    for function in functions:
        names = set(_names(function.__code__))
        for name in sorted(names & function.__globals__.keys()):
            found = function.__globals__[name]
            if isinstance(found, ModuleType) and found.__name__.split(".")[0] == _OWN:
                yield from ((n, getattr(found, n)) for n in sorted(names) if hasattr(found, n))
            else:
                yield name, found


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, in functions within it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


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
