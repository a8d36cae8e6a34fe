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
from report import MADE_UP
from scores import WIDE, Set, compare
from sklearn.svm import SVR
from tasks import THREADS, load

from polyadic import CPRegressor
from polyadic.datasets import fetch_california_housing

PUBLISHED = 0.1959  # the paper's validation MSE on California
PRESETS = [{"n_members": 1, "max_iter": epochs} for epochs in (3, 5, 8, 12)]
REPEATS = 3  # of each preset
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


Found = dict[str, Set]


def verdicts(found: Found, inner: bool) -> str:
    """Return a line for each claim, under its number."""
    real = {name: own for name, own in found.items() if name not in MADE_UP}
    timed = (
        {"cp", "catboost"} <= set(found["california"].figures) if "california" in found else False
    )
    parts = [
        regression(real),
        two_classes(real),
        many_classes(real),
        times(real),
        paper_tables(real),
        published(timed),
        one_member(real),
        prediction(timed, inner),
    ]
    return "\n".join(f"- {n}: {claim}" for n, part in enumerate(parts, start=1) for claim in part)


def score(found: Found, own: str, model: str, name: str) -> float:
    """Return the median of a score over the splits, or not a number where it was not measured."""
    value = found[own].score(model, name) if own in found else None
    return nan if value is None else value


def against(
    found: Found, group: str, other: str, claims: list[tuple[str, str, float]]
) -> list[Claim]:
    """Compare the default with another model on a group of sets, by name, sign and limit."""
    sets = [own for own in found.values() if own.group.startswith(group)]
    told = compare(sets, "cp", other)
    names = {
        "n_below": f"sets where cp's error is below {other}'s",
        "geometric": f"geometric mean of cp's error over {other}'s",
        "median": f"median of cp's error over {other}'s",
        "worst": f"largest of cp's error over {other}'s",
    }
    return [
        Claim(
            f"{group}, {len(sets)} sets: {names[name]}",
            nan if told is None else float(getattr(told, name)),
            sign,
            limit,
        )
        for name, sign, limit in claims
    ]


def regression(found: Found) -> list[Claim]:
    """Compare with boosting on the fourteen regression sets."""
    limits = [("n_below", ">=", 11), ("geometric", "<=", 0.80), ("median", "<=", 0.93)]
    return [
        *against(found, "regression", "catboost", limits),
        *against(found, "regression", "lightgbm_1000", [("n_below", ">=", 12)]),
    ]


def two_classes(found: Found) -> list[Claim]:
    """Compare with CatBoost on the eight sets of two classes."""
    return against(found, "two classes", "catboost", [("n_below", ">=", 7), ("worst", "<=", 1.03)])


def many_classes(found: Found) -> list[Claim]:
    """Compare with boosting and with the linear model on the four sets of more classes."""
    limits = [("n_below", ">=", 3), ("worst", "<=", 1.10)]
    return [
        *against(found, "many classes", "catboost", limits),
        *against(found, "many classes", "lightgbm", limits),
        *against(found, "many classes", "linear", [("worst", "<=", 1.02)]),
        *against(found, "two classes", "linear", [("worst", "<=", 1.02)]),
    ]


def times(found: Found) -> list[Claim]:
    """Compare fit times with CatBoost's: over all sets, and on the wide ones."""
    told = compare(found.values(), "cp", "catboost")
    wide = [own for own in found.values() if own.n_columns >= WIDE]
    wide_told = compare(wide, "cp", "catboost")
    return [
        Claim(
            "median of cp's fit time over catboost's",
            told.time_median if told else nan,
            "<=",
            1.5,
        ),
        Claim("largest of the same", told.time_worst if told else nan, "<=", 4.0),
        Claim(
            f"largest of the same on {len(wide)} sets of {WIDE} columns and more",
            wide_told.time_worst if wide_told else nan,
            "<=",
            1.0,
        ),
    ]


def paper_tables(found: Found) -> list[Claim]:
    """Check the sets of the paper, on its own splits."""
    california = split_zero(found, "california", "error")
    return [
        Claim("California, the paper's split: error of cp", california, "<=", 0.1400),
        Claim(
            "MovieLens, the paper's split: AUC of cp",
            split_zero(found, "movielens", "auc"),
            ">=",
            0.787,
        ),
    ]


def split_zero(found: Found, own: str, name: str) -> float:
    """Return a score of the default on the first split."""
    fits = found[own].figures.get("cp", {}) if own in found else {}
    return fits[0][name] if 0 in fits else nan


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


def one_member(found: Found) -> list[Claim]:
    """Compare a single member with LightGBM on California."""
    get = partial(score, found, "california")
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
