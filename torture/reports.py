"""The page in a real browser: hostile names in every text, and payloads that were changed.

    python torture/reports.py --minutes 30

A case writes a page and opens it with file:// in Chromium. Either every text is hostile (columns,
categories, classes, labels, units, target and title): the page must then run no foreign code, load
nothing, violate no rule of its content-security policy, and show the texts as they are; a share of
these pages is checked by axe-core, which must find no serious or critical violation. Or the payload
of a page was changed: the page must then show itself or an error, and must not be empty.
"""

from __future__ import annotations

import atexit
import json
import shutil
from functools import cache
from pathlib import Path

import axe_playwright_python
import numpy as np
import pandas as pd
from browsing import FLAGS  # of tests/
from common import run
from forging import change_entry, damaged, ways
from playwright.sync_api import sync_playwright

import polyadic
from polyadic import CPClassifier, CPRegressor

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "\"'></script><img src=x onerror=alert(1)>&amp;\u2028",
    "<!--<script>",
    "]]><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{data}}{{script}}",
    "${alert(1)}`",
    "__proto__",
    "constructor",
    "toString",
    "'; DROP TABLE rows; --",
    "\\u003cscript\\u003e",
    "&lt;b&gt;",
    "\u202eright to left\u202c",
    "\u0000\u001b[31m\u0007",
    "\r\n\t",
    "a" * 3000,
    "☃ 漢字 🦔 e\u0301",
    "<base href=//example.com>",
    "0",
    "NaN",
]
FAST = {"rank": 2, "n_members": 1, "max_iter": 1, "random_state": 0}
AXE_SHARE = 0.2  # of the pages with hostile names: axe takes some seconds
LANDMARKS = ("header", "nav[aria-label]", "main", "footer")
READY = """() => document.getElementById("problem") || document.getElementById("prediction")"""
OPEN = """() => document.querySelectorAll("details").forEach((own) => (own.open = true))"""


def texts(rng, n: int) -> list[str]:
    """Return n different hostile texts."""
    chosen = [HOSTILE[k] for k in rng.permutation(len(HOSTILE))[:n]]
    return [text + str(k) if rng.random() < 0.2 else text for k, text in enumerate(chosen)]


def hostile_page(rng, path) -> tuple[str, list[str]]:
    """Write a page with hostile texts only; return its title and the names of its columns."""
    n = 60
    names, groups, labels = texts(rng, 4), texts(rng, 5), texts(rng, 5)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=names[:2])
    for name in names[2:]:
        X[name] = pd.Series(np.array(groups, dtype=object)[rng.integers(0, 5, n)], dtype=object)
    X.iloc[::9, 0] = np.nan
    n_classes = int(rng.integers(0, 4))
    if n_classes < 2:
        y, model = rng.normal(size=n), CPRegressor(**FAST)
    else:
        kinds = np.array(texts(rng, n_classes), dtype=object)
        y, model = kinds[np.arange(n) % n_classes], CPClassifier(**FAST)
    title, target = texts(rng, 2)
    units = dict(zip([*names, target], texts(rng, 5)))
    rows = np.array(labels, dtype=object)[rng.integers(0, 5, n)]
    polyadic.report(
        model.fit(X, y), X, y, path, title=title, target=target, labels=rows, units=units
    )
    return title, names


def changed_page(rng, path) -> None:
    """Write a page, and change the data inside it, or damage their bytes."""
    hostile_page(rng, path)
    text = path.read_bytes().decode()
    begin = text.index('id="data">') + len('id="data">')
    end = text.index("</script>", begin)
    if rng.random() < 0.3:
        data = damaged(rng, text[begin:end].encode()).decode("utf-8", "replace")
    else:
        content = json.loads(text[begin:end])
        for _ in range(int(rng.integers(1, 4))):
            own = ways(content)
            change_entry(rng, content, own, content, own)
        data = json.dumps(content)
    # The file stays a page: whoever can end its script can write any other page.
    data = data.replace("<", "\\u003c")
    path.write_bytes((text[:begin] + data + text[end:]).encode())


@cache
def browser():
    """Return a browser, which is closed when the process ends."""
    play = sync_playwright().start()
    own = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
    atexit.register(lambda: (own.close(), play.stop()))
    return own


@cache
def axe() -> str:
    """Return axe-core, which a Python package ships."""
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def opened(path):
    """Return a tab that shows a page, and what it did that it must not do."""
    tab, wrong = browser().new_page(), []
    tab.on("dialog", lambda dialog: (wrong.append("a dialog"), dialog.dismiss()))
    tab.on("request", lambda request: wrong.append(f"a request of {request.url[:200]}"))
    tab.on("console", lambda message: wrong.append(f"told: {message.text[:200]}"))
    tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    tab.goto(path.as_uri())
    assert wrong.pop(0) == f"a request of {path.as_uri()[:200]}"
    tab.wait_for_function(READY, timeout=60_000)
    tab.evaluate(OPEN)
    tab.wait_for_timeout(50)
    return tab, wrong


def check_axe(tab) -> None:
    """Check that axe finds nothing serious, in the page with all folds open."""
    tab.evaluate(axe())
    found = tab.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    grave = [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert not grave, grave


def check_hostile(rng, path) -> str:
    title, names = hostile_page(rng, path)
    tab, wrong = opened(path)
    try:
        assert tab.locator("#problem").count() == 0, tab.text_content("#problem")
        assert tab.text_content("h1") == title, "another title"
        for landmark in LANDMARKS:
            assert tab.locator(landmark).count() == 1, f"no {landmark}"
        assert tab.locator("img, iframe, object, embed, base").count() == 0, "a foreign element"
        assert tab.locator(".control").count() == len(names)
        checked = rng.random() < AXE_SHARE
        if checked:
            check_axe(tab)
        assert not wrong, wrong
    finally:
        tab.close()
    return "hostile, axe" if checked else "hostile"


def check_changed(rng, path) -> str:
    changed_page(rng, path)
    tab, wrong = opened(path)
    try:
        shown = tab.locator("#problem").count()
        assert len(tab.inner_text("body").strip()) > 20, "an empty page"
        grave = [text for text in wrong if not text.startswith(("error: ", "told: "))]
        grave += [text for text in wrong if "Content Security" in text]
        assert not grave, grave
        errors = [text for text in wrong if text.startswith("error: ")]
        assert shown or not errors, f"an error that the page does not show: {errors[0]}"
    finally:
        tab.close()
    return "changed, an error" if shown else "changed, shown"


def case(rng, folder) -> str:
    path = folder / "page.html"
    return check_hostile(rng, path) if rng.random() < 0.5 else check_changed(rng, path)


if __name__ == "__main__":
    run("reports", case, block=5)
