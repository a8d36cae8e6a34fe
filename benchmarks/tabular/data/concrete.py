"""Concrete compressive strength (UCI): 1,030 mixtures, 8 numbers."""

from functools import partial

import uci

TASK = "regression"

load = partial(uci.read, "concrete")
