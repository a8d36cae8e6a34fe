"""Turn names in the text into links: pages, files of the repository, and documented Python names.

The Markdown files are also read as they are, in an editor or on a code host, where they name pages
as `docs/maps.md` and functions as `explain.shapley`. On the site these names become links. A file
that does not exist is a warning, so that a strict build fails.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

LOGGER = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]

# Files outside docs/ that have a page on the site.
PAGES = {
    "CONTRIBUTING.md": "contributing",
    "CHANGES.md": "changes",
    "benchmarks/README.md": "benchmarks",
}
PAGE = re.compile(r"\bdocs/([\w/]+)\.md\b")
FILE = re.compile(r"(benchmarks|examples|experiments|src|tests|torture|\.ci)/[\w./-]*\w")
NAME = re.compile(r"(?:polyadic\.)?([A-Za-z_][\w.]*?)(\(.*\))?", re.DOTALL)


class LinkedNames(SphinxPostTransform):
    """Add links to inline code, and to pages that are named in plain text."""

    default_priority = 200

    def run(self, **kwargs):
        """Go through all inline code, then through all plain text."""
        for node in list(self.document.findall(nodes.literal)):
            if not _within(node, nodes.reference):
                self._link_code(node)
        for node in list(self.document.findall(nodes.Text)):
            if not _within(node, nodes.reference, nodes.literal, nodes.literal_block, nodes.title):
                self._link_text(node)

    def _link_code(self, node):
        text = node.astext()
        page = PAGE.fullmatch(text)
        if page or text in PAGES:
            link = self._page(page[1] if page else PAGES[text], text, node)
        elif FILE.fullmatch(text):
            link = self._file(text, node)
        else:
            link = self._python(text, node)
        if link is not None:
            node.replace_self(link)

    def _link_text(self, node):
        text, parts, at = node.astext(), [], 0
        for found in PAGE.finditer(text):
            link = self._page(found[1], found[0], nodes.literal("", found[0]))
            if link is not None:
                parts += [nodes.Text(text[at : found.start()]), link]
                at = found.end()
        if parts:
            node.parent.replace(node, [*parts, nodes.Text(text[at:])])

    def _page(self, name, text, node):
        if name not in self.env.all_docs:
            LOGGER.warning("%s names a page that does not exist", text, location=node)
            return None
        return make_refnode(self.app.builder, self.env.docname, name, "", node.deepcopy())

    def _file(self, path, node):
        if Path(path).stem in ("yours", "test_yours"):  # a file that the reader would write
            return None
        if not (ROOT / path).exists():
            LOGGER.warning("%s names a file that does not exist", path, location=node)
            return None
        address = self.config.linked_names_source + path
        return nodes.reference("", "", node.deepcopy(), refuri=address, internal=False)

    def _python(self, text, node):
        match = NAME.fullmatch(text)
        found = self._documented.get(match[1]) if match else None
        if found is None or _within(node, nodes.title) or _entry_id(node) == found.node_id:
            return None
        return make_refnode(
            self.app.builder, self.env.docname, found.docname, found.node_id, node.deepcopy()
        )

    @cached_property
    def _documented(self):
        """Return what can be linked: `explain.shapley`, and single names where there is no doubt.

        A single name is a class or a function of the package itself: `Hat`, `load`. Names such as
        `effects` are methods, functions of two modules and parameters, and stay as they are.
        """
        names = {}
        for full, entry in self.env.domains.python_domain.objects.items():
            short = full.removeprefix("polyadic.")
            names[short] = entry
            last = short.rpartition(".")[2]
            if entry.objtype in ("class", "exception") and last[0].isupper():
                names.setdefault(last, entry)
        return names


def _within(node, *kinds):
    """Return whether one of the parents of a node is of these kinds."""
    while (node := node.parent) is not None:
        if isinstance(node, kinds):
            return True
    return False


def _entry_id(node):
    """Return the anchor of the entry of the reference that a node is in, or None."""
    while (node := node.parent) is not None:
        if node.tagname == "desc":
            signature = node[0]
            return signature["ids"][0] if signature.get("ids") else None
    return None


def setup(app):
    """Register the transform and its setting."""
    app.add_config_value("linked_names_source", "", "html", str)
    app.add_post_transform(LinkedNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
