"""SML2010 (UCI): 4,137 readings in a house, 26 numbers."""

from functools import partial

import uci

TASK = "regression"

load = partial(uci.read, "sml")
