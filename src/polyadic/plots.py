"""Pictures, with matplotlib; every function takes axes or makes its own, and returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polyadic.explain import Effects

_INK, _BLUE, _GREY = "#333333", "#1f5fa8", "#9aa3ad"
_LOG_RATIO = 3.0  # a loss that falls by more than this is drawn on a log scale
_HEADROOM = 3.0  # times the lowest loss of the members; the first epochs may lie above
_MOST_LABELS = 12  # categories that are named along an axis


def learning_curve(model: Any, ax: Axes | None = None) -> Axes:
    """Draw the loss of each member over the epochs.

    The thin lines are the members, each judged on rows held out from it (on the training rows,
    where none were held out), with a dot at the epoch that was kept. The thick line is their mean,
    the grey one the mean loss on the training rows.

    Parameters
    ----------
    model : fitted CPRegressor or CPClassifier
    ax : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib axes
    """
    plt = _pyplot()
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, "history_")
    if ax is None:
        ax = plt.subplots(figsize=(7.0, 4.2), layout="constrained")[1]
    history = model.history_
    held_out = "validation_loss" in history[0]
    curves = [np.asarray(h["validation_loss" if held_out else "train_loss"]) for h in history]
    train = _mean_curve([np.asarray(h["train_loss"]) for h in history])
    if held_out:
        ax.plot(_epochs(train), train, color=_GREY, lw=1.6, label="training rows")
    _draw_members(ax, curves, "held-out rows" if held_out else "training rows", held_out)
    _scale_losses(ax, curves, train)
    _style(ax)
    ax.set_xlim(0, max(len(curve) for curve in curves) + 1)
    ax.set_xlabel("epoch")
    ax.set_ylabel("loss")
    members = "one member" if len(curves) == 1 else f"{len(curves)} members"
    ax.set_title(f"{type(model).__name__}, {members}", loc="left", fontsize=11)
    ax.legend(frameon=False)
    return ax


def effects(result: Effects, top: int = 8, axes: Any = None) -> np.ndarray:
    """Draw the main effects of the strongest columns side by side, on one scale.

    Beside the name of a column stands the share of the variance that its effect makes.

    Parameters
    ----------
    result : Effects
        From `polyadic.explain.effects`.
    top : int
        Number of columns to draw, strongest first.
    axes : array of matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    axes : array of matplotlib axes
    """
    plt = _pyplot()
    order = np.argsort(-result.variance, kind="stable")[:top]
    if axes is None:
        width = min(4, len(order))
        height = -(-len(order) // width)
        size = (2.7 * width + 0.4, 2.3 * height + 0.3)
        axes = plt.subplots(
            height, width, figsize=size, sharey=True, squeeze=False, layout="constrained"
        )[1]
    axes = np.asarray(axes)
    for ax in axes.ravel()[len(order) :]:
        ax.set_visible(False)
    for ax, n in zip(axes.ravel(), order):
        _draw_effect(ax, result, n)
    for ax in axes[:, 0] if axes.ndim == 2 else axes.ravel()[:1]:
        ax.set_ylabel("effect")
    return axes


def _draw_members(ax: Axes, curves: list[np.ndarray], rows: str, held_out: bool) -> None:
    """Draw one thin line a member and their mean."""
    several = len(curves) > 1
    for curve in curves:
        thin = {"lw": 0.9, "alpha": 0.45} if several else {"lw": 2.2, "label": rows}
        ax.plot(_epochs(curve), curve, color=_BLUE, **thin)
    if several:
        mean = _mean_curve(curves)
        ax.plot(_epochs(mean), mean, color=_BLUE, lw=2.2, label=f"{rows}, mean of the members")
    if held_out and all(len(curve) for curve in curves):
        best = [int(np.argmin(np.where(np.isfinite(c), c, np.inf))) for c in curves]
        lowest = [curve[i] for curve, i in zip(curves, best)]
        kept = "epoch kept" if not several else "epoch kept by each member"
        ax.plot(np.add(best, 1), lowest, "o", ms=6, mec="white", color=_BLUE, label=kept, zorder=3)


def _draw_effect(ax: Axes, result: Effects, n: int) -> None:
    """Draw the effect of one column: a curve, or a bar for each category."""
    grid, values, ends = result.grid[n], result.values[n], result.ends[n]
    ax.axhline(0.0, color=_GREY, lw=0.8)
    if ends is not None:
        for k, value in enumerate(values.T):
            ax.plot(grid, value, lw=1.8, color=_BLUE if values.shape[1] == 1 else f"C{k}")
        low, high = ends
        if low < high:  # beyond the middle nine tenths of the rows by half a width at most
            inside = grid[(grid >= low - (high - low) / 2) & (grid <= high + (high - low) / 2)]
            ax.set_xlim(inside[0], inside[-1])
    else:
        places = np.arange(len(grid))
        width = 0.8 / values.shape[1]
        for k, value in enumerate(values.T):
            offset = (k - (values.shape[1] - 1) / 2) * width
            ax.bar(places + offset, value, width, color=_BLUE if values.shape[1] == 1 else f"C{k}")
        few = len(grid) <= _MOST_LABELS
        ax.set_xticks(places if few else [])
        ax.set_xticklabels([str(c) for c in grid] if few else [], rotation=45, ha="right")
    share = 100 * result.share[n]
    percent = f"{share:.0f} %" if share >= 1 else f"{share:.1f} %"
    ax.set_title(f"{result.columns[n]}, {percent}", loc="left", fontsize=10)
    _style(ax)


def _epochs(curve: np.ndarray) -> np.ndarray:
    return np.arange(1, len(curve) + 1)


def _mean_curve(curves: list[np.ndarray]) -> np.ndarray:
    """Return the mean over the epochs that every member has."""
    shortest = min(len(curve) for curve in curves)
    return np.mean([curve[:shortest] for curve in curves], axis=0)


def _scale_losses(ax: Axes, curves: list[np.ndarray], train: np.ndarray) -> None:
    """Leave the first epochs out of sight; take a log scale for a loss that falls far."""
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


def _style(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=_GREY, alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(colors=_INK, labelsize=9)


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib. Install it with: pip install 'polyadic[plot]'"
        ) from error
    return plt
