"""Airfoil self-noise (UCI): 1,503 measurements, 5 numbers."""

from functools import partial

import uci

TASK = "regression"

load = partial(uci.read, "airfoil")
