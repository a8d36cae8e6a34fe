"""Abalone (UCI): 4,177 shells, 7 numbers and 1 category; the number of rings."""

from functools import partial

import mixed

TASK = "regression"

load = partial(mixed.read, "abalone", TASK)
