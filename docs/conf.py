"""Settings of the documentation site: `make docs` builds it into build/docs."""

import importlib
import inspect
import sys
from pathlib import Path

from docutils import nodes

from polyadic import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "polyadic"
author = "The polyadic developers"
copyright = "the polyadic developers, BSD 3-Clause"
version = release = __version__
language = "en"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.linkcode",
    "sphinx-mathjax-offline",  # MathJax as files of the site: pages need no network
    "sphinx_copybutton",
    "sphinx_design",
    "linked_names",  # docs/_ext: names of files and functions become links
]
nitpicky = True
exclude_patterns = ["_ext"]

# Markdown. Headings down to the third level have anchors, as on GitHub.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

# Docstrings are numpydoc, with names in single backticks. Types are those of the text.
default_role = "literal"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

SOURCE = "https://github.com/polyadic/polyadic/blob/main/"
linked_names_source = SOURCE

html_theme = "pydata_sphinx_theme"
html_title = f"polyadic {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "polyadic"},
    "github_url": "https://github.com/polyadic/polyadic",
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],  # without its field all links fit into one line
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-light",
    "pygments_dark_style": "a11y-dark",
}
# Pages without pages below them have nothing to list beside the text.
html_sidebars = {name: [] for name in ("index", "start", "mathematics", "gallery")}
toc_object_entries_show_parents = "hide"


def _inherited_from_elsewhere(app, what, name, object_, skip, options):
    """Leave out methods that scikit-learn, torch or Python wrote: they have pages of their own."""
    module = getattr(object_, "__module__", None)
    if what == "class" and callable(object_) and not str(module).startswith("polyadic"):
        return True
    return None


def linkcode_resolve(domain, info):
    """Return where the source of a documented name is, for its link "source"."""
    found = importlib.import_module(info["module"])
    for part in info["fullname"].split("."):
        found = getattr(found, part, None)
    found = inspect.unwrap(getattr(found, "fget", found))
    try:
        lines, first = inspect.getsourcelines(found)
        path = Path(inspect.getsourcefile(found)).relative_to(Path(__file__).parents[1])
    except (OSError, TypeError, ValueError):  # data, or inherited from another package
        return None
    return f"{SOURCE}{path}#L{first}-L{first + len(lines) - 1}"


def _strip_blocks(app, document):
    """Remove the empty line at the end of a doctest, which only the parser of doctests needs."""
    for block in document.findall(nodes.literal_block):
        if len(block) == 1 and block.astext().endswith("\n"):
            text = block.astext().rstrip("\n")
            block.clear()
            block += nodes.Text(text)
            block.rawsource = text  # what differs from it would not be coloured


def setup(app):
    """Register what this file defines."""
    app.connect("doctree-read", _strip_blocks)
    app.connect("autodoc-skip-member", _inherited_from_elsewhere)
