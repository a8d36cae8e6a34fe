"""Plots of training: the loss over the epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyadic.explain.wrapped import unwrap
from polyadic.plots.style import BLUE, GREY, new_axes, pyplot, tidy
from polyadic.training.model import FittedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Chosen by hand:
_LOG_RATIO = 3.0  # a loss that falls by more than this factor is drawn on a log scale
_HEADROOM = 3.0  # upper limit, in lowest losses of the members; first epochs may lie above it


def learning_curve(model: FittedModel, ax: Axes | None = None) -> Axes:
    """Draw the loss of each member over the epochs.

    The thin lines are the losses of the members, each on its own held-out rows (on the training
    rows, where none were held out), with a dot at the epoch that was kept. The thick line is their
    mean, the grey one the mean loss on the training rows.

    Parameters
    ----------
    model : fitted estimator
    ax : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib axes
    """
    pyplot()
    model = unwrap(model)
    history = model.history_
    if not history:
        raise ValueError(
            f"This {type(model).__name__} has no learning curves: it was made from a model of "
            "another library. Pass a model that was trained by `fit`."
        )
    ax = new_axes(ax, 7.0, 4.2)
    held_out = "validation_loss" in history[0]
    curves = [np.asarray(h["validation_loss" if held_out else "train_loss"]) for h in history]
    train = _mean_curve([np.asarray(h["train_loss"]) for h in history])
    if held_out:
        ax.plot(_epochs(train), train, color=GREY, lw=1.6, label="training rows")
    _draw_members(ax, curves, "held-out rows" if held_out else "training rows", held_out)
    _scale_losses(ax, curves, train)
    tidy(ax)
    ax.set_xlim(0, max(len(curve) for curve in curves) + 1)
    ax.set_xlabel("epoch")
    ax.set_ylabel("loss")
    members = "one member" if len(curves) == 1 else f"{len(curves)} members"
    ax.set_title(f"{type(model).__name__}, {members}", loc="left", fontsize=11)
    # Below the axes, where it covers nothing.
    ax.legend(frameon=False, fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return ax


def _draw_members(ax: Axes, curves: list[np.ndarray], rows: str, held_out: bool) -> None:
    """Draw one thin line per member and their mean."""
    several = len(curves) > 1
    for curve in curves:
        thin = {"lw": 0.9, "alpha": 0.45} if several else {"lw": 2.2, "label": rows}
        ax.plot(_epochs(curve), curve, color=BLUE, **thin)
    if several:
        mean = _mean_curve(curves)
        ax.plot(_epochs(mean), mean, color=BLUE, lw=2.2, label=f"{rows}, mean of the members")
    if held_out and all(len(curve) for curve in curves):
        best = [int(np.argmin(np.where(np.isfinite(c), c, np.inf))) for c in curves]
        lowest = [curve[i] for curve, i in zip(curves, best)]
        kept = "epoch kept" if not several else "epoch kept by each member"
        ax.plot(np.add(best, 1), lowest, "o", ms=6, mec="white", color=BLUE, label=kept, zorder=3)


def _epochs(curve: np.ndarray) -> np.ndarray:
    return np.arange(1, len(curve) + 1)


def _mean_curve(curves: list[np.ndarray]) -> np.ndarray:
    """Return the mean over the epochs that every member has."""
    shortest = min(len(curve) for curve in curves)
    return np.mean([curve[:shortest] for curve in curves], axis=0)


def _scale_losses(ax: Axes, curves: list[np.ndarray], train: np.ndarray) -> None:
    """Cut off high losses of the first epochs; use a log scale for a loss that falls far."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    known = [v[np.isfinite(v)] for v in (np.concatenate(curves), train)]
    values = np.concatenate(known)
    if len(values) == 0 or values.min() <= 0:
        return
    low, high = values.min(), min(values.max(), _HEADROOM * known[0].min())
    if high < _LOG_RATIO * low:
        return
    ax.set_yscale("log")
    ax.set_ylim(low / 1.15, high * 1.15)
    decades = 10.0 ** np.arange(np.floor(np.log10(low)) - 1, np.ceil(np.log10(high)) + 1)
    ax.yaxis.set_major_locator(FixedLocator(np.outer(decades, [1, 2, 3, 5]).ravel().tolist()))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
