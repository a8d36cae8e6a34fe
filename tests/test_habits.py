"""Rules of the repository: which files import what, and what CI and hooks run."""

import ast
import importlib
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import polyadic

ROOT = Path(__file__).resolve().parents[1]
TESTS = sorted((ROOT / "tests").glob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
PUBLIC_ONLY = sorted(p for name in ("examples", "experiments") for p in (ROOT / name).glob("*.py"))
USES_INTERNALS = "Uses internals: it imports modules of polyadic that are not public."


def imported(tree):
    """Yield every module that is imported, and every name that is imported from a package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_public(name):
    """Tell whether a name is `polyadic.x`, or `polyadic.x.y` with both listed as public."""
    _, *path = name.split(".")
    if not path:
        return True
    if path[0] not in {*polyadic.__all__, "nn"} or len(path) > 2:
        return False
    if len(path) == 1:
        return True
    return path[1] in getattr(importlib.import_module(f"polyadic.{path[0]}"), "__all__", [])


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_no_test_imports_a_file_of_tests(path):
    others = [name for name in imported(ast.parse(path.read_text())) if name.startswith("test_")]
    assert not others, "put what several tests use into a file that is not named test_*"


def internal_imports(tree):
    """Return the names of polyadic that a file imports and that are not public."""
    ours = [name for name in imported(tree) if name.split(".")[0] == "polyadic"]
    return [name for name in ours if not is_public(name)]


@pytest.mark.parametrize("path", PUBLIC_ONLY, ids=name_of)
def test_examples_and_experiments_use_public_names_only(path):
    internal = internal_imports(ast.parse(path.read_text()))
    assert not internal, f"not public: {internal}"


@pytest.mark.parametrize("path", BENCHMARKS, ids=name_of)
def test_a_benchmark_uses_public_names_or_says_that_it_uses_internals(path):
    tree = ast.parse(path.read_text())
    internal = internal_imports(tree)
    says_so = USES_INTERNALS in (ast.get_docstring(tree) or "").splitlines()
    assert bool(internal) == says_so, f"not public: {internal}"


# ---- CI and hooks --------------------------------------------------------------------------------


def dry_run(target):
    """Return the commands of a target of the Makefile, without running them."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_workflow_calls_targets_of_the_makefile():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    targets = re.findall(r"\bmake ([\w-]+)", "\n".join(step.get("run", "") for step in steps))
    assert {"lint", "test", "test-target"} <= set(targets)
    for target in targets:
        assert dry_run(target)


def test_the_hook_before_a_commit_is_make_lint():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [(repo["repo"], [hook["entry"] for hook in repo["hooks"]]) for repo in hooks] == [
        ("local", ["make lint"])
    ]
    commands = dry_run("lint")
    for command in ("ruff check .", "ruff format --check .", "mypy"):
        assert command in commands
