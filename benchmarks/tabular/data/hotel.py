"""Hotel rates: 15,402 bookings, 17 numbers and 9 categories; the price per room."""

from functools import partial

import mixed

TASK = "regression"

load = partial(mixed.read, "hotel", TASK)
