"""Plots, with matplotlib: one function for each result, which takes axes or makes its own.

Every function returns the axes that it drew on, so that you can set titles and limits, and save.
"""

from polyadic.plots.compare import compare
from polyadic.plots.dependence import interaction
from polyadic.plots.effects import effects
from polyadic.plots.history import learning_curve
from polyadic.plots.rows import beeswarm, waterfall
from polyadic.plots.shares import importance, orders

__all__ = [
    "beeswarm",
    "compare",
    "effects",
    "importance",
    "interaction",
    "learning_curve",
    "orders",
    "waterfall",
]
