"""The live page in a browser: how it looks, folds and can be read by everyone."""

import json
from itertools import pairwise

import needs
import numpy as np
import pytest
from browsing import open_browser, open_pages, plain, show, unfold
from pages import (
    mixed_table,
    numeric_table,
    three_classes,
    tiny_classifier,
    tiny_regressor,
)

needs.package("playwright")


@pytest.fixture(scope="module")
def browser():
    yield from open_browser()


@pytest.fixture
def visit(browser, tmp_path):
    yield from open_pages(browser, tmp_path)


# ---- accessibility -------------------------------------------------------------------------------

# Text whose contrast with its background is below 4.5, or 3 for large text: level AA of WCAG.
FAINT = """() => {
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (c) =>
    c.reduce((sum, v, k) => sum + linear(v / 255) * [0.2126, 0.7152, 0.0722][k], 0);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0.9) return c.slice(0, 3);
    }
  };
  const texts = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() &&
    !["SCRIPT", "OPTION"].includes(e.tagName) &&
    [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
  return texts.map((e) => {
    const style = getComputedStyle(e);
    const front = parse(e.namespaceURI.endsWith("svg") ? style.fill : style.color).slice(0, 3);
    const [a, b] = [light(front), light(behind(e))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24;
    return [(a + 0.05) / (b + 0.05), large ? 3 : 4.5, e.outerHTML.slice(0, 90)];
  }).filter(([contrast, least]) => contrast < least);
}"""


@pytest.fixture(scope="module")
def long_names():
    """A model with long names, its table and its labels."""
    X, score = mixed_table()
    X = X.rename(columns={"area": "a_very_long_name_without_any_blank_in_it_" * 2, "grade": "g"})
    return tiny_classifier().fit(X, three_classes(score)), X, three_classes(score)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_light_and_dark(scheme, visit, long_names):
    tab = visit(*long_names, scheme=scheme)
    unfold(tab)
    assert tab.evaluate(FAINT) == []


def test_two_classes_have_enough_contrast_too(visit):
    X, score = mixed_table()
    model = tiny_classifier().fit(X, score > 1)
    tab = visit(model, X, score > 1, scheme="dark", width=390)
    unfold(tab)
    assert tab.evaluate(FAINT) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(width, visit, long_names):
    tab = visit(*long_names, width=width)
    unfold(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.fill("#column-1", "123456789.123456")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name_and_the_prediction_is_announced(visit, long_names):
    tab = visit(*long_names)
    nameless = """() => [...document.querySelectorAll("input, select, button")].filter((e) =>
      !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim())).length"""
    assert tab.evaluate(nameless) == 0
    assert tab.get_attribute("#prediction", "aria-live") == "polite"
    loose = """() => [...document.querySelectorAll("th")].filter((e) => !e.scope).length"""
    assert tab.evaluate(loose) == 0
    assert (
        tab.evaluate("document.querySelectorAll('svg:not([aria-label], [aria-hidden])').length")
        == 0
    )


def test_headings_and_landmarks_have_an_order(visit, long_names):
    tab = visit(*long_names)
    levels = tab.evaluate("""() => [...document.querySelectorAll("h1, h2, h3")].map((e) =>
      Number(e.tagName[1]))""")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    for landmark in ("header", "nav[aria-label]", "main", "footer"):
        assert tab.locator(landmark).count() == 1
    for own in tab.locator("main section").all():
        title = own.get_attribute("aria-labelledby")
        assert tab.locator(f"h2#{title}").count() == 1


# ---- folds ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide_table():
    """A model of as many columns as a table of houses has."""
    X, y = numeric_table(n_columns=73)
    return tiny_regressor().fit(X, y), X, y


def test_many_columns_are_folded(visit, wide_table):
    tab = visit(*wide_table)
    for width, most in ((390, 7500), (768, 5500), (1280, 4800)):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollHeight") < most
    assert tab.locator(".control:visible").count() == 12
    assert tab.locator("#effects figure").count() == 6
    tab.fill("#find", "x7")
    assert tab.locator(".control:visible").count() == 4  # x7, x70, x71 and x72


def test_a_section_folds_by_its_heading_and_a_link_opens_it(visit, wide_table):
    tab = visit(*wide_table)
    tab.click("#importance summary h2")
    assert not tab.is_visible("#importance .bars >> nth=0")
    assert not tab.is_visible("#columns table")
    tab.click("nav a[href='#columns']")
    assert tab.is_visible("#columns table")
    tab.click("#effects .more > summary")
    tab.wait_for_selector("#effects .more figure")
    assert tab.locator("#effects figure").count() == 40


# Whether the whole card is on the screen after the element has been scrolled to.
IN_VIEW = """(element) => {
  element.scrollIntoView({ block: "center", behavior: "instant" });
  const { top, bottom } = document.querySelector(".now").getBoundingClientRect();
  return top >= 0 && bottom <= window.innerHeight;
}"""


def test_the_prediction_stays_in_view_while_columns_change(visit, wide_table, long_names):
    for model in (wide_table, long_names):
        tab = visit(*model)
        for width in (390, 768, 1280):
            tab.set_viewport_size({"width": width, "height": 900})
            for control in (".control:visible >> nth=0", ".control:visible >> nth=-1"):
                assert tab.locator(control).evaluate(IN_VIEW), width


# Top and bottom of the card and of the focused element.
PLACES = """() => [document.querySelector(".now"), document.activeElement].map((own) => {
  const { top, bottom } = own.getBoundingClientRect();
  return [top, bottom];
})"""


def test_the_card_does_not_hide_a_control_that_has_the_focus(visit, wide_table):
    tab = visit(*wide_table, width=390)
    tab.emulate_media(reduced_motion="reduce")  # no wait for the end of a smooth scroll
    tab.locator("#more-controls").scroll_into_view_if_needed()
    tab.focus("#more-controls > summary")
    for _ in range(20):  # upwards, from control to control
        tab.keyboard.press("Shift+Tab")
        (_, card), (top, _) = tab.evaluate(PLACES)
        assert top >= card


# ---- odd tables ----------------------------------------------------------------------------------


def test_focus_can_be_seen(visit, long_names):
    tab = visit(*long_names)
    for _ in range(12):
        tab.keyboard.press("Tab")
        outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"


def test_odd_tables_have_pages_without_errors(visit):
    X = np.column_stack([np.arange(30.0), np.full(30, np.nan), np.ones(30)])
    tab = visit(tiny_regressor().fit(X, X[:, 0]), X[:1], X[:1, 0])
    assert json.loads(tab.get_attribute("#prediction", "data-raw"))
    assert tab.locator("#effects figure").count() == 3


@pytest.mark.parametrize("scale", [1e-40, 1e40, 0.0])
def test_targets_of_any_size_have_pages_without_errors(scale, visit):
    X, y = numeric_table(missing=0.0)
    target = scale * y if scale else np.ones(len(X))
    model = tiny_regressor().fit(X, target)
    tab = visit(model, X, target)
    shown = show(tab, plain(X[0]))
    size = np.abs(model.raw(X)).max()
    assert np.allclose(shown["raw"], model.raw(X[:1])[0], rtol=0, atol=1e-5 * size)
    assert np.allclose(sum(shown["shapley"]), shown["raw"][0] - shown["base"], atol=1e-9 * size)
