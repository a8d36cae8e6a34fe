"""Pumadyn-32nm: 8,192 states of a simulated robot arm, 32 numbers."""

from functools import partial

import uci

TASK = "regression"

load = partial(uci.read, "pumadyn32nm")
