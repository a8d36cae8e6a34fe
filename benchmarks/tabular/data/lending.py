"""Lending Club: 9,857 loans, 17 numbers and 5 categories; good or bad."""

from functools import partial

import mixed

TASK = "binary"

load = partial(mixed.read, "lending", TASK)
