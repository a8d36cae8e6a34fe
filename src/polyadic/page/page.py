"""Write a model as one live HTML page.

The page is one file that loads nothing: the data are a block of JSON, and the script builds all
that is seen from them, by `textContent` and never by markup, so that no name in a table can become
code. A content-security policy allows this one script and this one style sheet, by their hashes.

Charts are SVG made by hand in the script. A chart library would be larger than most models, would
bring a licence of its own into every page that a user hands on, and has no word for curves with a
density below them. Nothing here needs more than lines, bars and squares.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyadic.estimators import CPClassifier, CPRegressor
from polyadic.io.atomic import check_place, write_whole
from polyadic.page.gather import gather

MOST_BYTES = 30_000_000  # a page that no browser likes to open
_SCRIPTS = ("engine.js", "charts.js", "sections.js", "whatif.js", "page.js")

# What could end the block of data or be taken for markup; JSON reads the escapes as the characters.
_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def report(
    model: CPRegressor | CPClassifier,
    X: Any,
    y: Any,
    path: str | os.PathLike,
    *,
    title: str | None = None,
    target: str | None = None,
) -> Path:
    """Write a live page of a fitted model: what it has learnt, how good it is, and what-if.

    The page holds the model itself. Moving a slider predicts anew in the browser and explains the
    prediction by exact Shapley values; no server, no network. It shows accuracy and calibration on
    the rows passed, importance, effects and interactions in closed form over the training rows.

    Parameters
    ----------
    model : fitted CPRegressor or CPClassifier
    X : table of shape (n, N)
        Rows to judge the model on and to pick from. Up to 50 of them are copied into the page as
        they are, and targets of up to 400: whoever has the page has those, and the model.
    y : (n,) or (n, L), or None
        Their targets; with None the page has no section on accuracy.
    path : str or path
        The HTML file; an existing one is replaced once the new one is complete.
    title : str, optional
    target : str, optional
        What is predicted; by default the name of y, where it has one.

    Returns
    -------
    path : Path

    Notes
    -----
    A column of more than 2,000 categories is offered with its 1,000 most frequent ones and those
    of the rows shown; the page says so. Explanations count all of them.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    >>> model = CPRegressor(rank=2, n_members=1, max_iter=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report(model.fit(X, X[:, 0]), X, X[:, 0], f"{folder}/page.html")
    ...     path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    _check_model(model)
    check_place(path)  # before the work, not after it
    data = render(gather(model, X, y, title, target))
    if len(data) > MOST_BYTES:
        raise ValueError(
            f"The page would have {len(data) / 1e6:,.0f} MB, more than the {MOST_BYTES / 1e6:,.0f} "
            "MB that a browser opens with ease. Fit a model of a lower rank, fewer members or "
            "fewer knots, or leave out columns of very many categories."
        )
    write_whole(path, data)
    return Path(path)


def render(content: dict[str, Any]) -> bytes:
    """Return the page of these data."""
    script = "\n".join(_source(name) for name in _SCRIPTS)
    style = _source("page.css")
    plain = _plain(content)
    data = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'",
        "style": style,
        "data": data.translate(_ESCAPES),
        "script": script,
    }
    page = _source("page.html")
    for name, text in parts.items():  # one place each; the data come after all others are found
        before, after = page.split(f"{{{{{name}}}}}", 1)
        parts[name] = before + text
        page = after
    # A lone surrogate, which JSON allows and UTF-8 does not, is shown as a question mark.
    return ("".join(parts.values()) + page).encode("utf-8", errors="replace")


def _plain(value: Any) -> Any:
    """Return JSON values without infinities and NaN, which JSON does not know: null for those."""
    if isinstance(value, dict):
        return {key: _plain(own) for key, own in value.items()}
    if isinstance(value, list):
        return [_plain(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _source(name: str) -> str:
    return resources.files("polyadic.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the source expression of a content-security policy for an inline element."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _check_model(model: Any) -> None:
    if not isinstance(model, CPRegressor | CPClassifier):
        raise TypeError(
            f"A page is made of a CPRegressor or a CPClassifier, got {type(model).__name__}. "
            "Other formats are not a sum of products, which is what the page computes with."
        )
    check_is_fitted(model, "tensor_")
    cores = model.tensor_
    arrays = [*cores.factors, *(cores.additive or []), cores.weights, cores.intercept]
    if not all(np.all(np.isfinite(array)) for array in arrays):
        raise ValueError(
            "The model predicts no numbers: its cores are not finite. Training has diverged; fit "
            "again with a lower learning_rate."
        )
