"""Soybean (UCI): 683 plants, 35 categories with gaps; nineteen diseases."""

from functools import partial

import mixed

TASK = "multiclass"

load = partial(mixed.read, "soybean", TASK)
