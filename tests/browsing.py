"""The live page in a real browser: what its files of tests share."""

import needs
import numpy as np
import pandas as pd
import pytest
from explained import relative

import polyadic
from polyadic import explain

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


def open_browser():
    """Yield a browser, for a fixture."""
    needs.package("playwright")
    from playwright.sync_api import sync_playwright

    path = needs.chromium()
    with sync_playwright() as play:
        own = play.chromium.launch(executable_path=path, args=FLAGS)
        yield own
        own.close()


def open_pages(browser, folder):
    """Yield a function that writes a page and opens it; no error and no request may follow."""
    tabs, wrong = [], []

    def open_page(model, X, y, width=1280, scheme="light", **more):
        path = polyadic.report(model, X, y, folder / "page.html", **more)
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


def row_shown(tab, n_columns):
    """Return the exact numbers of the controls."""
    value = "n => document.querySelector(`.control[data-column='${n}']`).dataset.value"
    return np.array([[float(tab.evaluate(value, n)) for n in range(n_columns)]])


def unfold(tab):
    """Open all folds, and wait until what is in them is drawn."""
    tab.evaluate(
        """() => {
          document.querySelectorAll("details").forEach((own) => (own.open = true));
          return new Promise((done) => setTimeout(done, 50));
        }"""
    )
