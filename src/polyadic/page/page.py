"""Write a model as one live HTML page.

The page is one file that loads nothing: the data are a block of JSON, and the script builds all
visible elements from them, by `textContent` and never by markup, so that no name in a table can
become code. A content-security policy allows this one script and this one style sheet, by their
hashes.

The script draws its charts as SVG. A chart library would be larger than most models, would add its
own licence to every page that a user shares, and lacks curves with a density below them. The charts
need only lines, bars and squares.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from polyadic.explain.wrapped import unwrap, unwrap_target
from polyadic.io.atomic import check_place, write_whole
from polyadic.networks.cp import CPCores
from polyadic.page.gather import gather, target_name
from polyadic.training.model import FittedModel

MOST_BYTES = 30_000_000  # of a page; browsers are slow to open larger ones. Chosen by hand
_SCRIPTS = (
    "leaves.js",
    "networks.js",
    "engine.js",
    "elements.js",
    "charts.js",
    "heat.js",
    "fold.js",
    "summary.js",
    "accuracy.js",
    "decisions.js",
    "learnt.js",
    "rows.js",
    "whatif.js",
    "page.js",
)

# Characters that could end the block of data or be read as markup, and their escapes in JSON.
_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def report(
    model: FittedModel,
    X: Any,
    y: Any,
    path: str | os.PathLike,
    *,
    title: str | None = None,
    target: str | None = None,
    labels: Sequence[Any] | None = None,
    units: Mapping[str, str] | None = None,
) -> Path:
    """Write a live page of a fitted model: what it has learnt, how good it is, and what-if.

    The page holds the model itself. When a slider moves, the browser computes the new prediction
    and its exact Shapley values, without a server or a network. The page shows accuracy and
    calibration on the rows passed, and importance, effects and interactions in closed form over the
    training rows.

    Parameters
    ----------
    model : fitted CPRegressor, CPClassifier, TNRegressor or TNClassifier
        Or a Pipeline or a TransformedTargetRegressor with one of them inside. The page then shows
        the columns that reach the model, and the transformed target.
    X : table of shape (n, N)
        Rows to measure the accuracy on and to pick from. Up to 50 of them are copied into the page
        as they are, and targets of up to 400: everyone who has the page has those, and the model.
    y : (n,) or (n, L), or None
        Their targets; with None the page has no section on accuracy.
    path : str or path
        The HTML file; an existing one is replaced once the new one is complete.
    title : str, optional
    target : str, optional
        What is predicted; by default the name of y, here or in training, where it has one.
    labels : sequence of n, optional
        What the rows are called, such as names of customers; by default the index of a pandas
        table, unless it only counts the rows. Those of up to 50 rows are copied into the page.
    units : dict from str to str, optional
        The units of columns and of the target, by their names: {"area": "m²", "price": "EUR"}.
        They stand in brackets behind the names at the axes.

    Returns
    -------
    path : Path

    Notes
    -----
    A column of more than 2,000 categories is offered with its 1,000 most frequent ones and those
    of the rows shown; the page says so. Explanations include all categories.

    A model of format="pn" has no explanations in closed form: its page predicts, shows how good the
    model is, and says what it leaves out.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    >>> model = CPRegressor(rank=2, n_members=1, max_iter=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report(model.fit(X, X[:, 0]), X, X[:, 0], f"{folder}/page.html")
    ...     path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    own = unwrap(model)
    _check_model(own)
    check_place(path)  # before the work, not after it
    y, target = unwrap_target(model, y, target or target_name(y))
    content = gather(own, X, y, title=title, target=target, labels=labels, units=units)
    data = render(content)
    if len(data) > MOST_BYTES:
        raise ValueError(
            f"The page would have {len(data) / 1e6:,.0f} MB, more than the {MOST_BYTES / 1e6:,.0f} "
            "MB that browsers open easily. Fit a model of a lower rank, fewer members or "
            "fewer knots, or leave out columns of very many categories."
        )
    write_whole(path, data)
    return Path(path)


def render(content: dict[str, Any]) -> bytes:
    """Return the page with these data."""
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
    for name, text in parts.items():  # in the order of page.html; filled-in text is not searched
        before, after = page.split(f"{{{{{name}}}}}", 1)
        parts[name] = before + text
        page = after
    # A lone surrogate, which JSON allows and UTF-8 does not, becomes a question mark.
    return ("".join(parts.values()) + page).encode("utf-8", errors="replace")


def _plain(value: Any) -> Any:
    """Return JSON values with None for infinities and NaN, which JSON lacks."""
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


def _check_model(model: FittedModel) -> None:
    """Refuse a model that cannot predict."""
    cores = model.tensor_
    arrays = [*cores.factors, cores.intercept]
    if isinstance(cores, CPCores):
        arrays += [*(cores.additive or []), cores.weights]
    else:
        arrays += [*cores.extras, cores.scale]
    if not all(np.all(np.isfinite(array)) for array in arrays):
        raise ValueError(
            "The model cannot predict: its cores are not finite. Training has diverged; fit "
            "again with a lower learning_rate."
        )
