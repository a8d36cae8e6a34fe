"""Pages whose data were changed say so; and axe-core finds no serious fault in a page."""

from pathlib import Path

import needs
import pytest
from browsing import open_browser, open_pages, unfold
from pages import HOSTILE, mixed_model

axe = needs.package("axe_playwright_python")


@pytest.fixture(scope="module")
def browser():
    yield from open_browser()


@pytest.fixture
def visit(browser, tmp_path):
    yield from open_pages(browser, tmp_path)


@pytest.fixture(scope="module")
def mixed():
    return mixed_model()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('id="data">{', 'id="data">', "JSON"),
        ('"columns":', '"other":', "undefined"),
        ('"rows":', '"other":', "undefined"),
    ],
)
def test_changed_data_show_an_error_instead_of_an_empty_page(
    visit, browser, mixed, tmp_path, old, new, told
):
    visit(*mixed)
    path = tmp_path / "page.html"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(path.as_uri())
    assert told in tab.text_content("[role=alert]")
    assert "polyadic.report" in tab.text_content("#top")
    tab.close()


def test_axe_finds_no_serious_violation(visit, mixed):
    """In one scheme of colours: `test_page_look.py` measures the contrast in both."""
    units = {"area": HOSTILE, "rooms": "m²"}
    tab = visit(*mixed, title=HOSTILE, units=units)
    unfold(tab)
    tab.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = tab.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    assert found["passes"]
    grave = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert [one["id"] for one in grave] == []
