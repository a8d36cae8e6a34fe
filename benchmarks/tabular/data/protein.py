"""Protein structure (UCI): 45,730 decoys, 9 numbers."""

from functools import partial

import uci

TASK = "regression"

load = partial(uci.read, "protein")
