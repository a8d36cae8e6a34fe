"""Telephone customers: 7,043 rows, 9 numbers and 10 categories; who left."""

from functools import partial

import mixed

TASK = "binary"

load = partial(mixed.read, "wa_churn", TASK)
