"""Check every link of the built site and of the README.

    python .ci/links.py build/docs

Pages, files and anchors inside the site and the repository must exist. Addresses elsewhere are only
checked for their form, since the check needs no network, and listed in external.txt in the site.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|(?:src|href)=\"([^\"]+)\"")
NAMED = re.compile(r"`((?:docs|examples|benchmarks|experiments|tests)/[\w./-]*\w)`")


class Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.links += [found[name] for name in ("href", "src") if found.get(name)]


def headings(text: str) -> set[str]:
    """Return the anchors that a code host gives to the headings of a Markdown file.

    >>> sorted(headings("# Two commands\\n## What's new?"))
    ['two-commands', 'whats-new']
    """
    titles = re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def well_formed(address: str) -> bool:
    """Return whether an address elsewhere could exist.

    >>> well_formed("https://arxiv.org/abs/2001.10109"), well_formed("https://arxiv")
    (True, False)
    """
    parts = urlsplit(address)
    if parts.scheme == "mailto":
        return "@" in parts.path
    host = parts.hostname or ""
    return parts.scheme in ("http", "https") and "." in host and not re.search(r"\s", address)


def is_external(link: str) -> bool:
    return bool(urlsplit(link).scheme)


def check_site(site: Path) -> tuple[list[str], set[str]]:
    """Return what is wrong with the pages of a folder, and the addresses elsewhere in them."""
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path.read_text()) for path in paths}
    wrong, external = [], set()
    for path, page in pages.items():
        for link in page.links:
            if link.startswith("data:"):
                continue
            if is_external(link):
                external.add(link)
                continue
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            anchor = unquote(parts.fragment)
            missing = target in pages and anchor and anchor not in pages[target].anchors
            if missing or not target.exists():
                wrong.append(f"{path.relative_to(site)}: {link} leads nowhere")
    return wrong, external


def check_readme(path: Path) -> tuple[list[str], set[str]]:
    """Return the same of one Markdown file, and of the files that it names in backticks."""
    text = path.read_text()
    wrong, external = [], set()
    for link in [first or second for first, second in LINK.findall(text)]:
        if is_external(link):
            external.add(link)
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in headings(target.read_text())):
            wrong.append(f"{path.name}: {link} leads nowhere")
    wrong += [
        f"{path.name}: there is no {name}"
        for name in NAMED.findall(text)
        if not (path.parent / name).exists()
    ]
    return wrong, external


def main(site: Path) -> int:
    results = [check_site(site), check_readme(ROOT / "README.md")]
    wrong = [line for lines, _ in results for line in lines]
    external = sorted(set().union(*(found for _, found in results)))
    wrong += [f"{address} is no address" for address in external if not well_formed(address)]
    (site / "external.txt").write_text("\n".join(external) + "\n")
    print("\n".join(wrong) if wrong else "All links inside the site and the README resolve;")
    print(f"{len(external)} addresses elsewhere: {site / 'external.txt'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
