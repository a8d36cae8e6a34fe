"""What can be told of a release without building it: `make release-check` does the rest."""

import doctest
import importlib.metadata
import importlib.util
import tomllib
from pathlib import Path

from packaging.metadata import Metadata

import polyadic

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "polyadic"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RELEASE = load(ROOT / ".ci" / "release.py")


def test_the_change_log_begins_with_the_version_of_the_package():
    stated = RELEASE.version_of_changes((ROOT / "CHANGES.md").read_text())
    assert stated == polyadic.__version__
    assert RELEASE.version_of_package((SOURCE / "version.py").read_text()) == stated


def test_the_metadata_are_valid():
    text = importlib.metadata.distribution("polyadic").read_text("METADATA")
    found = Metadata.from_email(text, validate=True)  # raises where a field is not
    assert found.name == "polyadic"
    assert str(found.version) == polyadic.__version__
    assert found.description_content_type == "text/markdown"
    assert found.license_expression == "BSD-3-Clause"


def test_every_extra_is_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*project["optional-dependencies"], ""} <= RELEASE.CALLS.keys()
    for extra, code in RELEASE.CALLS.items():
        compile(RELEASE.START + code, extra, "exec")


def test_a_wheel_with_too_little_or_too_much_is_found(tmp_path):
    (tmp_path / "page").mkdir()
    for name in ("__init__.py", "py.typed", "page/page.js"):
        (tmp_path / name).write_text("")
    right = ["polyadic/__init__.py", "polyadic/py.typed", "polyadic/page/page.js"]
    about = ["polyadic-0.1.0.dist-info/METADATA"]
    assert RELEASE.check_wheel(right + about, tmp_path) == []
    assert RELEASE.check_wheel(right[:2] + about, tmp_path) == ["lacks polyadic/page/page.js"]
    wrong = RELEASE.check_wheel([*right, "tests/test_x.py"], tmp_path)
    assert wrong == ["holds tests/test_x.py"]


def test_the_package_holds_what_the_page_needs():
    assert (SOURCE / "py.typed").exists()
    assert list((SOURCE / "page").glob("*.js"))
    assert list((SOURCE / "page").glob("*.css"))


def test_the_examples_of_the_check_are_right():
    assert doctest.testmod(RELEASE).attempted > 0
    assert doctest.testmod(RELEASE).failed == 0
