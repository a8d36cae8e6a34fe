"""What all plots share: colours, axes, and how names and numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from polyadic.explain import listing
from polyadic.explain.wrapped import unwrap
from polyadic.training.model import FittedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

INK, BLUE, WARM, GREY = "#333333", "#1f5fa8", "#c8553d", "#9aa3ad"
PALE, SLATE = "#d5dae0", "#5f6b7a"  # densities and missing values; categories
OUTPUTS = [BLUE, WARM, "#3c8d5a", "#8a5aa3", "#c49a2b", "#3f9fb5", "#b0507f", "#7a7a3a", SLATE, INK]
LABEL = 48  # letters of an axis label; chosen by hand
_SCALES = {
    "signed": [BLUE, "#8fb2d6", "#f6f6f4", "#e6a594", WARM],
    "sized": ["#f1f4f8", "#a9c6e3", "#5d94c9", BLUE, "#0b2b55"],
    "ranked": [BLUE, "#8f6a94", WARM],  # no white in the middle: points lie on white
}


def pyplot() -> Any:
    """Return matplotlib.pyplot, or raise ImportError with how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib. Install it with: pip install 'polyadic[plot]'"
        ) from error
    return plt


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or new ones of this size in inches."""
    plt = pyplot()
    if ax is not None:
        return ax
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def colour_map(name: str) -> Colormap:
    """Return a colour map: "signed" (white at zero), "sized" (pale to dark) or "ranked"."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(f"polyadic {name}", _SCALES[name])


def colour_of(output: int, n_outputs: int) -> str:
    """Return the colour of one output among several."""
    return BLUE if n_outputs == 1 else OUTPUTS[output % len(OUTPUTS)]


def tidy(ax: Axes, along: Literal["x", "y"] = "y") -> None:
    """Hide the upper and right spines; draw a pale grid across the axis of numbers."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis=along, color=GREY, alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, labelsize=9)


def result_of(
    function: str, given: Any, kinds: Mapping[Any, str], explain: Callable[[FittedModel], Any]
) -> Any:
    """Return what a function draws: a result, as it is given or made from a model by `explain`."""
    if isinstance(given, tuple(kinds)):
        return given
    if hasattr(given, "fit"):
        return explain(unwrap(given))
    wanted = " or ".join(f"{kind.__name__} (from {source})" for kind, source in kinds.items())
    raise TypeError(
        f"plots.{function} draws {wanted}, or a fitted model, got {type(given).__name__}."
    )


def short(name: Any, most: int = 24) -> str:
    """Return a name that fits beside an axis.

    A dollar would start a formula in matplotlib, so it is escaped.

    >>> short("a_column_with_a_name_beyond_measure")
    'a_column_with_a_name_be…'
    """
    text = " ".join(str(name).split())
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


def amount(value: Any) -> str:
    """Write one value of a row, shortened.

    >>> amount(35682.25), amount("A very long name of a category")
    ('35,682', 'A very long name …')
    """
    return short(listing.amount(value), 18)


def axis_label(result: Any, output: int) -> str:
    """Return the label of an axis of predictions: of one output, on the scale of a result."""
    name = short(result.outputs[output])
    if result.classes is not None:
        return f"{'score' if result.scale == 'raw' else 'probability'} of {name}"
    return short(result.target.prediction(), LABEL) + (f" for {name}" if name else "")


def effect_label(result: Any, output: int | None = None) -> str:
    """Return the label of an axis of effects: on one output, or on all of them."""
    name = "" if output is None else short(result.outputs[output])
    if result.classes is not None and name:
        return f"effect on the score of {name}"
    return short(result.target.effect(), LABEL) + (f" for {name}" if name else "")


def class_title(result: Any, output: int) -> str:
    """Return which of many classes is drawn; an empty text where there is no choice."""
    many = result.classes is not None and len(result.outputs) > 1
    return f"Class {short(result.outputs[output])}" if many else ""


def left_out(ax: Axes, n_hidden: int) -> None:
    """Write above the axes, at the left, behind a title, how many columns are not drawn."""
    if n_hidden:
        columns = "column" if n_hidden == 1 else "columns"
        title = ax.get_title(loc="left")
        text = f"{title + '; ' if title else ''}{n_hidden} more {columns} not shown"
        ax.set_title(text, loc="left", fontsize=8, color=SLATE)


def legend_above(ax: Axes) -> None:
    """Add a legend above the axes, at the right, where it covers nothing."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(
            frameon=False,
            fontsize=8.5,
            ncols=3,
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            borderaxespad=0.1,
            handlelength=1.2,
        )
