"""Shapley values: what each column adds to one prediction, exactly.

The value of a set of columns is the mean prediction with those columns as in the row and all others
from the background. For a function that is a product over columns, the mean over all orders in
which columns can be added is one integral over t from 0 to 1, of a polynomial: Gauss-Legendre nodes
give it exactly, in O(N^2 R) per row for all columns at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyadic.explain.listing import Listing, amount, number, pandas
from polyadic.explain.models import code, read
from polyadic.explain.outputs import class_list, find_output
from polyadic.explain.reading import Reading
from polyadic.explain.scales import check_scale, steps_of
from polyadic.explain.wrapped import unwrap
from polyadic.training.model import (
    UNNAMED,
    FittedModel,
    Target,
    output_names,
    target_of,
    threads_of,
)

_MOST_NUMBERS = 250_000_000  # (float64, 2 GB) of a result; chosen by hand


@dataclass(frozen=True, repr=False)
class Shapley(Listing):
    """Shapley values of some rows.

    Attributes
    ----------
    values : (n, N, L)
    base : (L,)
        The mean raw prediction over the background; base and values of a row add up to its raw
        prediction. Scores of three or more classes are relative to their mean over the classes. On
        another scale, the prediction at that mean, and base and values add up to the prediction.
    columns : list of N str
    outputs : list of L str
    data : list of N arrays, (n,)
        The values of the rows.
    classes : list of K, or None
        The classes of a classifier.
    scale : str
        "raw", "probability" or "response".
    target : Target
        What the values add up to: the name of y, and whether a link follows.
    index : pandas Index, or None
        That of the rows, where they are a pandas frame.
    """

    values: np.ndarray
    base: np.ndarray
    columns: list[str]
    outputs: list[str]
    data: list[np.ndarray]
    classes: list[Any] | None = None
    scale: str = "raw"
    target: Target = UNNAMED
    index: Any = None

    def __len__(self) -> int:
        return len(self.values)

    def find_output(self, output: Any = None, row: int | None = None) -> int:
        """Return the number of an output: of a class by its label, else by its number.

        By default that of the class predicted for `row` or, without a row, most often for all rows;
        the first of several numbers.
        """
        if output is not None or self.classes is None or len(self.outputs) == 1:
            return find_output(output, self.outputs, self.classes)
        best = np.argmax(self.base + self.values.sum(axis=1), axis=1)
        return int(np.argmax(np.bincount(best)) if row is None else best[row])

    @property
    def importance(self) -> np.ndarray:
        """Mean absolute value of each column, summed over the outputs, (N,)."""
        return np.abs(self.values).mean(axis=0).sum(axis=-1)

    def table(self) -> dict[str, list[Any]]:
        """Return value and Shapley value for one row, mean absolute Shapley values for several.

        One row of many classes shows the predicted one.
        """
        one, k = self._shows_one(), self.find_output()
        size = np.abs(self.values[0, :, k]) if one else self.importance
        order = np.argsort(-size, kind="stable")
        names = [self.columns[n] for n in order]
        if one:
            held = [amount(self.data[n][0]) for n in order]
            return {"column": names, "value": held, "adds": self.values[0, order, k].tolist()}
        return {"column": names, "mean |value|": self.importance[order].tolist()}

    def footer(self) -> str:
        """Return the base that the values are added to."""
        if self._shows_one():
            k = self.find_output()
            what = f"Class {self.outputs[k]}: base" if len(self.base) > 1 else "Base"
            reached = number(self.base[k] + self.values[0, :, k].sum())
            return f"{what} {number(self.base[k])}, {self.target.prediction()} {reached}."
        base = ", ".join(number(b) for b in self.base)
        return f"{len(self):,} rows. Base {base}. {self.target.note()}".rstrip()

    def _shows_one(self) -> bool:
        """Tell whether one output of one row is printed."""
        return len(self) == 1 and (len(self.outputs) == 1 or self.classes is not None)

    def to_pandas(self) -> Any:
        """Return the values as a pandas frame, rows x columns.

        With several outputs its columns have two levels: the output, then the column.
        """
        pd, (n, n_columns, n_outputs) = pandas(), self.values.shape
        if n_outputs == 1:
            return pd.DataFrame(self.values[:, :, 0], self.index, self.columns)
        both = pd.MultiIndex.from_product([self.outputs, self.columns], names=["output", "column"])
        values = np.swapaxes(self.values, 1, 2).reshape(n, n_outputs * n_columns)
        return pd.DataFrame(values, self.index, both)

    def to_shap(self) -> Any:
        """Return a `shap.Explanation`, for the plots of the package shap.

        With several outputs its last axis is the output, as in that package.
        """
        try:
            import shap
        except ImportError as error:
            raise ImportError("This needs shap. Install it with: pip install shap") from error
        single = self.values.shape[2] == 1
        data = np.empty((len(self), len(self.columns)), dtype=object)
        for n, column in enumerate(self.data):
            data[:, n] = ["missing" if value is None else value for value in column.tolist()]
        if all(column.dtype.kind in "fiub" for column in self.data):
            data = data.astype(float)
        return shap.Explanation(
            values=self.values[:, :, 0] if single else self.values,
            base_values=np.broadcast_to(self.base, (len(self), len(self.base))).copy().squeeze(1)
            if single
            else np.broadcast_to(self.base, (len(self), len(self.base))).copy(),
            data=data,
            feature_names=list(self.columns),
            output_names=None if single else list(self.outputs),
        )


@dataclass(frozen=True, repr=False)
class ShapleyInteractions:
    """Shapley interaction values of some rows, on the raw scale.

    Attributes
    ----------
    values : (n, N, N, L)
        Symmetric. Off the diagonal, half of the interaction index of a pair, so that both entries
        add up to it; on the diagonal, the rest of the column's Shapley value. Every row of a matrix
        adds up to the Shapley value of its column.
    base : (L,)
    columns : list of N str
    outputs : list of L str
    """

    values: np.ndarray
    base: np.ndarray
    columns: list[str]
    outputs: list[str]

    def __repr__(self) -> str:
        n, n_columns, _, n_outputs = self.values.shape
        return f"Shapley interactions of {n} rows: {n_columns} columns, {n_outputs} outputs."


def shapley(model: FittedModel, X: Any, background: Any = None, scale: str = "raw") -> Shapley:
    """Return the exact Shapley values of all columns for the rows of X.

    Parameters
    ----------
    model : fitted estimator
    X : table
        The rows to explain.
    background : table, optional
        Columns outside a set are taken from its rows: interventional Shapley values. The cost is
        multiplied by its number of rows or, with few columns, grows with the number of all sets of
        columns. By default, they are taken from the product of the training marginals, at the cost
        of a single background row.
    scale : "raw", "probability" (of classes) or "response" (of any model)
        Other than "raw", the values of a row are divided anew so that they add up to its prediction
        after the link, by the rule of `polyadic.explain.scales`: for two classes, and for numbers,
        all are multiplied by the same ratio.

    Returns
    -------
    Shapley

    Examples
    --------
    >>> import numpy as np
    >>> from polyadic import CPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = CPRegressor(n_members=1, random_state=0).fit(X, 3 * X[:, 0] + X[:, 0] * X[:, 1])
    >>> found = shapley(model, X[:10])
    >>> found.values.shape
    (10, 2, 1)
    >>> bool(np.allclose(found.base + found.values.sum(axis=1), model.raw(X[:10]), atol=1e-5))
    True
    """
    model = unwrap(model)
    found = explain_coded(model, code(model, X), background, scale)
    return replace(found, index=X.index) if hasattr(X, "iloc") else found


def explain_coded(
    model: FittedModel, rows: list[np.ndarray], background: Any, scale: str = "raw"
) -> Shapley:
    """Return the Shapley values of coded rows."""
    scale = check_scale(model, scale)
    reading, other = _prepare(model, background)
    _check_size(len(rows[0]) * reading.n_columns * model.tensor_.n_outputs)
    values, base = reading.shapley(rows, other, threads_of(model))
    if scale != "raw":
        values, base = steps_of(model, base, values), model.response(base[None])[0]
    return Shapley(
        values,
        base,
        model.columns_.names,
        output_names(model),
        decode_rows(model, rows),
        class_list(model),
        scale,
        target_of(model, scale),
    )


def shapley_interactions(model: FittedModel, X: Any, background: Any = None) -> ShapleyInteractions:
    """Return the exact Shapley interaction values of all pairs of columns for the rows of X.

    Parameters
    ----------
    model, X, background
        As in `shapley`.

    Returns
    -------
    ShapleyInteractions
        In the convention of the package shap: each of the two entries of a pair has half its index.
    """
    model = unwrap(model)
    rows, (reading, other) = code(model, X), _prepare(model, background)
    _check_size(len(rows[0]) * reading.n_columns**2 * model.tensor_.n_outputs)
    n_jobs = threads_of(model)
    pairs = 0.5 * reading.shapley_pairs(rows, other, n_jobs)
    pairs += np.swapaxes(pairs, 1, 2)
    single, base = reading.shapley(rows, other, n_jobs)
    at = np.arange(reading.n_columns)
    pairs[:, at, at] = single - pairs.sum(axis=2)
    return ShapleyInteractions(pairs, base, model.columns_.names, output_names(model))


def decode_rows(model: FittedModel, rows: list[np.ndarray]) -> list[np.ndarray]:
    """Return coded rows with their categories instead of codes."""
    out = []
    for column, x in zip(model.columns_.columns, rows):
        if column.categories is None:
            out.append(x)
            continue
        names = np.empty(len(column.categories) + 1, dtype=object)
        names[:-1] = column.categories
        names[-1] = None
        out.append(names[x])
    return out


def _prepare(model: FittedModel, background: Any) -> tuple[Reading, list[np.ndarray] | None]:
    """Return the reading of a model, and the background's rows, coded."""
    return read(model, background), None if background is None else code(model, background)


def _check_size(numbers: int) -> None:
    if numbers > _MOST_NUMBERS:
        raise ValueError(
            f"The result would hold {numbers:,} numbers, and at most {_MOST_NUMBERS:,} are "
            "allowed. Explain fewer rows at a time."
        )
