"""Energy efficiency (UCI): 768 buildings, 8 numbers."""

from functools import partial

import uci

TASK = "regression"

load = partial(uci.read, "energy")
