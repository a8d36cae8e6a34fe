"""Ames: 2,930 houses, 33 numbers and 40 categories; the logarithm of the price."""

from functools import partial

import mixed

TASK = "regression"

load = partial(mixed.read, "ames", TASK)
