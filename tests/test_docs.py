"""The site: its code blocks run, the names in it exist, and its check of links finds broken ones.

Blocks with `>>>` are doctests, which pytest collects by itself. `make docs` builds the site.
"""

import doctest
import importlib
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import needs
import pytest

from polyadic import datasets

mpl.use("Agg")

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGES.md"]
# A comment before a block says why it cannot run here; it is compiled instead.
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What the text before a block has defined: smaller than on the page, so that the test is fast.
BEFORE = {
    "docs/explain.md": """
import numpy as np
from polyadic import CPRegressor, explain
X = np.random.default_rng(0).uniform(0, 10, (60, 3))
model = CPRegressor(maps="polynomial", n_members=1, max_iter=5, rank=2).fit(X, X[:, 0] * X[:, 1])
"""
}
PUBLIC = [
    "maps",
    "losses",
    "inits",
    "explain",
    "plots",
    "datasets",
    "nn",
    "networks",
    "scale",
    "trees",
    "export",
]


class Block(NamedTuple):
    """A block of Python that is no doctest."""

    page: str
    number: int
    code: str
    not_run: str  # why, or empty


def plain_blocks(path):
    text, name = path.read_text(), path.relative_to(ROOT).as_posix()
    for number, found in enumerate(BLOCK.finditer(text)):
        if ">>>" not in found[1]:
            reason = NOT_RUN.search(text[: found.start()])
            yield Block(name, number, found[1], reason[1] if reason else "")


def few_houses(fetch=datasets.fetch_california_housing):
    """Return the first rows of the table: boosted trees of all of them take long to read."""
    houses = fetch()
    return replace(houses, data=houses.data[:400], target=houses.target[:400])


BLOCKS = [block for path in PAGES for block in plain_blocks(path)]


# shap uses what matplotlib will deprecate some day.
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}-{block.number}")
def test_a_block_of_python_runs_or_says_why_not(block, tmp_path, monkeypatch, capsys):
    code = compile(block.code, block.page, "exec")
    if block.not_run:
        return
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda *args, **settings: None)
    monkeypatch.setattr(datasets, "fetch_california_housing", few_houses)
    space = {"__name__": "__main__"}
    exec(BEFORE.get(block.page, ""), space)
    with needs.data():
        exec(code, space)


def test_blocks_are_found():
    # Otherwise the test above could run nothing, and pass.
    assert len([block for block in BLOCKS if not block.not_run]) >= 4


def find(path):
    """Return the module, class or function below polyadic of this name; None if there is none."""
    parts = path.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["polyadic", *parts[:k]]))
        except ImportError:
            continue
        for part in parts[k:]:
            found = getattr(found, part, None)
        if found is not None:
            return found
    return getattr(importlib.import_module("polyadic"), path, None)


def test_every_function_that_the_mathematics_name_exists():
    text = (DOCS / "mathematics.md").read_text()
    names = set(re.findall(r"`(?:polyadic\.)?([a-z_]+(?:\.\w+)+)`", text))
    assert len(names) > 100
    assert [name for name in sorted(names) if find(name) is None] == []


@pytest.mark.parametrize("path", PAGES[:-1], ids=lambda path: path.stem)  # CHANGES.md: old names
def test_every_name_of_the_package_in_the_text_exists(path):
    names = re.findall(r"`polyadic\.([a-z_]\w*(?:\.\w+)*)(?:\([^`]*\))?`", path.read_text())
    assert [name for name in names if find(name) is None] == []


def test_the_reference_has_every_public_name():
    text = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    shown = set(re.findall(r"^\.\. auto\w+:: polyadic\.([\w.]+)$", text, flags=re.MULTILINE))
    package = importlib.import_module("polyadic")
    wanted = {name for name in package.__all__ if name not in PUBLIC}
    for module in PUBLIC:
        names = importlib.import_module(f"polyadic.{module}").__all__
        # Shown under their names in the package itself.
        wanted |= {f"{module}.{name}" for name in names if name not in ("to_onnx", "to_sql")}
    wanted |= {"scale.ray.fit", "scale.ray.predict"}
    assert wanted == shown


def test_the_gallery_shows_every_picture_and_names_its_script():
    text = (DOCS / "gallery.md").read_text()
    shown = re.findall(r"!\[.+?\]\(gallery/(\w+\.png)\)", text)
    assert sorted(shown) == sorted(path.name for path in (DOCS / "gallery").glob("*.png"))
    for name in {picture.split("_")[0] for picture in shown}:
        assert f"python examples/{name}.py --out pictures" in text
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"gallery"}
    assert [name for name in sorted(scripts) if f"examples/{name}.py" not in text] == []


def test_the_list_of_benchmarks_is_complete():
    text = (ROOT / "benchmarks" / "README.md").read_text()
    shared = {"common.py"}
    names = {path.name for path in (ROOT / "benchmarks").glob("*.py")} - shared
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


# ---- the check of links --------------------------------------------------------------------------


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LINKS = load(ROOT / ".ci" / "links.py")


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#here"></a><a href="b.html#gone"></a>'
        '<a href="c.html"></a><img src="d.png"><a href="#top"></a><a href="https://x.org/y"></a>'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    wrong, external = LINKS.check_site(tmp_path)
    assert [line.split(": ")[1] for line in wrong] == [
        "b.html#gone leads nowhere",
        "c.html leads nowhere",
        "d.png leads nowhere",
    ]
    assert external == {"https://x.org/y"}


def test_broken_links_of_a_markdown_file_are_found(tmp_path):
    (tmp_path / "there.md").write_text("# One heading\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#one-heading) [c](there.md#two) [d](gone.md) `docs/x.md`"
    )
    wrong, _ = LINKS.check_readme(page)
    assert wrong == [
        "page.md: there.md#two leads nowhere",
        "page.md: gone.md leads nowhere",
        "page.md: there is no docs/x.md",
    ]


def test_the_examples_of_the_check_are_right():
    assert doctest.testmod(LINKS).attempted > 0
    assert doctest.testmod(LINKS).failed == 0


def test_the_links_of_the_readme_lead_somewhere():
    assert LINKS.check_readme(ROOT / "README.md")[0] == []
