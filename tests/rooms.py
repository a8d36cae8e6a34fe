"""The rooms of the package, in order, and every import between its modules.

    python tests/rooms.py          print the picture of the rooms
    python tests/rooms.py write    write it into docs/architecture.md

A room is a folder of `src/polyadic`, or a file beside them. Imports are read from the source, so
that those inside functions and in TYPE_CHECKING blocks count like all others.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "polyadic"
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: begin (python tests/rooms.py write) -->", "<!-- rooms: end -->"

# A room may import the rooms before it. The last one is the package itself, with its public names.
ROOMS = (
    "version",
    "kernels",
    "maps",
    "data",
    "networks",
    "objective",
    "losses",
    "solvers",
    "inits",
    "nn",
    "io",
    "training",
    "explain",
    "scale",
    "estimators",
    "trees",
    "datasets",
    "export",
    "plots",
    "page",
    "cli",
    PACKAGE,
)

Graph = dict[str, set[str]]  # a module -> the modules it imports


def find_modules(source: Path) -> dict[str, Path]:
    """Return the file of every module below a folder, by its dotted name."""
    out = {}
    for path in sorted(source.rglob("*.py")):
        pieces = [source.name, *path.relative_to(source).with_suffix("").parts]
        out[".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)] = path
    return out


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of every import in the file; the name of `import x` is ''."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            start = [".".join(above)] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def read_graph(source: Path) -> Graph:
    """Return which modules of a package each of its modules imports."""
    modules = find_modules(source)
    graph: Graph = {}
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        found = imported_names(ast.parse(path.read_text(encoding="utf-8")), package)
        wanted = {f"{m}.{name}" if f"{m}.{name}" in modules else m for m, name in found}
        graph[module] = {m for m in wanted if m.split(".")[0] == source.name}
    return graph


def room_of(module: str) -> str:
    """Return the room of a module.

    >>> room_of("polyadic.maps.hat"), room_of("polyadic.nn"), room_of("polyadic")
    ('maps', 'nn', 'polyadic')
    """
    room = module.split(".")[1] if "." in module else module
    return PACKAGE if room == "__main__" else room


def find_cycle(graph: Graph) -> list[str]:
    """Return the modules of a cycle of imports, [] where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def upward_edges(graph: Graph, rooms: tuple[str, ...] = ROOMS) -> list[str]:
    """Return the imports of a room that comes later in the list, as text."""
    level = {room: place for place, room in enumerate(rooms)}
    return [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in sorted(others)
        if level[room_of(other)] > level[room_of(module)]
    ]


def picture(graph: Graph, source: Path) -> str:
    """Return the rooms in order: what each is for, and the rooms it imports."""
    modules, lines = find_modules(source), []
    for room in ROOMS[:-1]:
        own = modules[f"{PACKAGE}.{room}"]
        title = (ast.get_docstring(ast.parse(own.read_text(encoding="utf-8"))) or "").split("\n")[0]
        known = {room_of(m) for module in graph if room_of(module) == room for m in graph[module]}
        uses = [other for other in ROOMS if other in known - {room}]
        lines.append(f"    {room + ('/' if own.name == '__init__.py' else '.py'):<13}{title}")
        if uses:
            lines.append(f"    {'':<13}imports {', '.join(uses)}")
    return "\n".join(lines)


def split_document() -> tuple[str, str, str]:
    """Return the text of the document before, between and after the two markers."""
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    between, after = rest.split(END)
    return before, between.strip("\n"), after


def main() -> None:
    """Print the picture, or write it into the document."""
    source = ROOT / "src" / PACKAGE
    drawn = picture(read_graph(source), source)
    if sys.argv[1:] != ["write"]:
        print(drawn)
        return
    before, _, after = split_document()
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{drawn}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
