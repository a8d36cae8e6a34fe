"""Feature maps in SQL: the elements of every column as named expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyadic.data.columns import Column
from polyadic.export.columns import NUMBERS, TEXT, constant_factor, content_of, no_form
from polyadic.export.pieces import PIECES, Pieces, partition_core, to_range_numbers
from polyadic.export.sql_text import Dialect, Levels, choice, clipped, literal, name
from polyadic.maps import Chebyshev, Fourier, OneHot, Polynomial, Trigonometric
from polyadic.maps.base import FeatureMap
from polyadic.maps.polynomial import LARGEST_ELEMENT

# Steps of the query: raw columns, scaled ones, what maps compute in two steps, elements.
RAW, SCALED, PLACED, READY, ELEMENTS = range(5)
# Below this, the closed form of a geometric sum loses digits, and the ratio counts as one.
_NEAR_ONE = 1e-8


class SqlColumn:
    """One column: named expressions for its raw value, and for its elements.

    A local map and a column of categories need `place` for that, or a join with a table of cells or
    categories; other maps have one expression per element at once.
    """

    def __init__(self, levels: Levels, dialect: Dialect, n: int, column: Column, own: FeatureMap):
        self.n, self.column, self.own, self.levels = n, column, own, levels
        self.content = content_of(column, "SQL")
        self.pieces: Pieces | None = None
        self.elements: list[str] = []
        raw = f"t.{name(column.name)}"
        form = dialect.number if self.content == NUMBERS else dialect.text
        if column.kind == "numeric":
            form = dialect.numeric
        self.x = self.u = levels.set(RAW, f"x{n}", form.format(raw))
        if type(own) in PIECES:
            self.pieces = PIECES[type(own)](own)
            if self.pieces.ends is not None:
                self.u = scaled(levels, SCALED, n, self.x, self.pieces.ends)
        elif type(own) in DENSE:
            self._write_elements()
        elif type(own) is not OneHot:
            raise no_form(own, column, "SQL", [*PIECES, OneHot, *DENSE])

    @property
    def is_dense(self) -> bool:
        """Whether every element has an expression of its own."""
        return type(self.own) in DENSE

    def same_factor(self, core: np.ndarray) -> np.ndarray | None:
        """Return the factors of a core (d, K), (K,), if no value changes them; else None."""
        if self.is_dense:
            return None
        return constant_factor(partition_core(core, self.own.constant))

    def categories(self, own: FeatureMap) -> list[tuple[Any, int]]:
        """Return the categories that have an element of their own, sorted, and that element."""
        known = list(self.column.categories or ())
        elements = own.encode(np.arange(len(known)))[0][:, 0]
        plain = [c if self.content == TEXT else float(c) for c in known]
        return sorted((c, int(e)) for c, e in zip(plain, elements) if e > 0)

    def _write_elements(self) -> None:
        known = DENSE[type(self.own)](self.own, self.levels, self.n, self.x)
        if self.own.missing_ is not None:
            none = self.own.missing_
        else:
            none = self.own.dense(np.array([np.nan]))[0, int(self.own.constant) :]
        for j, (text, absent) in enumerate(zip(known, none)):
            whole = f"CASE WHEN {self.x} IS NULL THEN {literal(absent)} ELSE {text} END"
            self.elements.append(self.levels.set(ELEMENTS, f"e{self.n}_{j}", whole))

    # ---- one expression -------------------------------------------------------------------------

    def place(self) -> None:
        """Name the cell `k` and the place `v` in it, or the element `k` of a category.

        NULL for a missing value. Cell and place are found at once, as their sum.
        """
        levels, n, pieces = self.levels, self.n, self.pieces
        if self.is_dense:
            return
        if pieces is None:
            self.k = levels.set(READY, f"k{n}", self._element())
            return
        n_cells = len(pieces.start)
        edges = [literal(edge) for edge in pieces.edges]
        if pieces.n_slots == 1:
            cell = choice(self.u, edges, [str(k) for k in range(n_cells)])
            self.k = levels.set(READY, f"k{n}", f"CASE WHEN {self.u} IS NOT NULL THEN {cell} END")
            return
        results = [
            f"{k} + ({self.u} * 0.5e0 - {literal(start)}) / {literal(width)}"
            for k, (start, width) in enumerate(zip(pieces.start, pieces.width))
        ]
        both = levels.set(PLACED, f"p{n}", choice(self.u, edges, results))
        held = levels.set(READY, f"h{n}", clipped(both, 0.0, float(n_cells)))
        cell = f"CASE WHEN {held} >= {n_cells} THEN {n_cells - 1} ELSE FLOOR({held}) END"
        self.k = levels.set(ELEMENTS, f"k{n}", f"CAST({cell} AS BIGINT)")
        self.v = levels.set(ELEMENTS + 1, f"v{n}", f"{held} - {self.k}")

    def _element(self) -> str:
        pairs = self.categories(self.own)
        if not pairs:
            return "CAST(NULL AS BIGINT)"
        texts = [literal(c) for c, _ in pairs]
        results = [f"CASE WHEN {self.x} = {t} THEN {e} END" for t, (_, e) in zip(texts, pairs)]
        return choice(self.x, texts[1:], results)

    def part(self, core: np.ndarray) -> str:
        """Return phi' a for one term of a core, (d,), as one expression; after `place`."""
        if self.is_dense:
            first = int(self.own.constant)
            terms = [f"{literal(a)} * {e}" for a, e in zip(core[first:], self.elements)]
            return "(" + " + ".join([literal(core[0])] * first + terms) + ")"
        core = partition_core(core[:, None], self.own.constant)
        if self.pieces is None:
            results = [literal(a) for a in core[1:, 0]]
            edges = [str(e) for e in range(2, len(core))]
        else:
            v = self.v if self.pieces.n_slots > 1 else ""
            results = [_horner(own, v) for own in self.pieces.core(core)[:, :, 0]]
            edges = [str(k) for k in range(1, len(results))]
        known = choice(self.k, edges, results) if results else "NULL"
        return f"(CASE WHEN {self.k} IS NULL THEN {literal(core[0, 0])} ELSE {known} END)"

    # ---- coefficient tables ---------------------------------------------------------------------

    def coefficients(self, core: np.ndarray) -> np.ndarray:
        """Return the coefficients of the column's numbered elements, (m, K), of a core (d, K).

        Curved pieces have an element per cell and power of the place in it, counted from 1; all
        other maps have the elements of the core, with the constant of local ones added to all.
        """
        if self.is_dense:
            return core
        core = partition_core(core, self.own.constant)
        if self.pieces is None or self.pieces.n_slots == 1 or self.pieces.linear:
            return core
        return np.vstack([core[:1], self.pieces.core(core).reshape(-1, core.shape[1])])


def scaled(levels: Levels, level: int, n: int, x: str, ends: np.ndarray) -> str:
    """Name x scaled from a range to -1..1, as `polyadic.maps.column.to_range` does."""
    middle, half = to_range_numbers(ends)
    inside = clipped(x, *map(float, ends))
    return levels.set(level, f"u{n}", f"(({inside}) - {literal(middle)}) / {literal(half)}")


def _horner(coefficients: Sequence[float], v: str) -> str:
    """Return a polynomial of v."""
    *lower, text = [literal(c) for c in coefficients]
    for c in lower[::-1]:
        text = f"({c} + {v} * {text})"
    return text


def _polynomial(own: Polynomial, levels: Levels, n: int, x: str) -> list[str]:
    z = levels.set(SCALED, f"u{n}", f"({x} - {literal(own.mean_)}) / {literal(own.std_)}")
    if own.normalize:
        return _unit_powers(levels, n, z, own.d)
    limit = LARGEST_ELEMENT ** (1.0 / max(own.d - 1, 1))
    z = levels.set(PLACED, f"z{n}", clipped(z, -limit, limit))
    powers = [f"POWER({z}, {j})" for j in range(1, own.d)]
    if not own.standardize:
        return powers
    pairs = zip(powers, own.element_mean_, own.element_std_)
    return [f"(({p} - {literal(m)}) / {literal(s)})" for p, m, s in pairs]


def _unit_powers(levels: Levels, n: int, z: str, d: int) -> list[str]:
    """Return the powers of z over their norm; of 1 / z where |z| > 1, so that none overflows."""
    ratio = levels.set(PLACED, f"z{n}", f"CASE WHEN ABS({z}) > 1 THEN 1.0e0 / {z} ELSE {z} END")
    square = f"({ratio} * {ratio})"
    norm = levels.set(
        READY,
        f"n{n}",
        f"SQRT(CASE WHEN 1 - {square} < {_NEAR_ONE} THEN {d} "
        f"ELSE (1 - POWER({square}, {d})) / (1 - {square}) END)",
    )
    sign = f" * (CASE WHEN {z} < 0 THEN -1 ELSE 1 END)" if d % 2 == 0 else ""
    return [
        f"(CASE WHEN ABS({z}) > 1 THEN POWER({ratio}, {d - 1 - j}){sign} "
        f"ELSE POWER({ratio}, {j}) END / {norm})"
        for j in range(d)
    ]


def _chebyshev(own: Chebyshev, levels: Levels, n: int, x: str) -> list[str]:
    u = scaled(levels, SCALED, n, x, own.range_)
    angle = levels.set(PLACED, f"z{n}", f"ACOS({clipped(u, -1.0, 1.0)})")
    return [f"COS({j} * {angle})" for j in range(1, own.d)]


def _fourier(own: Fourier, levels: Levels, n: int, x: str) -> list[str]:
    u = scaled(levels, SCALED, n, x, own.range_)
    return [
        f"{function}({literal(np.pi * k)} * {u})"
        for k in range(1, own.n_frequencies + 1)
        for function in ("COS", "SIN")
    ]


def _trigonometric(own: Trigonometric, levels: Levels, n: int, x: str) -> list[str]:
    u = scaled(levels, SCALED, n, x, own.range_)
    angle = f"{literal(0.25 * np.pi)} * ({u} + 1)"
    return [f"COS({angle})", f"SIN({angle})"]


# The elements of maps that are all non-zero, without the constant, from numbers that are known.
DENSE: dict[type[FeatureMap], Callable[[Any, Levels, int, str], list[str]]] = {
    Chebyshev: _chebyshev,
    Fourier: _fourier,
    Polynomial: _polynomial,
    Trigonometric: _trigonometric,
}
