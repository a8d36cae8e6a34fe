"""What the package declares about itself is true of its code."""

import ast
import itertools
import re
import sys
import tomllib
from pathlib import Path

import pytest

import polyadic

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "polyadic"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]

# The name to install, where it is not the name to import.
DISTRIBUTION = {"sklearn": "scikit-learn"}

# Packages that polyadic works without, and the extra that installs each.
OPTIONAL = {
    "matplotlib": "plot",
    "onnx": "onnx",
    "pandas": "tables",
    "polars": "tables",
    "pyarrow": "tables",
    "ray": "ray",
    "rich": "cli",
    "shap": "shap",
    "skl2onnx": "onnx",
    "torch": "torch",
    "typer": "cli",
}

# Extras whose packages are imported by benchmarks, tests and tools, not by polyadic.
NOT_IMPORTED = {"bench", "dev", "docs", "torture"}


def names(requirements):
    return {re.match(r"[\w-]+", line)[0] for line in requirements}


def imported():
    """Return the third-party packages that the source imports, deferred imports too."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {"polyadic"}


def test_what_is_imported_is_declared_and_nothing_else():
    base = {DISTRIBUTION.get(name, name) for name in imported() - OPTIONAL.keys()}
    assert base == names(PROJECT["dependencies"])


def test_extras_hold_what_is_imported_where_it_is_needed():
    assert OPTIONAL.keys() <= imported()
    extras = PROJECT["optional-dependencies"]
    for package, extra in OPTIONAL.items():
        assert package in names(extras[extra]), f"{package} belongs to the extra {extra}"
    for extra in extras.keys() - NOT_IMPORTED:
        assert names(extras[extra]) <= OPTIONAL.keys(), f"nothing imports all of the extra {extra}"


def test_every_requirement_has_a_lower_bound():
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for line in itertools.chain(*groups):
        assert ">=" in line or line.startswith("polyadic["), line


def test_the_version_has_one_source():
    assert "version" not in PROJECT
    home = ROOT / SETTINGS["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{polyadic.__version__}"' in home.read_text()


def test_type_checkers_are_told_that_the_package_is_typed():
    assert (SOURCE / "py.typed").is_file()


@pytest.mark.parametrize("name", ["Source", "Documentation", "Changelog", "Issues"])
def test_the_project_names_its_addresses(name):
    assert PROJECT["urls"][name].startswith("https://")
