"""Tables, claims, and the report made of them."""

from __future__ import annotations

import csv
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from experiments import statistics
from experiments.cells import FITS, Found, Scale, in_words
from experiments.models import ADDITIONS, DETERMINISTIC
from experiments.published import CHECK_POINTS, Published
from experiments.statistics import LEVEL

REACHED, SOME_SEEDS, MISSED = "reached", "reached by some seeds", "not reached"
HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
OWN = " (not in the paper)"  # marks a claim of this report
ADDED = " (added)"
_PACKAGES = ["polyadic", "numpy", "scikit-learn", "numba", "torch", "lightgbm", "xgboost"]
_PACKAGES += ["catboost"]


@dataclass(frozen=True)
class Table:
    """A table, written as markdown and as comma-separated values."""

    name: str
    caption: str
    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the table as markdown."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def write(self, folder: Path) -> None:
        """Write NAME.md and NAME.csv."""
        (folder / f"{self.name}.md").write_text(f"{self.caption}\n\n{self.markdown()}\n")
        with open(folder / f"{self.name}.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self.header, *self.rows])


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what was measured, and whether that supports it."""

    text: str
    evidence: str
    holds: bool | None  # None: too little was run to decide

    def line(self) -> list[str]:
        """Return a line of a table."""
        word = OPEN if self.holds is None else HOLDS if self.holds else FAILS
        return [self.text, self.evidence, f"**{word}**"]


@dataclass(frozen=True)
class Picture:
    """A picture in the report's folder."""

    file: str
    caption: str


@dataclass(frozen=True)
class Section:
    """The part of the report that belongs to one experiment."""

    title: str
    text: str
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the section as markdown."""
        parts = [f"## {self.title}", self.text]
        for table in self.tables:
            parts += [f"**{table.caption}**", table.markdown()]
        for picture in self.pictures:
            parts += [f"![{picture.caption}]({picture.file})", f"*{picture.caption}*"]
        if self.claims:
            parts.append(claims_table("", self.claims).markdown())
        return "\n\n".join(parts)


def claims_table(name: str, claims: Sequence[Claim]) -> Table:
    """Return the claims as a table."""
    header = ["the paper says", "measured here", "verdict"]
    return Table(name, "Claims", header, [claim.line() for claim in claims])


# ---- numbers as text ----------------------------------------------------------------------------


def number(value: float | None, digits: int = 4) -> str:
    """Return a number for a table, in scientific notation where it is large.

    >>> number(0.19591), number(1e7 / 7), number(float("inf"))
    ('0.1959', '1.4e+06', 'diverged')
    """
    if value is None or math.isnan(value):
        return ""
    if not math.isfinite(value):
        return "diverged"
    return f"{value:.{digits}f}" if abs(value) < 1e5 else f"{value:.1e}"


def spread(values: Sequence[float], digits: int = 4) -> list[str]:
    """Return mean, standard deviation, range and number of fits, for the cells of a row.

    >>> spread([1.0, 2.0], 1)
    ['1.5', '0.7', '1.0 to 2.0', '2']
    """
    if not values:
        return ["", "", "", "0"]
    if len(values) == 1:
        return [number(values[0], digits), "", "", "1"]
    mean, low, high = float(np.mean(values)), min(values), max(values)
    deviation = float(np.std(values, ddof=1)) if math.isfinite(mean) else None
    ends = f"{number(low, digits)} to {number(high, digits)}"
    return [number(mean, digits), number(deviation, digits), ends, str(len(values))]


def verdict(values: Sequence[float], published: float, larger: bool = False) -> str:
    """Say whether the mean over seeds reaches a published score, or at least how many seeds do.

    >>> verdict([0.19, 0.21], 0.195), verdict([0.79], 0.78, larger=True)
    ('reached by 1 of 2 seeds', 'reached')
    """
    if not values:
        return OPEN
    sign, step = (-1.0 if larger else 1.0), last_digit(published)
    goal = sign * published + (0.5 * step if larger else step)
    scores = [sign * value for value in values]
    if float(np.mean(scores)) < goal:
        return REACHED
    reached = sum(score < goal for score in scores)
    return f"reached by {reached} of {len(scores)} seeds" if reached else MISSED


def last_digit(published: float) -> float:
    """Return one in the last digit of a figure.

    Published errors that can be checked are cut off, not rounded, so that they may be too low by
    almost this; an AUC counts as rounded.

    >>> last_digit(0.784), last_digit(0.1959)
    (0.001, 0.0001)
    """
    return 10.0 ** -len(f"{published:g}".split(".")[1])


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN of an empty list."""
    return float(np.mean(values)) if len(values) else math.nan


# ---- tables of models ---------------------------------------------------------------------------

REGRESSION = ["model", "published val MSE", "val MSE", "sd", "range", "fits", "test MSE"]
REGRESSION += ["parameters", "published s", "fit s", "verdict"]


def regression_row(name: str, found: Found, model: str, published: Published | None) -> list[str]:
    """Return a line of Table I or III."""
    if reason := found.skipped(model):
        return [name, *[""] * (len(REGRESSION) - 2), f"skipped: {reason}"]
    if not found.of(model):
        return [name, *[""] * (len(REGRESSION) - 2), "not fitted in this run"]
    vals, tests = found.values("val", model), found.values("test", model)
    sizes = [r["parameters"] for r in found.of(model) if "parameters" in r]
    return [
        name,
        number(published.score) if published else "",
        *spread(vals),
        number(mean(tests)),
        f"{sizes[0]:,}" if sizes else "",
        f"{published.seconds:g}" if published and published.seconds else "",
        number(mean(found.values("seconds", model)), 2),
        f"**{verdict(vals, published.score)}**" if published else "",
    ]


def regression_rows(found: Found, published: dict[str, Published]) -> list[list[str]]:
    """Return the paper's rows in its order, and the added models."""
    rows = [regression_row(p.name, found, model, p) for model, p in published.items()]
    return rows + [regression_row(name + ADDED, found, name, None) for name in ADDITIONS]


def plain_rows(found: Found, names: dict[str, str]) -> list[list[str]]:
    """Return a line for each model that has no published figure; names by model."""
    return [regression_row(name, found, model, None) for model, name in names.items()]


def better(
    text: str, scores: Mapping[str, Sequence[float]], own: str, larger: bool = False
) -> Claim:
    """Claim that one model is better than every other; judged against the best of these."""
    rival, holds = statistics.lowest(scores, own, larger)
    if not rival:
        return Claim(text, "", None)
    gap = statistics.paired_difference(scores[own], scores[rival])
    means = f"{own} {number(mean(scores[own]))}, best other: {rival}, {number(mean(scores[rival]))}"
    return Claim(text, f"{means}; difference {gap}", holds)


# ---- the report ---------------------------------------------------------------------------------


def check_points(found: Found) -> Table:
    """Return the figures that only the right splits give, beside ours."""
    rows = []
    for point in CHECK_POINTS:
        own = Found(r for r in found if r.experiment == point.experiment)
        values = own.values(point.score, point.model)
        if values:
            good = abs(values[0] - point.value) <= point.tolerance
            score = "validation MSE" if point.score == "val" else "test AUC"
            cells = [
                f"{point.value:.10g}",
                f"{values[0]:.10g}",
                "**met**" if good else "**MISSED**",
            ]
            rows.append([point.experiment, point.model, score, *cells])
    header = ["data", "model", "score", "expected", "ours", "verdict"]
    caption = "Check points: deterministic models that only the right split leads to"
    return Table("check_points", caption, header, rows)


def machine() -> str:
    """Describe the machine in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GB of memory"


def versions() -> str:
    """Return the versions of Python and the packages."""
    known = [f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            known.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(known)


def seeds_in_words(scale: Scale) -> str:
    """Return how many fits a model has."""
    if scale.seeds is not None:
        return str(scale.seeds)
    parts = [f"{n} where a fit takes less than {limit:g} s" for limit, n in FITS[:-1]]
    return f"in general {', '.join(parts)}, {FITS[-1][1]} otherwise; the tables give the number"


def preface(scale: Scale, seconds: float, any_library: bool = False) -> str:
    """Return what a reader must know before the first number."""
    lines = [
        "Made by `make reproduce` (`python -m experiments`), "
        f"{date.today().isoformat()}, on {machine()}; {versions()}. "
        f"The fits took {in_words(seconds)} in all, most of them two or more at a time.",
        f"Stochastic models are fitted with several seeds ({seeds_in_words(scale)}) and shown by "
        "mean, standard deviation (sd) and range; deterministic ones "
        f"({', '.join(['linear and logistic regression', 'SVM', *DETERMINISTIC])}) "
        f"once. A published figure is *{REACHED}* where the mean over seeds is as good, to "
        "the digits given; otherwise the number of seeds is given that reach it. "
        f"A claim *{HOLDS}* or *{FAILS}* where the {LEVEL:.0%} interval of the mean "
        "difference over seeds (paired bootstrap, stretched for few seeds) is on one side of what "
        "is claimed, and is "
        f"*{OPEN}* elsewhere. Intervals are given in brackets. Rows marked *(added)* are not in "
        "the paper. *As published* is the authors' recipe as far as the paper, their notebooks and "
        "the libraries that they used tell; *one recipe* treats all formats of a table alike. "
        "Published seconds are of the authors' machine; ours are means over the fits, of a run "
        "that may have been interrupted and resumed, beside other work. Choices that were made "
        "after a look at test rows are named where they belong.",
    ]
    if any_library:
        lines.append(
            "**Some fits may be of earlier states of the library (`--any-library`): only the code "
            "of the experiments is the same for all.**"
        )
    if scale.quick:
        lines.insert(
            0,
            "**A quick run: few seeds, epochs and points. It shows that everything works; its "
            "numbers and verdicts do not compare with the paper's.**",
        )
    return "\n\n".join(lines)


def summary(sections: Sequence[Section]) -> str:
    """Count the verdicts, and name what was not reached or does not hold."""
    rows = [(t, row) for s in sections for t in s.tables for row in t.rows]
    verdicts = [(row[-1].strip("*"), f"{row[0]} ({t.caption})") for t, row in rows]
    reached = [name for word, name in verdicts if word == REACHED]
    some = [f"{name}: {word}" for word, name in verdicts if word.startswith(f"{REACHED} by")]
    missed = [name for word, name in verdicts if word == MISSED]
    claims = [c for s in sections for c in s.claims if not c.text.endswith(OWN)]
    held = [claim for claim in claims if claim.holds]
    failed = [claim.text for claim in claims if claim.holds is False]
    unsure = [claim.text for claim in claims if claim.holds is None]
    lines = [
        f"- Published figures: {len(reached)} {REACHED}, {len(some)} {SOME_SEEDS}, "
        f"{len(missed)} {MISSED}.",
        f"- Claims of the paper: {len(held)} hold, {len(failed)} do not, {len(unsure)} are "
        f"{OPEN}, of {len(claims)}.",
    ]
    lines += [f"- {text}." for text in some]
    lines += [f"- Not reached: {text}." for text in missed]
    lines += [f"- Does not hold: {text}" for text in failed]
    lines += [f"- Undecided: {text}" for text in unsure]
    return "\n".join(lines)


def write_report(
    folder: Path,
    scale: Scale,
    found: Found,
    sections: Sequence[Section],
    any_library: bool = False,
) -> Path:
    """Write REPORT.md and every table; a quick run leaves every claim open."""
    if scale.quick:
        sections = [
            replace(s, claims=[replace(claim, holds=None) for claim in s.claims]) for s in sections
        ]
    checks = check_points(found)
    tables = [checks, *(table for section in sections for table in section.tables)]
    for table in tables:
        table.write(folder)
    claims = [claim for section in sections for claim in section.claims]
    claims_table("claims", claims).write(folder)
    seconds = sum(r.result.get("cell_seconds", 0.0) for r in found)
    short = "A quick run: see above." if scale.quick else summary(sections)
    parts = ["# The paper, reproduced", preface(scale, seconds, any_library), "## In short", short]
    parts += [f"**{checks.caption}**", checks.markdown()]
    parts += [section.markdown() for section in sections]
    path = folder / "REPORT.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path
