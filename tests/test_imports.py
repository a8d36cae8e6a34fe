"""Which part may know which: imports point one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import polyadic

SOURCE = Path(polyadic.__file__).parent

# A part may import those in earlier lines, and of its own line only itself.
LAYERS = [
    ["kernels"],
    ["maps"],
    ["data"],
    ["networks"],
    ["objective"],
    ["solvers"],
    ["training"],
    ["losses", "inits", "nn"],
    ["estimators"],
    ["io", "explain", "datasets"],
    ["plots", "page"],
    ["cli"],
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
FILES = sorted(SOURCE.rglob("*.py"))


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(tree, including_deferred):
    """Yield the parts of polyadic that a module imports, TYPE_CHECKING blocks left out."""
    for node in ast.walk(tree) if including_deferred else tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "polyadic":
            pieces = node.module.split(".")
            yield from [pieces[1]] if len(pieces) > 1 else [alias.name for alias in node.names]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    if part == "__init__":
        return
    assert part in LEVEL, f"put {part} into LAYERS, where it belongs"
    for other in imported_parts(ast.parse(path.read_text()), including_deferred=False):
        assert other == part or LEVEL[other] < LEVEL[part], f"{part} must not import {other}"


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_importing_the_package_loads_no_heavy_library():
    code = (
        "import sys, polyadic\n"
        "print([m for m in ('torch', 'matplotlib', 'pandas', 'sklearn') if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_estimators_need_no_torch_and_no_matplotlib():
    code = (
        "import sys\nfrom polyadic import CPRegressor, load, explain\n"
        "print([m for m in ('torch', 'matplotlib', 'ray', 'onnx') if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_public_names_exist_and_unknown_ones_do_not():
    for name in polyadic.__all__:
        assert getattr(polyadic, name) is not None
    assert set(polyadic.__all__) <= set(dir(polyadic))
    with pytest.raises(AttributeError, match="no attribute 'CPRegresor'"):
        polyadic.CPRegresor  # noqa: B018
