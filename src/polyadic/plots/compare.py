"""Plots of two models' main effects, where they differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyadic.explain import Comparison, Effects
from polyadic.explain import compare as compare_models
from polyadic.explain.outputs import find_output
from polyadic.plots.effects import draw_panels
from polyadic.plots.style import class_title


def compare(
    result: Any,
    top: int = 8,
    output: Any = None,
    names: Sequence[str] = ("a", "b"),
    axes: Any = None,
) -> np.ndarray:
    """Draw the main effects of two models for the columns where these differ most.

    The title of a panel has the column, and the share of the variance of the models' difference
    that is due to the difference of these two curves. Each panel has its own scale, so that small
    differences are seen. The pale strip shows where the rows are.

    Parameters
    ----------
    result : Comparison, or a pair (a, b) of fitted models
        From `polyadic.explain.compare`, which is called for a pair.
    top : int
        Number of columns to draw, those that differ most first.
    output : label or int, optional
        Which of several classes, by its label, or of several numbers; by default the first.
    names : pair of str
        What the legend calls the models.
    axes : array of matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    axes : array of matplotlib axes
    """
    if isinstance(result, tuple) and len(result) == 2:
        result = compare_models(*result)
    if not isinstance(result, Comparison):
        raise TypeError(
            "plots.compare draws a Comparison (from explain.compare(a, b)), or a pair (a, b) of "
            f"fitted models, got {type(result).__name__}."
        )
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"names must be two names, one for each model, got {names!r}.")
    first = result.effects[0]
    k = find_output(output, result.outputs, first.classes)
    both = _both(result, k, names)
    return draw_panels(both, top, axes, one_scale=False, title=class_title(first, k))


def _both(result: Comparison, output: int, names: Sequence[str]) -> Effects:
    """Return one output of both models, as if they were two outputs of one model."""
    a, b = result.effects
    one = slice(output, output + 1)
    shares = result.main / result.variance if result.variance > 0 else 0.0 * result.main
    return replace(
        a,
        outputs=[str(name) for name in names],
        classes=None,
        base=np.concatenate([a.base[one], b.base[one]]),
        values=[np.hstack([u[:, one], v[:, one]]) for u, v in zip(a.values, b.values)],
        missing=[np.concatenate([u[one], v[one]]) for u, v in zip(a.missing, b.missing)],
        variance=result.main,
        share=shares,
    )
