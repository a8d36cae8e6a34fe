"""The live page: its size, how long it takes to write, and how long a change of one value takes.

The default model of California housing, a model of 20 columns and rank 256, one of 784 columns and
rank 32. A move sets a value, predicts, and explains by exact Shapley values: the engine of the page
alone, which must take less than 16 ms for 20 columns (one frame of a screen at 60 Hz), and with
everything that is redrawn. Without chromium only the sizes are printed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import machine, print_table, seconds, verdict
from playwright.sync_api import sync_playwright

import polyadic
from polyadic.datasets import fetch_california_housing

CALIFORNIA, TWENTY = "California housing, default", "20 columns, rank 256"
SIZE_REQUIRED, MOVE_REQUIRED = 3.0, 16.0  # MB of California's page, ms per move of 20 columns
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

# Milliseconds of each of a hundred moves.
_TIMED = """(act) => Array.from({ length: 100 }, (_, k) => {
  const start = performance.now();
  act(k);
  return performance.now() - start;
})"""
_ENGINE = f"""() => {{
  const model = engine.open(JSON.parse(document.getElementById("data").textContent).model);
  model.columns.forEach((_, n) => engine.set(model, n, 0));
  return ({_TIMED})((k) => {{
    engine.set(model, k % model.columns.length, Math.sin(k));
    engine.raw(model);
    engine.shapley(model, 0);
  }});
}}"""
_PAGE = f"""() => {{
  const sliders = document.querySelectorAll("input[type=range]");
  return ({_TIMED})((k) => {{
    const slider = sliders[k % sliders.length];
    slider.value = (37 * k) % slider.max;
    slider.dispatchEvent(new Event("input"));
    document.body.getBoundingClientRect(); // the time includes the layout
  }});
}}"""


def random_model(n_columns: int, rank: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a model of random columns, and its rows: the fit has no effect on the time."""
    X = np.random.default_rng(0).normal(size=(600, n_columns))
    model = polyadic.CPRegressor(rank=rank, n_members=1, max_iter=1, random_state=0)
    return model.fit(X, X[:, 0]), X, X[:, 0]


def california(quick: bool) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the default model of California housing, and its test rows."""
    split = fetch_california_housing(split="paper")
    model = polyadic.CPRegressor(random_state=0, **({"max_iter": 2} if quick else {}))
    return model.fit(split.X_train, split.y_train), split.X_test, split.y_test


@contextmanager
def open_browser() -> Iterator[Any]:
    """Yield a browser, or None where none is installed."""
    path = shutil.which("chromium")
    if path is None:
        print("Moves are not timed: chromium is not installed.")
        yield None
        return
    with sync_playwright() as play:
        yield play.chromium.launch(executable_path=path, args=FLAGS)


def times(browser: Any, path: Path) -> list[float]:
    """Return the median milliseconds of a move, of the engine alone and of the whole page."""
    tab = browser.new_page()
    tab.goto(path.as_uri())
    return [median(tab.evaluate(work)[10:]) for work in (_ENGINE, _PAGE)]


def main() -> None:
    """Write the pages, open them, and time moves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two epochs of California housing")
    quick = parser.parse_args().quick
    print(machine())
    models = {
        CALIFORNIA: lambda: california(quick),
        TWENTY: lambda: random_model(20, 256),
        "784 columns, rank 32": lambda: random_model(784, 32),
    }
    sizes, moves, rows = {}, {}, []
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        for name, make in models.items():
            path, parts = Path(folder) / "page.html", make()
            writing = seconds(lambda parts=parts, path=path: polyadic.report(*parts, path))
            sizes[name] = path.stat().st_size / 1e6
            moves[name] = times(browser, path) if browser else []
            shown = [f"{ms:.1f}" if ms >= 0.1 else "< 0.1" for ms in moves[name]] or ["", ""]
            rows.append([name, f"{sizes[name]:.2f}", f"{writing:.1f}", *shown])
    print_table(["page", "MB", "s to write", "ms per move, engine", "ms per move, page"], rows)
    print(f"Below {SIZE_REQUIRED:g} MB: {verdict(sizes[CALIFORNIA] < SIZE_REQUIRED)}")
    if moves[TWENTY]:
        print(f"Below {MOVE_REQUIRED:g} ms per move: {verdict(moves[TWENTY][0] < MOVE_REQUIRED)}")


if __name__ == "__main__":
    main()
