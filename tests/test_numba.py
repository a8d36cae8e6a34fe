"""Undocumented parts of Numba that the kernels use.

When one of these tests fails, a new Numba has changed something. Then either
- adapt the file that is named, and raise the lower end of Numba's range in pyproject.toml;
  or
- lower the upper end of that range until someone does; users of the new Numba set POLYADIC_SIMD=0,
  which needs none of what only `kernels/vectors.py` and `kernels/sharing.py` use.
"""

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba import njit
from numba.core.options import TargetOptions
from numba.core.registry import CPUDispatcher

import polyadic
from polyadic.kernels import jit

SOURCE = Path(polyadic.__file__).parent
# Modules that Numba documents for extensions.
DOCUMENTED = {"numba", "numba.extending", "numba.types"}


def private_imports():
    """Return file, module and name of every import from an undocumented part of Numba."""
    out = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                private = [a.name for a in node.names if a.name.startswith("numba.")]
                assert not private, f"{path}: write `from {private[0]} import ...`"
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.split(".")[0] == "numba" and module not in DOCUMENTED:
                where = path.relative_to(SOURCE).as_posix()
                out += [(where, module, alias.name) for alias in node.names]
    return out


def test_undocumented_parts_are_used_in_few_places():
    assert {where for where, _, _ in private_imports()} <= {
        "kernels/jit.py",
        "kernels/losses.py",
        "kernels/pointers.py",
        "kernels/sharing.py",
        "kernels/vectors.py",
        "objective/losses/base.py",
        "training/compiling.py",
    }


@pytest.mark.parametrize(("where", "module", "name"), private_imports())
def test_imported_names_of_numba_exist(where, module, name):
    try:
        found = importlib.import_module(module)
        if not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except ImportError as error:
        pytest.fail(f"Numba {numba.__version__} moved {module}.{name}, which {where} uses: {error}")


@pytest.mark.parametrize("option", ["_nrt", "no_cpython_wrapper", "no_cfunc_wrapper", "nogil"])
def test_options_of_the_compiler_are_known(option):
    message = f"Numba {numba.__version__} no longer has the option {option}, see kernels/jit.py"
    known = CPUDispatcher.targetdescr.options
    assert issubclass(known, TargetOptions), message
    assert hasattr(known, option), message


def test_an_inner_kernel_is_called_by_kernels_and_refuses_python():
    @jit.inner
    def twice(x):
        return 2 * x

    @njit
    def four_times(x):
        return twice(twice(x))

    assert four_times(3) == 12
    with pytest.raises(TypeError, match="twice is called by other kernels only"):
        twice(3)


def test_no_machine_code_is_made_of_an_inner_kernel():
    """Its callers hold it: kernels/jit.py leaves out a fifth of the time of compiling."""

    @jit.inner
    def twice(x):
        return 2 * x

    @njit
    def four_times(x):
        return twice(twice(x))

    assert four_times(3) == 12
    ((part,), (whole,)) = (kernel.overloads.values() for kernel in (twice, four_times))
    made = whole.library.codegen._engine.is_symbol_defined
    assert made(whole.fndesc.mangled_name)
    assert not made(part.fndesc.mangled_name)


def test_a_change_of_any_kernel_leaves_no_cached_one_in_use(tmp_path):
    """Numba looks at a kernel's own file alone, and unpickles its index before it looks."""
    shutil.copytree(SOURCE, tmp_path / "polyadic", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from polyadic.kernels.banded import solve; print(solve._cache._cache_file._index_name)"

    def index_file():
        own = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=own, check=True, capture_output=True, text=True).stdout

    before = index_file()
    assert index_file() == before
    with (tmp_path / "polyadic" / "kernels" / "losses.py").open("a") as file:
        file.write("\nCHANGED = 1\n")
    assert index_file() != before
