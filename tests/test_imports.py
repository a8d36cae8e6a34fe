"""Which module may import which: rooms in one order, no cycles, a correct picture in the docs."""

import subprocess
import sys
from pathlib import Path

import pytest
import rooms

import polyadic

SOURCE = Path(polyadic.__file__).parent


@pytest.fixture(scope="module")
def graph():
    return rooms.read_graph(SOURCE)


def test_every_module_is_in_a_room(graph):
    unknown = {rooms.room_of(module) for module in graph} - set(rooms.ROOMS)
    assert not unknown, "put these into ROOMS of tests/rooms.py, where they belong"


def test_rooms_import_earlier_rooms_only(graph):
    assert rooms.upward_edges(graph) == []


def test_modules_do_not_import_each_other_in_a_cycle(graph):
    assert rooms.find_cycle(graph) == []


def test_the_picture_in_the_documentation_is_that_of_the_source(graph):
    _, shown, _ = rooms.split_document()
    assert shown == rooms.picture(graph, SOURCE), "run: python tests/rooms.py write"


def make_package(folder, files):
    """Write a package `polyadic` of these files and return its folder."""
    for name, text in files.items():
        path = folder / "polyadic" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "polyadic"


WAYS = {
    "a name": "from polyadic.b.two import f",
    "a module": "from polyadic.b import two",
    "a plain import": "import polyadic.b.two",
    "a relative import": "from ..b import two",
    "a deferred import": "def f():\n    from polyadic.b.two import f\n",
    "an import for types": "if TYPE_CHECKING:\n    from polyadic.b.two import f\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_import_is_read(way, tmp_path):
    files = {"__init__.py": "", "a/__init__.py": "", "b/__init__.py": "", "b/two.py": ""}
    source = make_package(tmp_path, {**files, "a/one.py": WAYS[way]})
    graph = rooms.read_graph(source)
    assert graph["polyadic.a.one"] == {"polyadic.b.two"}
    assert rooms.upward_edges(graph, ("b", "a", "polyadic")) == []
    assert rooms.upward_edges(graph, ("a", "b", "polyadic")) == [
        "polyadic.a.one imports polyadic.b.two"
    ]


def test_a_cycle_within_a_room_is_found(tmp_path):
    files = {
        "__init__.py": "",
        "a/__init__.py": "",
        "a/one.py": "from polyadic.a.two import g",
        "a/two.py": "def g():\n    from polyadic.a import one\n",
    }
    cycle = rooms.find_cycle(rooms.read_graph(make_package(tmp_path, files)))
    assert set(cycle) == {"polyadic.a.one", "polyadic.a.two"}


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
