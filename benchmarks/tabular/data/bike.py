"""Bike sharing (UCI): 17,379 hours, 17 numbers."""

from functools import partial

import uci

TASK = "regression"

load = partial(uci.read, "bike")
