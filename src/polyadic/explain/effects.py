"""Main effects and partial dependence: the model along one, two or three columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyadic.data.marginals import Marginal, design
from polyadic.explain.anova import main_shares
from polyadic.explain.effect import Effect, point_frame
from polyadic.explain.grids import (
    as_array,
    code_points,
    density_of,
    ends_of,
    usual_points,
    with_steps,
)
from polyadic.explain.listing import Listing, number
from polyadic.explain.means import mean_effects, mean_on_grid, told_rows, with_missing
from polyadic.explain.models import code, find_columns, read
from polyadic.explain.outputs import class_list
from polyadic.explain.reading import Reading
from polyadic.explain.scales import check_scale
from polyadic.explain.wrapped import unwrap
from polyadic.training.model import UNNAMED, FittedModel, Target, output_names, target_of

# Chosen by hand:
_EFFECT_POINTS = 64  # on the grid of a numeric column's effect
_GRID_POINTS = {1: 101, 2: 41, 3: 17}  # per column of a partial dependence, by number of columns
_MOST_POINTS = 4_000_000  # of a grid, times outputs
_BY_COLUMN = (
    "grid",
    "values",
    "missing",
    "edges",
    "density",
    "variance",
    "share",
    "ends",
    "ordered",
)


@dataclass(frozen=True, repr=False)
class Effects(Listing):
    """The main effect of each column on a grid; prints itself as a table.

    `found["age"]` or `found[0]` is the `Effect` of one column, `found[["age", "sex"]]` are the
    `Effects` of some; `len(found)` is the number of columns, and iteration yields each `Effect`.

    Attributes
    ----------
    columns : list of N str
    outputs : list of L str
        Names of the outputs: classes, "y0", "y1" ..., or "" for a single number.
    base : (L,)
        The mean prediction, which the effects add to.
    grid : list of N arrays, (k_n,)
        Quantiles of a numeric column; the categories of a categorical one.
    values : list of N arrays, (k_n, L)
        The effect at each point, zero on average over the rows. On another scale than "raw", the
        mean prediction with the column fixed at this point.
    missing : list of N arrays, (L,)
        The same for a missing value.
    edges, density : lists of N arrays
        Share of the rows between one edge and the next: bins of equal width, and a wide one for a
        tail. For a categorical column the shares of the categories, and None for edges.
    variance, share : (N,)
        Variance of the effect over the rows, summed over the outputs, and its share of the whole;
        always on the raw scale.
    ends : list of N tuples, or None for a categorical column
        The 5 % and 95 % quantiles: the middle nine tenths of the rows lie between them.
    ordered : list of N bools
        Whether the points of a column have an order: numbers, ordered categories, months.
    scale : str
        "raw", "probability" or "response".
    classes : list of K, or None
        The classes of a classifier.
    n_rows : int
        Rows that `values` are means over, where these are not closed forms; else 0.
    error : float
        The largest standard error of `values`; 0 for closed forms, and for means over given rows.
    target : Target
        What the effects are on: the name of y, and whether a link follows.
    """

    columns: list[str]
    outputs: list[str]
    base: np.ndarray
    grid: list[np.ndarray]
    values: list[np.ndarray]
    missing: list[np.ndarray]
    edges: list[np.ndarray | None]
    density: list[np.ndarray]
    variance: np.ndarray
    share: np.ndarray
    ends: list[tuple[float, float] | None]
    ordered: list[bool]
    scale: str
    classes: list[Any] | None = None
    n_rows: int = 0
    error: float = 0.0
    target: Target = UNNAMED

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Effect]:
        return (self[n] for n in range(len(self)))

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    def __getitem__(self, key: Any) -> Any:
        chosen = find_columns(self.columns, key if isinstance(key, list) else [key])
        names = [self.columns[n] for n in chosen]
        own: dict[str, Any] = {f: [getattr(self, f)[n] for n in chosen] for f in _BY_COLUMN}
        if isinstance(key, list):
            own |= {field: np.array(own[field]) for field in ("variance", "share")}
            return replace(self, columns=names, **own)
        one = {field: values[0] for field, values in own.items()}
        return Effect(
            names[0], self.outputs, self.base, **one, scale=self.scale, target=self.target
        )

    def table(self) -> dict[str, list[Any]]:
        """Return standard deviation, share and range of every effect, strongest first."""
        order = np.argsort(-self.variance, kind="stable")
        mean = "" if self.scale == "raw" else " mean"  # an effect has a sign, a mean has none
        return {
            "column": [self.columns[n] for n in order],
            "std": np.sqrt(self.variance[order]).tolist(),
            "share": self.share[order].tolist(),
            f"lowest{mean}": [_end(np.min, self.values[n]) for n in order],
            f"highest{mean}": [_end(np.max, self.values[n]) for n in order],
        }

    def footer(self) -> str:
        """Return which rows the values are means over; for closed forms the unit of the effects."""
        told = told_rows(self.target.prediction(), self.n_rows, self.error)
        return told or self.target.note()


@dataclass(frozen=True, repr=False)
class PartialDependence:
    """The mean prediction with one, two or three columns fixed.

    Attributes
    ----------
    columns : list of m str
    outputs : list of L str
    grid : list of m arrays, (k_i,)
    values : (k_1, ..., k_m, L)
    pure : bool
        Whether all terms of fewer columns, and the base, are subtracted.
    scale : str
    classes : list of K, or None
        The classes of a classifier.
    n_rows, error, target
        As in `Effects`.
    """

    columns: list[str]
    outputs: list[str]
    grid: list[np.ndarray]
    values: np.ndarray
    pure: bool
    scale: str
    classes: list[Any] | None = None
    n_rows: int = 0
    error: float = 0.0
    target: Target = UNNAMED

    def __repr__(self) -> str:
        what = "Pure interaction" if self.pure else "Partial dependence"
        sizes = " x ".join(str(len(g)) for g in self.grid)
        low, high = number(np.min(self.values)), number(np.max(self.values))
        told = f"{what} of {', '.join(self.columns)} on {sizes} points, from {low} to {high}."
        note = told_rows(self.target.prediction(), self.n_rows, self.error) or self.target.note()
        return f"{told} {note}".rstrip()

    def to_pandas(self) -> Any:
        """Return one line per point, with the columns' values and one column per output."""
        points = np.meshgrid(*(np.arange(len(g)) for g in self.grid), indexing="ij")
        frame = {c: g[p.ravel()] for c, g, p in zip(self.columns, self.grid, points)}
        values = self.values.reshape(-1, len(self.outputs))
        return point_frame(frame, "prediction", self.outputs, values)


def effects(
    model: FittedModel,
    background: Any = None,
    scale: str = "raw",
    columns: Sequence[str | int] | None = None,
) -> Effects:
    """Return the main effect of each column, with all other columns averaged out.

    Scores of three or more classes are relative to their mean over the classes.

    f_n(x_n) = u_n(x_n) + sum_r C_r g_nr(x_n) prod_{m != n} mu_mr, less its mean over the rows,
    where u_n is the additive part of the model, if it has one.

    Parameters
    ----------
    model : fitted estimator
    background : table, optional
        Gives the marginals and the grids; by default the training table, which the model keeps.
    scale : "raw", "probability" (of classes) or "response" (of any model)
        Other than "raw", the values are mean predictions after the link with one column fixed. They
        have no closed form: they are means over the rows of the background, as they are, or over
        2,000 rows drawn from the product of the marginals, with a standard error.
    columns : list of str or int, optional
        Which columns, in this order; by default all.

    Returns
    -------
    Effects

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> y = 3 * X[:, 0] + X[:, 0] * X[:, 1]
    >>> model = CPRegressor(n_members=1, rank=8, max_iter=60, random_state=0).fit(X, y)
    >>> found = effects(model)
    >>> bool(np.corrcoef(found["x0"].grid, found["x0"].values[:, 0])[0, 1] > 0.99)
    True
    """
    model = unwrap(model)
    scale = check_scale(model, scale)
    every = effects_of(read(model, background), output_names(model), class_list(model))
    every = replace(every, target=target_of(model, scale))
    if scale != "raw":
        means = mean_effects(model, every.grid, background)
        base, *values = means.values
        every = replace(
            every,
            base=base[0],
            values=[own[:-1] for own in values],
            missing=[own[-1] for own in values],
            scale=scale,
            n_rows=means.n_rows,
            error=means.largest_error,
        )
    return every if columns is None else every[_listed(columns)]


def effects_of(
    reading: Reading,
    outputs: list[str],
    classes: list[Any] | None = None,
    jumps: Sequence[np.ndarray] | None = None,
) -> Effects:
    """Return the main effects of a reading, on the raw scale.

    `jumps` are values at both sides of which each column is shown, by default those of the reading.
    """
    variance, share = main_shares(reading)
    base = reading.base()
    grid, values, missing = [], [], []
    for n, (column, marginal) in enumerate(zip(reading.columns, reading.marginals)):
        points, codes = usual_points(column, marginal, _EFFECT_POINTS)
        steps = reading.jumps(n) if jumps is None else jumps[n]
        if len(steps) and len(points):
            points = codes = with_steps(points, steps)
        asked = design(reading.maps[n], with_missing(column, codes))
        found = reading.partial((n,), [asked], pure=True)
        grid.append(points)
        values.append(found[:-1])
        missing.append(found[-1])
    shown = [density_of(c, m) for c, m in zip(reading.columns, reading.marginals)]
    return Effects(
        [column.name for column in reading.columns],
        outputs,
        base,
        grid,
        values,
        missing,
        [edges for edges, _ in shown],
        [density for _, density in shown],
        variance,
        share,
        [ends_of(c, m) for c, m in zip(reading.columns, reading.marginals)],
        [column.ordered for column in reading.columns],
        "raw",
        classes,
    )


def partial_dependence(
    model: FittedModel,
    columns: str | int | Sequence[str | int],
    grid: Sequence[Any] | None = None,
    background: Any = None,
    scale: str = "raw",
    pure: bool = False,
) -> PartialDependence:
    """Return the mean prediction with one, two or three columns fixed at the points of a grid.

    Exact and without sampling: the mean over the other columns has a closed form. They are taken as
    independent, unless rows to average over are given.

    Parameters
    ----------
    model : fitted estimator
    columns : str, int, or list of one to three
    grid : list of arrays, optional
        Values of each column; by default quantiles of a numeric column and all categories.
    background : table, optional
        Average over its rows, with their dependence between columns, as brute force does row by
        row. By default, over the product of the training marginals.
    scale : "raw", "probability" (of classes) or "response" (of any model)
        Other than "raw", the mean of the predictions after the link, which has no closed form: see
        `effects`.
    pure : bool
        Return the pure interaction instead: all terms of fewer columns are subtracted. Of a
        background, only the marginals are then used.

    Returns
    -------
    PartialDependence

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> y = 3 * X[:, 0] + X[:, 1] * X[:, 2]
    >>> model = CPRegressor(maps="polynomial", n_members=1, random_state=0).fit(X, y)
    >>> grid = [[-1.0, 1.0], [0.8]]
    >>> partial_dependence(model, ["x1", "x2"], grid, pure=True).values.round(1).ravel()
    array([-0.8,  0.8])
    """
    model, wanted = unwrap(model), _listed(columns)
    scale = check_scale(model, scale)
    if scale != "raw" and pure:
        raise ValueError(
            f"pure=True returns a difference, which has no scale={scale!r}. Set scale='raw'."
        )
    if not 1 <= len(wanted) <= 3:
        raise ValueError(f"columns must name one, two or three columns, got {len(wanted)}.")
    reading = read(model, background if pure else None) if background is None or pure else None
    rows = None
    if reading is None:
        rows = code(model, background)
        reading = read(model, background)
    term = find_columns(model.columns_.names, wanted)
    points, codes = _points(model, term, grid, reading.marginals)
    order = np.argsort(term)  # a reading takes the columns in their order
    designs = [design(reading.maps[term[i]], codes[i]) for i in order]
    ascending, n_rows, error = tuple(term[i] for i in order), 0, 0.0
    if scale != "raw":
        means = mean_on_grid(model, ascending, designs, background)
        (found,), n_rows, error = means.values, means.n_rows, means.largest_error
    else:
        found = reading.partial(ascending, designs, pure, rows)
    found = np.transpose(found, [*np.argsort(order), len(term)])
    return PartialDependence(
        columns=[model.columns_.names[n] for n in term],
        outputs=output_names(model),
        grid=points,
        values=found,
        pure=pure,
        scale=scale,
        classes=class_list(model),
        n_rows=n_rows,
        error=error,
        target=target_of(model, scale),
    )


def _listed(columns: str | int | Sequence[str | int]) -> list[str | int]:
    """Return one column, or several, as a list."""
    return [columns] if isinstance(columns, str | int | np.integer) else list(columns)


def _end(which: Any, values: np.ndarray) -> float:
    return float(which(values)) if values.size else 0.0


def _points(
    model: FittedModel, term: Sequence[int], grid: Any, marginals: Sequence[Marginal]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the points of each column of a term, and the same points coded."""
    columns = [model.columns_.columns[n] for n in term]
    if grid is None:
        usual = [
            usual_points(c, marginals[n], _GRID_POINTS[len(term)]) for c, n in zip(columns, term)
        ]
        points, codes = [list(part) for part in zip(*usual)]
    else:
        if len(term) == 1 and (len(grid) == 0 or np.ndim(grid[0]) == 0):
            grid = [grid]
        if len(grid) != len(term):
            raise ValueError(f"grid must have one array per column: {len(term)}, got {len(grid)}.")
        points = [as_array(values) for values in grid]
        codes = [code_points(c, p) for c, p in zip(columns, points)]
    size = int(np.prod([len(p) for p in points]))
    if size == 0:
        raise ValueError("grid has a column without points: at least one is needed.")
    if size * model.tensor_.n_outputs > _MOST_POINTS:
        raise ValueError(f"grid has {size:,} points; at most {_MOST_POINTS:,} can be shown.")
    return points, codes
