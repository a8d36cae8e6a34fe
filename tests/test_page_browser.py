"""The live page in a browser: it computes what the model computes, and nothing else happens."""

import json

import needs
import numpy as np
import pandas as pd
import parts
import pytest
from explained import relative
from pages import (
    HOSTILE,
    HOSTILE_QUOTES,
    mixed_table,
    numeric_table,
    three_classes,
    tiny_classifier,
    tiny_regressor,
)
from sklearn.ensemble import HistGradientBoostingClassifier

import polyadic
from polyadic import explain, maps

needs.package("playwright")
from playwright.sync_api import sync_playwright  # noqa: E402

# Chromium cannot use its sandbox as root, and needs no network.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Put values into all controls, as typing does, and return what the page then shows.
SET_ROW = """(values) => {
  values.forEach((value, n) => {
    const control = document.querySelector(`.control[data-column="${n}"]`);
    const choice = control.querySelector("select");
    const input = choice || control.querySelector("input[type=number]");
    const places = choice && Array.from(choice.options, (option) => option.text);
    input.value = value === null ? (choice ? -1 : "") : choice ? places.indexOf(value) - 1 : value;
    input.dispatchEvent(new Event(choice ? "change" : "input"));
  });
}"""
SHOWN = """() => {
  const { raw, predicted } = document.getElementById("prediction").dataset;
  const { base, output, values } = document.getElementById("shapley").dataset;
  return { raw: JSON.parse(raw), predicted: JSON.parse(predicted), base: Number(base),
    output: Number(output), shapley: JSON.parse(values) };
}"""


@pytest.fixture(scope="module")
def browser():
    path = needs.chromium()
    with sync_playwright() as play:
        own = play.chromium.launch(executable_path=path, args=FLAGS)
        yield own
        own.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Return a function that writes a page and opens it; no error and no request may follow."""
    tabs, wrong = [], []

    def open_page(model, X, y, width=1280, scheme="light", **more):
        path = polyadic.report(model, X, y, tmp_path / "page.html", **more)
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab.on("console", lambda message: wrong.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        tab.on("request", lambda request: wrong.append(f"request: {request.url}"))
        tab.goto(path.as_uri())
        assert wrong.pop(0) == f"request: {path.as_uri()}"
        tabs.append(tab)
        return tab

    open_page.wrong = wrong
    yield open_page
    for tab in tabs:
        tab.close()
    assert wrong == []


@pytest.fixture(scope="module")
def mixed():
    X, score = mixed_table()
    return X, score


def plain(row):
    """Return a row as JSON values, None for what is missing; categories as text."""
    return [
        (None if pd.isna(v) else float(v) if isinstance(v, float) else str(v)) for v in row.tolist()
    ]


def show(tab, values):
    tab.evaluate(SET_ROW, values)
    return tab.evaluate(SHOWN)


def agree(shown, model, row):
    """Compare raw, prediction and Shapley values of the explained output with the model."""
    raw = relative(model, model.raw(row))[0]
    size = max(1.0, np.abs(raw).max())
    assert np.allclose(shown["raw"], raw, rtol=0, atol=1e-5 * size)
    if hasattr(model, "classes_"):
        assert np.allclose(shown["predicted"], model.predict_proba(row)[0], rtol=0, atol=1e-5)
    else:
        predicted = np.atleast_1d(model.predict(row)[0])
        assert np.allclose(shown["predicted"], predicted, rtol=1e-5, atol=1e-5 * size)
    exact, k = explain.shapley(model, row), shown["output"]
    assert shown["base"] == pytest.approx(exact.base[k], rel=1e-5, abs=1e-5 * size)
    assert np.allclose(shown["shapley"], exact.values[0, :, k], rtol=0, atol=1e-5 * size)
    assert sum(shown["shapley"]) == pytest.approx(shown["raw"][k] - shown["base"], abs=1e-9 * size)


# ---- the page computes what the model computes ---------------------------------------------------


NUMERIC = [own for own in parts.PACKAGE_MAPS if own.kind == "numeric"]


@pytest.mark.parametrize("first", range(0, len(NUMERIC), 4))
def test_every_map_is_computed_as_in_python(first, visit):
    X, y = numeric_table()
    own = {n: m.clone() for n, m in enumerate(NUMERIC[first : first + 4])}
    check_rows(visit, tiny_regressor(maps=own).fit(X, y), X, y)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_members": 3},
        {"init": "linear", "rank": 2},
        {"init": "linear", "rank": 2, "n_members": 2},
        {"trees": True},
        {"init": "linear", "rank": 2, "n_members": 2, "trees": True},
    ],
    ids=str,
)
def test_members_and_additive_parts_are_computed_as_in_python(changes, visit):
    X, y = numeric_table()
    with parts.shared_trees():
        model = tiny_regressor(maps=maps.Hat(8), **changes).fit(X, y)
    assert (model.tensor_.additive is not None) == ("init" in changes)
    check_rows(visit, model, X, y)


@pytest.mark.parametrize("trees", [False, True])
def test_neutral_missing_values_are_computed_as_in_python(trees, visit):
    X, y = numeric_table(missing=0.0)
    own = {0: maps.Polynomial(3), 1: maps.Hat(8), 2: maps.Chebyshev(4), 3: maps.BSpline(5)}
    with parts.shared_trees():
        model = tiny_regressor(maps=own, trees=trees).fit(X, y)
    assert (model.tensor_.trees is not None) == trees
    tab = visit(model, X, y)
    for lost in ([0], [1], [2], [3], [0, 1, 2, 3]):
        row = X[:1].copy()
        row[0, lost] = np.nan
        agree(show(tab, plain(row[0])), model, row)


def check_rows(visit, model, X, y):
    """Compare rows of the table, and others within and beyond its range, with the model."""
    tab = visit(model, X, y)
    spread = np.random.default_rng(1).normal(size=(4, 4))
    for row in np.vstack([X[:2], spread, 3 * spread[:2]]):
        agree(show(tab, plain(row)), model, row[None])
    row = X[:1].copy()
    row[0, 1] = np.nan
    agree(show(tab, plain(row[0])), model, row)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("number", {}),
        ("number", {"loss": "poisson"}),
        ("number", {"maps": {HOSTILE: maps.OneHot(min_count=60), "rooms": "polynomial"}}),
        ("numbers", {}),
        ("two classes", {}),
        ("two classes", {"loss": "squared_error"}),
        ("two classes", {"trees": True}),
        ("three classes", {}),
        ("three classes", {"trees": True}),
        ("three classes", {"loss": "squared_error"}),
    ],
)
def test_every_target_is_computed_as_in_python(kind, changes, visit, mixed):
    X, score = mixed
    y = {
        "number": np.exp(score / 3),
        "numbers": np.column_stack([score, -2 * score]),
        "two classes": np.where(score > 1, HOSTILE, "no"),
        "three classes": three_classes(score),
    }[kind]
    make = tiny_classifier if "classes" in kind else tiny_regressor
    model = make(**changes).fit(X, y)
    tab = visit(model, X, y, target="a target")
    for k in (0, 7, 11):
        agree(show(tab, plain(X.iloc[k])), model, X.iloc[[k]])
    agree(show(tab, [None] * 4), model, X.iloc[[0]].assign(**{c: [None] for c in X}).astype(object))


def test_a_model_of_another_library_is_computed_as_in_python(visit, mixed):
    X, score = mixed
    X = X.astype({HOSTILE: "category", "grade": "category"})
    grown = HistGradientBoostingClassifier(max_iter=4, random_state=0)
    model = polyadic.trees.from_model(grown.fit(X, three_classes(score)), X)
    tab = visit(model, X, three_classes(score))
    for k in (0, 7, 11):
        agree(show(tab, plain(X.astype(object).iloc[k])), model, X.iloc[[k]])


def test_the_explained_class_can_be_chosen(visit, mixed):
    X, score = mixed
    model = tiny_classifier().fit(X, three_classes(score))
    tab = visit(model, X, None)
    first = tab.evaluate(SHOWN)
    assert first["output"] == np.argmax(first["predicted"])
    tab.select_option("#output", label="zz high")
    shown = show(tab, plain(X.iloc[3]))
    exact = explain.shapley(model, X.iloc[[3]])
    assert exact.outputs[2] == "zz high"
    assert np.allclose(shown["shapley"], exact.values[0, :, 2], rtol=0, atol=1e-5)
    assert shown["base"] == pytest.approx(exact.base[2], abs=1e-5)
    assert "the score of zz high, relative to the mean" in tab.text_content(".why h3")


def test_the_predicted_class_is_explained_until_another_is_chosen(visit, mixed):
    X, score = mixed
    model = tiny_classifier(max_iter=40).fit(X, three_classes(score))
    tab = visit(model, X, None)
    seen = set()
    buttons = tab.locator("tr[data-row] button")
    for row in range(0, buttons.count(), 7):
        buttons.nth(row).click()
        shown = tab.evaluate(SHOWN)
        assert shown["output"] == np.argmax(shown["predicted"])
        assert int(tab.input_value("#output")) == shown["output"]
        name = model.classes_[shown["output"]]
        assert tab.text_content("#effects .note >> nth=0") == f"Class: {name}"
        seen.add(shown["output"])
    assert len(seen) > 1
    tab.select_option("#output", label="low")
    for row in (0, buttons.count() - 1):
        buttons.nth(row).click()
        assert model.classes_[tab.evaluate(SHOWN)["output"]] == "low"


@pytest.mark.parametrize("kind", ["two classes", "three classes", "three classes, trees"])
def test_the_waterfall_of_a_probability_is_that_of_python(kind, visit, mixed):
    X, score = mixed
    y = np.where(score > 1, "yes", "no") if kind == "two classes" else three_classes(score)
    changes = {"trees": True} if "trees" in kind else {}
    model = tiny_classifier(max_iter=20, **changes).fit(X, y)
    tab = visit(model, X, y)
    tab.check("#probabilities")
    for row in (3, 11):
        shown = show(tab, plain(X.iloc[row]))
        exact, k = explain.shapley(model, X.iloc[[row]], scale="probability"), shown["output"]
        assert shown["base"] == pytest.approx(exact.base[k], abs=1e-5)
        assert np.allclose(shown["shapley"], exact.values[0, :, k], rtol=0, atol=1e-5)
        place = k if len(exact.outputs) > 1 else 1
        reached = shown["predicted"][place] - shown["base"]
        assert sum(shown["shapley"]) == pytest.approx(reached, abs=1e-9)
    assert "the probability of" in tab.text_content(".why h3")


def test_bars_show_the_shapley_values_largest_first(visit):
    X, y = numeric_table(n_columns=16)
    model = tiny_regressor().fit(X, y)
    tab = visit(model, X, y)
    values = np.array(tab.evaluate(SHOWN)["shapley"])
    rows = tab.locator("#shapley li[data-column]")
    order = [int(rows.nth(k).get_attribute("data-column")) for k in range(rows.count())]
    assert order == np.argsort(-np.abs(values), kind="stable")[:12].tolist()
    assert "other 4 columns" in tab.text_content("#shapley")


# ---- user input ----------------------------------------------------------------------------------


def row_shown(tab, n_columns):
    """Return the exact numbers of the controls."""
    value = "n => document.querySelector(`.control[data-column='${n}']`).dataset.value"
    return np.array([[float(tab.evaluate(value, n)) for n in range(n_columns)]])


def test_arrow_keys_move_a_slider_and_the_prediction_follows(visit):
    X, y = numeric_table(missing=0.0)
    model = tiny_regressor().fit(X, y)
    tab = visit(model, X, y)
    before = tab.evaluate(SHOWN)["raw"]
    tab.focus("#column-0-slider")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        row = row_shown(tab, 4)
        tab.keyboard.press(key)
        assert row_shown(tab, 4)[0, 0] != row[0, 0]
        agree(tab.evaluate(SHOWN), model, row_shown(tab, 4))
    assert tab.evaluate(SHOWN)["raw"] != before
    assert "with another x0" in tab.text_content("#origin")
    tab.click("#back")
    assert tab.evaluate(SHOWN)["raw"] == before


def test_a_number_beyond_the_slider_can_be_typed(visit):
    X, y = numeric_table(missing=0.0)
    model = tiny_regressor().fit(X, y)
    tab = visit(model, X, y)
    tab.fill("#column-1", "12.5")
    assert row_shown(tab, 4)[0, 1] == 12.5
    agree(tab.evaluate(SHOWN), model, row_shown(tab, 4))


def test_a_value_can_be_set_to_missing_and_back(visit):
    X, y = numeric_table()
    model = tiny_regressor().fit(X, y)
    tab = visit(model, X, y)
    tab.fill("#column-2", "0.25")
    tab.check("#column-2-missing")
    assert np.isnan(row_shown(tab, 4)[0, 2])
    agree(tab.evaluate(SHOWN), model, row_shown(tab, 4))
    tab.uncheck("#column-2-missing")
    assert row_shown(tab, 4)[0, 2] == 0.25


def test_a_row_is_picked_by_keyboard_and_by_mouse(visit):
    X, y = numeric_table()
    model = tiny_regressor().fit(X, y)
    tab = visit(model, X, y)
    rows = tab.locator(".rows tbody tr")
    for k, act in ((4, "key"), (9, "mouse")):
        if act == "key":
            rows.nth(k).locator("button").focus()
            tab.keyboard.press("Enter")
        else:
            rows.nth(k).locator("td").last.click()
        number = int(rows.nth(k).locator("button").inner_text().replace(",", ""))
        assert np.array_equal(row_shown(tab, 4), X[[number]], equal_nan=True)
        agree(tab.evaluate(SHOWN), model, X[[number]])
        assert rows.nth(k).locator("button").get_attribute("aria-pressed") == "true"


def test_heat_maps_show_their_numbers_by_keyboard_as_by_pointer(visit, mixed):
    X, score = mixed
    tab = visit(tiny_regressor().fit(X, score), X, score)
    figures = tab.locator("#interactions figure").all()
    assert len(figures) == 6
    tab.focus("#interactions svg.heat")
    for figure in figures:
        readout, cells = figure.locator(".readout"), figure.locator(".heat rect[fill-opacity]")
        opacity = cells.evaluate_all(
            "all => all.map((e) => Number(e.getAttribute('fill-opacity')))"
        )

        def pointed(k, readout=readout, cells=cells):
            before = readout.inner_text()
            cells.nth(k).dispatch_event("pointerenter")
            return before, readout.inner_text()

        by_key, by_pointer = pointed(int(np.argmax(opacity)))  # where the keys start
        assert by_key == by_pointer != "\u00a0"
        for _ in range(33):
            tab.keyboard.press("ArrowLeft")
            tab.keyboard.press("ArrowDown")
        by_key, by_pointer = pointed(0)
        assert by_key == by_pointer
        tab.keyboard.press("ArrowUp")
        by_key, above = pointed(1)
        assert by_key == above != by_pointer
        assert figure.locator(".cursor").is_visible()
        tab.keyboard.press("Tab")  # to the next map
    assert tab.locator(".readout[aria-live=polite]").count() == 6
    stops = """() => !document.querySelector(".heat").dispatchEvent(
      new KeyboardEvent("keydown", { key: "ArrowDown", cancelable: true }))"""
    assert tab.evaluate(stops)  # the page does not scroll


def test_columns_are_found_by_name(visit):
    X, y = numeric_table(n_columns=16)
    tab = visit(tiny_regressor().fit(X, y), X, y)
    tab.fill("#find", "x1")
    seen = tab.locator(".control:visible .name").all_inner_texts()
    assert sorted(seen) == ["x1", *(f"x{k}" for k in range(10, 16))]


# The engine alone, milliseconds per move: a value set, the prediction and its Shapley values.
MOVES = """() => {
  const model = engine.open(JSON.parse(document.getElementById("data").textContent).model);
  const N = model.columns.length;
  return Array.from({ length: 100 }, (_, k) => {
    const start = performance.now();
    engine.set(model, k % N, Math.sin(k));
    engine.raw(model);
    engine.shapley(model, 0);
    return performance.now() - start;
  });
}"""


def test_a_change_of_one_value_is_computed_within_a_frame(visit):
    X = np.random.default_rng(0).normal(size=(600, 20))
    model = tiny_regressor(rank=256, max_iter=1).fit(X, X[:, 0])
    tab = visit(model, X, X[:, 0])
    assert model.tensor_.rank == 256
    # 16 ms is one frame of a screen at 60 Hz. The best of several: other tests may be running.
    assert min(np.median(tab.evaluate(MOVES)) for _ in range(7)) < 16


# ---- safety --------------------------------------------------------------------------------------


def test_hostile_names_are_shown_and_never_run(visit, mixed):
    X, score = mixed
    model = tiny_classifier().fit(X, three_classes(score))
    tab = visit(model, X, three_classes(score), title=HOSTILE_QUOTES, target=HOSTILE)
    assert tab.title().startswith("\"'></script>")
    assert tab.text_content("h1") == HOSTILE_QUOTES
    assert tab.locator("label", has_text=HOSTILE).count() >= 1
    show(tab, [80.0, 3.0, HOSTILE, "2"])
    assert f"{HOSTILE}" in tab.text_content("#shapley")
    options = tab.locator("#column-2 option").all_inner_texts()
    assert HOSTILE in options
    assert tab.locator("script").count() == 2
    assert tab.locator("img").count() == 0


def test_the_policy_stops_foreign_scripts_and_loads(visit):
    X, y = numeric_table()
    tab = visit(tiny_regressor().fit(X, y), X, y)
    tab.evaluate(
        """() => { const script = document.createElement("script");
        script.textContent = "window.taken = true"; document.body.append(script); }"""
    )
    assert tab.evaluate("window.taken") is None
    load = "fetch('data:text/plain,x').then(() => 'open', () => 'shut')"
    assert tab.evaluate(load) == "shut"
    assert len(visit.wrong) >= 2
    assert all("Content Security Policy" in line for line in visit.wrong if "console" in line)
    visit.wrong.clear()


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
    assert tab.evaluate(FAINT) == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(width, visit, long_names):
    tab = visit(*long_names, width=width)
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
