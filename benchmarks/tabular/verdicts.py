"""What the library claims against others, each checked with the figures of the same run.

The limits are goals of this project, chosen by hand, except `PUBLISHED`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import isnan, nan
from statistics import median

import numpy as np
from common import medians, seconds, verdict
from scores import Figures, geometric, ratios
from sklearn.svm import SVR
from tasks import THREADS, load

from polyadic import CPRegressor
from polyadic.datasets import fetch_california_housing

PUBLISHED = 0.1959  # the paper's validation MSE on California
PRESETS = [{"n_members": 1, "max_iter": epochs} for epochs in (3, 5, 8, 12)]
REPEATS = 3  # of each preset
OTHERS = ["catboost", "lightgbm_1000", "ebm"]  # on California
SIGNS = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Claim:
    """A figure and its limit; not a number where a cell was not run."""

    text: str
    value: float
    sign: str
    limit: float

    def __str__(self) -> str:
        if isnan(self.value) or isnan(self.limit):
            return f"{self.text}: n/a"
        word = verdict(bool(SIGNS[self.sign](self.value, self.limit)))
        return f"{self.text}: {self.value:.4g} {self.sign} {self.limit:.4g}: {word}"


def verdicts(found: Figures, inner: bool) -> str:
    """Return a line for each claim, under its number."""
    parts = [
        california(found),
        regression(found),
        classes(found),
        published(("california", "cp") in found),
        one_member(found),
        prediction({("california", "cp"), ("california", "catboost")} <= set(found), inner),
    ]
    return "\n".join(f"- {n}: {claim}" for n, part in enumerate(parts, start=1) for claim in part)


def figure(found: Figures, own: str, model: str, name: str) -> float:
    """Return one figure, or not a number where the cell was not run."""
    return found.get((own, model), {}).get(name, nan)


def california(found: Figures) -> list[Claim]:
    """Compare the default with boosting and the explainable boosting machine."""
    error = {m: figure(found, "california", m, "error") for m in ("cp", *OTHERS)}
    time = {m: figure(found, "california", m, "fit_s") for m in ("cp", *OTHERS)}
    below = [
        Claim(f"California: error of cp below {other}'s", error["cp"], "<", error[other])
        for other in OTHERS
    ]
    slower = time["cp"] / time["catboost"]
    faster = time["ebm"] / time["cp"]
    return [
        *below,
        Claim("California: fit time of cp over catboost's", slower, "<=", 1.5),
        Claim("California: fit time of ebm over cp's", faster, ">=", 50),
    ]


def regression(found: Figures) -> list[Claim]:
    """Compare the default with boosting over all regression sets that were run."""
    kept = {key: figures for key, figures in found.items() if figures["task"] == "regression"}
    light = list(ratios(kept, "cp", "lightgbm", "error").values())
    cat = list(ratios(kept, "cp", "catboost", "error").values())
    times = list(ratios(kept, "cp", "catboost", "fit_s").values())
    of_light, of_cat = f"{len(light)} regression sets", f"{len(cat)} regression sets"
    return [
        Claim(f"share of {of_light} where cp is below lightgbm", share_below(light), ">=", 0.85),
        Claim(f"share of {of_cat} where cp is below catboost", share_below(cat), ">=", 2 / 3),
        Claim(
            f"geometric mean of cp's error over catboost's, {of_cat}",
            geometric(cat) if cat else nan,
            "<=",
            0.90,
        ),
        Claim(
            f"median of cp's fit time over catboost's, {of_cat}",
            median(times) if times else nan,
            "<=",
            1.2,
        ),
    ]


def share_below(values: list[float]) -> float:
    """Return the share of ratios below one."""
    return float(np.mean(np.array(values) < 1)) if values else nan


def classes(found: Figures) -> list[Claim]:
    """Compare the default with boosting on adult, and with all models on movielens."""
    adult = partial(figure, found, "adult")
    auc, loss = adult("cp", "auc"), adult("cp", "error")
    films = figure(found, "movielens", "cp", "auc")
    rivals = [f["auc"] for (own, m), f in found.items() if own == "movielens" and m != "cp"]
    return [
        Claim("adult: AUC of lightgbm below cp's", adult("lightgbm", "auc"), "<", auc),
        Claim("adult: log-loss of cp below lightgbm's", loss, "<", adult("lightgbm", "error")),
        Claim("adult: AUC of catboost minus cp's", adult("catboost", "auc") - auc, "<=", 0.001),
        Claim(
            "adult: log-loss of cp minus catboost's", loss - adult("catboost", "error"), "<=", 0.001
        ),
        Claim("movielens: AUC of cp", films, ">=", 0.789),
        Claim("movielens: AUC of cp, the best of all", films, ">=", max(rivals, default=nan)),
    ]


def published(wanted: bool) -> list[Claim]:
    """Time the shortest preset that reaches the paper's validation error, against an SVR."""
    text = f"California: fit time of SVR(C=10) over that of the shortest fit to {PUBLISHED}"
    if not wanted:
        return [Claim(text, nan, ">=", 25)]
    split = fetch_california_housing(split="paper")
    rows = split.X_train, split.y_train
    CPRegressor(n_members=1, max_iter=1).fit(*rows)  # compiles the kernels
    reached = {}
    for preset in PRESETS:
        models = [CPRegressor(random_state=n, n_jobs=THREADS, **preset) for n in range(REPEATS)]
        time = median(seconds(partial(model.fit, *rows)) for model in models)
        errors = [np.mean((model.predict(split.X_val) - split.y_val) ** 2) for model in models]
        if np.mean(errors) <= PUBLISHED:
            reached[time] = f"{preset['max_iter']} epochs, {np.mean(errors):.4f}, {time:.3f} s"
    slow = seconds(partial(SVR(C=10).fit, *rows))
    fast = min(reached, default=np.inf)
    return [Claim(f"{text} ({reached.get(fast, 'none')})", slow / fast, ">=", 25)]


def one_member(found: Figures) -> list[Claim]:
    """Compare a single member with LightGBM on California."""
    get = partial(figure, found, "california")
    return [
        Claim(
            "California: error of cp_one, at most lightgbm's",
            get("cp_one", "error"),
            "<=",
            get("lightgbm", "error"),
        ),
        Claim(
            "California: fit time of cp_one, at most lightgbm_1000's",
            get("cp_one", "fit_s"),
            "<=",
            get("lightgbm_1000", "fit_s"),
        ),
    ]


def prediction(wanted: bool, inner: bool) -> list[Claim]:
    """Time the prediction of one row and of a million, from arrays, against CatBoost's."""
    text = "California: us per row of cp, {}, at most catboost's"
    one, many = (text.format(n) for n in ("one", "million"))
    if not wanted:
        return [Claim(text, nan, "<=", nan) for text in (one, many)]
    data = load(import_module("data.california"), 0, inner)
    models = [import_module(f"models.{name}").build(data, 0) for name in ("cp", "catboost")]
    for model in models:
        model.fit(data.X_train.to_numpy(), data.y_train)
    rows = data.X_test.to_numpy()
    table = np.resize(rows, (1_000_000, rows.shape[1]))  # repeats the rows
    claims = []
    for text, X, repeats in ((one, rows[:1], 200), (many, table, 3)):
        works = {str(n): partial(model.predict, X) for n, model in enumerate(models)}
        cp, catboost = (1e6 * time / len(X) for time in medians(works, repeats).values())
        claims.append(Claim(text, cp, "<=", catboost))
    return claims
